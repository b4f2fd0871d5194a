"""What calls ask of CUDA's driver each time, directly: its bindings for Python take longer for a launch than it does."""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Sequence
from typing import Any

EARLY = 6
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION"""


class Attribute(ctypes.Structure):
    """CUlaunchAttribute."""

    _fields_ = (("id", ctypes.c_uint64), ("value", ctypes.c_uint64 * 8))


class Settings(ctypes.Structure):
    """CUlaunchConfig: how a kernel is launched."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


_settings = struct.Struct("@7IPPI0P")
"""The same, as a C struct: made in a fraction of the time."""
_early = Attribute(EARLY, (ctypes.c_uint64 * 8)(1))


def settings(blocks: int, threads: int, shared: int, stream: int, early: bool) -> Settings:
    """The settings of a launch. `early`: it may begin before the kernel before it is done."""
    attributes = ctypes.addressof(_early) if early else 0
    packed = _settings.pack(blocks, 1, 1, threads, 1, 1, shared, stream, attributes, early)
    return Settings.from_buffer_copy(packed)


KINDS = {"f16": 6, "bf16": 9}
"""CU_TENSOR_MAP_DATA_TYPE_FLOAT16 and _BFLOAT16."""
SWIZZLE, PROMOTION = 3, 2
"""CU_TENSOR_MAP_SWIZZLE_128B and _L2_PROMOTION_L2_128B: a row of a box has 128 bytes; more is what another box brings."""
_Longs, _Ints = ctypes.c_uint64 * 5, ctypes.c_uint * 5


def encode(
    place: int,
    kind: int,
    tensor: int,
    dims: Sequence[int],
    steps: Sequence[int],
    box: Sequence[int],
) -> int:
    """Makes the map of a tensor at a place in memory; the status. `steps`: bytes, of all dimensions but the first."""
    each = _Ints(*[1] * len(box))
    lists = _Longs(*dims), _Longs(*steps), _Ints(*box), each
    make = library().cuTensorMapEncodeTiled
    return make(place, kind, len(dims), tensor, *lists, 0, SWIZZLE, PROMOTION, 0)


@functools.cache
def library() -> Any:
    """The driver's functions. Each gives a status, 0 where all is well."""
    out = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    out.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    out.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
    out.cuTensorMapEncodeTiled.argtypes = [
        *(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint, ctypes.c_void_p),
        *([ctypes.c_void_p] * 4),
        *([ctypes.c_int] * 4),
    ]
    for tell in (out.cuGetErrorName, out.cuGetErrorString):
        tell.argtypes = [ctypes.c_int, ctypes.c_void_p]
    return out


def told(status: int) -> str:
    """What the driver says of a status that is not 0."""
    known = library()
    name, text = _text(known.cuGetErrorName, status), _text(known.cuGetErrorString, status)
    return f"{name}: {text}" if name else f"CUDA error {status}"


def _text(tell: Any, status: int) -> str:
    """Nothing for a status that the driver does not know."""
    place = ctypes.c_char_p()
    tell(status, ctypes.addressof(place))
    return (place.value or b"").decode()
