"""Elements by the difference of a position and a row: loaded once for both rows of a thread."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import error
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tilec.dtypes import DType

pytestmark = needs_cpp

SIZES = {"H": 2, "M": 70, "N": 90, "D": 16, "E": 16}
PROGRAM = """
kernel distance(Q[H, M, D], K[H, N, D], V[H, N, E], T{table}) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d]) + {bias}
    O = sum[j](softmax[j](S) * V[h, j, e])
"""
BIASES = {
    "T[h, j - i + M]": ": f32[H, {M} + {N}]",
    "T[h, i - j + N]": ": f32[H, {M} + {N}]",
    "T[N - (j - i), h]": "[{M} + {N}, H]",
    "(T[j - i + 5] if abs(j - i - 2) <= 7 else -1)": ": f32[20]",
    "(T[3 + i - j] if i - j < 11 else 0.5)": ": f32[9]",
}


def distance(bias: str, dtype: DType) -> tuple[tilec.Kernel, dict[str, Any]]:
    """A program with a bias by distance, and data: a table that is not dense."""
    table = BIASES[bias].format(M="M", N="N")
    kernel = tilec.compile(PROGRAM.format(table=table, bias=bias))
    arrays = kernel.sample(3, dtype=dtype, **SIZES)
    return kernel, arrays


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("bias", BIASES)
def test_a_bias_by_distance(bias: str, dtype: DType) -> None:
    """On both sides of the diagonal, beyond the ends of the table, and where its elements are apart in memory."""
    kernel, arrays = distance(bias, dtype)
    (source,) = running.tiles(kernel, dtype, SIZES, columns=32)[1].values()
    assert "diagonals_of<4, " in source.text
    exact = kernel.reference(*arrays.values())
    for table in (
        arrays["T"],
        np.repeat(arrays["T"], 3, axis=0)[::3],
        np.asfortranarray(arrays["T"]),
    ):
        got = running.run(kernel, {**arrays, "T": table}, dtype, SIZES, columns=32)
        assert error(got["O"], exact) < {"f16": 2e-3, "bf16": 1.6e-2}[dtype]


@pytest.mark.parametrize(
    "index", ["j + i", "2 * j - i + M", "j - i + M + i * 0", "j - i + M + 0 * L[j]"]
)
def test_what_is_no_difference(index: str) -> None:
    kernel = tilec.compile(
        f"""
kernel other(Q[H, M, D], K[H, N, D], V[H, N, E], T: f32[M + 2 * N], L: i32[N]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d]) + T[{index}]
    O = sum[j](softmax[j](S) * V[h, j, e])
"""
    )
    (source,) = running.tiles(kernel, "f16", SIZES, columns=32)[1].values()
    assert "diagonals_of<4, " not in source.text


@pytest.mark.parametrize(("bias", "moved"), [("T[h, j - i + M]", True), ("T[h, i, j]", False)])
def test_exponents_moved_by_a_product(bias: str, moved: bool) -> None:
    """One instruction for each where biases are few, a difference and a product where there is one for each pair."""
    table = ": f32[H, M + N]" if moved else ": f32[H, M, N]"
    kernel = tilec.compile(PROGRAM.format(table=table, bias=bias))
    (source,) = running.tiles(kernel, "f16", SIZES, columns=32)[1].values()
    assert ("_diagonals[" in source.text, "float move" in source.text) == (moved, moved)
    arrays = kernel.sample(3, dtype="f16", **SIZES)
    got = running.run(kernel, arrays, "f16", SIZES, columns=32)
    assert error(got["O"], kernel.reference(*arrays.values())) < 2e-3
