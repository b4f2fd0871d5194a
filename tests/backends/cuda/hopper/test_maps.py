"""Tensor maps in the parameters of a call: one is made, the others are copies of it with other addresses."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tilec.backends.cuda import driver
from tilec.backends.cuda.block import MAP_BYTES
from tilec.backends.cuda.hopper import launch


class Driver:
    """Replaces addresses, which are the first eight bytes of a map. `refuses`: it does so no more."""

    refuses = False

    def cuTensorMapReplaceAddress(self, place: int, tensor: int) -> int:
        if self.refuses:
            return 1
        ctypes.memmove(place, struct.pack("<Q", tensor), 8)
        return 0


def test_one_map_is_made_and_then_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def written(pointer: int) -> bytes:
        return struct.pack("<Q", pointer).ljust(MAP_BYTES, b"m")

    def encoded(copy: object, view: object, pointer: int) -> bytes:
        made.append(pointer)
        return written(pointer)

    library = Driver()
    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(launch, "_encoded", encoded)
    places = [ctypes.create_string_buffer(b"x" * MAP_BYTES, MAP_BYTES) for _ in range(2)]
    first, second = map(ctypes.addressof, places)
    maps = launch.TensorMap(None, None)  # type: ignore[arg-type]
    maps.write(first, 4096)
    maps.write(second, 8192)
    assert [p.raw for p in places] == [written(4096), written(8192)]
    maps.move(first, 1 << 40)
    assert places[0].raw == written(1 << 40)
    assert made == [4096]
    library.refuses = True
    maps.move(second, 64)
    assert places[1].raw == written(64)
    assert made == [4096, 64]
