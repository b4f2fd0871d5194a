"""Which tiles of a grid are run together: those along an axis whose tile is 1, where this makes no difference."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping

from tilec.ir import Contract, Edge, Grid, Op, Reduce, Store, Type, walk

ROOM = 2**18
"""How many elements the arrays of tiles that are run together may have: few enough to stay in cache."""


def together(grid: Grid, extents: Mapping[str, int], decisive: Container[str]) -> dict[str, int]:
    """How many tiles are run together along each axis.

    `decisive`: the names that decide which ops run; tiles along an axis among them may take different courses.
    """
    ops = tuple(walk(grid.body))
    tiles = dict(grid.axes)
    apart = _apart(ops)
    stores = [set(op.index) for op in ops if isinstance(op, Store)]
    types = [v.type for op in ops for v in op.results]
    room = ROOM // max((_elements(t, tiles, extents) for t in types), default=1)
    out: dict[str, int] = {}
    for axis, tile in reversed(grid.axes):
        alike = tile == 1 and axis not in apart and axis not in decisive
        if alike and all(axis in index for index in stores) and room > 1:
            out[axis] = max(1, min(room, extents[axis]))
            room //= out[axis]
    return out


def _apart(ops: tuple[Op, ...]) -> set[str]:
    """The axes of which an op looks at more than the position of one tile."""
    over = {a for op in ops if isinstance(op, (Reduce, Contract)) for a in op.over}
    return over | {op.axis for op in ops if isinstance(op, Edge)}


def _elements(t: Type, tiles: Mapping[str, int], extents: Mapping[str, int]) -> int:
    """The most elements that a value has in one tile."""
    lengths = ((extents[a], n or tiles.get(a)) for a, n in zip(t.axes, t.tile, strict=True))
    return max(1, math.prod(e if n is None else min(e, n) for e, n in lengths))
