"""The CPU benchmarks on small problems: what they hold, that they refuse wrong results, what is kept."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks import cpu_sdpa
from benchmarks.cpu import timing
from benchmarks.cpu.cases import TABLES, Case, Choice, cases
from benchmarks.gpu import record

SMALL = Choice((64,), (16,), ("f32", "bf16"), (), heads=2, threads=1)


def test_every_table_has_cases_of_its_own():
    for table in TABLES:
        found = cases(table, SMALL)
        assert found
        assert {c.cell.table for c in found} == {table}
        assert len(set(found)) == len(found)
    only = cases("variants", dataclasses.replace(SMALL, kinds=("alibi", "full")))
    assert {c.cell.kind for c in only} == {"alibi"}
    assert all(c.threads == 2 for c in cases("threads", SMALL))


def test_ratios_are_of_medians_in_pairs_or_of_the_shortest():
    ours, others = [1.0, 2.0, 4.0], [3.0, 4.0, 4.0]
    assert timing.ratio(others, ours, 1) == 2
    assert timing.ratio(others, ours, 2) == 3
    assert timing.typical(ours, 1) == 2
    assert timing.typical(ours, 2) == 1


def test_the_nearest_power_of_two():
    (case, *_) = cases("heads", SMALL)
    for d, near in ((24, 32), (72, 64), (96, 128), (576, 512)):
        assert dataclasses.replace(case, cell=dataclasses.replace(case.cell, d=d)).near().d == near


@pytest.mark.parametrize("table", ["sdpa", "threads", "heads", "strided", "variants"])
def test_a_case_is_measured(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.cpu.measure import measure

    monkeypatch.setenv("TILEC_NUM_THREADS", "2")
    case = cases(table, SMALL)[-1]
    beside = tuple(name for name in case.beside if name != "flex")  # which takes a minute
    case = dataclasses.replace(case, beside=beside)
    row = measure(case, 0)
    assert set(row["ratio"]) == set(beside)
    assert set(row["ms"]) == {"tilec", *beside}
    assert min(row["ms"].values()) > 0
    assert min(row["ratio"].values()) > 0
    assert 0 < row["of_peak"] < 1.1
    assert f"x{row['ratio'][beside[0]]:.2f}" in cpu_sdpa.line(case, row)
    path = tmp_path / "x.jsonl"
    record.write(path, cpu_sdpa.kept(case, row))
    (read,) = map(json.loads, path.read_text().splitlines())
    assert read["table"] == table
    assert read["D"] == case.cell.d


def test_a_wrong_result_is_not_timed(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from benchmarks.cpu import measure

    monkeypatch.setenv("TILEC_NUM_THREADS", "1")
    right = measure._tilec
    monkeypatch.setattr(measure, "_tilec", lambda p: lambda: right(p)() * 1.1)
    case: Case = cases("sdpa", SMALL)[0]
    with pytest.raises(ValueError, match="is wrong"):
        measure.measure(case, 0)
