"""The roofline: bytes that no schedule saves, what holds a kernel, and how the bytes grow."""

from __future__ import annotations

import dataclasses

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import ceilings, roofline
from tilec.traffic import budget
from tilec.work import UNITS

SIZES = {"B": 1, "H": 2, "M": 256, "N": 256, "D": 32, "E": 32}


def stages(sizes=SIZES):
    kernel = tilec.compile(CAUSAL)
    known, scalars = kernel.environment(sizes)
    return {
        name: roofline.stage(name, ir, budget(ir, known, scalars), ceilings.H200)
        for name, ir in kernel.stages(sizes=known)
    }


def test_compulsory_bytes_are_inputs_and_outputs_once():
    found = stages()
    once = 4 * 2 * 256 * 32 * 4
    assert {s.compulsory for s in found.values()} == {once}
    for s in found.values():
        assert sum(r.compulsory for r in s.rows) == once
        assert s.moved >= once


def test_what_pieces_leave_for_each_other_counts():
    kernel = tilec.compile(CAUSAL, target="cuda:sm_90a")
    known, scalars = kernel.environment(SIZES | {"M": 1, "N": 8192})
    cut = dict(kernel.stages(dtype="f16", sizes=known))["place"]
    form = roofline.stage("place", cut, budget(cut, known, scalars), ceilings.H200)
    (count,) = [n for n in cut.arguments if n.endswith("_pieces")]
    left = form.bound.seconds["memory"] * ceilings.H200.memory - form.compulsory
    pieces = budget(cut, known, scalars).known[count]
    assert pieces > 1
    assert left == pytest.approx(2 * pieces * known["H"] * 4 * (2 + known["E"]))


def test_rows_add_up():
    for s in stages().values():
        assert sum(r.read for r in s.rows) == s.read
        assert sum(r.written for r in s.rows) == s.written
        assert {u: sum(r.work[u] for r in s.rows) for u in UNITS} == s.work


def test_unfused_grows_quadratically_fused_linearly():
    less, more = stages(), stages(SIZES | {"M": 512, "N": 512})
    assert roofline.growth(less["contract"].moved, more["contract"].moved) > 1.8
    assert roofline.growth(less["online"].moved, more["online"].moved) == pytest.approx(1.0)
    assert less["contract"].bound.holds == "memory"


def test_lengths_are_those_of_the_tiles():
    kernel = tilec.compile(CAUSAL)
    *_, (_, tiles) = kernel.stages(sizes=SIZES)
    assert roofline.lengths(tiles) == ("M", "N")


def test_the_bound_is_the_slowest_resource():
    roof = ceilings.H200
    work = {"matrix": int(roof.matrix), "fma": int(roof.fma // 2), "special": 0}
    b = roofline.bound(int(roof.memory // 4), 0, work, roof)
    assert (b.holds, b.least) == ("matrix", pytest.approx(1.0))
    assert b.seconds["fma"] == pytest.approx(0.5)
    assert b.seconds["memory"] == pytest.approx(0.25)
    shared = roofline.bound(1, 0, work, dataclasses.replace(roof, shared=True))
    assert shared.seconds["arithmetic (matrix)"] == pytest.approx(1.5)
