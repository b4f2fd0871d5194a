"""Tile IR on the CPU against the interpreter: every kind of op, on tiles that do not fit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.lowering import check, kernel
from tilec.arrays import numpy_dtype
from tilec.backends.cpu import jit
from tilec.backends.cpu.lower import lower
from tilec.backends.cpu.registers import rows_for
from tilec.backends.cpu.target import compile

RNG = np.random.default_rng(0)

ATTENTION = """
kernel causal(Q: f32[B, H, M, 16], K: f32[B, H, N, 16], V: f32[B, H, N, 24]) -> O: f32[b, h, i, e], L: f32[b, h, i] {
  axis b < B
  axis h < H
  axis i < M
  axis j < N
  axis d < 16
  axis e < 24
  grid(axes=[b:1, h:1, i:32]) {
    q: f32[i:32, d] = load(Q, b, h, i, d)
    m: f32[i:32], l: f32[i:32], a: f32[i:32, e] = for(-inf, 0.0, 0.0, axis=j, tile=16) as (m_0, l_0, a_0) {
      k: f32[j:16, d] = load(K, b, h, j, d)
      v: f32[j:16, e] = load(V, b, h, j, e)
      s: f32[i:32, j:16] = contract(q, k, over=d)
      c: f32[i:32, j:16] = mul(s, 0.36067376)
      t: i64[i:32] = add(i, N)
      t_2: i64[i:32] = sub(t, M)
      w: bool[j:16, i:32] = le(j, t_2)
      x: f32[i:32, j:16] = select(w, c, -inf)
      r: f32[i:32] = maxnum(x, over=j)
      m_1: f32[i:32] = max(m_0, r)
      y: f32[i:32, j:16] = sub(x, m_1)
      p: f32[i:32, j:16] = exp2(y)
      r_2: f32[i:32] = sum(p, over=j)
      z: f32[i:32] = sub(m_0, m_1)
      al: f32[i:32] = exp2(z)
      l_2: f32[i:32] = mul(l_0, al)
      l_1: f32[i:32] = add(l_2, r_2)
      pv: f32[i:32, e] = contract(p, v, over=j)
      a_2: f32[i:32, e] = mul(a_0, al)
      a_1: f32[i:32, e] = add(a_2, pv)
      yield(m_1, l_1, a_1)
    }
    o: f32[i:32, e] = div(a, l)
    store(O, b, h, i, e, value=o)
    ll: f32[i:32] = log2(l)
    lse: f32[i:32] = add(m, ll)
    store(L, b, h, i, value=lse)
  }
}
"""


def attention_arrays(b: int, h: int, m: int, n: int) -> dict[str, np.ndarray]:
    shapes = {"Q": (b, h, m, 16), "K": (b, h, n, 16), "V": (b, h, n, 24)}
    return {name: RNG.standard_normal(s).astype(np.float32) for name, s in shapes.items()}


FEW = [(1, 2, 1, 45), (2, 1, 3, 33), (1, 1, 6, 70), (1, 1, 7, 70)]
"""Rows on both sides of the number that are taken one by one."""
SIZES = [
    *FEW,
    (1, 2, 37, 45),
    (2, 1, 1, 1),
    (1, 1, 64, 64),
    (1, 1, 70, 3),
    (1, 1, 5, 0),
    (0, 1, 3, 3),
    (1, 1, 0, 4),
]


def test_attention_of_any_size_strides_and_masked_nan() -> None:
    k = kernel(ATTENTION)
    code = compile(k)
    for sizes in SIZES:
        a = attention_arrays(*sizes)
        check(k, a, code=code)
        if sizes[3] > 3 and sizes[0]:
            a["V"][0, 0, -1] = np.nan
            a["K"][0, 0, -2] = np.inf
        a["Q"], a["V"], a["K"] = np.asfortranarray(a["Q"]), a["V"][:, :, ::-1], a["K"][..., ::-1]
        check(k, a, code=code)
    a = attention_arrays(1, 2, 40, 40)
    a["K"] = np.broadcast_to(a["K"][:, :1], a["K"].shape)
    check(k, a, code=code)


def test_attention_with_heads_of_no_whole_vectors() -> None:
    k = kernel(ATTENTION.replace(" 16]", " 13]").replace("< 16", "< 13").replace("24", "21"))
    code = compile(k)
    for b, h, m, n in SIZES:
        shapes = {"Q": (b, h, m, 13), "K": (b, h, n, 13), "V": (b, h, n, 21)}
        a = {x: RNG.standard_normal(s).astype(np.float32) for x, s in shapes.items()}
        check(k, a, code=code)


def test_blocks_are_copied_from_rows_that_lie_apart() -> None:
    k = kernel(ATTENTION)
    code = compile(k)
    for b, h, m, n in SIZES:
        wide = RNG.standard_normal((b, n, h, 40)).astype(np.float32)
        a = attention_arrays(b, h, m, n)
        a["K"] = wide[..., :16].transpose(0, 2, 1, 3)
        a["V"] = wide[..., 16:].transpose(0, 2, 1, 3)
        check(k, a, code=code)


MERGE = """
kernel merge(P: f32[S, M, 1], W: f32[S, M]) -> O: f32[i, e] {
  axis s < S
  axis i < M
  axis e < 1
  grid(axes=[i:16]) {
    o: f32[i:16, e] = for(0.0, axis=s, tile=32) as (o_0) {
      w: f32[s:32, i:16] = load(W, s, i)
      x: f32[s:32, i:16] = exp2(w)
      p: f32[s:32, i:16, e] = load(P, s, i, e)
      c: f32[i:16, e] = contract(x, p, over=s)
      o_1: f32[i:16, e] = add(o_0, c)
      yield(o_1)
    }
    store(O, i, e, value=o)
  }
}"""


@pytest.mark.parametrize("m", [1, 3, 6, 7, 20])
def test_lanes_past_the_end_do_not_overwrite_the_last_position(m: int) -> None:
    k = kernel(MERGE)
    p, w = RNG.standard_normal((40, m, 1)), RNG.standard_normal((40, m))
    check(k, {"P": p.astype(np.float32), "W": w.astype(np.float32)})


CAPPED = ATTENTION.replace(
    "c: f32[i:32, j:16] = mul(s, 0.36067376)",
    "u: f32[i:32, j:16] = div(s, cap)\n      th: f32[i:32, j:16] = tanh(u)\n"
    "      c: f32[i:32, j:16] = mul(th, 4.0)",
).replace("V: f32[B, H, N, 24])", "V: f32[B, H, N, 24], cap: float)")


@pytest.mark.parametrize("cap", [2.5, -50.0, 0.0, 1e-38, 1e-44, 3e38, np.inf, np.nan])
def test_quotients_by_a_scalar(cap: float) -> None:
    """Relaxed code multiplies by the reciprocal, and has none for what is too small or too large."""
    k = kernel(CAPPED)
    a = attention_arrays(1, 2, 40, 50)
    check(k, a, {"cap": cap})
    a["K"][0, 0, 3] = 0  # 0 / 0 is 0
    check(k, a, {"cap": cap})


QUOTIENTS = """
    o_1: f32[i:32, e] = div(a, l)
    u: f32[i:32] = load(W, b, h, i)
    o: f32[i:32, e] = div(o_1, u)
"""
ROWS = ATTENTION.replace("V: f32[B, H, N, 24])", "V: f32[B, H, N, 24], W: f32[B, H, M])").replace(
    "    o: f32[i:32, e] = div(a, l)\n", QUOTIENTS
)


@pytest.mark.parametrize("other", [-0.0, 1e-38, 1e-44, -3e38, 1e30, -np.inf, np.nan])
def test_quotients_by_what_a_row_has(other: float) -> None:
    """Relaxed code multiplies by the reciprocal; rows where that is no quotient, and where 0 is divided by 0."""
    k = kernel(ROWS)
    code = compile(k)
    a = attention_arrays(1, 2, 40, 50)
    a["W"] = np.resize(np.array([2.5, other, 0.0], np.float32), (1, 2, 40))
    a["V"] = abs(a["V"])  # nothing cancels, which a small divisor would show
    check(k, a, code=code)
    check(k, {**a, "V": a["V"] * np.float32(1e-30)}, code=code)
    a["V"][..., 3:11] = 0
    check(k, a, code=code)


@pytest.mark.parametrize(("processor", "lines"), [("avx2", 1 + 1), ("avx512", 1 + 2)])
def test_register_tiles_ask_for_the_next_windows_of_what_is_streamed(
    processor: str, lines: int
) -> None:
    """The rows of the next lanes of queries, and the next columns of values, by the step of a loop of unknown length; by
    each row of a register tile the lines of a key and of a value that are this panel's share: there is one panel with
    AVX-512, two with AVX2."""
    machine = jit.PROCESSORS[processor]
    text = lower(kernel(ATTENTION), machine).text
    near, far = (text.count(f"i32 0, i32 {how}, i32 1)") for how in (3, 2))
    assert near == machine.lanes + 1
    assert far == lines * rows_for(machine, "f32")


def test_attention_that_sees_nan_is_nan_there_and_only_there() -> None:
    k = kernel(ATTENTION)
    code = compile(k)
    a = attention_arrays(1, 1, 40, 40)
    a["V"][0, 0, 5, 3] = np.nan
    a["K"][0, 0, 30, 2] = np.inf
    a["Q"][0, 0, 35] = np.nan
    check(k, a, code=code)


def test_attention_with_a_window_that_some_rows_do_not_see() -> None:
    text = ATTENTION.replace(
        "w: bool[j:16, i:32] = le(j, t_2)",
        "u: i64[i:32] = sub(t_2, 9)\n      up: bool[j:16, i:32] = le(j, t_2)\n"
        "      lo: bool[j:16, i:32] = gt(j, u)\n      w: bool[j:16, i:32] = and(up, lo)",
    )
    k = kernel(text)
    code = compile(k)
    for sizes in SIZES:
        check(k, attention_arrays(*sizes), code=code)


@pytest.mark.parametrize("dtype", ["f64", "f16", "bf16", "f8e4m3"])
def test_attention_in_other_storage_types(dtype: str) -> None:
    text = ATTENTION
    for name in "QKV":
        text = text.replace(f"{name}: f32[", f"{name}: {dtype}[")
    for name in ("q", "k", "v"):
        text = text.replace(f"    {name}: f32[", f"    {name}: {dtype}[")
    if dtype == "f64":
        text = text.replace("f32", "f64")
    k = kernel(text)
    a = {n: x.astype(numpy_dtype(dtype)) for n, x in attention_arrays(1, 2, 45, 37).items()}  # type: ignore[arg-type]
    check(k, a, tolerance=1e-12 if dtype == "f64" else 5e-5)


PEELED = """
kernel f(X: f32[N, M], lo: int) -> O: f32[i], P: f32[i] {
  axis i < N
  axis j < M
  t: i64 = floordiv(M, 8)
  s: i64 = mul(t, 8)
  grid(axes=[i:16]) {
    a: f32[i:16], b: f32[i:16] = for(0.0, 1.0, axis=j, tile=8, stop=s, ragged=false) as (a_0, b_0) {
      x: f32[i:16, j:8] = load(X, i, j)
      r: f32[i:16] = sum(x, over=j)
      a_1: f32[i:16] = add(a_0, r)
      b_1: f32[i:16] = add(b_0, a_0)
      yield(a_1, b_1)
    }
    c: f32[i:16], d: f32[i:16] = for(a, b, axis=j, tile=8, start=s) as (c_0, d_0) {
      j0: i64 = first(j)
      w: bool = ge(j0, lo)
      c_1: f32[i:16], d_1: f32[i:16] = if(w) {
        y: f32[i:16, j:8] = load(X, i, j)
        u: f32[i:16] = max(y, over=j)
        c_2: f32[i:16] = add(c_0, u)
        d_2: f32[i:16] = mul(d_0, c_0)
        yield(c_2, d_2)
      } else {
        yield(c_0, d_0)
      }
      yield(c_1, d_1)
    }
    store(O, i, value=c)
    store(P, i, value=d)
  }
}"""


@pytest.mark.parametrize("lo", [0, 100])
@pytest.mark.parametrize("m", [0, 5, 16, 21])
def test_loops_that_hand_on_their_state_and_update_it_in_place(m: int, lo: int) -> None:
    check(kernel(PEELED), {"X": RNG.standard_normal((19, m)).astype(np.float32)}, {"lo": lo})


NESTED = """
kernel f(X: f32[N, M, T]) -> O: f32[i] {
  axis i < N
  axis j < M
  axis t < T
  grid(axes=[i:16]) {
    z: f32[i:16] = for(0.5, axis=t, tile=1) as (z_0) {
      k: f32[i:16] = for(z_0, axis=j, tile=4) as (k_0) {
        x: f32[i:16, j:4] = load(X, i, j, t)
        r: f32[i:16] = sum(x, over=j)
        h: f32[i:16] = mul(k_0, 0.5)
        k_1: f32[i:16] = add(h, r)
        yield(k_1)
      }
      z_1: f32[i:16] = add(z_0, k)
      yield(z_1)
    }
    store(O, i, value=z)
  }
}"""


@pytest.mark.parametrize(("n", "m", "t"), [(16, 4, 1), (37, 9, 3), (5, 0, 4), (5, 3, 0)])
def test_a_stream_inside_a_stream(n: int, m: int, t: int) -> None:
    check(kernel(NESTED), {"X": RNG.standard_normal((n, m, t)).astype(np.float32)})


GATHER = """
kernel f(T: f32[R, 8], P: i32[N], S: i64[2]) -> O: f32[i, d], C: i64[i] {
  axis i < N
  axis d < 8
  grid(axes=[i:16]) {
    p: i32[i:16] = load(P, i)
    r: i64[i:16] = floordiv(p, 2)
    e: i64[d] = add(d, 1)
    g: i64[d] = mod(e, 8)
    x: f32[i:16, d] = load(T, r, g)
    s: i64 = load(S, 1)
    f: f32[d] = load(T, s, d)
    o: f32[i:16, d] = add(x, f)
    store(O, i, d, value=o)
    store(C, i, value=r)
  }
}"""


def test_gathers_miss_as_zeros() -> None:
    k = kernel(GATHER)
    code = compile(k)
    for rows in (5, 1, 0):
        p = np.array([-3, 0, 1, 2, 5, 9, 10, 100, 2**31 - 1, -(2**31)] * 3, np.int32)
        table = RNG.standard_normal((rows, 8)).astype(np.float32)
        check(k, {"T": table, "P": p, "S": np.array([9, 2])}, code=code)


REDUCTIONS = """
kernel f(X: f32[N, M, 3], F: bool[N]) -> A: f32[i], B: i64[i], C: bool[i], D: bool[i], E: f32[i], G: f32[i, t], S: f32[w] {
  axis i < N
  axis j < M
  axis t < 3
  axis w < (N + 15) // 16
  grid(axes=[i:16]) {
    n: f32[i:16], c: i64[i:16], y: bool[i:16], u: f32[i:16, t] = for(inf, 0, false, 0.0, axis=j, tile=8) as (n_0, c_0, y_0, u_0) {
      x: f32[i:16, j:8, t] = load(X, i, j, t)
      a: f32[i:16] = min(x, over=[j, t])
      n_1: f32[i:16] = min(n_0, a)
      b: bool[i:16, j:8, t] = gt(x, 0.5)
      s: i64[i:16] = sum(b, over=[t, j])
      c_1: i64[i:16] = add(c_0, s)
      z: bool[i:16] = any(b, over=[j, t])
      y_1: bool[i:16] = or(y_0, z)
      r: f32[i:16, t] = sum(x, over=j)
      u_1: f32[i:16, t] = add(u_0, r)
      yield(n_1, c_1, y_1, u_1)
    }
    f: bool[i:16] = load(F, i)
    v: bool[i:16] = not(f)
    k: f32[i:16] = max(u, over=t)
    store(A, i, value=n)
    store(B, i, value=c)
    store(C, i, value=y)
    store(D, i, value=v)
    store(E, i, value=k)
    store(G, i, t, value=u)
  }
  grid(axes=[w:1]) {
    lo: i64 = mul(w, 16)
    hi: i64 = add(lo, 16)
    q: f32 = for(0.0, axis=i, tile=16, start=lo, stop=hi) as (q_0) {
      g: bool[i:16] = load(F, i)
      aa: f32[i:16] = select(g, 2.0, 1.0)
      ss: f32 = sum(aa, over=i)
      q_1: f32 = add(q_0, ss)
      yield(q_1)
    }
    store(S, w, value=q)
  }
}"""  # noqa: E501


@pytest.mark.parametrize(("n", "m"), [(1, 1), (16, 8), (21, 19), (40, 0)])
def test_reductions_over_streams_and_inner_axes(n: int, m: int) -> None:
    x = RNG.standard_normal((n, m, 3)).astype(np.float32)
    if m > 2:
        x[0, 1, 1] = np.nan
    check(kernel(REDUCTIONS), {"X": x, "F": RNG.random(n) < 0.5})


LANES = """
kernel f(X: f32[N], D: i64[N]) -> O: f32[i], A: f32[w], B: i64[w] {
  axis i < N
  axis w < (N + 31) // 32
  s_w: f32[w] @hbm = buffer()
  grid(axes=[i:32]) {
    x: f32[i:32] = load(X, i)
    d: i64[i:32] = load(D, i)
    s: f32 = sum(x, over=i)
    b: i64 = min(d, over=i)
    y: f32[i:32] = sub(x, s)
    m: f32 = max(y, over=i)
    z: f32[i:32] = div(y, m)
    f: i64 = first(i)
    c: i64 = floordiv(f, 32)
    g: i64 = last(i)
    o: f32[i:32] = add(z, g)
    p: f32[i:32] = add(o, b)
    store(O, i, value=p)
  }
  grid(axes=[w:8]) {
    store(A, w, value=3.0)
    store(B, w, value=w)
  }
}"""


@pytest.mark.parametrize("n", [1, 31, 32, 70])
def test_reductions_over_lanes(n: int) -> None:
    arrays = {"X": RNG.standard_normal(n).astype(np.float32), "D": RNG.integers(-5, 5, n)}
    check(kernel(LANES), arrays, tolerance=1e-3)


CONTROL = """
kernel f(X: f32[N, M], n: int, flip: bool, s: float = 0.25) -> O: f32[i], P: f32[i] {
  axis i < N
  axis j < M
  n2: i64 = mul(n, 2)
  grid(axes=[i:16]) {
    hi: i64 = min(n2, M)
    a: f32[i:16], b: f32[i:16], c: i64 = for(0.0, 1.0, 0, axis=j, tile=4, start=0, stop=hi) as (a_0, b_0, c_0) {
      j0: i64 = first(j)
      t: bool = lt(j0, n)
      u: bool = and(t, flip)
      a_2: f32[i:16], c_2: i64 = if(u) {
        x: f32[i:16, j:4] = load(X, i, j)
        r: f32[i:16] = sum(x, over=j)
        c_3: i64 = add(c_0, 1)
        yield(r, c_3)
      } else {
        yield(a_0, c_0)
      }
      a_1: f32[i:16] = add(a_2, s)
      yield(b_0, a_1, c_2)
    }
    d: f32[i:16] = add(b, c)
    store(O, i, value=a)
    store(P, i, value=d)
  }
}"""


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("n", [0, 3, 9])
def test_branches_and_exchanged_values(n: int, flip: bool) -> None:
    check(
        kernel(CONTROL),
        {"X": RNG.standard_normal((21, 14)).astype(np.float32)},
        {"n": n, "flip": flip},
    )


CONTRACTIONS = """
kernel f(X: f32[B, N, 5], Y: f32[B, N, 5], W: i32[B, 5, 7], Z: f32[B, 7, 5]) -> A: f32[b, i], C: i64[b, p, c], E: f32[b, p, c, i], G: f32[b], H: f32[b, c] {
  axis b < B
  axis i < N
  axis c < 5
  axis p < 7
  grid(axes=[b:4]) {
    w: i32[b:4, c, p] = load(W, b, c, p)
    z: f32[b:4, p, c] = load(Z, b, p, c)
    v: i64[b:4, p] = contract(w, w, over=c)
    u: f32[b:4, c, p] = contract(w, z, over=[])
    g: f32[b:4] = contract(w, z, over=[c, p])
    g_2: f32[b:4] = contract(z, z, over=[c, p], init=g)
    k: f32[b:4, c] = sum(u, over=p)
    y: i64[b:4, p, c] = mul(v, c)
    store(C, b, p, c, value=y)
    store(G, b, value=g_2)
    store(H, b, c, value=k)
  }
  grid(axes=[b:1, i:16]) {
    x: f32[i:16, c] = load(X, b, i, c)
    y_2: f32[i:16, c] = load(Y, b, i, c)
    z_2: f32[p, c] = load(Z, b, p, c)
    a: f32[i:16] = contract(x, y_2, over=c)
    s: f32[i:16, p] = contract(x, z_2, over=c)
    e: f32[i:16, p, c] = contract(s, y_2, over=[])
    q: f32[p, c] = contract(s, y_2, over=i)
    d: f32[i:16, p, c] = add(e, q)
    store(A, b, i, value=a)
    store(E, b, p, c, i, value=d)
  }
}"""  # noqa: E501


@pytest.mark.parametrize(("b", "n"), [(1, 16), (3, 21), (6, 1)])
def test_contractions_of_all_shapes(b: int, n: int) -> None:
    f = RNG.standard_normal
    arrays = {
        "X": f((b, n, 5)).astype(np.float32),
        "Y": f((b, n, 5)).astype(np.float32),
        "W": RNG.integers(-9, 9, (b, 5, 7)).astype(np.int32),
        "Z": f((b, 7, 5)).astype(np.float32),
    }
    check(kernel(CONTRACTIONS), arrays, tolerance=1e-4)


@pytest.mark.parametrize("rows", [1, 5, 6, 7, 16, 23])
def test_sums_over_windows_with_rows_that_fill_no_tile(rows: int) -> None:
    """What is short of rows takes the last one several times: it may not be added several times."""
    text = """
kernel f(X: f32[M, 40], Y: f32[40, 40]) -> O: f32[i, j] {
  axis i < M
  axis j < 40
  axis d < 40
  grid(axes=[i:16, j:16]) {
    s: f32[i:16, j:16] = for(0.0, axis=d, tile=8) as (s_0) {
      x: f32[i:16, d:8] = load(X, i, d)
      y: f32[d:8, j:16] = load(Y, d, j)
      t: f32[i:16, j:16] = contract(x, y, over=d)
      s_1: f32[i:16, j:16] = add(s_0, t)
      yield(s_1)
    }
    store(O, i, j, value=s)
  }
}"""
    x, y = (RNG.standard_normal((n, 40)).astype(np.float32) for n in (rows, 40))
    check(kernel(text), {"X": x, "Y": y})
