"""A call on the GPU of this machine, if there is one: in a process that sees it, since the tests hide it from all others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
ASK = "from tilec.backends.cuda import launch; launch.cupy()"


def seeing(*argv: str) -> subprocess.CompletedProcess[str]:
    """What Python does in a process that sees all GPUs."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    return subprocess.run(
        [sys.executable, *argv], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.gpu
def test_a_command_takes_the_gpu_and_is_right_there() -> None:
    asked = seeing("-c", ASK)
    if "UnsupportedError: " in asked.stderr:
        pytest.skip(asked.stderr.strip().rpartition("UnsupportedError: ")[2])
    assert asked.returncode == 0, asked.stderr
    program = str(ROOT / "examples" / "causal.tile")
    done = seeing("-m", "tilec", "run", program, "--check", "--json")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["target"].startswith("cuda")
    assert set(facts["types"].values()) == {"float16"}
    assert facts["errors"]["O"]["ok"]
