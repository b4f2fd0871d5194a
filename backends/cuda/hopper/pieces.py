"""Pieces: 8 adjacent columns of a tile that the loading warps compute. Which loads can bring a tensor's by the piece."""

from __future__ import annotations

from collections.abc import Callable

from tilec.backends.cuda.hopper.tiles import Tile
from tilec.dataflow import definitions
from tilec.ir import Load, Map, Operand

PIECE = 8
"""The columns of a piece."""


class Pieces:
    """What is known of the loads of a tile."""

    def __init__(self, axes: Callable[[Operand], tuple[str, ...]], tile: Tile) -> None:
        """`axes`: those of an operand."""
        self.axes, self.tile = axes, tile
        self.defs = definitions(tile.ops)

    def along(self, op: Load) -> int:
        """The dimension that runs along a row."""
        return next(k for k, x in enumerate(op.index) if self._is_along(x))

    def adjacent(self, op: Load) -> bool:
        """Whether a piece of a load is 8 elements that follow each other, or less of them at the end of a row."""
        along = [x for x in op.index if self._is_along(x)]
        return len(along) == 1 and self._is_shift(along[0])

    def _is_along(self, x: Operand) -> bool:
        """Whether an index changes along a row."""
        return isinstance(x, str) and self.tile.feature in self.axes(x)

    def _is_shift(self, x: Operand) -> bool:
        """Whether an index is the column, or another one a multiple of 8 away, from piece to piece."""
        if x == self.tile.feature:
            return True
        match self.defs.get(str(x)):
            case (
                Map(fn="mod", args=(int() as y, int() as n))
                | Map(fn="mod", args=(str() as y, int() as n))
            ):
                return n > 0 and n % PIECE == 0 and self.tile.width <= n and self._is_moved(y)
            case _:
                return False

    def _is_moved(self, x: Operand) -> bool:
        """Whether an operand is the column plus a multiple of 8."""
        if x == self.tile.feature:
            return True
        match self.defs.get(str(x)):
            case Map(fn="add", args=(y, z)):
                return any(self._is_moved(a) and _is_step(b) for a, b in ((y, z), (z, y)))
            case Map(fn="sub", args=(y, z)):
                return self._is_moved(y) and _is_step(z)
            case _:
                return False


def _is_step(x: Operand) -> bool:
    """Whether an operand is a multiple of 8."""
    return isinstance(x, int) and x % PIECE == 0
