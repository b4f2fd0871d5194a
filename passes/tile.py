"""tile: groups into grids over tiles, and for each `for` the extent of its window.

Requires: after fuse, all ops of rank > 0 are in groups; streamed axes are in `for`s (online). Changes: groups become
grids; results that other groups use become buffers, outputs are stored where they are made; an axis whose tile is 1 is
gone from the types.

    O_1 = group(axes=[b, h, i]) {                     grid(axes=[b:1, h:1, i:128]) {
      a: f32[b, h, i, e] = for(0.0, axis=j) { … }  ->    a: f32[i:128, e] = for(0.0, axis=j, tile=128) { … }
      yield(a) }                                         store(O, b, h, i, e, value=a)
    store(O, b, h, i, e, value=O_1)                   }
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilec.dataflow import definitions
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import (
    Body,
    Buffer,
    Contract,
    For,
    Grid,
    Group,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Type,
    Value,
    Yield,
    operands,
    rebuild,
    regions,
    walk,
)
from tilec.passes.place import budget, once
from tilec.passes.twins import twins
from tilec.renaming import fresh, used_names
from tilec.target import CPU, Target

SMALLEST = 16
"""Default extents do not shrink below this: smaller tiles spend more on loads than they save in cache."""


@dataclass(frozen=True)
class Options:
    """`extents`: the tile's extent along axes, in place of the default for `target`."""

    extents: Mapping[str, int] = field(default_factory=dict[str, int])
    target: Target = CPU


def tile(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel in tiles.

    Raises ArgumentError for an extent of an unknown axis or below 1, UnsupportedError for an axis that is held whole.
    """
    _check(kernel, options)
    rows, columns = options.target.rows, options.target.columns
    while True:
        tiled = _Tiler(kernel, options, rows, columns).kernel()
        cache = options.target.cache
        read = once(tiled) if options.target.once else frozenset[str]()
        held = max((f.total for f in budget(tiled, read) if f is not None), default=0)
        if cache is None or held <= cache or rows == columns == SMALLEST:
            return tiled
        if columns >= rows:
            columns = max(SMALLEST, columns // 2)
        elif held <= cache + options.target.over:
            return tiled
        else:
            rows = max(SMALLEST, rows // 2)


def _check(kernel: Kernel, options: Options) -> None:
    tiled = [a.name for a in kernel.axes if a.name in set(_windowed(kernel))]
    for axis, extent in options.extents.items():
        if axis not in kernel.extents:
            raise ArgumentError(
                f"{kernel.name} has no axis {axis!r} to tile; choose from {', '.join(tiled)}"
            )
        if axis not in tiled:
            raise UnsupportedError(
                f"axis {axis} is held whole in every tile; choose from {', '.join(tiled)}"
            )
        if extent < 1:
            raise ArgumentError(
                f"the tile extent of axis {axis} cannot be {extent}; it is 1 or more"
            )


def _windowed(kernel: Kernel) -> Iterator[str]:
    made = {v.name for op in kernel.body if isinstance(op, Group) for v in op.results}
    for op in walk(kernel.body):
        if isinstance(op, Group):
            yield from op.axes
        elif isinstance(op, For):
            yield op.axis
        elif isinstance(op, Store) and op.value not in made:
            yield from (x for x in op.index if isinstance(x, str))


# ---- extents


def grid_extents(
    group: Group, options: Options, rows: int, found: Mapping[str, int]
) -> dict[str, int]:
    """The tile's extent along each axis of a group's grid: `rows` for the axis with most reuse, 1 for the others.

    An axis with blocks (`found`) has tiles of their length at most.
    """
    out = dict.fromkeys(group.axes, 1)
    streams = [op for op in walk(group.body) if isinstance(op, For)]
    if group.axes:
        if any(isinstance(op, (For, Contract, Reduce)) for op in walk(group.body)):
            axis = row_axis(group, streams)
            out[axis] = min(rows, found.get(axis, rows))
        else:
            out[group.axes[-1]] = options.target.elements
    return out | {a: n for a, n in options.extents.items() if a in out}


BLOCKS = (32, 64)
"""Lengths of blocks that a tile may follow; shorter ones are left inside a tile."""


def blocks(kernel: Kernel) -> dict[str, int]:
    """The length of the blocks by which data is looked up along an axis: 64 for `map[i // 64, j // 64]`.

    A tile of that length is empty or full as the block is. A scalar argument counts with its default.
    """
    defs = definitions(tuple(walk(kernel.body)))
    out: dict[str, int] = {}
    for op in walk(kernel.body):
        for x in op.index if isinstance(op, Load) else ():
            match defs.get(x) if isinstance(x, str) else None:
                case Map(fn="floordiv", args=(str() as axis, n)) if axis in kernel.extents:
                    named = isinstance(n, str) and n in kernel.arguments
                    length = kernel.arguments[str(n)].default if named else n
                    if isinstance(length, int) and length in BLOCKS:
                        out[axis] = min(length, out.get(axis, length))
                case _:
                    pass
    return out


def row_axis(group: Group, streams: list[For]) -> str:
    """The grid axis along which most loaded data is shared; the last one of those with equal reuse.

    What a stream loads counts first; without a stream, all loads count.
    """
    loads = [op for f in streams for op in walk(f.body) if isinstance(op, Load)]
    loads = loads or [op for op in walk(group.body) if isinstance(op, Load)]

    def reuse(axis: str) -> int:
        return sum(len(op.result.type.axes) for op in loads if axis not in op.result.type.axes)

    return max(reversed(group.axes), key=reuse)


# ---- rewriting


@dataclass
class _Region:
    """A region being written: the axis whose window it moves, if any, its ops, and the tiles made for its windows."""

    axis: str | None
    ops: list[Op]
    loaded: dict[str, str]


class _Tiler:
    def __init__(self, source: Kernel, options: Options, rows: int, columns: int) -> None:
        self.source, self.options = source, options
        self.rows, self.columns = rows, columns
        self.taken = used_names(source)
        self.blocks = blocks(source)
        self.results: dict[str, Value] = {
            v.name: v for op in source.body if isinstance(op, Group) for v in op.results
        }
        self.twins = twins(source)
        self.stores: dict[str, list[Store]] = {}
        for op in source.body:
            if isinstance(op, Store) and isinstance(op.value, str) and op.value in self.results:
                self.stores.setdefault(op.value, []).append(op)
        inner = (
            x
            for op in source.body
            for y in walk([op])
            if not isinstance(y, Store)
            for x in operands(y)
        )
        self.shared = {x for x in inner if isinstance(x, str)} & set(self.results)
        self.shared |= {self.twins.get(x, x) for x in self.shared}
        self.regions: list[_Region] = []
        self.made: dict[str, tuple[Op, int]] = {}

    def kernel(self) -> Kernel:
        body: list[Op] = []
        for op in self.source.body:
            if isinstance(op, Group) and any(v.name in self.twins for v in op.results):
                continue
            if isinstance(op, Group):
                body += [
                    Buffer((self.results[v.name],), span=op.span)
                    for v in op.results
                    if v.name in self.shared
                ]
                body.append(self.grid(op))
            elif isinstance(op, Store):
                body += self.constant(op)
            else:
                body.append(op)
        return replace(self.source, body=tuple(body))

    def constant(self, op: Store) -> list[Op]:
        """The grid of an output that no group computes: a literal, a scalar or a position."""
        if isinstance(op.value, str) and op.value in self.results:
            return []
        axes = next(o.axes for o in self.source.outputs if o.name == op.tensor)
        group = Group((), axes=axes, body=(op,))
        return [
            Grid(
                (),
                axes=tuple(grid_extents(group, self.options, self.rows, self.blocks).items()),
                body=(op,),
                span=op.span,
            )
        ]

    def grid(self, group: Group) -> Grid:
        extents = grid_extents(group, self.options, self.rows, self.blocks)
        region = _Region(None, [], {})
        self.regions = [region]
        self.body(group.body, extents)
        last = region.ops.pop()
        assert isinstance(last, Yield)
        for result, value in zip(group.results, last.values, strict=True):
            region.ops += [replace(s, value=value) for s in self.stores.get(result.name, [])]
            if result.name in self.shared:
                region.ops.append(Store((), result.name, result.type.axes, value, span=group.span))
        return Grid((), axes=tuple(extents.items()), body=tuple(region.ops), span=group.span)

    def body(self, body: Body, tiles: Mapping[str, int]) -> None:
        """Writes a region's ops into the innermost open region."""
        region = self.regions[-1]
        for op in body:
            if isinstance(op, For):
                new = self.loop(op, tiles)
            else:
                new = self.operation(op, tiles)
                self.made.update((v.name, (op, len(self.regions) - 1)) for v in op.results)
            region.ops.append(new)

    def operation(self, op: Op, tiles: Mapping[str, int]) -> Op:
        new = rebuild(op, lambda x: self.operand(x, tiles), value=lambda v: _sized(v, tiles))
        if isinstance(new, (Reduce, Contract)):
            new = replace(new, over=tuple(a for a in new.over if tiles.get(a) != 1))
        if not regions(op):
            return new
        return rebuild(new, region=lambda b: self.region(b, None, tiles))

    def region(self, body: Body, axis: str | None, tiles: Mapping[str, int]) -> Body:
        self.regions.append(_Region(axis, [], {}))
        self.body(body, tiles)
        return tuple(self.regions.pop().ops)

    def loop(self, op: For, tiles: Mapping[str, int]) -> For:
        extent = self.stream_extent(op)
        inside = tiles if extent is None else {**tiles, op.axis: extent}
        return replace(
            op,
            results=tuple(_sized(v, tiles) for v in op.results),
            args=tuple(_sized(v, tiles) for v in op.args),
            init=tuple(self.operand(x, tiles) for x in op.init),
            tile=extent,
            body=self.region(op.body, None if extent is None else op.axis, inside),
        )

    def stream_extent(self, op: For) -> int | None:
        """The window of a stream: one over the whole axis where that is a short literal; 1 around another stream."""
        if op.axis in self.options.extents:
            return self.options.extents[op.axis]
        if any(isinstance(x, For) and x.axis != op.axis for x in walk(op.body)):
            return 1
        columns = self.near(op, min(self.columns, self.blocks.get(op.axis, self.columns)))
        extent = self.source.extents[op.axis]
        return None if isinstance(extent, int) and extent <= columns else columns

    def near(self, op: For, columns: int) -> int:
        """The columns, half as many where only then the largest operand of the stream is near the arithmetic."""
        near = self.options.target.near
        loads = [x for x in walk(op.body) if isinstance(x, Load) and op.axis in x.result.type.axes]
        row = max((self.row_bytes(x, op.axis) for x in loads), default=0)
        if near is None or not near < columns * row <= 2 * near:
            return columns
        return max(SMALLEST, columns // 2)

    def row_bytes(self, op: Load, axis: str) -> int:
        """Bytes of a load's elements at one position of a streamed axis, as floats for arithmetic."""
        extents = [self.source.extents[a] for a in op.result.type.axes if a != axis]
        held = [n for n in extents if isinstance(n, int)]
        return 4 * math.prod(held)

    def operand(self, x: Operand, tiles: Mapping[str, int]) -> Operand:
        """An operand as it is in the present windows.

        A result of another group is loaded, as far out as its axes have their windows; a value that was made for a
        whole axis outside the loop over that axis is made again inside, for the window.
        """
        if not isinstance(x, str) or not (x in self.results or x in self.made):
            return x
        op, home = self.made.get(x, (None, -1))
        type = self.results[x].type if op is None else op.result.type
        depth = max((n for n, r in enumerate(self.regions) if r.axis in type.axes), default=0)
        region = self.regions[depth]
        if depth <= home:
            return x
        if x not in region.loaded:
            name = fresh(x, self.taken)
            if op is None:
                value = _sized(Value(name, replace(type, space=None)), tiles)
                region.ops.append(Load((value,), self.twins.get(x, x), type.axes))
            else:
                again = self.operation(op, tiles)
                region.ops.append(replace(again, results=(replace(again.result, name=name),)))
            region.loaded[x] = name
        return region.loaded[x]


def _sized(v: Value, tiles: Mapping[str, int]) -> Value:
    """A value with the extents of its tile; an axis of which the tile holds one position is gone."""
    kept = [(a, tiles.get(a)) for a in v.type.axes if tiles.get(a) != 1]
    type = Type(v.type.dtype, tuple(a for a, _ in kept), tuple(n for _, n in kept), v.type.space)
    return replace(v, type=type)
