"""Sections: heads whose tiles are dealt out together, so that their keys stay in the L2 cache meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tilec.backends.cuda.hopper.structure import Structure
from tilec.dtypes import SIZES
from tilec.scalar import Number, evaluate

CACHE = 26 << 20
"""The bytes of streamed tensors that stay in the L2 cache while others come and go, of which each half keeps a copy."""
AT_ONCE = 132
"""The tiles that a section has at least."""


def section(s: Structure, sizes: Mapping[str, Number], most: int) -> int:
    """The heads whose tiles are dealt out together: as many as the cache holds, but not too few tiles."""
    head = _positions(s, sizes) * each(s) // alike(s, sizes)
    tiles = max(1, -(-int(evaluate(s.kernel.extents[s.row], sizes)) // s.rows))
    return max(1, min(most, max(CACHE // max(1, head), -(-AT_ONCE // tiles))))


def heads(s: Structure, sizes: Mapping[str, Number]) -> int:
    """The tiles that differ in other axes than the row axis."""
    others = ((a, n) for a, n in s.grid.axes if a != s.row)
    return math.prod(-(-int(evaluate(s.kernel.extents[a], sizes)) // n) for a, n in others)


def each(s: Structure) -> int:
    """The bytes of a position that a tile streams."""
    return sum(t.width * SIZES[t.dtype] for t in s.rings)


def alike(s: Structure, sizes: Mapping[str, Number]) -> int:
    """The heads that share their keys, where the tensors are smaller than what all heads stream."""
    names = {t.tensor for t in s.rings}
    if any(n not in s.kernel.tensors for n in names):
        return 1
    held = sum(_bytes(s, n, sizes) for n in names)
    return max(1, round(heads(s, sizes) * _positions(s, sizes) * each(s) / max(1, held)))


def _positions(s: Structure, sizes: Mapping[str, Number]) -> int:
    return int(evaluate(s.kernel.extents[s.stream], sizes))


def _bytes(s: Structure, tensor: str, sizes: Mapping[str, Number]) -> int:
    t = s.kernel.tensors[tensor]
    return SIZES[t.dtype] * math.prod(int(evaluate(d, sizes)) for d in t.dims)
