"""The cost model: what a kernel in tiles should take, from its exact bytes and operations and the machine's ceilings.

It ranks candidates before any is compiled. The time is what the units need at their ceilings, spread over the workers as
evenly as the number of tiles allows, plus what a tile and each of its windows cost beyond their operations, plus what has
to come through the last cache and from memory. Tiles that overflow a worker's fast memory are read again from the last
cache. The constants were fitted to measurements (`benchmarks/cost_rank.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec import roofline, scalar
from tilec.ceilings import Ceilings
from tilec.ir import Grid, Kernel
from tilec.passes import place
from tilec.scalar import Number
from tilec.traffic import Budget, budget
from tilec.work import Unit


@dataclass(frozen=True, slots=True)
class Weights:
    """What the ceilings do not say. `tile`, `window`, `row`: seconds that a tile costs, each window of it, and each row in
    each window. `spill`: how much of a tile that overflows the fast memory is read again. `overlap`: the share of the bytes'
    time that is not hidden behind arithmetic."""

    tile: float = 1e-6
    window: float = 2e-7
    row: float = 1.2e-8
    spill: float = 1.0
    overlap: float = 0.5


def predict(
    tiles: Kernel,
    sizes: Mapping[str, int],
    scalars: Mapping[str, Number],
    arrays: Mapping[str, Any],
    roof: Ceilings,
    trimmed: Mapping[Unit, int] | None = None,
    weights: Weights = Weights(),
) -> float:
    """Seconds for a kernel in tiles (after place). `arrays`: those whose contents decide what runs.

    `trimmed`: the operations of the smallest tiles, where the target trims masked tiles to about these.
    """
    stated = budget(tiles, sizes, scalars, arrays)
    return seconds(tiles, stated, roof, trimmed, weights)


def seconds(
    tiles: Kernel,
    stated: Budget,
    roof: Ceilings,
    trimmed: Mapping[Unit, int] | None = None,
    weights: Weights = Weights(),
) -> float:
    """The same from a budget that is known."""
    figures = roofline.stage("place", tiles, stated, roof)
    work = {u: min(n, (trimmed or {}).get(u, n)) for u, n in figures.work.items()}
    units = [work["matrix"] / roof.matrix, work["fma"] / roof.fma, work["special"] / roof.special]
    arithmetic = sum(units) if roof.shared else max(units)
    count, rows, uneven = _tiles(tiles, stated.known, roof.workers)
    steps = stated.work.steps.total()
    overhead = count * weights.tile + steps * (weights.window + rows * weights.row)
    held = max((f.total for f in place.budget(tiles) if f is not None), default=0)
    again = weights.spill * max(0.0, 1 - roof.near / held) if held else 0.0
    moved = figures.bound.seconds["memory"] + figures.bound.seconds["cache"] * (1 + again)
    return (arithmetic + overhead / roof.workers) * uneven + weights.overlap * moved


def _tiles(tiles: Kernel, env: Mapping[str, Number], workers: int) -> tuple[int, int, float]:
    """How many tiles all grids have, how many rows a tile has at most, and how much longer the last worker takes."""
    grids = [op for op in tiles.body if isinstance(op, Grid)]
    counts = [
        math.prod(-(-max(0, int(scalar.evaluate(tiles.extents[a], env))) // n) for a, n in op.axes)
        for op in grids
    ]
    rows = max((n for op in grids for _, n in op.axes), default=1)
    most = max(counts, default=0)
    return sum(counts), rows, -(-most // workers) * workers / most if most else 1.0
