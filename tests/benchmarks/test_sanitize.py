"""The runs under compute-sanitizer, with a program that stands for it and a CPU that stands for the GPU."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import gpu_sanitize
from benchmarks.gpu import programs, record, sanitizer
from benchmarks.gpu.sanitizer import Finding

MEMORY = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at causal_0(Args)+0x1230
=========     by thread (3,0,0) in block (0,0,0)
=========     Access at 0x7f2a is out of bounds
=========
========= Invalid __global__ write of size 2 bytes
=========     at causal_0(Args)+0x1240
=========
========= ERROR SUMMARY: 2 errors
"""
RACES = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at f()+0x70 and Read access at f()+0x90 [16 hazards]
=========
========= Warning: Race reported between Write access at f()+0x10 and Write access at f()+0x20 [1 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
"""
QUIET = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
STAND_IN = """#!{python}
import subprocess, sys
if "--help" in sys.argv:
    sys.exit("--tool --log-file --print-limit")
if "--version" in sys.argv:
    sys.exit(print("Version 1.2.3"))
named = [a for a in sys.argv[1:] if a.startswith("--")]
tool, log = (next(a.split("=")[1] for a in named if a.startswith(n)) for n in ("--tool", "--log-file"))
assert "--print-limit=1000" in named and not any(a.startswith("--padding") for a in named)
at = sys.argv.index({python!r})
status = subprocess.call(sys.argv[at:])
said = {memory!r} if tool == "memcheck" and "causal, one row" in sys.argv[at + 2] else {quiet!r}
if tool != "synccheck":
    open(log, "w").write(said)
sys.exit(status)
"""


def test_logs():
    assert sanitizer.read(QUIET).clean
    assert sanitizer.read(QUIET) == Finding()
    found = sanitizer.read(MEMORY)
    assert found == Finding(2, 0, (("Invalid __global__ write of size 2 bytes", 2),))
    assert str(found) == "2"
    races = sanitizer.read(RACES)
    assert (races.errors, races.warnings, len(races.said)) == (1, 1, 2)
    assert str(races) == "1+1w"
    assert "[… hazards]" in races.said[0][0]
    assert sanitizer.read("").problem == "no sum"
    assert not sanitizer.read("").clean
    assert not sanitizer.read("========= Internal Sanitizer Error: x\n" + QUIET).clean


def test_only_options_that_the_program_knows():
    front = sanitizer.prefix("cs", "--padding --print-limit", "memcheck", Path("log"))
    assert front == [
        "cs",
        "--tool=memcheck",
        "--log-file=log",
        "--print-limit=1000",
        "--padding=1024",
    ]
    assert "--padding=1024" not in sanitizer.prefix("cs", "--padding", "racecheck", Path("log"))


def test_the_calls():
    names = [c.name for c in programs.calls(None)]
    assert len(set(names)) == len(names)
    assert {c.example for c in programs.calls(None)} == {
        p.stem for p in programs.EXAMPLES.glob("*.tile")
    }
    assert [c.name for c in programs.calls("swin,one row")] == ["swin", "causal, one row"]


def test_wrong_results_are_found():
    call = programs.Call("x", "causal", {"H": 1, "M": 40, "N": 40}, spoilt=True)
    ran = programs.run(call, "cpu")
    assert not programs.wrong(ran)
    bits = programs.digest(ran.results)
    ran.results[0][0, 0, 3, 3] += 1
    assert programs.wrong(ran).startswith("O: error")
    assert programs.digest(ran.results) != bits
    ran.results[0][0, 0, 3, 3] = float("nan")
    assert "O: error" in programs.wrong(ran)


def test_a_process_that_hangs_is_ended():
    said, text = gpu_sanitize.ended([sys.executable, "-c", "import time; time.sleep(60)"], 0.5)
    assert said is None
    assert text.endswith("timeout")


def test_all_of_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    stand_in, out = tmp_path / "compute-sanitizer", tmp_path / "x.jsonl"
    stand_in.write_text(STAND_IN.format(python=sys.executable, memory=MEMORY, quiet=QUIET))
    stand_in.chmod(0o755)
    words = ["--only= one row,tiny", "--targets=cpu", "--tools=memcheck,racecheck,synccheck"]
    status = gpu_sanitize.main([*words, f"--sanitizer={stand_in}", f"--out={out}", "--jobs=2"])
    assert status == 1
    lines = {x.split("  ")[0]: x.split()[-3:] for x in capsys.readouterr().out.splitlines()}
    assert lines["causal, one row"] == ["0", "no", "sum"]
    rows = record.read(out)
    assert [r["result"] for r in rows[:-1]] == ["right", "right"]
    found = {r["call"]: r["tools"] for r in rows[:-1]}
    assert found["causal, one row"]["memcheck"]["errors"] == 2
    assert found["naive, tiny"]["memcheck"]["errors"] == 0
    summary = rows[-1]["summary"]
    assert summary == {
        "calls": 2,
        "right": 2,
        "clean": {"memcheck": 1, "racecheck": 2, "synccheck": 0},
    }
    assert rows[-1]["sanitizer"] == "Version 1.2.3"
    logs = (tmp_path / "x.logs").read_text()
    assert "#### causal, one row cpu memcheck" in logs
    assert "by thread (3,0,0)" in logs


def test_without_the_program(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sanitizer, "find", lambda: None)
    with pytest.raises(SystemExit, match="not installed"):
        gpu_sanitize.main(["--tools=memcheck"])
    with pytest.raises(SystemExit, match="'memchek'"):
        gpu_sanitize.main(["--tools=memchek"])
