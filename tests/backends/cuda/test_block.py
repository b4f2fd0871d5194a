"""The parameters of kernels in memory."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tilec.backends.cuda.block import (
    ALIGN,
    MAP_BYTES,
    Address,
    Block,
    Field,
    Layout,
    Map,
    Parameter,
    Pointer,
)


def parameters(table: int, sizes: list[int]) -> list[bytes]:
    """What a driver would copy: the bytes that a table's entries point to."""
    places = (ctypes.c_void_p * len(sizes)).from_address(table)
    return [ctypes.string_at(p, n) for p, n in zip(places, sizes, strict=True)]


def block(*kernels: list[Parameter], **numbers: float) -> Block:
    """A block of kernels, whose addresses are called `0`, `1` and so on."""
    layout = Layout(dict(enumerate(kernels)), {(n,): k for k, n in enumerate(numbers)})
    places = {str(n): Address(n, 100 * n) for n in range(3)}
    views = dict.fromkeys(places, View())
    return Block(layout.contents([*numbers.values()], {"M": 3}, places, views))


class View:
    pointer, dtype, shape, strides = 0, "f16", (), ()


def test_pieces_follow_each_other_and_addresses_are_filled_in() -> None:
    fields = Field("q", ("n",)), Pointer("0"), Field("d", ("x",)), Pointer("1", 24)
    twice = Field("i", lambda known: 2 * int(known["M"]))
    made = block([fields], [(Field("i", ("n",)), twice), (Pointer("1"),)], n=5, x=0.5)
    for first, second in ((4096, 8192), (1 << 40, 64)):
        made.fill((first, second))
        (got,) = parameters(made.tables[0], [32])
        assert got == struct.pack("<qqdq", 5, first, 0.5, second + 124)
        want = [struct.pack("<ii", 5, 6), struct.pack("<q", second + 100)]
        assert parameters(made.tables[1], [8, 8]) == want


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
    made = block([(Field("q", ("n",)),), (Map("1", lambda view: writer),)], n=7)
    for bases in ((100, 7), (101, 7), (101, 9), (100, 7)):
        made.fill(bases)
        assert parameters(made.tables[0], [8, MAP_BYTES]) == [
            struct.pack("<q", 7),
            bytes([bases[1] + 100]) * MAP_BYTES,
        ]
    assert writer.done == [("write", 107), ("move", 109), ("move", 107)]


def test_a_map_that_could_not_be_written_is_written_again() -> None:
    writer = Writer(True, False, True)
    made = block([(Map("0", lambda view: writer),), (Pointer("1"),)])
    for base, good in ((3, False), (3, True), (4, False), (3, True)):
        if good:
            made.fill((base, base))
            assert parameters(made.tables[0], [128, 8])[1] == struct.pack("<q", base + 100)
        else:
            with pytest.raises(RuntimeError):
                made.fill((base, base))
    assert writer.done == [("write", 3), ("write", 3)]
