"""What a grid must look like to run on wgmma, and its parts under the names the plan gives them.

A row axis `i` is tiled by the grid; a stream axis `j` by one or more loops that carry the same values. In a block,

    head   s(i, j) = sum over f of q(i, f) · k(j, f)
    tail   a(i, e) = sum over j of p(i, j) · v(j, e)      added to a carried value; p is computed from the heads

and everything else is pointwise, per row, per column or scalar, or a reduction over j.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilec.backends.cuda.hopper.tiles import PARTS, Tile
from tilec.dataflow import backward, definitions
from tilec.ir import (
    Body,
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
    Type,
    Yield,
    operands,
    walk,
)


@dataclass(frozen=True)
class Head:
    """A contraction of two tiles in shared memory; `init`: the head it adds to."""

    name: str
    query: Tile
    key: Tile
    init: str | None


@dataclass(frozen=True)
class Tail:
    """A contraction of weights in registers with a tile in shared memory, added to the carried value of a slot."""

    name: str
    x: str
    value: Tile
    slot: int


@dataclass(frozen=True)
class Slot:
    """A carried value: per row, or an accumulator of `width` columns."""

    name: str
    type: Type
    init: Operand
    width: int = 0


@dataclass(frozen=True)
class Block:
    """What a loop does with a window: its heads, what is computed between, its tails; new values of the slots.

    `number`: the loop's place among the loops. `choice`: the tests of a window that lead to this block, and their answers.
    `others`: the numbers and choices of other blocks for which this one stands in.
    `bases`: what each accumulator is before the tails are added.
    """

    loop: For
    number: int
    choice: tuple[tuple[Operand, bool], ...]
    heads: tuple[Head, ...]
    middle: tuple[Op, ...]
    tails: tuple[Tail, ...]
    yields: tuple[Operand, ...]
    bases: dict[int, Operand]
    others: tuple[tuple[int, tuple[tuple[Operand, bool], ...]], ...] = ()

    @property
    def choices(self) -> tuple[tuple[int, tuple[tuple[Operand, bool], ...]], ...]:
        """The loops in which windows take this block, and the tests that lead to it there."""
        return (self.number, self.choice), *self.others

    @property
    def args(self) -> tuple[str, ...]:
        """The carried values as the block sees them."""
        return tuple(v.name for v in self.loop.args)


@dataclass(frozen=True)
class Structure:
    """A grid that fits."""

    kernel: Kernel
    grid: Grid
    row: str
    stream: str
    rows: int
    columns: int
    prologue: tuple[Op, ...]
    loops: tuple[For, ...]
    tests: tuple[Body, ...]
    blocks: tuple[Block, ...]
    epilogue: tuple[Op, ...]
    queries: tuple[Tile, ...]
    rings: tuple[Tile, ...]
    slots: tuple[Slot, ...]
    top: tuple[Op, ...] = field(default=())
    precise: bool = False

    @property
    def name(self) -> str:
        """The name of its kernel, one for each grid."""
        grids = (op for op in self.kernel.body if isinstance(op, Grid))
        return f"{self.kernel.name}_{next(n for n, op in enumerate(grids) if op is self.grid)}"

    @property
    def results(self) -> tuple[str, ...]:
        """The carried values after the last loop."""
        return tuple(v.name for v in self.loops[-1].results)

    @property
    def chosen(self) -> bool:
        """Whether data decides which windows count, and which block they take: a loading warp tests them."""
        return any(b.choice for b in self.blocks)

    @property
    def periodic(self) -> bool:
        """Whether a block looks at remainders of the streamed positions."""
        ops = (op for b in self.blocks for op in walk(b.middle))
        return any(
            isinstance(op, Map) and op.fn == "mod" and op.args[0] == self.stream for op in ops
        )

    @property
    def surveyed(self) -> bool:
        """Whether a table of tiles and windows says which of these count."""
        numbers = (
            [x for x in op.index if x not in self.kernel.extents]
            for ops in self.tests
            for op in ops
            if isinstance(op, Load) and op.tensor not in self.kernel.tensors
        )
        return any(len(x) > 1 for x in numbers)

    @property
    def watched(self) -> bool:
        """Whether results that are not finite may not be those of the program, and must be made again exactly.

        A weight may be absent: then a NaN or an infinity in the tile that it meets counts for nothing. Or elements may be
        beyond what their tile holds, or a weight under a stale maximum beyond its type where a factor is large.
        """
        special = any(
            _absent(t.x, b) or (_branches(b) and _has_factor(t.x, b))
            for b in self.blocks
            for t in b.tails
        )
        rounded = any(t.rounded for t in (*self.queries, *self.rings))
        return special or rounded or bool(self.doubtful)

    @property
    def doubtful(self) -> frozenset[str]:
        """The sums of rows that may not be those of the program where they are not finite: a weight is absent, and what it
        is multiplied with may be a NaN."""
        return frozenset(
            name
            for b in self.blocks
            for y, name in zip(b.yields, self.results, strict=True)
            if any(_absent(x, b) and not _plain(x, b) for x in _summands(y, b))
        )

    @property
    def weight_parts(self) -> int:
        """How many 16-bit parts add up to a weight."""
        return PARTS if self.precise else 1

    @property
    def descending(self) -> bool:
        """Whether the windows are taken from the last to the first: where they end at the rows.

        The first window then holds something that counts for each row, and a maximum that the later ones mostly leave where
        scores grow towards the row: reductions have no order.
        """
        defs = definitions([*self.top, *self.prologue])
        return any(
            isinstance(op, Edge) and op.axis == self.row and op.which == "last"
            for f in self.loops
            if isinstance(f.stop, str)
            for x in backward([f.stop], defs)
            if (op := defs.get(x)) is not None
        )

    def at(self, loop: int, n: str) -> str:
        """Where a window of a loop is, the `n`th that is taken, in generated code."""
        place = f"(windows_{loop} - 1 - {n})" if self.descending else n
        return f"start_{loop} + {place} * {self.columns}"

    @property
    def order(self) -> tuple[int, ...]:
        """The loops in the order in which they are taken."""
        loops = range(len(self.loops))
        return tuple(reversed(loops)) if self.descending else tuple(loops)

    @property
    def together(self) -> bool:
        """Whether a loading warp needs all its threads: for tests of windows, runs, or reductions over its rows."""
        reduced = any(isinstance(op, Reduce) for op in self.prologue)
        return self.chosen or reduced or any(t.run for t in self.rings)


def _absent(x: Operand, b: Block) -> bool:
    """Whether a mask decides about a value."""
    defs = _all_definitions(b)
    seen: set[Operand] = set()
    todo: list[Operand] = [x]
    while todo:
        y = todo.pop()
        op = defs.get(y) if isinstance(y, str) else None
        if op is None or y in seen:
            continue
        seen.add(y)
        if isinstance(op, Map) and op.fn == "select":
            return True
        for z in walk([op]):
            todo += operands(z)
    return False


def _all_definitions(b: Block) -> dict[str, Op]:
    """The op that defines each value between heads and tails, also in arms."""
    return definitions(walk(b.middle))


def _summands(y: Operand, b: Block) -> list[Operand]:
    """What the reductions that a value is computed from add up."""
    defs = _all_definitions(b)
    found = [defs[x] for x in backward([str(y)], defs)]
    return [op.args[0] for op in found if isinstance(op, Reduce) and op.fn == "sum"]


def _plain(x: Operand, b: Block) -> bool:
    """Whether a weight is nothing but an exponential, in each arm."""
    op = _all_definitions(b).get(str(x))
    if not isinstance(op, If):
        return isinstance(op, Map) and op.fn in ("exp", "exp2")
    n = [v.name for v in op.results].index(str(x))
    ends = [arm[-1] for arm in (op.then, op.orelse)]
    return all(isinstance(end, Yield) and _plain(end.values[n], b) for end in ends)


def _branches(b: Block) -> bool:
    """Whether a block has a stale maximum."""
    return any(isinstance(op, If) for op in b.middle)


def _has_factor(x: str, b: Block) -> bool:
    """Whether a weight is more than an exponential."""
    op = next((op for op in b.middle if any(v.name == x for v in op.results)), None)
    if not isinstance(op, If):
        return not (isinstance(op, Map) and op.fn in ("exp", "exp2"))
    end = op.orelse[-1]
    assert isinstance(end, Yield)
    y = end.values[[v.name for v in op.results].index(x)]
    inner = next((o for o in op.orelse if any(v.name == y for v in o.results)), None)
    return not (isinstance(inner, Map) and inner.fn in ("exp", "exp2"))
