"""Hashes of source files: what is kept on disk was made by them, and is stale when they change.

Reading all sources takes as long as a call should. What they hold is therefore remembered by their stamps (names, sizes,
times of change), as Python's own cache of bytecode does.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from tilec import cache
from tilec.cache import Entry

PACKAGES = ("tilec", "tilec.grammar", "tilec.passes", "tilec.backends")
"""What lies in folders of its own in a checkout."""
KINDS = (".py", ".lark", ".json")
"""The files that decide what tilec makes."""


Stamp = tuple[int, int, int]
"""The size of a file, and when it was changed."""


@functools.cache
def revision() -> str:
    """A hash of all of tilec's sources."""
    specs = (importlib.util.find_spec(name) for name in PACKAGES)
    return digest(below(f for s in specs if s for f in s.submodule_search_locations or ()))


def digest(files: Mapping[str, Stamp]) -> str:
    """A hash of what is in some files."""
    ordered = sorted(files.items())
    path = cache.known("sources", cache.key(2, ordered))
    if path is None:
        return _contents(files)
    return cache.cached(path, lambda: Entry(b"", _contents(files))).notes


def below(folders: Iterable[str]) -> dict[str, Stamp]:
    """The source files in some folders and those in them."""
    found, left = dict[str, Stamp](), list(folders)
    while left:
        with os.scandir(left.pop()) as entries:
            for e in entries:
                if e.name.endswith(KINDS):
                    found[e.path] = _stamp(e.stat())
                elif e.is_dir(follow_symlinks=False) and e.name != "__pycache__":
                    left.append(e.path)
    return found


def stamp(file: str) -> Stamp:
    """The stamp of a file."""
    return _stamp(os.stat(file))


def _stamp(s: os.stat_result) -> Stamp:
    return s.st_size, s.st_mtime_ns, s.st_ctime_ns


def _contents(files: Iterable[str]) -> str:
    found = hashlib.sha256()
    for file in sorted(files):
        data = Path(file).read_bytes()
        found.update(f"{os.path.basename(file)} {len(data)}\n".encode())
        found.update(data)
    return found.hexdigest()
