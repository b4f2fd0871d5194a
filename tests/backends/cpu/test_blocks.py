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
@pytest.mark.parametrize("width", [(1, 3), (13, 20), (8, 9), (24, 7)])
def test_heads_of_any_size_and_layout(layout: str, dtype: str, width: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    (d, e), place = width, LAYOUTS[layout]
    sizes = (19, d), (21, d), (21, e)
    q, k, v = (place(random.standard_normal((2, *s)).astype(dtype)) for s in sizes)
    kernel = tilec.compile(ATTENTION, target="cpu")
    tolerance = 2e-6 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(kernel(q, k, v), kernel.reference(q, k, v), tolerance, tolerance)
