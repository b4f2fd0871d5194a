"""From tile IR to CUDA C++: one kernel per grid, whose blocks take tasks (tiles of the grid) until none are left."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cpu.facts import Facts
from tilec.backends.cuda.simt.arguments import Arguments, storage
from tilec.backends.cuda.simt.functions import Val, convert, kind_for
from tilec.backends.cuda.simt.matrix import Matrices
from tilec.backends.cuda.simt.memory import Layout, Tile, allocate
from tilec.backends.cuda.simt.memory import tile as new_tile
from tilec.backends.cuda.simt.plan import Planner, Segment, names_in, split
from tilec.backends.cuda.simt.stages import Stages
from tilec.backends.cuda.simt.text import Names, Writer
from tilec.backends.cuda.simt.values import Evaluator, Point, Window
from tilec.dtypes import DType
from tilec.errors import UnsupportedError
from tilec.ir import (
    Body,
    Buffer,
    Contract,
    For,
    Grid,
    If,
    Kernel,
    Load,
    Op,
    Operand,
    Reduce,
    Type,
    Yield,
    operands,
    regions,
    used_names,
    walk,
)

MOST_THREADS = 256


@dataclass(frozen=True)
class Variable:
    """A carried scalar: a C variable that every thread holds."""

    name: str
    kind: str
    marked: bool


Place = Tile | Variable


@dataclass(frozen=True)
class Function:
    """A grid's kernel: its name, threads per block, dynamic shared memory in bytes, and workspace bytes per block."""

    name: str
    threads: int
    shared: int
    workspace: int


@dataclass(frozen=True)
class Module:
    """The CUDA text of a program, without the header, and its kernels by the number of their grid."""

    text: str
    functions: dict[int, Function]
    arguments: Arguments


def lower(kernel: Kernel, limit: int, skip: Collection[int] = ()) -> Module:
    """The code of a kernel in tiles (after place), for blocks of at most `limit` bytes of shared memory.

    `skip`: numbers of grids for which there is other code.

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    arguments, facts = Arguments(kernel), Facts(kernel)
    texts: list[str] = []
    functions: dict[int, Function] = {}
    for n, grid in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        if n not in skip:
            text, functions[n] = _Grid(kernel, facts, arguments, grid, n).emit(limit)
            texts.append(text)
    return Module("\n".join([arguments.declaration(), "", *texts]), functions, arguments)


class _Grid:
    """Writes the kernel of one grid."""

    def __init__(
        self, kernel: Kernel, facts: Facts, arguments: Arguments, grid: Grid, number: int
    ) -> None:
        self.kernel, self.grid, self.number = kernel, grid, number
        self.names = Names(used_names(kernel))
        self.w = Writer(self.names, 2)
        self.ev = Evaluator(kernel, facts, arguments, self.w, self.names)
        self.arguments = arguments
        self.threads = _threads(kernel, grid)
        self.matrices = Matrices(kernel, grid, facts.defs)
        self.stages = Stages(self.ev, self.threads, self.scratch, self.matrices)
        self.tiles: list[Tile] = []
        self.uses = _uses(kernel)
        self.name = self.names.fresh(f"{self.names.of(kernel.name)}_{number}")

    def emit(self, limit: int) -> tuple[str, Function]:
        """The text of the kernel, and how to launch it."""
        self.windows()
        self.prologue()
        self.body(self.grid.body, [])
        layout = allocate(self.tiles, limit)
        function = Function(self.name, self.threads, layout.shared, layout.workspace)
        return self.text(layout), function

    def text(self, layout: Layout) -> str:
        w = Writer(self.names)
        w.line(f"GLOBAL BOUNDS({self.threads}) {self.name}(const Args a) {{")
        w.line(f"  typedef {self.ev.real} real;")
        w.line(f"  constexpr int THREADS = {self.threads};")
        w.line(f"  SHARED(memory, {layout.shared});")
        if layout.workspace:
            spill = self.arguments.get("workspace")
            w.line(
                f"  unsigned char* const workspace = {spill} + tl::block_index() * {layout.workspace};"
            )
        for t in self.tiles:
            base = "workspace" if t.outside else "memory"
            extents = ", ".join(f"{a}:{n}" for a, n in t.extents.items() if a)
            w.line(
                f"  {t.ctype}* const {t.name} = ({t.ctype}*)({base} + {t.offset});  // [{extents}]"
            )
        tasks = self.arguments.get("tasks", str(self.number))
        w.line(
            f"  for (i64 task = tl::block_index(); task < {tasks}; task += tl::block_count()) {{"
        )
        return "\n".join([*w.lines, *self.w.lines, "  }", "}", ""])

    def windows(self) -> None:
        """The windows of the grid's axes: tasks count up along the last one first."""
        left = "task"
        for n, (axis, tile) in enumerate(reversed(self.grid.axes)):
            tiles = self.arguments.get("tiles", str(self.number), axis)
            at = left if n == len(self.grid.axes) - 1 else f"tl::mod({left}, {tiles})"
            self.window(axis, tile, at if tile == 1 else f"({at}) * {tile}")
            left = f"tl::floordiv({left}, {tiles})"

    def window(self, axis: str, tile: int, first: str, ragged: bool = True) -> None:
        """Declares the window of an axis that starts at `first`."""
        extent = self.arguments.get("extent", axis)
        if tile == 1:
            name = self.w.declare("i64", self.names.of(axis), first)
            self.ev.windows[axis] = Window(name, "1", 1, True)
            return
        start = self.w.declare("i64", self.names.with_suffix(axis, "_0"), first)
        count = str(tile)
        if ragged:
            count = self.w.declare(
                "int",
                self.names.with_suffix(axis, "_n"),
                f"(int)tl::least({tile}, {extent} - {start})",
            )
        self.ev.windows[axis] = Window(start, count, tile)

    def prologue(self) -> None:
        """The scalars of the program outside its grids that this one needs."""
        wanted = names_in([self.grid])
        outside = [op for op in self.kernel.body if not isinstance(op, (Grid, Buffer))]
        needed: list[Op] = []
        for op in reversed(outside):
            if any(v.name in wanted for v in op.results):
                needed.append(op)
                wanted |= names_in([op])
        for op in reversed(needed):
            self.scalar(op)

    def scalar(self, op: Op) -> None:
        name = op.result.name
        self.ev.held[name] = self.ev.value(name, Point({}))

    # ---- tiles

    def scratch(
        self,
        name: str,
        kind: str,
        extents: Mapping[str, int],
        marked: bool = False,
        ctype: str | None = None,
        packed: bool = False,
    ) -> Tile:
        """A new tile."""
        ctype = ctype or (self.ev.real if kind == "real" else kind)
        made = new_tile(name, ctype, extents, marked, packed)
        self.w.declared[0].add(made.name)
        made.first = made.last = self.ev.clock
        self.tiles.append(made)
        return made

    def tile(self, name: str, narrow: DType | None = None) -> Tile:
        """The tile of a value; what is loaded keeps its storage type, what tensor cores alone read gets theirs."""
        type = self.kernel.values[name].type
        extents = {a: self.extent(a, type) for a in type.axes}
        op = self.ev.defs[name]
        dtype = type.dtype if isinstance(op, Load) else narrow
        shapes = self.matrices.reading(name) if dtype else []
        ctype = storage(dtype) if dtype else None
        made = self.scratch(
            self.names.of(name),
            kind_for(type.dtype),
            extents,
            name in self.ev.facts.absent,
            ctype,
            bool(shapes),
        )
        made.summed = frozenset(s.depth for s in shapes)
        return made

    def extent(self, axis: str, type: Type) -> int:
        known = type.tile[type.axes.index(axis)]
        whole = self.kernel.extents[axis]
        if known is None and not isinstance(whole, int):
            raise UnsupportedError(
                f"target cuda: axis {axis} of {self.kernel.name} is held whole in a tile, so its extent must be known "
                "when the kernel is compiled; tile it"
            )
        return whole if known is None and isinstance(whole, int) else known or 0

    # ---- bodies

    def body(self, body: Body, out: Sequence[Place]) -> None:
        """The ops of a region; what it yields goes to `out`."""
        ends: Sequence[Operand] = ()
        if body and isinstance(body[-1], Yield):
            ends, body = body[-1].values, body[:-1]
        parts = split(body, (For, If))
        for n, (run, control) in enumerate(parts):
            later: list[Op] = [] if control is None else [control]
            for ops, op in parts[n + 1 :]:
                later += ops if op is None else [*ops, op]
            targets = self.targets(ends, out) if control is None else {}
            self.segment(run, names_in(later), ends, targets)
            places = (
                self.control_targets(control, ends, out, later[1:]) if control is not None else {}
            )
            if isinstance(control, For):
                self.loop(control, places)
            elif isinstance(control, If):
                self.branch(control, places)
        self.deliver(ends, out)

    def targets(self, ends: Sequence[Operand], out: Sequence[Place]) -> dict[str, Tile]:
        """Where values may be computed in place: those yielded once whose tile no other yielded value is read from."""
        found: dict[str, Tile] = {}
        for n, (x, place) in enumerate(zip(ends, out, strict=True)):
            others = [y for k, y in enumerate(ends) if k != n]
            if not isinstance(x, str) or not isinstance(place, Tile) or x in others:
                continue
            if not any(self.reads(y, place) for y in others):
                found[x] = place
        return found

    def control_targets(
        self, op: Op, ends: Sequence[Operand], out: Sequence[Place], later: Sequence[Op]
    ) -> dict[str, Tile]:
        """Where the results of a control op may lie: in the tile they are yielded to, where it is read by no later op."""
        found: dict[str, Tile] = {}
        for name, tile in self.targets(ends, out).items():
            if name not in {v.name for v in op.results}:
                continue
            after = [x for other in later for y in walk([other]) for x in operands(y)]
            if any(self.reads(x, tile) for x in after):
                continue
            if isinstance(op, For):
                n = [v.name for v in op.results].index(name)
                inside = [x for y in walk(op.body) for x in operands(y)]
                rest = [x for k, x in enumerate(op.init) if k != n]
                if self.lies_in(op.init[n], tile) and not any(
                    self.reads(x, tile) for x in [*inside, *rest]
                ):
                    found[name] = tile
            else:
                found[name] = tile
        return found

    def segment(
        self,
        ops: Sequence[Op],
        later: set[str],
        ends: Sequence[Operand],
        targets: Mapping[str, Tile],
    ) -> None:
        """Straight-line ops, of which later parts of the program read the names `later`."""
        if not ops:
            return
        yielded = {x for x in ends if isinstance(x, str)}
        defined = {v.name for op in ops for v in op.results}
        plan = Planner(ops, defined & (later | yielded), defined & yielded, self.ev.axes).plan()
        self.scalars(plan, 0)
        for n, stage in enumerate(plan.stages):
            for name in [*stage.kept, *(r.result.name for r in stage.reduces)]:
                target = targets.get(name)
                if (
                    target is not None
                    and name in stage.kept
                    and self.in_place(plan, n, name, target)
                ):
                    self.ev.held[name] = target
                else:
                    alone = name in stage.kept and name in plan.factors
                    self.ev.held[name] = self.tile(
                        name, self.matrices.only(name) if alone else None
                    )
            self.stages.emit(stage)
            self.settle(plan, n)
            self.scalars(plan, n + 1)

    def scalars(self, plan: Segment, place: int) -> None:
        for op in plan.scalars.get(place, []):
            self.stages.comment(op)
            self.scalar(op)

    def settle(self, plan: Segment, n: int) -> None:
        """Results without axes become scalars that every thread holds."""
        stage = plan.stages[n]
        names = [*stage.kept, *(r.result.name for r in stage.reduces)]
        scalars = [x for x in names if not self.kernel.values[x].type.axes]
        for name in scalars:
            tile = self.ev.held[name]
            assert isinstance(tile, Tile)
            value = self.ev.read(tile, Point({}))
            ctype = self.ev.real if value.kind == "real" else value.kind
            local = self.w.declare(ctype, self.names.with_suffix(name, "_all"), value.text)
            self.ev.held[name] = Val(local, value.kind, value.marked)
        if scalars:
            self.stages.sync()

    def in_place(self, plan: Segment, at: int, name: str, tile: Tile) -> bool:
        """Whether a value may overwrite the tile it is to end in: whoever reads the old one has done so by then, or does
        at the same point."""
        if not self.alike(name, tile):
            return False
        kept = {x for stage in plan.stages for x in stage.kept}
        for n in range(at, len(plan.stages)):
            stage = plan.stages[n]
            summed = stage.root is not None and self.reads_any(
                (stage.root.x, stage.root.y), tile, kept
            )
            pointwise = [x for x in stage.roots() if x not in stage.kept]
            pointwise += [y for x in stage.kept for y in operands(self.ev.defs[x])]
            if not summed and not self.reads_any(pointwise, tile, kept - set(stage.kept)):
                continue
            if n != at or set(stage.domain) != set(tile.axes) or summed:
                return False
        late = [op for place, ops in plan.scalars.items() if place > at for op in ops]
        return not any(self.reads_any(operands(op), tile, kept) for op in late)

    def reads_any(self, xs: Iterable[Operand], tile: Tile, kept: set[str]) -> bool:
        return any(self.reads(x, tile, kept) for x in xs)

    def alike(self, name: str, tile: Tile) -> bool:
        """Whether a value of this name fits a tile."""
        type = self.kernel.values[name].type
        kind = kind_for(type.dtype)
        ctype = self.ev.real if kind == "real" else kind
        same = set(type.axes) == set(tile.axes) and ctype == tile.ctype
        return (
            same
            and (name in self.ev.facts.absent) == tile.marked
            and not isinstance(self.ev.defs[name], Load)
        )

    def reads(self, x: Operand, tile: Tile, kept: Collection[str] = ()) -> bool:
        """Whether an operand is computed from a tile when it is evaluated. `kept`: names that are not evaluated anew."""
        if not isinstance(x, str) or x in kept:
            return False
        held = self.ev.held.get(x)
        if held is not None or x not in self.kernel.values:
            return held is tile
        return self.reads_any(operands(self.ev.defs[x]), tile, set(kept))

    def lies_in(self, x: Operand, place: Place) -> bool:
        return isinstance(x, str) and self.ev.held.get(x) is place

    # ---- what regions give

    def deliver(self, values: Sequence[Operand], out: Sequence[Place]) -> None:
        """Sets the places `out` to what a region yields, all at once."""
        moves = [
            (x, t)
            for x, t in zip(values, out, strict=True)
            if not self.lies_in(x, t) and not (isinstance(t, Variable) and self.is_variable(x, t))
        ]
        scalars = [(x, t) for x, t in moves if isinstance(t, Variable)]
        texts = [(t, self.scalar_text(x, t)) for x, t in scalars]
        held = [
            (t, self.w.declare(self.ctype(t), self.names.fresh(t.name + "_next"), s))
            for t, s in texts
        ]
        tiles = [(x, t) for x, t in moves if isinstance(t, Tile)]
        if any(
            self.reads(x, t)
            for n, (x, _) in enumerate(tiles)
            for k, (_, t) in enumerate(tiles)
            if k != n
        ):
            tiles = [(self.aside(x, t), t) for x, t in tiles]
        for x, tile in tiles:
            self.stages.fill(tile, x)
        for t, name in held:
            self.w.line(f"{t.name} = {name};")

    def is_variable(self, x: Operand, t: Variable) -> bool:
        held = self.ev.held.get(x) if isinstance(x, str) else None
        return isinstance(held, Val) and held.text == t.name

    def ctype(self, t: Variable) -> str:
        return self.ev.real if t.kind == "real" else t.kind

    def scalar_text(self, x: Operand, t: Variable) -> str:
        value = self.ev.value(x, Point({}))
        text = convert(value, t.kind, self.ev.real)
        return (
            f"tl::ordinary({text})" if t.marked and not value.marked and t.kind == "real" else text
        )

    def aside(self, x: Operand, like: Tile) -> Operand:
        """A copy of an operand's value, under a name of its own."""
        name = f"aside {len(self.ev.held)}"
        kind = "real" if like.ctype == self.ev.real else like.ctype
        tile = self.scratch(self.names.fresh("aside"), kind, like.extents, like.marked)
        self.stages.fill(tile, x)
        self.ev.held[name] = tile
        self.ev.other[name] = like.axes
        return name

    def place(self, name: str) -> Place:
        """Where a carried value lies."""
        type = self.kernel.values[name].type
        if type.axes:
            return self.tile(name)
        kind = kind_for(type.dtype)
        return Variable(self.names.with_suffix(name, "_now"), kind, name in self.ev.facts.absent)

    def hold(self, name: str, place: Place) -> None:
        self.ev.held[name] = (
            place if isinstance(place, Tile) else Val(place.name, place.kind, place.marked)
        )

    # ---- control flow

    def loop(self, op: For, given: Mapping[str, Tile]) -> None:
        """A streamed axis: its window moves, the carried values stay where they are."""
        self.stages.comment(op)
        places: list[Place] = []
        moves: list[tuple[Operand, Tile]] = []
        for arg, result, x in zip(op.args, op.results, op.init, strict=True):
            place: Place = (
                given.get(result.name) or self.adopted(x, arg.name) or self.place(arg.name)
            )
            if isinstance(place, Variable):
                self.w.line(f"{self.ctype(place)} {place.name} = {self.scalar_text(x, place)};")
                self.w.declared[-1].add(place.name)
            elif not self.lies_in(x, place):
                moves.append((x, place))
            places.append(place)
        for x, tile in moves:
            self.stages.fill(tile, x)
        for arg, result, place in zip(op.args, op.results, places, strict=True):
            self.hold(arg.name, place)
            self.hold(result.name, place)
        self.stream(op, places)

    def adopted(self, x: Operand, arg: str) -> Tile | None:
        """The tile of an initial value that nothing else uses."""
        held = self.ev.held.get(x) if isinstance(x, str) else None
        if (
            isinstance(held, Tile)
            and isinstance(x, str)
            and self.uses.get(x) == 1
            and self.alike(arg, held)
        ):
            return (
                held
                if not isinstance(self.ev.defs[x], For)
                or x in {v.name for v in self.ev.defs[x].results}
                else None
            )
        return None

    def stream(self, op: For, places: Sequence[Place]) -> None:
        extent = self.arguments.get("extent", op.axis)
        whole = self.kernel.extents[op.axis]
        if op.tile is None and not isinstance(whole, int):
            raise UnsupportedError(
                f"target cuda: the window of axis {op.axis} must have an extent; tile it"
            )
        self.ev.clock += 1
        before, start = self.ev.windows.get(op.axis), self.ev.clock
        if op.tile is None:
            assert isinstance(whole, int)
            with self.ev.scope():
                self.ev.windows[op.axis] = Window("0", str(whole), whole)
                self.body(op.body, places)
        else:
            first = "i64(0)" if op.start is None else self.integer(op.start)
            stop = extent if op.stop is None else f"tl::least({self.integer(op.stop)}, {extent})"
            at = self.names.with_suffix(op.axis, "_at")
            end = self.w.declare("i64", self.names.with_suffix(op.axis, "_end"), stop)
            with self.ev.scope(f"for (i64 {at} = {first}; {at} < {end}; {at} += {op.tile})"):
                self.window(op.axis, op.tile, at, op.ragged)
                self.body(op.body, places)
        self.ev.clock += 1
        for t in self.tiles:
            if t.first < start <= t.last:
                t.last = self.ev.clock
        for p in places:
            if isinstance(p, Tile):
                p.last = self.ev.clock
        self.ev.clock += 1
        if before is None:
            del self.ev.windows[op.axis]
        else:
            self.ev.windows[op.axis] = before

    def integer(self, x: Operand) -> str:
        return convert(self.ev.value(x, Point({})), "i64", self.ev.real)

    def branch(self, op: If, given: Mapping[str, Tile]) -> None:
        """One of two regions."""
        self.stages.comment(op)
        places: list[Place] = [given.get(v.name) or self.place(v.name) for v in op.results]
        for place in places:
            if isinstance(place, Variable):
                self.w.line(f"{self.ctype(place)} {place.name};")
                self.w.declared[-1].add(place.name)
        condition = convert(self.ev.value(op.cond, Point({})), "bool", self.ev.real)
        for head, region in ((f"if ({condition})", op.then), ("else", op.orelse)):
            held = dict(self.ev.held)
            with self.ev.scope(head):
                self.body(region, places)
            self.ev.held = held
        for v, place in zip(op.results, places, strict=True):
            self.hold(v.name, place)
        for p in places:
            if isinstance(p, Tile):
                p.last = max(p.last, self.ev.clock)


def _uses(kernel: Kernel) -> dict[str, int]:
    """How often each name is an operand."""
    out: dict[str, int] = {}
    for op in walk(kernel.body):
        for x in operands(op):
            if isinstance(x, str):
                out[x] = out.get(x, 0) + 1
    return out


def _threads(kernel: Kernel, grid: Grid) -> int:
    """Threads per block: as many as the largest tile has use for, at 8 elements each."""
    most = 1
    for op in walk(grid.body):
        if not isinstance(op, (Contract, Reduce, Load, For)) and regions(op):
            continue
        for v in op.results:
            size = 1
            for axis, n in zip(v.type.axes, v.type.tile, strict=True):
                whole = kernel.extents[axis]
                size *= n if n is not None else whole if isinstance(whole, int) else 1
            most = max(most, size)
    threads = 32
    while threads < MOST_THREADS and threads * 8 < most:
        threads *= 2
    return threads
