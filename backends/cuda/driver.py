"""What calls ask of CUDA's driver each time, directly: its bindings for Python take longer for a launch than it does."""

from __future__ import annotations

import ctypes
import functools
import os
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


_early = Attribute(EARLY, (ctypes.c_uint64 * 8)(1))


def settings(blocks: int, threads: int, shared: int, stream: int, early: bool) -> Settings:
    """The settings of a launch. `early`: it may begin before the kernel before it is done."""
    attributes = ctypes.addressof(_early) if early else None
    return Settings((blocks, 1, 1), (threads, 1, 1), shared, stream, attributes, int(early))


@functools.cache
def library() -> Any:
    """The driver's functions. Each gives a status, 0 where all is well."""
    out = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    out.cuLaunchKernelEx.argtypes = [ctypes.c_void_p] * 4
    out.cuTensorMapReplaceAddress.argtypes = [ctypes.c_void_p] * 2
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
