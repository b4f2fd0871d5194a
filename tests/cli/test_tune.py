"""`tilec tune`: schedules that are stored, taken, carried and forgotten."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from tilec import cache
from tilec.cli import options, tune
from tilec.kernel import Kernel


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
