"""Sections: heads whose tiles are dealt out together, so that their keys stay in the L2 cache meanwhile.

Of the heads of a section those come first that share what they read for each row and position.

Those of the last section would end a launch alone, by a few long tiles. So the first rows of all heads, which are short
under a causal mask, are kept for the end.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tilec.dataflow import backward, definitions, names_in
from tilec.dtypes import SIZES
from tilec.ir import Absent, Edge, Load, Map, Op, Operand, Tensor, operands, walk
from tilec.scalar import Compiled, Number, Scalar, compiled, evaluate

if TYPE_CHECKING:
    from tilec.backends.cuda.hopper.structure import Structure

CACHE = 26 << 20
"""The bytes of streamed tensors that stay in the L2 cache while others come and go, of which each half keeps a copy."""
ROUND = 4
"""The tiles of a head that are under way at once, where there are many heads."""
SAMPLES = 16
"""The tiles that are looked at."""
AT_ONCE = 132
"""The tiles that a section has at least."""
EVEN = AT_ONCE * 3 // 2
"""The tiles that a section has at least if the cache holds them: of the last section the longest begin last but one else."""


def section(s: Structure, sizes: Mapping[str, Number], most: int) -> int:
    """The heads whose tiles are dealt out together: as many as the cache holds, but not too few tiles.

    `most`: of heads of which a tile may read all positions; where it reads a few, those of its neighbours do for many more.
    """
    return sections(s, most)(sizes)


def sections(s: Structure, most: int) -> Sections:
    """The sections of a kernel's calls."""
    extents = s.kernel.extents
    others = tuple((extents[a], n) for a, n in s.grid.axes if a != s.row)
    streamed = [s.kernel.tensors.get(n) for n in {t.tensor for t in s.rings}]
    held = [] if None in streamed else [_bytes(t) for t in streamed if t is not None]
    defs = definitions([*s.top, *s.prologue])
    starts = [_expression(f.start or 0, s.row, defs) for f in s.loops]
    stops = [
        _expression(f.stop, s.row, defs) if f.stop is not None else extents[s.stream]
        for f in s.loops
    ]
    known = None not in starts and None not in stops
    return Sections(
        most,
        s.rows,
        extents[s.row],
        extents[s.stream],
        others,
        each(s),
        tuple(held),
        tuple(x for x in starts if x is not None) if known else (),
        tuple(x for x in stops if x is not None) if known else (),
    )


def shared_along(s: Structure) -> tuple[str, ...]:
    """The axes of the grid along which tiles read the same elements for their rows and positions, such as a bias that all
    batches have. Tiles that differ in them alone are dealt out one after the other: memory is read for the first of them.
    Tables that positions only lead to are small."""
    defs = definitions([*s.top, *s.prologue, *(op for b in s.blocks for op in walk(b.loop.body))])

    def names(op: Load) -> set[str]:
        below = backward(set(names_in(op.index)), defs)
        return {*names_in(op.index), *(x for y in below for x in names_in(operands(defs[y])))}

    read = [
        names(op)
        for b in s.blocks
        for op in walk(b.middle)
        if isinstance(op, Load) and s.stream in op.index and s.row in op.result.type.axes
    ]
    others = (a for a, _ in s.grid.axes if a != s.row)
    return tuple(a for a in others if any(a not in names for names in read))


def late(s: Structure, sizes: Mapping[str, Number], most: int) -> int:
    """The tiles of each head that are dealt out after the sections, at most so many of all heads."""
    return late_rows(s, most)(sizes)


def late_rows(s: Structure, most: int) -> Late:
    """The late rows of a kernel's calls."""
    extents = s.kernel.extents
    others = tuple((extents[a], n) for a, n in s.grid.axes if a != s.row)
    return Late(most, s.rows, extents[s.row], others)


T = TypeVar("T")


def dealt(rows: Sequence[T], heads: int, section: int, late: int) -> Iterator[tuple[int, T]]:
    """The tiles in the order in which they are dealt out: of each head the `rows`, of which the first `late` come last."""
    for end in range(heads % section or section, heads + 1, section):
        some = range(max(0, end - section), end)
        yield from ((h, r) for r in reversed(rows[late:]) for h in some)
    yield from ((h, r) for r in reversed(rows[:late]) for h in range(heads))


@dataclass(frozen=True)
class Late:
    """The late rows of a kernel's calls, in tiles. `tile`: the rows of one; `rows`: how many there are; `others`: how far
    the other axes of the grid range, and their tiles."""

    most: int
    tile: int
    rows: Scalar
    others: tuple[tuple[Scalar, int], ...]

    @functools.cached_property
    def _numbers(self) -> tuple[Compiled, tuple[tuple[Compiled, int], ...]]:
        return compiled(self.rows), tuple((compiled(extent), n) for extent, n in self.others)

    def __call__(self, sizes: Mapping[str, Number]) -> int:
        """The tiles of each head."""
        rows, others = self._numbers
        heads = math.prod(-(-int(extent(sizes)) // n) for extent, n in others)
        return min(-(-int(rows(sizes)) // self.tile), self.most // max(1, heads))


@dataclass(frozen=True)
class Sections:
    """The sections of a kernel's calls, from expressions of their sizes.

    `tile`: the rows of a tile; `rows` and `positions`: how many there are; `others`: how far the other axes of the grid
    range, and their tiles; `each`: the bytes of a position; `held`: those of the streamed tensors; `starts`, `stops`: of the
    loops, of a tile between two rows.
    """

    most: int
    tile: int
    rows: Scalar
    positions: Scalar
    others: tuple[tuple[Scalar, int], ...]
    each: int
    held: tuple[Scalar, ...]
    starts: tuple[Scalar, ...]
    stops: tuple[Scalar, ...]

    @functools.cached_property
    def _lengths(self) -> tuple[Compiled, Compiled]:
        return compiled(self.positions), compiled(self.rows)

    @functools.cached_property
    def _ends(self) -> tuple[tuple[Compiled, ...], tuple[Compiled, ...]]:
        return tuple(map(compiled, self.starts)), tuple(map(compiled, self.stops))

    @functools.cached_property
    def _shared(self) -> tuple[tuple[tuple[Compiled, int], ...], tuple[Compiled, ...]]:
        others = tuple((compiled(extent), n) for extent, n in self.others)
        return others, tuple(map(compiled, self.held))

    def __call__(self, sizes: Mapping[str, Number]) -> int:
        """The heads of a section."""
        positions, rows = (int(x(sizes)) for x in self._lengths)
        near = max(1, min(positions, self.reach(sizes) + ROUND * self.tile))
        head = near * self.each // self.alike(sizes)
        tiles = max(1, -(-rows // self.tile))
        most = max(self.most * positions // near, -(-EVEN // tiles))
        return max(1, min(most, max(CACHE // max(1, head), -(-AT_ONCE // tiles))))

    def alike(self, sizes: Mapping[str, Number]) -> int:
        """As the function."""
        if not self.held:
            return 1
        others, each = self._shared
        heads = math.prod(-(-int(extent(sizes)) // n) for extent, n in others)
        held = sum(int(bytes(sizes)) for bytes in each)
        positions = int(self._lengths[0](sizes))
        return max(1, round(heads * positions * self.each / max(1, held)))

    def reach(self, sizes: Mapping[str, Number]) -> int:
        """The most positions from the first to the last one that a tile reads, of a few tiles; all where data decides."""
        positions, rows = (int(x(sizes)) for x in self._lengths)
        if not self.starts:
            return positions
        starts, stops = self._ends
        step = (
            rows // (SAMPLES * self.tile) | 1
        ) * self.tile  # an odd number of tiles: what repeats does so by powers of 2
        out, env = 0, dict(sizes)
        for origin in range(0, rows, step):
            env[_EDGES["first"]], env[_EDGES["last"]] = origin, min(origin + self.tile, rows) - 1
            try:
                start = min(int(x(env)) for x in starts)
                out = max(out, int(max(x(env) for x in stops)) - start)
            except KeyError:
                return positions
        return max(0, min(out, positions))


_EDGES = {"first": "(first)", "last": "(last)"}
"""The rows at the ends of a tile, among the names of an expression."""


def _expression(x: Operand, row: str, defs: Mapping[str, Op]) -> Scalar | None:
    """A scalar for the tile between two rows; None where data decides about it."""
    match defs.get(x) if isinstance(x, str) else None:
        case Map(fn=fn, args=args):
            parts = [_expression(y, row, defs) for y in args]
            return None if None in parts else (fn, *(p for p in parts if p is not None))
        case Edge(axis=axis, which=which) if axis == row:
            return _EDGES[which]
        case None if not isinstance(x, Absent):
            return x
        case _:
            return None


def heads(s: Structure, sizes: Mapping[str, Number]) -> int:
    """The tiles that differ in other axes than the row axis."""
    others = ((a, n) for a, n in s.grid.axes if a != s.row)
    return math.prod(-(-int(evaluate(s.kernel.extents[a], sizes)) // n) for a, n in others)


def each(s: Structure) -> int:
    """The bytes of a position that a tile streams."""
    return sum(t.width * SIZES[t.dtype] for t in s.rings)


def alike(s: Structure, sizes: Mapping[str, Number]) -> int:
    """The heads that share their keys, where the tensors are smaller than what all heads stream."""
    return sections(s, 1).alike(sizes)


def _bytes(t: Tensor) -> Scalar:
    out: Scalar = SIZES[t.dtype]
    for d in t.dims:
        out = ("mul", out, d)
    return out
