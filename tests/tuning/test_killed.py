"""Searches that are killed, and searches side by side."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tilec
from tests.programs import CAUSAL
from tilec.tuning import store

SIZES = {"B": 1, "H": 1, "M": 40, "N": 48, "D": 8, "E": 8}
SPACE = "i=16,32 j=16,32"
SEARCH = f"""
import os, signal, sys
import tilec
from tests.programs import CAUSAL
from tests.tuning.conftest import MACHINE
from tilec import ceilings
from tilec.tuning import bench

ceilings.measured = lambda target: MACHINE
check, checked = bench.Here.check, []

def dying(self, c, until):
    checked.append(c)
    if len(checked) == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
    return check(self, c, until)

bench.Here.check = dying
kernel = tilec.compile(CAUSAL)
kernel.tune(**kernel.sample(**{SIZES}), budget=600.0, jobs=0, space="{SPACE}")
"""
NEVER = 0


def search(dies: int) -> subprocess.Popen[bytes]:
    """A search in a process of its own, killed when it checks the candidate with this number."""
    return subprocess.Popen([sys.executable, "-c", SEARCH, str(dies)])


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="nothing kills like that here")
def test_killed_it_loses_the_candidate_in_flight_alone(tmp_path):
    assert search(4).wait(600) == -signal.SIGKILL
    left = shutil.copy(store.path(), tmp_path / "left.sqlite")
    kernel = tilec.compile(CAUSAL)
    board = kernel.tune(**kernel.sample(**SIZES), budget=600.0, jobs=0, space=SPACE, resume=True)
    with store.open_store(Path(left)) as s:
        before = {t.choice.text: t for t in s.trials(board.key)}
    assert sorted(t.state for t in before.values()) == ["measured", "measured", "running"]
    assert board.complete
    assert len(board.measured) == len(board.entries) >= 4
    seconds = {e.choice.text: e.seconds for e in board.entries}
    for text, t in before.items():
        assert (t.state == "running") == (seconds[text] != t.seconds)


def test_two_at_once_end_with_a_winner():
    assert [p.wait(600) for p in [search(NEVER), search(NEVER)]] == [0, 0]
    with store.open_store() as s:
        (winner,) = s.winners()
        assert {t.state for t in s.trials(winner.key)} == {"measured"}
    kernel = tilec.compile(CAUSAL)
    plan = kernel.plan(**kernel.sample(**SIZES))
    assert plan.tuned is None or plan.tuned.choice == winner.choice
