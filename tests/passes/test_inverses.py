"""Sums of weights that another group divides by: that group reads their inverses."""

from __future__ import annotations

import numpy as np
import pytest

import tilec

TEXT = """
kernel f(Q[M, D], K[N, D], V[N, E], keep: i32[M]) -> O[i, e], share[j]{more}:
    S = sum[d](Q[i, d] * K[j, d]) if keep[i] > 0 else -inf
    {weights}
    O = sum[j](P * V[j, e])
    share = sum[i](P)
"""
SOFTMAX = "P = softmax[j](S)"
BY_HAND = "m = max[j](S)\n    p = exp(S - m)\n    P = p / sum[j](p)"
BARE = "P = exp(S) / sum[j](exp(S))"
OTHERS = "P = relu(S) / sum[j](exp(S - max[j](S)))"
KEPT = "P = softmax[j](S)\n    m = max[j](S)\n    L = sum[j](exp(S - m))"


def compiled(weights: str, more: str = "") -> tilec.Kernel:
    """A program that also reports what each key gets."""
    return tilec.compile(TEXT.format(weights=weights, more=more), target="cpu")


@pytest.mark.parametrize(
    ("weights", "more", "products"),
    [
        (SOFTMAX, "", True),
        (KEPT, ", L[i]", True),
        (BARE, "", False),  # such a sum may be as small as its inverse is no number
        (OTHERS, "", False),  # what is divided may be there where the sum is 0
    ],
)
def test_where_quotients_become_products(weights: str, more: str, products: bool) -> None:
    text = compiled(weights, more).ir("fuse")
    reader = text[text.index("share_2: f32[j] @hbm = group") :]
    assert ("P_1: f32[i, j] = mul(" in reader) == products
    assert ("P_1: f32[i, j] = div(" in reader) != products


@pytest.mark.parametrize("weights", [SOFTMAX, BY_HAND, BARE])
@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf])
def test_the_same_results(weights: str, odd: float | None) -> None:
    kernel = compiled(weights)
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype("f4") for s in ((70, 4), (50, 4), (50, 3))]
    keep = (np.arange(70) % 3).astype("i4")
    if odd is not None:
        arrays[0][5] = arrays[1][7] = odd
    got, right = kernel(*arrays, keep), kernel.reference(*arrays, keep)
    for x, y in zip(got, right, strict=True):
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)
