"""Contractions that read an operand once, row after row as it lies in memory: lanes are positions along a row.

Where a tile has fewer rows than a vector has lanes (decoding), an element that is read takes part in a few operations
only, and how memory is read decides. So the operand is not brought to scratch first: it is evaluated in registers, where
it is used, along the axis whose elements are consecutive. That axis is contracted, and sums are added up across lanes at
the end (`dots`), or it is kept, and products are added to a tile in the nearest cache (`sums`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import storage
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import kind_for, product
from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, Kind, constant, constants
from tilec.dtypes import kind
from tilec.ir import Cast, Contract, Load, Map, Operand, operands

TOGETHER = 4
"""The most rows of a tile for which a vector of the operand is used while it is in a register."""
SUMS = 8
"""Factors that are held in registers, or sums that are added to in turn."""
NEAR = 4
"""Rows in memory that are read side by side at most: with more, memory is no longer read in order."""
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


class Streams:
    """Finds and emits them. `few`: the axis of the tile's rows; None where there is one row."""

    def __init__(self, ev: Evaluator, few: str | None) -> None:
        self.ev, self.e, self.few = ev, ev.e, few
        self.found: dict[str, Stream] = {}

    # ---- which contractions

    def inline(self, op: Contract) -> list[Operand]:
        """The operands that a contraction evaluates where it uses them; none: it streams nothing."""
        s = self.find(op)
        if s is None:
            return []
        self.found[op.result.name] = s
        both = s.summed and s.rows in self.ev.axes(s.other)
        return [s.operand, *([s.other] if both else [])]

    def find(self, op: Contract) -> Stream | None:
        """How a contraction streams an operand; None where it does not."""
        known = kind(op.result.type.dtype) == "float" and op.result.name not in self.ev.absent
        if not known or len(op.over) != 1 or self.ev.late(op):
            return None
        pairs = sorted([(op.x, op.y), (op.y, op.x)], key=lambda p: not self.loads(p[0]))
        return next((s for x, y in pairs if (s := self.stream(op, x, y))), None)

    def stream(self, op: Contract, x: Operand, y: Operand) -> Stream | None:
        """A contraction as one that streams x."""
        ev, axes = self.ev, self.ev.axes(x)
        if not isinstance(x, str) or len(axes) < 2:
            return None
        loads = self.loads(x)
        lanes = loads[0].index[-1] if loads else axes[-1]
        if not isinstance(lanes, str) or lanes == self.few:
            return None
        if not isinstance(ev.window(lanes).count, int):
            return None
        summed = lanes in op.over
        others = [a for a in axes if a not in (lanes, self.few)]
        rows = [a for a in others if ev.window(a).extent != 1] if summed else [*op.over]
        fits = bool(rows) and rows[-1] in others and (lanes in ev.axes(y)) == summed
        if not fits or not summed and rows[-1] not in ev.axes(y):
            return None
        return Stream(x, y, lanes, rows[-1], summed)

    def loads(self, x: Operand) -> list[Load]:
        """The loads of rows that an operand is computed from on the way: the position along a row is an axis, and the last
        index."""
        ev, found, seen = self.ev, list[Load](), set[str]()
        todo = [x]
        while todo:
            x = todo.pop()
            op = ev.defs.get(x) if isinstance(x, str) else None
            if not isinstance(x, str) or x in seen or x in ev.held or op is None:
                continue
            seen.add(x)
            if isinstance(op, Load):
                *others, last = op.index
                inner = {a for y in others for a in ev.axes(y)}
                if last in ev.kernel.extents and ev.axes(last) and last not in inner:
                    found.append(op)
            elif isinstance(op, (Map, Cast)):
                todo += operands(op)
        return found

    def consecutive(self, s: Stream) -> list[Load]:
        """The loads of a stream's operand whose rows lie along the lanes."""
        return [x for x in self.loads(s.operand) if x.index[-1] == s.lanes]

    # ---- code

    def emit(self, op: Contract) -> None:
        """The contraction, into the tile of its result."""
        e, ev, s = self.e, self.ev, self.found[op.result.name]
        loads = self.consecutive(s)
        if not loads:
            self.nest(op, s)
            return
        units = [e.compare("==", ev.memory.stride(x.tensor, len(x.index) - 1), 1) for x in loads]

        def fast() -> None:
            ev.consecutive = frozenset(x.result.name for x in loads)
            self.nest(op, s)
            ev.consecutive = frozenset()

        e.branch(functools.reduce(e.and_, units), fast, lambda: self.nest(op, s), name="stream")

    def nest(self, op: Contract, s: Stream) -> None:
        """The loops over axes that are neither rows in memory nor the tile's, and what is in them."""
        rest = [a for a in op.result.type.axes if a not in (s.lanes, s.rows, self.few)]
        body = _Dots(self, op, s).all if s.summed else _Sums(self, op, s).all

        def around(axes: Sequence[str], p: Point) -> None:
            with self.ev.scope():
                self.hoist(s, p)
                if not axes:
                    body(p)
                    return
                axis, *inner = axes
                count = self.ev.window(axis).count
                self.e.loop(0, count, 1, [], lambda i, _: around(inner, p.on(axis, i)), name=axis)

        around(rest, Point({}))

    def hoist(self, s: Stream, p: Point) -> None:
        """Evaluates what does not vary inside, and the addresses of rows that are settled."""
        ev, bound, seen = self.ev, set(p.at), set[str]()
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

    def along(
        self, s: Stream, step: Callable[[Any, list[Any]], list[Any]], held: list[Any]
    ) -> list[Any]:
        """Runs along a row, vector by vector; code for rows that are not consecutive is kept short."""
        e, count = self.e, self.ev.window(s.lanes).count
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

    def product(self, x: Val, y: Val, total: Any, of: Kind) -> Any:
        """A vector of sums with one more product."""
        e = self.e
        a, b = (e.like(e.convert(v.parts[0], of), total) for v in (x, y))
        return product(e, (a, x.mark(0)), (b, y.mark(0)), total)

    # ---- before it is read

    def ahead(self, s: Stream, p: Point, row: Any, distance: int) -> None:
        """Asks for the row that lies so many bytes after this one."""
        for load in self.consecutive(s):
            known = load.result.name in self.ev.consecutive
            if known and self.settled(load, {*p.at, s.rows}):
                rows = -(-distance // self.size(load))
                with self.ev.scope():
                    self.ask(s, load, p, self.e.add(row, rows))

    def ask(self, s: Stream, load: Load, p: Point, row: Any) -> None:
        """Asks for a row, the last one of its axis at most: it may be beyond the present window."""
        e, ev = self.e, self.ev
        last = e.sub(e.add(ev.slots["extent", s.rows], -1), ev.window(s.rows).first)
        address = ev.row(load, Point({**p.at, s.rows: e.min(row, last)}, s.lanes))
        for n in range(0, self.size(load), LINE):
            e.prefetch(e.at(address, n, 1), near=True)

    def size(self, load: Load) -> int:
        """The bytes of a row."""
        return max(1, self.ev.window(str(load.index[-1])).count * self.element(load))

    def element(self, load: Load) -> int:
        """The bytes of an element."""
        return BYTES[storage.MEMORY[self.ev.memory.dtype_of(load.tensor)]]

    def narrow(self, s: Stream) -> bool:
        """Whether elements are narrower than what is computed with."""
        return any(self.element(x) < 4 for x in self.consecutive(s))


class _Form:
    """What both forms of a streamed contraction have in common."""

    def __init__(self, streams: Streams, op: Contract, s: Stream) -> None:
        self.streams, self.op, self.s = streams, op, s
        self.ev, self.e = streams.ev, streams.e
        self.of: Kind = kind_for(op.result.type.dtype, self.ev.float)
        tile = self.ev.held[op.result.name]
        assert isinstance(tile, Tile)
        self.tile = tile
        few = streams.few if streams.few in op.result.type.axes else None
        count = self.ev.window(few).count if few else 1
        self.rows = count if isinstance(count, int) else None
        """The rows of the tile; None: some."""
        most = TOGETHER // 2 if streams.narrow(s) else TOGETHER
        self.far = FAR if self.rows is not None and self.rows <= most else 1
        """How many stretches of rows in memory are read side by side. 1: arithmetic takes the time."""

    def each_few(self, p: Point, most: int, body: Callable[[list[Point], int], None]) -> None:
        """The rows of the tile, as many at a time as are worth it. The body is told which turn it is."""
        axis = self.streams.few
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

    def ahead(self, p: Point, rows: Sequence[Any], turn: int, most: int) -> None:
        """Asks for what follows some rows in memory, where the processor does not see so far by itself: for a share of it
        in each turn, since a processor waits for a few lines at a time only, and would for none of them in the other turns.
        """
        if self.far > 1:
            return
        turns = -(-(self.rows or 1) // most)
        for row in rows[turn::turns]:
            self.streams.ahead(self.s, p, row, AHEAD[min(turns, len(AHEAD)) - 1])

    def start(self, p: Point) -> Any:
        """What a vector of sums starts from."""
        zero = constant(self.of, 0.0, self.e.lanes)
        if self.op.init is None:
            return zero
        init = self.ev.value(self.op.init, p)
        return self.e.like(self.e.convert(init.parts[0], self.of), zero)


@dataclass(frozen=True)
class _Group:
    """As many rows in memory as a vector has lanes, of stretches that lie `each` rows apart, from `first` on; sums before
    they are added up across lanes are `partial`."""

    first: Any
    each: Any
    partial: Any


class _Dots(_Form):
    """Lanes are contracted: as many sums as a vector has lanes are added up across them together."""

    def all(self, p: Point) -> None:
        """All rows in memory, for all rows of the tile."""
        e, window = self.e, self.ev.window(self.s.rows)
        count, size = window.count, self.far * e.lanes
        if window.extent % size:
            self.far, size = 1, e.lanes
        known = isinstance(count, int)
        whole = -(-count // size) * size if known else e.and_(e.add(count, size - 1), -size)
        each = whole // self.far if known else e.lshr(whole, self.far.bit_length() - 1)
        partial = e.allocate(self.of, self.far * TOGETHER * e.lanes * e.lanes)

        def group(first: Any, _: list[Any]) -> None:
            def few(points: list[Point], turn: int) -> None:
                self.group(points, _Group(first, each, partial), turn)

            with self.ev.scope():
                self.each_few(p, TOGETHER, few)

        e.loop(0, each, e.lanes, [], group, name=self.s.rows)

    def group(self, points: list[Point], g: _Group, turn: int) -> None:
        """As many rows in memory as a vector has lanes, of each stretch."""
        e, name = self.e, self.s.rows
        side = self.far if len(points) == 1 else min(self.far, 2)
        near = 2 // side if len(points) > 1 else 1

        def some(n: Any, r: Any) -> None:
            at = [(e.add(n, k), e.add(r, i)) for k in range(side) for i in range(near)]
            rows = [e.add(e.add(g.first, e.mul(k, g.each)), i) for k, i in at]
            self.some(points, rows, [self.place(g, k, 0, i) for k, i in at], turn)

        def row(r: Any, _: list[Any]) -> None:
            e.loop(0, self.far, side, [], lambda n, _: some(n, r), name=name)

        def sums(n: Any, _: list[Any]) -> None:
            with self.ev.scope():
                first = e.add(g.first, e.mul(n, g.each))
                for k, q in enumerate(points):
                    self.across(q.on(name, first), self.place(g, n, k, 0))

        e.loop(0, e.lanes, near, [], row, name=name)
        e.loop(0, self.far, 1, [], sums, name=name)

    def place(self, g: _Group, stretch: Any, point: int, row: Any) -> Any:
        """Where the sums of a row in memory and one of the tile are kept, lane by lane."""
        e = self.e
        n = e.add(e.mul(stretch, TOGETHER * e.lanes), e.add(row, point * e.lanes))
        return e.at(g.partial, e.mul(n, e.lanes), BYTES[self.of])

    def across(self, p: Point, partial: Any) -> None:
        """Sums of lanes, written as a vector along the rows in memory."""
        e = self.e
        own = [e.read(self.of, partial, r * e.lanes, e.lanes) for r in range(e.lanes)]
        where = Point(p.at, self.s.rows)
        self.ev.write_tile(self.tile, where, Val((e.add(self.start(where), e.sums(own)),)))

    def some(self, points: list[Point], rows: list[Any], sums: list[Any], turn: int) -> None:
        """The products of some rows in memory and some of the tile, summed lane by lane; past the last row, it is taken
        once more."""
        e, ev, s = self.e, self.ev, self.s
        last = e.add(ev.window(s.rows).count, -1)
        with ev.scope():
            at: list[Point] = []
            for row in rows:
                own = e.min(row, last)
                at += [p.on(s.rows, own) for p in points]
                self.streams.hoist(s, at[-len(points)])
            self.ahead(points[0], rows, turn, TOGETHER)
            zero = constant(self.of, 0.0, e.lanes)
            totals = self.streams.along(s, functools.partial(self.step, at), [zero] * len(at))
        for n, total in enumerate(totals):
            r, q = divmod(n, len(points))
            e.write(total, sums[r], q * e.lanes * e.lanes)

    def step(self, at: list[Point], k: Any, totals: list[Any]) -> list[Any]:
        """The sums with the products of one more vector of each row."""
        e, ev, s = self.e, self.ev, self.s
        count, out = ev.window(s.lanes).count, list[Any]()
        for p, total in zip(at, totals, strict=True):
            q = Point({**p.at, s.lanes: k}, s.lanes)
            new = self.streams.product(ev.value(s.operand, q), ev.value(s.other, q), total, self.of)
            if isinstance(k, int) and k + e.lanes > count:
                inside = constants("i1", [int(k + n < count) for n in range(e.lanes)])
                new = e.select(inside, new, total)
            out.append(new)
        return out


class _Sums(_Form):
    """Lanes are kept: the products of a few rows in memory are added to the tile of the result."""

    def all(self, p: Point) -> None:
        """All rows in memory, for all rows of the tile."""
        e, s = self.e, self.s
        self.each_few(p, 1, self.first)
        few = self.rows or 1
        together = few if few <= TOGETHER else 2
        step = min(NEAR, SUMS // together)
        count = self.ev.window(s.rows).count
        whole = count // step * step if isinstance(count, int) else e.and_(count, -step)

        each: Any = 1
        if self.far > 1:
            known = isinstance(whole, int)
            each = whole // step if known else e.lshr(whole, step.bit_length() - 1)

        def some(i: Any, _: list[Any]) -> None:
            self.some(p, [e.add(i, e.mul(each, n)) for n in range(step)], together)

        if self.far > 1:
            e.loop(0, each, 1, [], some, name=s.rows)
        else:
            e.loop(0, whole, step, [], some, name=s.rows)
        e.loop(whole, count, 1, [], lambda i, _: self.some(p, [i], together), name=s.rows)

    def first(self, points: list[Point], _: int) -> None:
        """Sets the tile to what sums start from."""

        def step(k: Any, _: list[Any]) -> list[Any]:
            for p in points:
                q = Point({**p.at, self.s.lanes: k}, self.s.lanes)
                self.ev.write_tile(self.tile, q, Val((self.start(q),)))
            return []

        self.streams.along(self.s, step, [])

    def some(self, p: Point, rows: list[Any], together: int) -> None:
        """Some rows in memory, for all rows of the tile."""
        s = self.s
        with self.ev.scope():
            for r in rows:
                self.streams.hoist(s, p.on(s.rows, r))
            if self.rows is None:
                self.ahead(p, rows, 0, together)

            def few(points: list[Point], turn: int) -> None:
                if self.rows is not None:
                    self.ahead(p, rows, turn, together)
                self.add(points, rows)

            self.each_few(p, together, few)

    def add(self, points: list[Point], rows: list[Any]) -> None:
        """Adds the products of some rows in memory and some of the tile."""
        e, ev, s = self.e, self.ev, self.s

        def factor(p: Point) -> Val:
            x = ev.value(s.other, p)
            return Val((e.splat(e.convert(x.parts[0], self.of)),), x.marks)

        factors = [[factor(p.on(s.rows, r)) for r in rows] for p in points]

        def step(k: Any, _: list[Any]) -> list[Any]:
            with ev.scope():
                for p, own in zip(points, factors, strict=True):
                    q = Point({**p.at, s.lanes: k}, s.lanes)
                    (total,) = ev.read_tile(self.tile, q).parts
                    for r, y in zip(rows, own, strict=True):
                        x = ev.value(s.operand, q.on(s.rows, r))
                        total = self.streams.product(x, y, total, self.of)
                    ev.write_tile(self.tile, q, Val((total,)))
            return []

        self.streams.along(s, step, [])
