"""How many rows a tile has, where there are many.

Each tile streams its keys anew, so that few tall tiles do less. But towards the end of a call threads wait for the last
tiles, the longer the taller these are. So the height depends on how many tiles there are for each thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tilec import tall
from tilec.ir import For, Group, Kernel, Load, walk
from tilec.scalar import Number, evaluate
from tilec.target import Target

TILE = 8
"""What a tile costs beyond its rows, in rows."""
WAIT = 0.75
"""How much of a tile each thread but the last waits at the end."""
OPERANDS = 4
"""Operands of so many rows that must fit the cache: queries and outputs, and as much again for keys, values and scores."""


@dataclass(frozen=True)
class Heights:
    """A group whose tiles may have other heights: the axis of their rows, the other ones of the grid, and the axes along
    which lie the elements at one position of a streamed axis, for each operand. `tall`: whether more rows than usual pay."""

    rows: str
    others: tuple[str, ...]
    held: tuple[tuple[str, ...], ...]
    tall: bool

    def extents(
        self, kernel: Kernel, sizes: Mapping[str, Number], target: Target, threads: int
    ) -> dict[str, int] | None:
        """The tile's extents for some sizes; None where the usual ones do."""

        def length(axes: tuple[str, ...]) -> int:
            return math.prod(int(evaluate(kernel.extents[a], sizes)) for a in axes)

        rows, others = length((self.rows,)), length(self.others)
        widest = max(map(length, self.held), default=1)

        def fits(height: int) -> bool:
            return target.cache is None or OPERANDS * height * 4 * widest <= target.cache

        def time(height: int) -> float:
            tiles = -(-rows // height) * others
            waiting = WAIT * (threads - 1) * (min(height, rows) + TILE)
            return rows * others + TILE * tiles + waiting

        usual = target.rows
        if not fits(usual) or -(-rows // usual) * others < threads:
            return None  # the pass `tile` makes them smaller; `split` makes more of them
        found = [h for h in target.heights if h < usual or (self.tall and fits(h))]
        best = min((usual, *sorted(found)), key=time)
        return None if best == usual else {self.rows: best}


def find(kernel: Kernel, group: Group) -> Heights | None:
    """The group, if its tiles may have other heights."""
    from tilec.passes.tile import blocks, row_axis  # not where it is known

    streams = [op for op in walk(group.body) if isinstance(op, For)]
    if not group.axes or not streams:
        return None
    rows, streamed = row_axis(group, streams), {f.axis for f in streams}
    if rows in blocks(kernel):
        return None
    read = [
        op for op in walk(group.body) if isinstance(op, Load) and streamed & {*op.result.type.axes}
    ]
    apart = {*group.axes, *streamed}
    held = tuple(tuple(a for a in op.result.type.axes if a not in apart) for op in read)
    others = tuple(a for a in group.axes if a != rows)
    return Heights(rows, others, held, tall.pays(group, rows, streamed))
