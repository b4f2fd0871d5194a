"""The exact result of a kernel in tiles at some of its tiles: where all of them would take too long.

Grids that only store outputs run a few of their tiles; grids whose results others load run whole.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tilec.backends.reference.functions import Array
from tilec.backends.reference.interpreter import bind
from tilec.backends.reference.machine import Machine
from tilec.dtypes import DType
from tilec.ir import Grid, Kernel, Store, walk
from tilec.meter import window
from tilec.scalar import Number, evaluate


@dataclass(frozen=True)
class Place:
    """The values of an output in a part of it."""

    at: tuple[slice, ...]
    values: Array


def sampled(
    kernel: Kernel,
    arrays: Mapping[str, Array],
    scalars: Mapping[str, Number],
    tiles: int,
    seed: int = 0,
    plain: bool = False,
) -> dict[str, list[Place]]:
    """The outputs of a kernel in tiles at no more than `tiles` tiles of each grid: the first, the last, and random ones.

    `plain`: those of plain arithmetic in the kernel's own types, not the exact ones.
    """
    machine = _Sampler(kernel, bind(kernel, arrays, scalars), arrays, tiles, seed, plain)
    with np.errstate(all="ignore"):
        machine.body(kernel.body)
    return machine.places


def is_last(kernel: Kernel, grid: Grid) -> bool:
    """Whether a grid stores outputs alone, so that its tiles matter to nobody else."""
    outputs = {o.name for o in kernel.outputs}
    return all(op.tensor in outputs for op in walk(grid.body) if isinstance(op, Store))


def count(kernel: Kernel, grid: Grid, env: Mapping[str, Number]) -> int:
    """The tiles of a grid."""
    extents = kernel.extents
    return math.prod(-(-max(0, int(evaluate(extents[a], env))) // n) for a, n in grid.axes)


class _Sampler(Machine):
    """Runs some tiles. Parameters stay in their own types until they are loaded, and outputs are kept by place."""

    def __init__(
        self,
        kernel: Kernel,
        scalars: Mapping[str, Number],
        arrays: Mapping[str, Array],
        tiles: int,
        seed: int,
        plain: bool,
    ) -> None:
        super().__init__(kernel, scalars, arrays, rounding=plain, in_order=plain)
        self.places: dict[str, list[Place]] = {o.name: [] for o in kernel.outputs}
        self.tiles, self.random = tiles, np.random.default_rng(seed)

    def _parameter(self, a: Array, dtype: DType) -> Array:
        return a

    def _grid(self, op: Grid) -> None:
        if not is_last(self.kernel, op):
            super()._grid(op)
            return
        held = dict(self.windows)
        total = count(self.kernel, op, self.scalars)
        others = self.random.integers(0, max(1, total), self.tiles)
        chosen = dict.fromkeys((0, total - 1, *(int(n) for n in others)))
        self.meter.enter(op)
        for number in list(chosen)[: self.tiles] if total else ():
            self._window(op, number)
            self.body(op.body)
        self.meter.leave()
        self.windows = held

    def _window(self, op: Grid, number: int) -> None:
        """Moves the windows of a grid's axes to one of its tiles."""
        for axis, tile in reversed(op.axes):
            extent = self.extents[axis]
            number, n = divmod(number, -(-extent // tile))
            self.windows[axis] = window(n * tile, tile, extent)

    def store(self, op: Store) -> None:
        if op.tensor not in self.places:
            super().store(op)
            return
        at, a = self.placed(op)
        shape = [s.stop - s.start for s in at]
        self.places[op.tensor].append(Place(at, np.broadcast_to(a, shape)))
