"""Sections: heads whose tiles are dealt out together, so that their keys stay in the L2 cache meanwhile.

Those of the last section would end a launch alone, by a few long tiles. So the first rows of all heads, which are short
under a causal mask, are kept for the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

from tilec.backends.cuda.hopper.structure import Structure
from tilec.dataflow import definitions
from tilec.dtypes import SIZES
from tilec.ir import Absent, Edge, Map, Op, Operand, Tensor
from tilec.scalar import Number, Scalar, compiled, evaluate

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
    return Sections(s, most)(sizes)


def late(s: Structure, sizes: Mapping[str, Number], most: int) -> int:
    """The tiles of each head that are dealt out after the sections, at most so many of all heads."""
    return Late(s, most)(sizes)


T = TypeVar("T")


def dealt(rows: Sequence[T], heads: int, section: int, late: int) -> Iterator[tuple[int, T]]:
    """The tiles in the order in which they are dealt out: of each head the `rows`, of which the first `late` come last."""
    for end in range(heads % section or section, heads + 1, section):
        some = range(max(0, end - section), end)
        yield from ((h, r) for r in reversed(rows[late:]) for h in some)
    yield from ((h, r) for r in reversed(rows[:late]) for h in range(heads))


class Late:
    """The late rows of a kernel's calls, in tiles."""

    def __init__(self, s: Structure, most: int) -> None:
        self._most, self._each = most, s.rows
        self._rows = compiled(s.kernel.extents[s.row])
        others = ((a, n) for a, n in s.grid.axes if a != s.row)
        self._others = [(compiled(s.kernel.extents[a]), n) for a, n in others]

    def __call__(self, sizes: Mapping[str, Number]) -> int:
        """The tiles of each head."""
        heads = math.prod(-(-int(extent(sizes)) // n) for extent, n in self._others)
        return min(-(-int(self._rows(sizes)) // self._each), self._most // max(1, heads))


class Sections:
    """The sections of a kernel's calls; what its tiles read is found out once, as expressions of their ends."""

    def __init__(self, s: Structure, most: int) -> None:
        self._structure, self._most = s, most
        self._rows = compiled(s.kernel.extents[s.row])
        self._positions = compiled(s.kernel.extents[s.stream])
        others = ((a, n) for a, n in s.grid.axes if a != s.row)
        self._others = [(compiled(s.kernel.extents[a]), n) for a, n in others]
        self._each = each(s)
        streamed = [s.kernel.tensors.get(n) for n in {t.tensor for t in s.rings}]
        held = [] if None in streamed else [_bytes(t) for t in streamed if t is not None]
        self._held = [compiled(x) for x in held]
        defs = definitions([*s.top, *s.prologue])
        starts = [_expression(f.start or 0, s.row, defs) for f in s.loops]
        stops = [
            _expression(f.stop, s.row, defs) if f.stop is not None else s.kernel.extents[s.stream]
            for f in s.loops
        ]
        known = None not in starts and None not in stops
        self._starts = [compiled(x) for x in starts if x is not None] if known else []
        self._stops = [compiled(x) for x in stops if x is not None] if known else []

    def __call__(self, sizes: Mapping[str, Number]) -> int:
        """The heads of a section."""
        s = self._structure
        positions, rows = int(self._positions(sizes)), int(self._rows(sizes))
        near = max(1, min(positions, self.reach(sizes) + ROUND * s.rows))
        head = near * self._each // self.alike(sizes)
        tiles = max(1, -(-rows // s.rows))
        most = max(self._most * positions // near, -(-EVEN // tiles))
        return max(1, min(most, max(CACHE // max(1, head), -(-AT_ONCE // tiles))))

    def alike(self, sizes: Mapping[str, Number]) -> int:
        """As the function."""
        if not self._held:
            return 1
        heads = math.prod(-(-int(extent(sizes)) // n) for extent, n in self._others)
        held = sum(int(bytes(sizes)) for bytes in self._held)
        return max(1, round(heads * int(self._positions(sizes)) * self._each / max(1, held)))

    def reach(self, sizes: Mapping[str, Number]) -> int:
        """The most positions from the first to the last one that a tile reads, of a few tiles; all where data decides."""
        s = self._structure
        positions, rows = int(self._positions(sizes)), int(self._rows(sizes))
        if not self._starts:
            return positions
        step = (
            rows // (SAMPLES * s.rows) | 1
        ) * s.rows  # an odd number of tiles: what repeats does so by powers of 2
        out, env = 0, dict(sizes)
        for origin in range(0, rows, step):
            env[_EDGES["first"]], env[_EDGES["last"]] = origin, min(origin + s.rows, rows) - 1
            try:
                start = min(int(x(env)) for x in self._starts)
                out = max(out, int(max(x(env) for x in self._stops)) - start)
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
    return Sections(s, 1).alike(sizes)


def _bytes(t: Tensor) -> Scalar:
    out: Scalar = SIZES[t.dtype]
    for d in t.dims:
        out = ("mul", out, d)
    return out
