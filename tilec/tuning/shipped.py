"""The schedules that come with the package, where a search found a better one than the rule: `shipped.json`.

The file has the format of an export. Its `evidence` says what was searched, where, when and by which command, also where
nothing beat the rule; `benchmarks/make_defaults.py` writes it. An entry serves every machine of a kind: a GPU's
architecture, or the width of a processor's vectors. What the user's own searches found goes first.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass, replace
from importlib.resources import files

from tilec.tuning.key import Key, kind
from tilec.tuning.store import Winner, imported

FILE = "shipped.json"


@dataclass(frozen=True)
class Evidence:
    """A search whose outcome is shipped. `target`: the kind of machine; `found`: in words."""

    target: str
    machine: str
    date: str
    command: str
    found: str


def winner(key: Key, target: str) -> Winner | None:
    """The schedule that is shipped for a key."""
    return _by_key().get((key.program, key.sizes, kind(target)))


def some(target: str) -> bool:
    """Whether anything is shipped for machines of this kind."""
    return any(t == kind(target) for _, _, t in _by_key())


@functools.cache
def winners() -> tuple[Winner, ...]:
    """All that is shipped."""
    return tuple(replace(w, shipped=True) for w in imported(_text(), FILE))


@functools.cache
def evidence() -> tuple[Evidence, ...]:
    """What was searched."""
    return tuple(Evidence(**e) for e in json.loads(_text())["evidence"])


@functools.cache
def _by_key() -> dict[tuple[str, str, str], Winner]:
    return {(w.key.program, w.key.sizes, w.key.target): w for w in winners()}


def _text() -> str:
    return files("tilec.tuning").joinpath(FILE).read_text(encoding="utf-8")
