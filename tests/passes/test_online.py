"""Reductions over several axes, around reductions over some of these, over axes of the grid; norms of output rows."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec.ir import For, Grid, walk

SCORES = "    S = sum[d](Q[i, d] * K[j, d])\n    P = {weight}(S)\n"

PROGRAMS = {
    "both": ("softmax[j]", "L = sum[j, d](P * K[j, d] * S)", "L[i]"),
    "both, the other way round": ("relu", "L = sum[d, j](P * K[j, d])", "L[i]"),
    "spread": ("softmax[j]", "L = sum[j, e](P * (V[j, e] - sum[j](P * V[j, e])) ** 2)", "L[i]"),
    "spread of plain sums": (
        "relu",
        "L = sum[e, j](P * (V[j, e] - sum[j](P * V[j, e])) ** 2)",
        "L[i]",
    ),
    "spread of data": ("relu", "L = sum[j, e]((T[i, j, e] - mean[j](T[i, j, e])) ** 2)", "L[i]"),
    "spread both ways": (
        "relu",
        "L = sum[j, e]((T[i, j, e] - mean[j](T[i, j, e])) * (T[i, j, e] - mean[e](T[i, j, e])))",
        "L[i]",
    ),
    "weights": ("relu", "L = max[e, j](softmax[e](T[i, j, e]) * T[i, j, e])", "L[i]"),
    "weights both ways": (
        "relu",
        "L = sum[e, j](softmax[e](T[i, j, e]) * softmax[j](T[i, j, e]))",
        "L[i]",
    ),
    "two sums of one": (
        "softmax[j]",
        "A = sum[j](P * V[j, e])\n    C = sum[j, e](P)\n    A = A + sum[e](1) + sum[j, e](1)",
        "A[i, e], C[i]",
    ),
    "norm": (
        "softmax[j]",
        "A = sum[j](P * V[j, e])\n    O = A * rsqrt(mean[e](A ** 2))\n    L = sum[e](A)",
        "O[i, e], L[i]",
    ),
    "weights of a row's norm": (
        "softmax[j]",
        "A = sum[j](P * V[j, e])\n    O = A * sum[j](P * exp(V[j, 0] * rsqrt(mean[e](A ** 2))))",
        "O[i, e]",
    ),
    "an axis of the grid": ("relu", "X = max[j](sum[e](T[i, j, e]) + V[j, e])", "X[i, e]"),
    "an axis of the grid, products": (
        "relu",
        "X = sum[j](sum[e](V[j, e] * T[i, j, e]) - V[j, e])",
        "X[i, e]",
    ),
    "an axis of the grid, nested": (
        "relu",
        "X = sum[j](sum[e](V[j, e] * sum[d](K[j, d] * max[e](T[i, j, e]))) - V[j, e])",
        "X[i, e]",
    ),
    "values of other groups": (
        "relu",
        "A = sum[j](P * V[j, e])\n    B = max[d](K[j, d])\n    C = sum[i](S * A)\n    R = softmax[j, e](C * B * 0.01)",
        "A[i, e], R[j, e]",
    ),
}


def program(name: str) -> str:
    weight, lines, outputs = PROGRAMS[name]
    start = f"kernel f(Q[M, D], K[N, D], V[N, E], T[M, N, E]) -> {outputs}:\n"
    return start + SCORES.format(weight=weight) + f"    {lines}\n"


@pytest.mark.parametrize("name", PROGRAMS)
def test_reductions_over_several_axes(name: str) -> None:
    rng = np.random.default_rng(3)
    q, k, v, t = (
        rng.standard_normal(s).astype(np.float32) for s in ((9, 4), (90, 4), (90, 20), (9, 90, 20))
    )
    kernel = tilec.compile(program(name), target="cpu")
    want, got = kernel.reference(q, k, v, t), kernel(q, k, v, t)
    several = isinstance(want, tuple)
    for w, g in zip(want if several else [want], got if several else [got], strict=True):
        np.testing.assert_allclose(g, w, atol=1e-4 * np.abs(w).max())


@pytest.mark.parametrize("name", ["norm", "two sums of one", "spread"])
def test_no_tile_holds_all_keys(name: str) -> None:
    kernel = tilec.compile(program(name), target="cpu")
    *_, (_, tiles) = kernel.stages(sizes={"M": 9, "N": 5000, "D": 4, "E": 20})
    for op in walk(tiles.body):
        if isinstance(op, (Grid, For)):
            continue
        for v in op.results:
            held = dict(zip(v.type.axes, v.type.tile, strict=True))
            assert held.get("j", 1) is not None, f"{v.name} is a tile over all of j"
