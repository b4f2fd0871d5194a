"""IR texts that several tests use: causal attention at each level, and kernels with the rarer ops."""

# ruff: noqa: E501

HEADER = """kernel causal(Q: f32[B, H, M, D], K: f32[B, H, N, D], V: f32[B, H, N, E]) -> O: f32[b, h, i, e] {
  axis b < B
  axis h < H
  axis i < M
  axis d < D
  axis j < N
  axis e < E
  assert D % 1 == 0, "an assertion"
"""

WHOLE = (
    HEADER
    + """  q: f32[b, h, i, d] = load(Q, b, h, i, d)
  k: f32[b, h, j, d] = load(K, b, h, j, d)
  qk: f32[b, h, i, d, j] = mul(q, k)
  s0: f32[b, h, i, j] = sum(qk, over=d)
  r: f32 = sqrt(D)
  s: f32[b, h, i, j] = div(s0, r)
  t0: i64[i] = add(i, N)
  t: i64[i] = sub(t0, M)
  c: bool[j, i] = le(j, t)
  x: f32[b, h, i, j] = select(c, s, -inf)
  p: f32[b, h, i, j] = softmax(x, over=j)
  v: f32[b, h, j, e] = load(V, b, h, j, e)
  pv: f32[b, h, i, j, e] = mul(p, v)
  o: f32[b, h, i, e] = sum(pv, over=j)
  store(O, b, h, i, e, value=o)
}
"""
)
"""As lowered: every value a whole tensor."""

GROUPED = (
    HEADER
    + """  r: f32 = sqrt(D)
  t: i64[i] = sub(i, M)
  O_1: f32[b, h, i, e] @hbm, L: f32[b, h, i] @hbm = group(axes=[b, h, i]) {
    q: f32[b, h, i, d] = load(Q, b, h, i, d)
    m: f32[b, h, i], l: f32[b, h, i], a: f32[b, h, i, e] = for(-inf, 0.0, 0.0, axis=j) as (m_0, l_0, a_0) {
      k: f32[b, h, j, d] = load(K, b, h, j, d)
      s0: f32[b, h, i, j] = contract(q, k, over=d)
      s: f32[b, h, i, j] = div(s0, r)
      t0: i64[j, i] = sub(t, j)
      t1: i64[j, i] = add(t0, N)
      c: bool[j, i] = ge(t1, 0)
      x: f32[b, h, i, j] = select(c, s, -inf)
      mb: f32[b, h, i] = maxnum(x, over=j)
      m_1: f32[b, h, i] = max(m_0, mb)
      y: f32[b, h, i, j] = sub(x, m_1)
      p: f32[b, h, i, j] = exp(y)
      z: f32[b, h, i] = sub(m_0, m_1)
      al: f32[b, h, i] = exp(z)
      ps: f32[b, h, i] = sum(p, over=j)
      l1: f32[b, h, i] = mul(l_0, al)
      l_1: f32[b, h, i] = add(l1, ps)
      v: f32[b, h, j, e] = load(V, b, h, j, e)
      a1: f32[b, h, i, e] = mul(a_0, al)
      a_1: f32[b, h, i, e] = contract(p, v, over=j, init=a1)
      yield(m_1, l_1, a_1)
    }
    yield(a, l)
  }
  O_2: f32[b, h, i, e] @hbm = group(axes=[b, h, i]) {
    o: f32[b, h, i, e] = div(O_1, L)
    yield(o)
  }
  store(O, b, h, i, e, value=O_2)
}
"""
)
"""After online, in two groups."""

TILED = (
    HEADER
    + """  r: f32 = sqrt(D)
  A: f32[b, h, i, e] @hbm = buffer()
  L: f32[b, h, i] @hbm = buffer()
  grid(axes=[b:1, h:1, i:32]) {
    q: f32[i:32, d] @sram = load(Q, b, h, i, d)
    i1: i64 = last(i)
    u0: i64 = add(i1, N)
    u1: i64 = sub(u0, M)
    u2: i64 = add(u1, 1)
    m: f32[i:32] @reg, l: f32[i:32] @reg, a: f32[i:32, e] @reg = for(-inf, 0.0, 0.0, axis=j, tile=16, stop=u2) as (m_0, l_0, a_0) {
      k: f32[j:16, d] @sram = load(K, b, h, j, d)
      s0: f32[i:32, j:16] @reg = contract(q, k, over=d)
      s: f32[i:32, j:16] = div(s0, r)
      t0: i64[i:32] = add(i, N)
      t: i64[i:32] = sub(t0, M)
      c: bool[j:16, i:32] = le(j, t)
      x: f32[i:32, j:16] = select(c, s, -inf)
      mb: f32[i:32] = maxnum(x, over=j)
      m_1: f32[i:32] = max(m_0, mb)
      y: f32[i:32, j:16] = sub(x, m_1)
      p: f32[i:32, j:16] = exp(y)
      z: f32[i:32] = sub(m_0, m_1)
      al: f32[i:32] = exp(z)
      ps: f32[i:32] = sum(p, over=j)
      l1: f32[i:32] = mul(l_0, al)
      l_1: f32[i:32] = add(l1, ps)
      v: f32[j:16, e] @sram = load(V, b, h, j, e)
      a1: f32[i:32, e] = mul(a_0, al)
      a_1: f32[i:32, e] = contract(p, v, over=j, init=a1)
      yield(m_1, l_1, a_1)
    }
    store(A, b, h, i, e, value=a)
    store(L, b, h, i, value=l)
  }
  grid(axes=[b:1, h:1, i:8]) {
    a_2: f32[i:8, e] = load(A, b, h, i, e)
    l_2: f32[i:8] = load(L, b, h, i)
    o: f32[i:8, e] = div(a_2, l_2)
    store(O, b, h, i, e, value=o)
  }
}
"""
)
"""After tile and prune, with an intermediate result in HBM."""

LEVELS = {"whole": WHOLE, "grouped": GROUPED, "tiled": TILED}

LENGTHS = """kernel lengths(X: f16[B, N], len: i32[B], w: int = 2) -> Y: f32[b], Z: i64[b] {
  axis b < B
  axis j < N
  T: i64[b] @hbm = buffer()
  grid(axes=[b:1]) {
    n: i32 = load(len, b)
    n2: i64 = mul(n, w)
    store(T, b, value=n2)
  }
  grid(axes=[b:1]) {
    n3: i64 = load(T, b)
    big: bool = gt(n3, 4)
    y: f32, z: i64 = for(0, 0, axis=j, tile=4, stop=n3) as (y_0, z_0) {
      x: f16[j:4] = load(X, b, j, guarded=true)
      c: bool[j:4] = lt(j, n3)
      xc: f32[j:4] = select(c, x, absent)
      s: f32 = sum(xc, over=j)
      y_1: f32 = add(y_0, s)
      z_1: i64 = if(big) {
        j0: i64 = first(j)
        z_2: i64 = max(z_0, j0)
        yield(z_2)
      } else {
        yield(z_0)
      }
      yield(y_1, z_1)
    }
    store(Y, b, value=y)
    store(Z, b, value=z)
  }
}
"""
"""Loop bounds and a condition that depend on data, by way of a buffer."""
