"""A factor of absent terms is as absent as they are: NaN, infinite and zero factors in rows whose terms are all masked."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec.backends.reference.interpreter import run

HEAD = """
kernel f(Q[M, D], K[N, D], P[M, N], V[N, E], g[M], G[M, E], lo: i32[M], a: float = 2) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d])
    T = S if j < lo[i] else -inf
"""
BODIES = {
    "product": "sum[j](S * V[j, e] * g[i] if j < lo[i] else 0)",
    "quotient": "sum[j](S * V[j, e] / g[i] if j < lo[i] else 0)",
    "both": "sum[j](P[i, j] * V[j, e] / a * g[i] if j < lo[i] else 0)",
    "negative": "sum[j](-(S * V[j, e] * g[i]) if j < lo[i] else 0)",
    "scalar": "sum[j](P[i, j] * V[j, e] / a if j < lo[i] else 0)",
    "two sums": "sum[j]((S * V[j, e] * g[i] if j < lo[i] else 0) - (P[i, j] * V[j, e] if j < lo[i] else 0))",
    "columns too": "sum[j](S * V[j, e] * G[i, e] if j < lo[i] else 0)",
    "an arm": "sum[j]((P[i, j] if j < lo[i] else 0) * V[j, e] * g[i])",
    "an exponential": "sum[j](exp(T) * V[j, e] * g[i])",
    "one factor": "sum[j]((P[i, j] if j < lo[i] else 0) * g[i]) * V[0, e]",
    "weights": "sum[j](softmax[j](S) * V[j, e] * g[i] if j < lo[i] else 0)",
    "weights, masked twice": "sum[j](exp(T) * V[j, e] / sum[j](exp(S)) if j < lo[i] else 0)",
    "another's normaliser": "sum[j](exp(T) * V[j, e] / sum[j](exp(S)))",
    "their own normaliser": "sum[j](exp(T) * V[j, e] / sum[j](exp(T)))",
    "behind weights": "sum[j](softmax[j](T) * V[j, e] * g[i])",
    "behind weights by hand": "sum[j](exp(T - max[j](T)) * V[j, e] * g[i])",
    "behind masked values": "sum[j](softmax[j](T) * g[i] * (V[j, e] if j < 5 else 0))",
    "a sink": "sum[j](softmax[j](T, g[i]) * V[j, e])",
    "behind a sink": "sum[j](softmax[j](T, a) * V[j, e] * g[i])",
    "of a difference": "sum[j]((softmax[j](T) - g[i] * softmax[j](T * 0.5)) * V[j, e])",
    "rows of weights": "sum[j]((softmax[j](S) if lo[i] > 0 and j < lo[i] else 0) * V[j, e])",
    "no rows of weights": "sum[j]((0 if lo[i] < 1 else softmax[j](S)) * V[j, e])",
    "rows of weights by hand": "sum[j](exp(S - max[j](S)) * V[j, e] * (g[i] if lo[i] > 0 else 0))",
    "whole numbers of rows": "sum[j](softmax[j](S) * (lo[i] if lo[i] > 0 else 0) * V[j, e])",
    "beside a normaliser": "sum[j](exp(g[i]) * (exp(T) / max(sum[j](exp(T)), 1)) * V[j, e])",
    "weights of rows that are hidden": "sum[j](softmax[j](S) * (P[i, j] if lo[i] > 0 else 0)) * V[0, e]",
}
M, N, D, E = 6, 11, 4, 3
LIMITS = np.array([0, 3, 0, N, 7, 0], np.int32)
EMPTY = LIMITS == 0
ODD = np.array([np.nan, 1, np.inf, 2, 3, 0])


def drawn(dtype: str) -> dict[str, np.ndarray]:
    """Arrays with NaN, infinity and zero as factors of the rows that see nothing, one of which has NaN scores."""
    rng = np.random.default_rng(0)
    shapes = {"Q": (M, D), "K": (N, D), "P": (M, N), "V": (N, E), "G": (M, E)}
    arrays = {n: (rng.standard_normal(s) / 2).astype(dtype) for n, s in shapes.items()}
    arrays["Q"][0, 0] = np.nan
    arrays["G"] += np.where(EMPTY, ODD, 0)[:, None].astype(dtype)
    return {**arrays, "g": ODD.astype(dtype), "lo": LIMITS}


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", BODIES)
def test_rows_that_see_nothing_are_zero(name: str, dtype: str) -> None:
    kernel = tilec.compile(f"{HEAD}    O = {BODIES[name]}\n", target="cpu")
    arrays = drawn(dtype)
    got = kernel(**arrays)
    assert (got[EMPTY] == 0).all(), got
    bound = 2e-2 if dtype == "float16" else 1e-4
    np.testing.assert_allclose(got, kernel.reference(**arrays), rtol=bound, atol=bound)


@pytest.mark.parametrize("name", BODIES)
def test_after_each_pass(name: str) -> None:
    kernel = tilec.compile(f"{HEAD}    O = {BODIES[name]}\n", tile={"i": 2, "j": 4})
    arrays, want = drawn("float64"), None
    for stage, ir in kernel.stages(dtype="f64", sizes={"M": M, "N": N, "D": D, "E": E}):
        got = run(ir, arrays, {"a": 2.0}).outputs["O"]
        want = got if want is None else want
        assert (got[EMPTY] == 0).all(), stage
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=stage)


@pytest.mark.parametrize("name", ["scalar", "both"])
def test_a_scalar_that_is_nan(name: str) -> None:
    kernel = tilec.compile(f"{HEAD}    O = {BODIES[name]}\n", target="cpu")
    got = kernel(**drawn("float32"), a=float("nan"))
    assert (got[EMPTY] == 0).all()
    assert np.isnan(got[~EMPTY]).all()


def test_no_terms_at_all() -> None:
    kernel = tilec.compile(f"{HEAD}    O = {BODIES['product']}\n", target="cpu")
    arrays = drawn("float32")
    none = {n: arrays[n][:0] for n in "KV"} | {"P": arrays["P"][:, :0]}
    assert (kernel(**{**arrays, **none}) == 0).all()
