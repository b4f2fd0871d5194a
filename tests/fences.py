"""Arrays that end, or begin, where memory cannot be read: who reads further dies."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

import numpy as np

KEPT: list[mmap.mmap] = []
"""The memory of all fenced arrays: it stays as long as the process does."""


def fenced(a: np.ndarray[Any, Any], *, before: bool = False) -> np.ndarray[Any, Any]:
    """A copy of an array with a page behind it that cannot be read, or `before` it."""
    page = mmap.PAGESIZE
    pages = -(-a.nbytes // page)
    memory = mmap.mmap(-1, (pages + 2) * page)
    KEPT.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    for at in (start, start + (pages + 1) * page):
        assert protect(ctypes.c_void_p(at), ctypes.c_size_t(page), 0) == 0
    offset = page if before else (pages + 1) * page - a.nbytes
    out: np.ndarray[Any, Any] = np.ndarray(a.shape, a.dtype, memory, offset)
    out[...] = a
    return out
