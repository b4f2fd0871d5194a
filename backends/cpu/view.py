"""How a compiled kernel sees a tensor in memory."""

from __future__ import annotations

from typing import Protocol


class View(Protocol):
    """A tensor: the address of its first element in bytes, and its shape and strides by dimension, in elements."""

    @property
    def pointer(self) -> int: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...
