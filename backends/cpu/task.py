"""The code of a task: one tile of a grid.

Straight-line ops run as planned by `plan`; `for` and `if` become loops and branches around such stretches, and what they
carry lies in scratch, in tiles that are updated in place where nobody needs the old value any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tilec.backends.cpu.context import OWN, Context
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.nests import Nests
from tilec.backends.cpu.panels import Panels
from tilec.backends.cpu.parts import apart, repeated, shape
from tilec.backends.cpu.plan import Planner, Segment
from tilec.backends.cpu.points import Point, Window
from tilec.backends.cpu.registers import VECTORS
from tilec.backends.cpu.tiles import Scratch, Tile
from tilec.backends.cpu.trim import bounds
from tilec.backends.cpu.vector import POINTER, Emit
from tilec.backends.cpu.ways import row_axis
from tilec.backends.windows import extent_in
from tilec.dataflow import names_in, stretches, uses
from tilec.errors import UnsupportedError
from tilec.ir import (
    Body,
    Edge,
    For,
    Grid,
    If,
    Load,
    Map,
    Op,
    Operand,
    Yield,
    operands,
    walk,
)


class Task:
    """Emits the function that computes one tile of a grid.

    `exact`: by the exact rules; `watch`: it tells whether it stored NaN; `few`: for tiles of few rows, which are taken
    one after another; `dense`: elements along the last dimension of each tensor are consecutive.
    """

    def __init__(
        self,
        facts: Facts,
        context: Context,
        e: Emit,
        grid: Grid,
        number: int,
        exact: bool,
        watch: bool,
        few: bool = False,
        dense: bool = False,
    ) -> None:
        self.kernel, self.e, self.grid = facts.kernel, e, grid
        relaxed = facts.relaxed(grid) if watch else ()
        lossy = facts.lossy(grid) if watch else ()
        self.ev = Evaluator(e, facts, exact, relaxed, facts.degree(grid), watch, lossy)
        self.watch = watch
        self.pointer, scratch, self.task = e.function.args
        self.scratch = Scratch(e, scratch)
        self.context, self.number, self.dense = context, number, dense
        self.repeated = repeated(grid.body)
        rows = row_axis(grid)
        self.lane = None if few else rows
        e.counted = few
        self.streams: list[str] = []
        self.mine: set[str] = set()
        """The carried values of the present region: its arguments, and the results of its loops."""
        self.uses = Counter(
            x for op in walk(self.kernel.body) for x in operands(op) if isinstance(x, str)
        )
        self.nests = Nests(self.ev, self.lane, VECTORS, rows if few else None)
        self.panels = Panels(self.nests, transpose=not exact)

    def emit(self) -> int:
        """Emits it; gives the bytes of scratch that it needs."""
        for key in self.context.slots:
            if key[0] not in OWN:
                word = self.context.read(self.e, self.pointer, key)
                word = self.e.builder.inttoptr(word, POINTER) if key[0] == "pointer" else word
                self.ev.slots[key] = word
        if self.dense:
            self.ev.slots.update(dict.fromkeys(self.context.last, 1))
        if self.watch:
            self.ev.memory.found = self.e.allocate("i64", 1)
            self.e.write(self.e.index(0), self.ev.memory.found)
        self.windows()
        self.body(self.grid.body, [])
        found = self.ev.memory.found
        self.e.builder.ret(self.e.index(0) if found is None else self.e.read("i64", found))
        return self.scratch.most

    def windows(self) -> None:
        """The windows of the grid's axes: tasks count along the last one first, heavy ones before light ones."""
        e, b, left = self.e, self.e.builder, self.task
        for axis, tile in reversed(self.grid.axes):
            tiles = self.ev.slots["tiles", self.number, axis]
            place = b.urem(left, tiles)
            if grows(self.grid, axis, self.ev.defs):
                place = e.sub(e.add(tiles, -1), place)
            first = e.mul(place, tile)
            left = b.udiv(left, tiles)
            rest = e.sub(self.ev.slots["extent", axis], first)
            whole = self.kernel.extents[axis]
            known = isinstance(whole, int) and whole % tile == 0
            count = 1 if tile == 1 else tile if known else e.min(rest, tile)
            self.ev.windows[axis] = Window(first, count, tile, tile == 1)

    # ---- bodies

    def body(self, body: Body, out: Sequence[Tile], given: Iterable[str] = ()) -> None:
        """The ops of a region; what it yields goes to `out`. `given`: its arguments."""
        parts = stretches(body, (For, If))
        ends = next((op.values for op in body if isinstance(op, Yield)), ())
        held, outer = self.scratch.used, self.mine
        self.mine = set(given)
        for n, (run, control) in enumerate(parts):
            later: list[Op] = [] if control is None else [control]
            for ops, op in parts[n + 1 :]:
                later += ops if op is None else [*ops, op]
            last = not any(not isinstance(op, Yield) for op in later)
            names = {*uses(later), *names_in(ends)}
            ops = [op for op in run if not isinstance(op, Yield)]
            self.segment(ops, names, self.targets(ends, out) if last else {})
            rest = [op for op in later[1:] if not isinstance(op, Yield)]
            if isinstance(control, For):
                self.loop(control)
                self.mine.update(v.name for v in control.results)
            elif isinstance(control, If):
                self.branch(control, self.targets(ends, out) if not rest else {})
        self.deliver(ends, out)
        self.scratch.used, self.mine = held, outer

    def targets(self, ends: Sequence[Operand], out: Sequence[Tile]) -> dict[str, Tile]:
        """Where the values of a region may be computed in place: those that it yields once, and whose tile no other
        yielded value is read from."""
        found: dict[str, Tile] = {}
        for n, (x, tile) in enumerate(zip(ends, out, strict=True)):
            others = [y for k, y in enumerate(ends) if k != n]
            # what is not there yet and costs something will have a tile of its own by then
            late = [y for y in others if y in self.ev.held or self.ev.free(y)]
            if isinstance(x, str) and x not in others and not self.reads_any(late, tile):
                found[x] = tile
        return found

    def segment(self, ops: Sequence[Op], later: set[str], targets: Mapping[str, Tile]) -> None:
        """Straight-line ops, of which later parts of the program read the names `later`."""
        defined = {v.name for op in ops for v in op.results}
        inline = self.nests.streams.inline if self.lane is None else None
        plan = Planner(ops, self.lane, defined & later, self.ev.axes, self.ev.free, inline).plan()
        for op in plan.scalars:
            self.ev.held[op.result.name] = self.ev.value(op.result.name, Point({}))
        tiles: dict[str, Tile] = {}
        for n, stage in enumerate(plan.stages):
            for name in [*stage.kept, *(r.result.name for r in stage.reduces)]:
                target = targets.get(name)
                fits = (
                    target is not None
                    and name in stage.kept
                    and self.in_place(plan, n, name, target)
                )
                tiles[name] = target if fits and target else self.tile(name, name not in plan.local)
        self.ev.held.update(tiles)
        axis = self.streams[-1] if self.streams else None
        found = bounds(ops, axis, defined & later, self.ev.axes, self.ev.free) if axis else []
        self.panels.run(plan, axis, found)

    def in_place(self, plan: Segment, at: int, name: str, tile: Tile) -> bool:
        """Whether a value may overwrite the tile it is to end in: whoever reads the old one has done so by then, or does
        at the same point."""
        if not self.alike(name, tile):
            return False
        order = [n for step in plan.steps for n in step.stages]
        for n in order[order.index(at) :]:
            stage = plan.stages[n]
            if not self.reads_any(stage.roots(), tile) and not (
                stage.root and self.reads_any(operands(stage.root), tile)
            ):
                continue
            pointwise = set(stage.domain) == set(tile.axes)
            summed = stage.root is not None and self.reads_any((stage.root.x, stage.root.y), tile)
            if n != at or not pointwise or summed:
                return False
        return True

    def reads_any(self, xs: Iterable[Operand], tile: Tile) -> bool:
        """Whether one of the operands is computed from a tile."""
        return any(self.reads(x, [tile]) for x in xs)

    def alike(self, name: str, tile: Tile) -> bool:
        """Whether a value of this name fits a tile."""
        type = self.kernel.values[name].type
        kind, marked = self.ev.kind(name), name in self.ev.absent
        return set(type.axes) == set(tile.axes) and kind == tile.kind and marked == tile.marked

    def tile(self, name: str, whole: bool = True) -> Tile:
        """Scratch for a value."""
        type = self.kernel.values[name].type
        op, axes = self.ev.defs.get(name), type.axes
        if not isinstance(op, Load):
            # stages of a narrow tile run along other axes than its rows
            axes = sorted(axes, key=lambda a: a != self.nests.few)
        extents = {a: extent_in(self.kernel, type, a, "cpu") for a in axes}
        width, marked = VECTORS * self.e.lanes, name in self.ev.absent
        blocks = self.panels.blocks
        dense = isinstance(op, Load) and blocks.fits(op) and blocks.may_stay(op)
        return self.scratch.tile(
            self.ev.kind(name), extents, self.lane, width, whole, marked, dense
        )

    def deliver(self, values: Sequence[Operand], out: Sequence[Tile]) -> None:
        """Sets the tiles `out` to what a region yields, all at once."""
        moves = [(x, t) for x, t in zip(values, out, strict=True) if not self.lies_in(x, t)]
        if len(moves) > 1 and any(self.reads(x, out) for x, _ in moves):
            moves = [(self.aside(x, t), t) for x, t in moves]
        for x, tile in moves:
            self.nests.fill(tile, x)

    def lies_in(self, x: Operand, tile: Tile) -> bool:
        """Whether an operand is what this tile holds."""
        return isinstance(x, str) and self.ev.held.get(x) is tile

    def reads(self, x: Operand, tiles: Sequence[Tile]) -> bool:
        """Whether an operand is computed from one of these tiles when it is evaluated."""
        todo, seen = [x], set[str]()
        while todo:
            x = todo.pop()
            if not isinstance(x, str) or x in seen:
                continue
            seen.add(x)
            held = self.ev.held.get(x)
            if held is not None and any(held is t for t in tiles):
                return True
            if held is None and x in self.ev.defs:
                op = self.ev.defs[x]
                todo += () if isinstance(op, (For, If)) else operands(op)
        return False

    def aside(self, x: Operand, like: Tile) -> Operand:
        """A copy of an operand's value, under a name of its own."""
        name = f"aside {len(self.ev.held)}"
        extents = {a: self.ev.window(a).extent for a in like.axes}
        tile = self.scratch.tile(like.kind, extents, like.lane, like.width, True, like.marked)
        self.nests.fill(tile, x)
        self.ev.held[name] = tile
        self.ev.aside[name] = like.axes
        return name

    # ---- control flow

    def loop(self, op: For) -> None:
        """A streamed axis: its window moves, the carried values stay in their tiles."""
        e, ev = self.e, self.ev
        tiles = [self.carried(v.name, x) for v, x in zip(op.args, op.init, strict=True)]
        for names in (op.args, op.results):
            ev.held.update(zip((v.name for v in names), tiles, strict=True))
        extent = ev.slots["extent", op.axis]
        whole = self.kernel.extents[op.axis]
        if op.tile is None and not isinstance(whole, int):
            raise UnsupportedError(
                f"target cpu: the window of axis {op.axis} must have an extent; tile it"
            )
        step = op.tile or (whole if isinstance(whole, int) else 0)
        start = 0 if op.start is None else self.scalar(op.start)
        stop = extent if op.stop is None else self.scalar(op.stop)

        def body(first: Any, _: list[Any]) -> None:
            count = e.min(e.sub(extent, first), step) if op.ragged else step
            before = ev.windows.get(op.axis)
            ev.windows[op.axis] = Window(first, 1 if step == 1 else count, step, step == 1)
            self.streams.append(op.axis)
            with ev.scope():
                self.body(op.body, tiles, [v.name for v in op.args])
            self.streams.pop()
            if before is None:
                del ev.windows[op.axis]
            else:
                ev.windows[op.axis] = before

        if shape((op,)) in self.repeated:
            # loops that are alike may still begin at 0, or end where the axis does: a function of both cannot know
            start, stop = (e.builder.hidden(e.index(x)) for x in (start, stop))
        with self.shared((op,)):
            e.loop(start, stop, max(step, 1), [], body, name=f"for.{op.axis}")

    def carried(self, name: str, init: Operand) -> Tile:
        """The tile of a carried value, with its first value in it: the one that holds that where nobody else
        reads it."""
        if isinstance(init, str) and init in self.mine and self.uses[init] == 1:
            held = self.ev.held[init]
            if isinstance(held, Tile) and self.alike(name, held):
                return held
        tile = self.tile(name)
        self.nests.fill(tile, init)
        return tile

    def branch(self, op: If, targets: Mapping[str, Tile]) -> None:
        """One of two regions, by a scalar condition."""
        tiles = [
            targets[v.name]
            if v.name in targets and self.alike(v.name, targets[v.name])
            else self.tile(v.name)
            for v in op.results
        ]

        def arm(body: Body) -> None:
            with self.ev.scope(), self.shared(body):
                self.body(body, tiles)

        condition = self.e.convert(self.ev.value(op.cond, Point({})).parts[0], "i1")
        self.e.branch(condition, lambda: arm(op.then), lambda: arm(op.orelse))
        self.ev.held.update(zip((v.name for v in op.results), tiles, strict=True))

    @contextmanager
    def shared(self, body: Body) -> Generator[None]:
        """A body that occurs more than once is a function. It looks at where the window ends, as one of them may be at
        the end of the axis."""
        if shape(body) not in self.repeated:
            yield
            return
        e, ev, held = self.e, self.ev, dict(self.ev.windows)
        with self.scratch.rest(), apart(e.module, e.builder):
            for axis in self.streams:
                if not (w := held[axis]).scalar:
                    count = e.min(e.sub(ev.slots["extent", axis], w.first), w.extent)
                    ev.windows[axis] = replace(w, count=count)
            yield
        ev.windows.update(held)

    def scalar(self, x: Operand) -> Any:
        """An integer scalar."""
        if isinstance(x, int):
            return x
        return self.e.convert(self.ev.value(x, Point({})).parts[0], "i64")


def grows(grid: Grid, axis: str, defs: Mapping[str, Op]) -> bool:
    """Whether tasks look at more the further along an axis they are: only where their loops end depends on it."""
    loops = [op for op in grid.body if isinstance(op, For)]

    def follows(x: Operand | None) -> bool:
        match defs.get(x) if isinstance(x, str) else None:
            case Edge() as edge:
                return edge.axis == axis
            case Map(args=args):
                return any(map(follows, args))
            case _:
                return x == axis

    return bool(loops) and follows(loops[-1].stop) and not follows(loops[0].start)
