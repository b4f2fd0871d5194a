"""Streamed contractions whose lanes are contracted: the products of a row are summed lane by lane, then across lanes."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.streaming import TOGETHER, Form
from tilec.backends.cpu.vector import BYTES, Emit, constant, constants, type_of


@dataclass(frozen=True)
class Group:
    """As many rows in memory as a vector has lanes, of stretches that lie `each` rows apart, from `first` on; sums before
    they are added up across lanes are `partial`."""

    first: Any
    each: Any
    partial: Any


class Dots(Form):
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
                self.group(points, Group(first, each, partial), turn)

            with self.ev.scope():
                self.each_few(p, TOGETHER, few)

        e.loop(0, each, e.lanes, [], group, name=self.s.rows)

    def group(self, points: list[Point], g: Group, turn: int) -> None:
        """As many rows in memory as a vector has lanes, of each stretch."""
        e, name = self.e, self.s.rows
        side = self.far if len(points) == 1 else min(self.far, 2)
        near = 2 // side if len(points) > 1 else 1

        def some(n: Any, r: Any) -> None:
            at = [(e.add(n, k), e.add(r, i)) for k in range(side) for i in range(near)]
            rows = [e.add(e.add(g.first, e.mul(k, g.each)), i) for k, i in at]
            self.some(points, rows, [self.place(g, k, 0, i) for k, i in at], turn)

        def row(r: Any, _: list[Any]) -> None:
            if side == self.far:
                some(0, r)
            else:
                e.loop(0, self.far, side, [], lambda n, _: some(n, r), name=name)

        def sums(n: Any, _: list[Any]) -> None:
            with self.ev.scope():
                first = e.add(g.first, e.mul(n, g.each))
                for k, q in enumerate(points):
                    self.across(q.on(name, first), self.place(g, n, k, 0))

        e.loop(0, e.lanes, near, [], row, name=name)
        e.loop(0, self.far, 1, [], sums, name=name)

    def place(self, g: Group, stretch: Any, point: int, row: Any) -> Any:
        """Where the sums of a row in memory and one of the tile are kept, lane by lane."""
        e = self.e
        n = e.add(e.mul(stretch, TOGETHER * e.lanes), e.add(row, point * e.lanes))
        return e.at(g.partial, e.mul(n, e.lanes), BYTES[self.of])

    def across(self, p: Point, partial: Any) -> None:
        """Sums of lanes, written as a vector along the rows in memory."""
        e, where = self.e, Point(p.at, self.s.rows)

        def sums(e: Emit, partial: Any) -> Any:
            return e.sums([e.read(self.of, partial, r * e.lanes, e.lanes) for r in range(e.lanes)])

        total = e.outlined(f"sums_{self.of}", sums, partial, result=type_of(self.of, e.lanes))
        self.ev.write_tile(self.tile, where, Val((e.add(self.start(where), total),)))

    def some(self, points: list[Point], rows: list[Any], sums: list[Any], turn: int) -> None:
        """The products of some rows in memory and some of the tile, summed lane by lane; past the last row, it is taken
        once more."""
        e, ev, s = self.e, self.ev, self.s
        last = e.add(ev.window(s.rows).count, -1)
        with ev.scope():
            own = [e.min(row, last) for row in rows]
            for row in own:
                self.hoist(points[0].on(s.rows, row))
            self.ahead(points[0], rows, turn, TOGETHER)
            pairs = self.pairs(len(rows), len(points))
            at = [points[q].on(s.rows, own[r]) for r, q in pairs]
            zero = constant(self.of, 0.0, e.lanes)
            totals = self.along(functools.partial(self.step, at), [zero] * len(at))
        for (r, q), total in zip(pairs, totals, strict=True):
            e.write(total, sums[r], q * e.lanes * e.lanes)

    def pairs(self, rows: int, points: int) -> list[tuple[int, int]]:
        """Rows in memory and of the tile, in the order of their products: memory is asked for all of its rows first, unless
        those are to be converted, which takes a register for each until the last product."""
        if self.narrow:
            return [(r, q) for r in range(rows) for q in range(points)]
        return [(r, q) for q in range(points) for r in range(rows)]

    def step(self, at: list[Point], k: Any, totals: list[Any]) -> list[Any]:
        """The sums with the products of one more vector of each row."""
        e, ev, s = self.e, self.ev, self.s
        count, out = ev.window(s.lanes).count, list[Any]()
        for p, total in zip(at, totals, strict=True):
            q = Point({**p.at, s.lanes: k}, s.lanes)
            new = self.product(ev.value(s.operand, q), ev.value(s.other, q), total)
            if isinstance(k, int) and k + e.lanes > count:
                inside = constants("i1", [int(k + n < count) for n in range(e.lanes)])
                new = e.select(inside, new, total)
            out.append(new)
        return out
