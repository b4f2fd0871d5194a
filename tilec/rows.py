"""Which axis lies in the rows of a tile, where the usual one has few positions: query heads that share their keys.

With one query per sequence a tile of rows is one row, and each head streams all keys for itself. Heads that look up the
same keys, `K[b, h // 4, j, d]`, can be the rows instead; so they can where each query looks up keys of its own, which no
other query needs. Where there is no axis of queries, heads are the usual rows, but only those that share their keys go
together. It takes numbers for the dimensions that say how many share; the pass `steady` then sees that the keys of
a tile are the same for all its rows. A tile of few rows may be longer along the keys. With a few queries per sequence heads
and positions are one axis, where a target has code for it (`passes/fold.py`): where half as many tiles read the keys then.
Of many rows, a tile may have more than usual, or fewer (`heights`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec import heights, scalar
from tilec.dataflow import backward, definitions, names_in
from tilec.heights import Heights
from tilec.ir import (
    Contract,
    For,
    Group,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    operands,
    walk,
)
from tilec.outline import header
from tilec.scalar import Compiled, Number, Scalar, compiled, evaluate
from tilec.target import Target

if TYPE_CHECKING:
    from tilec.passes.fold import Options as Fold


@dataclass(frozen=True)
class Rows:
    """Tile extents for a call, and the dimensions that must be numbers for them. `fold`: heads and positions that are one
    axis where a target has code for it."""

    extents: Mapping[str, int]
    dims: tuple[str, ...]
    fold: Fold | None = None


def choose(
    kernel: Kernel, sizes: Mapping[str, Number], target: Target, workers: int = 1
) -> Rows | None:
    """The rows for a kernel in groups (after `online`); None where the usual tile does. `sizes`: scalar arguments, too;
    `workers`: how many tiles there should be at least, two for each thread."""
    return chooser(kernel)(sizes, target, workers)


@dataclass(frozen=True)
class Candidate:
    """An axis whose positions may be rows. `shared`: how many of them share what is streamed must divide these; with none
    of these, all do. `dims`: what these are made of; `named`: what these and the extent are made of."""

    axis: str
    extent: Scalar
    shared: tuple[Scalar, ...]
    dims: tuple[str, ...]
    named: tuple[str, ...]

    @functools.cached_property
    def _numbers(self) -> tuple[Compiled, tuple[Compiled, ...]]:
        return compiled(self.extent), tuple(map(compiled, self.shared))

    def together(self, sizes: Mapping[str, Number], most: int) -> int:
        """How many positions, of groups that all are as large, share what is streamed."""
        extent, by = self._numbers
        shared = math.gcd(int(extent(sizes)), *(int(x(sizes)) for x in by))
        return max(n for n in range(1, most + 1) if shared % n == 0) if shared else 1

    def window(self, sizes: Mapping[str, Number], most: int) -> int:
        """The longest tile whose rows share what is streamed."""
        extent, by = self._numbers
        if not by:
            return min(int(extent(sizes)), most)
        shared = math.gcd(*(int(x(sizes)) or 1 for x in by))
        return max(n for n in range(1, most + 1) if shared % n == 0)


@dataclass(frozen=True)
class Candidates:
    """Those of a group. `usual`: the axis in its rows otherwise; `own`: that one, where it and no data decides which keys
    are looked up; `streamed`: the axes that it streams; `apart`: whether each of the usual rows has keys of its own;
    `foldable`: whether nothing that is streamed is looked up by row, and no axis of the grid is reduced."""

    usual: str | None
    own: Candidate | None
    streamed: tuple[str, ...]
    others: tuple[Candidate, ...]
    apart: bool
    foldable: bool

    def rows(self, kernel: Kernel, sizes: Mapping[str, Number], target: Target) -> Rows | None:
        """The rows for some sizes and scalar arguments."""
        if self.usual is None:
            return None
        single = int(evaluate(kernel.extents[self.usual], sizes)) == 1
        if not self.apart and not single:
            return None
        length, axis, dims = 1, self.usual, tuple[str, ...]()
        for c in (*self.others, self.own) if self.own and not single else self.others:
            longer = c.window(sizes, target.rows)
            if longer > length:
                length, axis, dims = longer, c.axis, c.dims
        narrow = target.narrow if len(self.streamed) == 1 else None
        columns = dict.fromkeys(self.streamed, narrow) if narrow else {}
        if length == 1 and not self.alone(kernel, sizes, target, bool(columns)):
            return None
        extents = {self.usual: 1} | {axis: length} | (columns if length <= target.lanes else {})
        return Rows(extents, dims)

    def alone(
        self, kernel: Kernel, sizes: Mapping[str, Number], target: Target, longer: bool
    ) -> bool:
        """Whether a tile should have one row: where it may be longer then, or rows have keys of their own and each has some
        for every lane."""
        if self.own is None:
            return longer and not self.apart
        positions = (int(evaluate(kernel.extents[a], sizes)) for a in self.streamed)
        return longer or math.prod(positions) >= target.lanes

    def folded(self, kernel: Kernel, sizes: Mapping[str, Number], target: Target) -> Rows | None:
        """Rows of heads and positions, where these are few; None where tiles are not half as many then."""
        if self.usual is None or target.fold is None or not self.foldable:
            return None
        positions = int(evaluate(kernel.extents[self.usual], sizes))
        for c in self.others if positions > 1 else ():
            n = c.together(sizes, target.fold)
            if 2 * -(-n * positions // target.fold) <= n * -(-positions // target.fold):
                from tilec.passes.fold import Options as Fold  # not where there is none

                return Rows({}, c.named, Fold(c.axis, self.usual, n))
        return None


@dataclass(frozen=True)
class Chooser:
    """Chooses the rows for calls of a kernel (its header) in groups; what does not depend on their sizes is known.
    `alone`: whether it is one group."""

    kernel: Kernel
    groups: tuple[Candidates, ...]
    alone: bool
    heights: Heights | None

    def __call__(
        self, sizes: Mapping[str, Number], target: Target, workers: int = 1
    ) -> Rows | None:
        """The rows for some sizes and scalar arguments."""
        found = [group.rows(self.kernel, sizes, target) for group in self.groups]
        first = found[0] if found else None
        folded = self.groups[0].folded(self.kernel, sizes, target) if self.alone else None
        if first is None and folded is not None:
            return folded
        if first is None and self.heights is not None:
            threads = max(1, workers // 2)
            extents = self.heights.extents(self.kernel, sizes, target.among(threads), threads)
            return Rows(extents, ()) if extents else None
        return first if all(r == first for r in found) else None


def chooser(kernel: Kernel) -> Chooser:
    """What chooses the rows for a kernel in groups."""
    streaming = [
        (op, streams)
        for op in kernel.body
        if isinstance(op, Group) and (streams := [x for x in walk(op.body) if isinstance(x, For)])
    ]
    groups = tuple(_Finder(kernel, *found).candidates() for found in streaming)
    tall = heights.find(kernel, streaming[0][0]) if len(streaming) == 1 else None
    alone = len(groups) == sum(isinstance(op, Group) for op in kernel.body) == 1
    return Chooser(header(kernel), groups, alone, tall)


class _Finder:
    """Finds the candidates of a group."""

    def __init__(self, kernel: Kernel, group: Group, streams: list[For]) -> None:
        from tilec.passes.tile import row_axis  # not where they are known

        self.kernel, self.group, self.streams = kernel, group, streams
        self.defs = definitions((*kernel.body, *walk(group.body)))
        self.streamed = {f.axis for f in streams}
        self.usual = row_axis(group, streams) if group.axes else None

    def candidates(self) -> Candidates:
        others = tuple(self.candidate(a) for a in self.group.axes if a != self.usual)
        streamed = tuple(sorted(self.streamed))
        return Candidates(self.usual, self.own(), streamed, others, self.apart(), self.foldable())

    def own(self) -> Candidate | None:
        """The usual axis, where it decides which keys a contraction takes, and no data does."""
        if self.usual is None or not self.apart():
            return None
        index = [x for op in self.keys() for x in op.index]
        mine = [self.inputs(x) for x in index]
        mine = [xs for xs in mine if self.usual in xs]
        if not mine or any(isinstance(self.defs.get(x), Load) for xs in mine for x in xs):
            return None
        return self.candidate(self.usual)

    def keys(self) -> Iterator[Load]:
        """What the keys of contractions with rows are made of."""
        ops = [x for f in self.streams for x in walk(f.body)]
        made = definitions(ops)
        products = (
            op for op in ops if isinstance(op, Contract) and not self.streamed & set(op.over)
        )
        for op in products:
            for x in backward(names_in((op.x, op.y)), made):
                load, axes = made[x], set(made[x].result.type.axes)
                if isinstance(load, Load) and self.streamed & axes and set(op.over) < axes:
                    yield load

    def inputs(self, x: Operand) -> set[str]:
        """What an index is computed from, itself included."""
        if not isinstance(x, str):
            return set()
        op = self.defs.get(x)
        return {x}.union(*(self.inputs(y) for y in (operands(op) if op else ())))

    def loads(self) -> list[Load]:
        """What is looked up along the streamed axes."""
        ops = (x for f in self.streams for x in walk(f.body))
        return [x for x in ops if isinstance(x, Load) and self.streamed & set(x.result.type.axes)]

    def apart(self) -> bool:
        """Whether the largest operands that are streamed are looked up by row."""
        axes = [x.result.type.axes for x in self.largest()]
        return bool(axes) and all(self.usual in a for a in axes)

    def largest(self) -> list[Load]:
        """Those with the most axes."""
        most = max((len(x.result.type.axes) for x in self.loads()), default=0)
        return [x for x in self.loads() if len(x.result.type.axes) == most]

    def foldable(self) -> bool:
        body = tuple(walk(self.group.body))
        over = {a for op in body if isinstance(op, (Reduce, Contract)) for a in op.over}
        rows = (op for op in body if isinstance(op, Load) and self.usual in op.result.type.axes)
        return not over & set(self.group.axes) and all(
            self.streamed.isdisjoint(op.result.type.axes) for op in rows
        )

    def candidate(self, axis: str) -> Candidate:
        dims: list[str] = []
        shared: list[Scalar] = []
        shared_by = self.largest() if self.apart() else self.loads()
        for op in shared_by:
            if self.apart() or self.usual not in op.result.type.axes:
                shared += self.groups(op.index, axis, dims)
        by, extent = tuple(dict.fromkeys(shared)), self.kernel.extents[axis]
        lengths = [d for d in scalar.names(extent) if d in self.kernel.dims]
        named = tuple(dict.fromkeys((*dims, *lengths)))
        return Candidate(axis, extent, by, tuple(dict.fromkeys(dims)), named)

    def groups(self, xs: Sequence[Operand], axis: str, dims: list[str]) -> Iterator[Scalar]:
        """By what the position along an axis is divided wherever it is used; 1: it is used as it is."""
        for x in xs:
            if x == axis:
                yield 1
            op = self.defs.get(x) if isinstance(x, str) else None
            match op:
                case Map(fn="floordiv", args=(a, n)) if a == axis:
                    by = self.number(n, dims)
                    yield 1 if by is None else by
                case Op():
                    yield from self.groups(operands(op), axis, dims)
                case None:
                    pass

    def number(self, x: Operand, dims: list[str]) -> Scalar | None:
        """An integer that dimensions alone decide; notes these."""
        if isinstance(x, int):
            return x
        if not isinstance(x, str):
            return None
        if x in self.kernel.dims:
            dims.append(x)
            return x
        op = self.defs.get(x)
        if not isinstance(op, Map) or not scalar.evaluable(op.fn):
            return None
        parts = [self.number(y, dims) for y in op.args]
        if None in parts:
            return None
        return ("i64", (op.fn, *(p for p in parts if p is not None)))
