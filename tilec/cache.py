"""Compiled code on disk, by the hash of what it was made from.

Any number of processes may read and write at once: an entry appears whole or not at all. An entry is believed only if it
is what was written and nobody but this user (or root) can have written it; what is damaged is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tilec.errors import ResourceError


@dataclass(frozen=True, slots=True)
class Entry:
    """An object file, and a text of the caller's (how to call it, say)."""

    object: bytes
    notes: str = ""

    def pack(self) -> bytes:
        """As bytes: a SHA-256 of the rest, the length of the notes, the notes, the object."""
        notes = self.notes.encode()
        rest = len(notes).to_bytes(8, "little") + notes + self.object
        return hashlib.sha256(rest).digest() + rest

    @staticmethod
    def unpack(data: bytes) -> Entry | None:
        """The inverse of `pack`; None where the data is not what was written."""
        digest, rest = data[:32], data[32:]
        if len(rest) < 8 or hashlib.sha256(rest).digest() != digest:
            return None
        end = 8 + int.from_bytes(rest[:8], "little")
        return Entry(rest[end:], rest[8:end].decode())


SUFFIXES = {"cpu": ".o", "cuda": ".cubin", "rows": ".json", "sources": ".txt"}
"""Of the files of each kind of entry."""
OBJECTS = ("cpu", "cuda")
"""The kinds that are code."""
KEPT = {"rows": 4096, "sources": 256}
"""How many entries of a kind stay, where they are made anew in no time; code stays until somebody clears the cache."""


def root() -> Path:
    """Where all that is kept lies: in `$TILEC_CACHE_DIR`, or in `~/.cache/tilec`."""
    chosen = os.environ.get("TILEC_CACHE_DIR")
    if chosen:
        return Path(chosen)
    try:
        return Path.home() / ".cache" / "tilec"
    except RuntimeError:  # a user without a name, in a container say
        raise ResourceError(
            "there is no home folder to keep compiled code in; set TILEC_CACHE_DIR to a folder"
        ) from None


def directory(kind: str) -> Path:
    """Where the entries of a kind (`cpu`, `cuda`) are kept."""
    return root() / kind


def known(kind: str, name: str) -> Path | None:
    """Where something is kept that is as well found out again; None without a folder."""
    try:
        return directory(kind) / f"{name}{SUFFIXES[kind]}"
    except ResourceError:
        return None


def schedules() -> Path:
    """The file of tuned schedules."""
    return directory("tuning") / "schedules.sqlite"


def objects() -> list[Path]:
    """The files of all code."""
    return _files(OBJECTS)


def rows() -> list[Path]:
    """The files of all that is known of programs, so that code is found without making it."""
    return _files(kind for kind in SUFFIXES if kind not in OBJECTS)


def _files(kinds: Iterable[str]) -> list[Path]:
    folders = ((directory(kind), SUFFIXES[kind]) for kind in kinds)
    found = (p for folder, suffix in folders for p in sorted(folder.glob(f"*{suffix}")))
    return [p for p in found if p.is_file()]


def key(*parts: object) -> str:
    """The name of an entry: a hash of everything that the code depends on (what JSON can write)."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def cached(path: Path, build: Callable[[], Entry]) -> Entry:
    """The entry at a path, made and written if it is not there. Where it cannot be written, nothing is kept."""
    found = read(path)
    if found is None:
        found = build()
        write(path, found)
    return found


def read(path: Path) -> Entry | None:
    """An entry that is whole and our own."""
    try:
        with path.open("rb") as file:
            if hasattr(os, "geteuid") and not _ours(os.fstat(file.fileno())):
                return None
            return Entry.unpack(file.read())
    except (OSError, UnicodeDecodeError):
        return None


def _ours(status: os.stat_result) -> bool:
    shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and not shared


def write(path: Path, entry: Entry) -> None:
    """Writes an entry that appears whole or not at all."""
    keep(path, entry.pack())


def keep(path: Path, data: bytes) -> None:
    """Writes a file that appears whole or not at all; where it cannot be written, nothing is kept."""
    import tempfile  # not where all is found

    held = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            held = file.name
            file.write(data)
        os.replace(held, path)
    except OSError:
        if held is not None:
            Path(held).unlink(missing_ok=True)
    else:
        _evict(path)


def _evict(path: Path) -> None:
    """Removes the oldest entries beside a new one, where there are too many. Counting takes longer than writing one, and is
    done for one name in 256."""
    most = KEPT.get(path.parent.name)
    if most is None or not path.name.startswith("00"):
        return
    try:
        with os.scandir(path.parent) as entries:
            found = sorted((e.stat().st_mtime_ns, e.path) for e in entries)
        for _, old in found[:-most]:
            Path(old).unlink(missing_ok=True)
    except OSError:  # another process removes them, too
        return
