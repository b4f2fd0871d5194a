"""steady: what is the same at all positions of a tile is a scalar.

Requires: tiles (after tile), and numbers for the dimensions in question (specialise). Changes: `a // n`, where the tile of
the grid axis `a` divides n, is computed from the tile's first position; what depends on `a` in no other way loses the axis.

    grid(axes=[b:1, h:4]) {                          grid(axes=[b:1, h:4]) {
      t: i64[h:4] = floordiv(h, 4)                     h_first: i64 = first(h); t: i64 = floordiv(h_first, 4)
      k: f32[h:4, j:64, d] = load(K, b, t, j, d)  ->   k: f32[j:64, d] = load(K, b, t, j, d)

So the query heads that share their keys lie in one tile, which loads these once.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.builder import Builder
from tilec.ir import (
    Body,
    Cast,
    Contract,
    Edge,
    For,
    Grid,
    Kernel,
    Load,
    Map,
    Op,
    Reduce,
    Type,
    Value,
    rebuild,
    walk,
)
from tilec.renaming import fresh, used_names


def steady(kernel: Kernel) -> Kernel:
    """The kernel with what is the same in a tile as scalars."""
    taken = used_names(kernel)
    body = tuple(
        _Grid(kernel, op, taken).run() if isinstance(op, Grid) else op for op in kernel.body
    )
    return replace(kernel, body=body)


class _Grid(Builder):
    """Rewrites the body of one grid; `types` holds the types that the values have now."""

    def __init__(self, kernel: Kernel, grid: Grid, taken: set[str]) -> None:
        super().__init__(kernel, taken)
        self.grid = grid
        self.tiles.update(grid.axes)
        self.first: dict[str, Value] = {}

    def run(self) -> Grid:
        """The grid; as it was where nothing in it is steady."""
        if not any(self.steady(op) for op in walk(self.grid.body)):
            return self.grid
        body = self.body(self.grid.body)
        edges = tuple(Edge((v,), "first", axis) for axis, v in self.first.items())
        return replace(self.grid, body=(*edges, *body))

    def steady(self, op: Op) -> bool:
        """Whether an op divides the position along a tile by a multiple of the tile's extent."""
        match op:
            case Map(fn="floordiv", args=(str() as axis, int() as n)) if n > 0:
                tile = dict(self.grid.axes).get(axis, 1)
                return tile > 1 and n % tile == 0
            case _:
                return False

    def body(self, body: Body) -> Body:
        """A region; its values have the axes that they still depend on."""
        return tuple(self.op(op) for op in body)

    def op(self, op: Op) -> Op:
        """An op, with the type that its operands give it."""
        if isinstance(op, Map) and self.steady(op):
            first = self.beginning(str(op.args[0]))
            value = Value(op.result.name, Type("i64"))
            self.types[value.name] = value.type
            return replace(op, results=(value,), args=(first.name, op.args[1]))
        if isinstance(op, (Load, Map, Cast, Reduce, Contract)):
            self.taken.discard(op.result.name)
            self.again(op, {})
            return self.ops.pop()
        if not isinstance(op, For):
            return rebuild(op, region=self.body)
        self.tiles[op.axis] = op.tile
        inner = replace(op, body=self.body(op.body))
        del self.tiles[op.axis]
        return inner

    def beginning(self, axis: str) -> Value:
        """The first position of an axis's tile."""
        if axis not in self.first:
            self.first[axis] = Value(fresh(f"{axis}_first", self.taken), Type("i64"))
            self.types[self.first[axis].name] = Type("i64")
        return self.first[axis]
