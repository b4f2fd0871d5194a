"""`tilec bench`: who takes part, what is timed, and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


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


@pytest.mark.filterwarnings("error::RuntimeWarning")
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
