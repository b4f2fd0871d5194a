"""Hashes of source files: what is kept on disk was made by them, and is stale when they change.

Reading all sources takes as long as a call should. What they hold is therefore remembered by their stamps (names, sizes,
times of change), as Python's own cache of bytecode does.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from tilec import cache
from tilec.cache import Entry

PACKAGES = ("tilec", "tilec.grammar", "tilec.passes", "tilec.backends")
"""What lies in folders of its own in a checkout."""
KINDS = (".py", ".lark", ".json")
"""The files that decide what tilec makes."""


@functools.cache
def revision() -> str:
    """A hash of all of tilec's sources."""
    specs = (importlib.util.find_spec(name) for name in PACKAGES)
    folders = (f for s in specs if s for f in s.submodule_search_locations or ())
    return digest(sorted({file for folder in folders for file in _below(folder)}))


def digest(files: Sequence[str]) -> str:
    """A hash of what is in some files."""
    stamp = cache.key(1, [_stamp(f) for f in files])
    path = cache.known("sources", stamp)
    if path is None:
        return _contents(files)
    return cache.cached(path, lambda: Entry(b"", _contents(files))).notes


def _stamp(file: str) -> tuple[object, ...]:
    s = os.stat(file)
    return file, s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _contents(files: Iterable[str]) -> str:
    found = hashlib.sha256()
    for file in files:
        data = Path(file).read_bytes()
        found.update(f"{os.path.basename(file)} {len(data)}\n".encode())
        found.update(data)
    return found.hexdigest()


def _below(folder: str) -> Iterator[str]:
    """The source files in a folder and those in it."""
    with os.scandir(folder) as entries:
        for e in entries:
            if e.is_dir(follow_symlinks=False) and e.name != "__pycache__":
                yield from _below(e.path)
            elif e.name.endswith(KINDS):
                yield e.path
