"""Where tiles lie in a block's shared memory: which bytes, decided once it is known how long each tile lives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

ALIGN = 128
"""Bytes at whose multiples tiles start."""

SIZES = {
    "double": 8,
    "i64": 8,
    "float": 4,
    "i32": 4,
    **dict.fromkeys(("f16", "bf16", "i16"), 2),
    **dict.fromkeys(("f8e4m3", "f8e5m2", "i8", "u8", "b8", "bool"), 1),
}
"""Bytes of the types that tiles hold."""


@dataclass(eq=False)
class Tile:
    """A tile in shared memory (or, where that is full, in a block's part of a workspace).

    `ctype`: the C type of an element; `strides` in elements; `first` and `last`: the stages, in order of the text, that
    write it first and read it last. `packed`: rows lie as the tensor cores read them; along the axes `summed` there are
    zeros past the window's end.
    """

    name: str
    ctype: str
    axes: tuple[str, ...]
    extents: Mapping[str, int]
    strides: Mapping[str, int]
    size: int
    first: int = 0
    last: int = 0
    offset: int = 0
    outside: bool = False
    marked: bool = False
    packed: bool = False
    summed: frozenset[str] = frozenset()

    @property
    def bytes(self) -> int:
        """What it takes."""
        return -(-self.size * SIZES[self.ctype] // ALIGN) * ALIGN


def tile(
    name: str, ctype: str, extents: Mapping[str, int], marked: bool, packed: bool = False
) -> Tile:
    """A tile over axes with these extents. Rows are padded to an odd number of words, so that the threads of a warp that
    read a column find each element in another bank; `packed`: to an odd number of pieces of 16 bytes."""
    strides: dict[str, int] = {}
    step = 1
    for n, axis in enumerate(reversed(tuple(extents))):
        strides[axis] = step
        step *= max(extents[axis], 1)
        if n == 0 and len(extents) > 1:
            step = padded(step, SIZES[ctype], 16 if packed else 4)
    return Tile(
        name, ctype, tuple(extents), dict(extents), strides, step, marked=marked, packed=packed
    )


def padded(row: int, size: int, piece: int) -> int:
    """The elements from one row to the next: an odd number of pieces (of some bytes, or of an element)."""
    unit = max(piece // size, 1)
    words = -(-row // unit)
    return (words + 1 - words % 2) * unit


@dataclass
class Layout:
    """Places for tiles: `shared` bytes of shared memory, `workspace` bytes in memory per block."""

    shared: int = 0
    workspace: int = 0
    outside: list[Tile] = field(default_factory=list[Tile])


def allocate(tiles: Sequence[Tile], limit: int) -> Layout:
    """Gives each tile its place. The largest ones move to the workspace until the rest fits `limit` bytes."""
    layout = Layout()
    inside = list(tiles)
    while True:
        layout.shared = _pack(inside)
        if layout.shared <= limit or not inside:
            break
        largest = max(inside, key=lambda t: t.bytes)
        inside.remove(largest)
        layout.outside.append(largest)
    for t in layout.outside:
        t.outside = True
    layout.workspace = _pack(layout.outside)
    return layout


def _pack(tiles: Sequence[Tile]) -> int:
    """First fit, longest-lived tiles first; gives the bytes used."""
    placed: list[Tile] = []
    top = 0
    for t in sorted(tiles, key=lambda t: (t.first - t.last, -t.bytes)):
        beside = sorted(
            (o for o in placed if o.first <= t.last and t.first <= o.last), key=lambda o: o.offset
        )
        at = 0
        for o in beside:
            if at + t.bytes <= o.offset:
                break
            at = max(at, o.offset + o.bytes)
        t.offset = at
        placed.append(t)
        top = max(top, at + t.bytes)
    return top
