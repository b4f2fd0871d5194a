"""Staging: pieces that the loading warps compute with wait in shared memory until it is their window's turn.

Each thread copies its own pieces to places of its own, some windows ahead, and reads them itself. So as much is under way as
with bulk copies, without a register for it, and no thread waits for another.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tilec.backends.cuda.hopper.pieces import PIECE, Pieces
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.dtypes import SIZES
from tilec.ir import Kernel, Load, Operand

DEPTH, LEAST_DEPTH = 4, 3
"""The windows whose pieces are in shared memory, at most and at least; of all but one they are under way."""
STAGED = "staged"
"""The room."""


@dataclass(frozen=True)
class Share:
    """How the rows of a tile are shared out among loading warps: each takes adjacent ones, in turns.

    `lanes`: the threads that take a row, a piece each; `turns`: how many rows a thread looks up; `lines`: the rows of a
    warp's turn.
    """

    lanes: int
    turns: int
    lines: int

    @property
    def steps(self) -> int:
        """The pieces of a thread in a turn."""
        return self.lines * self.lanes // 32


def share(rows: int, width: int, warps: int) -> Share:
    """The shares of a tile. Eight rows have all the places that swizzling gives, so turns begin at multiples of these,
    and a warp takes as many rows at a time as it has threads for."""
    pieces = -(-width // 16) * 2
    lanes = min(32, 1 << (pieces - 1).bit_length())
    turns = -(-rows // (32 * warps))
    unit = max(8, 32 // lanes)
    return Share(lanes, turns, -(-rows // (unit * turns * warps)) * unit)


@dataclass(frozen=True)
class Staged:
    """What a tile loads by pieces. `offset`: in a window's part of the room; `bytes`: those of a piece."""

    tile: str
    load: Load
    offset: int
    bytes: int


def staged(kernel: Kernel, tiles: Iterable[Tile], warps: int) -> tuple[tuple[Staged, ...], int]:
    """What is staged of the tiles that some warps compute, and the bytes of a window. Tiles in parts have no room beside
    themselves."""
    out: list[Staged] = []
    at = 0
    for t in tiles:
        if not t.computed or t.copied or t.parts > 1 or t.width % PIECE:
            continue
        if t.width > 32 * PIECE:
            continue  # a thread has several pieces of a row
        its = share(t.rows, t.width, warps)
        for op in moving(kernel, t):
            size = PIECE * SIZES[op.result.type.dtype]
            out.append(Staged(t.name, op, at, size))
            at += size * its.turns * its.steps * 32 * warps
    return tuple(out), at


def moving(kernel: Kernel, t: Tile) -> list[Load]:
    """The loads of a tile that come by the piece and change from row to row."""

    def axes(x: Operand) -> tuple[str, ...]:
        if x in (t.axis, t.feature):
            return (str(x),)
        return kernel.values[x].type.axes if isinstance(x, str) and x in kernel.values else ()

    pieces = Pieces(axes, t)
    loads = [op for op in t.ops if isinstance(op, Load)]
    return [op for op in loads if pieces.adjacent(op) and op.result.type.axes != (t.feature,)]
