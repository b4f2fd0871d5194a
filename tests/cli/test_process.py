"""The command line as a process: standard input, closed pipes, output without a place."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def process(*argv: str, **more) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "NO_COLOR": "1"}
    argv = (sys.executable, "-m", "tilec", *argv)
    return subprocess.run(argv, env=env, capture_output=True, text=True, check=False, **more)


def test_python_m_tilec():
    done = process("--version")
    assert (done.returncode, done.stdout.startswith("tilec ")) == (0, True)
    done = process("check", str(ROOT / "examples" / "causal.tile"))
    assert (done.returncode, done.stderr) == (0, "")
    done = process("run", "missing.tile", cwd="/")
    assert (done.returncode, done.stdout) == (1, "")
    assert "\x1b" not in done.stderr


def test_standard_input_and_a_closed_pipe(tmp_path):
    causal = str(ROOT / "examples" / "causal.tile")
    text = process("ir", causal, "--after", "lower").stdout
    done = process("opt", "-", input=text)
    assert (done.returncode, done.stdout) == (0, text)
    program = Path(causal).read_text()
    assert process("ir", "--after", "lower", "--", "-:causal", input=program).stdout == text
    done = process("check", "-", input=program.replace("softmax", "sofmax"))
    assert (done.returncode, done.stderr.startswith("<stdin>:4:9: error: ")) == (1, True)
    command = f"{sys.executable} -m tilec ir {causal} --all | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("# after lower")
    assert done.stderr == ""


def test_output_that_has_no_place_or_no_letters(tmp_path):
    name = tmp_path / "ü.tile"
    name.write_text("kernel same(Q[M]) -> O[i]:\n    O = Q[i]\n")
    command, plain = (
        [sys.executable, "-m", "tilec", "check", str(name)],
        {"PYTHONIOENCODING": "ascii"},
    )
    said = subprocess.run(command, env=os.environ | plain, capture_output=True, check=True)
    assert b"\\xfc.tile: same(Q[M])" in said.stdout
    if Path("/dev/full").exists():
        with open("/dev/full", "w") as full:
            failed = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True)
        assert (failed.returncode, failed.stderr) == (1, "error: No space left on device\n")
