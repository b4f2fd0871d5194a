"""Tiles whose lanes are rows in memory: they are read and written row by row and transposed in registers.

The lane axis of a query or an output is not the one that is consecutive in memory. Where another axis is, as many rows as
a vector has lanes are read as vectors along that axis, and a transposition gives the vectors of lanes. That it is
consecutive is a test at run time; the general code stands beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilec.backends.cpu import storage
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import kind_for
from tilec.backends.cpu.points import Point
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, lanes_of
from tilec.ir import Load, Operand, Store


class Rows:
    """Transposing loads and stores of a panel of lanes."""

    def __init__(self, ev: Evaluator, lane: str) -> None:
        self.ev, self.e, self.lane = ev, ev.e, lane

    def axis(self, op: Load | Store) -> str | None:
        """The axis along which rows can be read as whole vectors; None where the op has no such form."""
        ev = self.ev
        if storage.ARITHMETIC[ev.memory.dtype_of(op.tensor)] not in ("f32", "f64"):
            return None
        varying = [x for x in op.index if ev.axes(x)]
        if len(varying) != 2 or self.lane not in varying:
            return None
        other = next((x for x in varying if x != self.lane), None)
        if not isinstance(other, str) or other not in ev.kernel.extents:
            return None
        count = ev.window(other).count
        return other if isinstance(count, int) and count >= self.e.lanes else None

    def vectors(self, panel: Any, count: int, body: Callable[[Point], None]) -> None:
        """Runs for each of the vectors of a panel."""
        e, lane = self.e, self.lane
        stop = e.add(panel, count * e.lanes)
        e.loop(
            panel,
            stop,
            e.lanes,
            [],
            lambda i, _: body(Point({lane: i}, lane)),
            some=True,
            name=lane,
        )

    def each(self, axis: str, body: Callable[[Any], None]) -> None:
        """Runs along an axis vector by vector; the last one may overlap with the one before."""
        e, count = self.e, self.ev.window(axis).count
        last = count - e.lanes

        def step(i: Any, _: list[Any]) -> None:
            body(i if count % e.lanes == 0 else e.min(i, last))

        e.loop(0, count, e.lanes, [], step, name=axis)

    def condition(self, op: Load | Store, axis: str) -> Any:
        """Whether the rows' elements are consecutive, and the rows there."""
        e, memory = self.e, self.ev.memory
        unit = e.compare("==", memory.stride(op.tensor, op.index.index(axis)), 1)
        for k, x in enumerate(op.index):
            if x not in self.ev.kernel.extents:
                at = e.convert(self.ev.value(x, Point({})).parts[0], "i64")
                unit = e.and_(unit, e.below(at, self.ev.slots["shape", op.tensor, k]))
        return unit

    def starts(self, op: Load | Store, axis: str, p: Point) -> list[Any]:
        """The offsets of the rows, one per lane; past the window's end that of the last one."""
        e, ev = self.e, self.ev
        (lanes,) = ev.position(self.lane, p)

        def at(x: Operand, k: int) -> Any:
            if x == self.lane:
                return e.lane(lanes, k)
            if x == axis:
                return e.index(ev.window(axis).first)
            return ev.value(x, Point({})).parts[0]

        indices = [[(at(x, k), True) for x in op.index] for k in range(e.lanes)]
        return [ev.memory.address(op.tensor, index)[0] for index in indices]

    def load(self, op: Load, axis: str, tile: Tile, p: Point) -> None:
        """Fills a tile with a vector of rows, and asks for those of the next panel."""
        e, ev, tensor = self.e, self.ev, op.tensor
        dtype = ev.memory.dtype_of(tensor)
        raw, kind = storage.MEMORY[dtype], kind_for(dtype, ev.float)
        single = dict.fromkeys(
            tile.axes, 0
        )  # axes of one position are in the tile, and nothing moves along them
        base, step = (
            ev.slots["pointer", tensor],
            ev.memory.stride(tensor, op.index.index(self.lane)),
        )
        ahead = e.mul(step, tile.width)
        starts = self.starts(op, axis, p)

        def block(i: Any) -> None:
            rows: list[Any] = []
            for start in starts:
                here = e.add(start, i)
                # the next panel's rows: each is too short for the hardware to foresee what follows
                e.prefetch(e.at(base, e.add(here, ahead), BYTES[raw]), near=True)
                rows.append(storage.widen(e, e.read(raw, base, here, e.lanes), dtype, kind))
            place = tile.offset(e, {**single, **p.at, axis: i})
            for n, x in enumerate(e.transpose(rows)):
                e.write(x, tile.base, e.add(place, n * tile.strides[axis]))

        self.each(axis, block)

    def store(self, op: Store, axis: str, p: Point) -> None:
        """Writes a vector of rows to memory. Lanes past the end write the last row once more."""
        e, ev, tensor = self.e, self.ev, op.tensor
        dtype = ev.memory.dtype_of(tensor)
        kind = kind_for(dtype, ev.float)
        starts = self.starts(op, axis, p)

        def block(i: Any) -> None:
            with ev.scope():
                values = [ev.value(op.value, p.on(axis, e.add(i, n))) for n in range(e.lanes)]
            columns = [e.convert(v.parts[0], kind) for v in values]
            columns = [x if lanes_of(x) else e.splat(x) for x in columns]
            ev.memory.look(columns)
            for start, x in zip(starts, e.transpose(columns), strict=True):
                at = e.add(start, i)
                e.write(storage.narrow(e, x, dtype), ev.slots["pointer", tensor], at)

        self.each(axis, block)
