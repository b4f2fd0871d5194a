"""Where tiles live, how much they take, and that what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tilec.errors import ResourceError
from tilec.passes.place import Footprint, Options, budget, place
from tilec.reader import read
from tilec.target import CPU, REFERENCE

TEXT = """
kernel f(X: f16[M, N, 8], Y: f32[N]) -> O: f32[i] {
  axis i < M
  axis j < N
  axis k < N
  axis d < 8
  grid(axes=[i:4]) {
    a: f32[i:4] = for(0.0, axis=j, tile=16) as (a_0) {
      x: f16[i:4, j:16, d] = load(X, i, j, d)
      s: f32[i:4, j:16] = sum(x, over=d)
      z: f32[i:4, j:16] = mul(s, s)
      r: f32[i:4] = sum(z, over=j)
      a_1: f32[i:4] = add(a_0, r)
      yield(a_1)
    }
    c: f32[i:4] = for(a, axis=k, tile=8) as (c_0) {
      y: f32[k:8] = load(Y, k)
      t: f32 = sum(y, over=k)
      c_1: f32[i:4] = add(c_0, t)
      yield(c_1)
    }
    store(O, i, value=c)
  }
}
"""


def test_budget_counts_what_lives_at_once():
    (kernel,) = read(TEXT)
    # the first loop: X in f16; the sums over d, their sums over j and the carried rows in f32. The second loop holds
    # less and uses the room again, but for its carried rows, which are the grid's.
    first = Footprint(2 * 4 * 16 * 8, 4 * (4 * 16 + 4))
    carried = Footprint(0, 2 * 4 * 4)
    assert budget(kernel) == [first + carried]


def test_spaces():
    (kernel,) = read(TEXT)
    spaces = {v.name: v.type.space for v in place(kernel).values.values()}
    assert {n for n, s in spaces.items() if s == "sram"} == {"x", "y"}
    assert {n for n, s in spaces.items() if s is None} == {"t"}


def test_what_exceeds_the_limit_is_refused():
    (kernel,) = read(TEXT)
    small = replace(CPU, limit=1000)
    with pytest.raises(
        ResourceError,
        match="the tiles of grid 0 take 1,328 bytes .* cpu has 1,000: use smaller tiles",
    ):
        place(kernel, Options(small))
    assert place(kernel, Options(replace(CPU, limit=1328))) == place(kernel, Options(REFERENCE))


def test_an_axis_of_unknown_length_has_no_budget():
    (kernel,) = read(TEXT.replace("axis d < 8", "axis d < N").replace("N, 8]", "N, N]"))
    assert budget(kernel) == [None]
