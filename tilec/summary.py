"""The least and the greatest value of data over each window of a streamed axis, made once by a grid of its own.

For `doc[b, j]` and windows of 64 there is a buffer over `b` and the window's number; the loop over windows loads one number
where it would have looked at 64.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from tilec.defined import Defined
from tilec.dtypes import kind
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Axis,
    Buffer,
    Cast,
    Grid,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Type,
    Value,
    operands,
    rebuild,
)
from tilec.nature import STRIDE, Values, computed
from tilec.renaming import fresh
from tilec.wide import wide

Pair = tuple[str, str]


@dataclass(frozen=True)
class Summary:
    """Two reductions of a value for each window: their buffers, and the ops that make and fill these."""

    buffers: tuple[Value, Value]
    ops: tuple[Op, ...]


class Summaries:
    """The summaries of a kernel. `axes` are those that they add: the number of a window, the position in one."""

    def __init__(self, kernel: Kernel, taken: set[str]) -> None:
        self.source, self.taken, self.wide = kernel, taken, frozenset(wide(kernel))
        self.top = frozenset(v.name for op in kernel.body for v in op.results)
        self.axes: list[Axis] = []
        self.windows: dict[tuple[str, int], Pair] = {}
        self._made: dict[Hashable, Summary | None] = {}
        self._placed: set[str] = set()
        self._samples: dict[tuple[str, int], str] = {}

    @functools.cached_property
    def defined(self) -> Defined:
        """What is known of the kernel's values."""
        return Defined(self.source)

    @property
    def kernel(self) -> Kernel:
        """The kernel with the axes added so far."""
        return replace(self.source, axes=(*self.source.axes, *self.axes))

    def of(self, fns: Pair, x: str, axis: str, tile: int, values: Values) -> Summary | None:
        """Two reductions of a value over each window; None where it is made of what only its own grid has."""
        key = (fns, axis, tile, _structure(x, values.definitions, self.top))
        if key not in self._made:
            self._made[key] = self._make(fns, x, axis, tile, values)
        return self._made[key]

    def take(self, read: Iterable[str]) -> list[Op]:
        """The ops of summaries that are read now and have not been placed yet."""
        out: list[Op] = []
        read = set(read)
        for s in self._made.values():
            names = {v.name for v in s.buffers} if s is not None else set[str]()
            if s is not None and names & read and not names & self._placed:
                out += s.ops
                self._placed |= names
        return out

    def _make(self, fns: Pair, x: str, axis: str, tile: int, values: Values) -> Summary | None:
        known, tiles = values.definitions, values.emit.tiles
        needed = self._positions(x, known)
        if needed is None or any(a in values.windows for a in needed - {axis}):
            return None
        if self._over(x, known, axis):
            return None  # in the grid of a summary, the axis is another one
        outer = {a for a in needed if tiles.get(a) == 1}
        if outer and not self._looks_up(x, known, outer | {axis}):
            return None  # more windows than there is data: the loop's own tests cost less
        window, inner = self._axes(axis, tile)
        kernel = self.kernel
        grid = tuple(a.name for a in kernel.axes if a.name in needed and tiles.get(a.name) == 1)
        emit = FoldingBuilder(kernel, self.taken, {window: 1, **dict.fromkeys(grid, 1)})
        position = emit.fn("add", emit.fn("mul", window, tile), inner)
        value = computed(emit, x, known, self.top.__contains__, {axis: position})
        extent = kernel.extents[axis]
        ragged = not (isinstance(extent, int) and extent % tile == 0)
        inside = emit.fn("lt", position, emit.scalar(extent)) if ragged else True
        buffers, stores = list[Buffer](), list[Store]()
        for fn in fns:
            counted = emit.fn("select", inside, value, _neutral(fn, emit.type_of(value)))
            result = emit.over(fn, counted, (inner,))
            t = emit.type_of(result)
            index = (*grid, window, *t.axes)
            buffer = Value(fresh(f"{x}_{fn}", self.taken), Type(t.dtype, index, (), "hbm"))
            buffers.append(Buffer((buffer,)))
            stores.append(Store((), buffer.name, index, result))
        axes = tuple((a, 1) for a in (*grid, window))
        fill = Grid((), axes=axes, body=(*emit.ops, *stores))
        return Summary((buffers[0].result, buffers[1].result), (*buffers, fill))

    def _axes(self, axis: str, tile: int) -> Pair:
        if (axis, tile) not in self.windows:
            names = fresh(f"{axis}_w", self.taken), fresh(f"{axis}_u", self.taken)
            n = self.source.extents[axis]
            count = (
                -(-n // tile) if isinstance(n, int) else ("floordiv", ("add", n, tile - 1), tile)
            )
            self.axes += [Axis(names[0], count), Axis(names[1], tile)]
            self.windows[axis, tile] = names
        return self.windows[axis, tile]

    def _looks_up(self, x: Operand, known: Mapping[str, Op], axes: set[str]) -> bool:
        """Whether some look-up in a value goes along all of the axes: then it has no more entries than there is data."""
        if not isinstance(x, str) or x in self.top or x not in known:
            return False
        if isinstance(known[x], Load) and axes <= (self._positions(x, known) or set()):
            return True
        return any(self._looks_up(y, known, axes) for y in operands(known[x]))

    def _positions(self, x: Operand, known: Mapping[str, Op]) -> set[str] | None:
        """The axes whose positions a value is made of; None if it cannot be computed anew from those."""
        if not isinstance(x, str):
            return set()
        if x in self.top or x not in known:
            return {x} & set(self.source.extents)
        op = known[x]
        if not isinstance(op, (Load, Map, Cast, Reduce)):
            return None
        parts = [self._positions(y, known) for y in operands(op)]
        return None if None in parts else {a for p in parts if p is not None for a in p}

    def _over(self, x: Operand, known: Mapping[str, Op], axis: str) -> bool:
        """Whether a value is made of a reduction over an axis."""
        if not isinstance(x, str) or x in self.top or x not in known:
            return False
        op = known[x]
        if isinstance(op, Reduce) and axis in op.over:
            return True
        return any(self._over(y, known, axis) for y in operands(op))

    def samples(self, axis: str, tile: int) -> str:
        """The axis that numbers the samples of a window: one every `STRIDE` positions, and its last position."""
        if (axis, tile) not in self._samples:
            name = fresh(f"{axis}_s", self.taken)
            self.axes.append(Axis(name, -(-tile // STRIDE) + 1))
            self._samples[axis, tile] = name
        return self._samples[axis, tile]


def _structure(x: Operand, known: Mapping[str, Op], top: frozenset[str]) -> Hashable:
    """What a value is made of, whatever the names."""
    if not isinstance(x, str) or x in top or x not in known:
        return type(x).__name__, x
    op = known[x]
    shape = replace(rebuild(op, lambda _: 0), results=(), span=None)
    return shape, tuple(_structure(y, known, top) for y in operands(op))


def _neutral(fn: str, t: Type) -> Operand:
    """What a position beyond the axis counts as."""
    if fn in ("all", "any"):
        return fn == "all"
    if kind(t.dtype) == "float":
        return float("inf") if fn == "min" else float("-inf")
    return (1 << 63) - 1 if fn == "min" else -(1 << 63)
