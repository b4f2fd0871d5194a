"""Whole numbers in 32 bits: what fits, and calls whose sizes do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.lowering import check, kernel
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.jit import host
from tilec.backends.cpu.lower import lower
from tilec.backends.cpu.narrow import LIMIT
from tilec.backends.cpu.target import compile

MASKED = """
kernel f(Q: f32[M, 8], K: f32[N, 8], A: i32[M], C: i32[N], w: int) -> O: f32[i] {
  axis i < M
  axis j < N
  axis d < 8
  grid(axes=[i:16]) {
    q: f32[i:16, d] = load(Q, i, d)
    a: i32[i:16] = load(A, i)
    m: f32[i:16], l: f32[i:16] = for(-inf, 0.0, axis=j, tile=16) as (m_0, l_0) {
      k: f32[j:16, d] = load(K, j, d)
      s: f32[i:16, j:16] = contract(q, k, over=d)
      c: i32[j:16] = load(C, j)
      gap: i64[i:16, j:16] = sub(i, j)
      near: bool[i:16, j:16] = lt(gap, w)
      apart: i64[i:16, j:16] = sub(a, c)
      less: bool[i:16, j:16] = lt(apart, 1)
      both: bool[i:16, j:16] = and(near, less)
      x: f32[i:16, j:16] = select(both, s, -inf)
      t: f32[i:16] = maxnum(x, over=j)
      m_1: f32[i:16] = max(m_0, t)
      r_1: f32[i:16] = max(m_1, -3.4028234663852886e+38)
      y: f32[i:16, j:16] = sub(x, r_1)
      p: f32[i:16, j:16] = exp2(y)
      u: f32[i:16] = sum(p, over=j)
      r_0: f32[i:16] = max(m_0, -3.4028234663852886e+38)
      z: f32[i:16] = sub(r_0, r_1)
      e: f32[i:16] = exp2(z)
      l_2: f32[i:16] = mul(l_0, e)
      l_1: f32[i:16] = add(l_2, u)
      yield(m_1, l_1)
    }
    store(O, i, value=l)
  }
}"""


def arrays(marks: list[int]) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    q, k = (rng.standard_normal((37, 8)).astype(np.float32) for _ in range(2))
    a, c = (rng.choice(np.array(marks), 37).astype(np.int32) for _ in range(2))
    return {"Q": q, "K": k, "A": a, "C": c}


def test_what_fits() -> None:
    fits = Facts(kernel(MASKED)).narrow.fits
    assert all(map(fits, ["i", "N", "w", "gap", "a", 7, -(2**31)]))
    assert not any(map(fits, ["apart", "s", "near", 2**31, 0.5, True]))


@pytest.mark.parametrize("w", [0, 5, -3, LIMIT, LIMIT + 1, 2**40, -(2**40), 2**63 - 1])
def test_scalars_of_any_size(w: int) -> None:
    check(kernel(MASKED), arrays([1, 2, 3]), {"w": w})


def test_elements_at_the_ends_of_32_bits() -> None:
    code = compile(kernel(MASKED))
    check(kernel(MASKED), arrays([-(2**31), 2**31 - 1, 0]), {"w": 20}, code=code)


def test_masks_in_loops_compare_32_bits() -> None:
    text = lower(kernel(MASKED), host()).text
    assert f"icmp slt <{host().lanes} x i32>" in text
