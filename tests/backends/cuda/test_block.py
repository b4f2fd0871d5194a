"""The parameters of kernels in memory."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tilec.backends.cuda.block import ALIGN, MAP_BYTES, Address, Block, Map


def parameters(table: int, sizes: list[int]) -> list[bytes]:
    """What a driver would copy: the bytes that a table's entries point to."""
    places = (ctypes.c_void_p * len(sizes)).from_address(table)
    return [ctypes.string_at(p, n) for p, n in zip(places, sizes, strict=True)]


def test_pieces_follow_each_other_and_addresses_are_filled_in() -> None:
    struct_ = (struct.pack("<q", 5), Address(0), b"abcdefgh", Address(1, 24))
    block = Block([[struct_], [(b"\1\0\0\0",), (Address(1),)]])
    for first, second in ((4096, 8192), (1 << 40, 64)):
        block.fill((first, second))
        (got,) = parameters(block.tables[0], [32])
        assert got == struct.pack("<qq8sq", 5, first, b"abcdefgh", second + 24)
        assert parameters(block.tables[1], [4, 8]) == [b"\1\0\0\0", struct.pack("<q", second)]


class Writer:
    """Writes maps of bytes that are all the same. `fail`: what raises, in turn."""

    def __init__(self, *fail: bool) -> None:
        self.done: list[tuple[str, int]] = []
        self.fail = list(fail)

    def write(self, place: int, tensor: int) -> None:
        assert place % ALIGN == 0
        self.put("write", place, tensor)

    def move(self, place: int, tensor: int) -> None:
        self.put("move", place, tensor)

    def put(self, how: str, place: int, tensor: int) -> None:
        if self.fail and self.fail.pop(0):
            raise RuntimeError
        self.done.append((how, tensor))
        ctypes.memset(place, tensor % 256, MAP_BYTES)


def test_a_map_is_written_once_and_moved_only_where_its_tensor_has() -> None:
    writer = Writer()
    block = Block([[(b"12345678",), (Map(1, 8, writer),)]])
    for bases in ((100, 7), (101, 7), (101, 9), (100, 7)):
        block.fill(bases)
        assert parameters(block.tables[0], [8, MAP_BYTES]) == [
            b"12345678",
            bytes([bases[1] + 8]) * MAP_BYTES,
        ]
    assert writer.done == [("write", 15), ("move", 17), ("move", 15)]


def test_a_map_that_could_not_be_written_is_written_again() -> None:
    writer = Writer(True, False, True)
    block = Block([[(Map(0, 0, writer),), (Address(1),)]])
    for base, good in ((3, False), (3, True), (4, False), (3, True)):
        if good:
            block.fill((base, base))
            assert parameters(block.tables[0], [128, 8])[1] == struct.pack("<q", base)
        else:
            with pytest.raises(RuntimeError):
                block.fill((base, base))
    assert writer.done == [("write", 3), ("write", 3)]
