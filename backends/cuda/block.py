"""The arguments of a call's kernels, in one block of memory: made once, and changed in place where the addresses change."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
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
        flat = [p for k in kernels for p in k]
        size = sum(_rounded(_size(p)) for p in flat) + 8 * len(flat)
        self._memory = ctypes.create_string_buffer(size + ALIGN)
        self._start = _rounded(ctypes.addressof(self._memory))
        self._words: Any = (ctypes.c_uint64 * (size // 8)).from_address(self._start)
        self._words_of: dict[int, list[tuple[int, int]]] = {}
        self._maps_of: dict[int, list[_Moved]] = {}
        self._bases: tuple[int, ...] = ()
        at = 0
        places: list[int] = []
        for p in flat:
            places.append(self._start + at)
            self._put(p, at)
            at += _rounded(_size(p))
        self.tables = list(self._tables([len(k) for k in kernels], places, at))

    def _put(self, parameter: Parameter, at: int) -> None:
        for x in parameter:
            match x:
                case bytes():
                    ctypes.memmove(self._start + at, x, len(x))
                    at += len(x)
                case Address():
                    self._words_of.setdefault(x.base, []).append((at // 8, x.plus))
                    at += 8
                case Map():
                    self._maps_of.setdefault(x.base, []).append(_Moved(x, self._start + at))
                    at += MAP_BYTES

    def _tables(self, counts: Sequence[int], places: Sequence[int], at: int) -> Iterator[int]:
        first = 0
        for n in counts:
            yield self._start + at
            for place in places[first : first + n]:
                self._words[at // 8] = place
                at += 8
            first += n

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


def _size(parameter: Parameter) -> int:
    return sum(_bytes(x) for x in parameter)


def _bytes(x: Piece) -> int:
    return len(x) if isinstance(x, bytes) else 8 if isinstance(x, Address) else MAP_BYTES


def _rounded(n: int) -> int:
    return -(-n // ALIGN) * ALIGN
