"""Small programs that several tests use, and arrays for one."""

import numpy as np

CAUSAL = """
kernel causal(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E], scale: float = 1 / sqrt(D)) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) * scale
    P = softmax[j](S if j <= i + N - M else -inf)
    O = sum[j](P * V[b, h, j, e])

sizes B=1, H=2, M=20, N=24, D=8, E=12
"""

GROUPED = """
kernel grouped(Q[B, H, M, D], K[B, HK, N, D], V[B, HK, N, E], len: i32[B],
               window: int = 16) -> O[b, h, i, e], L: f32[b, h, i]:
    assert H % HK == 0, "query heads must be a multiple of key heads"
    g = h // (H // HK)
    S = sum[d](Q[b, h, i, d] * K[b, g, j, d]) / sqrt(D)
    S = S if j < len[b] and i - window < j <= i else -inf
    O = sum[j](softmax[j](S) * V[b, g, j, e])
    L = logsumexp[j](S)

sizes B=2, H=4, HK=2, M=9, N=9, D=4, E=4
sample len[b] = N - b
"""

TABLE = """
kernel table(X[M, N], T: f32[M + N - 1], flag: bool = false) -> Y[i, j]:
    Y = X[i, j] + T[i - j + N - 1]

kernel twice(X[N]) -> Y[i]:
    Y = 2 * X[i]

sizes M=3, N=4
sample T[r] = r / 2
"""


def inputs(m=20, n=24, dtype=np.float32, seed=0):
    """Queries, keys and values for `CAUSAL`."""
    r = np.random.default_rng(seed)
    shapes = [(1, 2, m, 8), (1, 2, n, 8), (1, 2, n, 12)]
    return [r.standard_normal(s).astype(dtype) for s in shapes]
