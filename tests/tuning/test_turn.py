"""Searches at once: one waits for the other, whatever becomes of that."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.tuning import turn

HOLDER = """
import sys, time
from pathlib import Path
from tilec.tuning import turn
with turn.taken("cpu", Path(sys.argv[1]), None):
    print("held", flush=True)
    time.sleep(60)
"""

pytest.importorskip("fcntl")


def test_a_search_waits_for_another_and_for_no_dead_one(tmp_path: Path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    with turn.taken("cuda:sm_90a", tmp_path, None):  # does not wait: it runs on something else
        pass
    said: list[str] = []

    def notice(text: str) -> None:
        said.append(text)
        assert holder.poll() is None
        holder.send_signal(signal.SIGKILL)

    with turn.taken("cpu", tmp_path, notice):
        assert holder.wait(10) == -signal.SIGKILL
    holder.stdout.close()
    assert said == [
        f"waiting for the search of process {holder.pid} to end, so that neither is timed with the other"
    ]
    with turn.taken("cpu", tmp_path, said.append):
        assert len(said) == 1


def test_a_folder_without_locks_makes_nobody_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import fcntl

    def none(*_: object) -> None:
        raise OSError("no locks here")

    monkeypatch.setattr(fcntl, "flock", none)
    with turn.taken("cpu", tmp_path, None), turn.taken("cpu", tmp_path, None):
        pass
