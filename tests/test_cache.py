"""The cache of compiled code."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tilec import cache
from tilec.errors import ResourceError


def test_an_entry_is_made_once_and_a_damaged_one_anew(tmp_path):
    made: list[int] = []

    def build() -> cache.Entry:
        made.append(1)
        return cache.Entry(b"code", "notes")

    path = tmp_path / "deep" / "x.o"
    for _ in range(2):
        assert cache.cached(path, build) == cache.Entry(b"code", "notes")
    assert len(made) == 1
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert cache.read(path) is None
    assert cache.cached(path, build).object == b"code"
    assert len(made) == 2
    path.chmod(0o666)
    assert cache.read(path) is None


def test_keys_and_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    assert cache.directory("cuda") == tmp_path / "cuda"
    assert cache.key("a", 1) != cache.key("a", 2)
    unwritable = tmp_path / "file"
    unwritable.write_bytes(b"")
    assert cache.cached(unwritable / "x", lambda: cache.Entry(b"c")).object == b"c"


def test_of_what_is_made_anew_in_no_time_the_newest_stay(monkeypatch, tmp_path):
    monkeypatch.setitem(cache.KEPT, "rows", 3)
    rows = [tmp_path / "rows" / f"{n:02x}.json" for n in (5, 4, 3, 2, 1, 0)]
    for age, row in enumerate(reversed(rows[:-1])):
        cache.keep(row, b"known")
        os.utime(row, (1e9 - age, 1e9 - age))
    assert len(list((tmp_path / "rows").iterdir())) == 5
    cache.keep(rows[-1], b"known")
    assert sorted((tmp_path / "rows").iterdir()) == sorted(rows[-3:])
    for n in range(5):
        cache.keep(tmp_path / "cpu" / f"00{n}.o", b"code")
    assert len(list((tmp_path / "cpu").iterdir())) == 5


def test_a_full_disk_leaves_nothing_behind(monkeypatch, tmp_path):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache.os, "replace", full)
    cache.keep(tmp_path / "x", b"data")
    assert list(tmp_path.iterdir()) == []


def test_a_user_without_a_home_is_told_what_to_set(monkeypatch):
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("TILEC_CACHE_DIR", raising=False)
    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(ResourceError, match="set TILEC_CACHE_DIR"):
        cache.root()
