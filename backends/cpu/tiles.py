"""Tiles in scratch memory.

A tile that has the lane axis is laid out in panels: for each panel of `width` lanes its other axes, then the lanes. So
what the stages of a panel exchange lies close together, and a vector of lanes is consecutive. Other tiles are dense, with
rows padded to whole vectors, and by a line more where many of them would share few places in the nearest cache. Blocks that
may be read where they are in memory have rows as there.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu.points import Point
from tilec.backends.cpu.vector import BYTES, Emit, Kind

LINE = 64
"""Bytes of a cache line."""
CROWDED = 512
"""Rows that are a multiple of so many bytes apart share few places in the nearest cache."""


@dataclass(frozen=True)
class Tile:
    """A tile in scratch.

    `strides` of the axes other than the lane axis, in elements; `panel`: elements from one panel to the next (0 where it
    holds one panel only); `marked`: absent zeros are told from others.
    """

    base: Any
    kind: Kind
    axes: tuple[str, ...]
    strides: Mapping[str, int]
    lane: str | None
    width: int
    panel: int
    marked: bool

    def start(self, e: Emit, p: Point) -> Any:
        """Where the elements at a point begin."""
        return self.offset(e, p.at, p.vector == self.lane and p.parts * e.lanes == self.width)

    def offset(self, e: Emit, at: Mapping[str, Any], panel: bool = False) -> Any:
        """Where the element at local positions lies. `panel`: that of the lane axis is where a panel begins."""
        out: Any = 0
        for axis in self.axes:
            if axis != self.lane:
                out = e.add(out, e.mul(at[axis], self.strides[axis]))
        if self.lane is None:
            return out
        x = at[self.lane]
        if panel:
            return e.add(out, e.mul(x, self.panel // self.width))
        if isinstance(x, int):
            return e.add(out, x // self.width * self.panel + x % self.width)
        shift = self.width.bit_length() - 1
        return e.add(out, e.add(e.mul(e.lshr(x, shift), self.panel), e.and_(x, self.width - 1)))


class Scratch:
    """Hands out a worker's scratch memory; what a region took is free again when it ends."""

    def __init__(self, e: Emit, base: Any) -> None:
        self.e, self.base = e, base
        self.used = self.most = 0

    def take(self, count: int, kind: Kind) -> Any:
        """The address of `count` elements, aligned to a cache line."""
        offset = self.used
        self.used = -(-(offset + count * _bytes(kind)) // LINE) * LINE
        self.most = max(self.most, self.used)
        return self.e.at(self.base, offset, 1)

    @contextmanager
    def rest(self) -> Generator[None]:
        """What is taken in here is counted from where it begins: code that is the same has the same offsets."""
        base, used, most = self.base, self.used, self.most
        self.base, self.used, self.most = self.e.at(base, used, 1), 0, 0
        yield
        self.base, self.used, self.most = base, used, max(most, used + self.most)

    def tile(
        self,
        kind: Kind,
        extents: Mapping[str, int],
        lane: str | None,
        width: int,
        whole: bool,
        marked: bool,
        dense: bool = False,
    ) -> Tile:
        """A new tile over axes with these extents. `whole`: all panels of lanes, not the present one only; `dense`: rows
        are not padded."""
        others = [a for a in extents if a != lane]
        on_lanes = lane is not None and lane in extents
        step = width if on_lanes else 1
        strides: dict[str, int] = {}
        for n, axis in enumerate(reversed(others)):
            strides[axis] = step
            rows = n == 0 and not on_lanes and not dense
            step *= self.apart(extents[axis], kind) if rows else extents[axis]
        panels = -(-extents[lane] // width) if on_lanes and lane is not None and whole else 1
        base = self.take(step * panels + self.e.lanes, kind)
        panel = step if on_lanes and whole else 0
        return Tile(
            base, kind, tuple(extents), strides, lane if on_lanes else None, width, panel, marked
        )

    def apart(self, n: int, kind: Kind) -> int:
        """Elements from one row of n elements to the next."""
        whole, size = -(-n // self.e.lanes) * self.e.lanes, _bytes(kind)
        return whole if whole * size % CROWDED else whole + LINE // size


def _bytes(kind: Kind) -> int:
    """Bytes of an element in memory."""
    return BYTES["i8" if kind == "i1" else kind]
