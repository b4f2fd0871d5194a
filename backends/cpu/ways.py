"""The ways in which a grid is compiled, and which one a call takes.

`usual` is what nearly all calls run. Where that is relaxed code, there is also `exact`, for tasks in which it stored NaN and
for calls with huge sizes, and there may be `few`, for calls with few rows in a tile that may have many. Each is compiled
when a call first needs it.

The rows of a tile lie in vector lanes, unless they are few: then lanes are positions along what is streamed (`streams`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tilec.backends.cpu.narrow import LIMIT
from tilec.ir import Contract, For, Grid, walk

USUAL, EXACT, FEW = "usual", "exact", "few"
FEWEST = 6
"""Rows that are better taken one by one."""


def row_axis(grid: Grid) -> str | None:
    """The axis of a tile's rows: of the grid's axes with more than one position in a tile, the last."""
    wide = [axis for axis, tile in grid.axes if tile > 1]
    return wide[-1] if wide else None


def is_narrow(grid: Grid, lanes: int) -> bool:
    """Whether a grid streams products and its tiles have no more rows than a vector has lanes."""
    axis = row_axis(grid)
    return streams_products(grid) and (axis is None or dict(grid.axes)[axis] <= lanes)


def ways(grid: Grid, modes: Sequence[bool], lanes: int) -> tuple[str, ...]:
    """The ways of a grid. `modes`: whether its code is exact, of each that it needs."""
    if len(modes) == 1:
        return (USUAL,)
    wide = streams_products(grid) and not is_narrow(grid, lanes)
    return (USUAL, EXACT, FEW) if wide else (USUAL, EXACT)


def streams_products(grid: Grid) -> bool:
    """Whether a grid streams something through contractions: a tile of few rows is then bound by memory."""
    loops = [op for op in walk(grid.body) if isinstance(op, For)]
    return any(isinstance(op, Contract) for loop in loops for op in walk(loop.body))


def choose(ways: Sequence[str], small: bool, positions: int) -> str:
    """The way that a call takes. `small`: whether its sizes are; `positions`: how many rows a tile has."""
    if EXACT in ways and not small:
        return EXACT
    return FEW if FEW in ways and positions <= FEWEST else USUAL


def small(sizes: Iterable[int]) -> bool:
    """Whether all sizes are so small that whole numbers are what `narrow` takes them for."""
    return all(-LIMIT <= n <= LIMIT for n in sizes)
