"""How far a result may be from the exact one: a fixed share of it, or what plain arithmetic in its types makes of it."""

from __future__ import annotations

import numpy as np
import pytest

import tilec
from tilec import accuracy
from tilec.backends.reference import contract
from tilec.backends.reference.functions import Tile

UNSCALED = """
kernel unscaled(Q[M, D], K[N, D], V[N, E]) -> O[i, e]:
    S = sum[d](Q[i, d] * K[j, d])
    O = sum[j](softmax[j](S) * V[j, e])

sizes M=32, N=64, D=4096, E=16
"""


def test_plain_arithmetic_widens_what_is_allowed():
    want = np.array([2.0, -4.0])
    assert accuracy.error(want, want, 1e-3).allowed == pytest.approx(4e-3)
    assert accuracy.error(want, want, 1e-3, 1e-5).allowed == pytest.approx(4e-3)
    assert accuracy.error(want, want, 1e-3, 1.0).allowed == accuracy.PLAIN
    for unknown in (np.nan, np.inf):
        assert accuracy.error(want, want, 1e-3, unknown).allowed == pytest.approx(4e-3)


@pytest.mark.parametrize("over", [(1,), (1, 2), (0, 2)])
def test_sums_in_order(over: tuple[int, ...]):
    random = np.random.default_rng(0)
    x, y = (random.standard_normal(shape, "f4") for shape in ((3, 4, 5, 1), (3, 4, 5, 2)))
    got = contract.in_order(Tile(x), Tile(y), over, np.float32)
    exact = (x.astype("f8") * y).sum(axis=over, keepdims=True)
    assert (got.shape, got.dtype) == (exact.shape, np.float32)
    np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-5)


def test_sums_in_order_are_no_better_than_a_single_sum():
    x = np.random.default_rng(0).standard_normal(50_000).astype("f4").reshape(1, -1)
    y = np.ones_like(x)
    single = np.float32(0)
    for t in x[0]:
        single += t
    assert contract.in_order(Tile(x), Tile(y), (1,), np.float32) == single
    assert contract.contract(Tile(x), Tile(y), (1,), np.float32) != single


def test_sums_in_order_of_what_is_not_finite():
    x = np.array([[1.0, np.nan, 2.0]], "f4")
    gone = np.array([[False, True, False]])
    y = np.ones((1, 3), "f4")
    assert contract.in_order(Tile(x), Tile(y), (1,), np.float32).item() != 3
    y[0, 1] = 0
    assert contract.in_order(Tile(x), Tile(y, gone), (1,), np.float32).item() == 3


def test_large_exponents_are_as_far_off_as_plain_arithmetic_and_a_mistake_is_further():
    kernel = tilec.compile(UNSCALED, target="cpu")
    data = kernel.sample(3)
    got, want, plain = kernel(**data), kernel.reference(**data), kernel.plain(**data)
    narrow = accuracy.tolerance((*data.values(), got))
    off = accuracy.error(plain, want, 0.0).largest
    assert not accuracy.error(got, want, narrow).ok
    assert accuracy.error(got, want, narrow, off).ok
    wrong = got + np.float32(0.02) * (np.arange(got.size).reshape(got.shape) == 7)
    assert not accuracy.error(wrong, want, narrow, off).ok
