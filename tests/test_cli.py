"""The command line: what each command prints, where, and its exit status."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.programs import CAUSAL, GROUPED, TABLE
from tilec import cache
from tilec.cli import main, options, tune
from tilec.kernel import Kernel

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def tile(tmp_path, capsys, monkeypatch):
    """Runs a command on files of a folder of its own; gives the exit status, the output and the errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    for name, text in {"causal": CAUSAL, "grouped": GROUPED, "table": TABLE}.items():
        Path(f"{name}.tile").write_text(text)

    def call(*argv: str) -> tuple[int, str, str]:
        status = main(list(argv))
        out, err = capsys.readouterr()
        return status, out, err

    return call


def test_check_prints_signatures_and_axes(tile):
    status, out, err = tile("check", "grouped.tile", "table.tile")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("grouped.tile: grouped(Q[B, H, M, D], K[B, HK, N, D]")
    assert lines[0].endswith("-> O[b, h, i, e], L: f32[b, h, i]")
    assert "i < M" in lines[1]
    assert (
        lines[2] == "table.tile: table(X[M, N], T: f32[M + N - 1], flag: bool = false) -> Y[i, j]"
    )
    assert lines[4] == "table.tile: twice(X[N]) -> Y[i]"
    status, out, _ = tile("check", "table.tile:twice", "--json")
    assert json.loads(out)[0]["axes"] == {"i": "N"}


def test_check_reports_all_mistakes(tile):
    Path("bad.tile").write_text("kernel f(X[N]) -> Y[i]:\n    Z = X[i, i]\n    Y = foo(X[i])\n")
    status, out, err = tile("check", "bad.tile", "causal.tile", "missing.tile")
    assert status == 1
    assert "causal(" in out
    assert "bad.tile:2:" in err
    assert "bad.tile:3:" in err
    assert "cannot read missing.tile" in err
    status, out, _ = tile("check", "bad.tile", "--json")
    assert status == 1
    assert [m["line"] for m in json.loads(out)] == [2, 3]


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


def test_what_is_no_file_is_no_cache_entry(tile, monkeypatch):
    monkeypatch.setenv("TILEC_CACHE_DIR", "kept")
    Path("kept/cpu/folder.o").mkdir(parents=True)
    Path("kept/cpu/dangling.o").symlink_to("nowhere")
    for command in ("list", "verify", "clear"):
        assert tile("cache", command)[0] == 0


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


# ---- IR


def test_ir(tile):
    status, out, err = tile("ir", "causal.tile", "--tile", "i=16,j=8")
    assert (status, err) == (0, "")
    assert "grid(axes=[b:1, h:1, i:16])" in out
    assert "tile=8" in out
    status, out, _ = tile("ir", "causal.tile", "--after", "fuse")
    assert "group(" in out
    assert "for(" not in out


def test_ir_along_the_pipeline(tile):
    _, out, _ = tile("ir", "causal.tile", "--list")
    names = [line.split()[0] for line in out.splitlines()]
    assert names[0] == "expand"
    assert not any(f"{name}:" in out for name in names)
    _, out, _ = tile("ir", "causal.tile", "--all")
    assert [x.split()[-1] for x in out.splitlines() if x.startswith("# after")] == ["lower", *names]
    _, out, _ = tile("ir", "causal.tile", "--diff", "--passes", "expand,simplify")
    assert "+++ after expand" in out
    assert any(line.startswith("-") and "softmax" in line for line in out.splitlines())
    _, out, _ = tile("ir", "causal.tile", "--bytes", "--after", "fuse")
    assert "total" in out
    _, out, _ = tile("ir", "causal.tile", "--bytes", "--after", "fuse", "--json")
    found = json.loads(out)
    assert found["total"]["read"] == sum(x["read"] for x in found["ops"]) > 0
    assert found["total"]["written"] == sum(x["written"] for x in found["ops"]) > 0
    assert found["sizes"]["D"] == 8
    _, out, _ = tile("ir", "causal.tile", "--all", "--after", "expand", "--locations")
    assert [x for x in out.splitlines() if x.startswith("# after")] == [
        "# after lower",
        "# after expand",
    ]
    assert "# causal.tile:3:" in out
    _, out, _ = tile("ir", "causal.tile", "--diff", "--after", "expand", "--locations")
    assert out.count("+++ after") == 1
    assert "# causal.tile:4:" in out
    status, _, err = tile("ir", "causal.tile", "--json")
    assert (status, "only --bytes has figures" in err) == (2, True)
    status, _, err = tile("ir", "causal.tile", "--passes", "expand,fuze")
    assert (status, "did you mean fuse?" in err) == (1, True)
    status, _, err = tile("ir", "causal.tile", "--after", "fuze")
    assert (status, "did you mean fuse?" in err) == (1, True)


def test_the_seed_draws_the_data_that_decides_what_runs(tile):
    """A bound that is drawn: how many blocks are read depends on it."""
    Path("drawn.tile").write_text(
        "kernel drawn(Q[B, N, D], K[B, N, D], part: f32[B]) -> O[b, i]:\n"
        "    S = sum[d](Q[b, i, d] * K[b, j, d])\n"
        "    O = sum[j](exp(S) if j < i32(abs(part[b]) * N) else 0)\n"
        "sizes B=3, N=512, D=8\n"
    )
    read = {
        (command[0], seed): tile(*command, "--seed", seed, "--target", "cpu", "--json")[1]
        for command in (("ir", "drawn.tile", "--bytes"), ("traffic", "drawn.tile"))
        for seed in ("0", "1")
    }
    assert read["ir", "0"] != read["ir", "1"]
    assert read["traffic", "0"] != read["traffic", "1"]
    status, _, err = tile("ir", "drawn.tile", "--bytes", "--seed", "-1")
    assert (status, "seed: expected an integer of 0 or more" in err) == (1, True)


def test_opt_reads_what_ir_prints(tile):
    _, tensor, _ = tile("ir", "causal.tile", "--after", "lower")
    Path("causal.ir").write_text(tensor)
    status, out, err = tile("opt", "causal.ir")
    assert (status, out, err) == (0, tensor, "")
    pipeline = "expand,simplify,exp2,contract,fuse,online"
    _, out, _ = tile("opt", "causal.ir", "--passes", pipeline)
    _, online, _ = tile("ir", "causal.tile", "--after", "online")
    assert out == online
    _, tiles, _ = tile("opt", "causal.ir", "--passes", f"{pipeline},specialise:D=8,tile:i=4:j=5")
    assert "grid(axes=[b:1, h:1, i:4])" in tiles


def test_opt_names_the_place_of_a_mistake(tile):
    Path("bad.ir").write_text("kernel f() -> Y: f32[] {\n  x: f32 = add(1.0,\n}\n")
    status, out, err = tile("opt", "bad.ir")
    assert (status, out) == (1, "")
    assert "bad.ir:" in err


def test_opt_of_no_kernel_is_a_mistake(tile):
    Path("empty.ir").write_text("\n")
    status, out, err = tile("opt", "empty.ir")
    assert (status, out) == (1, "")
    assert err.startswith("error: empty.ir holds no kernel")


def test_opt_names_the_op_that_breaks_a_rule(tile):
    _, tensor, _ = tile("ir", "causal.tile", "--after", "contract")
    Path("bad.ir").write_text(tensor.replace("over=d", "over=z"))
    status, out, err = tile("opt", "bad.ir")
    assert (status, out) == (1, "")
    assert err.startswith("error: bad.ir: causal is not valid IR: no axis is called z")
    assert "a bug in tilec" not in err


def test_traffic(tile):
    status, out, err = tile("traffic", "causal.tile", "--size", "M=256,N=256", "--json")
    assert status == 0
    assert "ceilings" in err
    facts = json.loads(out)
    total = {s["after"]: s["read"] + s["written"] for s in facts["stages"]}
    assert total["lower"] > 10 * total["place"]
    for s in facts["stages"]:
        assert sum(op["read"] for op in s["ops"]) == s["read"]
    grown = facts["compared"]
    assert grown["contract"]["growth"] > 1.7 > 1.1 > grown["online"]["growth"]
    assert grown["contract"]["largest"]["place"] == "in HBM"
    assert grown["place"]["largest"]["place"] == "on chip, a tile at a time"


def test_traffic_prints_tables(tile):
    status, out, _ = tile("traffic", "causal.tile", "--measure", "--after", "contract")
    assert status == 0
    assert out.count("counted") == out.count("equal") == 14
    for words in (
        "roofs: memory",
        "compulsory",
        "by op, after contract",
        "one op at a time",
        "it lives",
    ):
        assert words in out


def test_traffic_draws(tile):
    pytest.importorskip("matplotlib")
    status, _, err = tile("traffic", "causal.tile", "--plot", "roof.svg")
    assert (status, "wrote roof.svg" in err) == (0, True)
    assert "<svg" in Path("roof.svg").read_text()
    status, _, err = tile("traffic", "causal.tile", "--plot", "roof.xyz")
    assert (status, ".svg" in err) == (1, True)


def test_tune_stores_a_schedule_that_run_takes(tile):
    status, out, _ = tile(
        "tune", "causal.tile", "--space", "i=16 j=16,64", "--jobs", "0", "--top", "2"
    )
    assert status == 0
    assert " 1. " in out
    assert " 3. " not in out
    assert "checked against the float64 reference" in out
    status, out, _ = tile("run", "causal.tile")
    assert "(tuned" in out
    assert "--tile overrides it)" in out
    status, out, _ = tile("run", "causal.tile", "--tile", "i=16")
    assert "tuned" not in out
    status, out, _ = tile("cache", "list", "--json")
    (found,) = json.loads(out)["schedules"]
    assert found["kernel"] == "causal"
    _, out, _ = tile("traffic", "causal.tile")
    assert ("--tile overrides it)" in out, " tuned\n" in out) == (True, True)
    status, out, _ = tile("traffic", "causal.tile", "--tile", "i=32")
    assert (status, "tuned" in out) == (0, False)
    tile("tune", "--export", "x.json")
    assert tile("cache", "remove", found["id"])[0] == 0
    assert tile("cache", "remove", found["id"])[0] == 1
    assert tile("tune", "--import", "x.json")[0] == 0
    assert "1 tuned schedule read, 0 damaged" in tile("cache", "verify")[1]
    _damage(cache.directory("tuning") / "schedules.sqlite")
    status, out, _ = tile("cache", "list")
    assert (status, f"{found['id']}  damaged, and not used" in out) == (0, True)
    status, out, _ = tile("cache", "verify")
    assert (status, "1 tuned schedule read, 1 damaged" in out) == (1, True)
    assert tile("cache", "remove", found["id"])[0] == 0
    assert "0 tuned schedules read, 0 damaged" in tile("cache", "verify")[1]
    assert "removed" in tile("cache", "clear", "--tuned")[1]
    assert "0 tuned schedules" in tile("cache", "list")[1]


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


def _damage(file: Path) -> None:
    c = sqlite3.connect(file)
    with c:
        c.execute("update winners set gain = gain + 1")
    c.close()


def test_a_stored_default_is_said_to_be_one():
    assert options.schedule("default", False) == (
        "default (tuned: no other was faster; --tile overrides it)"
    )
    assert options.schedule("i=16", True) == "i=16 (shipped; --tile overrides it)"


def test_a_search_that_cannot_end_in_time_is_refused_before_data_are_drawn(tile, monkeypatch):
    monkeypatch.setattr(Kernel, "sample", lambda *_, **__: pytest.fail("it drew"))
    monkeypatch.setattr(tune, "call_seconds", lambda *_: 0.5)
    status, _, err = tile("tune", "causal.tile", "--size", "N=10000000", "--budget", "9s")
    assert status == 1
    assert "drawing 400," in err
    assert "takes about 8 s, a call about 0.5 s" in err
    assert "--budget 29s, or smaller sizes" in err
    monkeypatch.setattr(tune, "call_seconds", lambda *_: 50.0)
    status, _, err = tile("tune", "causal.tile", "--budget", "1m")
    assert (status, "a call about 50 s" in err) == (1, True)


def test_fields_of_a_schedule_are_numbers(tile):
    tile("tune", "causal.tile", "--space", "workers=8", "--jobs", "0")
    tile("tune", "--export", "x.json")
    data = json.loads(Path("x.json").read_text())
    data["winners"][0]["schedule"] = {"workers": 8}
    Path("x.json").write_text(json.dumps(data))
    tile("tune", "--import", "x.json")
    for command in ("run", "traffic"):
        status, out, _ = tile(command, "causal.tile")
        assert (status, "workers=8 (tuned" in out) == (0, True)
    assert tile("run", "causal.tile", "--schedule", "workers=8")[0] == 0


def test_a_page_is_refused_before_the_work(tile):
    for file, words in (("none/a.html", "no such folder"), (".", "it is a folder")):
        status, _, err = tile("ir", "none.tile", "--html", file)
        assert (status, words in err) == (1, True)


def test_ir_lists_and_shows_the_passes_that_run_for_the_sizes(tile):
    few = ["ir", str(ROOT / "examples/paged.tile"), "--target", "cuda:sm_90a", "--size", "M=4"]
    listed = [line.split()[0] for line in tile(*few, "--list")[1].splitlines()]
    shown = tile(*few, "--all")[1].splitlines()
    assert [f"# after {n}" for n in ("lower", *listed)] == [x for x in shown if x[:1] == "#"]
    assert "fold" in listed
    assert "i_r < M * 4" in tile(*few, "--after", "fold")[1]
    status, _, err = tile(*few[:-2], "--after", "fold")
    assert (status, "not in this pipeline" in err, "--passes names others" in err) == (
        1,
        True,
        True,
    )


@pytest.mark.parametrize("command", ["tune", "bench"])
def test_a_drawing_is_refused_before_the_work(tile, command):
    pytest.importorskip("matplotlib")
    for file, words in (("a.xyz", ".svg"), ("none/a.svg", "no such folder")):
        status, _, err = tile(command, "none.tile", "--plot", file)
        assert (status, words in err) == (1, True)


def test_bench_times_and_checks(tile, monkeypatch):
    Path("mine.py").write_text("def zero(q, k, v):\n    return q * 0\n")
    monkeypatch.syspath_prepend(".")
    peers = ["--peer", "mine:zero", "--peer", "mine:missing"]
    status, out, err = tile(
        "bench", "causal.tile", "--seconds", "0", *peers, "--only", "numpy", "--json"
    )
    assert status == 0, err
    facts = json.loads(out)
    runs = {r["name"]: r for r in facts["runs"]}
    assert facts["formula"].startswith("causal")
    assert runs["tilec causal"]["largest_error"] < 1e-5
    assert runs["NumPy in float64"]["runs"] >= 3
    assert runs["mine:zero"]["refused"] or runs["mine:zero"]["largest_error"] > 0.1
    assert "missing" in runs["mine:missing"]["refused"]
    status, out, _ = tile("bench", "causal.tile", "--seconds", "0", "--only", "numpy")
    assert "recognised as: causal" in out


@pytest.mark.parametrize("form", ["X[i]", "X[j, i]", "sum[k](X[k])"])
def test_bench_of_outputs_of_any_rank(tile, form):
    axes = ", ".join(a for a in "ij" if a in form)
    dims = "N, N" if "j, i" in form else "N"
    Path("any.tile").write_text(
        f"kernel any_rank(X[{dims}]) -> Y[{axes}]:\n    Y = {form} * 2\n\nsizes N=5\n"
    )
    status, out, err = tile("bench", "any.tile", "--seconds", "0", "--json")
    assert status == 0, err
    assert json.loads(out)["runs"][0]["largest_error"] < 1e-5


@pytest.mark.parametrize("size", ["D=0", "N=0", "B=0"])
def test_bench_of_empty_tensors(tile, size):
    sizes = "B=1,H=2,M=5,N=5,D=8,E=8".replace(
        size[0] + "=" + {"D": "8", "N": "5", "B": "1"}[size[0]], size
    )
    status, out, err = tile("bench", "causal.tile", "--size", sizes, "--seconds", "0", "--json")
    assert status == 0, err
    runs = {r["name"]: r for r in json.loads(out)["runs"]}
    assert runs["tilec causal"]["largest_error"] == 0
    assert (
        "without elements"
        in runs.get("torch FlexAttention", {"refused": "without elements"})["refused"]
    )


def test_bench_says_where_times_are_uneven(tile, monkeypatch):
    Path("jumps.py").write_text(
        "import itertools, time\ncalls = itertools.count()\n"
        "def run(q, k, v):\n    time.sleep(0.03 if next(calls) % 3 else 0)\n    return q[..., :1] @ v[..., :1, :]\n"
    )
    monkeypatch.syspath_prepend(".")
    _, out, _ = tile("bench", "causal.tile", "--seconds", "0", "--peer", "jumps:run", "--only", "j")
    assert "uneven times" in out
    assert "the ratios are those of the best runs" in out
    assert out.rstrip().endswith("jumps:run")


def test_bench_gives_all_their_turns_to_the_end(monkeypatch):
    from tilec import beside

    order: list[str] = []

    def runner(name: str, seconds: float) -> beside.Runner:
        return beside.Runner(name, lambda: order.append(name) or seconds)

    quick, slow = runner("quick", 0.01), runner("slow", 0.04)
    beside.take_turns([quick, slow], 2.0, lambda run: run())
    assert (len(quick.times), len(slow.times)) == (200, 51)
    half = len(order) // 2
    assert abs(order[:half].count("quick") - order[half:].count("quick")) < 10
    assert not quick.uneven
    quick.times = [1.0, 3.0, 3.0]
    assert quick.uneven
    assert (quick.time("best"), quick.time("median")) == (1.0, 3.0)


def test_commands_take_the_gpu_that_answers(tile, monkeypatch):
    from tilec.backends.cuda import launch
    from tilec.cli import options

    assert options.load("causal.tile").target == "cpu"
    monkeypatch.setattr(launch, "available", lambda: True)
    assert options.load("causal.tile").target == "cuda"
    assert options.load("causal.tile", "cpu").target == "cpu"
    assert "ModuleID" in tile("emit", "causal.tile", "--to", "llvm")[1]


def test_ir_writes_a_page_and_a_graph(tile):
    status, _, err = tile("ir", "causal.tile", "--html", "x.html")
    assert (status, "wrote x.html" in err) == (0, True)
    assert Path("x.html").read_text().startswith("<!doctype html>")
    status, out, _ = tile("ir", "causal.tile", "--dot", "--after", "fuse")
    assert (status, out.startswith("digraph")) == (0, True)


def test_emit(tile):
    status, out, _ = tile("emit", "causal.tile", "--to", "llvm")
    assert (status, "define" in out) == (0, True)
    status, out, _ = tile("emit", "causal.tile", "--to", "asm")
    assert (status, "ret" in out) == (0, True)


# ---- wrong usage, and what is not there yet


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


def test_code_asks_for_the_sizes_it_needs(tile):
    Path("open.tile").write_text(
        "kernel f(X[N, D], Y[M, D]) -> Z[i, j]:\n    Z = sum[d](X[i, d] * Y[j, d])\n"
    )
    status, _, err = tile("emit", "open.tile", "--to", "cuda", "--target", "cuda:sm_80")
    assert status == 1
    assert "no size is known for N, D, M" in err


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


# ---- the machine


def test_doctor(tile):
    status, out, _ = tile("doctor")
    assert status == 0
    for word in ("numpy", "llvmlite", "cpu features", "threads", "object cache", "cuda driver"):
        assert word in out
    status, out, _ = tile("doctor", "--json")
    assert all(set(f) == {"name", "found", "ok", "remedy"} for f in json.loads(out))


def test_cache(tile):
    _, out, _ = tile("cache", "list")
    assert "0 objects" in out
    assert tile("run", "causal.tile", "--target", "cpu")[0] == 0
    _, out, _ = tile("cache", "list", "--json")
    assert tile("cache", "--json")[1] == out
    listed = json.loads(out)
    assert len(listed["objects"]) >= 1
    assert listed["rows"]["count"] >= 4
    assert tile("cache", "verify")[0] == 0
    damaged = Path(listed["path"], next(iter(listed["objects"])))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, out, _ = tile("cache", "verify")
    assert (status, "1 damaged" in out) == (1, True)
    status, out, _ = tile("cache", "verify", "--json")
    assert (status, json.loads(out)["damaged"]) == (1, [str(damaged)])
    assert tile("run", "causal.tile", "--target", "cpu", "--check")[0] == 0
    _, out, _ = tile("cache", "clear")
    assert "objects removed" in out
    assert "0 objects" in tile("cache", "list")[1]
    assert "0 rows" in tile("cache", "list")[1]


# ---- as a process


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
