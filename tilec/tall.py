"""Taller tiles, where each converts what it reads of a streamed axis.

Keys that are stored in fewer bits than arithmetic has are converted once for each tile, so that fewer tiles convert less. It
pays where there are many, and where the mask only compares positions: what a tile need not look at is trimmed for each
panel of its rows then. Other masks, and data, say which blocks a whole tile looks at: the taller, the more of them in vain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from tilec.dtypes import SIZES, kind
from tilec.ir import Group, Load, Map, Op, walk

TRIMMED = frozenset({"add", "sub", "neg", "and", "le", "lt", "ge", "gt"})
"""What a mask may be made of."""


def pays(group: Group, rows: str, streamed: Collection[str]) -> bool:
    """Whether taller tiles pay for a group: `rows` is the axis of their rows."""
    loads = [op for op in walk(group.body) if isinstance(op, Load)]
    read = [op for op in loads if {*streamed} & {*op.result.type.axes}]
    plain = all(kind(op.result.type.dtype) == "float" for op in loads)
    narrow = all(SIZES[op.result.type.dtype] < 4 for op in read)
    return bool(read) and plain and narrow and set(_asked(group, {rows, *streamed})) <= TRIMMED


def _asked(group: Group, axes: set[str]) -> Iterator[str]:
    """The functions that make integers and conditions of positions along some axes."""
    for op in walk(group.body):
        match op:
            case Map(fn=fn) if kind(op.result.type.dtype) != "float" and _along(op, axes):
                yield fn
            case _:
                pass


def _along(op: Op, axes: set[str]) -> bool:
    return any(axes & {*v.type.axes} for v in op.results)
