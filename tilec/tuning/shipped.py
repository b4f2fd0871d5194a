"""The schedules that come with the package: `shipped.json`, found by the tuner on machines of each kind.

`benchmarks/make_defaults.py` searches a list of problems and writes an entry for each of them: the schedule that the rule
chose, and the one that beat it, if any. An entry serves every machine of a kind (a GPU's architecture; the width of a
processor's vectors, and as many threads), every program that is the same but for its names, and both types of 16 bits. What
the user's own searches found goes first. Where nothing beat the rule, calls go by the rule, which may know better for other
sizes. Where the rule chooses something else now, the entry is out of date, which a test finds.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tilec import text
from tilec.backend import threads
from tilec.ir import Kernel
from tilec.renaming import used_names
from tilec.tuning.key import Key, kind, near
from tilec.tuning.store import Choice, StoreError, Winner, choice

FILE = "shipped.json"
FORMAT = "tilec defaults 2"


@dataclass(frozen=True)
class Default:
    """What a search found.

    `example` and `sizes`: the problem that was searched; of the dimensions in `free` there may be more. `program`,
    `dims` and `axes`: what is recognised, and by which names. `choice`: the schedule that beat the rule's; None where none
    did. `gain`: how many times faster it is. `tried`: the best of how many candidates; `complete`: whether these were all
    of the space. `threads`: of a CPU.
    """

    example: str
    dtype: str
    program: str
    dims: tuple[str, ...]
    axes: tuple[str, ...]
    sizes: Mapping[str, int]
    free: tuple[str, ...]
    target: str
    threads: int | None
    choice: Choice | None
    rule: Choice
    seconds: float
    gain: float
    tried: int
    complete: bool
    machine: str
    date: str
    command: str
    compiler: str

    def serves(self, kernel: Kernel, sizes: Mapping[str, int], exact: Collection[str]) -> bool:
        """Whether it is for a call of these sizes; `exact`: the dimensions that code is compiled for."""
        called = dict(zip(self.dims, kernel.dims, strict=True))
        there = math.prod(sizes[called[d]] for d in self.free)
        return there >= math.prod(self.sizes[d] for d in self.free) and all(
            sizes[mine] == self.sizes[own]
            if mine in exact
            else near(sizes[mine]) == near(self.sizes[own])
            for own, mine in called.items()
            if own not in self.free
        )

    def for_kernel(self, kernel: Kernel, key: Key) -> Winner:
        """As the schedule of a kernel with names of its own."""
        assert self.choice is not None
        names = dict(zip(self.axes, kernel.extents, strict=True))
        mine = Choice({names[a]: n for a, n in self.choice.tile.items()}, self.choice.schedule)
        return Winner(key, mine, self.seconds, self.gain, 0.0, shipped=True)


def has(program: str) -> bool:
    """Whether schedules are shipped for a program, by its hash, on whatever machine."""
    return any(d.choice is not None for d in _by_program().get(program, ()))


def offers(program: str, target: str) -> tuple[Default, ...]:
    """The schedules that are shipped for a program, by its hash, on this machine, for any sizes."""
    found = [d for d in _by_program().get(program, ()) if d.choice is not None]
    if not found:
        return ()
    machine = kind(target), threads(target)
    return tuple(d for d in found if (d.target, d.threads) == machine)


def program(kernel: Kernel) -> str:
    """A hash of a program that does not depend on its names, nor on which type of 16 bits it has."""
    own = used_names(kernel) | {kernel.name}
    seen: dict[str, str] = {}

    def renamed(match: re.Match[str]) -> str:
        word = match[0]
        return seen.setdefault(word, f"x{len(seen)}") if word in own else word

    plain = re.sub(r'"[^"]*"', '""', text.show(kernel)).replace("bf16", "f16")
    return hashlib.sha256(re.sub(r"[^\W\d]\w*", renamed, plain).encode()).hexdigest()[:32]


@functools.cache
def defaults() -> tuple[Default, ...]:
    """All that is shipped."""
    found = json.loads(_text())
    if found["format"] != FORMAT:
        raise StoreError(f"{FILE}: the format is {found['format']!r}, expected {FORMAT!r}")
    return tuple(map(entry, found["entries"]))


def entry(e: Mapping[str, Any]) -> Default:
    """An entry of the file."""
    fields: dict[str, Any] = dict(e)
    fields |= {n: tuple(e[n]) for n in ("dims", "axes", "free")}
    written = {n: e[n] for n in ("choice", "rule") if e[n] is not None}
    fields |= {n: choice(x["tile"], x["schedule"]) for n, x in written.items()}
    return Default(**fields)


@functools.cache
def _by_program() -> Mapping[str, tuple[Default, ...]]:
    out: dict[str, tuple[Default, ...]] = {}
    for d in defaults():
        out[d.program] = (*out.get(d.program, ()), d)
    return out


def _text() -> str:
    return files("tilec.tuning").joinpath(FILE).read_text(encoding="utf-8")
