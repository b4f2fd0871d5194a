"""NaN, infinities and numbers whose differences overflow, among the scores of a row."""

from __future__ import annotations

import numpy as np
import pytest

import tilec

TEXT = """
kernel watched(Q[M, D], K[N, D], V[N, E]) -> O[i, e], L[i], P[i, j], A[j], R[i, e]:
    S = sum[d](Q[i, d] * K[j, d])
    S = S if j != 3 else -inf
    P = softmax[j](S)
    O = sum[j](P * V[j, e])
    L = logsumexp[j](S)
    A = mean[i](P)
    R = sum[j]((P if j != 20 else 0) * V[j, e])
"""
ROWS = 5


@pytest.fixture(scope="module")
def kernel() -> tilec.Kernel:
    """Attention that shows its weights, in many small tiles."""
    return tilec.compile(TEXT, target="cpu", tile={"i": 8, "j": 8})


def check(kernel: tilec.Kernel, scores: dict[int, float], values: dict[int, float]) -> None:
    """The scores of some keys, and the values of some keys, in all rows but the last, whose scores are the negatives."""
    q, k = np.ones((ROWS, 1), np.float32), np.zeros((40, 1), np.float32)
    v = np.ones((40, 2), np.float32)
    q[-1] = -1
    for j, x in scores.items():
        k[j] = x
    for j, x in values.items():
        v[j] = x
    with np.errstate(all="ignore"):
        want, got = kernel.reference(q, k, v), kernel(q, k, v)
    for o, w, g in zip(kernel.outputs, want, got, strict=True):
        np.testing.assert_allclose(
            g, w, atol=2e-6, rtol=1e-6, err_msg=f"{o.name} {scores} {values}"
        )


INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    "scores",
    [
        {10: NAN, 30: INF},  # the maximum is beyond all that was seen when NaN came
        {30: NAN, 10: INF},
        {10: NAN, 30: 3e38},
        {20: INF},
        {20: INF, 21: INF},
        {20: -INF, 5: -INF},
        {3: INF},  # masked
        {3: NAN, 12: 2.0},
        dict.fromkeys(range(40), -INF),
    ],
)
def test_a_row_with_odd_scores(kernel: tilec.Kernel, scores: dict[int, float]) -> None:
    check(kernel, scores, {})


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_only_what_is_masked_keeps_values_out(kernel: tilec.Kernel, value: float) -> None:
    check(kernel, {12: 2.0}, {3: value})
    check(kernel, {12: 3.4e38}, {3: value})
    check(kernel, {12: 3.4e38}, {30: value})  # a weight that is 0 by underflow
    check(kernel, {12: 3.4e38, 5: -3.4e38}, {5: value})
    check(kernel, {12: -INF}, {12: value})


def test_infinities_of_both_signs_in_one_sum() -> None:
    """In a sum of many terms they give NaN, in whichever windows they are; in `+` a -inf absorbs the other."""
    sums = "kernel f(A[M, N], B[M, N]) -> O[i], P[i, j]:\n    O = sum[j](A[i, j])\n"
    sums += "    P = A[i, j] + B[i, j]\n"
    products = "kernel f(A[M, N], B[M, N]) -> O[i, t], P[i, t]:\n    axis t < M\n"
    products += "    O = sum[j](A[i, j] * B[t, j])\n"
    products += "    P = sum[j](A[i, j] * B[t, j]) + sum[j](B[i, j] * A[t, j])\n"
    a, b = (np.ones((5, 40), np.float32) for _ in range(2))
    a[0, 1], a[0, 30], a[1, 3], b[2, 4], b[1, 3] = INF, -INF, INF, -INF, -INF
    for text in (sums, products):
        for tile in ({"i": 8, "j": 4}, {}):
            kernel = tilec.compile(text, target="cpu", tile=tile)
            with np.errstate(all="ignore"):
                for want, got in zip(kernel.reference(a, b), kernel(a, b), strict=True):
                    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_weights_of_a_row_one_by_one() -> None:
    """Here a weight is a scalar of its tile; its exponent overflows, which is no reason for an absent zero."""
    text = "kernel f(X[N, M], a[K]) -> O[j, i, k]:\n    O = softmax[j](X[j, i]) + a[k]\n"
    x = np.zeros((4, 3), np.float32)
    x[2, 1], x[3, 2] = INF, -INF
    kernel = tilec.compile(text, target="cpu")
    arrays = x, np.zeros(2, np.float32)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kernel(*arrays), kernel.reference(*arrays), rtol=1e-6)


def test_a_logit_that_is_a_whole_number() -> None:
    text = (
        "kernel f(C[K, N], u[B], m: i64[B, P], g: bool[N]) -> O: bool[q, p, k]:\n    axis q < N\n"
    )
    text += "    O = any[b, j](softmax[b](u[m[b, p]], 5) <= p < (C[k, j] if g[j] else 1))\n"
    kernel = tilec.compile(text, target="cpu")
    arrays = np.ones((2, 4)), np.ones(3), np.ones((3, 5), int), np.arange(4) > 2
    np.testing.assert_array_equal(kernel(*arrays), kernel.reference(*arrays))


@pytest.mark.parametrize(
    ("value", "expected"), [("-inf + inf", -INF), ("-inf - -inf", -INF), ("exp(-inf) * x[1]", 0)]
)
def test_literals_are_folded_by_the_rules_of_the_language(value: str, expected: float) -> None:
    text = f"kernel f(x[N]) -> O[i]:\n    axis i < N\n    O = {value}\n"
    got = tilec.compile(text, target="cpu")(np.full(2, NAN))
    np.testing.assert_array_equal(got, [expected] * 2)


BY_HAND = """
kernel f(X[M, N], V[N, E], s: f32[M], k[N]) -> O[i, e], L[i], U[i, e], R[i], T[i, e], C[i]:
    m = max[j](X[i, j])
    p = exp(X[i, j] - m)
    O = sum[j](p * V[j, e])
    L = sum[j](p)
    U = O / L
    R = m + log(L)
    n = max(m, s[i])
    q = exp(X[i, j] - n)
    T = sum[j](q * V[j, e]) / (sum[j](q) + exp(s[i] - n))
    C = sum[j](q * k[j] if j > 2 else 0)
"""


@pytest.mark.parametrize("tile", [{}, {"i": 2, "j": 4}])
def test_scores_of_infinity_where_softmax_is_spelled_out(tile: dict[str, int]) -> None:
    """The maximum is infinity, and infinity less that is NaN; infinite values beside finite scores stay what they are."""
    rng = np.random.default_rng(0)
    x, v, s, k = (rng.standard_normal(n).astype("f") for n in ((7, 11), (11, 3), (7,), (11,)))
    x[0, 3] = x[1, 1] = x[2, 10] = s[3] = INF
    x[2] = x[4, :9] = -INF
    x[2, 10], x[5, 4], v[8, 0] = INF, NAN, INF
    kernel = tilec.compile(BY_HAND, target="cpu", tile=tile)
    with np.errstate(all="ignore"):
        for want, got in zip(kernel.reference(x, v, s, k), kernel(x, v, s, k), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
