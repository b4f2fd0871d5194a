"""What limits a kernel: its bytes and operations, held against the ceilings of a machine.

Bytes are counted twice. *Compulsory* are those that no schedule saves: each input once, each output once. *Moved* are those
that the IR moves between HBM and on-chip memory (`tilec.traffic`). The time of a resource is what it would take alone at
its ceiling; the largest of them is a bound that no run beats, and names what holds the kernel back. Of tiles a target may
leave out what masks hide, so that their bound has no more operations than all schedules need (`tilec.least`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilec import scalar
from tilec.ceilings import Ceilings
from tilec.dtypes import SIZES
from tilec.ir import Buffer, Contract, For, Grid, Kernel, Load, Store, Type, Value, walk
from tilec.meter import keys
from tilec.scalar import Number
from tilec.traffic import Budget
from tilec.work import UNITS, Unit


@dataclass(frozen=True)
class Row:
    """What one op moves and does. `compulsory`: the bytes of an input at its first load, and of an output."""

    op: str
    compulsory: int
    read: int
    written: int
    work: Mapping[Unit, int]

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written


@dataclass(frozen=True)
class Bound:
    """The seconds that each resource would take alone, and the name of the one that takes longest."""

    seconds: Mapping[str, float]

    @property
    def holds(self) -> str:
        """The resource that limits."""
        return max(self.seconds, key=lambda r: self.seconds[r])

    @property
    def least(self) -> float:
        """No run is shorter, in seconds."""
        return max(self.seconds.values())


@dataclass(frozen=True)
class Stage:
    """A kernel somewhere along the pipeline: its ops, its bytes and operations, and its bound. `kept`: the operations that
    the bound holds."""

    name: str
    rows: tuple[Row, ...]
    compulsory: int
    read: int
    written: int
    work: Mapping[Unit, int]
    kept: Mapping[Unit, int]
    bound: Bound

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    @property
    def operations(self) -> int:
        """Operations of all units."""
        return sum(self.work.values())

    @property
    def reached(self) -> float:
        """Operations per second, where it runs as fast as its bound lets it; of those that the bound holds."""
        return sum(self.kept.values()) / self.bound.least if self.bound.least > 0 else 0.0


def compulsory(kernel: Kernel, env: Mapping[str, Number]) -> dict[str, int]:
    """The bytes of each tensor that the kernel loads, and of each output. `env`: dimensions and scalars."""
    loaded = {op.tensor for op in walk(kernel.body) if isinstance(op, Load)}
    out = {
        t.name: SIZES[t.dtype] * math.prod(int(scalar.evaluate(d, env)) for d in t.dims)
        for t in kernel.tensors.values()
        if t.name in loaded
    }
    extents = {a.name: int(scalar.evaluate(a.extent, env)) for a in kernel.axes}
    for o in kernel.outputs:
        out[o.name] = SIZES[o.dtype] * math.prod(extents[a] for a in o.axes)
    return out


def stage(
    name: str,
    kernel: Kernel,
    budget: Budget,
    roof: Ceilings,
    kept: Mapping[Unit, int] | None = None,
) -> Stage:
    """A kernel's figures after the pass `name`. `kept`: the operations that every schedule does; without, the bound of
    tiles holds all that they do."""
    env = budget.known
    needed = compulsory(kernel, env)
    total = sum(needed.values())
    first = dict(_first(kernel))
    rows: list[Row] = []
    for op in budget.ops:
        read, written = budget.traffic.reads[op], budget.traffic.writes[op]
        work = budget.work.of([op])
        must = needed.get(first.get(op, ""), 0)
        if read or written or must or any(work.values()):
            rows.append(Row(op, must, read, written, work))
    work: dict[Unit, int] = {u: budget.work.total(u) for u in UNITS}
    moved = budget.traffic.total
    tiled = any(isinstance(op, Grid) for op in kernel.body)
    # some of what is there may lie unread, such as pages
    memory = min(moved, total + 2 * _buffers(kernel, env)) if tiled else moved
    done: dict[Unit, int] = work
    if tiled and kept:
        done = {u: min(work[u], kept[u]) for u in UNITS}
    return Stage(
        name,
        tuple(rows),
        total,
        budget.traffic.read,
        budget.traffic.written,
        work,
        done,
        bound(memory, moved if tiled else 0, done, roof),
    )


def _buffers(kernel: Kernel, env: Mapping[str, Number]) -> int:
    """The bytes of what one grid leaves in HBM for another."""
    types = [op.result.type for op in kernel.body if isinstance(op, Buffer)]
    return sum(size(kernel, t, env) for t in types)


def size(kernel: Kernel, type: Type, env: Mapping[str, Number]) -> int:
    """The bytes of a value: of its tile, where it has one."""
    extents = (
        int(scalar.evaluate(kernel.extents[a], env)) if tile is None else tile
        for a, tile in zip(type.axes, type.tile, strict=True)
    )
    return SIZES[type.dtype] * math.prod(extents)


def _first(kernel: Kernel) -> Iterator[tuple[str, str]]:
    """The first op that loads each parameter, and the one that stores each output."""
    seen: set[str] = set()
    outputs = {o.name for o in kernel.outputs}
    for op in walk(kernel.body):
        if not isinstance(op, (Load, Store)) or op.tensor in seen:
            continue
        if op.tensor in (kernel.tensors if isinstance(op, Load) else outputs):
            seen.add(op.tensor)
            yield keys(op)[0], op.tensor


def bound(memory: int, cache: int, work: Mapping[Unit, int], roof: Ceilings) -> Bound:
    """The bound of a kernel that moves `memory` bytes to and from memory and `cache` to and from the last cache.

    What a tile loads again may come from the cache, so it counts against that. Where the units are one, their times add up,
    and the longest gives the bound its name.
    """
    rates: dict[Unit, float] = {"matrix": roof.matrix, "fma": roof.fma, "special": roof.special}
    units = {u: work[u] / rates[u] for u in UNITS}
    seconds = {"memory": memory / roof.memory, "cache": cache / roof.cache}
    if roof.shared:
        longest = max(units, key=lambda u: units[u])
        seconds[f"arithmetic ({longest})"] = sum(units.values())
    else:
        seconds.update(units)
    return Bound(seconds)


# ---- where the scores live, and how the bytes grow


def largest(kernel: Kernel, env: Mapping[str, Number]) -> tuple[Value, int] | None:
    """The largest result of a contraction, or of any computed value where there is none, and its bytes."""
    ops = [op for op in walk(kernel.body) if op.results and not isinstance(op, (Load, Buffer))]
    contractions = [op for op in ops if isinstance(op, Contract)]
    values = [v for op in contractions or ops for v in op.results if v.type.axes]
    sizes = [(v, size(kernel, v.type, env)) for v in values]
    return max(sizes, key=lambda x: x[1], default=None)


def lengths(tiled: Kernel) -> tuple[str, ...]:
    """The dimensions along which a kernel in tiles is cut: the sequence lengths."""
    axes: dict[str, None] = {}
    for op in walk(tiled.body):
        if isinstance(op, Grid):
            axes.update((a, None) for a, n in op.axes if n > 1)
        elif isinstance(op, For) and op.tile != 1:
            axes[op.axis] = None
    found = (n for a in axes for n in scalar.names(tiled.extents[a]))
    return tuple(dict.fromkeys(n for n in found if n in tiled.dims))


def growth(less: int, more: int) -> float:
    """The power of the length that a figure grows with, from its values at a length and at twice that."""
    return math.log2(more / less) if less > 0 and more > 0 else 0.0
