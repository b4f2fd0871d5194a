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

from tilec.dataflow import backward, definitions
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Body,
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
    operands,
    rebuild,
)
from tilec.passes.beforehand import Growing, Served, Table, served

WINDOWS = 256
"""The windows that are tested side by side."""


def survey(kernel: Kernel) -> Kernel:
    """The kernel whose windows are tested once."""
    return served(kernel, _Surveyed)


class _Surveyed(Served["_Tests"]):
    """The tests of one grid's windows."""

    def __init__(self, by: Growing, grid: Grid, row: str) -> None:
        super().__init__(by, grid, row)
        self.known = definitions(grid.body)

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

    def table(self, stream: str, tile: int, known: Mapping[str, Op], tests: list[str]) -> _Tests:
        """The table for the windows of a streamed axis; grid axes that its first tests do not know are not in it."""
        if (stream, tile) not in self.tables:
            used = {y for n in backward(tests, known) for y in operands(known[n])}
            outer = [a for a, n in self.grid.axes if n == 1 and a in used]
            sizes = {self.row: dict(self.grid.axes)[self.row], stream: tile}
            self.tables[stream, tile] = _Tests(self.by, outer, sizes)
        return self.tables[stream, tile]


class _Tests(Table):
    """What is found out of all windows: the truth values over some grid axes, tiles of rows, and windows."""

    def __init__(self, by: Growing, outer: list[str], sizes: Mapping[str, int]) -> None:
        extents = by.kernel.extents
        self.windows = {
            a: by.axis(f"{a}_w", ("floordiv", ("add", extents[a], n - 1), n))
            for a, n in sizes.items()
        }
        rows, columns = self.windows.values()
        super().__init__(by, {**dict.fromkeys(outer, 1), rows: 1, columns: WINDOWS})
        for a, n in sizes.items():
            first = self.emit.fn("mul", self.windows[a], n)
            last = self.emit.fn("sub", self.emit.scalar(by.kernel.extents[a]), 1)
            self.ends["first", a] = first
            self.ends["last", a] = self.emit.fn("min", self.emit.fn("add", first, n - 1), last)


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
