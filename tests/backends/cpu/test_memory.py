"""No N×N array exists: what a call needs beyond its inputs and outputs does not grow with N²."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import tilec
from tilec.arrays import view
from tilec.backends.cpu import pool
from tilec.backends.cpu.target import Executable

MEASURE = """
import resource, sys
import numpy as np
import tilec

n = int(sys.argv[1])
attend = tilec.load("examples/causal.tile", target="cpu")
q, k, v = (np.ones((1, 1, n, 64), np.float32) for _ in range(3))
o = np.zeros((1, 1, n, 64), np.float32)
attend(q[:, :, :256], k[:, :, :256], v[:, :, :256])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
attend(q, k, v, out=o)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in KiB on Linux")
def test_peak_memory_beside_inputs_and_outputs() -> None:
    """At N = 16384 the scores alone would be 1 GiB."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, "16384"], capture_output=True, text=True, check=True
    )
    assert int(run.stdout) < 16 * 1024


@pytest.mark.parametrize(("dtype", "dim"), [("f32", 128), ("f16", 256)])
@pytest.mark.parametrize("threads", [16, 64, 128])
def test_scratch_of_all_threads(
    monkeypatch: pytest.MonkeyPatch, threads: int, dtype: str, dim: int
) -> None:
    """More threads have smaller tiles, before what all of them take grows beyond 16 MB."""
    monkeypatch.setattr(pool, "threads", lambda: threads)
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    kernel = tilec.load("examples/naive.tile", target="cpu")
    q, k, v, o = (np.empty((1, 2 * threads, 8192, dim), kind) for _ in range(4))
    plan = kernel.plan(q, k, v)
    assert isinstance(plan.run, Executable)
    given = {n: view(n, x) for n, x in zip(plan.ir.tensors, (q, k, v), strict=True)}
    assert 2e6 < plan.run.memory(given, {}, {"O": view("O", o)}) < 16e6
