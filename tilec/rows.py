"""Which axis lies in the rows of a tile, where the usual one has a single position: query heads that share their keys.

With one query per sequence a tile of rows is one row, and each head streams all keys for itself. Heads that look up the
same keys, `K[b, h // 4, j, d]`, can be the rows instead. It takes numbers for the dimensions that say how many share; the
pass `steady` then sees that the keys of a tile are the same for all its rows. A tile of few rows may be longer along the
keys.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilec import scalar
from tilec.dataflow import definitions
from tilec.ir import For, Group, Kernel, Load, Map, Op, Operand, operands, walk
from tilec.passes.tile import row_axis
from tilec.scalar import Number, evaluate
from tilec.target import Target


@dataclass(frozen=True)
class Rows:
    """Tile extents for a single position on the usual row axis, and the dimensions that must be numbers for it."""

    extents: Mapping[str, int]
    dims: tuple[str, ...]


def choose(kernel: Kernel, sizes: Mapping[str, Number], target: Target) -> Rows | None:
    """The rows for a kernel in groups (after `online`); None where the usual tile does. `sizes`: scalar arguments, too."""
    found = [
        _Chooser(kernel, op, streams, sizes).rows(target)
        for op in kernel.body
        if isinstance(op, Group) and (streams := [x for x in walk(op.body) if isinstance(x, For)])
    ]
    first = found[0] if found else None
    return first if all(r == first for r in found) else None


class _Chooser:
    """Looks at one group."""

    def __init__(
        self, kernel: Kernel, group: Group, streams: list[For], sizes: Mapping[str, Number]
    ) -> None:
        self.kernel, self.group, self.streams, self.sizes = kernel, group, streams, sizes
        self.defs = definitions((*kernel.body, *walk(group.body)))
        self.dims: list[str] = []

    def rows(self, target: Target) -> Rows | None:
        if not self.group.axes:
            return None
        usual = row_axis(self.group, self.streams)
        if self.extent(usual) != 1:
            return None
        best: tuple[int, str, tuple[str, ...]] = (1, usual, ())
        for axis in self.group.axes:
            self.dims = []
            length = 1 if axis == usual else self.window(axis, usual, target.rows)
            if length > best[0]:
                best = length, axis, tuple(dict.fromkeys(self.dims))
        length, axis, dims = best
        streamed = {f.axis for f in self.streams}
        columns = {a: target.narrow for a in streamed if target.narrow and len(streamed) == 1}
        if length == 1 and not columns:
            return None
        extents = {axis: length, usual: 1} | (columns if length <= target.lanes else {})
        return Rows(extents, dims)

    def extent(self, axis: str) -> int:
        return int(evaluate(self.kernel.extents[axis], self.sizes))

    def window(self, axis: str, usual: str, most: int) -> int:
        """The longest tile along an axis whose rows share what is streamed."""
        streamed = {f.axis for f in self.streams}
        shared = 0
        for op in (x for f in self.streams for x in walk(f.body)):
            axes = set(op.result.type.axes) if isinstance(op, Load) else set[str]()
            if isinstance(op, Load) and streamed & axes and usual not in axes:
                shared = math.gcd(shared, *self.groups(op.index, axis))
        if shared == 0:
            return min(self.extent(axis), most)
        return max(n for n in range(1, most + 1) if shared % n == 0)

    def groups(self, xs: Sequence[Operand], axis: str) -> Iterator[int]:
        """By what the position along an axis is divided wherever it is used; 1: it is used as it is."""
        for x in xs:
            if x == axis:
                yield 1
            op = self.defs.get(x) if isinstance(x, str) else None
            match op:
                case Map(fn="floordiv", args=(a, n)) if a == axis:
                    yield self.number(n) or 1
                case Op():
                    yield from self.groups(operands(op), axis)
                case None:
                    pass

    def number(self, x: Operand) -> int | None:
        """The value of an integer that dimensions alone decide; notes these."""
        if isinstance(x, int):
            return x
        if not isinstance(x, str):
            return None
        if x in self.kernel.dims:
            self.dims.append(x)
            return int(self.sizes[x])
        op = self.defs.get(x)
        if not isinstance(op, Map) or not scalar.evaluable(op.fn):
            return None
        parts = [self.number(y) for y in op.args]
        if None in parts:
            return None
        return int(evaluate((op.fn, *(p for p in parts if p is not None)), {}))
