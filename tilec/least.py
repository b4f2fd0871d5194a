"""The operations that no schedule saves: of a program, whatever its tiles.

Small tiles leave out nearly all that a mask hides, but do again in each window what is needed once; one tile for everything
does the second once, and all that is hidden. So the operations are those of one tile, times the share of its contractions
that small tiles still do. What a mask itself takes is left out: most windows need none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from tilec import pipeline, scalar
from tilec.ir import For, Grid, Kernel, Map, Op, walk
from tilec.scalar import Number
from tilec.traffic import budget
from tilec.work import UNITS, Unit

WINDOWS = 1 << 14
"""Windows that small tiles make of all axes together: 128 of each of two, so that of what a causal mask hides less than a
hundredth is counted."""
NOWHERE = "reference"
"""The target whose tiles need not fit anything."""


def work(
    online: Kernel,
    sizes: Mapping[str, int],
    scalars: Mapping[str, Number],
    arrays: Mapping[str, Any],
) -> dict[Unit, int]:
    """The operations that every schedule of a kernel does, by unit. `online`: after the tensor passes; `arrays`: those whose
    contents decide what runs. Where some do, every window is looked at, and small tiles are the usual ones."""
    lengths = _lengths(online, {**sizes, **scalars})
    each = round(WINDOWS ** (1 / max(1, len(lengths))))
    small = _cut(online, {} if arrays else {a: max(2, -(-n // each)) for a, n in lengths.items()})
    whole = _cut(online, {a: max(2, n) for a, n in lengths.items()})
    fewest = budget(small, sizes, scalars, arrays).work
    once = budget(whole, sizes, scalars, arrays).work
    telling: list[Unit] = [u for u in UNITS if once.total(u)]
    share = min(1.0, fewest.total(telling[0]) / once.total(telling[0])) if telling else 1.0
    names = [v.name for op in walk(whole.body) if not _masks(op) for v in op.results]
    return {u: math.floor(n * share) for u, n in once.of(names).items()}


def _lengths(online: Kernel, env: Mapping[str, Number]) -> dict[str, int]:
    """The axes that tiles cut, and how long they are."""
    axes: dict[str, None] = {}
    for op in walk(_cut(online, {}).body):
        if isinstance(op, Grid):
            axes.update((a, None) for a, n in op.axes if n > 1)
        elif isinstance(op, For) and op.tile is not None and op.tile > 1:
            axes[op.axis] = None
    return {a: int(scalar.evaluate(online.extents[a], env)) for a in axes if a in online.extents}


def _cut(online: Kernel, extents: Mapping[str, int]) -> Kernel:
    return pipeline.run(online, pipeline.tile_pipeline({}, extents, NOWHERE))


def _masks(op: Op) -> bool:
    """Whether an op belongs to a mask: a condition, or what it chooses."""
    return isinstance(op, Map) and (op.fn == "select" or op.result.type.dtype == "bool")
