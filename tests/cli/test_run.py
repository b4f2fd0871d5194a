"""`tilec run`: what it prints, what it reads and writes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tilec.cli import options
from tilec.kernel import Kernel


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_run(tile, target):
    status, out, err = tile(
        "run", "causal.tile", "--check", "--target", target, "--size", "M=5,N=7"
    )
    assert (status, err) == (0, "")
    assert out.startswith(f"causal on {target}: B=1, H=2, M=5, D=8, N=7, E=12, scale=0.35")
    for word in (
        "first call",
        "time",
        "throughput",
        "GFLOP/s",
        "bytes moved",
        "check O: largest error",
        "ok",
    ):
        assert word in out


def test_run_as_json_with_scalars_and_seed(tile):
    argv = ["run", "grouped.tile", "--set", "window=3", "--json", "--check", "--seed", "4"]
    status, out, err = tile(*argv)
    assert (status, err) == (0, "")
    facts = json.loads(out)
    assert facts["scalars"] == {"window": 3}
    assert facts["outputs"] == {"O": [2, 4, 9, 4], "L": [2, 4, 9]}
    assert all(e["ok"] for e in facts["errors"].values())
    assert facts["bytes"] > 0


def test_run_on_files(tile):
    r = np.random.default_rng(0)
    q, k, v = (
        r.standard_normal(s).astype(np.float32) for s in [(1, 1, 3, 4), (1, 1, 5, 4), (1, 1, 5, 6)]
    )
    np.savez("in.npz", Q=q, K=k, V=v, scale=np.float64(0.5))
    argv = ["run", "causal.tile", "--input", "in.npz", "--output", "out.npz", "--check"]
    status, _, err = tile(*argv)
    assert (status, err) == (0, "")
    assert np.load("out.npz")["O"].shape == (1, 1, 3, 6)
    status, out, _ = tile(*argv, "--dtype", "bf16", "--json")
    assert status == 0
    assert json.loads(out)["types"]["Q"] == "bfloat16"
    assert np.load("out.npz")["O"].dtype == np.float32


def test_nothing_in_an_npz_is_executed(tile):
    class Trap:
        def __reduce__(self):
            return Path("sprung").touch, ()

    np.savez("trap.npz", Q=np.array([Trap()], dtype=object))
    status, _, err = tile("run", "causal.tile", "--input", "trap.npz")
    assert status == 1
    assert "cannot read trap.npz" in err
    assert not Path("sprung").exists()


def test_an_array_without_a_name_is_no_input(tile):
    np.save("one.npy", np.ones(3, np.float32))
    status, out, err = tile("run", "causal.tile", "--input", "one.npy")
    assert (status, out) == (1, "")
    assert err == "error: one.npy holds one array without a name; expected an .npz file\n"


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04rubbish", b"\x93NUMPY\x01\x00", b"text\n" * 100])
def test_files_that_are_no_npz(tile, data):
    Path("bad.npz").write_bytes(data)
    status, out, err = tile("run", "causal.tile", "--input", "bad.npz")
    assert (status, out) == (1, "")
    assert err.startswith("error: cannot read bad.npz")


def test_a_failed_check_is_an_error(tile, monkeypatch):
    from tilec.kernel import Kernel

    right = Kernel.__call__
    monkeypatch.setattr(
        Kernel, "__call__", lambda self, *x, **named: right(self, *x, **named) + 1e-3
    )
    status, out, err = tile("run", "causal.tile", "--check", "--target", "reference")
    assert status == 1
    assert "WRONG" in out
    assert "error: the result is not" in err


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "causal.tile", "--output", "none/x.npz"],
        ["run", "causal.tile", "--output", "."],
        ["tune", "causal.tile", "--export", "none/x.json"],
    ],
)
def test_a_place_that_is_none_is_refused_before_the_work(tile, monkeypatch, argv):
    monkeypatch.setattr(Kernel, "sample", lambda *_, **__: pytest.fail("it drew"))
    status, _, err = tile(*argv)
    assert (status, "cannot write" in err) == (1, True)


def test_commands_take_the_gpu_that_answers(tile, monkeypatch):
    from tilec.backends.cuda import launch

    assert options.load("causal.tile").target == "cpu"
    monkeypatch.setattr(launch, "available", lambda: True)
    assert options.load("causal.tile").target == "cuda"
    assert options.load("causal.tile", "cpu").target == "cpu"
    assert "ModuleID" in tile("emit", "causal.tile", "--to", "llvm")[1]
