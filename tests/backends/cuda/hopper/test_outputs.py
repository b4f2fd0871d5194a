"""What is done to a sum before it is stored, on the emulated Hopper."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, off
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running

pytestmark = needs_cpp

GATED = """
kernel gated(Q[H, M, D], K[H, N, D], V[H, N, E], G[M, H, E], w[E]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d])
    O = w[e] * sigmoid(G[i, h, e]) * sum[j](softmax[j](S if j <= i else -inf) * V[h, j, e]) + G[i, h, e]
"""


@pytest.mark.parametrize(
    ("dtype", "e", "store"),
    [("bf16", 256, "direct"), ("f16", 140, "direct"), ("f16", 136, "tma"), ("f32", 137, "direct")],
)
def test_outputs_that_are_gated(dtype: str, e: int, store: str) -> None:
    kernel = tilec.compile(GATED)
    sizes = {"H": 2, "M": 90, "N": 70, "D": 16, "E": e}
    arrays = kernel.sample(3, dtype=dtype, **sizes)
    arrays["G"] = np.asfortranarray(arrays["G"])
    got = running.run(kernel, arrays, dtype, sizes, columns=32, store=store)
    assert off(got, kernel, arrays) < LIMIT[dtype]


DIVIDED = """
kernel divided(Q[H, M, D], K[H, N, D], V[H, N, E], w[E]) -> O[h, i, e]:
    P = exp(sum[d](Q[h, i, d] * K[h, j, d]))
    O = sum[j](P * V[h, j, e]) / (2 + abs(w[e])) / sum[j](P)
"""


@pytest.mark.parametrize("store", ["direct", "tma"])
def test_outputs_divided_by_a_number_per_column(store: str) -> None:
    """Only what is one number for a row has its reciprocal taken before."""
    kernel = tilec.compile(DIVIDED)
    sizes = {"H": 1, "M": 40, "N": 30, "D": 16, "E": 24}
    arrays = kernel.sample(3, dtype="bf16", **sizes)
    got = running.run(kernel, arrays, "bf16", sizes, columns=32, store=store)
    assert off(got, kernel, arrays) < LIMIT["bf16"]
