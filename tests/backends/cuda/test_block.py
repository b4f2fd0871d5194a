"""The parameters of kernels in memory."""

from __future__ import annotations

import ctypes
import struct

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


def test_a_map_is_written_only_where_its_tensor_has_moved() -> None:
    written: list[int] = []

    def writer(place: int):
        assert place % ALIGN == 0

        def write(tensor: int) -> None:
            written.append(tensor)
            ctypes.memset(place, tensor % 256, MAP_BYTES)

        return write

    block = Block([[(b"12345678",), (Map(1, 8, writer),)]])
    for bases in ((100, 7), (101, 7), (101, 9), (100, 7)):
        block.fill(bases)
        assert parameters(block.tables[0], [8, MAP_BYTES]) == [
            b"12345678",
            bytes([bases[1] + 8]) * MAP_BYTES,
        ]
    assert written == [15, 17, 15]


def test_a_map_that_could_not_be_written_is_written_again() -> None:
    fail = [True]
    written: list[int] = []

    def write(tensor: int) -> None:
        if fail.pop():
            raise RuntimeError
        written.append(tensor)

    block = Block([[(Map(0, 0, lambda place: write),)]])
    try:
        block.fill((3,))
    except RuntimeError:
        fail.append(False)
    block.fill((3,))
    assert written == [3]
