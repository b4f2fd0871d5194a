"""The leaderboard as it is shown."""

from __future__ import annotations

import dataclasses

import tilec
from tests.programs import CAUSAL
from tilec import backend
from tilec.tuning.board import Entry, Leaderboard
from tilec.tuning.key import Key
from tilec.tuning.store import Choice

SIZES = {"B": 1, "H": 2, "M": 512, "N": 512, "D": 128, "E": 128}


def test_what_a_candidate_takes_on_chip_is_that_of_its_plan():
    kernel = tilec.compile(CAUSAL, target="cuda:sm_90a")
    known, _ = kernel.environment(SIZES)
    stages = dict(kernel.stages(dtype="bf16", sizes=known))
    found = backend.draft(
        stages["place"], "cuda:sm_90a", {"columns": 64}, (stages["online"], known)
    )
    code = kernel.gpu_code(dtype="bf16", **SIZES)
    assert found.room is not None
    assert found.room.registers == 240
    assert 0 < found.room.shared < max(s.plan.shared for s in code.fast.values())


def test_registers_and_shared_memory_are_shown_where_they_are_known():
    e = Entry(Choice(), 1e-3, "measured", 1.0, 1e-3, room=backend.Room(240, 197_632))
    key = Key("", "causal", "", "N=512", "cuda:sm_90a", "")
    board = Leaderboard("causal", key, (e,), e, 1e-4, "the reference", True)
    assert "240  197,632 B" in str(board)
    plain = dataclasses.replace(e, room=None)
    assert "registers" not in str(dataclasses.replace(board, entries=(plain,), default=plain))
