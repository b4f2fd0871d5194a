"""Hopper kernels, run on the CPU with copies and products as late as they may be, against the interpreter."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.hopper import emulator, running
from tilec.backends.cuda.hopper import sections, steps
from tilec.backends.cuda.hopper.emit import emit

pytestmark = pytest.mark.skipif(
    not emulator.available(), reason="no g++ here to build the emulator"
)

EXAMPLES = Path(__file__).parents[4] / "examples"
LIMIT = {"bf16": 5e-3, "f16": 7e-4, "f32": 1e-6}

SHARED: dict[str, object] = {
    "warpgroups": 2,
    "slices": 2,
    "share": True,
    "pingpong": False,
    "store": "direct",
    "columns": 32,
}
"""Two groups with the same rows, each of which computes a half of the scores' products."""
CASES: list[tuple[str, str, dict[str, int], dict[str, object]]] = [
    ("causal", "bf16", {"B": 1, "H": 3, "M": 150, "N": 190, "D": 48, "E": 80}, {"columns": 32}),
    ("causal", "f16", {"B": 2, "H": 1, "M": 70, "N": 40, "D": 32, "E": 32}, {"columns": 16}),
    ("document", "bf16", {"B": 2, "H": 2, "N": 300, "D": 32, "E": 32}, {"columns": 32}),
    (
        "gemma2",
        "bf16",
        {"B": 1, "H": 4, "HK": 2, "M": 140, "N": 150, "D": 32, "E": 32},
        {"columns": 32},
    ),
    ("chunks", "f16", {"B": 1, "H": 2, "M": 150, "N": 190, "D": 16, "E": 16}, {"columns": 32}),
    (
        "differential",
        "bf16",
        {"B": 1, "H": 2, "M": 100, "N": 100, "D": 16, "E": 32},
        {"columns": 32},
    ),
    ("alibi", "bf16", {"B": 1, "H": 3, "M": 150, "N": 190, "D": 32, "E": 32}, {"columns": 32}),
    ("alibi", "bf16", {"B": 1, "H": 2, "M": 300, "N": 300, "D": 32, "E": 32}, {"columns": 64}),
    ("mla", "bf16", {"B": 1, "H": 2, "M": 64, "N": 100, "C": 64, "R": 32}, {"columns": 32}),
    ("sink", "bf16", {"B": 1, "H": 3, "M": 150, "N": 190, "D": 32, "E": 32}, {"columns": 32}),
    ("pair_bias", "bf16", {"B": 2, "H": 1, "N": 70, "D": 32, "E": 32}, {"columns": 32}),
    (
        "paged",
        "bf16",
        {"B": 2, "H": 2, "HK": 1, "M": 3, "NP": 40, "P": 8, "MP": 20, "D": 64, "E": 64},
        {"columns": 32},
    ),
    (
        "paged",
        "f16",
        {"B": 1, "H": 2, "HK": 1, "M": 3, "NP": 9, "P": 8, "MP": 9, "D": 16, "E": 8},
        {},
    ),
    (
        "int8_cache",
        "bf16",
        {"B": 2, "H": 2, "HK": 1, "M": 8, "N": 100, "D": 64, "E": 40},
        {"columns": 32},
    ),
    ("int8_cache", "f16", {"B": 1, "H": 2, "HK": 1, "M": 8, "N": 70, "D": 16, "E": 16}, {}),
    (
        "mla_sparse",
        "bf16",
        {"B": 1, "H": 4, "M": 8, "N": 50, "C": 64, "R": 16, "T": 40},
        {"columns": 32},
    ),
    (
        "mla_sparse",
        "bf16",
        {"B": 1, "H": 8, "M": 1, "N": 150, "C": 320, "R": 16, "T": 70},
        {"columns": 64, "stages": 2},
    ),
    ("mla", "f16", {"B": 1, "H": 1, "M": 70, "N": 100, "C": 300, "R": 32}, {"columns": 32}),
    ("causal", "bf16", {"B": 1, "H": 1, "M": 40, "N": 70, "D": 304, "E": 576}, {}),
    ("differential", "bf16", {"B": 1, "H": 2, "M": 40, "N": 70, "D": 32, "E": 192}, {}),
    ("naive", "bf16", {"B": 1, "H": 1, "M": 70, "N": 70, "D": 192, "E": 128}, SHARED),
    ("mla", "f16", {"B": 1, "H": 1, "M": 70, "N": 100, "C": 128, "R": 64}, SHARED),
    (
        "differential",
        "bf16",
        {"B": 1, "H": 2, "M": 100, "N": 100, "D": 64, "E": 96},
        {**SHARED, "warpgroups": 4, "columns": 16},
    ),
    ("mla_sparse", "f16", {"B": 1, "H": 4, "M": 4, "N": 200, "C": 64, "R": 16, "T": 24}, {}),
    (
        "mla_sparse",
        "f16",
        {"B": 1, "H": 4, "M": 4, "N": 200, "C": 64, "R": 16, "T": 24},
        {"columns": 16},
    ),
    ("qk_norm", "f16", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 100, "D": 32, "E": 32}, {}),
    ("rope", "bf16", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 90, "D": 32, "E": 32}, {}),
    ("rope", "f16", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 90, "D": 20, "E": 32}, {}),
    ("rope", "f32", {"B": 1, "H": 2, "HK": 1, "M": 70, "N": 90, "D": 32, "E": 32}, {}),
    ("causal", "f32", {"B": 1, "H": 2, "M": 70, "N": 100, "D": 40, "E": 24}, {"columns": 32}),
    ("causal", "f32", {"B": 1, "H": 1, "M": 40, "N": 60, "D": 264, "E": 40}, {"columns": 16}),
    ("bigbird", "f16", {"B": 2, "H": 2, "N": 200, "NB": 13, "D": 32, "E": 32}, {"columns": 32}),
    ("t5", "f16", {"B": 2, "H": 2, "M": 150, "N": 190, "D": 16, "E": 32}, {"columns": 32}),
    ("swin", "bf16", {"W": 2, "H": 2, "D": 16, "E": 32}, {}),
    ("natten2d", "bf16", {"B": 1, "H": 1, "N": 480, "D": 16, "E": 16}, {}),
    ("variance", "bf16", {"B": 1, "H": 2, "M": 70, "N": 100, "D": 32, "E": 32}, {"columns": 32}),
    ("dropout", "f16", {"B": 1, "H": 1, "M": 70, "N": 100, "D": 32, "E": 32}, {"columns": 32}),
    (
        "differential",
        "f16",
        {"B": 1, "H": 1, "M": 70, "N": 150, "D": 16, "E": 32},
        {"columns": 48, "warpgroups": 2},
    ),
    (
        "pair_bias",
        "f16",
        {"B": 3, "H": 2, "N": 100, "D": 16, "E": 16},
        {"columns": 48, "order": "longest", "section": 2},
    ),
]


def prepared(name: str, dtype: str, sizes: dict[str, int]) -> tuple[tilec.Kernel, dict[str, Any]]:
    """An example and data for it."""
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    return kernel, kernel.sample(3, dtype=dtype, **sizes)


def expected(kernel: tilec.Kernel, arrays: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """What the interpreter gives."""
    out = kernel.reference(*arrays.values())
    return out if isinstance(out, tuple) else (out,)


@pytest.mark.parametrize(("name", "dtype", "sizes", "schedule"), CASES)
def test_examples(
    name: str, dtype: str, sizes: dict[str, int], schedule: dict[str, object]
) -> None:
    kernel, arrays = prepared(name, dtype, sizes)
    got = running.run(kernel, arrays, dtype, sizes, **schedule)
    for g, r in zip(got.values(), expected(kernel, arrays), strict=True):
        assert running.error(g, r) < LIMIT[dtype]


@pytest.mark.parametrize(
    ("name", "dtype"), [("int8_cache", "f16"), ("causal", "f32"), ("causal", "bf16")]
)
def test_rows_that_are_not_dense(name: str, dtype: str) -> None:
    sizes = {"B": 1, "H": 2, "HK": 2, "M": 30, "N": 70, "D": 17, "E": 24}
    sizes = {n: k for n, k in sizes.items() if name == "int8_cache" or n != "HK"}
    kernel, arrays = prepared(name, dtype, sizes)
    arrays |= {n: np.asfortranarray(arrays[n]) for n in "KV"}
    got = running.run(kernel, arrays, dtype, sizes, columns=32, pieces=frozenset("QKV"))
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT[dtype]


SMALL_FLOATS = """
kernel f(Q[M, D], K: {dtype}[N, D], V: {dtype}[N, E], s: f32[N]) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d] * s[j])
    O = sum[j](softmax[j](S) * V[j, e])
"""


def small_floats(dtype: Any) -> tuple[tilec.Kernel, dict[str, Any], dict[str, int]]:
    """A cache of 8-bit floats with all finite values among the keys, and a scale for each."""
    sizes = {"M": 4, "N": 70, "D": 16, "E": 24}
    kernel = tilec.compile(SMALL_FLOATS.format(dtype=dtype))
    arrays = kernel.sample(1, dtype="f16", **sizes)
    values = np.arange(256, dtype=np.uint8).view(arrays["K"].dtype)
    values = values[np.isfinite(values.astype(np.float32))]
    arrays["K"] = np.resize(values, (70, 16))
    largest = np.abs(arrays["K"].astype(np.float32)).max(-1)
    return kernel, arrays | {"s": 1 / largest.clip(1)}, sizes


@pytest.mark.parametrize("columns", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_caches_of_small_floats(dtype: str, columns: int) -> None:
    kernel, arrays, sizes = small_floats(dtype)
    placed, sources = running.tiles(kernel, "f16", sizes, columns=columns)

    def launch(n: int, memory: Any, known: Any) -> None:
        assert not emulator.run(sources[n], memory, known)

    got = running.completed(placed, sources, launch, arrays, sizes)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


BIASED = """
kernel biased(Q[H, M, D], K[H, N, D], V[H, N, E], A[M, N], B: f32[H, M, N], C: bool[N, M]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d]) + A[i, j] + B[h, i, j]
    O = sum[j](softmax[j](S if C[j, i] else -inf) * V[h, j, e])
"""


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("n", [128, 90, 91])
def test_elements_of_rows_and_positions(n: int, dtype: str) -> None:
    """Two at a time where that is possible, one at a time at the end, of odd rows, and where they are not dense."""
    sizes = {"H": 2, "M": 70, "N": n, "D": 16, "E": 16}
    kernel = tilec.compile(BIASED)
    arrays = kernel.sample(3, dtype=dtype, **sizes)
    arrays["C"][:, 3] = False
    arrays["B"][1, :, 5] = -np.inf
    got = running.run(kernel, arrays, dtype, sizes, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT[dtype]
    arrays["C"] = np.asfortranarray(arrays["C"])
    arrays["B"] = np.repeat(arrays["B"], 2, axis=2)[:, :, ::2]
    got = running.run(kernel, arrays, dtype, sizes, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT[dtype]


@pytest.mark.parametrize("test", ["U >= R", "U > R", "R > U", "R >= U"])
def test_random_numbers_against_a_limit(test: str) -> None:
    """The bits are compared, not the float: for limits that are random numbers themselves, beside 0 and 1, and NaN."""
    condition = test.replace("R", "R[h]").replace("U", "uniform(7, h, i, j)")
    kernel = tilec.compile(
        f"""
kernel drawn(Q[H, M, D], K[H, N, D], V[H, N, E], R: f32[H]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d])
    O = sum[j]((S if {condition} else 0) * V[h, j, e])
"""
    )
    sizes = {"H": 9, "M": 40, "N": 40, "D": 16, "E": 16}
    arrays = kernel.sample(3, dtype="bf16", **sizes)
    first = tilec.compile(
        "kernel first(X[H]) -> U: f32[h]:\n    U = uniform(7, h, 3, 5) + 0 * X[h]\n"
    )
    drawn = first.reference(np.zeros(9, np.float32))[:3]
    arrays["R"][:] = [0, 1, -1, 2, np.nan, 1 - 2.0**-25, *drawn]
    got = running.run(kernel, arrays, "bf16", sizes, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["bf16"]


def test_powers_of_any_base() -> None:
    sizes = {"B": 1, "H": 4, "N": 90, "D": 16, "E": 16}
    kernel, arrays = prepared("retention", "bf16", sizes)
    arrays["decay"][:] = [-0.97, 0.0, 1 - 2.0**-12, 1.0]
    got = running.run(kernel, arrays, "bf16", sizes, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["bf16"]


GATED = """
kernel gated(Q[H, M, D], K[H, N, D], V[H, N, E], G[M, H, E], w[E]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d])
    O = w[e] * sigmoid(G[i, h, e]) * sum[j](softmax[j](S if j <= i else -inf) * V[h, j, e]) + G[i, h, e]
"""


@pytest.mark.parametrize(
    ("dtype", "e", "store"),
    [("bf16", 256, "direct"), ("f16", 140, "direct"), ("f16", 136, "tma"), ("f32", 137, "direct")],
)
def test_outputs_that_are_gated(dtype: str, e: int, store: str) -> None:
    kernel = tilec.compile(GATED)
    sizes = {"H": 2, "M": 90, "N": 70, "D": 16, "E": e}
    arrays = kernel.sample(3, dtype=dtype, **sizes)
    arrays["G"] = np.asfortranarray(arrays["G"])
    got = running.run(kernel, arrays, dtype, sizes, columns=32, store=store)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT[dtype]


DIVIDED = """
kernel divided(Q[H, M, D], K[H, N, D], V[H, N, E], w[E]) -> O[h, i, e]:
    P = exp(sum[d](Q[h, i, d] * K[h, j, d]))
    O = sum[j](P * V[h, j, e]) / (2 + abs(w[e])) / sum[j](P)
"""


@pytest.mark.parametrize("store", ["direct", "tma"])
def test_outputs_divided_by_a_number_per_column(store: str) -> None:
    """Only what is one number for a row has its reciprocal taken before."""
    kernel = tilec.compile(DIVIDED)
    sizes = {"H": 1, "M": 40, "N": 30, "D": 16, "E": 24}
    arrays = kernel.sample(3, dtype="bf16", **sizes)
    got = running.run(kernel, arrays, "bf16", sizes, columns=32, store=store)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["bf16"]


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
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


def test_what_a_tile_cannot_hold_asks_for_the_exact_kernel() -> None:
    sizes = {"B": 1, "H": 1, "M": 40, "N": 40, "D": 16, "E": 16}
    kernel, arrays = prepared("naive", "f32", sizes)
    _, sources = running.tiles(kernel, "f32", sizes, columns=32)
    memory = {**arrays, "O": np.zeros((1, 1, 40, 16), np.float32)}
    assert not emulator.run(sources[0], memory, sizes)
    memory["K"] = arrays["K"].copy()
    memory["K"][0, 0, 7, 3] = -np.inf
    assert emulator.run(sources[0], memory, sizes)


SCORE = """
kernel scored(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], g: f32[H, N]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score} if j <= i else -inf) * V[b, h, j, e])
"""
SCORES = {
    "beyond the short tanh": "5.0 * tanh(S / 5.0)",
    "a cap per row": "g[h, i] * tanh(S / g[h, i])",
    "a wide cap": "1000.0 * tanh(S / 1000.0)",
    "a slope that is subtracted from": "g[h, 0] * (j - i) - S",
    "slopes that add up": "S * 0.5 - (i - 3 * j) * g[h, 0] + 0.25 * (j - i)",
    "capped and sloped": "20.0 * tanh(S / 20.0) - g[h, 1] * (i - j)",
}


@pytest.mark.parametrize("score", SCORES)
def test_scores(score: str) -> None:
    sizes = {"B": 1, "H": 2, "N": 150, "D": 32, "E": 32}
    kernel = tilec.compile(SCORE.format(score=SCORES[score]))
    random = np.random.default_rng(5)
    arrays: dict[str, Any] = {
        n: (2 * random.standard_normal((1, 2, 150, 32))).astype(np.float16) for n in "QKV"
    }
    arrays["g"] = random.uniform(0.5, 60, (2, 150)).astype(np.float32)
    got = running.run(kernel, arrays, "f16", sizes, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


def test_what_ends_at_the_rows_begins_there() -> None:
    for name, order in (("alibi", True), ("document", True), ("naive", False)):
        kernel = tilec.load(EXAMPLES / f"{name}.tile")
        sizes = {d: kernel._source.sizes[d] for d in kernel.dims}
        _, sources = running.tiles(kernel, "bf16", sizes)
        structure = next(iter(sources.values())).plan.structure
        assert structure.descending == order
        assert structure.order == ((1, 0) if order else (0, 1))


def test_rows_without_windows() -> None:
    sizes = {"B": 1, "H": 2, "M": 300, "N": 40, "D": 16, "E": 16}
    kernel, arrays = prepared("causal", "bf16", sizes)
    got = running.run(kernel, arrays, "bf16", sizes, columns=32, processors=1)
    assert not got["O"][..., :256, :].any()
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["bf16"]


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
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


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
        assert running.error(got["O"], want) < LIMIT["f16"], n


PLACED = """
kernel placed(Q[H, N, D], K[H, N, D], V[H, N, E], real: f32[N], far: i64[N], table: i32[19]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d]) + {bias}
    O = sum[j](softmax[j](S if {mask} or i == j else -inf) * V[h, j, e])
"""


@pytest.mark.parametrize(
    ("bias", "mask"),
    [
        ("table[clamp(i - j, -9, 9) + 9]", "real[i] == j // 16"),
        ("table[abs(i - j) % 19] if i > j + 2 else 0", "j // 16 <= far[i]"),
        ("table[j % 19]", "abs(far[i] - j % 32) < 9"),
    ],
)
def test_what_positions_look_up_and_numbers_far_away(bias: str, mask: str) -> None:
    kernel = tilec.compile(PLACED.format(bias=bias, mask=mask))
    random = np.random.default_rng(3)
    rows = {n: random.standard_normal((2, 150, 16)).astype("f2") for n in "QKV"}
    arrays: dict[str, Any] = rows | {"real": (np.arange(150) / 8).astype("f4")}
    arrays["far"] = random.choice([-(2**63), 2**63 - 1, 3, 5, 17, -1, 0], 150)
    arrays["table"] = random.integers(-3, 3, 19).astype("i4")
    got = running.run(kernel, arrays, "f16", {"H": 2, "N": 150, "D": 16, "E": 16}, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


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
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


@pytest.mark.parametrize("late", [0, 7, 10])
def test_sections_and_late_rows(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    monkeypatch.setattr(sections, "CACHE", 1)
    monkeypatch.setattr(sections, "AT_ONCE", 6)
    sizes = {"B": 1, "H": 5, "M": 300, "N": 300, "D": 16, "E": 16}
    kernel, arrays = prepared("causal", "f16", sizes)
    (source,) = running.tiles(kernel, "f16", sizes, warpgroups=2, order="longest")[1].values()
    assert sections.section(source.structure, sizes, 2) == 2
    changes = {"warpgroups": 2, "columns": 64, "order": "longest", "section": 2, "late": late}
    got = running.run(kernel, arrays, "f16", sizes, processors=3, **changes)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


def test_small_problems_have_a_warpgroup_each() -> None:
    sizes = {"B": 2, "H": 3, "M": 49, "N": 49, "D": 32, "E": 32}
    kernel, arrays = prepared("naive", "bf16", sizes)
    _, sources = running.tiles(kernel, "bf16", sizes)
    assert sources[0].plan.schedule.warpgroups == 1
    got = running.run(kernel, arrays, "bf16", sizes, processors=1)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["bf16"]


def test_a_sink_may_have_stale_maxima() -> None:
    sizes = {"B": 1, "H": 3, "M": 70, "N": 200, "D": 32, "E": 32}
    kernel, arrays = prepared("sink", "f16", sizes)
    _, sources = running.tiles(kernel, "f16", sizes, columns=32)
    assert "__builtin_expect" in sources[0].text
    for scale in (1.0, 20.0):
        arrays["s"][:] = (-np.inf, -scale, scale)
        got = running.run(kernel, arrays, "f16", sizes, columns=32)
        for g, r in zip(got.values(), expected(kernel, arrays), strict=True):
            assert running.error(g, r) < LIMIT["f16"]


def test_growing_maxima_take_the_exact_block() -> None:
    sizes = {"B": 1, "H": 1, "M": 70, "N": 150, "D": 32, "E": 32}
    kernel, arrays = prepared("naive", "bf16", sizes)
    arrays["K"] = (arrays["K"].astype(float) * np.linspace(1, 60, 150)[:, None]).astype(
        arrays["K"].dtype
    )
    got = running.run(kernel, arrays, "bf16", sizes, columns=32)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["bf16"]


def test_what_is_absent_asks_for_the_exact_kernel() -> None:
    sizes = {"B": 1, "H": 1, "M": 64, "N": 64, "D": 32, "E": 32}
    kernel, arrays = prepared("causal", "bf16", sizes)
    _, sources = running.tiles(kernel, "bf16", sizes, columns=32)
    memory = {**arrays, "O": np.zeros((1, 1, 64, 32), arrays["V"].dtype)}
    assert not emulator.run(sources[0], memory, sizes)
    memory["V"] = arrays["V"].copy()
    memory["V"][..., 50, 3] = np.nan
    assert emulator.run(sources[0], memory, sizes)


@pytest.mark.parametrize(
    ("sum_", "asks"), [("sum[i](P)", True), ("mean[i](P / w[i])", True), ("sum[i](exp(S))", False)]
)
def test_sums_of_rows_ask_for_it_where_a_factor_meets_what_is_absent(sum_: str, asks: bool) -> None:
    kernel = tilec.compile(f"""
kernel f(Q[M, D], K[N, D], w: f32[M]) -> C: f32[j]:
    S = sum[d](Q[i, d] * K[j, d]) if j <= i else -inf
    P = softmax[j](S)
    C = {sum_}
""")
    sizes = {"M": 40, "N": 40, "D": 16}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    arrays |= {"w": np.ones(40, np.float32)}
    arrays["Q"][10] = np.nan
    placed, sources = running.tiles(kernel, "f16", sizes)
    asked: list[bool] = []

    def launch(n: int, memory: Any, known: Any) -> None:
        asked.append(emulator.run(sources[n], memory, known))

    got = running.completed(placed, sources, launch, arrays, sizes)
    assert any(asked) == asks
    assert asks or running.error(got["C"], expected(kernel, arrays)[0]) < LIMIT["f16"]


def test_a_product_with_positions_is_no_product_of_tiles() -> None:
    kernel = tilec.compile("""
kernel f(Q[M, D], K[N, D], V[N, D]) -> O[i, d], mean: f32[i]:
    P = softmax[j](sum[d](Q[i, d] * K[j, d]))
    O = sum[j](P * V[j, d])
    mean = sum[j](P * j)
""")
    code = kernel.gpu_code(M=64, N=64, D=32)
    assert code.emitter == "simt"
    assert "contract where only pointwise" in code.note


# ---- plans that are wrong

Steps = tuple[Any, ...]


def without(unwanted: Callable[[Any], bool], steps: Steps) -> Steps:
    """Steps, and those inside them, without some."""
    return tuple(inside(unwanted, s) for s in steps if not unwanted(s))


def inside(unwanted: Callable[[Any], bool], s: Any) -> Any:
    """A step without some of those inside it."""
    if isinstance(s, (steps.Loop, steps.More)):
        return dataclasses.replace(s, steps=without(unwanted, s.steps))
    if isinstance(s, steps.First):
        return dataclasses.replace(s, shared=without(unwanted, s.shared))
    return s


BROKEN: dict[str, Callable[[Any], bool]] = {
    "a value tile is read before it is there": lambda s: s == steps.Acquire("v", late=True),
    "a stage is never given back": lambda s: s == steps.Release("k"),
    "keys are overwritten while they are read": lambda s: (
        isinstance(s, steps.Settle) and s.pending == 1
    ),
    "weights are overwritten while they are read": lambda s: s == steps.Settle(0, ("tails",)),
    "rows are read before they are there": lambda s: s == steps.Query(True),
}
LABELS = {
    "documents": ("doc: i32[B, N]", "s if doc[b, i] == doc[b, j] else -inf"),
    "long numbers": ("doc: i64[B, N]", "s if doc[b, i] == doc[b, j] and j <= i else -inf"),
    "padding": ("there: bool[B, N]", "s if there[b, j] else -inf"),
    "a bias and a mask": ("bias: f32[N], there: u8[N]", "s + bias[j] if there[j] > 1 else -inf"),
    "a short bias": ("bias: bf16[H, N]", "s + bias[h, j]"),
}


def labelled(name: str, n: int) -> tuple[tilec.Kernel, dict[str, Any]]:
    """A program that reads labels, and its arguments."""
    more, score = LABELS[name]
    kernel = tilec.compile(f"""
kernel labels(Q[B, H, N, D], K[B, H, N, D], V[B, H, N, E], {more}) -> O[b, h, i, e]:
    s = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    O = sum[j](softmax[j]({score}) * V[b, h, j, e])
""")
    arrays = kernel.sample(3, dtype="f16", B=2, H=2, N=n, D=16, E=16)
    rng = np.random.default_rng(5)
    if "doc" in arrays:
        marks = np.sort(rng.integers(0, 4, arrays["doc"].shape), -1)
        arrays["doc"] = (marks << (33 if name == "long numbers" else 0)).astype(arrays["doc"].dtype)
    if "there" in arrays:
        arrays["there"] = rng.integers(0, 3, arrays["there"].shape).astype(arrays["there"].dtype)
    return kernel, arrays


@pytest.mark.parametrize(("columns", "n"), [(16, 100), (48, 150), (64, 129)])
@pytest.mark.parametrize("name", LABELS)
def test_labels(name: str, columns: int, n: int) -> None:
    kernel, arrays = labelled(name, n)
    sizes = {"B": 2, "H": 2, "N": n, "D": 16, "E": 16}
    _, sources = running.tiles(kernel, "f16", sizes, columns=columns)
    assert any(s.plan.labels for s in sources.values())
    got = running.run(kernel, arrays, "f16", sizes, columns=columns)
    assert running.error(got["O"], expected(kernel, arrays)[0]) < LIMIT["f16"]


def test_a_document_that_begins_within_a_window_needs_no_exact_arm() -> None:
    sizes = {"B": 1, "H": 1, "N": 128, "D": 16, "E": 16}
    kernel, arrays = prepared("document", "bf16", sizes)
    arrays["doc"] = (np.arange(128, dtype=arrays["doc"].dtype) + 4)[None] // 16
    placed, sources = running.tiles(kernel, "bf16", sizes, columns=128)
    ((n, source),) = sources.items()
    exact = re.compile(r"\} else \{\n(?=.*maxnum)")
    assert len(exact.findall(source.text)) > 2
    watched = exact.sub('} else { race = "an exact arm";\n', source.text)

    def launch(_: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(dataclasses.replace(source, text=watched), memory, known, processors=1)

    running.completed(placed, [n], launch, arrays, sizes)


def test_labels_that_are_never_given_back_are_noticed() -> None:
    kernel, arrays = labelled("a short bias", 200)
    sizes = {"B": 2, "H": 2, "N": 200, "D": 16, "E": 16}
    _, sources = running.tiles(kernel, "f16", sizes, columns=16)
    unwanted: Callable[[Any], bool] = lambda s: s == steps.Release("labels")  # noqa: E731
    broken = dataclasses.replace(sources[0].plan, steps=without(unwanted, sources[0].plan.steps))
    assert broken != sources[0].plan
    noticed(broken, kernel, arrays, sizes, "f16")


@pytest.mark.parametrize("mistake", BROKEN)
def test_mistakes_in_a_plan_are_noticed(mistake: str) -> None:
    sizes = {"B": 1, "H": 3, "M": 65, "N": 256, "D": 16, "E": 16}
    kernel, arrays = prepared("naive", "bf16", sizes)
    _, sources = running.tiles(kernel, "bf16", sizes, columns=16)
    plan = sources[0].plan
    mistaken = BROKEN[mistake]
    broken = dataclasses.replace(
        plan, begin=without(mistaken, plan.begin), steps=without(mistaken, plan.steps)
    )
    assert broken != plan
    noticed(broken, kernel, arrays, sizes, "bf16")


def noticed(
    broken: Any, kernel: tilec.Kernel, arrays: dict[str, Any], sizes: dict[str, int], dtype: str
) -> None:
    """Runs a plan that is wrong until it hangs or gives a wrong result."""
    want = expected(kernel, arrays)[0]
    memory = {**arrays, "O": np.zeros(want.shape, arrays["V"].dtype)}
    for seed in range(20):
        try:
            emulator.run(emit(broken), memory, sizes, processors=1, seed=seed + 1)
        except RuntimeError:  # it hangs
            return
        if running.error(memory["O"], want) > LIMIT[dtype]:
            return
    pytest.fail("nothing was noticed")


def test_words_that_all_threads_of_a_warp_read_are_noticed() -> None:
    sizes = {"B": 1, "H": 1, "N": 300, "D": 16, "E": 16}
    kernel, arrays = prepared("document", "bf16", sizes)
    placed, sources = running.tiles(kernel, "bf16", sizes, columns=16)
    ((n, source),) = sources.items()
    told = re.compile(r"shared_told\(([^;]*), lane\)")
    careless = told.sub(r"__shfl_sync(FULL, shared_get(\1), 0)", source.text)
    assert careless != source.text

    def launch(_: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(dataclasses.replace(source, text=careless), memory, known, processors=1)

    with pytest.raises(RuntimeError, match="while it is read"):
        running.completed(placed, [n], launch, arrays, sizes)


def test_labels_that_one_thread_gives_back_for_its_warp_are_noticed() -> None:
    kernel, arrays = labelled("a short bias", 200)
    sizes = {"B": 2, "H": 2, "N": 200, "D": 16, "E": 16}
    placed, sources = running.tiles(kernel, "f16", sizes, columns=16)
    ((n, source),) = sources.items()
    free, count, _ = source.plan.barriers["labels_free"]
    begun, given = f"barrier_init(shared + {free} + 8 * n, ", f"arrive(shared + {free} + "
    careless = source.text.replace(f"{begun}{count})", f"{begun}{count // 32})")
    careless = careless.replace(given, f"__syncwarp(); if (lane == 0) {given}")
    assert careless.count("__syncwarp(); if (lane == 0)") > 1

    def launch(_: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(dataclasses.replace(source, text=careless), memory, known, processors=1)

    with pytest.raises(RuntimeError, match="while it is read"):
        running.completed(placed, [n], launch, arrays, sizes)
