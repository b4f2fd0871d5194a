"""How a compiled kernel sees a tensor in memory."""

from __future__ import annotations

from dataclasses import dataclass

from tilec.dtypes import DType


@dataclass(frozen=True, slots=True)
class View:
    """A tensor: the address of its first element, and its shape and strides, in elements."""

    pointer: int
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
