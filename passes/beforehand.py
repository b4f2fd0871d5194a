"""Values that a grid of their own makes once, in HBM, for the windows of the grid behind it.

K_all = buffer()
grid(axes=[…]) { … store(K_all, …, value=k) }    # the table
grid(axes=[…]) { for(…) { k = load(K_all, …) … } }
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.dataflow import live, names_in
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Axis,
    Buffer,
    Edge,
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
