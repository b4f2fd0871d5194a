"""Values that a grid of their own makes once, in HBM, for the windows of the grid behind it.

K_all = buffer()
grid(axes=[…]) { … store(K_all, …, value=k) }    # the table
grid(axes=[…]) { for(…) { k = load(K_all, …) … } }
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Generic, TypeVar

from tilec.dataflow import live, names_in
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Axis,
    Buffer,
    Edge,
    For,
    Grid,
    Kernel,
    Map,
    Op,
    Operand,
    Store,
    Type,
    Value,
    operands,
    rebuild,
)
from tilec.passes.specialise import fix
from tilec.renaming import fresh, used_names
from tilec.scalar import Scalar


class Growing:
    """A kernel that gets further axes, and names."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.taken = kernel, used_names(kernel)

    def axis(self, name: str, count: Scalar) -> str:
        """A new axis: its name."""
        name = fresh(name, self.taken)
        self.kernel = replace(self.kernel, axes=(*self.kernel.axes, Axis(name, fix(count, {}))))
        return name


class Table:
    """Values along some axes, in buffers, and the grid that fills these.

    `given`: what takes the place of an operand; `ends`: what takes that of the ends of a window, `first` and `last`.
    """

    def __init__(self, by: Growing, grid: Mapping[str, int]) -> None:
        self.by, self.grid = by, dict(grid)
        self.emit = FoldingBuilder(by.kernel, by.taken, grid)
        self.given: dict[str, Operand] = {}
        self.ends: dict[tuple[str, str], Operand] = {}
        self.buffers: dict[Operand, Value] = {}

    def buffer(self, x: str, known: Mapping[str, Op]) -> Value:
        """The buffer of a value; nothing is made twice. `known`: the ops by their results."""
        found = self.again(x, known)
        if found not in self.buffers:
            type = Type(known[x].result.type.dtype, tuple(self.grid), (), "hbm")
            self.buffers[found] = Value(fresh(f"{x}_all", self.by.taken), type)
        return self.buffers[found]

    def again(self, x: Operand, known: Mapping[str, Op]) -> Operand:
        """An operand, computed here."""
        if not isinstance(x, str):
            return x
        if x not in self.given:
            op = known.get(x)
            self.given[x] = x if op is None else self.copy(op, known)
        return self.given[x]

    def copy(self, op: Op, known: Mapping[str, Op]) -> Operand:
        """An op with other operands."""
        if isinstance(op, Edge):
            return self.ends[op.which, op.axis]
        new = {x: self.again(x, known) for x in names_in(operands(op))}

        def of(x: Operand) -> Operand:
            return new[x] if isinstance(x, str) else x

        if isinstance(op, Map):
            return self.emit.fn(op.fn, *map(of, op.args))
        shape = replace(rebuild(op, of), results=(), span=None)
        return self.emit.once(shape, lambda: self.emit.again(op, new))

    def made(self) -> Iterator[Op]:
        """The buffers, and the grid that fills them."""
        yield from (Buffer((v,)) for v in self.buffers.values())
        axes = tuple(self.grid)
        stores = (Store((), v.name, axes, x) for x, v in self.buffers.items())
        yield Grid((), axes=tuple(self.grid.items()), body=live((*self.emit.ops, *stores)))


AnyTable = TypeVar("AnyTable", bound=Table)


class Served(ABC, Generic[AnyTable]):
    """A grid with tiles along one axis, `row`, whose loops look into tables."""

    def __init__(self, by: Growing, grid: Grid, row: str) -> None:
        self.by, self.grid, self.row = by, grid, row
        self.tables: dict[object, AnyTable] = {}

    @abstractmethod
    def loop(self, op: For) -> For:
        """A loop that looks into tables, which are made with it."""

    def ops(self) -> Iterator[Op]:
        """The tables and the grid, or the grid as it was where there are none."""
        body = tuple(self.loop(op) if isinstance(op, For) else op for op in self.grid.body)
        for table in self.tables.values():
            yield from table.made()
        yield replace(self.grid, body=live(body)) if self.tables else self.grid


def served(kernel: Kernel, of: Callable[[Growing, Grid, str], Served[AnyTable]]) -> Kernel:
    """The kernel with tables before its grids."""
    by = Growing(kernel)
    body: list[Op] = []
    for op in kernel.body:
        tiled = [a for a, n in op.axes if n > 1] if isinstance(op, Grid) else []
        if isinstance(op, Grid) and len(tiled) == 1:
            body += of(by, op, *tiled).ops()
        else:
            body.append(op)
    return replace(by.kernel, body=tuple(body))
