"""The ways in which a grid is compiled, and which one a call takes.

`usual` is what nearly all calls run. Where that is relaxed code, there is also `exact`, for tasks in which it stored NaN and
for calls with huge sizes, and there may be `few`, for calls with few rows in a tile that may have many. What a call takes,
a way for each of its grids, is compiled as one when a call first needs it.

The rows of a tile lie in vector lanes, unless they are few: then lanes are positions along what is streamed (`streams`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tilec import plain
from tilec.backends.cpu.narrow import LIMIT
from tilec.ir import Contract, For, Grid, Kernel, walk
from tilec.outline import Tiles

USUAL, EXACT, FEW, NONE = "usual", "exact", "few", "none"
FEWEST = 6
"""Rows that are better taken one by one."""


@dataclass(frozen=True)
class Choice:
    """What is compiled as one: the way of each grid of a kernel, NONE for one that is left out. `dense`: for calls in which
    elements along the last dimension of each tensor are consecutive; else tests and code for others stand beside."""

    ways: tuple[str, ...]
    dense: bool = True


@dataclass(frozen=True)
class Ways:
    """The ways of a kernel's grids, one after the other."""

    grids: tuple[tuple[str, ...], ...]

    @property
    def usual(self) -> Choice:
        """The code that nearly all calls run."""
        return Choice((USUAL,) * len(self.grids))

    def exact(self, dense: bool) -> Choice:
        """The exact code of the grids that have relaxed code, too."""
        return Choice(tuple(EXACT if EXACT in own else NONE for own in self.grids), dense)


def of(tiles: Tiles, lanes: int) -> Ways:
    """Those of a kernel in tiles; its outline will do where they are known already."""

    def make() -> Ways:
        return found(tiles.kernel, lanes)

    shelf = tiles.shelf
    return make() if shelf is None else shelf.under(lanes).kept(Ways, make, plain.classes(Ways))


def found(kernel: Kernel, lanes: int) -> Ways:
    """Those of a kernel, looked for."""
    from tilec.backends.cpu.facts import Facts  # only where nobody knows

    facts = Facts(kernel)
    grids = (op for op in kernel.body if isinstance(op, Grid))
    return Ways(tuple(ways(grid, facts.modes(grid), lanes) for grid in grids))


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
