"""What calls need to know of a program, on disk: a process that has its code need not make the IR again.

A row holds what was found out of one thing: a program, a kernel for element types, its tiles. Its name is a hash of all that
it depends on: tilec's sources, the program's text, what the caller chose. What is not there, damaged or of another form is
made anew. Rows hold no code: `plain` can only make what the reader names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tilec import cache, plain, sources
from tilec.cache import Entry
from tilec.plain import Classes

T = TypeVar("T")


class Shelf:
    """The rows of one thing. `key`: what tells it from others."""

    def __init__(self, *key: object) -> None:
        self._key = cache.key(sources.revision(), *key)

    def under(self, *key: object) -> Shelf:
        """The rows of something that is made of this."""
        return Shelf(self._key, *key)

    def kept(self, kind: type[T], make: Callable[[], T], known: Classes) -> T:
        """What was found out, made and written if it is not there."""
        path = cache.known("rows", cache.key(self._key, kind.__name__))
        entry = None if path is None else cache.read(path)
        found = None if entry is None else _read(entry.notes, known)
        if isinstance(found, kind):
            return found
        made = make()
        if path is not None:
            cache.write(path, Entry(b"", plain.write(made)))
        return made


def _read(text: str, known: Classes) -> object:
    try:
        return plain.read(text, known)
    except (LookupError, TypeError, ValueError):  # of another form
        return None
