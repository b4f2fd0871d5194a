"""Maps of blocks: which tiles of a streamed axis each tile of rows looks at, and where a mask is asked there.

A map belongs to a loop over windows in which something is contracted. Its rows are the tiles of the last axis that the
grid cuts, its columns the windows of the loop. Whatever else the grid cuts has one position, which the caller chooses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec.control import Control
from tilec.errors import ArgumentError
from tilec.ir import Body, Contract, For, Grid, Kernel, Map, Op, walk
from tilec.meter import window
from tilec.scalar import Number
from tilec.traffic import Walk, environment

if TYPE_CHECKING:
    from tilec.backends.reference.machine import Machine

SIGNS = "█▒·"
"""A block that is looked at without a mask, with one, and one that is skipped."""


@dataclass(frozen=True)
class Blocks:
    """A map. `rows` and `columns`: an axis, how long it is, and its tile; `at`: where the other axes of the grid are.
    `masked`: the blocks that are looked at, by their row and column; whether a condition decides there for each pair."""

    rows: tuple[str, int, int]
    columns: tuple[str, int, int]
    at: Mapping[str, int]
    masked: dict[tuple[int, int], bool] = field(default_factory=dict[tuple[int, int], bool])

    @property
    def shape(self) -> tuple[int, int]:
        """How many blocks there are, down and across."""
        (_, m, tall), (_, n, wide) = self.rows, self.columns
        return -(-m // tall), -(-n // wide)

    def picture(self, width: int, height: int, signs: str = SIGNS) -> list[str]:
        """The map in signs, each of which stands for as many blocks as it takes to fit into a width and a height."""
        down, across = self.scale(width, height)
        m, n = self.shape
        return [
            "".join(signs[self._kind(r, down, c, across)] for c in range(0, n, across))
            for r in range(0, m, down)
        ]

    def scale(self, width: int, height: int) -> tuple[int, int]:
        """How many blocks a sign stands for, down and across."""
        m, n = self.shape
        return max(1, -(-m // height)), max(1, -(-n // width))

    def _kind(self, row: int, down: int, column: int, across: int) -> int:
        """Which sign some blocks have together: that of a mask where they differ."""
        m, n = self.shape
        found = {
            self.masked.get((r, c))
            for r in range(row, min(m, row + down))
            for c in range(column, min(n, column + across))
        }
        return {False: 0, None: 2}.get(found.pop(), 1) if len(found) == 1 else 1


def maps(
    kernel: Kernel,
    sizes: Mapping[str, int],
    scalars: Mapping[str, Number],
    arrays: Mapping[str, Any],
    at: Mapping[str, int],
) -> list[Blocks]:
    """The maps of a kernel in tiles. `arrays`: those whose contents decide what runs; `at`: positions on axes, else 0."""
    import numpy as np

    from tilec.backends.reference.machine import Machine

    control = Control(kernel, usual=True)
    known = environment(kernel, control, sizes, scalars, arrays)
    machine = Machine(kernel, known, arrays)
    with np.errstate(all="ignore"):
        looked = _Look(machine, control, at)
        looked.body(kernel.body, 1)
    return list(looked.found.values())


class _Look(Walk):
    """Goes through the blocks of each grid that streams something, at one position of all axes but its rows."""

    def __init__(self, machine: Machine, control: Control, at: Mapping[str, int]) -> None:
        super().__init__(machine, control)
        self.found: dict[tuple[int, str], Blocks] = {}
        self._at = at
        self._axes: Mapping[str, int] = {}  # of the present grid, where it streams something
        self._rows = ""
        self._loop: For | None = None
        self._masked = False

    def op(self, op: Op, times: int) -> None:
        if isinstance(op, Grid) and any(_streams(x) for x in walk(op.body)):
            self._axes = dict(op.axes)
            self._rows = next((a for a, n in reversed(op.axes) if n > 1), op.axes[-1][0])
        if self._loop and isinstance(op, Map) and op.fn == "select":
            self._masked |= self._loop.axis in op.result.type.axes
        super().op(op, times)
        if isinstance(op, Grid):
            self._axes = {}

    def loop(self, op: For, times: int) -> None:
        outermost = self._loop is None and _streams(op)
        if outermost:
            self._loop = op
            self._blocks(op)
        super().loop(op, times)
        if outermost:
            self._loop = None

    def body(self, body: Body, times: int) -> None:
        if self._loop and body is self._loop.body:
            self._masked = False
        super().body(body, times)

    def visit(self, op: For, windows: range, times: int) -> None:
        super().visit(op, windows, times)
        if op is not self._loop:
            return
        blocks = self._blocks(op)
        row = self.machine.windows[self._rows][0] // blocks.rows[2]
        for start in windows:
            key = row, start // windows.step
            blocks.masked[key] = blocks.masked.get(key, False) or self._masked

    def _blocks(self, op: For) -> Blocks:
        extents = self.machine.extents
        rows = self._rows, extents[self._rows], self._axes[self._rows]
        columns = op.axis, extents[op.axis], op.tile or 1
        at = {a: self._position(a) for a in self._axes if a != self._rows}
        return self.found.setdefault((self.grids, op.axis), Blocks(rows, columns, at))

    def _position(self, axis: str) -> int:
        position, extent = self._at.get(axis, 0), self.machine.extents[axis]
        if position >= extent:
            raise ArgumentError(f"there is no {axis} = {position}: the axis has {extent} positions")
        return position

    def classes(
        self, starts: range, tile: int | None, axis: str, one_by_one: bool
    ) -> Iterator[tuple[tuple[int, int], int]]:
        if axis not in self._axes:
            yield from super().classes(starts, tile, axis, one_by_one)
        elif axis == self._rows:
            yield from super().classes(starts, tile, axis, True)
        elif starts:
            start = self._position(axis) // starts.step * starts.step
            yield window(start, tile, self.machine.extents[axis]), 1


def _streams(op: Op) -> bool:
    """Whether an op is a loop over windows in which something is contracted."""
    return (
        isinstance(op, For)
        and op.tile is not None
        and any(isinstance(x, Contract) for x in walk(op.body))
    )
