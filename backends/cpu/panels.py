"""Runs the stages of a plan: those on panels of lanes in a loop over panels, the others once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

from tilec.backends.cpu.blocks import Blocks
from tilec.backends.cpu.nests import Nests
from tilec.backends.cpu.parts import apart
from tilec.backends.cpu.plan import Segment, Stage
from tilec.backends.cpu.points import Point, Val, Window
from tilec.backends.cpu.rows import Rows
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.trim import Bound
from tilec.backends.cpu.vector import lanes_of, mangle
from tilec.ir import Load, Op, Store

FAR = 1 << 62
"""Further than any position: sums with it do not overflow."""


class Panels:
    """Runs plans. While a panel runs, the window of the streamed axis is cut to what the panel's lanes need; where there
    are no panels, to what the tile needs.

    `transpose`: rows in memory may be transposed in registers, which is faster and more code.
    """

    def __init__(self, nests: Nests, transpose: bool) -> None:
        self.nests, self.ev, self.e, self.transpose = nests, nests.ev, nests.e, transpose
        self.lane, self.vectors = nests.lane, nests.vectors
        self.blocks = Blocks(nests.ev, along=self.lane is None)

    def run(self, plan: Segment, axis: str | None, found: Sequence[Bound]) -> None:
        """Runs the stages as planned. `found` are bounds on the positions of the streamed `axis` that they need."""
        own = {axis, self.lane}
        usable = [b for b in found if {*self.ev.axes(b.low), *self.ev.axes(b.high)} <= own]
        if self.lane is None:
            with self.ev.scope(), self.moved(axis, usable):
                self.steps(plan, axis, [])
        else:
            self.steps(plan, axis, usable)

    def steps(self, plan: Segment, axis: str | None, usable: Sequence[Bound]) -> None:
        """The stages in their order."""
        for step in plan.steps:
            stages = [plan.stages[n] for n in step.stages]
            if step.panel:
                self.panel(stages, axis, usable)
            else:
                for stage in stages:
                    with self.e.of(self.principal(stage)):
                        self.once(stage)

    def principal(self, stage: Stage) -> Op | None:
        """The op that a stage is for."""
        kept = [self.ev.defs[x] for x in stage.kept if x in self.ev.defs]
        return next(
            iter([*([stage.root] if stage.root else []), *stage.reduces, *stage.stores, *kept]),
            None,
        )

    def panel(self, stages: Sequence[Stage], axis: str | None, found: Sequence[Bound]) -> None:
        """Stages that run one after another on each panel."""
        lane = self.lane
        assert lane is not None

        def body(i: Any, _: list[Any]) -> None:
            with self.ev.scope(), self.trimmed(lane, i, axis, found):
                for stage in stages:
                    with self.e.of(self.principal(stage)):
                        self.stage(lane, stage, i)

        width = self.vectors * self.e.lanes
        self.e.loop(0, self.ev.window(lane).count, width, [], body, name="panel")

    def stage(self, lane: str, stage: Stage, panel: Any) -> None:
        """One stage on a panel. Where it only loads or stores a tensor's rows, those are transposed in registers."""
        rows = Rows(self.ev, lane)
        name = stage.kept[0] if len(stage.kept) == 1 else ""
        op, tile = self.ev.defs.get(name), self.ev.held.get(name)
        calm = self.transpose and not stage.reduces and stage.root is None
        if calm and not stage.stores and isinstance(op, Load) and isinstance(tile, Tile):
            axis = rows.axis(op)
            if axis is not None:
                self.rows(stage, panel, rows, op, axis, lambda p: rows.load(op, axis, tile, p))
                return
        if calm and not stage.kept and len(stage.stores) == 1:
            store = stage.stores[0]
            axis = rows.axis(store)
            if axis is not None:
                self.rows(stage, panel, rows, store, axis, lambda p: rows.store(store, axis, p))
                return
        with apart(self.e.module, self.e.builder) if stage.again else nullcontext():
            self.nests.emit(stage, panel)

    def rows(
        self,
        stage: Stage,
        panel: Any,
        rows: Rows,
        op: Load | Store,
        axis: str,
        body: Callable[[Point], None],
    ) -> None:
        """A stage that only loads or stores rows, transposed where they are consecutive in memory."""

        def vector(p: Point) -> None:
            with self.ev.scope():
                self.nests.prepare(stage, p)
                body(p)

        self.e.branch(
            rows.condition(op, axis),
            lambda: rows.vectors(panel, self.vectors, vector),
            lambda: self.nests.emit(stage, panel),
            name="rows",
        )

    @contextmanager
    def trimmed(
        self, lane: str, panel: Any, axis: str | None, found: Sequence[Bound]
    ) -> Generator[None]:
        """The window of the streamed axis cut to what a panel's lanes need."""
        if axis is None or not found or self.ev.window(axis).scalar:
            yield
            return
        before = self.ev.windows[axis]
        point = Point({lane: panel, axis: 0}, lane, self.vectors)
        self.ev.windows[axis] = before.at(*self.needed(before, point, found))
        yield
        self.ev.windows[axis] = before

    @contextmanager
    def moved(self, axis: str | None, found: Sequence[Bound]) -> Generator[None]:
        """The window of the streamed axis cut to what a tile needs: it begins there, as lanes may lie along it."""
        if axis is None or not found or self.ev.window(axis).scalar:
            yield
            return
        e, before = self.e, self.ev.windows[axis]
        begin, end = self.needed(before, Point({axis: 0}), found)
        first, count = e.add(before.first, begin), e.sub(end, begin)
        self.ev.windows[axis] = replace(before, first=first, count=count)
        yield
        self.ev.windows[axis] = before

    def needed(self, window: Window, point: Point, found: Sequence[Bound]) -> tuple[Any, Any]:
        """The positions of a window within some bounds: the first one, and the end. `point`: its position 0."""
        e, ev = self.e, self.ev
        begin: Any = 0
        count: Any = window.count
        with ev.scope():
            for bound in found:
                low, high = ev.value(bound.low, point), ev.value(bound.high, point)
                far = not ev.small or not ev.facts.wide.isdisjoint({bound.low, bound.high})
                if bound.upper:
                    gap = self.across(high, low, e.max, far)
                    count = e.min(count, e.max(e.add(gap, bound.slack), 0))
                else:
                    gap = self.across(low, high, e.min, far)
                    begin = e.max(begin, e.add(gap, bound.slack))
        return begin if isinstance(begin, int) else e.min(begin, count), count

    def across(self, a: Val, b: Val, combine: Callable[[Any, Any], Any], far: bool) -> Any:
        """The largest or smallest difference of two integers in the lanes of a panel, FAR away at most. `far`: whether
        it may be further than 64 bits reach."""
        e = self.e
        a, b = (Val(tuple(e.convert(x, "i64") for x in v.parts)) for v in (a, b))
        parts = [
            self.difference(a.part(n), b.part(n), far)
            for n in range(max(len(a.parts), len(b.parts)))
        ]
        out = functools.reduce(combine, parts)
        out = e.across(combine, out) if lanes_of(out) else out
        return e.max(e.min(out, FAR), -FAR) if far else out

    def difference(self, a: Any, b: Any, far: bool) -> Any:
        """a - b of integers, the furthest one where it does not fit."""
        e = self.e
        if not far:
            return e.sub(a, b)
        a, b = e.match(a, b)
        return e.call_function(f"llvm.ssub.sat.{mangle(a.type)}", a.type, a, b)

    def once(self, stage: Stage) -> None:
        """A stage that is not on panels."""
        name = stage.kept[0] if len(stage.kept) == 1 else ""
        op, tile = self.ev.defs.get(name), self.ev.held.get(name)
        alone = not stage.reduces and not stage.stores
        if alone and isinstance(op, Load) and isinstance(tile, Tile):
            self.block(stage, name, op, tile)
        else:
            self.nests.emit(stage, None)

    def block(self, stage: Stage, name: str, op: Load, tile: Tile) -> None:
        """A block of a tensor."""
        block = self.blocks.find(op, tile)
        if block is None:
            self.nests.emit(stage, None)
            return
        base = self.blocks.bring(block, self.transpose)
        self.ev.held[name] = replace(tile, base=base)
