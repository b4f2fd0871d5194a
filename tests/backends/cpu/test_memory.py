"""No N×N array exists: what a call needs beyond its inputs and outputs does not grow with N²."""

from __future__ import annotations

import subprocess
import sys

import pytest

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
