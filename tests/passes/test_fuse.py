"""Reductions over an axis of the grid that they are in."""

from __future__ import annotations

import numpy as np
import pytest

import tilec


@pytest.mark.parametrize(
    "value",
    [
        # a sum that is itself apart from the grid: its own operands are copies by then
        "sum[b, i](C[k, i] * (A[p, k] * b + D[k, q]))",
        # of another group, so along the grid's axis alone
        "sum[b](C[k, i] * (A[p, k] + D[k, q] * b) * all[j](j > k >= p))",
    ],
)
def test_a_mean_over_an_axis_of_the_grid(value: str) -> None:
    text = "kernel f(A[M, K], C[K, M], D[K, N], y[N], z[B]) -> O[i, q, p]:\n    axis b < B\n"
    text += f"    R = {value}\n    O = sum[k, j](max(R, mean[p](i if y[j] < R else 0)))\n"
    kernel = tilec.compile(text, target="cpu")
    rng = np.random.default_rng(0)
    shapes = ((5, 4), (4, 5), (4, 7), (7,), (2,))
    arrays = [rng.standard_normal(s).astype("f4") for s in shapes]
    np.testing.assert_allclose(kernel(*arrays), kernel.reference(*arrays), rtol=2e-5, atol=2e-5)
