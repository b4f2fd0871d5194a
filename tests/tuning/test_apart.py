"""Candidates in a process of their own: right values and layouts arrive there, and a bad one harms nobody."""

from __future__ import annotations

import time

import numpy as np
import pytest

import tilec
from tests.programs import CAUSAL, GROUPED
from tilec.tuning import apart, expected, running
from tilec.tuning.use import Call

SIZES = {"B": 1, "H": 1, "M": 40, "N": 48, "D": 8, "E": 8}


@pytest.fixture(autouse=True)
def _apart(monkeypatch):
    def bench(call, values):
        arrays = {n: (a, values[n]) for n, a in call.arrays.items()}
        sizes, scalars = call.bound.sizes, call.bound.scalars
        return apart.Apart(call.target, call.online, sizes, scalars, arrays, call.outputs)

    monkeypatch.setattr(Call, "bench", bench)


def tuned(text, data, **more):
    return tilec.compile(text).tune(**data, **{"budget": 60.0, "jobs": 0} | more)


def test_candidates_are_checked_and_timed():
    data = tilec.compile(CAUSAL).sample(**SIZES)
    board = tuned(CAUSAL, data, space="j=16,48")
    assert board.complete
    assert board.compared_with == "the float64 reference"
    assert len(board.measured) == 3
    assert all(0 < e.error < 1e-5 and e.seconds > 0 for e in board.measured)


def test_what_plain_arithmetic_needs_arrives(monkeypatch):
    found = []
    with_plain = expected.with_plain
    monkeypatch.setattr(
        expected, "with_plain", lambda *x: found.append(with_plain(*x)) or found[-1]
    )
    data = tilec.compile(CAUSAL).sample(3, B=1, H=1, M=32, N=64, D=4096, E=16)
    board = tuned(CAUSAL, {**data, "scale": 1.0}, space="i=16")
    assert (len(found), [e.state for e in board.entries]) == (1, ["measured"] * 2)


def test_several_outputs_scalars_and_integers_arrive():
    kernel = tilec.compile(GROUPED)
    board = tuned(GROUPED, {**kernel.sample(dtype="bf16"), "window": 3}, space="j=16")
    assert [e.state for e in board.entries] == ["measured"] * 2


def test_layouts_arrive():
    data = tilec.compile(CAUSAL).sample(**SIZES)
    data["K"] = np.swapaxes(np.ascontiguousarray(np.swapaxes(data["K"], 1, 2)), 1, 2)
    data["V"] = np.ascontiguousarray(data["V"][:, :, ::-1])[:, :, ::-1]
    data["Q"] = np.broadcast_to(data["Q"][:, :, :1], data["Q"].shape)
    board = tuned(CAUSAL, data, space="j=16")
    assert len(board.measured) == 2


def test_an_array_has_the_layout_that_is_asked_for():
    memory = running.Memory(False)
    values = np.arange(24, dtype="f4").reshape(2, 3, 4)
    for strides in ((12, 4, 1), (1, 2, 6), (-12, 4, -1), (0, 4, 1)):
        want = np.broadcast_to(values[:1], values.shape) if 0 in strides else values
        a = memory.array("f32", (2, 3, 4), strides, want, 16)
        lowest = (
            a.pointer
            + sum(min(s, 0) * (n - 1) for s, n in zip(strides, (2, 3, 4), strict=True)) * 4
        )
        start = lowest - a.owner.__array_interface__["data"][0]
        seen = np.ndarray(
            (2, 3, 4), "f4", a.owner, a.pointer - lowest + start, [4 * s for s in strides]
        )
        np.testing.assert_array_equal(seen, want)
        assert a.pointer % 256 == 16
    empty = memory.array("f32", (0, 4), (4, 1), np.zeros((0, 4), "f4"), 0)
    assert empty.pointer % 256 == 0


def test_one_that_crashes_and_one_that_hangs_cost_themselves_alone(monkeypatch):
    monkeypatch.setattr(apart, "RUNNER", "tests.tuning.misbehaving")
    monkeypatch.setattr(apart, "PATIENCE", 8.0)
    data = tilec.compile(CAUSAL).sample(**SIZES)
    board = tuned(CAUSAL, data, space="j=16,32,48")
    notes = {e.choice.tile.get("j"): e.note for e in board.entries if e.state == "failed"}
    assert "ended with status 3 (a terrible thing has happened)" in notes[16]
    assert "did not come back within 8 s" in notes[32]
    assert {e.choice.tile.get("j") for e in board.measured} == {None, 48}


def test_the_budget_ends_the_wait_for_one_that_hangs(monkeypatch):
    monkeypatch.setattr(apart, "RUNNER", "tests.tuning.misbehaving")
    monkeypatch.setattr(apart, "PATIENCE", 100.0)
    data = tilec.compile(CAUSAL).sample(**SIZES)
    tuned(CAUSAL, data, space="j=48", budget=100.0)  # the default is compiled now
    start = time.monotonic()
    board = tuned(CAUSAL, data, space="j=32", budget=8.0)
    assert time.monotonic() - start < 10.0
    assert not board.complete
    assert board.measured
    assert 32 not in {e.choice.tile.get("j") for e in board.entries}
