"""Machine code as one piece of memory: an object file with its sections in place, and what is left to do when it is loaded.

A linker does for a program what this does for a kernel: sections are laid out one after the other, and what refers from one
to another is settled, as distances do not depend on where all of it will lie. What remains are addresses: of functions of
the C library, which are called by way of stubs, and of places in the code itself. So code in the cache is loaded by
a copy, without LLVM.
"""

from __future__ import annotations

import ctypes
import functools
import json
import mmap
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from tilec.errors import CompilerBug, ResourceError

MAGIC = b"tilec machine code 1\n"
PAGE = 4096
STUB = b"\xff\x25\x00\x00\x00\x00"
"""`jmp` to the address that follows."""

# what an ELF file says
ELF, X86_64 = b"\x7fELF\x02\x01", b"\x3e\0"
ABSOLUTE, DISTANCES, SLOTS = 1, (2, 4), (9, 41, 42)
"""Relocations: an address of 64 bits; the distance to a place, in 32; that to where the address of the place is kept."""
SYMTAB, RELA, NO_BITS = 2, 4, 8
WRITE, ALLOC = 1, 2
GLOBAL = 1


class Section(NamedTuple):
    """A section of an ELF file."""

    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry: int


class Symbol(NamedTuple):
    """A symbol: where its name begins, its kind, in which section it is defined (0: in none), and where there."""

    name: int
    info: int
    other: int
    section: int
    value: int
    size: int


class Relocation(NamedTuple):
    """A place in a section, and what is to be put there."""

    section: int
    offset: int
    kind: int
    symbol: Symbol
    addend: int


SECTION, SYMBOL, RELOCATION = map(struct.Struct, ("<IIQQQQIIQQ", "<IBBHQQ", "<QQq"))


@dataclass(frozen=True)
class Image:
    """Code in place. `code`: the bytes that are read and executed, a number of pages; data that is written follows.
    `entries`: the functions that can be asked for; `inside`, `outside`: where addresses are to be put, of places in here and
    of functions elsewhere."""

    data: bytes
    code: int
    entries: dict[str, int]
    inside: list[tuple[int, int]]
    outside: list[tuple[int, str]]

    def pack(self) -> bytes:
        """As bytes."""
        facts = json.dumps([self.code, self.entries, self.inside, self.outside]).encode()
        return MAGIC + len(facts).to_bytes(8, "little") + facts + self.data

    @staticmethod
    def unpack(data: bytes) -> Image:
        """The inverse of `pack`."""
        begin = len(MAGIC) + 8
        end = begin + int.from_bytes(data[len(MAGIC) : begin], "little")
        return Image(data[end:], *json.loads(data[begin:end]))


class Loaded:
    """An image in memory. The addresses hold as long as this object is alive."""

    def __init__(self, image: Image) -> None:
        self._memory = mmap.mmap(-1, len(image.data))
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._entries = image.entries
        self._memory[:] = image.data
        for at, place in image.inside:
            self._put(at, self._base + place)
        for at, name in image.outside:
            self._put(at, _function(name))
        libc: Any = ctypes.CDLL(None)
        size, allowed = ctypes.c_size_t(image.code), mmap.PROT_READ | mmap.PROT_EXEC
        if libc.mprotect(ctypes.c_void_p(self._base), size, allowed):
            raise ResourceError("the system lets no memory be executed: machine code cannot run")

    def _put(self, at: int, address: int) -> None:
        struct.pack_into("<Q", self._memory, at, address)

    def address(self, name: str) -> int:
        """The entry address of a function; KeyError where there is none of that name."""
        return self._base + self._entries[name]


def is_image(data: bytes) -> bool:
    """Whether these bytes are a packed image."""
    return data.startswith(MAGIC)


def known(triple: str) -> bool:
    """Whether objects for a machine become images."""
    return triple.startswith("x86_64") and "linux" in triple


def linked(object: bytes) -> bytes:
    """An object file as a packed image; as it is where it is of another system, or holds what is not known here."""
    same = object.startswith(ELF) and object[18:20] == X86_64
    found = _Linker(object).image() if same and sys.platform == "linux" else None
    return object if found is None else found.pack()


def _function(name: str) -> int:
    """The address of a function of the C library, or of the one for mathematics."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
        except AttributeError:
            continue
    raise CompilerBug(f"machine code calls {name}, which no library has")


@functools.cache
def _libraries() -> tuple[Any, ...]:
    found: list[Any] = [ctypes.CDLL(None)]
    for name in ("libm.so.6", "libgcc_s.so.1"):
        try:
            found.append(ctypes.CDLL(name))
        except OSError:  # another C library, which has all of it
            continue
    return tuple(found)


class _Linker:
    """Links one object file."""

    def __init__(self, object: bytes) -> None:
        self.object = object
        (offset,) = struct.unpack_from("<Q", object, 40)
        size, count = struct.unpack_from("<HH", object, 58)
        self.sections = [
            Section(*SECTION.unpack_from(object, offset + n * size)) for n in range(count)
        ]
        table = next(s for s in self.sections if s.kind == SYMTAB)
        self.symbols = [Symbol(*x) for x in SYMBOL.iter_unpack(self.content(table))]
        self.names = self.content(self.sections[table.link])
        self.data = bytearray()
        self.places: dict[int, int] = {}
        """Where sections begin."""
        self.inside: list[tuple[int, int]] = []
        self.outside: list[tuple[int, str]] = []
        self.stubs: dict[str, int] = {}
        self.slots: dict[Symbol, int] = {}

    def image(self) -> Image | None:
        """The image; None where something is not known here."""
        self.place(0)
        found = list(self.relocations())
        for r in found:
            self.reserve(r)
        self.room(PAGE)
        code = len(self.data)
        self.place(WRITE)
        for symbol, at in self.slots.items():
            self.address(symbol, 0, at)
        if not all(map(self.settled, found)):
            return None
        entries = {
            self.name(s): self.places[s.section] + s.value
            for s in self.symbols
            if s.info >> 4 == GLOBAL and s.section in self.places
        }
        return Image(bytes(self.data), code, entries, self.inside, self.outside)

    def content(self, s: Section) -> bytes:
        """What is in a section."""
        return bytes(s.size) if s.kind == NO_BITS else self.object[s.offset : s.offset + s.size]

    def name(self, s: Symbol) -> str:
        """The name of a symbol."""
        return self.names[s.name : self.names.index(0, s.name)].decode()

    def place(self, write: int) -> None:
        """Lays out the sections that are written, or those that are not."""
        for n, s in enumerate(self.sections):
            if s.flags & ALLOC and s.flags & WRITE == write:
                self.places[n] = self.room(max(1, s.align))
                self.data += self.content(s)

    def room(self, align: int) -> int:
        """The end of what there is, brought to a multiple."""
        self.data += bytes(-len(self.data) % align)
        return len(self.data)

    def relocations(self) -> Iterator[Relocation]:
        """All of sections that are loaded."""
        for s in self.sections:
            if s.kind == RELA and self.sections[s.info].flags & ALLOC:
                for offset, info, addend in RELOCATION.iter_unpack(self.content(s)):
                    symbol, kind = divmod(int(info), 1 << 32)
                    yield Relocation(s.info, offset, kind, self.symbols[symbol], addend)

    def reserve(self, r: Relocation) -> None:
        """Makes room for what a relocation needs beside its section: the stub of a function, or a place for an address."""
        name = self.name(r.symbol)
        if r.kind in DISTANCES and not r.symbol.section and name not in self.stubs:
            self.stubs[name] = self.room(16)
            self.data += STUB + bytes(8)
            self.address(r.symbol, 0, len(self.data) - 8)
        if r.kind in SLOTS and r.symbol not in self.slots:
            self.slots[r.symbol] = self.room(8)
            self.data += bytes(8)

    def address(self, symbol: Symbol, addend: int, at: int) -> None:
        """Has an address put there when the image is loaded."""
        if symbol.section:
            self.inside.append((at, self.places[symbol.section] + symbol.value + addend))
        else:
            self.outside.append((at, self.name(symbol)))

    def settled(self, r: Relocation) -> bool:
        """Settles a relocation; false where nobody here knows how."""
        at, own = self.places[r.section] + r.offset, r.symbol.section
        if (
            own and own not in self.places
        ):  # a constant of the linker's, or what several files share
            return False
        if r.kind == ABSOLUTE and (own or not r.addend):
            self.address(r.symbol, r.addend, at)
        elif r.kind in DISTANCES or r.kind in SLOTS:
            where = self.slots.get(r.symbol) if r.kind in SLOTS else self.where(r.symbol)
            assert where is not None
            struct.pack_into("<i", self.data, at, where + r.addend - at)
        else:
            return False
        return True

    def where(self, symbol: Symbol) -> int:
        """Where what a symbol means is in the image."""
        if not symbol.section:
            return self.stubs[self.name(symbol)]
        return self.places[symbol.section] + symbol.value
