"""Blocks of a tensor that a stage reads as a whole: left in memory where they can be, else copied row by row."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import ahead, storage
from tilec.backends.cpu.ahead import Ahead
from tilec.backends.cpu.copies import Copy
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import kind_for
from tilec.backends.cpu.points import Point
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, Kind, is_value
from tilec.ir import Load


@dataclass(frozen=True)
class Block:
    """A load of whole axes: the offset of its first element, the condition under which it exists (None: it does), the
    stride in memory of each of its axes. The last axis holds a vector at least."""

    op: Load
    tile: Tile
    offset: Any
    inside: Any | None
    strides: Mapping[str, Any]

    @property
    def last(self) -> str:
        """The axis whose elements are consecutive in scratch."""
        return self.tile.axes[-1]


class Blocks:
    """Brings blocks to where contractions read them. `along`: vectors of a tile may lie along the rows of a block."""

    def __init__(self, ev: Evaluator, along: bool) -> None:
        self.ev, self.e, self.along = ev, ev.e, along

    def fits(self, op: Load) -> bool:
        """Whether an op loads a block: the indices that vary are axes of their own, and the rows hold a vector, or fewer
        elements that may stay where they are."""
        axes = op.result.type.axes
        varying = [x for x in op.index if self.ev.axes(x)]
        if len(axes) < 2 or len(varying) != len(axes) or set(varying) != set(axes):
            return False
        count = self.ev.window(axes[-1]).count
        least = 2 if self.raw(op) == self.ev.float else self.e.lanes
        return isinstance(count, int) and count >= least

    def find(self, op: Load, tile: Tile) -> Block | None:
        """The block that an op loads into a tile; None where it loads none."""
        e, ev = self.e, self.ev
        if tile.lane or not self.fits(op):
            return None
        index: list[tuple[Any, bool]] = []
        strides: dict[str, Any] = {}
        for k, x in enumerate(op.index):
            if isinstance(x, str) and x in tile.axes:
                strides[x] = ev.memory.stride(op.tensor, k)
                index.append((e.index(ev.window(x).first), True))
            else:
                index.append((ev.value(x, Point({})).parts[0], x in ev.kernel.extents))
        offset, inside = ev.memory.address(op.tensor, index)
        return Block(op, tile, offset, inside, strides)

    def bring(self, block: Block, quick: bool) -> Any:
        """The address of a block's elements, laid out as in its tile. `quick`: what is consecutive is read as vectors."""
        e, tile = self.e, block.tile

        def copied() -> list[Any]:
            self.copy(block, quick)
            return [tile.base]

        self.announce(block)
        if not self.may_stay(block.op):
            (base,) = copied()
            return base

        def stay() -> list[Any]:
            base = self.ev.slots["pointer", block.op.tensor]
            return [e.at(base, block.offset, BYTES[tile.kind])]

        (base,) = e.branch(self.dense(block), stay, copied, name="block")
        return base

    def may_stay(self, op: Load) -> bool:
        """Whether what a block holds is read as it is in memory: in vectors that end where its rows do, or element by
        element."""
        count = self.ev.window(op.result.type.axes[-1]).count
        ends = not self.along or isinstance(count, int) and count % self.e.lanes == 0
        return ends and self.raw(op) == self.ev.kind(op.result.name) == self.ev.float

    def raw(self, op: Load) -> Kind:
        """What a block holds in memory."""
        return storage.MEMORY[self.ev.memory.dtype_of(op.tensor)]

    def dense(self, block: Block) -> Any:
        """Whether the block lies in memory as it would in scratch."""
        same = [self.e.compare("==", s, block.tile.strides[a]) for a, s in block.strides.items()]
        return functools.reduce(
            self.e.and_, [*same, *([] if block.inside is None else [block.inside])]
        )

    def copy(self, block: Block, quick: bool) -> None:
        """Copies a block to its tile."""
        ev, tile, op = self.ev, block.tile, block.op
        dtype, (*outer, last) = ev.memory.dtype_of(op.tensor), tile.axes
        steps = tuple(tile.strides[a] for a in outer)
        kind, count = kind_for(dtype, ev.float), ev.window(last).count
        dense = not is_value(block.strides[last]) and block.strides[last] == 1
        Copy(dtype, kind, tile.kind, count, steps, quick, dense).call(
            self.e,
            ev.slots["pointer", op.tensor],
            tile.base,
            block.offset,
            [ev.window(a).count for a in outer],
            [block.strides[a] for a in tile.axes],
            block.inside,
        )

    def announce(self, block: Block) -> None:
        """Has the register tiles that read the block ask for what follows it in memory."""
        e, axis = self.e, block.tile.axes[0]
        window, raw = self.ev.window(axis), BYTES[self.raw(block.op)]
        if block.inside is not None or len(block.tile.axes) != 2:
            return
        step, count = block.strides[axis], self.ev.window(block.last).count
        base = self.ev.slots["pointer", block.op.tensor]
        following = e.at(base, e.add(block.offset, e.mul(step, window.extent)), raw)
        ahead.announce(
            self.ev, block.op.tensor, Ahead(axis, following, count * raw, e.mul(step, raw))
        )
