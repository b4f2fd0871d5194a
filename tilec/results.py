"""The arrays that a call writes: new ones, or those of `out=`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilec import arrays, gpu
from tilec.arrays import Array, overlap, repeats, view
from tilec.dtypes import SIZES, DType
from tilec.errors import ArgumentError, ResourceError


@dataclass(frozen=True, slots=True)
class Result:
    """What an output of a call must be."""

    name: str
    dtype: DType
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes the new array of an output, of a library and on a device (None: in this computer's memory)."""

    result: Result
    library: str
    device: int | None
    allocate: Callable[[], Any]
    address: Callable[[Any], int]

    def __call__(self) -> Any:
        """The array, not initialised. Raises ResourceError where there is no memory for it."""
        try:
            return self.allocate()
        except (MemoryError, RuntimeError, ValueError) as e:
            r = self.result
            size = math.prod(r.shape) * SIZES[r.dtype]
            raise ResourceError(
                f"output {r.name} of shape {r.shape} takes {size:,} bytes: {e}"
            ) from e

    def array(self) -> Array:
        """The same, as its description."""
        return self.describe(self())

    def describe(self, x: Any) -> Array:
        """The description of an array that this made. Raises ArgumentError for one without memory (a fake tensor)."""
        if self.device is None:
            return arrays.fresh(self.library, x, self.result.dtype)
        return gpu.fresh(self.library, x)


def makers(outputs: Sequence[Result], tensors: Mapping[str, Array]) -> tuple[Maker, ...]:
    """What makes the outputs of a call, as arrays of the library of its first tensor."""
    first = next(iter(tensors.values()), None)
    library, device = ("numpy", None) if first is None else (first.library, first.device)
    address = arrays.address_of(library)
    return tuple(
        Maker(r, library, device, _allocator(library, device, r), address) for r in outputs
    )


def _allocator(library: str, device: int | None, r: Result) -> Callable[[], Any]:
    if device is not None:
        return gpu.allocator(library, device, r.shape, r.dtype)
    return arrays.allocator(library, r.shape, r.dtype)


def new(outputs: Sequence[Result], tensors: Mapping[str, Array]) -> dict[str, Array]:
    """New arrays of the library of the first tensor. Raises ResourceError where there is no memory for one."""
    return {m.result.name: m.array() for m in makers(outputs, tensors)}


def given(outputs: Sequence[Result], tensors: Mapping[str, Array], out: Any) -> dict[str, Array]:
    """The arrays of `out`: one, or for several outputs a tuple.

    Raises ArgumentError for one that does not fit its output, cannot be written, or shares memory with another array.
    """
    listed: Sequence[Any] = (out,)
    if len(outputs) > 1:
        listed = cast("Sequence[Any]", out) if isinstance(out, (tuple, list)) else ()
    if len(listed) != len(outputs):
        got = f"{len(listed)} of them" if listed else arrays.describe(out)
        raise ArgumentError(
            f"argument out: expected a tuple of {len(outputs)} arrays, ({', '.join(r.name for r in outputs)}), got {got}"
        )
    on_gpu = any(a.device is not None for a in tensors.values())
    see = gpu.view if on_gpu else view
    results: dict[str, Array] = {}
    for r, x in zip(outputs, listed, strict=True):
        arrays.check_gradient(f"out ({r.name})", x, "the tensor")
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
