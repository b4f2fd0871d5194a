"""From tile IR to LLVM IR: a worker function per grid, which takes tasks until none are left.

A task is one tile of the grid. Its straight-line ops run as planned by `plan`; `for` and `if` become loops and branches
around such stretches, and what they carry lies in scratch.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import llvmlite.ir as llvm

from tilec.backends.cpu.context import COUNTER, TASKS, Context
from tilec.backends.cpu.expr import Evaluator, Point, Val
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.functions import kind_for
from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.nests import Nests
from tilec.backends.cpu.plan import Planner, Segment, Stage, names_in, split
from tilec.backends.cpu.tiles import Scratch, Tile, Window
from tilec.backends.cpu.trim import Bound, bounds
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, function, lanes_of
from tilec.errors import UnsupportedError
from tilec.ir import Body, For, Grid, If, Kernel, Load, Op, Operand, Type, Yield, operands, walk


@dataclass(frozen=True)
class Module:
    """The LLVM module of a kernel: one worker per grid, by name, and the scratch bytes that each worker needs."""

    text: str
    workers: tuple[str, ...]
    scratch: int


def lower(kernel: Kernel, machine: Machine) -> Module:
    """The code of a kernel in tiles (after place).

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    module = llvm.Module(name=kernel.name)
    context = Context(kernel)
    names: list[str] = []
    most = 0
    grids = [op for op in kernel.body if isinstance(op, Grid)]
    facts = Facts(kernel)
    for n, grid in enumerate(grids):
        tasks: list[Any] = []
        modes = facts.modes(grid)
        for exact in modes:
            name = f"task_{n}_{'exact' if exact else 'relaxed'}"
            task = function(
                module, name, [POINTER, POINTER, KINDS["i64"]], KINDS["i64"], internal=True
            )
            watch = not exact and len(modes) > 1
            most = max(
                most, _Task(facts, context, Emit(task, machine), grid, n, exact, watch).emit()
            )
            tasks.append(task)
        names.append(f"worker_{n}")
        _worker(function(module, names[-1], [POINTER, POINTER]), tasks, context, machine)
    return Module(str(module), tuple(names), most)


def _worker(f: Any, tasks: Sequence[Any], context: Context, machine: Machine) -> None:
    """Takes the number of a task from the counter and runs it, until there are no more.

    `tasks`: the code of a task; where there are two, the second is for when the first finds NaN.
    """
    e = Emit(f, machine)
    b, (pointer, scratch) = e.builder, f.args
    count = context.read(e, pointer, TASKS)
    again, run, end = (f.append_basic_block(name) for name in ("next", "run", "end"))
    b.branch(again)
    b.position_at_end(again)
    counter = e.at(pointer, context.slots[COUNTER], 8)
    n = b.atomic_rmw("add", counter, e.index(1), "monotonic")
    b.cbranch(e.compare("<", n, count), run, end)
    b.position_at_end(run)
    found = b.call(tasks[0], [pointer, scratch, n])
    if len(tasks) > 1:
        e.branch(
            e.compare("!=", found, 0), lambda: b.call(tasks[1], [pointer, scratch, n]) and None
        )
    b.branch(again)
    b.position_at_end(end)
    b.ret_void()


class _Task:
    """Emits the function that computes one tile of a grid."""

    def __init__(
        self,
        facts: Facts,
        context: Context,
        e: Emit,
        grid: Grid,
        number: int,
        exact: bool,
        watch: bool,
    ) -> None:
        self.kernel, self.e, self.grid = facts.kernel, e, grid
        self.ev = Evaluator(e, facts, exact, facts.relaxed(grid) if watch else ())
        self.watch = watch
        self.pointer, scratch, self.task = e.function.args
        self.scratch = Scratch(e, scratch)
        self.context, self.number = context, number
        self.lane = lane_axis(grid)
        self.vectors = 2
        self.streams: list[str] = []
        self.bounds: list[Bound] = []
        self.uses = Counter(
            x for op in walk(self.kernel.body) for x in operands(op) if isinstance(x, str)
        )
        self.nests = Nests(self.ev, self.lane, self.vectors)

    def emit(self) -> int:
        """Emits it; gives the bytes of scratch that it needs."""
        for key in self.context.slots:
            if key not in (COUNTER, TASKS):
                word = self.context.read(self.e, self.pointer, key)
                word = self.e.builder.inttoptr(word, POINTER) if key[0] == "pointer" else word
                self.ev.slots[key] = word
        if self.watch:
            self.ev.found = self.e.allocate("i64", 1)
            self.e.write(self.e.index(0), self.ev.found)
        self.windows()
        self.body(self.grid.body, [])
        found = self.ev.found
        self.e.builder.ret(self.e.index(0) if found is None else self.e.read("i64", found))
        return self.scratch.most

    def windows(self) -> None:
        """The windows of the grid's axes: tasks count up along the last one first."""
        e, b, left = self.e, self.e.builder, self.task
        for axis, tile in reversed(self.grid.axes):
            tiles = self.ev.slots["tiles", self.number, axis]
            first = e.mul(b.urem(left, tiles), tile)
            left = b.udiv(left, tiles)
            rest = e.sub(self.ev.slots["extent", axis], first)
            count = 1 if tile == 1 else e.min(rest, tile)
            self.ev.windows[axis] = Window(first, count, tile, tile == 1)

    # ---- bodies

    def body(self, body: Body, out: Sequence[Tile]) -> None:
        """The ops of a region; what it yields goes to `out`."""
        parts = split(body, (For, If))
        ends = next((op.values for op in body if isinstance(op, Yield)), ())
        held = self.scratch.used
        for n, (run, control) in enumerate(parts):
            later: list[Op] = [] if control is None else [control]
            for ops, op in parts[n + 1 :]:
                later += ops if op is None else [*ops, op]
            last = not any(not isinstance(op, Yield) for op in later)
            names = names_in(later) | {x for x in ends if isinstance(x, str)}
            ops = [op for op in run if not isinstance(op, Yield)]
            self.segment(ops, names, self.targets(ends, out) if last else {})
            rest = [op for op in later[1:] if not isinstance(op, Yield)]
            if isinstance(control, For):
                self.loop(control)
            elif isinstance(control, If):
                self.branch(control, self.targets(ends, out) if not rest else {})
        self.deliver(ends, out)
        self.scratch.used = held

    def targets(self, ends: Sequence[Operand], out: Sequence[Tile]) -> dict[str, Tile]:
        """Where the values of a region may be computed in place: those that it yields once, and whose tile no other
        yielded value is read from."""
        found: dict[str, Tile] = {}
        for n, (x, tile) in enumerate(zip(ends, out, strict=True)):
            others = [y for k, y in enumerate(ends) if k != n]
            if (
                isinstance(x, str)
                and x not in others
                and not any(self.reads(y, [tile]) for y in others)
            ):
                found[x] = tile
        return found

    def segment(self, ops: Sequence[Op], later: set[str], targets: Mapping[str, Tile]) -> None:
        """Straight-line ops, of which later parts of the program read the names `later`."""
        defined = {v.name for op in ops for v in op.results}
        plan = Planner(ops, self.lane, defined & later, self.ev.axes, self.ev.free).plan()
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
        self.bounds = self.limits(ops, defined & later)
        self.steps(plan)

    def limits(self, ops: Sequence[Op], escaping: set[str]) -> list[Bound]:
        """What bounds the positions of the innermost streamed axis that these ops need."""
        if not self.streams or self.lane is None:
            return []
        axis = self.streams[-1]
        if self.ev.window(axis).scalar:
            return []
        found = bounds(ops, axis, escaping, self.ev.axes, self.ev.free)
        return [
            b for b in found if {*self.ev.axes(b.low), *self.ev.axes(b.high)} <= {axis, self.lane}
        ]

    @contextmanager
    def trimmed(self, panel: Any) -> Generator[None]:
        """The window of the streamed axis cut to what a panel's lanes need."""
        if not self.bounds or self.lane is None:
            yield
            return
        e, ev, axis = self.e, self.ev, self.streams[-1]
        before = ev.windows[axis]
        point = Point({self.lane: panel, axis: 0}, self.lane, self.vectors)
        begin: Any = 0
        count: Any = before.count
        with ev.scope():
            for bound in self.bounds:
                low, high = ev.value(bound.low, point), ev.value(bound.high, point)
                if bound.upper:
                    gap = self.across(high, low, e.max)
                    count = e.min(count, e.max(e.add(gap, bound.slack), 0))
                else:
                    gap = self.across(low, high, e.min)
                    begin = e.max(begin, e.add(gap, bound.slack))
        count = e.index(count)
        begin = begin if isinstance(begin, int) else e.min(begin, count)
        ev.windows[axis] = replace(before, begin=begin, count=count)
        yield
        ev.windows[axis] = before

    def across(self, a: Val, b: Val, combine: Callable[[Any, Any], Any]) -> Any:
        """The largest or smallest difference of two integers in the lanes of a panel."""
        e = self.e
        parts = [e.sub(a.part(n), b.part(n)) for n in range(max(len(a.parts), len(b.parts)))]
        out = functools.reduce(combine, parts)
        return e.across(combine, out) if lanes_of(out) else out

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
        return any(self.reads(x, [tile]) for x in xs)

    def alike(self, name: str, tile: Tile) -> bool:
        """Whether a value of this name fits a tile."""
        type = self.kernel.values[name].type
        kind = kind_for(type.dtype, self.ev.float)
        marked = name in self.ev.absent
        return set(type.axes) == set(tile.axes) and kind == tile.kind and marked == tile.marked

    def steps(self, plan: Segment) -> None:
        """Runs the stages as planned."""
        for step in plan.steps:
            stages = [plan.stages[n] for n in step.stages]
            if not step.panel:
                for stage in stages:
                    self.once(stage)
                continue

            def panel(i: Any, _: list[Any], stages: Sequence[Stage] = stages) -> None:
                with self.ev.scope(), self.trimmed(i):
                    for stage in stages:
                        self.nests.emit(stage, i)

            assert self.lane is not None
            width = self.vectors * self.e.lanes
            self.e.loop(0, self.ev.window(self.lane).count, width, [], panel, name="panel")

    def once(self, stage: Stage) -> None:
        """A stage that is not on panels. A block of a tensor that lies in memory as it would in scratch stays there."""
        name = (
            stage.kept[0]
            if len(stage.kept) == 1 and not stage.reduces and not stage.stores
            else None
        )
        op = self.ev.defs[name] if name else None
        tile = self.ev.held[name] if name else None
        if name is None or not isinstance(op, Load) or not isinstance(tile, Tile):
            self.nests.emit(stage, None)
            return
        there = self.ev.dense(op, tile)
        if there is None:
            self.nests.emit(stage, None)
            return
        condition, address = there

        def copy() -> list[Any]:
            self.nests.emit(stage, None)
            return [tile.base]

        (base,) = self.e.branch(condition, lambda: [address], copy, name="copy")
        self.ev.held[name] = replace(tile, base=base)

    def tile(self, name: str, whole: bool = True) -> Tile:
        """Scratch for a value."""
        type = self.kernel.values[name].type
        extents = {a: self.extent(a, type) for a in type.axes}
        kind = kind_for(type.dtype, self.ev.float)
        width = self.vectors * self.e.lanes
        return self.scratch.tile(kind, extents, self.lane, width, whole, name in self.ev.absent)

    def extent(self, axis: str, type: Type) -> int:
        known = type.tile[type.axes.index(axis)]
        whole = self.kernel.extents[axis]
        if known is None and not isinstance(whole, int):
            raise UnsupportedError(
                f"target cpu: axis {axis} of {self.kernel.name} is held whole in a tile, so its extent must be known when "
                f"the kernel is compiled; tile it"
            )
        return whole if known is None and isinstance(whole, int) else known or 0

    def deliver(self, values: Sequence[Operand], out: Sequence[Tile]) -> None:
        """Sets the tiles `out` to what a region yields, all at once."""
        moves = [(x, t) for x, t in zip(values, out, strict=True) if not self.lies_in(x, t)]
        if len(moves) > 1 and any(self.reads(x, out) for x, _ in moves):
            moves = [(self.aside(x, t), t) for x, t in moves]
        for x, tile in moves:
            self.nests.fill(tile, x)

    def lies_in(self, x: Operand, tile: Tile) -> bool:
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
                self.body(op.body, tiles)
            self.streams.pop()
            if before is None:
                del ev.windows[op.axis]
            else:
                ev.windows[op.axis] = before

        e.loop(start, stop, max(step, 1), [], body, name=f"for.{op.axis}")

    def carried(self, name: str, init: Operand) -> Tile:
        """The tile of a carried value, with its first value in it: that of another loop's result where nobody else reads
        it."""
        held = self.ev.held.get(init) if isinstance(init, str) else None
        if isinstance(init, str) and isinstance(held, Tile) and self.alike(name, held):
            if isinstance(self.ev.defs[init], For) and self.uses[init] == 1:
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
            with self.ev.scope():
                self.body(body, tiles)

        condition = self.e.convert(self.ev.value(op.cond, Point({})).parts[0], "i1")
        self.e.branch(condition, lambda: arm(op.then), lambda: arm(op.orelse))
        self.ev.held.update(zip((v.name for v in op.results), tiles, strict=True))

    def scalar(self, x: Operand) -> Any:
        """An integer scalar."""
        if isinstance(x, int):
            return x
        return self.e.convert(self.ev.value(x, Point({})).parts[0], "i64")


def lane_axis(grid: Grid) -> str | None:
    """The axis to lay in vector lanes: of the grid's axes with more than one position in a tile, the last."""
    wide = [axis for axis, tile in grid.axes if tile > 1]
    return wide[-1] if wide else None
