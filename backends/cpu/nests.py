"""Emits the stages of a plan: loop nests that compute, keep, reduce and store values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tilec.backends.cpu import ahead
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import absorbing_sum, kind_for, product
from tilec.backends.cpu.plan import Axes, Stage
from tilec.backends.cpu.points import Point, Val
from tilec.backends.cpu.registers import Product, row_tiles, rows_for, spread_for
from tilec.backends.cpu.streams import Streams
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.totals import combine, identity_of, tree
from tilec.backends.cpu.vector import Kind, constant
from tilec.ir import Contract, Map, Operand, Reduce, operands

RowTile = Callable[[Any, int, Sequence[Any]], list[Any]]
"""Emits a tile of rows: the first row, how many, and the sums so far."""


class Nests:
    """Emits stages. A panel stage gets the position on the lane axis at which its panel starts.

    `few`: an axis of few positions, not worth a vector.
    """

    def __init__(
        self, ev: Evaluator, lane: str | None, vectors: int, few: str | None = None
    ) -> None:
        self.ev, self.e, self.lane, self.vectors, self.few = ev, ev.e, lane, vectors, few
        self.streams = Streams(ev, few)

    def emit(self, stage: Stage, panel: Any | None) -> None:
        """The nest of one stage."""
        self.ev.computing = frozenset(stage.kept)
        if stage.alone and stage.root is not None:
            self.streams.emit(stage.root)
        else:
            self.nest(stage, panel)
        self.ev.computing = frozenset()

    def nest(self, stage: Stage, panel: Any | None) -> None:
        """The loops of a stage: on the panel of lanes that begins at `panel`, or on all positions where it is None."""
        overs = _overs(stage)
        kept = tuple(a for a in stage.domain if a not in overs)
        if panel is not None:
            assert self.lane is not None
            point = Point({self.lane: panel}, self.lane, self.vectors)
            with self.ev.scope():
                self.along(stage, kept, overs, point)
            return
        vector = self.vector_axis(stage.domain, kept)
        with self.ev.scope():
            if vector in overs:
                self.around(stage, kept, Point({}), lambda p: self.across(stage, overs, vector, p))
                return
            self.each_vector(vector, Point({}), lambda p: self.along(stage, kept, overs, p))

    def along(self, stage: Stage, kept: Axes, overs: Axes, p: Point) -> None:
        """The loops of a nest whose vector axis is settled."""
        product = self.product(stage, kept, overs, p)
        row = product.row if product else None
        rest = [a for a in kept if a not in (p.vector, row)]
        self.around(stage, rest, p, lambda q: self.inner(stage, overs, product, q))

    def vector_axis(self, domain: Axes, kept: Axes = ()) -> str | None:
        """The axis to lay along vectors where it is not the lane axis: the last one of more than one position that is
        not reduced; reduced or not where an axis has few positions."""
        wide = [a for a in domain if self.ev.window(a).extent != 1]
        others = [a for a in wide if a != self.few]
        if self.few is not None and others:
            return others[-1]
        return next((a for a in reversed(wide) if a in (kept or domain)), None)

    def each_vector(self, vector: str | None, p: Point, body: Callable[[Point], None]) -> None:
        """Runs along the vector axis of what is not in panels."""
        if vector is None:
            body(p)
            return

        def step(i: Any, _: list[Any]) -> None:
            with self.ev.scope():
                body(Point({**p.at, vector: i}, vector))

        count = self.ev.window(vector).count
        self.e.loop(0, count, self.e.lanes, [], step, name=vector)

    def across(self, stage: Stage, overs: Axes, vector: str, p: Point) -> None:
        """A point of the kept axes, where reductions run along the vector axis: a total per lane, combined at the end."""
        ev, e, window = self.ev, self.e, self.ev.window(vector)
        rest = [a for a in overs if a != vector]
        start = [x for r in stage.reduces for x in self.identity(r, Point(p.at, vector))]

        def along(q: Point, held: Sequence[Any]) -> list[Any]:
            def step(i: Any, totals: list[Any]) -> list[Any]:
                with ev.scope():
                    return self.point(stage, Point({**q.at, vector: i}, vector), totals)

            return e.loop(0, window.count, e.lanes, list(held), step, name=vector)

        for r, total in zip(stage.reduces, self.over(rest, p, start, along), strict=True):
            one = e.across(lambda a, b, fn=r.fn: combine(e, fn, a, b), total)
            ev.write_tile(self.tile(r.result.name), p, Val((one,)))

    def around(
        self, stage: Stage, axes: Sequence[str], p: Point, body: Callable[[Point], None]
    ) -> None:
        """Loops over axes, outermost first; what does not vary inside is computed before a loop."""
        self.prepare(stage, p)
        if not axes:
            body(p)
            return
        axis, *rest = axes

        def each(i: Any, _: list[Any]) -> None:
            with self.ev.scope():
                self.around(stage, rest, p.on(axis, i), body)

        window = self.ev.window(axis)
        self.e.loop(window.begin, window.count, 1, [], each, name=axis)

    def prepare(self, stage: Stage, p: Point) -> None:
        """Evaluates what the stage needs and what varies along the point's axes only, before the loops over others."""
        ev = self.ev
        bound = set(p.at)
        if bound >= set(stage.domain):
            return
        todo = stage.roots()
        if stage.root is not None and stage.root.init is not None:
            todo.append(stage.root.init)
        seen: set[str] = set()
        while todo:
            x = todo.pop()
            if not isinstance(x, str) or x in seen:
                continue
            seen.add(x)
            op = ev.defs.get(x)
            if set(ev.axes(x)) <= bound:
                unknown = isinstance(op, Reduce) and x not in ev.held
                if op is None or not (op is stage.root or unknown):
                    ev.value(x, p)
                continue
            shared = isinstance(op, Map) and op.fn == "div" and x in ev.relaxed
            for y in operands(op)[1:] if op is not None and shared else ():
                if set(ev.axes(y)) <= bound:
                    ev.reciprocal(y, p)
            if (
                op is not None
                and (x in ev.computing or x not in ev.held)
                and not isinstance(op, Contract)
            ):
                todo += operands(op)

    def inner(self, stage: Stage, overs: Axes, product: Product | None, p: Point) -> None:
        """A point of the kept axes: reductions run over the others."""
        start = [x for r in stage.reduces for x in self.identity(r, p)]
        if product is None:
            with self.e.counting():
                totals = self.over(overs, p, start, lambda q, held: self.point(stage, q, held))
        else:
            rest = [a for a in overs if a != product.row]
            totals = self.over(rest, p, start, lambda q, held: self.rows(stage, product, q, held))
        for r in stage.reduces:
            parts, totals = totals[: p.parts], totals[p.parts :]
            self.ev.write_tile(self.tile(r.result.name), p, Val(tuple(parts)))

    def point(self, stage: Stage, p: Point, totals: Sequence[Any]) -> list[Any]:
        """One point of the domain; gives the totals with its values added."""
        if stage.root is not None:
            self.ev.define(stage.root.result.name, p, self.contraction(stage.root, p))
        totals = self.reduced(stage, [p], totals)
        self.finish(stage, [p])
        return totals

    def finish(self, stage: Stage, points: Sequence[Point]) -> None:
        """Keeps and stores the values of points. All are read before one is written: a tile may be updated in place, and
        of points that are the same each would update it."""
        values = [(name, p, self.ev.value(name, p)) for p in points for name in stage.kept]
        for p in points:
            for op in stage.stores:
                self.ev.store(op, p)
        for name, p, value in values:
            self.ev.write_tile(self.tile(name), p, value)

    # ---- register tiles

    def product(self, stage: Stage, kept: Axes, overs: Axes, p: Point) -> Product | None:
        """The stage's contraction in register tiles, where it fits them."""
        root = stage.root
        if root is None or not root.over or p.vector is None:
            return None
        tiles = [self.ev.held.get(x) if isinstance(x, str) else None for x in (root.x, root.y)]
        on_lanes = [t for t in tiles if isinstance(t, Tile) and p.vector in t.axes]
        others = [t for t in tiles if isinstance(t, Tile) and p.vector not in t.axes]
        if len(on_lanes) != 1 or len(others) != 1:
            return None
        a, b = on_lanes[0], others[0]
        straight = a.lane in (None, p.vector) and b.lane is None
        consecutive = a.lane == p.vector or a.strides[p.vector] == 1
        plain = not a.marked and not b.marked and a.kind == b.kind == self.ev.float
        shared = all(k in a.axes and k in b.axes for k in root.over)
        if not (straight and consecutive and plain and shared):
            return None
        rows = [r for r in (overs or kept) if r in b.axes and r not in (*a.axes, self.few)]
        row = max(rows, key=lambda r: self.ev.window(r).extent, default=None)
        over = sorted(root.over, key=lambda k: self.ev.window(k).extent)
        return Product(a, b, tuple(over), row)

    def rows(self, stage: Stage, product: Product, p: Point, totals: Sequence[Any]) -> list[Any]:
        """All rows at a point of the other axes, in tiles of a few."""
        e, most = self.e, rows_for(self.e.machine, product.lanes.kind)
        if product.row is None:
            return self.row_tile(stage, product, [p], totals)
        axis = product.row
        begin, count = self.ev.window(axis).begin, self.ev.window(axis).count

        def tile(first: Any, rows: int, held: Sequence[Any]) -> list[Any]:
            with self.ev.scope():
                points = [p.on(axis, e.add(first, r)) for r in range(rows)]
                return self.row_tile(stage, product, points, held)

        held = list(totals)
        if isinstance(count, int) and isinstance(begin, int):
            return self.known_rows(axis, row_tiles(count, most), tile, held)
        whole = e.add(begin, e.mul(e.builder.udiv(e.sub(count, begin), e.index(most)), most))
        held = e.loop(begin, whole, most, held, lambda i, x: tile(i, most, x), name=axis)
        if not repeatable(stage):
            return e.loop(whole, count, 1, held, lambda i, x: tile(i, 1, x), name=axis)

        def last(first: Any, held: Sequence[Any]) -> list[Any]:
            # short of rows: the last one several times, which changes nothing
            with self.ev.scope():
                at = [e.min(e.add(first, r), e.add(count, -1)) for r in range(few)]
                points = [p.on(axis, i) for i in at]
                return self.row_tile(stage, replace(product, spread=True), points, held)

        few = spread_for(e.machine, product.lanes.kind)
        return e.loop(whole, count, few, held, last, name=axis)

    def known_rows(
        self, axis: str, tiles: Iterable[tuple[int, int, int]], tile: RowTile, held: list[Any]
    ) -> list[Any]:
        """Tiles of rows whose number is known: of each run the first row, the rows of a tile, and how many tiles."""
        for first, rows, many in tiles:
            if many == 1:
                held = tile(first, rows, held)
            else:
                end = first + rows * many
                held = self.e.loop(
                    first, end, rows, held, lambda i, x, rows=rows: tile(i, rows, x), name=axis
                )
        return held

    def row_tile(
        self, stage: Stage, product: Product, points: Sequence[Point], totals: Sequence[Any]
    ) -> list[Any]:
        """Some rows: the contraction, then what is made of it."""
        ev, root = self.ev, stage.root
        assert root is not None
        if product.row and not product.spread and points[0].vector == self.lane:
            ahead.ask(ev, points, product.row, self.vectors * self.e.lanes)
        windows = {k: ev.window(k) for k in root.over}
        start = [self.start(root, p) for p in points]
        sums = product.total(self.e, points, windows, start)
        for p, parts in zip(points, sums, strict=True):
            ev.define(root.result.name, p, self.ended(root, p, parts))
        totals = self.reduced(stage, points, totals)
        for some in [points] if product.spread else [[p] for p in points]:
            self.finish(stage, some)
        return totals

    # ---- loops that carry totals

    def over(
        self,
        axes: Sequence[str],
        p: Point,
        start: Sequence[Any],
        body: Callable[[Point, Sequence[Any]], list[Any]],
    ) -> list[Any]:
        """Loops over axes that carry totals."""
        if not axes:
            return body(p, start)
        axis, *rest = axes

        def each(i: Any, carried: list[Any]) -> list[Any]:
            with self.ev.scope():
                return self.over(rest, p.on(axis, i), carried, body)

        window = self.ev.window(axis)
        return self.e.loop(window.begin, window.count, 1, start, each, name=axis)

    def tile(self, name: str) -> Tile:
        """The scratch of a value that is kept."""
        tile = self.ev.held[name]
        assert isinstance(tile, Tile)
        return tile

    def fill(self, tile: Tile, x: Operand) -> None:
        """Sets all of a tile to an operand's value."""
        ev, e = self.ev, self.e
        if tile.lane is None:
            vector = self.vector_axis(tile.axes)
            rest = [a for a in tile.axes if a != vector]
            stage = Stage(tile.axes)

            def block(p: Point) -> None:
                self.each_vector(vector, p, lambda q: ev.write_tile(tile, q, ev.value(x, q)))

            with ev.scope():
                self.around(stage, rest, Point({}), block)
            return
        lane = tile.lane

        def panel(i: Any, _: list[Any]) -> None:
            rest = [a for a in tile.axes if a != lane]
            with ev.scope():
                p = Point({lane: i}, lane, self.vectors)
                self.around(
                    Stage(tile.axes), rest, p, lambda q: ev.write_tile(tile, q, ev.value(x, q))
                )

        e.loop(0, ev.window(lane).count, self.vectors * e.lanes, [], panel, name="panel")

    # ---- reductions

    def splat(self, kind: Kind, x: float, p: Point) -> list[Any]:
        """A number for each part of a point: vectors where the point has a vector axis, else scalars."""
        lanes = self.e.lanes if p.vector is not None else 0
        return [constant(kind, x, lanes)] * p.parts

    def identity(self, r: Reduce, p: Point) -> list[Any]:
        """What a reduction of nothing gives."""
        kind = kind_for(r.result.type.dtype, self.ev.float)
        return self.splat(kind, identity_of(r.fn, kind), p)

    def reduced(self, stage: Stage, points: Sequence[Point], totals: Sequence[Any]) -> list[Any]:
        """Totals with the values at some points added."""
        out: list[Any] = []
        parts = points[0].parts
        for n, r in enumerate(stage.reduces):
            kind = kind_for(r.result.type.dtype, self.ev.float)
            values = [self.ev.value(r.args[0], p) for p in points]
            for part in range(parts):
                total = totals[n * parts + part]
                xs = [self.e.like(self.e.convert(v.part(part), kind), total) for v in values]
                if points[0].vector in r.over:
                    xs = [self.within(points[0], x, identity_of(r.fn, kind)) for x in xs]
                out.append(tree(self.e, r.fn, [total, *xs]))
        return out

    def within(self, p: Point, x: Any, other: float) -> Any:
        """A vector of values, with `other` in the lanes past the window's end."""
        inside = self.ev.inside(p)
        return x if inside is None else self.e.select(inside[0], x, other)

    # ---- contractions

    def start(self, op: Contract, p: Point) -> list[Any]:
        """What a contraction's sum starts from."""
        zero = self.splat(kind_for(op.result.type.dtype, self.ev.float), 0, p)
        return zero if op.init is None or self.ev.late(op) else self.initial(op, zero, p)

    def initial(self, op: Contract, sums: Sequence[Any], p: Point) -> list[Any]:
        """What a contraction adds to, alike the sums."""
        assert op.init is not None
        init, kind = self.ev.value(op.init, p), kind_for(op.result.type.dtype, self.ev.float)
        return [self.e.like(self.e.convert(init.part(n), kind), x) for n, x in enumerate(sums)]

    def ended(self, op: Contract, p: Point, sums: Sequence[Any]) -> Val:
        """A contraction's result, from its sums."""
        if not self.ev.late(op):
            return Val(tuple(sums))
        pairs = zip(self.initial(op, sums, p), sums, strict=True)
        return Val(tuple(absorbing_sum(self.e, x, y) for x, y in pairs))

    def contraction(self, op: Contract, p: Point) -> Val:
        """The sum of products at a point, by loops over the summed axes."""
        ev, e = self.ev, self.e
        kind = kind_for(op.result.type.dtype, ev.float)
        start = self.start(op, p)

        def body(q: Point, totals: Sequence[Any]) -> list[Any]:
            x, y = ev.value(op.x, q), ev.value(op.y, q)
            return [
                product(
                    e,
                    (e.convert(x.part(n), kind), x.mark(n)),
                    (e.convert(y.part(n), kind), y.mark(n)),
                    total,
                )
                for n, total in enumerate(totals)
            ]

        with e.counting():
            return self.ended(op, p, self.over(op.over, p, start, body))


def repeatable(stage: Stage) -> bool:
    """Whether it changes nothing to compute a point of a stage several times."""
    return all(r.fn in ("max", "maxnum", "min", "any", "all") for r in stage.reduces)


def _overs(stage: Stage) -> Axes:
    """The axes that a stage's reductions run over; they agree."""
    return tuple(a for a in stage.domain if any(a in r.over for r in stage.reduces))
