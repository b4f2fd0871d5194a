"""The arguments of a call's kernels, in one block of memory: made once, and changed in place where the addresses change."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

ALIGN = 64
"""Of a parameter; a tensor map needs it."""
MAP_BYTES = 128


@dataclass(frozen=True, slots=True)
class Address:
    """Eight bytes: the address number `base` of the call, and `plus` bytes."""

    base: int
    plus: int = 0


class Writer(Protocol):
    """Writes the map of a tensor at an address to a place in memory: all of it, or the address alone where it is there."""

    def write(self, place: int, tensor: int) -> None: ...
    def move(self, place: int, tensor: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map of the tensor at an address."""

    base: int
    plus: int
    writer: Writer


Piece = bytes | Address | Map
Parameter = tuple[Piece, ...]
"""The pieces of a kernel's parameter, one after the other."""


class Block:
    """The parameters of some kernels. `tables`: for each kernel, the address of the list of its parameters' addresses."""

    def __init__(self, kernels: Sequence[Sequence[Parameter]]) -> None:
        self._words_of: dict[int, list[tuple[int, int]]] = {}
        self._maps_of: dict[int, list[_Moved]] = {}
        self._bases: tuple[int, ...] = ()
        image = bytearray()
        places = [[self._put(p, image) for p in k] for k in kernels]
        at, count = len(image), sum(map(len, places))
        self._memory = ctypes.create_string_buffer(at + 8 * count + ALIGN)
        self._start = start = -(-ctypes.addressof(self._memory) // ALIGN) * ALIGN
        ctypes.memmove(start, bytes(image), at)
        self._words: Any = (ctypes.c_uint64 * (at // 8 + count)).from_address(start)
        self.tables: list[int] = []
        for some in places:
            self.tables.append(start + at)
            self._words[at // 8 : at // 8 + len(some)] = [start + p for p in some]
            at += 8 * len(some)
        for moved in self._maps_of.values():
            for m in moved:
                m.place += start

    def _put(self, parameter: Parameter, image: bytearray) -> int:
        """Appends a parameter to the image of the memory; gives where it is there."""
        place = len(image)
        for x in parameter:
            match x:
                case bytes():
                    image += x
                case Address():
                    self._words_of.setdefault(x.base, []).append((len(image) // 8, x.plus))
                    image += bytes(8)
                case Map():
                    self._maps_of.setdefault(x.base, []).append(_Moved(x, len(image)))
                    image += bytes(MAP_BYTES)
        image += bytes(-len(image) % ALIGN)
        return place

    def fill(self, bases: tuple[int, ...]) -> None:
        """Writes the addresses of a call, those that differ from the last ones."""
        before, self._bases = self._bases, ()
        for n, base in enumerate(bases):
            if not before or base != before[n]:
                self._follow(n, base)
        self._bases = bases

    def _follow(self, n: int, base: int) -> None:
        for at, plus in self._words_of.get(n, ()):
            self._words[at] = base + plus
        for m in self._maps_of.get(n, ()):
            m.follow(base)


class _Moved:
    """A tensor map in a block."""

    __slots__ = ("place", "plus", "there", "writer")

    def __init__(self, map: Map, place: int) -> None:
        self.plus, self.writer, self.place = map.plus, map.writer, place
        self.there = False

    def follow(self, base: int) -> None:
        put = self.writer.move if self.there else self.writer.write
        self.there = False
        put(self.place, base + self.plus)
        self.there = True

