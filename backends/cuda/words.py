"""Words of device memory, 0 between launches, in which the kernels of a stream count: three for each stream and capture.

The first is what the fast kernels deal their tiles from, the second the flag by which they ask for the exact ones to run,
the third the number of blocks of these that are done. Launches on one stream follow each other and may share them. What is
captured into a graph may run beside anything, so a capture gets words of its own, and these are its own for good.
"""

from __future__ import annotations

import functools
from typing import Any

from tilec.backends.cuda import launch
from tilec.errors import ResourceError

SLOT = 64
"""Bytes between the words of two streams."""
SLOTS = 1024
"""Streams and captures that one allocation serves."""
RESERVE = 256
"""With fewer left, another allocation is made at the next call that may make one: a call under capture may not."""


class Words:
    """The words on one device."""

    def __init__(self) -> None:
        self._memory: list[Any] = []
        self._free: list[int] = []
        self._given: dict[tuple[int, int], int] = {}

    def of(self, stream: int, capture: int) -> int:
        """The address of the words of a stream, or of a capture of it that is no 0."""
        found = self._given.get((stream, capture))
        if found is None:
            found = self._given[stream, capture] = self._new(capture != 0)
        return found

    def _new(self, captured: bool) -> int:
        if not captured and len(self._free) < RESERVE:
            self._grow()
        if not self._free:
            raise ResourceError(
                "target cuda: no counters are left for this CUDA graph; call a kernel of tilec once outside of any "
                "capture, and capture again"
            )
        return self._free.pop()

    def _grow(self) -> None:
        cupy = launch.cupy()
        memory = cupy.zeros(SLOT * SLOTS, "uint8")
        cupy.cuda.get_current_stream().synchronize()  # other streams will see the zeros
        self._memory.append(memory)
        first = int(memory.data.ptr)
        self._free += range(first, first + SLOT * SLOTS, SLOT)


@functools.cache
def on(device: int) -> Words:
    """The words of a device."""
    return Words()
