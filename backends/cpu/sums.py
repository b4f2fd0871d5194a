"""Streamed contractions whose lanes are kept: the products of some rows are added to a tile."""

from __future__ import annotations

from typing import Any

from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.streaming import TOGETHER, Form

SUMS = 8
"""Factors that are held in registers, or sums that are added to in turn."""
NEAR = 4
"""Rows in memory that are read side by side at most: with more, memory is no longer read in order."""


class Sums(Form):
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

        self.along(step, [])

    def some(self, p: Point, rows: list[Any], together: int) -> None:
        """Some rows in memory, for all rows of the tile."""
        s = self.s
        with self.ev.scope():
            for r in rows:
                self.hoist(p.on(s.rows, r))
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
                        total = self.product(x, y, total)
                    ev.write_tile(self.tile, q, Val((total,)))
            return []

        self.along(step, [])
