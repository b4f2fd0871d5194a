"""Blocks that a contraction reads as a whole, of every element type, dense or not."""

import numpy as np
import pytest

import tilec

COUNTS = """
kernel counts(Q[B, M, D], K[B, N, D]) -> O: f32[b, i]:
    S = sum[d](Q[b, i, d] * K[b, j, d])
    O = sum[j](S)
"""


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float32"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_copied_block_holds_what_the_tensor_holds(dtype: str, step: int) -> None:
    random = np.random.default_rng(0)
    q, k = ((random.random((1, n * step, 24)) > 0.5).astype(dtype)[:, ::step] for n in (5, 11))
    kernel = tilec.compile(COUNTS, target="cpu")
    np.testing.assert_array_equal(kernel(q, k), kernel.reference(q, k))


ATTENTION = """
kernel attention(Q[B, M, D], K[B, N, D], V[B, N, E]) -> O[b, i, e]:
    O = sum[j](softmax[j](sum[d](Q[b, i, d] * K[b, j, d])) * V[b, j, e])
"""
LAYOUTS = {
    "dense": lambda a: a,
    "wide rows": lambda a: np.concatenate([a, a + 1], axis=2)[:, :, : a.shape[2]],
    "columns": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    "every second": lambda a: np.repeat(a, 2, axis=2)[:, :, ::2],
    "backwards": lambda a: np.ascontiguousarray(a[:, ::-1, ::-1])[:, ::-1, ::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("width", [(1, 3), (2, 5), (4, 6), (13, 20), (8, 9), (24, 7)])
def test_heads_of_any_size_and_layout(layout: str, dtype: str, width: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    (d, e), place = width, LAYOUTS[layout]
    sizes = (19, d), (21, d), (21, e)
    q, k, v = (place(random.standard_normal((2, *s)).astype(dtype)) for s in sizes)
    kernel = tilec.compile(ATTENTION, target="cpu")
    tolerance = 2e-6 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(kernel(q, k, v), kernel.reference(q, k, v), tolerance, tolerance)


NEIGHBOUR = """
kernel neighbour(Q[B, M, D], K[B, N, D], V[B, N, E], by: int) -> O[b, i, e]:
    k = K[b + by, j, d] if b + by < B else 0
    v = V[b - by, j, e] if b >= by else 0
    O = sum[j](softmax[j](sum[d](Q[b, i, d] * k)) * v)
"""


@pytest.mark.parametrize("layout", ["dense", "wide rows", "columns"])
@pytest.mark.parametrize("width", [3, 7, 9])
def test_blocks_that_do_not_exist_are_zeros(layout: str, width: int) -> None:
    random = np.random.default_rng(2)
    arrays = (random.standard_normal((2, n, width)).astype(np.float32) for n in (19, 21, 21))
    q, k, v = (LAYOUTS[layout](a) for a in arrays)
    kernel = tilec.compile(NEIGHBOUR, target="cpu")
    for by in (0, 1):
        want = kernel.reference(q, k, v, by=by)
        np.testing.assert_allclose(kernel(q, k, v, by=by), want, 2e-6, 2e-6)


@pytest.mark.parametrize("t", [1, 2])
def test_rows_of_a_tile_with_an_axis_of_one_position(t: int) -> None:
    """An axis of one position is in the tile, while no index moves along it."""
    text = """
kernel rows(G[M, N, T], C[M, N], y[N]) -> P[j, i]:
    A = sum[j](G[i, j, t] * C[i, j])
    P = softmax[i](sum[t](A * (y[j] * C[i, j] - A)) * 0.01)
"""
    kernel = tilec.compile(text, target="cpu")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(s).astype(np.float32) for s in ((20, 9, t), (20, 9), (9,))]
    np.testing.assert_allclose(kernel(*arrays), kernel.reference(*arrays), 1e-4, 1e-5)
