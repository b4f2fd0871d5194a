"""The parameters of a call's kernels, in one block of memory: made once, and changed in place where the addresses change.

Where what lies in it is a `Layout`, known before any call. A call's numbers then are written in one go.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tilec.backends.cuda.call import Key, View
from tilec.scalar import Number

ALIGN = 64
"""Of a parameter; a tensor map needs it."""
MAP_BYTES = 128
WORKSPACE, WORDS = "(workspace)", "(words)"
"""What kernels call the scratch memory of their blocks, and the words in which they count."""


@dataclass(frozen=True, slots=True)
class Field:
    """A number of a call, as `struct` writes it: the one of a key, or one to be found out from sizes and scalars."""

    format: str
    what: Key | Callable[[Mapping[str, Number]], int]


@dataclass(frozen=True, slots=True)
class Pointer:
    """Eight bytes: the address of what a call has under a name, and `plus` bytes."""

    to: str
    plus: int = 0


class Writer(Protocol):
    """Writes the map of a tensor at an address to a place in memory: all of it, or the address alone where it is there."""

    def write(self, place: int, tensor: int) -> None: ...
    def move(self, place: int, tensor: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map of what a call has under a name."""

    to: str
    writer: Callable[[View], Writer]


Piece = Field | Pointer | Map
Parameter = tuple[Piece, ...]
"""The pieces of a kernel's parameter, one after the other."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address number `base` of a call, and `plus` bytes."""

    base: int
    plus: int = 0


@dataclass(frozen=True, slots=True)
class Contents:
    """All of a block but its addresses. By the number of an address: which words hold it, and which maps; and what is added
    to it there."""

    image: bytes
    tables: Mapping[int, Sequence[int]]
    words: Mapping[int, Sequence[tuple[int, int]]]
    maps: Mapping[int, Sequence[tuple[int, int, Writer]]]


class Layout:
    """Where the parameters of some kernels lie. `index`: where the number of a key is in the list of a call's numbers."""

    def __init__(
        self, kernels: Mapping[int, Sequence[Parameter]], index: Mapping[Key, int]
    ) -> None:
        self._index = index
        self._formats = ["<"]
        self._picked: list[int] = []
        self._found: list[Callable[[Mapping[str, Number]], int]] = []
        self._pointers: list[tuple[int, Pointer]] = []
        self._maps: list[tuple[int, Map]] = []
        self._size = 0
        self._tables = {n: [self._put(p) for p in ps] for n, ps in kernels.items()}
        self._struct = struct.Struct("".join(self._formats))

    def _put(self, parameter: Parameter) -> int:
        """Appends a parameter; gives where it is."""
        place = self._size
        for x in parameter:
            match x:
                case Field(form, what):
                    self._picked.append(self._number(what))
                    self._extend(form)
                case Pointer():
                    self._pointers.append((self._size // 8, x))
                    self._extend("8x")
                case Map():
                    self._maps.append((self._size, x))
                    self._extend(f"{MAP_BYTES}x")
        self._extend(f"{-self._size % ALIGN}x")
        return place

    def _number(self, what: Key | Callable[[Mapping[str, Number]], int]) -> int:
        if isinstance(what, tuple):
            return self._index[what]
        self._found.append(what)
        return len(self._index) + len(self._found) - 1

    def _extend(self, form: str) -> None:
        self._formats.append(form)
        self._size += struct.calcsize(f"<{form}")

    def contents(
        self,
        numbers: Sequence[int | float],
        known: Mapping[str, Number],
        places: Mapping[str, Address],
        views: Mapping[str, View],
    ) -> Contents:
        """What a block of a call holds. `numbers`: in the order of the index; `known`: sizes and scalars; `places`: what
        addresses it has."""
        given = [*numbers, *[f(known) for f in self._found]]
        words: dict[int, list[tuple[int, int]]] = {}
        for at, pointer in self._pointers:
            to = places[pointer.to]
            words.setdefault(to.base, []).append((at, to.plus + pointer.plus))
        maps: dict[int, list[tuple[int, int, Writer]]] = {}
        for at, map in self._maps:
            to = places[map.to]
            maps.setdefault(to.base, []).append((at, to.plus, map.writer(views[map.to])))
        image = self._struct.pack(*[given[k] for k in self._picked])
        return Contents(image, self._tables, words, maps)


class Block:
    """The parameters of a call. `tables`: for each kernel, the address of the list of its parameters' addresses."""

    def __init__(self, contents: Contents) -> None:
        size, count = len(contents.image), sum(map(len, contents.tables.values()))
        self._memory = ctypes.create_string_buffer(size + 8 * count + ALIGN)
        start = -(-ctypes.addressof(self._memory) // ALIGN) * ALIGN
        ctypes.memmove(start, contents.image, size)
        self._words: Any = (ctypes.c_uint64 * (size // 8 + count)).from_address(start)
        self._words_of = contents.words
        self._maps_of = {
            base: [_Moved(start + at, plus, writer) for at, plus, writer in maps]
            for base, maps in contents.maps.items()
        }
        self._bases: tuple[int, ...] = ()
        self.tables: dict[int, int] = {}
        at = size // 8
        for n, places in contents.tables.items():
            self.tables[n] = start + 8 * at
            self._words[at : at + len(places)] = [start + p for p in places]
            at += len(places)

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

    def __init__(self, place: int, plus: int, writer: Writer) -> None:
        self.place, self.plus, self.writer = place, plus, writer
        self.there = False

    def follow(self, base: int) -> None:
        put = self.writer.move if self.there else self.writer.write
        self.there = False
        put(self.place, base + self.plus)
        self.there = True
