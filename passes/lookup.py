"""lookup: what each pair of positions looks up in a table is found once, in HBM, for what pairs have in common.

Requires: tiles (after prune). Changes: a load by an index that is computed from the positions of rows and of a streamed axis
is one of a buffer, which a grid of its own fills.

    grid(axes=[b:1, h:1, i:128]) {                   grid(axes=[h:1, j_i:256]) {
      for(axis=j, tile=128) {                          m = sub(j_i, M); … abs(m) …
        … t = abs(sub(j, i)) …                         x = load(T, t, h)
        x: f32[i:128, j:128] = load(T, t, h)           store(x_all, h, j_i, value=x)
                                              ->     }
                                                     grid(axes=[b:1, h:1, i:128]) {
                                                       for(axis=j, tile=128) {
                                                         n = add(sub(j, i), M)
                                                         x: f32[i:128, j:128] = load(x_all, h, n)

Where the index is the same for all pairs with the same difference of positions, as above, there is an element for each
difference. Where both axes are short, and something else in the grid does not matter, there is one for each pair.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.dataflow import definitions, names_in
from tilec.dtypes import kind
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Body,
    Cast,
    For,
    Grid,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    operands,
    rebuild,
    walk,
)
from tilec.passes.beforehand import Growing, Served, Table, served

SIDE_BY_SIDE = 256
"""The differences that are looked up side by side."""
SHORT = 128
"""The longest axes of which there is an element for each pair."""
MANY = 65
"""The rows of a tile from which on there are fewer differences than pairs, by much."""
COMPARE = frozenset(["lt", "le", "gt", "ge", "eq", "ne"])


def lookup(kernel: Kernel) -> Kernel:
    """The kernel whose tables are looked up once."""
    return served(kernel, _LookedUp)


class _LookedUp(Served[Table]):
    """The look-ups of one grid."""

    def __init__(self, by: Growing, grid: Grid, row: str) -> None:
        super().__init__(by, grid, row)
        self.known = definitions(walk(grid.body))
        self.single = {a for a, n in grid.axes if n == 1}

    def loop(self, op: For) -> For:
        """A loop whose windows look up what is there."""
        tiles = {**dict(self.grid.axes), op.axis: op.tile}
        return replace(op, body=self.body(op.body, op.axis, tiles))

    def body(self, body: Body, stream: str, tiles: Mapping[str, int | None]) -> Body:
        """A part of a window."""
        out: list[Op] = []
        for op in body:
            if isinstance(op, If):
                op = rebuild(op, region=lambda b: self.body(b, stream, tiles))
            elif isinstance(op, Load) and set(op.result.type.axes) == {self.row, stream}:
                *before, op = self.load(op, stream, tiles)
                out += before
            out.append(op)
        return tuple(out)

    def load(self, op: Load, stream: str, tiles: Mapping[str, int | None]) -> Iterator[Op]:
        """What takes the place of a load."""
        below = self.below(op)
        if below is None or all(self.is_sum(x) for x in op.index):
            yield op
            return
        emit = FoldingBuilder(self.by.kernel, self.by.taken, tiles)
        outer = tuple(a for a, _ in self.grid.axes if a in self.single & below)
        index: list[Operand]
        many = (tiles[self.row] or 0) >= MANY
        if many and self.slope(op.result.name, stream) == 0:
            value = self.by_difference(stream, outer).buffer(op.result.name, self.known)
            rows = emit.scalar(self.by.kernel.extents[self.row])
            index = [*outer, emit.fn("add", emit.fn("sub", stream, self.row), rows)]
        elif self.single - below and self.is_short(self.row) and self.is_short(stream):
            value = self.by_pair(stream, outer).buffer(op.result.name, self.known)
            index = [*outer, self.row, stream]
        else:
            yield op
            return
        emit.types[value.name] = value.type
        loaded = emit.load(value.name, *index)
        *before, last = emit.ops
        assert last.result.name == loaded
        yield from before
        yield replace(last, results=op.results, span=op.span)

    def below(self, op: Op) -> set[str] | None:
        """The names that a value is computed from, by what can be computed elsewhere as well; None where more is needed."""
        out: set[str] = set()
        for x in names_in(operands(op)):
            inner = self.known.get(x)
            more = self.below(inner) if isinstance(inner, (Load, Map, Cast)) else set[str]()
            if more is None or (inner is not None and not isinstance(inner, (Load, Map, Cast))):
                return None
            out |= {x} | more
        return out

    def is_sum(self, x: Operand) -> bool:
        """Whether an index is a position, or a sum of some, and so no dearer than one of a buffer."""
        op = self.known.get(x) if isinstance(x, str) else None
        return op is None or (
            isinstance(op, Map) and op.fn in ("add", "sub") and all(map(self.is_sum, op.args))
        )

    def is_short(self, axis: str) -> bool:
        """Whether an axis has a number of positions that is known, and not many."""
        extent = self.by.kernel.extents[axis]
        return isinstance(extent, int) and extent <= SHORT

    # ---- differences

    def slope(self, x: Operand, stream: str) -> int | None:
        """By how much a value grows when both positions grow by one; None where that is not known."""
        if x in (self.row, stream):
            return 1
        op = self.known.get(x) if isinstance(x, str) else None
        if op is None:
            return 0
        slopes = [self.slope(y, stream) for y in operands(op)]
        found = [s for s in slopes if s is not None]
        if len(found) < len(slopes):
            return None
        whole = kind(op.result.type.dtype) == "int"
        match op:
            case Map(fn="add") if whole:
                return sum(found)
            case Map(fn="sub") if whole:
                return found[0] - found[1]
            case Map(fn="neg") if whole:
                return -found[0]
            case Map(fn=fn) if fn in COMPARE:
                return 0 if found[0] == found[1] else None
            case _:
                return None if any(found) else 0

    def by_difference(self, stream: str, outer: tuple[str, ...]) -> Table:
        """The table with an element for each difference."""
        if ("by difference", stream, outer) not in self.tables:
            extents = self.by.kernel.extents
            count = ("add", extents[self.row], extents[stream])
            axis = self.by.axis(f"{stream}_{self.row}", count)
            table = Table(self.by, {**dict.fromkeys(outer, 1), axis: SIDE_BY_SIDE})
            rows = table.emit.scalar(self.by.kernel.extents[self.row])
            table.given = {self.row: 0, stream: table.emit.fn("sub", axis, rows)}
            self.tables["by difference", stream, outer] = table
        return self.tables["by difference", stream, outer]

    def by_pair(self, stream: str, outer: tuple[str, ...]) -> Table:
        """The table with an element for each pair."""
        if ("by pair", stream, outer) not in self.tables:
            axes = {**dict.fromkeys(outer, 1), self.row: 1, stream: SHORT}
            self.tables["by pair", stream, outer] = Table(self.by, axes)
        return self.tables["by pair", stream, outer]
