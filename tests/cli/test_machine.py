"""`tilec doctor` and `tilec cache`."""

from __future__ import annotations

import json
from pathlib import Path


def test_doctor(tile):
    status, out, _ = tile("doctor")
    assert status == 0
    for word in ("numpy", "llvmlite", "cpu features", "threads", "object cache", "cuda driver"):
        assert word in out
    status, out, _ = tile("doctor", "--json")
    assert all(set(f) == {"name", "found", "ok", "remedy"} for f in json.loads(out))


def test_cache(tile):
    _, out, _ = tile("cache", "list")
    assert "0 objects" in out
    assert tile("run", "causal.tile", "--target", "cpu")[0] == 0
    _, out, _ = tile("cache", "list", "--json")
    assert tile("cache", "--json")[1] == out
    listed = json.loads(out)
    assert len(listed["objects"]) >= 1
    assert listed["rows"]["count"] >= 4
    assert tile("cache", "verify")[0] == 0
    damaged = Path(listed["path"], next(iter(listed["objects"])))
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, out, _ = tile("cache", "verify")
    assert (status, "1 damaged" in out) == (1, True)
    status, out, _ = tile("cache", "verify", "--json")
    assert (status, json.loads(out)["damaged"]) == (1, [str(damaged)])
    assert tile("run", "causal.tile", "--target", "cpu", "--check")[0] == 0
    _, out, _ = tile("cache", "clear")
    assert "objects removed" in out
    assert "0 objects" in tile("cache", "list")[1]
    assert "0 rows" in tile("cache", "list")[1]


def test_what_is_no_file_is_no_cache_entry(tile, monkeypatch):
    monkeypatch.setenv("TILEC_CACHE_DIR", "kept")
    Path("kept/cpu/folder.o").mkdir(parents=True)
    Path("kept/cpu/dangling.o").symlink_to("nowhere")
    for command in ("list", "verify", "clear"):
        assert tile("cache", command)[0] == 0
