"""Arrays at a glance: what tells a call from other calls, in less than a microsecond.

`arrays.view` and `gpu.view` look closely, with an error for all that does not fit. Most calls are like an earlier one, and
for these it is enough to know that they are: arrays with equal marks have equal descriptions but for their address.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tilec.arrays import numpy_address

Mark = tuple[object, ...]
"""Element type, shape, strides, where the address lies between multiples of 16, and the device; equal for like arrays."""
Glance = tuple[Mark, int]
"""A mark and an address."""
Look = Callable[[Any], Glance | None]
"""Gives the mark and the address of an array; None where a closer look is due."""


def writable(x: Any) -> bool:
    """Whether an array may be written, for one that gives a glance."""
    flags = getattr(x, "flags", None)
    return bool(getattr(flags, "writeable", True))


def _closer(x: Any) -> None:
    return None


def _numpy(x: Any) -> Glance:
    address = numpy_address(x)
    return (x.dtype, x.shape, x.strides, address & 15), address


def _torch(x: Any) -> Glance | None:
    try:
        address = x.data_ptr()
        if not address or x.is_neg() or (x.requires_grad and _records()):
            return None
        return (x.dtype, x.shape, x.stride(), address & 15, x.device), address
    except RuntimeError:  # not strided, nested, or inside vmap or grad
        return None


def _records() -> bool:
    return sys.modules["torch"].is_grad_enabled()


def _cupy(x: Any) -> Glance:
    data = x.data
    address = data.ptr
    return (x.dtype, x.shape, x.strides, address & 15, data.device_id), address


_EXACTLY: dict[tuple[str, str], Look] = {
    ("numpy", "ndarray"): _numpy,
    ("torch", "Tensor"): _torch,
    ("torch", "Parameter"): _torch,
    ("cupy", "ndarray"): _cupy,
}


class _Looks(dict[type, Look]):
    def __missing__(self, cls: type) -> Look:
        name = cls.__module__.partition(".")[0], cls.__name__
        self[cls] = found = _EXACTLY.get(name, _closer)
        return found


looks = _Looks()
"""How an array is looked at, by its class. A derived class may mean other things by the same attributes."""
