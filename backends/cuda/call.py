"""What a call tells the kernels: sizes, strides, addresses and scalars, as the fields of their argument struct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tilec.dtypes import DType
from tilec.ir import Buffer, Grid, Kernel
from tilec.scalar import Number, evaluate

Values = dict[tuple[str, ...], int | float]


class View(Protocol):
    """A tensor in memory: the address of its first element, and its shape and strides, in elements."""

    @property
    def pointer(self) -> int: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def strides(self) -> tuple[int, ...]: ...


def sizes(
    kernel: Kernel, tensors: Mapping[str, View], scalars: Mapping[str, Number]
) -> dict[str, Number]:
    """Dimensions and scalar arguments by name."""
    out: dict[str, Number] = dict(scalars)
    for name, t in kernel.tensors.items():
        for d, n in zip(t.dims, tensors[name].shape, strict=True):
            if isinstance(d, str):
                out[d] = n
    return completed(kernel, out)


def completed(kernel: Kernel, known: Mapping[str, Number]) -> dict[str, Number]:
    """Dimensions and scalar arguments, those that are not known from their defaults."""
    out = dict(known)
    for name, argument in kernel.arguments.items():
        if name not in out and argument.default is not None:
            out[name] = evaluate(argument.default, out)
    return out


def buffers(
    kernel: Kernel, known: Mapping[str, Number]
) -> dict[str, tuple[DType, tuple[int, ...]]]:
    """The element type and shape of each intermediate tensor."""
    found = [op.result for op in kernel.body if isinstance(op, Buffer)]
    extents = kernel.extents
    return {
        v.name: (v.type.dtype, tuple(int(evaluate(extents[a], known)) for a in v.type.axes))
        for v in found
    }


def values(kernel: Kernel, known: Mapping[str, Number], views: Mapping[str, View]) -> Values:
    """The fields of the argument struct, by key. `views`: parameters, outputs and buffers."""
    out: Values = {}
    for name, number in known.items():
        key = "scalar" if name in kernel.arguments else "dim"
        out[key, name] = number
    for axis in kernel.axes:
        out["extent", axis.name] = int(evaluate(axis.extent, known))
    for name, v in views.items():
        out["pointer", name] = v.pointer
        for k, (n, step) in enumerate(zip(v.shape, v.strides, strict=True)):
            out["shape", name, str(k)] = n
            out["stride", name, str(k)] = step
    for n, grid in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        tasks = 1
        for axis, tile in grid.axes:
            tiles = max(0, -(-int(out["extent", axis]) // tile))
            out["tiles", str(n), axis] = tiles
            tasks *= tiles
        out["tasks", str(n)] = tasks
    return out
