"""The arrays that a call writes: new ones, or those of `out=`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilec import gpu
from tilec.arrays import Array, empty, overlap, repeats, view
from tilec.dtypes import SIZES, DType
from tilec.errors import ArgumentError, ResourceError


@dataclass(frozen=True, slots=True)
class Result:
    """What an output of a call must be."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


def new(outputs: Sequence[Result], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """New arrays of the library of the first tensor. Raises ResourceError where there is no memory for one."""
    first = next(iter(tensors.values()), None)
    library, device = ("numpy", None) if first is None else (first.library, first.device)
    return {r.name: _new(library, device, r) for r in outputs}


def _new(library: str, device: int | None, r: Result) -> Array:
    try:
        if device is not None:
            return gpu.empty(library, device, r.shape, r.dtype)
        return empty(library, r.shape, r.dtype)
    except (MemoryError, RuntimeError, ValueError) as e:
        size = math.prod(r.shape) * SIZES[r.dtype]
        raise ResourceError(f"output {r.name} of shape {r.shape} takes {size:,} bytes: {e}") from e


def given(outputs: Sequence[Result], tensors: Mapping[str, Array], out: Any) -> dict[str, Array]:
    """The arrays of `out`: one, or for several outputs a tuple.

    Raises ArgumentError for one that does not fit its output, cannot be written, or shares memory with another array.
    """
    arrays: Sequence[Any] = (out,)
    if len(outputs) > 1:
        arrays = cast("Sequence[Any]", out) if isinstance(out, (tuple, list)) else ()
    if len(arrays) != len(outputs):
        raise ArgumentError(
            f"argument out: expected a tuple of {len(outputs)} arrays, one per output"
        )
    on_gpu = any(a.device is not None for a in tensors.values())
    see = gpu.view if on_gpu else view
    results: dict[str, Array] = {}
    for r, x in zip(outputs, arrays, strict=True):
        array = see(f"out ({r.name})", x)
        results[r.name] = _checked(r, array, {**tensors, **results})
    return results


def _checked(r: Result, x: Array, others: Mapping[str, Array]) -> Array:
    if x.dtype != r.dtype or x.shape != r.shape:
        raise ArgumentError(
            f"argument out ({r.name}): expected elements of type {r.dtype} and shape {r.shape}, got {x.dtype} and "
            f"{x.shape}"
        )
    if not x.writable or repeats(x):
        raise ArgumentError(
            f"argument out ({r.name}): its elements cannot be written one by one; give an array that is writable, aligned "
            "and no expanded view"
        )
    for other, y in others.items():
        if overlap(x, y):
            raise ArgumentError(
                f"argument out ({r.name}): it shares memory with {other}; give an array of its own"
            )
    return x
