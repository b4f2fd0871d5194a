"""Streamed contractions whose lanes are kept: the products of some rows are added to a tile."""

from __future__ import annotations

from typing import Any

from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.streaming import TOGETHER, Form

HELD = 8
"""Factors that are held in registers, or sums."""
NEAR = 4
"""Rows in memory that are read side by side: with more, memory is no longer read in order. A power of two."""


class Sums(Form):
    """Lanes are kept: the products of a few rows in memory are added to the tile of the result."""

    def all(self, p: Point) -> None:
        """All rows in memory, for all rows of the tile."""
        e, s = self.e, self.s
        self.each_few(p, 1, self.first)
        few = self.rows or 1
        # where rows of the tile are taken in turns, each turn evaluates the operand again
        turn = TOGETHER if self.narrow else TOGETHER // 2
        together = few if few <= TOGETHER else turn
        count = self.ev.window(s.rows).count
        whole = count // NEAR * NEAR if isinstance(count, int) else e.and_(count, -NEAR)

        each: Any = 1
        if self.far > 1:
            known = isinstance(whole, int)
            each = whole // NEAR if known else e.lshr(whole, NEAR.bit_length() - 1)

        def some(i: Any, _: list[Any]) -> None:
            self.some(p, [e.add(i, e.mul(each, n)) for n in range(NEAR)], together)

        if self.far > 1:
            e.loop(0, each, 1, [], some, name=s.rows)
        else:
            e.loop(0, whole, NEAR, [], some, name=s.rows)
        e.loop(whole, count, 1, [], lambda i, _: self.some(p, [i], together), name=s.rows)

    def first(self, points: list[Point], _: int) -> None:
        """Sets the tile to what sums start from."""

        def step(k: Any, _: list[Any]) -> list[Any]:
            for p in points:
                q = Point({**p.at, self.s.lanes: k}, self.s.lanes)
                self.ev.write_tile(self.tile, q, Val((self.start(q),)))
            return []

        self.along(step, [])

    def some(self, p: Point, rows: list[Any], together: int) -> None:
        """Some rows in memory, for all rows of the tile."""
        s = self.s
        with self.ev.scope():
            for r in rows:
                self.hoist(p.on(s.rows, r))
            self.at_once(p, rows)
            if self.rows is None:
                self.ahead(p, rows, 0, together)

            def few(points: list[Point], turn: int) -> None:
                if self.rows is not None:
                    self.ahead(p, rows, turn, together)
                self.add(points, rows)

            self.each_few(p, together, few)

    def add(self, points: list[Point], rows: list[Any]) -> None:
        """Adds the products of some rows in memory and some of the tile, with the factors in registers, or with sums in
        registers where factors are too many."""
        if len(points) * len(rows) <= HELD:
            self.with_factors(points, rows)
            return
        e, s = self.e, self.s
        wide = HELD // len(points) * e.lanes
        count = self.ev.window(s.lanes).count
        whole = count // wide * wide

        def block(k: Any, _: list[Any]) -> None:
            at = [e.add(k, n) for n in range(0, wide, e.lanes)]
            self.with_sums(points, rows, at)

        e.loop(0, whole, wide, [], block, name=s.lanes)
        for k in range(whole, count, e.lanes):
            self.with_sums(points, rows, [k])

    def with_sums(self, points: list[Point], rows: list[Any], at: list[Any]) -> None:
        """The same for some vectors of a row."""
        ev, s = self.ev, self.s
        with ev.scope():
            where = [[Point({**p.at, s.lanes: k}, s.lanes) for k in at] for p in points]
            sums = [[ev.read_tile(self.tile, q).parts[0] for q in own] for own in where]
            for r in rows:
                for n, p in enumerate(points):
                    xs = [ev.value(s.operand, q.on(s.rows, r)) for q in where[n]]
                    y = self.factor(p.on(s.rows, r))
                    sums[n] = [self.product(x, y, z) for x, z in zip(xs, sums[n], strict=True)]
            for own, totals in zip(where, sums, strict=True):
                for q, total in zip(own, totals, strict=True):
                    ev.write_tile(self.tile, q, Val((total,)))

    def factor(self, p: Point) -> Val:
        """What a row is multiplied by, in all lanes."""
        x = self.ev.value(self.s.other, p)
        return Val((self.e.splat(self.e.convert(x.parts[0], self.of)),), x.marks)

    def with_factors(self, points: list[Point], rows: list[Any]) -> None:
        """Adds the products vector by vector."""
        ev, s = self.ev, self.s

        factors = [[self.factor(p.on(s.rows, r)) for r in rows] for p in points]

        def step(k: Any, _: list[Any]) -> list[Any]:
            with ev.scope():
                for p, own in zip(points, factors, strict=True):
                    q = Point({**p.at, s.lanes: k}, s.lanes)
                    (total,) = ev.read_tile(self.tile, q).parts
                    for r, y in zip(rows, own, strict=True):
                        x = ev.value(s.operand, q.on(s.rows, r))
                        total = self.product(x, y, total)
                    ev.write_tile(self.tile, q, Val((total,)))
            return []

        self.along(step, [])
