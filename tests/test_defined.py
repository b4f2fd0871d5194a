"""Which values are never NaN."""

from __future__ import annotations

import pytest

from tilec.defined import Defined
from tilec.reader import read

TEXT = """
kernel maxima(X: f32[M, N], W: f32[M]) -> O: f32[i] {
  axis i < M
  axis j < N
  a_all: f32[i] @hbm = buffer()
  b_all: f32[i] @hbm = buffer()
  grid(axes=[i:4]) {
    a: f32[i:4], b: f32[i:4], c: f32[i:4] = for(-inf, -inf, 0.0, axis=j, tile=4) as (a_0, b_0, c_0) {
      x: f32[i:4, j:4] = load(X, i, j)
      most: f32[i:4] = maxnum(x, over=j)
      any: f32[i:4] = max(x, over=j)
      a_1: f32[i:4] = max(a_0, most)
      b_1: f32[i:4] = max(b_0, any)
      c_1: f32[i:4] = add(c_0, most)
      yield(a_1, b_1, c_1)
    }
    low: f32[i:4] = max(a, -1.0)
    store(a_all, i, value=low)
    store(b_all, i, value=b)
  }
  grid(axes=[i:4]) {
    w: f32[i:4] = load(W, i)
    a_2: f32[i:4] = load(a_all, i)
    b_2: f32[i:4] = load(b_all, i)
    p: f32[i:4] = exp2(a_2)
    q: f32[i:4] = select(true, p, nan)
    narrow: f8e4m3[i:4] = cast(p, to=f8e4m3)
    half: f16[i:4] = cast(p, to=f16)
    store(O, i, value=p)
  }
}
"""


@pytest.fixture(scope="module")
def known() -> Defined:
    (kernel,) = read(TEXT)
    return Defined(kernel)


@pytest.mark.parametrize("name", ["most", "a_1", "a", "a_0", "low", "a_2", "p", "half"])
def test_maxima_of_what_is_a_number(known: Defined, name: str) -> None:
    assert known.holds(name)


@pytest.mark.parametrize("name", ["x", "any", "b", "b_0", "b_1", "b_2", "c", "w", "q", "narrow"])
def test_what_data_may_make_none(known: Defined, name: str) -> None:
    assert not known.holds(name)


def test_an_assumption_that_fails_leaves_nothing_behind() -> None:
    """`x` is a number if `y` is, which is one if `x` is; but `x` is `w`, too."""
    text = """
kernel turn(W: f32[M, N]) -> O: f32[i] {
  axis i < M
  axis j < N
  grid(axes=[i:4]) {
    x: f32[i:4], y: f32[i:4] = for(0.0, 0.0, axis=j, tile=4) as (x_0, y_0) {
      w: f32[i:4, j:4] = load(W, i, j)
      v: f32[i:4] = max(w, over=j)
      x_1: f32[i:4] = max(y_0, v)
      yield(x_1, x_0)
    }
    z: f32[i:4] = max(x, y)
    store(O, i, value=z)
  }
}
"""
    (kernel,) = read(text)
    for first in ("x", "y"):
        known = Defined(kernel)
        known.holds(first)
        assert not any(map(known.holds, ("x", "y", "x_0", "y_0", "x_1", "z")))
