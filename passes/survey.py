"""survey: what tests of windows find out from much data is found out once, in HBM.

Requires: tiles (after prune). Changes: a test of a window that looks at samples of it, or along other axes, is a load of a
truth value for each tile and window, which a grid of its own has found out.

    grid(axes=[b:1, h:1, i:64]) {                     grid(axes=[h:1, i_w:1, j_w:256]) {
      for(axis=j, tile=64) {                            … t: bool[j_w:256] = any(…, over=[i_s, j_s])
        … t: bool = any(…, over=[i_s, j_s])             store(t_all, h, i_w, j_w, value=t)
        if(t) { … } … }                          ->   }
    }                                                 grid(axes=[b:1, h:1, i:64]) {
                                                        for(axis=j, tile=64) {
                                                          m = floordiv(first(i), 64); n = floordiv(first(j), 64)
                                                          t: bool = load(t_all, h, m, n)
                                                          if(t) { … } … }

One thread tests a window where many wait for it: there that would take the time. Grid axes that no test knows share a table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.dataflow import backward, definitions, live
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Axis,
    Body,
    Buffer,
    Cast,
    Edge,
    For,
    Grid,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Type,
    Value,
    operands,
    rebuild,
)
from tilec.passes.specialise import fix
from tilec.renaming import fresh, used_names

WINDOWS = 256
"""The windows that are tested side by side."""


def survey(kernel: Kernel) -> Kernel:
    """The kernel whose windows are tested once."""
    surveyor = _Surveyor(kernel)
    body = tuple(x for op in kernel.body for x in surveyor.op(op))
    return replace(surveyor.kernel, body=body)


class _Surveyor:
    """Surveys the grids of a kernel. `kernel`: with the axes added so far."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.taken = kernel, used_names(kernel)
        self.top = frozenset(v.name for op in kernel.body for v in op.results)
        self.made: list[Op] = []

    def op(self, op: Op) -> Iterator[Op]:
        """What takes an op's place."""
        tiled = [(a, n) for a, n in op.axes if n > 1] if isinstance(op, Grid) else []
        if not isinstance(op, Grid) or len(tiled) != 1:
            yield op
            return
        new = _Grid(self, op, *tiled[0]).run()
        made, self.made = self.made, []
        yield from made
        yield new

    def axis(self, of: str, tile: int) -> str:
        """An axis of the windows of another one."""
        name = fresh(f"{of}_w", self.taken)
        count = fix(("floordiv", ("add", self.kernel.extents[of], tile - 1), tile), {})
        self.kernel = replace(self.kernel, axes=(*self.kernel.axes, Axis(name, count)))
        return name


class _Grid:
    """Surveys the loops of one grid, whose rows lie along an axis."""

    def __init__(self, surveyor: _Surveyor, grid: Grid, row: str, rows: int) -> None:
        self.by, self.grid, self.row, self.rows = surveyor, grid, row, rows
        self.known = definitions(grid.body)
        self.tables: dict[tuple[str, int], _Table] = {}

    def run(self) -> Grid:
        """The grid, as it was where no test is found."""
        body = tuple(self.loop(op) if isinstance(op, For) else op for op in self.grid.body)
        for table in self.tables.values():
            self.by.made += table.made()
        return replace(self.grid, body=live(body)) if self.tables else self.grid

    def loop(self, op: For) -> For:
        """A loop over windows that begins with tests."""
        known = {**self.known, **definitions(op.body)}
        tests = [x.cond for x in _branches(op.body) if isinstance(x.cond, str)]
        tests = [x for x in tests if self.asks(x, op.axis, known)]
        if op.tile is None or not tests:
            return op
        table = self.table(op.axis, op.tile, known, tests)
        found = {x: table.buffer(x, known) for x in tests}
        tiles = {**dict(self.grid.axes), op.axis: op.tile}
        emit = FoldingBuilder(self.by.kernel, self.by.taken, tiles)
        emit.types |= {v.name: v.type for v in found.values()}
        places = {
            w: emit.fn("floordiv", emit.end("first", a), tiles[a]) for a, w in table.windows.items()
        }
        loads = {
            x: emit.load(v.name, *(places.get(a, a) for a in v.type.axes)) for x, v in found.items()
        }
        return replace(op, body=(*emit.ops, *_with(op.body, loads)))

    def asks(self, x: str, stream: str, known: Mapping[str, Op]) -> bool:
        """Whether a test looks at more than scalars, and can be made for a window without looking at its positions."""
        ops = [known[n] for n in backward([x], known)]
        axes = {a for op in ops for v in op.results for a in v.type.axes}
        return (
            bool(axes)
            and axes.isdisjoint({self.row, stream})
            and all(isinstance(op, (Load, Map, Cast, Reduce, Edge)) for op in ops)
        )

    def table(self, stream: str, tile: int, known: Mapping[str, Op], tests: list[str]) -> _Table:
        """The table for the windows of a streamed axis; grid axes that its first tests do not know are not in it."""
        if (stream, tile) not in self.tables:
            used = {y for n in backward(tests, known) for y in operands(known[n])}
            outer = [a for a, n in self.grid.axes if n == 1 and a in used]
            self.tables[stream, tile] = _Table(self.by, outer, {self.row: self.rows, stream: tile})
        return self.tables[stream, tile]


class _Table:
    """What is found out of all windows: the truth values over some grid axes, tiles of rows, and windows."""

    def __init__(self, by: _Surveyor, outer: list[str], sizes: Mapping[str, int]) -> None:
        self.by = by
        self.windows = {a: by.axis(a, n) for a, n in sizes.items()}
        rows, columns = self.windows.values()
        self.grid = {**dict.fromkeys(outer, 1), rows: 1, columns: WINDOWS}
        self.emit = FoldingBuilder(by.kernel, by.taken, self.grid)
        self.ends: dict[tuple[str, str], Operand] = {}
        for a, n in sizes.items():
            first = self.emit.fn("mul", self.windows[a], n)
            last = self.emit.fn("sub", self.emit.scalar(by.kernel.extents[a]), 1)
            self.ends["first", a] = first
            self.ends["last", a] = self.emit.fn("min", self.emit.fn("add", first, n - 1), last)
        self.new: dict[str, Operand] = {}
        self.buffers: dict[Operand, Value] = {}

    def buffer(self, x: str, known: Mapping[str, Op]) -> Value:
        """The buffer with a test."""
        found = self.again(x, known)
        if found not in self.buffers:
            axes = tuple(self.grid)
            value = Value(fresh(f"{x}_all", self.by.taken), Type("bool", axes, (), "hbm"))
            self.buffers[found] = value
        return self.buffers[found]

    def again(self, x: Operand, known: Mapping[str, Op]) -> Operand:
        """An operand, computed for a window of which both ends are given."""
        op = known.get(x) if isinstance(x, str) else None
        if op is None or not isinstance(x, str):
            return x
        if x not in self.new:
            names = (y for y in operands(op) if isinstance(y, str))
            self.new[x] = self.copy(op, {y: self.again(y, known) for y in names})
        return self.new[x]

    def copy(self, op: Op, new: Mapping[str, Operand]) -> Operand:
        """An op with other operands; nothing is made twice."""

        def of(x: Operand) -> Operand:
            return new[x] if isinstance(x, str) else x

        if isinstance(op, Edge):
            return self.ends[op.which, op.axis]
        if isinstance(op, Map):
            return self.emit.fn(op.fn, *map(of, op.args))
        shape = replace(rebuild(op, of), results=(), span=None)
        return self.emit.once(shape, lambda: self.emit.again(op, new))

    def made(self) -> Iterator[Op]:
        """The buffers, and the grid that fills them."""
        yield from (Buffer((v,)) for v in self.buffers.values())
        axes = tuple(self.grid)
        stores = (Store((), v.name, axes, x) for x, v in self.buffers.items())
        body = live((*self.emit.ops, *stores))
        yield Grid((), axes=tuple(self.grid.items()), body=body)


def _branches(body: Body) -> Iterator[If]:
    """The tests that a window's body begins with, and those in these."""
    for op in body:
        if isinstance(op, If) and not op.relaxed:
            yield op
            yield from _branches(op.then)
            yield from _branches(op.orelse)


def _with(body: Body, names: Mapping[str, Operand]) -> Body:
    """The body with other tests."""

    def of(x: Operand) -> Operand:
        return names.get(x, x) if isinstance(x, str) else x

    return tuple(
        rebuild(op, of, lambda b: _with(b, names)) if isinstance(op, If) else op for op in body
    )
