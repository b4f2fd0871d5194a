"""Taller tiles, where each converts what it reads of a streamed axis.

Keys that are stored in fewer bits than arithmetic has are converted once for each tile, so that fewer tiles convert less. It
pays where there are many, and where the mask only compares positions: what a tile need not look at is trimmed for each
panel of its rows then. Other masks, and data, say which blocks a whole tile looks at: the taller, the more of them in vain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilec.dtypes import SIZES, kind
from tilec.ir import For, Group, Kernel, Load, Map, Op, walk
from tilec.passes.tile import row_axis
from tilec.scalar import Number, evaluate
from tilec.target import Target

TRIMMED = frozenset({"add", "sub", "neg", "and", "le", "lt", "ge", "gt"})
"""What a mask may be made of."""
OPERANDS = 4
"""Tall operands that must fit the cache: queries and outputs, and as much again for keys, values and scores."""
ENOUGH = 2
"""Tiles for each of the pieces that there should be at least: the last one then keeps nobody waiting long."""


@dataclass(frozen=True)
class Tall:
    """A group whose tiles may be taller: the axis of their rows, the other ones of the grid, and the axes along which lie
    the elements that are converted at one position, for each operand."""

    rows: str
    others: tuple[str, ...]
    held: tuple[tuple[str, ...], ...]

    def extents(
        self, kernel: Kernel, sizes: Mapping[str, Number], target: Target, workers: int
    ) -> dict[str, int] | None:
        """The tile's extents for some sizes, where that pays; `workers`: how many tiles there should be at least."""

        def length(axes: tuple[str, ...]) -> int:
            return math.prod(int(evaluate(kernel.extents[a], sizes)) for a in axes)

        rows = length((self.rows,))
        if target.tall is None or rows <= target.rows:
            return None
        bytes = OPERANDS * target.tall * 4 * max(map(length, self.held))
        fits = target.cache is None or bytes <= target.cache
        tiles = -(-rows // target.tall) * length(self.others)
        return {self.rows: target.tall} if fits and tiles >= ENOUGH * workers else None


def find(group: Group) -> Tall | None:
    """The group, if its tiles may be taller."""
    streams = [op for op in walk(group.body) if isinstance(op, For)]
    if not group.axes or not streams:
        return None
    rows, streamed = row_axis(group, streams), {f.axis for f in streams}
    loads = [op for op in walk(group.body) if isinstance(op, Load)]
    read = [op for op in loads if streamed & {*op.result.type.axes}]
    plain = all(kind(op.result.type.dtype) == "float" for op in loads)
    narrow = all(SIZES[op.result.type.dtype] < 4 for op in read)
    if not (read and plain and narrow and set(_asked(group, {rows, *streamed})) <= TRIMMED):
        return None
    apart = {*group.axes, *streamed}
    held = tuple(tuple(a for a in op.result.type.axes if a not in apart) for op in read)
    return Tall(rows, tuple(a for a in group.axes if a != rows), held)


def _asked(group: Group, axes: set[str]) -> Iterator[str]:
    """The functions that make integers and conditions of positions along some axes."""
    for op in walk(group.body):
        match op:
            case Map(fn=fn) if kind(op.result.type.dtype) != "float" and _along(op, axes):
                yield fn
            case _:
                pass


def _along(op: Op, axes: set[str]) -> bool:
    return any(axes & {*v.type.axes} for v in op.results)
