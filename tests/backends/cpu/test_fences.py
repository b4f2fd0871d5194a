"""Nothing is read beyond the ends of a tensor, not even what is thrown away."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilec
from tests.fences import fenced

ONE_AFTER_THE_OTHER = """
kernel both(Q[B, H, M, D], K1[B, H, N1, D], K2[B, H, N2, D], V1[B, H, N1, E], V2[B, H, N2, E]) -> O[b, h, i, e]:
    axis j < N1 + N2
    S = sum[d](Q[b, h, i, d] * (K1[b, h, j, d] if j < N1 else K2[b, h, j - N1, d])) / sqrt(D)
    O = sum[j](softmax[j](S) * (V1[b, h, j, e] if j < N1 else V2[b, h, j - N1, e]))
sizes B=2, H=2, M=5, N1=13, N2=70, D=9, E=6
"""

APPENDED = """
kernel appended(X[N], Z[M]) -> O[j]:
    axis j < N + M
    O = X[j] if j < N else Z[j - N]
sizes N=3000, M=500
"""

FEW_HEADS = """
kernel few(Z[N, N, C], w: f32[H, C], V[N, E]) -> O[i, h, e]:
    S = sum[c](Z[i, j, c] * w[h, c])
    O = sum[j](softmax[j](S) * V[j, e])
sizes N=19, C=5, H=2, E=3
"""

DECODING = """
kernel decoding(Q[B, H, 1, D], K[B, HK, N, D], V[B, HK, N, E], len: i32[B]) -> O[b, h, e]:
    S = sum[d](Q[b, h, 0, d] * K[b, h // (H // HK), j, d]) / sqrt(D)
    O = sum[j](softmax[j](S if j < len[b] else -inf) * V[b, h // (H // HK), j, e])
sizes B=2, H=6, HK=2, N=67, D=33, E=7
sample len[b] = N - 3 * b
"""

PROGRAMS = {
    "both": ONE_AFTER_THE_OTHER,
    "appended": APPENDED,
    "few": FEW_HEADS,
    "decoding": DECODING,
}

RUN = "import sys; from tests.backends.cpu.test_fences import run; run(sys.argv[1], sys.argv[2])"


def run(name: str, dtype: Any) -> None:
    """The calls of one program on arrays with a fence."""
    kernel = tilec.compile(PROGRAMS[name], target="cpu")
    arrays = kernel.sample(1, dtype=dtype)
    want = kernel.reference(**arrays)
    tolerance = 1e-2 if dtype == "f16" else 1e-5
    for before in (False, True):
        got = kernel(**{n: fenced(a, before=before) for n, a in arrays.items()})
        np.testing.assert_allclose(got, want, tolerance, tolerance)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is fenced by mprotect")
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_lies_beyond_a_tensor_is_not_read(name: str, dtype: str) -> None:
    """In a process of its own, which dies where something else than the tensors is read."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, name, dtype], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stderr[-2000:]}"
