"""The file of tuned schedules: kept, shared between processes, and never trusted where it is something else."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys

import pytest

from tilec.tuning import store
from tilec.tuning.key import Key, size_class
from tilec.tuning.store import Choice, StoreError, Trial, Winner

KEY = Key("p" * 32, "causal", "Q: f32", "M=512", "cpu x", "0.1")
WINNER = Winner(KEY, Choice({"i": 64, "j": 128}), 0.01, 1.5, 1.0)


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    return store.path()


def test_winners_are_kept_replaced_and_removed(file):
    assert not store.exists()
    with store.open_store() as s:
        assert s.winner(KEY) is None
        s.keep(WINNER)
    other = Winner(KEY, Choice({"i": 32}), 0.005, 3.0, 2.0)
    with store.open_store() as s:
        assert s.winner(KEY) == WINNER
        s.keep(other)
        assert s.winners() == [other]
        s.remove([KEY.digest])
        assert s.winners() == []


def test_trials_are_kept_until_forgotten(file):
    with store.open_store() as s:
        s.note(KEY, Trial(Choice({"i": 64}), "running"))
        s.note(KEY, Trial(Choice({"i": 64}), "measured", 0.9, 0.01))
        s.note(KEY, Trial(Choice({"i": 32}), "running"))
    with store.open_store() as s:
        assert {t.choice.text: t.state for t in s.trials(KEY)} == {
            Choice({"i": 64}).text: "measured",
            Choice({"i": 32}).text: "running",
        }
        s.forget(KEY)
        assert s.trials(KEY) == []


@pytest.mark.parametrize("data", [b"", b"not a database, and long enough to be looked at" * 20])
def test_a_foreign_file_is_reported(file, data):
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    file.chmod(0o600)
    if not data:  # an empty file is a new database to SQLite
        with store.open_store() as s:
            assert s.winners() == []
        return
    with pytest.raises(
        StoreError, match=r"schedules\.sqlite is damaged.*tilec cache clear --tuned"
    ):
        store.open_store()


def test_another_program_s_database_is_reported(file):
    file.parent.mkdir(parents=True)
    c = sqlite3.connect(file)
    c.execute("create table t(x)")
    c.commit()
    c.close()
    file.chmod(0o600)
    with pytest.raises(StoreError, match="no file of tuned schedules"):
        store.open_store()


def test_another_version_is_reported(file):
    store.open_store().__exit__()
    c = sqlite3.connect(file)
    c.execute("pragma user_version = 99")
    c.close()
    with pytest.raises(StoreError, match="another version"):
        store.open_store()


def test_a_file_that_others_may_write_is_not_trusted(file):
    with store.open_store() as s:
        s.keep(WINNER)
    file.chmod(0o666)
    with pytest.raises(StoreError, match="written by others"):
        store.open_store()


@pytest.mark.parametrize(
    "column",
    [
        "tile = '{\"i\": 7}'",
        "gain = 9.0",
        "checksum = ''",
        "kernel = x'00ff'",
        "types = cast(x'ff' as text)",
        "seconds = null",
    ],
)
def test_a_changed_row_is_reported(file, column):
    with store.open_store() as s:
        s.keep(WINNER)
    c = sqlite3.connect(file)
    c.execute(f"update winners set {column}")
    c.commit()
    c.close()
    with store.open_store() as s:
        with pytest.raises(StoreError, match=f"is damaged.*tilec cache remove {KEY.digest[:12]}"):
            s.winner(KEY)
        assert (s.winners(), s.damaged()) == ([], [KEY.digest])
        s.remove(s.damaged())
        assert s.damaged() == []


def test_a_damaged_trial_is_tried_again(file):
    with store.open_store() as s:
        s.note(KEY, Trial(Choice({"i": 64}), "measured", 0.9, 0.01))
        s.note(KEY, Trial(Choice({"i": 32}), "measured", 0.8, 0.01))
    c = sqlite3.connect(file)
    c.execute("update trials set relative = 0.1 where relative = 0.8")
    c.commit()
    c.close()
    with store.open_store() as s:
        assert [t.choice.tile for t in s.trials(KEY)] == [{"i": 64}]


def test_a_folder_in_the_place_of_the_file_is_reported(file):
    file.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"schedules\.sqlite is no file.*remove it"):
        store.open_store()
    with pytest.raises(StoreError, match=r"schedules\.sqlite is no file.*remove it"):
        store.remove()


def test_all_is_removed(file):
    assert not store.remove()
    with store.open_store() as s:
        s.keep(WINNER)
    assert store.remove()
    assert not file.exists()


def test_export_reads_back(file):
    text = store.exported([WINNER])
    assert store.imported(text, "x.json") == [WINNER]


@pytest.mark.parametrize(
    "change",
    [
        {"tile": {"i": 0}},
        {"tile": {"i": True}},
        {"tile": ["i"]},
        {"schedule": {"x": [1]}},
        {"seconds": "fast"},
        {"seconds": float("nan")},
        {"key": {"program": "p"}},
        {"key": 3},
        {"key": dict.fromkeys(Key.__slots__, "\ud800")},
    ],
)
def test_an_import_of_other_things_is_refused(change):
    data = json.loads(store.exported([WINNER]))
    data["winners"][0] |= change
    with pytest.raises(StoreError, match=r"x\.json"):
        store.imported(json.dumps(data), "x.json")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "x", "winners": []}', "[" * 100_000])
def test_no_export_is_refused(text):
    with pytest.raises(StoreError, match=r"x\.json"):
        store.imported(text, "x.json")


WRITER = """
import sys
from tilec.tuning import store
from tilec.tuning.key import Key
for n in range(40):
    with store.open_store() as s:
        s.keep(store.Winner(Key("p", "k", "", f"{sys.argv[1]}-{n}", "cpu", ""), store.Choice({"i": n + 1}), 1.0, 1.0, 1.0))
"""


def test_processes_write_at_once(file):
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, name]) for name in "ab"]
    assert [w.wait(60) for w in writers] == [0, 0]
    with store.open_store() as s:
        assert len(s.winners()) == 80


def test_near_sizes_share_a_class():
    assert size_class({"N": 1000, "D": 80}, ["D"]) == "D=80,N=1024"
    assert size_class({"N": 1400, "D": 80}, ["D"]) == "D=80,N=1024"
    assert size_class({"N": 1500, "D": 81}, ["D"]) == "D=81,N=2048"
    assert size_class({"N": 0, "B": 1}) == "B=1,N=0"
