"""Plain attention as programs."""

ATTENTION = """
kernel attend(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:
    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)
    P = softmax[j](S{mask})
    O = sum[j](P * V[b, h, j, e])
"""
FULL, CAUSAL = (ATTENTION.format(mask=m) for m in ("", " if j <= i + N - M else -inf"))
