"""What all streamed contractions have in common: how rows of the operand are read, and how far ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import storage
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import kind_for, product
from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, Kind, constant
from tilec.ir import Cast, Contract, Load, Map, Operand, operands

TOGETHER = 4
"""The most rows of a tile for which a vector of the operand is used while it is in a register."""
FAR = 4
"""Stretches of rows that are read side by side where memory is what takes the time: a power of two."""
UNROLL = 16
"""Vectors of a row up to which its loop is unrolled; longer rows are read in stretches of as many."""
AHEAD = 3 << 10, 4 << 10
"""Bytes by which a stream is asked for before it is read, where arithmetic keeps the processor from looking ahead: for rows
of a tile that are taken at once, and for those taken in turns, which share the asking."""
LINE = 64
"""Bytes of a cache line."""


@dataclass(frozen=True)
class Stream:
    """A contraction of `operand`, which is streamed, and `other`. `lanes`: the axis in lanes; `rows`: the axis along which
    rows follow one another in memory; `summed`: the lanes are contracted, else the rows are."""

    operand: str
    other: Operand
    lanes: str
    rows: str
    summed: bool


class Form:
    """What both forms of a streamed contraction have in common."""

    def __init__(
        self, ev: Evaluator, axis: str | None, op: Contract, s: Stream, loads: Sequence[Load]
    ) -> None:
        self.ev, self.e, self.axis, self.op, self.s, self.loads = ev, ev.e, axis, op, s, loads
        self.of: Kind = kind_for(op.result.type.dtype, ev.float)
        tile = ev.held[op.result.name]
        assert isinstance(tile, Tile)
        self.tile = tile
        few = axis if axis in op.result.type.axes else None
        count = ev.window(few).count if few else 1
        self.rows = count if isinstance(count, int) else None
        """The rows of the tile; None: some."""
        self.narrow = any(self.element(x) < 4 for x in loads)
        """Whether elements are converted where they are used."""
        most = TOGETHER // 2 if self.narrow else TOGETHER
        self.far = FAR if self.rows is not None and self.rows <= most else 1
        """How many stretches of rows in memory are read side by side. 1: arithmetic takes the time."""

    def each_few(self, p: Point, most: int, body: Callable[[list[Point], int], None]) -> None:
        """The rows of the tile, as many at a time as are worth it. The body is told which turn it is."""
        axis = self.axis
        if axis is None or axis not in self.op.result.type.axes:
            body([p], 0)
            return

        def run(points: list[Point], turn: int) -> None:
            with self.ev.scope():
                body(points, turn)

        if self.rows is None:
            count = self.ev.window(axis).count
            self.e.loop(0, count, 1, [], lambda i, _: run([p.on(axis, i)], 0), name=axis)
            return
        for turn, first in enumerate(range(0, self.rows, most)):
            last = min(first + most, self.rows)
            run([p.on(axis, n) for n in range(first, last)], turn)

    def start(self, p: Point) -> Any:
        """What a vector of sums starts from."""
        zero = constant(self.of, 0.0, self.e.lanes)
        if self.op.init is None:
            return zero
        init = self.ev.value(self.op.init, p)
        return self.e.like(self.e.convert(init.parts[0], self.of), zero)

    def hoist(self, p: Point) -> None:
        """Evaluates what does not vary inside, and the addresses of rows that are settled."""
        ev, s, bound, seen = self.ev, self.s, set(p.at), set[str]()
        todo: list[Operand] = [s.operand, s.other]
        while todo:
            x = todo.pop()
            if not isinstance(x, str) or x in seen:
                continue
            seen.add(x)
            op = ev.defs.get(x)
            if set(ev.axes(x)) <= bound:
                ev.value(x, p)
            elif isinstance(op, Load) and x in ev.consecutive:
                if self.settled(op, bound):
                    ev.row(op, Point(p.at, s.lanes))
            elif x not in ev.held and isinstance(op, (Map, Cast, Load)):
                todo += operands(op)

    def settled(self, op: Load, bound: set[str]) -> bool:
        """Whether positions on these axes say which row is loaded."""
        return {a for y in op.index[:-1] for a in self.ev.axes(y)} <= bound

    def along(self, step: Callable[[Any, list[Any]], list[Any]], held: list[Any]) -> list[Any]:
        """Runs along a row, vector by vector; code for rows that are not consecutive is kept short."""
        e, s, count = self.e, self.s, self.ev.window(self.s.lanes).count
        size = (UNROLL if self.ev.consecutive else 1) * e.lanes
        whole = count // e.lanes * e.lanes
        begin = whole // size * size if whole > size else 0

        def stretch(k: Any, held: list[Any]) -> list[Any]:
            with self.ev.scope():
                for n in range(0, size, e.lanes):
                    held = step(e.add(k, n), held)
            return held

        held = e.loop(0, begin, size, held, stretch, name=s.lanes)
        for k in range(begin, count, e.lanes):
            held = step(k, held)
        return held

    def product(self, x: Val, y: Val, total: Any) -> Any:
        """A vector of sums with one more product."""
        e = self.e
        a, b = (e.like(e.convert(v.parts[0], self.of), total) for v in (x, y))
        return product(e, (a, x.mark(0)), (b, y.mark(0)), total)

    # ---- before it is read

    def ahead(self, p: Point, rows: Sequence[Any], turn: int, most: int) -> None:
        """Asks for what follows some rows in memory, where the processor does not see so far by itself: for a share of it
        in each turn, since a processor waits for a few lines at a time only, and would for none of them in the other turns.
        """
        if self.far > 1:
            return
        turns = -(-(self.rows or 1) // most)
        for load in self.certain(p):
            later = -(-AHEAD[min(turns, len(AHEAD)) - 1] // self.size(load))
            for row in rows[turn::turns]:
                with self.ev.scope():
                    self.ask(load, p, self.inside(self.e.add(row, later)))

    def at_once(self, p: Point, rows: Sequence[Any]) -> None:
        """Asks for all lines of rows that lie in several places, before they are read side by side."""
        if self.far > 1 and not self.narrow:
            for load in self.certain(p):
                for row in rows:
                    self.ask(load, p, row)

    def certain(self, p: Point) -> list[Load]:
        """The loads whose rows are consecutive in memory, and known before they are read."""
        known = [x for x in self.loads if x.result.name in self.ev.consecutive]
        return [x for x in known if self.settled(x, {*p.at, self.s.rows})]

    def inside(self, row: Any) -> Any:
        """A row that may be beyond the present window, as the last one of its axis at most."""
        e, ev, s = self.e, self.ev, self.s
        last = e.sub(e.add(ev.slots["extent", s.rows], -1), ev.window(s.rows).first)
        return e.min(row, last)

    def ask(self, load: Load, p: Point, row: Any) -> None:
        """Asks for a row."""
        address = self.ev.row(load, Point({**p.at, self.s.rows: row}, self.s.lanes))
        for n in range(0, self.size(load), LINE):
            self.e.prefetch(self.e.at(address, n, 1), near=True)

    def size(self, load: Load) -> int:
        """The bytes of a row."""
        return max(1, self.ev.window(str(load.index[-1])).count * self.element(load))

    def element(self, load: Load) -> int:
        """The bytes of an element."""
        return BYTES[storage.MEMORY[self.ev.memory.dtype_of(load.tensor)]]
