"""Contractions that read an operand once, row after row as it lies in memory: the lanes are positions along its rows.

Where a tile has fewer rows than a vector has lanes (decoding), each element that is read takes part in a few operations
only, and how memory is read decides. So the operand is not brought to scratch first: it is evaluated in registers, where
it is used, along the axis whose elements are consecutive. That axis is contracted, and sums are added up across
lanes at the end (*dots*), or kept, and products are added to a tile in the nearest cache (*sums*).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import kind_for, product
from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, constant, constants
from tilec.dtypes import kind
from tilec.ir import Cast, Contract, Load, Map, Operand, operands

TOGETHER = 4
"""Rows of a tile for which a vector of the operand is used while it is in a register."""
SUMS = 8
"""Sums that are added to in turn."""
UNROLL = 16
"""Vectors of a row up to which its loop is unrolled; longer rows are read in stretches of as many."""


@dataclass(frozen=True)
class Stream:
    """A contraction of `operand`, which is streamed, and `other`: the axis in lanes, and the axis of rows in memory."""

    operand: str
    other: Operand
    lanes: str
    rows: str
    summed: bool
    """Whether the axis in lanes is contracted."""

    def inline(self, axes: Callable[[Operand], tuple[str, ...]]) -> list[Operand]:
        """The operands that are evaluated where they are used."""
        return [self.operand, *([self.other] if self.summed and self.rows in axes(self.other) else [])]


class Streams:
    """Finds and emits them. `few`: the axis of the tile's rows; None where there is one row."""

    def __init__(self, ev: Evaluator, few: str | None) -> None:
        self.ev, self.e, self.few = ev, ev.e, few
        self.found: dict[str, Stream] = {}

    def inline(self, op: Contract) -> list[Operand]:
        """The operands that a contraction evaluates where it uses them. To be asked before it is emitted."""
        s = self.find(op)
        if s is None:
            return []
        self.found[op.result.name] = s
        return s.inline(self.ev.axes)

    # ---- which contractions

    def find(self, op: Contract) -> Stream | None:
        """How a contraction streams an operand; None where it does not."""
        known = kind(op.result.type.dtype) == "float" and op.result.name not in self.ev.absent
        if not known or len(op.over) != 1:
            return None
        both = (self.stream(op, op.x, op.y), self.stream(op, op.y, op.x))
        return next((s for s in both if s is not None), None)

    def stream(self, op: Contract, x: Operand, y: Operand) -> Stream | None:
        """A contraction as one that streams x."""
        loads = self.loads(x)
        if not isinstance(x, str) or not loads:
            return None
        lanes, axes = loads[0].index[-1], self.ev.axes(x)
        if not isinstance(lanes, str) or not isinstance(self.ev.window(lanes).count, int):
            return None
        others = [a for a in axes if a not in (lanes, self.few)]
        (over,) = op.over
        summed = lanes == over
        rows = [a for a in others if self.ev.window(a).extent != 1] if summed else [over]
        if not rows or not (rows[-1] in others and (lanes in self.ev.axes(y)) == summed):
            return None
        if not summed and over not in self.ev.axes(y):
            return None
        return Stream(x, y, lanes, rows[-1], summed)

    def loads(self, x: Operand) -> list[Load]:
        """The loads that an operand is computed from, of rows: the position along a row is an axis, and the last index."""
        ev, found, seen = self.ev, list[Load](), set[str]()
        todo = [x]
        while todo:
            x = todo.pop()
            op = ev.defs.get(x) if isinstance(x, str) else None
            if not isinstance(x, str) or x in seen or x in ev.held or op is None:
                continue
            seen.add(x)
            if isinstance(op, Load):
                last = op.index[-1]
                inner = {a for y in op.index[:-1] for a in ev.axes(y)}
                if last in ev.kernel.extents and ev.axes(last) and last not in inner:
                    found.append(op)
            elif isinstance(op, (Map, Cast)):
                todo += operands(op)
        return found

    # ---- code

    def emit(self, op: Contract) -> None:
        """The contraction, into the tile of its result."""
        e, ev, s = self.e, self.ev, self.found[op.result.name]
        loads = [x for x in self.loads(s.operand) if x.index[-1] == s.lanes]
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
        own = (s.lanes, s.rows, self.few)
        rest = [a for a in op.result.type.axes if a not in own]
        body = self.dots if s.summed else self.sums

        def around(axes: Sequence[str], p: Point) -> None:
            with self.ev.scope():
                self.hoist(s, p)
                if not axes:
                    body(op, s, p)
                    return
                axis, *inner = axes
                count = self.ev.window(axis).count
                self.e.loop(0, count, 1, [], lambda i, _: around(inner, p.on(axis, i)), name=axis)

        around(rest, Point({}))

    def hoist(self, s: Stream, p: Point) -> None:
        """Evaluates what does not vary inside, and the places of rows that are settled."""
        ev, bound, seen = self.ev, set(p.at), set[str]()
        todo = [s.operand, s.other]
        while todo:
            x = todo.pop()
            if not isinstance(x, str) or x in seen:
                continue
            seen.add(x)
            op = ev.defs.get(x)
            if set(ev.axes(x)) <= bound:
                ev.value(x, p)
            elif x in ev.consecutive and isinstance(op, Load):
                if {a for y in op.index[:-1] for a in ev.axes(y)} <= bound:
                    ev.row(op, Point(p.at, s.lanes))
            elif x not in ev.held and isinstance(op, (Map, Cast, Load)):
                todo += operands(op)

    def each_few(self, op: Contract, p: Point, most: int, body: Callable[[list[Point]], None]) -> None:
        """The tile's rows, as many at a time as are worth it."""
        if self.few is None or self.few not in op.result.type.axes:
            body([p])
            return
        axis, count = self.few, self.ev.window(self.few).count

        def run(points: list[Point]) -> None:
            with self.ev.scope():
                body(points)

        if isinstance(count, int):
            for first in range(0, count, most):
                run([p.on(axis, n) for n in range(first, min(first + most, count))])
        else:
            self.e.loop(0, count, 1, [], lambda i, _: run([p.on(axis, i)]), name=axis)

    def along(self, s: Stream, step: Callable[[Any, list[Any]], list[Any]], held: list[Any]) -> list[Any]:
        """Runs along a row, vector by vector."""
        e, count = self.e, self.ev.window(s.lanes).count
        lanes, size = e.lanes, UNROLL * e.lanes
        whole = count // lanes * lanes
        begin = 0
        if whole > size:
            begin = whole // size * size

            def stretch(k: Any, held: list[Any]) -> list[Any]:
                with self.ev.scope():
                    for n in range(0, size, lanes):
                        held = step(e.add(k, n), held)
                    return held

            held = e.loop(0, begin, size, held, stretch, name=s.lanes)
        for k in range(begin, count, lanes):
            held = step(k, held)
        return held

    # ---- lanes are contracted

    def dots(self, op: Contract, s: Stream, p: Point) -> None:
        """Sums across lanes: those of as many rows as a vector has lanes are added up together."""
        e, ev = self.e, self.ev
        count, of = ev.window(s.rows).count, kind_for(op.result.type.dtype, ev.float)
        last = e.add(count, -1)
        partial = e.allocate(of, TOGETHER * e.lanes * e.lanes)
        tile = ev.held[op.result.name]
        assert isinstance(tile, Tile)

        def group(first: Any, _: list[Any]) -> None:
            def few(points: list[Point]) -> None:
                together = 1 if len(points) == 1 else 2

                def rows(r: Any, _: list[Any]) -> None:
                    at = [e.min(e.add(first, e.add(r, n)), last) for n in range(together)]
                    self.dot(op, s, [[q.on(s.rows, x) for q in points] for x in at], partial, r)

                e.loop(0, e.lanes, together, [], rows, name=s.rows)
                for n, q in enumerate(points):
                    size = e.lanes * e.lanes
                    own = [
                        e.read(of, partial, n * size + r * e.lanes, e.lanes) for r in range(e.lanes)
                    ]
                    where = Point({**q.at, s.rows: first}, s.rows)
                    start = self.start(op, where, of)
                    ev.write_tile(tile, where, Val((e.add(start, e.sums(own)),)))

            with ev.scope():
                self.each_few(op, p, TOGETHER, few)

        e.loop(0, count, e.lanes, [], group, name=s.rows)

    def dot(self, op: Contract, s: Stream, points: list[list[Point]], partial: Any, r: Any) -> None:
        """The products of some rows in memory and rows of the tile, summed lane by lane."""
        e, ev = self.e, self.ev
        of, count = kind_for(op.result.type.dtype, ev.float), ev.window(s.lanes).count
        with ev.scope():
            for row in points:
                self.hoist(s, row[0])

            def step(k: Any, totals: list[Any]) -> list[Any]:
                out: list[Any] = []
                for q, total in zip([q for row in points for q in row], totals, strict=True):
                    at = Point({**q.at, s.lanes: k}, s.lanes)
                    x, y = ev.value(s.operand, at), ev.value(s.other, at)
                    new = self.product(x, y, total, of)
                    if isinstance(k, int) and k + e.lanes > count:
                        inside = constants("i1", [int(k + n < count) for n in range(e.lanes)])
                        new = e.select(inside, new, total)
                    out.append(new)
                return out

            zero = constant(of, 0.0, e.lanes)
            totals = self.along(s, step, [zero for row in points for _ in row])
        for n, row in enumerate(points):
            for m in range(len(row)):
                place = e.add(e.mul(e.add(r, n), e.lanes), m * e.lanes * e.lanes)
                e.write(totals[n * len(row) + m], e.at(partial, place, BYTES[of]))

    # ---- lanes are kept

    def sums(self, op: Contract, s: Stream, p: Point) -> None:
        """Products added to the tile of the result, those of some rows in memory at a time."""
        e, ev = self.e, self.ev
        of = kind_for(op.result.type.dtype, ev.float)
        tile = ev.held[op.result.name]
        assert isinstance(tile, Tile)
        window = ev.window(s.rows)

        def first(points: list[Point]) -> None:
            def step(k: Any, _: list[Any]) -> list[Any]:
                for q in points:
                    at = Point({**q.at, s.lanes: k}, s.lanes)
                    ev.write_tile(tile, at, Val((self.start(op, at, of),)))
                return []

            self.along(s, step, [])

        def some(rows: int) -> Callable[[Any, list[Any]], None]:
            def body(i: Any, _: list[Any]) -> None:
                at = [e.add(i, n) for n in range(rows)]
                with ev.scope():
                    for x in at:
                        self.hoist(s, p.on(s.rows, x))
                    self.each_few(
                        op, p, max(1, SUMS // rows), lambda points: self.add(op, s, points, at, tile)
                    )

            return body

        self.each_few(op, p, 1, first)
        rows = SUMS // 2
        if isinstance(window.count, int):
            whole = window.count // rows * rows
        else:
            whole = e.and_(window.count, -rows)
        e.loop(0, whole, rows, [], some(rows), name=s.rows)
        e.loop(whole, window.count, 1, [], some(1), name=s.rows)

    def add(self, op: Contract, s: Stream, points: list[Point], rows: list[Any], tile: Tile) -> None:
        """Adds the products of some rows in memory to some rows of the tile."""
        e, ev = self.e, self.ev
        of = kind_for(op.result.type.dtype, ev.float)
        factors: list[list[Val]] = []
        for q in points:
            values = [ev.value(s.other, q.on(s.rows, r)) for r in rows]
            factors.append(
                [Val((e.splat(e.convert(v.parts[0], of)),), v.marks) for v in values]
            )

        def step(k: Any, _: list[Any]) -> list[Any]:
            with ev.scope():
                for q, own in zip(points, factors, strict=True):
                    at = Point({**q.at, s.lanes: k}, s.lanes)
                    total = ev.read_tile(tile, at).parts[0]
                    for r, factor in zip(rows, own, strict=True):
                        x = ev.value(s.operand, at.on(s.rows, r))
                        total = self.product(x, factor, total, of)
                    ev.write_tile(tile, at, Val((total,)))
            return []

        self.along(s, step, [])

    def product(self, x: Val, y: Val, total: Any, of: Any) -> Any:
        e = self.e
        a, b = e.like(e.convert(x.parts[0], of), total), e.like(e.convert(y.parts[0], of), total)
        return product(e, (a, x.mark(0)), (b, y.mark(0)), total)

    def start(self, op: Contract, p: Point, of: Any) -> Any:
        """What a sum starts from."""
        zero = constant(of, 0.0, self.e.lanes)
        if op.init is None:
            return zero
        return self.e.like(self.e.convert(self.ev.value(op.init, p).parts[0], of), zero)
