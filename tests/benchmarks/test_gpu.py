"""The GPU benchmarks as far as they go without a GPU: what they hold, how they go on after a crash, what they print."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest

import tilec
from benchmarks import hopper_bench
from benchmarks.gpu import build, cells, measure, record, tables, timing, watchdog
from benchmarks.gpu.formulas import FORMULAS

CHILD = """
import json, pathlib, sys, time
from benchmarks.gpu.watchdog import Progress
progress, skip = Progress(pathlib.Path(sys.argv[1])), json.loads(sys.argv[2])
for name, seconds in (("one", 20), ("hangs", 0.5), ("two", 20), ("crashes", 20), ("three", 20)):
    if name in skip:
        continue
    progress.start(name, seconds)
    if name == "hangs":
        time.sleep(60)
    if name == "crashes":
        sys.exit(3)
    progress.say("did", name)
"""


def small(kind: str, **more: object) -> cells.Cell:
    """A cell that a CPU computes in no time."""
    cell = cells.Cell("peers", f"{kind} bf16", kind, 2, 4, 300, 16, "bf16", target="cpu")
    return dataclasses.replace(cell, **more)


def test_cells_have_names_of_their_own():
    for dtype in ("bf16", "f16"):
        found = cells.cells(list(cells.TABLES), dtype)
        assert len({c.key for c in found}) == len(found)
        assert {c.table for c in found} == set(cells.TABLES)
        assert all(" " not in c.key for c in found)
    names = [c.name for c in cells.cells(["peers", "heads"], "bf16", "D128,causal,N4096")]
    assert names == ["D128 N4096 causal bf16"]


def test_every_program_is_one():
    for kind, formula in FORMULAS.items():
        for grouped in (False, True):
            kernel = tilec.compile(formula.program(kind, grouped, sums=True))
            assert [o.name for o in kernel.outputs] == ["O", "L"]
            assert set(kernel.dims) <= set(small(kind).sizes)


def test_options():
    args = hopper_bench.options().parse_args(["--table", "heads,bits", "--with", "columns=64"])
    assert {c.table for c in hopper_bench.chosen(args)} == {"heads", "bits"}
    assert args.schedules == ["columns=64"]
    with pytest.raises(SystemExit, match="'pers'"):
        hopper_bench.chosen(hopper_bench.options().parse_args(["--table", "pers"]))


def test_schedules_from_text():
    assert build.changes("columns=64,relax=false,order=static") == {
        "columns": 64,
        "relax": False,
        "order": "static",
    }
    assert build.changes("") == {}
    assert build.label("columns=64") == "tilec,columns=64"


def test_what_hangs_or_crashes_is_skipped(tmp_path: Path):
    import json

    progress = tmp_path / "progress"
    skipped = watchdog.run(
        lambda skip: [sys.executable, "-c", CHILD, str(progress), json.dumps(list(skip))], progress
    )
    assert skipped == ["hangs", "crashes"]
    lines = progress.read_text().splitlines()
    assert lines[-1] == "did three"
    assert lines.count("did one") == 3


def test_a_child_that_begins_nothing_is_an_error(tmp_path: Path):
    with pytest.raises(RuntimeError, match="before it began"):
        watchdog.run(lambda _: [sys.executable, "-c", "raise SystemExit(1)"], tmp_path / "p")


def row(**ms: float) -> dict[str, object]:
    """A row with times, all of one TFLOP."""
    return {"ms": ms, "error": {"tilec": 2e-3}, "failed": {}, **{n: 1 / t for n, t in ms.items()}}


def test_tables_show_what_is_there_and_say_what_is_not():
    found = cells.cells(["peers", "variants", "errors", "bits"], "bf16")
    named = {c.key: c for c in found}
    rows = {
        "peers/D64_N1024_full_bf16": row(tilec=0.002, cudnn=0.0025, fa4=0.003),
        "peers/D64_N1024_causal_bf16": row(cudnn=0.0025) | {"failed": {"tilec": "it hung"}},
        "variants/causal_bf16": row(tilec=1.0, fa4=1.5, flex=2.0) | {"kept": 0.5},
        "variants/window_bf16": row(tilec=0.25, flex=0.5) | {"kept": 0.125},
    }
    assert set(rows) <= set(named)
    text = tables.show(found, rows)
    lines = {x.split("  ")[0]: x.split() for x in text.splitlines()}
    assert lines["D64 N1024 full bf16"][-5:] == ["400", "333", "0.0020", "1.250", "2.0e-03"]
    assert "# D64 N1024 causal bf16: no tilec: it hung" in text
    assert lines["window bf16"][-6:] == ["-", "2.00", "0.12", "0.25", "0.25", "1.00"]
    assert "== bits" not in text


def test_tables_of_errors_and_bits():
    found = cells.cells(["errors", "bits"], "bf16")
    pair = {"tilec": 1e-3, "cudnn": 1e-3, "ratio": 1.0}
    bad = {"tilec": 2e-3, "cudnn": 1e-3, "ratio": 2.0}
    kinds = dict.fromkeys(("o max", "o rms", "l max", "l rms"), pair)
    rows = {
        "errors/D64_N2048_full_bf16": kinds,
        "errors/D64_N2048_causal_bf16": kinds | {"l max": bad},
        "bits/causal_D128_bf16": {"launches": 100, "differ": 1, "error": 2e-3, "right": True},
    }
    lines = {x.split("  ")[0]: x.split()[-1] for x in tables.show(found, rows).splitlines()}
    assert lines["D64 N2048 full bf16"] == "yes"
    assert lines["D64 N2048 causal bf16"] == "NO"
    assert "100" in tables.show(found, rows)


def test_records(tmp_path: Path):
    path = tmp_path / "x.jsonl"
    assert record.read(path) == []
    record.write(path, {"a": 1})
    record.write(path, {"a": 2})
    assert record.read(path) == [{"a": 1}, {"a": 2}]
    assert record.said("no-such-command-here") == ""
    argv = [str(record.ROOT / "benchmarks" / "x.py"), "--table", "bits", "--skip=a"]
    assert record.command(argv) == "python benchmarks/x.py --table bits"


# ---- with PyTorch


@pytest.mark.parametrize("kind", FORMULAS)
def test_the_exact_result_is_that_of_the_program(kind: str):
    """What is held against float64 on the GPU is what the program says."""
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.gpu import problem

    for more in ({"hk": 2}, {"m": 40} if kind in ("full", "causal") else {"b": 1}):
        p = problem.draw(small(kind, **more), 1, "cpu")
        kernel = tilec.compile(p.cell.program, target="reference")
        assert p.error(kernel(p.q, p.k, p.v, **p.arguments)) < p.limit
        worse = p.v.clone()
        worse[:, :, 7] += 1
        assert p.error(kernel(p.q, p.k, worse, **p.arguments)) > p.limit


def test_blocks_that_are_kept():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.gpu import problem

    def kept(kind: str, **more: object) -> float:
        return problem.draw(small(kind, n=512, **more), 1, "cpu").kept()

    assert kept("full") == 1
    assert kept("causal") == 10 / 16
    assert kept("causal", m=128) == 1
    assert problem.draw(small("causal", n=512), 1, "cpu").operations() == 2 * 32 * 8 * 512 * 513 / 2


def test_a_cell_is_measured_without_what_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.gpu import problem

    draw = problem.draw
    monkeypatch.setattr(problem, "draw", lambda cell, seed: draw(cell, seed, "cpu"))
    monkeypatch.setattr(measure, "settled", lambda: None)
    monkeypatch.setattr(timing, "burst", lambda run: [float(run().shape[0])])
    cell = small("causal", peers=("math", "flex4", "efficient", "fa4"))
    bench = measure.Bench(
        watchdog.Progress(tmp_path / "progress"), frozenset([f"{cell.key}/efficient"]), 1
    )
    made = {"tilec": build.Built({}, "there"), "tilec,x=1": build.Built({}, "no field x", True)}
    row = measure.times(bench, cell, made)
    assert row["ms"] == {"tilec": 2.0, "math": 2.0}
    assert set(row["failed"]) == {"tilec,x=1", "flex4", "efficient", "fa4"}
    assert row["failed"]["efficient"] == "it hung or crashed"
    assert row["error"]["math"] < 1.2e-2
    names = [n for n, _ in watchdog.started(tmp_path / "progress")]
    assert [n.rsplit("/", 1)[1] for n in names] == ["tilec", "math", "flex4", "fa4", "timing"]


def test_a_wrong_candidate_is_not_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.gpu import problem

    draw = problem.draw
    monkeypatch.setattr(problem, "draw", lambda cell, seed: draw(cell, seed, "cpu"))
    monkeypatch.setattr(measure, "settled", lambda: None)
    monkeypatch.setattr(measure, "call_of", lambda p, _: lambda: torch.zeros_like(p.q))
    bench = measure.Bench(watchdog.Progress(tmp_path / "progress"), frozenset(), 1)
    row = measure.times(bench, small("full"), {"tilec": build.Built({}, "")})
    assert row["failed"]["tilec"].startswith("wrong: error 1.0e+00")
    assert not row["ms"]
