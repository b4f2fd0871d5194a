"""What a call tells the kernels: sizes, strides, addresses and scalars, as the fields of their argument struct."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from tilec import scalar
from tilec.dtypes import DType
from tilec.ir import Buffer, Grid, Kernel
from tilec.scalar import Number

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


class Numbers:
    """The numbers that the kernels of a program in tiles need: what they are made of is found out once, before any call."""

    def __init__(self, kernel: Kernel) -> None:
        self._tensors = kernel.tensors
        self._scalars = frozenset(kernel.arguments)
        self._defaults = [
            (n, scalar.compiled(a.default))
            for n, a in kernel.arguments.items()
            if a.default is not None
        ]
        self._extents = [(n, scalar.compiled(e)) for n, e in kernel.extents.items()]
        self._buffers = [op.result for op in kernel.body if isinstance(op, Buffer)]
        self._grids = [op.axes for op in kernel.body if isinstance(op, Grid)]
        self.grids = len(self._grids)

    def sizes(
        self, tensors: Mapping[str, View], scalars: Mapping[str, Number]
    ) -> dict[str, Number]:
        """Dimensions and scalar arguments by name."""
        out: dict[str, Number] = dict(scalars)
        for name, t in self._tensors.items():
            for d, n in zip(t.dims, tensors[name].shape, strict=True):
                if isinstance(d, str):
                    out[d] = n
        return self.completed(out)

    def completed(self, known: Mapping[str, Number]) -> dict[str, Number]:
        """Dimensions and scalar arguments, those that are not known from their defaults."""
        out = dict(known)
        for name, default in self._defaults:
            if name not in out:
                out[name] = default(out)
        return out

    def extents(self, known: Mapping[str, Number]) -> dict[str, int]:
        """How far each axis ranges."""
        return {n: int(extent(known)) for n, extent in self._extents}

    def buffers(self, known: Mapping[str, Number]) -> dict[str, tuple[DType, tuple[int, ...]]]:
        """The element type and shape of each intermediate tensor."""
        if not self._buffers:
            return {}
        extents = self.extents(known)
        return {
            v.name: (v.type.dtype, tuple(extents[a] for a in v.type.axes)) for v in self._buffers
        }

    def values(self, known: Mapping[str, Number], views: Mapping[str, View]) -> Values:
        """The fields of the argument struct, by key. `views`: parameters, outputs and buffers."""
        out: Values = {}
        for name, number in known.items():
            out["scalar" if name in self._scalars else "dim", name] = number
        extents = self.extents(known)
        for name, extent in extents.items():
            out["extent", name] = extent
        for name, v in views.items():
            out["pointer", name] = v.pointer
            for k, (n, step) in enumerate(zip(v.shape, v.strides, strict=True)):
                out["shape", name, str(k)] = n
                out["stride", name, str(k)] = step
        for n, axes in enumerate(self._grids):
            tasks = 1
            for axis, tile in axes:
                tiles = max(0, -(-extents[axis] // tile))
                out["tiles", str(n), axis] = tiles
                tasks *= tiles
            out["tasks", str(n)] = tasks
        return out
