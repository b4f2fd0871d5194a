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
