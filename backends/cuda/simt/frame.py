"""What surrounds the ops of a grid: the windows of its axes, the scalars outside it, and the tiles it uses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from tilec.backends.cuda.simt.arguments import Arguments, storage
from tilec.backends.cuda.simt.functions import Val, kind_for
from tilec.backends.cuda.simt.matrix import Matrices
from tilec.backends.cuda.simt.memory import Tile
from tilec.backends.cuda.simt.memory import tile as new_tile
from tilec.backends.cuda.simt.stages import Stages
from tilec.backends.cuda.simt.values import Evaluator, Point, Window
from tilec.backends.cuda.simt.writer import Names, Writer
from tilec.backends.windows import extent_in
from tilec.dataflow import needed, uses
from tilec.dtypes import DType
from tilec.ieee import Facts
from tilec.ir import (
    Buffer,
    Contract,
    For,
    Grid,
    Kernel,
    Load,
    Op,
    Operand,
    Reduce,
    operands,
    regions,
    walk,
)
from tilec.renaming import used_names

MOST_THREADS = 256


@dataclass(frozen=True)
class Variable:
    """A carried scalar: a C variable that every thread holds."""

    name: str
    kind: str
    marked: bool


Place = Tile | Variable


class Frame:
    """Writes what surrounds the ops of a grid."""

    def __init__(
        self, kernel: Kernel, facts: Facts, arguments: Arguments, grid: Grid, number: int
    ) -> None:
        self.kernel, self.grid, self.number = kernel, grid, number
        self.names = Names(used_names(kernel))
        self.w = Writer(self.names, 2)
        self.ev = Evaluator(kernel, facts, arguments, self.w, self.names)
        self.arguments = arguments
        self.threads = threads_for(kernel, grid)
        self.matrices = Matrices(kernel, grid, facts.defs)
        self.stages = Stages(self.ev, self.threads, self.scratch, self.matrices)
        self.tiles: list[Tile] = []
        self.uses = uses(kernel.body)
        self.name = self.names.fresh(f"{self.names.of(kernel.name)}_{number}")

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
        outside = [op for op in self.kernel.body if not isinstance(op, (Grid, Buffer))]
        for op in needed(outside, uses([self.grid])):
            self.scalar(op)

    def scalar(self, op: Op) -> None:
        name = op.result.name
        self.ev.held[name] = self.ev.value(name, Point({}))

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
        extents = {a: extent_in(self.kernel, type, a, "cuda") for a in type.axes}
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

    def ctype(self, t: Variable) -> str:
        return self.ev.real if t.kind == "real" else t.kind

    def reads(self, x: Operand, tile: Tile, kept: Collection[str] = ()) -> bool:
        """Whether an operand is computed from a tile when it is evaluated. `kept`: names that are not evaluated anew."""
        if not isinstance(x, str) or x in kept:
            return False
        held = self.ev.held.get(x)
        if held is not None or x not in self.kernel.values:
            return held is tile
        return self.reads_any(operands(self.ev.defs[x]), tile, set(kept))

    def reads_any(self, xs: Iterable[Operand], tile: Tile, kept: set[str]) -> bool:
        return any(self.reads(x, tile, kept) for x in xs)

    def lies_in(self, x: Operand, place: Place) -> bool:
        return isinstance(x, str) and self.ev.held.get(x) is place

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


def threads_for(kernel: Kernel, grid: Grid) -> int:
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
