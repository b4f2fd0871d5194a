"""What every command does with wrong usage, mistakes, Ctrl-C and bugs: messages and exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "argv",
    [
        ["run"],
        ["run", "causal.tile", "--size", "M"],
        ["run", "causal.tile", "--size", "M=x"],
        ["run", "causal.tile", "--size", "M=-1"],
        ["run", "causal.tile", "--size", "M=1,M=2"],
        ["run", "causal.tile", "--tile", "i=0"],
        ["run", "causal.tile", "--set", "scale=big"],
        ["run", "causal.tile", "--dtype", "i32"],
        ["run", "causal.tile", "--input", "x.npz", "--size", "M=1"],
        ["emit", "causal.tile", "--to", "wasm"],
        ["emit", "causal.tile"],
        ["tune"],
        ["tune", "causal.tile", "--budget", "soon"],
        ["tune", "causal.tile", "--top", "0"],
        ["frobnicate"],
        ["ir", "causal.tile", "--colour"],
        ["ir", "causal.tile", "--all", "--diff"],
        ["ir", "causal.tile", "--list", "--after", "fuse"],
        ["ir", "causal.tile", "--html", "x.html", "--after", "fuse"],
        ["ir", "causal.tile", "--dot", "--locations"],
        ["ir", "causal.tile", "--after", "pipeline", "--passes", "expand"],
        ["ir", "causal.tile", "--after", "pipeline", "--target", "cpu"],
        ["emit", "causal.tile", "--to", "cuda", "--target", "cpu"],
        ["emit", "causal.tile", "--to", "llvm", "--target", "cuda:sm_80"],
        ["cache", "--json", "verify"],
    ],
)
def test_wrong_usage_is_status_2(tile, argv):
    status, out, err = tile(*argv)
    assert (status, out) == (2, "")
    assert "Usage" in err


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["run", "missing.tile"], ["cannot read missing.tile"]),
        (["run", "causal.tile:casual"], ["no kernel 'casual'; did you mean causal?"]),
        (["run", "causal.tile", "--size", "MM=3"], ["no dimension 'MM'; did you mean M?"]),
        (["run", "causal.tile", "--set", "scal=3"], ["no parameter 'scal'; did you mean scale?"]),
        (["run", "causal.tile", "--size", f"M={1 << 60}"], ["sample data for Q", "memory"]),
        (["run", "causal.tile", "--size", f"M={1 << 44},B=0"], ["sample data for Q"]),
        (["run", "causal.tile", "--target", "tpu"], ["'tpu'", "cpu, reference"]),
        (["run", "causal.tile", "--tile", "z=4"], ["z", "i"]),
        (["run", "causal.tile", "--schedule", "stages=2"], ["stages"]),
        (["ir", "causal.tile", "--dot", "--after", "fus"], ["fus", "did you mean fuse?"]),
        (
            ["emit", "causal.tile", "--to", "cuda", "--schedule", "emitter=x"],
            ["emitter is 'x'", "hopper"],
        ),
        (
            ["emit", "causal.tile", "--to", "llvm", "--set", "scal=1"],
            ["no scalar argument 'scal'; did you mean scale?"],
        ),
        (
            ["emit", "grouped.tile", "--to", "llvm", "--set", "window=2.5"],
            ["argument window: expected an integer"],
        ),
        (["traffic", "causal.tile", "--target", "reference"], ["no ceilings", "cpu, cuda"]),
        (["emit", "causal.tile", "--to", "llvm", "--target", "reference"], ["no code", "cpu"]),
        (["ir", "causal.tile", "--passes", "fuse,online"], ["pass fuse", "run expand before it"]),
        (["tune", "causal.tile", "--space", "z=1"], ["no 'z' to search", "i, j"]),
        (["tune", "causal.tile", "--target", "reference"], ["no schedule", "cpu, cuda"]),
        (["tune", "--import", "causal.tile"], ["no export of tuned schedules"]),
        (["bench", "causal.tile", "--peer", "sdpa"], ["'sdpa'", "MODULE:FUNCTION"]),
        (["grad", "causal.tile"], ["yet", "tilec ir"]),
    ],
)
def test_mistakes_are_status_1(tile, argv, words):
    status, out, err = tile(*argv)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert all(w in err for w in words), err
    assert "Traceback" not in err


def test_a_mistake_in_the_program_is_shown_with_its_place(tile):
    Path("bad.tile").write_text("kernel f(X[N]) -> Y[i]:\n    Z = X[i] +\n    Y = X[i]\n")
    status, out, err = tile("run", "bad.tile")
    assert (status, out) == (1, "")
    assert err.startswith("bad.tile:2:")


def test_ctrl_c_while_the_commands_are_loaded(tile, monkeypatch):
    class Loading:
        @property
        def app(self):
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tilec.cli.app", Loading())
    assert tile("doctor") == (130, "", "")


def test_a_bug_says_so(tile, monkeypatch):
    from tilec import pipeline
    from tilec.errors import CompilerBug

    def broken(*_):
        raise CompilerBug("pass fuse: x is used before it is defined")

    monkeypatch.setattr(pipeline, "apply", broken)
    status, _, err = tile("ir", "causal.tile")
    assert (status, err.startswith("error: this is a bug in tilec: pass fuse")) == (1, True)
    monkeypatch.setattr(pipeline, "apply", lambda *_: 1 / 0)
    status, _, err = tile("ir", "causal.tile")
    assert (status, "this is a bug in tilec: ZeroDivisionError" in err) == (1, True)
