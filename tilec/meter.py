"""The cost model of HBM: which bytes an op moves; and beside them the operations that it does (`tilec.work`).

- Outside groups and grids every op runs over whole tensors in HBM: it reads each operand once and writes its result. A
  load whose indices are distinct axes is a view: it moves nothing, its reader does. A value without axes moves nothing.
- In a group (one kernel to be) each load reads its elements once, a value from outside is read once, and what the group
  yields is written.
- In a grid each execution of a load or a store moves the elements of its window.

An element has the size of its type: 8 bytes for an integer of the IR, 4 for a float (8 in an f64 kernel), 1 for a
boolean, and what its storage type says for one that was loaded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Set
from dataclasses import dataclass, field

from tilec.dtypes import SIZES
from tilec.ir import (
    Buffer,
    Edge,
    For,
    Grid,
    Group,
    If,
    Kernel,
    Load,
    Op,
    Operand,
    Store,
    Type,
    Yield,
    defined,
    operands,
    walk,
)
from tilec.work import Work, costs


@dataclass(frozen=True)
class Traffic:
    """Bytes read and written per op. The key of an op is its result's name, that of a store `store NAME`."""

    reads: Counter[str] = field(default_factory=Counter[str])
    writes: Counter[str] = field(default_factory=Counter[str])

    @property
    def read(self) -> int:
        """All bytes read."""
        return sum(self.reads.values())

    @property
    def written(self) -> int:
        """All bytes written."""
        return sum(self.writes.values())

    @property
    def total(self) -> int:
        """All bytes."""
        return self.read + self.written


def window(start: int, tile: int | None, extent: int) -> tuple[int, int]:
    """A window of an axis: its start and its length."""
    return start, extent if tile is None else min(tile, extent - start)


def keys(op: Op) -> tuple[str, ...]:
    """The names under which the bytes of an op are counted."""
    return (f"store {op.tensor}",) if isinstance(op, Store) else tuple(v.name for v in op.results)


def is_view(kernel: Kernel, load: Load) -> bool:
    """Whether a load is the tensor itself under other names of its dimensions."""
    index = load.index
    return bool(index) and len(set(index)) == len(index) and all(x in kernel.extents for x in index)


class Meter:
    """Adds up what the ops of a kernel move. `elements` says how many a type has, in the present windows."""

    def __init__(self, kernel: Kernel, elements: Callable[[Type], int]) -> None:
        self.traffic, self.work = Traffic(), Work()
        self._elements = elements
        self._kernel = kernel
        self._values = kernel.values
        buffers = {op.result.name: op.result.type for op in kernel.body if isinstance(op, Buffer)}
        self._stored = buffers | {o.name: Type(o.dtype, o.axes) for o in kernel.outputs}
        self._in_grid = False
        self._group: Group | None = None
        self._inside: Set[str] = set()
        self._paid: set[str] = set()

    def enter(self, op: Grid | Group) -> None:
        """What follows is in a grid or a group."""
        self._in_grid = isinstance(op, Grid)
        if isinstance(op, Group):
            self._group = op
            self._inside = {v.name for inner in walk(op.body) for v in defined(inner)}
            self._paid = set()

    def leave(self) -> None:
        """The grid or group is over."""
        self._in_grid, self._group = False, None

    def count(self, op: Op, times: int = 1) -> None:
        """Counts an execution of an op, or `times` like it. The ops of its regions are counted by themselves."""
        if isinstance(op, (Buffer, Edge, For, If, Grid, Group)):
            return
        self._operate(op, times)
        if self._in_grid:
            if isinstance(op, Yield):
                self.work.steps[str(op.values[0]) if op.values else ""] += times
            elif isinstance(op, Load):
                self._read(op.result.name, op.result.type, times)
            elif isinstance(op, Store):
                self._write(keys(op)[0], self._stored[op.tensor], times)
        elif self._group is None:
            self._whole(op, times)
        else:
            self._grouped(op, self._group)

    def _whole(self, op: Op, times: int) -> None:
        if isinstance(op, Yield):
            return
        (name,) = keys(op)
        for x in self._tensors(op):
            self._read(name, self._values[x].type, times)
        if isinstance(op, Store):
            self._write(name, self._stored[op.tensor], times)
            return
        if isinstance(op, Load):
            if is_view(self._kernel, op):
                return
            self._read(name, op.result.type, times)
        if op.result.type.axes:
            self._write(name, op.result.type, times)

    def _grouped(self, op: Op, group: Group) -> None:
        name = group.results[0].name if isinstance(op, Yield) else op.result.name
        for x in self._tensors(op):
            if x not in self._inside and x not in self._paid:
                self._paid.add(x)
                self._read(name, self._values[x].type, 1)
        if isinstance(op, Load) and name not in self._paid:
            self._paid.add(name)
            self._read(name, op.result.type, 1)
        if op is group.body[-1]:
            for v in group.results:
                self._write(v.name, v.type, 1)

    def _operate(self, op: Op, times: int) -> None:
        each = costs(op)
        if not each:
            return
        over: tuple[str, ...] = getattr(op, "over", ())
        of = (*operands(op), op.result.name)
        axes = dict.fromkeys((*over, *(a for x in of for a in self._axes(x))))
        if axes:
            elements = self._elements(Type("bool", tuple(axes))) * times
            for unit, n in each.items():
                self.work.ops[unit][op.result.name] += n * elements

    def _axes(self, x: Operand) -> tuple[str, ...]:
        """The axes of a value. (A position that is an operand has its axis in the result, or in what is reduced.)"""
        return self._values[x].type.axes if isinstance(x, str) and x in self._values else ()

    def _tensors(self, op: Op) -> list[str]:
        """The operands of an op that have axes, each once."""
        found = [x for x in operands(op) if isinstance(x, str) and x in self._values]
        return [x for x in dict.fromkeys(found) if self._values[x].type.axes]

    def _read(self, name: str, t: Type, times: int) -> None:
        self.traffic.reads[name] += times * self._elements(t) * SIZES[t.dtype]

    def _write(self, name: str, t: Type, times: int) -> None:
        self.traffic.writes[name] += times * self._elements(t) * SIZES[t.dtype]
