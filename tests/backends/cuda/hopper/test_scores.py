"""What scores are made of besides a product, on the emulated Hopper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, off, prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running

pytestmark = needs_cpp

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
    assert off(got, kernel, arrays) < LIMIT[dtype]
    arrays["C"] = np.asfortranarray(arrays["C"])
    arrays["B"] = np.repeat(arrays["B"], 2, axis=2)[:, :, ::2]
    got = running.run(kernel, arrays, dtype, sizes, columns=32)
    assert off(got, kernel, arrays) < LIMIT[dtype]


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
    assert off(got, kernel, arrays) < LIMIT["f16"]


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
    assert off(got, kernel, arrays) < LIMIT["f16"]


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
    assert off(got, kernel, arrays) < LIMIT["bf16"]


def test_powers_of_any_base() -> None:
    sizes = {"B": 1, "H": 4, "N": 90, "D": 16, "E": 16}
    kernel, arrays = prepared("retention", "bf16", sizes)
    arrays["decay"][:] = [-0.97, 0.0, 1 - 2.0**-12, 1.0]
    got = running.run(kernel, arrays, "bf16", sizes, columns=32)
    assert off(got, kernel, arrays) < LIMIT["bf16"]
