"""Tiles in shared memory: what an operand of a contraction is, how it gets there, and in which form wgmma reads it.

A tile whose elements are those of a tensor as they stand comes by a bulk copy, or by several where its rows are found in
runs. Any other pointwise expression of loads is
computed by the loading warps. wgmma reads 16-bit elements:

    a value that 16 bits hold (a narrow load, gathered or converted)   is stored as it is
    a value computed from 16-bit or narrower elements                  is rounded once, to the type of the program
    any other f32 value                                                is stored as three bf16 parts that add up to it

and the product of two operands in parts is the sum of the products of their parts that count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.runs import Run, Runs
from tilec.dtypes import SIZES, DType
from tilec.ir import (
    Body,
    Cast,
    Contract,
    For,
    Grid,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Type,
    operands,
    walk,
)
from tilec.renaming import fresh
from tilec.scalar import Scalar

PARTS = 3
"""How many bf16 parts hold an f32 value."""
EXACT: dict[DType, tuple[DType, ...]] = {
    "bf16": ("bf16", "i8", "u8", "bool", "f8e4m3", "f8e5m2"),
    "f16": ("f16", "i8", "u8", "bool", "f8e4m3", "f8e5m2"),
}
"""The element types whose values a 16-bit type holds."""

Tree = Operand | tuple[object, ...]
"""An expression of loads, without the names of what is in between: equal for equal operands of two loops."""


@dataclass(frozen=True)
class Tile:
    """A tile of (axis, feature) in 64-column slabs of rows.

    `index`: one per dimension of the tensor where it comes by bulk copies; `run`: how its rows are found, if they are. Else
    `ops` compute it, in order, the last one its elements. `tree` says what is computed or found. `parts`: how many tiles of
    16 bits add up to it. `rounded`: its elements may be beyond what 16 bits hold.
    """

    name: str
    tensor: str
    index: tuple[Operand, ...]
    axis: str
    feature: str
    rows: int
    width: int
    dtype: DType
    ops: Body = ()
    tree: Tree = None  # type: ignore[assignment]
    parts: int = 1
    rounded: bool = False
    run: Run | None = None

    @property
    def computed(self) -> bool:
        """Whether the loading warps compute it."""
        return bool(self.ops)

    @property
    def copied(self) -> bool:
        """Whether the loading warps may copy its pieces as they stand: they are elements of a tensor, found by an index."""
        root = self.ops[-1] if self.ops else None
        same = isinstance(root, Load) and root.result.type.dtype == self.dtype
        return same and self.parts == 1

    @property
    def key(self) -> object:
        """What makes two operands the same tile."""
        return self.tree if self.computed or self.run else (self.tensor, self.index)

    @property
    def row(self) -> int:
        """The dimension of the tensor along which its rows follow each other."""
        return self.run.row if self.run else self.index.index(self.axis)

    @property
    def slabs(self) -> int:
        """Slabs of 64 columns, the last one filled up with zeros."""
        return -(-self.width // 64)

    @property
    def part_bytes(self) -> int:
        """The bytes of a part in shared memory."""
        return self.slabs * self.rows * 128

    @property
    def bytes(self) -> int:
        """The bytes it takes in shared memory."""
        return self.parts * self.part_bytes

    @property
    def scalars(self) -> set[str]:
        """The names that it is made of besides its own ops: scalars, axes, dimensions."""
        made = [*self.ops, *(self.run.finds if self.run else ())]
        own = {v.name for op in made for v in op.results}
        used = [*self.index, *(x for op in made for x in operands(op))]
        return {x for x in used if isinstance(x, str)} - own


class Tiles:
    """The operands of a grid's contractions as tiles."""

    def __init__(
        self,
        kernel: Kernel,
        grid: Grid,
        sides: Mapping[str, int],
        inside: tuple[For, ...],
        pieces: Collection[str] = (),
        runs: bool = False,
    ) -> None:
        """`sides`: the rows of a tile over each axis. `inside`: the loops. `pieces`: tensors that no bulk copy can bring.
        `runs`: whether several of them may bring a tile."""
        self.kernel, self.sides, self.pieces = kernel, sides, pieces
        self.loops, self.runs = inside, runs
        ops = list(walk(grid.body))
        self.place = {v.name: n for n, op in enumerate(ops) for v in op.results}
        self.defs: dict[str, Op] = {v.name: op for op in ops for v in op.results}
        self.inside = {v.name for op in walk(inside) for v in op.results}
        self.made: dict[str, Tile] = {}
        self.by_key: dict[object, Tile] = {}
        pairs = [op for op in walk(inside) if isinstance(op, Contract)]
        loaded = {x for op in pairs for x in (op.x, op.y) if isinstance(x, str) and self.is_side(x)}
        narrow = {t for x in loaded for t in self.elements(x) if t in ("f16", "bf16")}
        if len(narrow) > 1:
            raise Refused("its operands have different element types: f16 and bf16")
        self.precise = not narrow
        self.dtype: DType = "f16" if "f16" in narrow else "bf16"

    def is_side(self, x: str) -> bool:
        """Whether a value has one of the two axes and a feature; a position along an axis is none."""
        axes = self.type(x).axes if x in self.kernel.values else ()
        return len(axes) == 2 and len(set(axes) & set(self.sides)) == 1

    def type(self, x: str) -> Type:
        """The type of a value."""
        return self.kernel.values[x].type

    def tile(self, x: Operand) -> Tile | None:
        """An operand as a tile; None where it has not one of the two axes and a feature."""
        if not isinstance(x, str) or x not in self.defs or not self.is_side(x):
            return None
        if x not in self.made:
            tile = self.bulk(x) or self.found(x) or self.computed(x)
            self.made[x] = self.by_key.setdefault(tile.key, tile)
        return self.made[x]

    # ---- as it stands in memory

    def bulk(self, x: str) -> Tile | None:
        """The tile where it is a part of a tensor, its rows and columns as they are."""
        op, t = self.defs[x], self.type(x)
        if not isinstance(op, Load) or t.dtype != self.dtype or len(op.index) > 5:
            return None
        if op.tensor in self.pieces:
            return None
        axis, feature = self.axes(x)
        width = self.kernel.extents[feature]
        if op.tensor not in self.kernel.tensors and isinstance(width, int) and width % 8:
            return None  # the rows of this buffer do not begin at multiples of 16 bytes
        if sorted(str(y) for y in op.index if y in (axis, feature)) != sorted((axis, feature)):
            return None
        if any(isinstance(y, str) and self.is_varying(y) for y in op.index):
            return None
        return self.named(op.tensor, op.tensor, op.index, x)

    def found(self, x: str) -> Tile | None:
        """The tile where its rows are found in runs."""
        op, t = self.defs[x], self.type(x)
        if not self.runs or not isinstance(op, Load) or t.dtype != self.dtype or len(op.index) > 5:
            return None
        axis, feature = self.axes(x)
        if op.tensor in self.pieces or op.tensor not in self.kernel.tensors:
            return None
        if axis != self.loops[0].axis:
            return None
        top = {v.name: o for o in self.kernel.body for v in o.results}
        run = Runs(
            self.kernel, axis, self.sides[axis], self.loops, {**top, **self.defs}, self.inside
        ).of(op, feature)
        if run is None:
            return None
        tile = self.named(op.tensor, op.tensor, op.index, x)
        return replace(tile, run=run, tree=self.tree(x))

    def is_varying(self, x: str) -> bool:
        """Whether a name is a value that changes within the grid's tile or from window to window."""
        return x in self.inside or (x in self.defs and bool(self.type(x).axes))

    def axes(self, x: str) -> tuple[str, str]:
        """The axis and the feature of an operand."""
        (axis,) = set(self.type(x).axes) & set(self.sides)
        (feature,) = set(self.type(x).axes) - {axis}
        return axis, feature

    def named(self, name: str, tensor: str, index: tuple[Operand, ...], x: str) -> Tile:
        axis, feature = self.axes(x)
        width: Scalar = self.kernel.extents[feature]
        if not isinstance(width, int):
            raise Refused(f"the length of axis {feature} is not known")
        taken = {t.name for t in self.by_key.values()} | {"out", "tile", "query"}
        return Tile(
            fresh(name.lower(), taken),
            tensor,
            index,
            axis,
            feature,
            self.sides[axis],
            width,
            self.dtype,
        )

    # ---- computed

    def computed(self, x: str) -> Tile:
        """The tile of a pointwise expression."""
        axis, feature = self.axes(x)
        names = self.expression(x)
        for n in names:
            self.check(x, self.defs[n], {axis, feature})
        ops = tuple(self.defs[n] for n in sorted(names, key=self.place.__getitem__))
        whole = [
            op for op in ops if isinstance(op, Load) and set(op.result.type.axes) == {axis, feature}
        ]
        tensors = list(dict.fromkeys(op.tensor for op in whole)) or [x]
        tile = self.named(tensors[0], tensors[0], (), x)
        narrow = self.elements(x)
        exact = all(t in EXACT[self.dtype] for t in narrow) and all(
            isinstance(op, (Load, Cast)) or set(op.result.type.axes) != {axis, feature}
            for op in ops
        )
        rounds = not exact and not self.precise and any(SIZES[t] < 4 for t in narrow)
        parts = 1 if exact or rounds else PARTS
        if parts > 1 and self.dtype != "bf16":
            raise Refused(f"{x} has 32-bit elements, and those that it meets are f16")
        return replace(tile, ops=ops, tree=self.tree(x), parts=parts, rounded=not exact)

    def check(self, x: str, op: Op, axes: set[str]) -> None:
        """Raises Refused for an op that no element of an operand is computed with."""
        if not isinstance(op, (Load, Map, Cast)):
            raise Refused(f"{x} is computed with a {op.word}")
        if not set(op.result.type.axes) <= axes:
            raise Refused(f"{op.result.name} is a tile over {', '.join(op.result.type.axes)}")

    def expression(self, x: str) -> set[str]:
        """The varying values that an operand is computed from, itself included."""
        out: set[str] = set()
        todo = [x]
        while todo:
            y = todo.pop()
            if y in out or y not in self.defs or not self.is_varying(y):
                continue
            out.add(y)
            todo += [z for z in operands(self.defs[y]) if isinstance(z, str)]
        return out

    def elements(self, x: str) -> set[DType]:
        """The element types of the loads of rows and columns that an operand is computed from."""
        axes = set(self.type(x).axes)
        loads = [self.defs[y] for y in self.expression(x)]
        return {
            op.result.type.dtype
            for op in loads
            if isinstance(op, Load) and set(op.result.type.axes) == axes
        }

    def tree(self, x: Operand) -> Tree:
        """An operand as an expression."""
        if not isinstance(x, str) or x not in self.defs or not self.is_varying(x):
            return x
        op = self.defs[x]
        parts = tuple(self.tree(y) for y in operands(op))
        match op:
            case Load():
                return ("load", op.tensor, *parts)
            case Map():
                return (op.fn, *parts)
            case Cast():
                return ("cast", op.to, *parts)
            case _:
                return x

    def all(self) -> Iterable[Tile]:
        """All tiles, in the order in which they were asked for."""
        return self.by_key.values()
