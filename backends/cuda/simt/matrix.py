"""Which contractions run on tensor cores, and how the tiles they read must lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tilec.dtypes import DType, kind
from tilec.ir import Cast, Contract, Grid, Kernel, Load, Map, Op, Operand, operands, walk

ROWS, COLUMNS, DEPTH = 16, 16, 16
"""The extents along rows, columns and the summed axis must be multiples of these."""
MOST = 16
"""Blocks of 16 x 8 elements that a warp holds at most."""


@dataclass(frozen=True)
class Shape:
    """A contraction for tensor cores: the element type of its factors, and its axes."""

    dtype: DType
    row: str
    column: str
    depth: str


class Matrices:
    """The contractions of a grid that tensor cores can do: `shapes`, by their result. `users`: who reads a value."""

    def __init__(self, kernel: Kernel, grid: Grid, defs: Mapping[str, Op]) -> None:
        self.kernel, self.defs = kernel, defs
        self.users: dict[str, list[Op]] = {}
        self.shapes: dict[str, Shape] = {}
        for op in walk(grid.body):
            for x in operands(op):
                if isinstance(x, str):
                    self.users.setdefault(x, []).append(op)
            if isinstance(op, Contract) and (shape := self.shape(op)):
                self.shapes[op.result.name] = shape

    def reading(self, name: str) -> list[Shape]:
        """The shapes of the contractions on tensor cores that read a value."""
        users = [op for op in self.users.get(name, []) if isinstance(op, Contract)]
        return [self.shapes[op.result.name] for op in users if op.result.name in self.shapes]

    def only(self, name: str) -> DType | None:
        """The type that a computed value is rounded to, where all contractions that read it agree on one."""
        users = [op for op in self.users.get(name, []) if isinstance(op, Contract)]
        found: set[DType] = {s.dtype for s in self.reading(name)}
        agree = len(found) == 1 and all(op.result.name in self.shapes for op in users)
        return next(iter(found)) if agree and self.computed(name) else None

    def shape(self, op: Contract) -> Shape | None:
        """How tensor cores do a contraction; None where they cannot."""
        dtype = self.factors(op)
        if dtype is None or self.kernel.compute != "f32" or len(op.over) != 1:
            return None
        (depth,) = op.over
        x, y = self.axes(op.x), self.axes(op.y)
        row, column = self.outer(op, x, y, depth), self.outer(op, y, x, depth)
        if depth not in x or depth not in y or row is None or column is None:
            return None
        if any(x[a] % ROWS or not x[a] for a in (row, depth)):
            return None
        return None if y[column] % COLUMNS or not y[column] else Shape(dtype, row, column, depth)

    def axes(self, x: Operand) -> dict[str, int]:
        """The axes of a value's tile and their extents; 0 for one that is not known."""
        if not isinstance(x, str) or x not in self.kernel.values:
            return {}
        type, out = self.kernel.values[x].type, dict[str, int]()
        for axis, tile in zip(type.axes, type.tile, strict=True):
            whole = self.kernel.extents[axis]
            out[axis] = tile if tile is not None else whole if isinstance(whole, int) else 0
        return out

    def outer(
        self, op: Contract, own: Mapping[str, int], other: Mapping[str, int], depth: str
    ) -> str | None:
        """The axis of a factor that the other lacks. It or the summed axis must be the factor's last one."""
        found = [a for a in own if a in op.result.type.axes and a not in other]
        last = next(reversed(tuple(own)), None)
        if last in found:
            return last
        return max(found, key=lambda a: own[a], default=None) if last == depth else None

    def factors(self, op: Contract) -> DType | None:
        """The element type of the factors: that of the loaded ones; what is computed is rounded to it."""
        loaded: set[DType] = {t for x in (op.x, op.y) if (t := self.loaded(x))}
        if len(loaded) != 1:
            return None
        computed = [x for x in (op.x, op.y) if not self.loaded(x)]
        return next(iter(loaded)) if all(map(self.computed, computed)) else None

    def loaded(self, x: Operand) -> DType | None:
        op = self.defs.get(x) if isinstance(x, str) else None
        dtype = op.result.type.dtype if isinstance(op, Load) else None
        return dtype if dtype in ("f16", "bf16") else None

    def computed(self, x: Operand) -> bool:
        op = self.defs.get(x) if isinstance(x, str) else None
        return isinstance(op, (Map, Cast)) and kind(op.result.type.dtype) == "float"
