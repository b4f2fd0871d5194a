"""The cache of compiled code."""

from __future__ import annotations

from tilec import cache


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
