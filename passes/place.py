"""place: a memory for every tile, `sram` for what is loaded from HBM, `reg` for what is computed. Scalars have none.

For a target that reads `once`, a load whose elements are each a factor of one product is in `reg`, too: it is read
where it is used.

Requires: grids (after tile). Changes: the spaces of types, nothing else. Checks that each grid fits the target.

    k: f32[j:128, d] = load(K, b, h, j, d)            k: f32[j:128, d] @sram = load(K, b, h, j, d)
    s: f32[i:128, j:128] = contract(q, k, over=d)  -> s: f32[i:128, j:128] @reg = contract(q, k, over=d)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tilec.dataflow import definitions, uses
from tilec.dtypes import SIZES
from tilec.errors import ResourceError
from tilec.ir import (
    Body,
    Buffer,
    Contract,
    For,
    Grid,
    Kernel,
    Load,
    Op,
    Operand,
    Reduce,
    Space,
    Type,
    Value,
    rebuild,
    regions,
    walk,
)
from tilec.target import CPU, Target


@dataclass(frozen=True)
class Options:
    """`target`: whose limits the tiles must keep."""

    target: Target = CPU


def place(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel with a space in every type. Raises ResourceError where a grid's tiles exceed the target's limit."""
    read = once(kernel) if options.target.once else frozenset[str]()
    placed = replace(kernel, body=tuple(_placed(op, read) for op in kernel.body))
    limit = options.target.limit
    for n, use in enumerate(budget(placed, read)):
        if limit is not None and use is not None and use.total > limit:
            raise ResourceError(
                f"the tiles of grid {n} take {use.total:,} bytes (loaded {use.sram:,}, computed {use.reg:,}); "
                f"{options.target.name} has {limit:,}: use smaller tiles"
            )
    return placed


def _placed(op: Op, read: frozenset[str]) -> Op:
    if isinstance(op, Buffer):
        return op
    held = isinstance(op, Load) and op.result.name not in read
    space: Space = "sram" if held else "reg"

    def at(v: Value) -> Value:
        return replace(v, type=replace(v.type, space=space if v.type.axes else None))

    return rebuild(op, region=lambda body: tuple(_placed(x, read) for x in body), value=at)


ENOUGH = 1024
"""Elements of a product from which on its factors are read in place: fewer do not keep the threads of a block busy."""


def once(kernel: Kernel) -> frozenset[str]:
    """The loads each of whose elements is a factor of one product, and whose rows lie along an axis that this keeps whole:
    threads gain nothing by sharing them."""
    ops = tuple(walk(kernel.body))
    defs, used = definitions(ops), uses(kernel.body)
    return frozenset(
        x
        for op in ops
        if isinstance(op, Contract) and (tile_elements(kernel, op.result.type) or 0) >= ENOUGH
        for x, other in ((op.x, op.y), (op.y, op.x))
        if isinstance(x, str) and used[x] == 1 and _meets_once(op, defs.get(x), _axes(defs, other))
    )


def _axes(defs: Mapping[str, Op], x: Operand) -> tuple[str, ...]:
    """The axes of a value."""
    op = defs.get(x) if isinstance(x, str) else None
    found = [v.type.axes for v in op.results if v.name == x] if op else []
    return found[0] if found else ()


def _meets_once(op: Contract, load: Op | None, other: tuple[str, ...]) -> bool:
    """Whether a factor of a product is loaded, has all of its axes, and ends in one that the other factor lacks."""
    if not isinstance(load, Load):
        return False
    axes = load.result.type.axes
    own = set(axes) == {*op.result.type.axes, *op.over} and axes[-1] not in {*other, *op.over}
    return own and load.result.type.tile[-1] is None


# ---- how much a grid holds


@dataclass(frozen=True, slots=True)
class Footprint:
    """The bytes that one tile of a grid holds at most at a time."""

    sram: int
    reg: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.sram + self.reg

    def __add__(self, other: Footprint) -> Footprint:
        return Footprint(self.sram + other.sram, self.reg + other.reg)


def budget(kernel: Kernel, read: frozenset[str] = frozenset()) -> list[Footprint | None]:
    """What each grid holds, in order; None where an axis that is held whole has no literal extent. `read`: the loads of
    which it holds nothing.

    Counted are tiles that must exist as such: loaded ones (`sram`), results of contractions and reductions and carried
    values (`reg`). A pointwise function is computed where it is used. A region's tiles are all taken to live at once,
    and those of the regions inside it one region at a time: what one loop held, the next one uses again.
    """
    return [_footprint(kernel, op.body, read) for op in kernel.body if isinstance(op, Grid)]


def _footprint(kernel: Kernel, body: Body, read: frozenset[str]) -> Footprint | None:
    own, deepest = Footprint(0, 0), Footprint(0, 0)
    for op in body:
        held = _held(kernel, op, read)
        inner = [_footprint(kernel, r, read) for r in regions(op)]
        if held is None or None in inner:
            return None
        own += held
        deepest = max([deepest, *(f for f in inner if f is not None)], key=lambda f: f.total)
    return own + deepest


def _held(kernel: Kernel, op: Op, read: frozenset[str]) -> Footprint | None:
    values = (
        op.args
        if isinstance(op, For)
        else op.results
        if isinstance(op, (Load, Contract, Reduce))
        else ()
    )
    sizes = [tile_bytes(kernel, v.type) for v in values if v.name not in read]
    if None in sizes:
        return None
    total = sum(n for n in sizes if n is not None)
    return Footprint(total, 0) if isinstance(op, Load) else Footprint(0, total)


def tile_bytes(kernel: Kernel, type: Type) -> int | None:
    """The bytes of a tile; None where an axis held whole has no literal extent. A scalar takes none."""
    if not type.axes:
        return 0
    elements = tile_elements(kernel, type)
    return None if elements is None else SIZES[type.dtype] * elements


def tile_elements(kernel: Kernel, type: Type) -> int | None:
    """The elements of a tile; None where an axis held whole has no literal extent."""
    size = 1
    for axis, tile in zip(type.axes, type.tile, strict=True):
        extent = kernel.extents[axis] if tile is None else tile
        if not isinstance(extent, int):
            return None
        size *= extent
    return size
