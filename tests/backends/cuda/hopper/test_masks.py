"""Which positions count, on the emulated Hopper: masks by position and by data, and rows without any."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, error, off, prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running

pytestmark = needs_cpp

MASKED = """
kernel masked(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], n: int = 40) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j](S if {mask} else -inf) * V[b, h, j, e])
"""


MASKS: dict[str, tuple[str, tuple[int, ...], int]] = {
    "a window": ("i - n < j <= i", (40, 1, 0, 1 << 40), 32),
    "a window, two words": ("i - n <= j <= i + n", (33,), 144),
    "chunks": ("i // n == j // n and j <= i", (48, 7, -48, 0, 1 << 40), 32),
    "a prefix": ("j <= i or j < n", (70,), 32),
    "from both sides": ("j < n or j > i", (70,), 32),
    "no stretch": ("j % n == 0 and j <= i", (3, -3, 0, 1 << 40), 32),
    "a stretch or columns": ("j <= i and (i // n == j // n or j % n < 2)", (48, -7), 32),
    "columns of two words": ("i // 50 == j // 50 or j % n < 2", (48,), 144),
    "places in lines": (
        "abs(i % n - j % n) <= 2 and abs(i // n - j // n) < 2",
        (16, -7, 0, 1, 1 << 40, -(1 << 40)),
        32,
    ),
    "places in lines, two words": ("abs(i % n - j % n) <= 2 or not (j % n < 5)", (16, -19), 144),
    "lines before": ("j // n < i // n or j == i", (16, 1, -7, 0, 1 << 40, -(1 << 40)), 32),
    "lines up to another": ("j // 48 - i // 9 <= n or i // 16 >= j // 16", (0, -(1 << 62)), 64),
    "a remainder up to that of the row": (
        "j % n <= i % n or j == 0",
        (12, -(1 << 33), 1 << 29),
        32,
    ),
    "as far as may be": ("abs(i - j) <= n and not (i - j // 3 < n - 99)", (9, (1 << 63) - 1), 32),
    "not in a line": ("not (j // n == i // n) or j % n == i % n", (12, -12, 1), 144),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name: str) -> None:
    mask, values, columns = MASKS[name]
    sizes = {"B": 1, "H": 1, "N": 170, "D": 16, "E": 16}
    kernel = tilec.compile(MASKED.format(mask=mask))
    random = np.random.default_rng(7)
    shape = (1, 1, 170, 16)
    arrays: dict[str, Any] = {n: random.standard_normal(shape).astype("f2") for n in "QKV"}
    for n in values:
        got = running.run(kernel, arrays, "f16", sizes, scalars={"n": n}, columns=columns)
        want = kernel.reference(*arrays.values(), n=n)
        assert error(got["O"], want) < LIMIT["f16"], n


KEPT = """
kernel kept(Q[N, D], K[N, D], V[N, E], keep: u8[N], most: i32[N]) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d])
    O = sum[j](softmax[j](S if keep[j] != 0 and (j < most[i] or keep[j] > 1) else -inf) * V[j, e])
"""


@pytest.mark.parametrize("columns", [32, 64, 112, 144])
def test_keys_that_data_leaves_out(columns: int) -> None:
    kernel = tilec.compile(KEPT)
    random = np.random.default_rng(9)
    arrays: dict[str, Any] = {n: random.standard_normal((170, 16)).astype("f2") for n in "QKV"}
    arrays["keep"] = random.integers(0, 3, 170).astype("u1")
    arrays["most"] = random.integers(0, 170, 170).astype("i4")
    got = running.run(kernel, arrays, "f16", {"N": 170, "D": 16, "E": 16}, columns=columns)
    assert off(got, kernel, arrays) < LIMIT["f16"]


OTHERS = """
kernel others(Q[N, D], K[N, D], V[N, E], a: i32[N], b: i32[N]) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d])
    O = sum[j](softmax[j](S if a[i] == b[j] else -inf) * V[j, e])
"""


def test_rows_whose_windows_data_leaves_out() -> None:
    kernel = tilec.compile(OTHERS)
    random = np.random.default_rng(3)
    arrays: dict[str, Any] = {n: random.standard_normal((400, 16)).astype("f2") for n in "QKV"}
    arrays["a"] = np.repeat(np.array([5, 1, 2, 9], "i4"), 100)
    arrays["b"] = np.repeat(np.array([0, 1, 1, 2], "i4"), 100)
    sizes = {"N": 400, "D": 16, "E": 16}
    got = running.run(kernel, arrays, "f16", sizes, columns=32, processors=1)
    assert not got["O"][:100].any()
    assert not got["O"][300:].any()
    assert off(got, kernel, arrays) < LIMIT["f16"]


def test_windows_that_all_rows_of_a_tile_decide_about() -> None:
    kernel = tilec.compile(
        "kernel kept(Q[H, M, D], K[H, N, D], V[H, N, E], keep: u8[M]) -> O[h, i, e]:\n"
        "    S = sum[d](Q[h, i, d] * K[h, j, d])\n"
        "    O = sum[j](softmax[j](S if keep[i] != 0 else -inf) * V[h, j, e])\n",
        name="kept",
    )
    sizes = {"H": 1, "M": 200, "N": 70, "D": 16, "E": 16}
    arrays = kernel.sample(3, dtype="f16", **sizes)
    arrays["keep"][:] = np.arange(200) % 3 != 0
    arrays["keep"][128:] = 0
    got = running.run(kernel, arrays, "f16", sizes, columns=32)
    assert off(got, kernel, arrays) < LIMIT["f16"]


def test_rows_without_windows() -> None:
    sizes = {"B": 1, "H": 2, "M": 300, "N": 40, "D": 16, "E": 16}
    kernel, arrays = prepared("causal", "bf16", sizes)
    got = running.run(kernel, arrays, "bf16", sizes, columns=32, processors=1)
    assert not got["O"][..., :256, :].any()
    assert off(got, kernel, arrays) < LIMIT["bf16"]
