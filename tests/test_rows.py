"""Heads that share their keys become the rows of a tile where there is one query."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilec
from tilec import pipeline
from tilec.ir import Grid, Kernel, Load, walk
from tilec.rows import choose
from tilec.target import CPU, CUDA

GQA = """kernel f(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], slope: f32[H]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, {g}, j, d]) + slope[h] * (j - N)
    O = sum[j](softmax[j](S) * V[b, {g}, j, e])
"""
MQA = """kernel f(Q[B, H, M, D], K[B, N, D]) -> O[b, h, i, d]:
    O = sum[j](softmax[j](sum[d](Q[b, h, i, d] * K[b, j, d])) * K[b, j, d])
"""
NO_QUERIES = """kernel f(Q[B, H, D], K[B, HK, N, D], V[B, HK, N, E], slope: f32[H, N]) -> O[b, h, e]:
    S = sum[d](Q[b, h, d] * K[b, {g}, j, d]) + slope[h, j]
    O = sum[j](softmax[j](S) * V[b, {g}, j, e])
"""
NEIGHBOURS = """kernel f(Q[B, H, D], K[B, HK, N, D], near: i32[H, N], O1[HK]) -> O[b, h, d]:
    S = sum[d](Q[b, h, d] * K[b, {g}, j, d])
    O = sum[j](softmax[j](S) * K[b, {g}, j, d])
"""
MERGED = """kernel f(P[N, B, H, D], L[N, B, H]) -> O[b, h, d]:
    O = sum[j](softmax[j](L[j, b, h]) * P[j, b, h, d])
"""
APART = """kernel f(Q[B, H, M, D], K[B, HK, N, D], pick: i32[B, HK, M, T]) -> O[b, h, i, d]:
    g = h // (H // HK)
    k = pick[b, g, i, t]
    S = sum[d](Q[b, h, i, d] * K[b, g, k, d])
    O = sum[t](softmax[t](S if k >= 0 else -inf) * K[b, g, k, d])
"""
SIZES = {"T": 9, "B": 2, "H": 8, "HK": 2, "M": 1, "N": 50, "D": 5, "E": 3}


def online(text: str) -> Kernel:
    """A program after the tensor passes."""
    kernel = tilec.compile(text, target="cpu")
    return dict(kernel.stages(sizes={d: SIZES[d] for d in kernel.dims}))["online"]


def extents(text: str, **sizes: int) -> dict[str, int] | None:
    """The extents chosen for a program and sizes."""
    found = choose(online(text), {**SIZES, **sizes}, CPU)
    return None if found is None else dict(found.extents)


@pytest.mark.parametrize(
    ("text", "sizes", "want"),
    [
        (GQA.format(g="h // (H // HK)"), {}, {"h": 4, "i": 1, "j": 1024}),
        (GQA.format(g="h // (H // HK)"), {"H": 64}, {"h": 32, "i": 1}),
        (GQA.format(g="h // (H // HK)"), {"H": 600}, {"h": 100, "i": 1}),
        (GQA.format(g="h // 3"), {"H": 6}, {"h": 3, "i": 1, "j": 1024}),
        (GQA.format(g="h // (H // HK)"), {"M": 2}, None),
        (GQA.format(g="h // (H // HK)"), {"HK": 8}, {"i": 1, "j": 1024}),
        (GQA.format(g="h % HK"), {}, {"i": 1, "j": 1024}),
        (MQA, {}, {"h": 8, "i": 1, "j": 1024}),
        (MQA, {"H": 256}, {"h": 128, "i": 1}),
        (NO_QUERIES.format(g="h // (H // HK)"), {}, {"h": 4, "b": 1, "j": 1024}),
        (NO_QUERIES.format(g="h // (H // HK)"), {"H": 600}, {"h": 100, "b": 1}),
        (NO_QUERIES.format(g="h // (H // HK)"), {"H": 2}, {"b": 1, "j": 1024}),
        (NO_QUERIES.format(g="h % HK"), {}, {"b": 1, "j": 1024}),
        (NO_QUERIES.format(g="0"), {}, None),  # all of them share their keys anyway
        (NEIGHBOURS.format(g="near[h, j]"), {}, {"b": 1, "j": 1024}),
        (MERGED, {}, None),  # no keys
        (APART, {"M": 100}, {"h": 4, "i": 1, "t": 1024}),
        (APART, {"M": 100, "H": 64}, {"h": 32, "i": 1}),
        (APART, {"M": 100, "HK": 8}, None),
    ],
)
def test_the_rows(text: str, sizes: dict[str, int], want: dict[str, int] | None) -> None:
    assert extents(text, **sizes) == want


@pytest.mark.parametrize("target", ["cpu", "reference"])
@pytest.mark.parametrize(("heads", "length"), [(8, 0), (8, 50), (2, 300), (14, 20)])
def test_no_axis_of_queries(target: str, heads: int, length: int) -> None:
    kernel = tilec.compile(NO_QUERIES.format(g="h // (H // HK)"), target=target)
    sizes = {**SIZES, "H": heads, "N": length}
    data = kernel.sample(2, **{d: n for d, n in sizes.items() if d not in ("M", "T")})
    want = kernel.reference(**data)
    np.testing.assert_allclose(kernel(**data), want, rtol=3e-5, atol=3e-5)


def test_rows_of_a_gpu_have_enough_to_do() -> None:
    text = NO_QUERIES.format(g="h // (H // HK)")
    assert choose(online(text), {**SIZES, "H": 2, "N": 20}, CUDA) is None
    found = choose(online(text), {**SIZES, "H": 2, "N": 50}, CUDA)
    assert found is not None
    assert found.extents == {"b": 1}


def test_what_must_be_a_number() -> None:
    found = choose(online(GQA.format(g="h // (H // HK)")), SIZES, CUDA)
    assert found is not None
    assert found.dims == ("H", "HK")
    assert found.extents == {"h": 4, "i": 1}


def arguments(**sizes: int) -> dict[str, Any]:
    """Data for GQA."""
    s, rng = {**SIZES, **sizes}, np.random.default_rng(0)
    shapes = {"Q": "B H M D", "K": "B HK N D", "V": "B HK N E", "slope": "H"}
    return {
        n: rng.standard_normal([s[d] for d in dims.split()]).astype("f4")
        for n, dims in shapes.items()
    }


@pytest.mark.parametrize("workers", [1, 40])
@pytest.mark.parametrize(("heads", "length"), [(4, 0), (8, 1), (8, 50), (14, 5000)])
def test_the_cpu_loads_the_keys_of_a_group_once(heads: int, length: int, workers: int) -> None:
    kernel = tilec.compile(
        GQA.format(g="h // (H // HK)"), target="cpu", schedule={"workers": workers}
    )
    data = arguments(H=heads, N=length)
    plan = kernel.plan(**data)
    keys = {
        op.result.type.axes
        for op in walk(plan.ir.body)
        if isinstance(op, Load) and op.tensor == "K"
    }
    assert keys == {("j", "d")}
    grids = [dict(op.axes) for op in plan.ir.body if isinstance(op, Grid)]
    assert all(g["i"] == 1 for g in grids)
    assert len(grids) == (2 if workers > 1 and length > 4096 else 1)
    np.testing.assert_allclose(kernel(**data), kernel.reference(**data), 3e-4, 3e-4)


def test_other_head_counts_are_other_code() -> None:
    kernel = tilec.compile(GQA.format(g="h // (H // HK)"), target="cpu")
    for heads in (4, 8, 2):
        data = arguments(H=heads)
        np.testing.assert_allclose(kernel(**data), kernel.reference(**data), 3e-5, 3e-5)


def test_steady_is_in_the_default_pipeline_before_prune() -> None:
    assert pipeline.TILE.index("steady") == pipeline.TILE.index("prune") - 1
