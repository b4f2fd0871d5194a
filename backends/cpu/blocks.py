"""Blocks of a tensor that a stage reads as a whole: left in memory where they can be, else copied row by row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import ahead, storage
from tilec.backends.cpu.ahead import Ahead
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.functions import kind_for
from tilec.backends.cpu.memory import gather
from tilec.backends.cpu.points import Point
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, Kind, constant
from tilec.ir import Load

UNROLL = 4
"""Vectors that a copy moves at a time."""


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
    """Brings blocks to where contractions read them."""

    def __init__(self, ev: Evaluator) -> None:
        self.ev, self.e = ev, ev.e

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
            if quick:
                unit = self.unit(block)
                e.branch(unit, lambda: self.copy(block, True), lambda: self.copy(block, False))
            else:
                self.copy(block, False)
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
        """Whether what a block holds is read as it is in memory."""
        return self.raw(op) == self.ev.kind(op.result.name) == self.ev.float

    def raw(self, op: Load) -> Kind:
        """What a block holds in memory."""
        return storage.MEMORY[self.ev.memory.dtype_of(op.tensor)]

    def dense(self, block: Block) -> Any:
        """Whether the block lies in memory as it would in scratch."""
        same = [self.e.compare("==", s, block.tile.strides[a]) for a, s in block.strides.items()]
        return self.every([*same, block.inside])

    def unit(self, block: Block) -> Any:
        """Whether the block's rows are consecutive in memory."""
        return self.every([self.e.compare("==", block.strides[block.last], 1), block.inside])

    def every(self, conditions: Sequence[Any | None]) -> Any:
        out: Any | None = None
        for c in conditions:
            if c is not None:
                out = c if out is None else self.e.and_(out, c)
        return out

    def copy(self, block: Block, unit: bool) -> None:
        """Copies rows, vector by vector; the last of a row may overlap with the one before. `unit`: their elements are
        consecutive."""
        e, tile = self.e, block.tile
        dtype = self.ev.memory.dtype_of(block.op.tensor)
        raw, base = storage.MEMORY[dtype], self.ev.slots["pointer", block.op.tensor]
        count = self.ev.window(block.last).count
        length = count // e.lanes
        unroll = next(n for n in (UNROLL, 2, 1) if length % n == 0) if unit else 1

        def vector(source: Any, target: Any, at: Any) -> None:
            if unit:
                x = e.read(raw, base, e.add(source, at), e.lanes)
            else:
                places = e.add(e.mul(e.ramp(at), block.strides[block.last]), source)
                x = gather(e, raw, base, places, block.inside)
            x = storage.widen(e, x, dtype, kind_for(dtype, self.ev.float))
            e.write(self.ev.encoded(tile, x, None), tile.base, e.add(target, at))

        def short(source: Any, target: Any) -> None:
            size = 1 << count.bit_length() - 1
            for at in (0, count - size) if unit else range(count):
                if unit:
                    x = e.read(raw, base, e.add(source, at), size)
                else:
                    place = e.add(source, e.mul(block.strides[block.last], at))
                    exists = constant("i1", 1) if block.inside is None else block.inside
                    x = e.read_if(raw, base, place, exists)
                e.write(self.ev.encoded(tile, x, None), tile.base, e.add(target, at))

        def row(source: Any, target: Any) -> None:
            if not length:
                short(source, target)
                return

            def step(i: Any, _: list[Any]) -> None:
                for n in range(unroll):
                    vector(source, target, e.add(i, n * e.lanes))

            e.loop(0, length * e.lanes, unroll * e.lanes, [], step, name=block.last)
            if count % e.lanes:
                vector(source, target, count - e.lanes)

        def outer(axes: Sequence[str], source: Any, target: Any) -> None:
            if not axes:
                row(source, target)
                return
            axis, *rest = axes

            def each(i: Any, _: list[Any]) -> None:
                further = e.add(source, e.mul(i, block.strides[axis]))
                outer(rest, further, e.add(target, e.mul(i, tile.strides[axis])))

            e.loop(0, self.ev.window(axis).count, 1, [], each, name=axis)

        with self.ev.scope():
            outer(tile.axes[:-1], block.offset, 0)

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
