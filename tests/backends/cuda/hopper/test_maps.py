"""Tensor maps in the parameters of a call: one is made, the others are copies of it with other addresses."""

from __future__ import annotations

import ctypes
import struct

import pytest

from tilec.backends.cuda import driver
from tilec.backends.cuda.block import MAP_BYTES
from tilec.backends.cuda.hopper import launch
from tilec.backends.cuda.hopper.source import CopyMap
from tilec.errors import UnsupportedError


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

    def encode(copy: object, dtype: str, shape: object, strides: object, tensor: int, place: int):
        made.append(tensor)
        ctypes.memmove(place, written(tensor), MAP_BYTES)

    library = Driver()
    monkeypatch.setattr(driver, "library", lambda: library)
    monkeypatch.setattr(launch, "encode", encode)
    places = [ctypes.create_string_buffer(b"x" * MAP_BYTES, MAP_BYTES) for _ in range(2)]
    first, second = map(ctypes.addressof, places)
    maps = launch.TensorMap(None, "f16", (), ())  # type: ignore[arg-type]
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


COPIES = [CopyMap("K", 3, 2, 64, 128, False), CopyMap("K", 3, 2, 128, 128, True)]


@pytest.mark.parametrize("copy", COPIES)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_the_driver_is_asked_as_its_bindings_would(monkeypatch, copy, dtype) -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    asked: list[tuple] = []

    class Driver:
        def cuTensorMapEncodeTiled(self, place, kind, rank, tensor, *rest) -> int:
            *lists, interleave, swizzle, promotion, fill = rest
            dims, steps, box, each = (list(x[:rank]) for x in lists)
            asked.append((place, kind, rank, tensor, dims, steps[: rank - 1], box, each))
            asked.append((interleave, swizzle, promotion, fill))
            return len(asked) > 2

    library = Driver()
    monkeypatch.setattr(driver, "library", lambda: library)
    args = copy, dtype, (2, 1, 100, 128), (25600, 7, 256, 1), 4096, 1 << 20
    launch.encode(*args)
    kinds = bindings.CUtensorMapDataType
    kind = kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    kind = kind if dtype == "f16" else kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
    if copy.slabs:
        want = [64, 100, 2, 2, 1], [512, 128, 51200, 256], [64, 128, 2, 1, 1], [1] * 5
    else:
        want = [128, 100, 2, 1], [512, 51200, 256], [64, 64, 1, 1], [1] * 4
    assert asked[0] == (1 << 20, int(kind), len(want[0]), 4096, *want)
    assert asked[1] == (
        int(bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        int(bindings.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B),
        int(bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
        int(bindings.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
    )
    with pytest.raises(UnsupportedError, match=r"no tensor map of K: sizes \["):
        launch.encode(*args)
