"""What a call tells the kernels in numbers: sizes, shapes, strides and scalars."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from typing import Protocol

from tilec import scalar
from tilec.dtypes import DType
from tilec.ir import Buffer, Grid, Kernel
from tilec.scalar import Number

Key = tuple[str, ...]
"""`(what, name)` or `(what, name, dimension)`: what is `dim`, `extent`, `shape`, `stride`, `tasks` or `tiles` (of a grid, by
its number), `scalar`, or `single` for a float one in the range of an f32."""
NOUGHT: Key = ("nought",)
"""The number 0."""


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
    """The numbers that the kernels of a program in tiles need: what they are made of is found out once, before any call.

    `index`: where the number of each key is in the list of a call's numbers. `grids`: how many there are.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._tensors, self._dims = kernel.tensors, kernel.dims
        self._scalars = [(n, a.type == "float") for n, a in kernel.arguments.items()]
        self._defaults = [
            (n, scalar.compiled(a.default))
            for n, a in kernel.arguments.items()
            if a.default is not None
        ]
        self._extents = [(n, scalar.compiled(e)) for n, e in kernel.extents.items()]
        self._buffers = [op.result for op in kernel.body if isinstance(op, Buffer)]
        self._tiles = [op.axes for op in kernel.body if isinstance(op, Grid)]
        self._ranks = ranks(kernel)
        self.grids = len(self._tiles)
        self.index: dict[Key, int] = {key: n for n, key in enumerate(self._keys())}

    def _keys(self) -> Iterator[Key]:
        yield NOUGHT
        for name in self._dims:
            yield "dim", name
        for name, is_float in self._scalars:
            yield "scalar", name
            if is_float:
                yield "single", name
        for name, _ in self._extents:
            yield "extent", name
        for n, axes in enumerate(self._tiles):
            for axis, _ in axes:
                yield "tiles", str(n), axis
            yield "tasks", str(n)
        for name, rank in self._ranks.items():
            for what in ("shape", "stride"):
                for k in range(rank):
                    yield what, name, str(k)

    def list(self, known: Mapping[str, Number], views: Mapping[str, View]) -> list[int | float]:
        """A call's numbers. `known`: sizes and scalars, completed; `views`: parameters, outputs and buffers."""
        out: list[int | float] = [0, *[known.get(d, 0) for d in self._dims]]
        for name, is_float in self._scalars:
            x = known.get(name, 0)
            out += (float(x), ctypes.c_float(x).value) if is_float else (int(x),)
        extents = self.extents(known)
        out += extents.values()
        for axes in self._tiles:
            tasks = 1
            for axis, tile in axes:
                tiles = max(0, -(-extents[axis] // tile))
                out.append(tiles)
                tasks *= tiles
            out.append(tasks)
        for name in self._ranks:
            v = views[name]
            out += v.shape
            out += v.strides
        return out

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


def ranks(kernel: Kernel) -> dict[str, int]:
    """The number of dimensions of everything in memory: parameters, outputs and buffers."""
    out = {name: len(t.dims) for name, t in kernel.tensors.items()}
    out.update({o.name: len(o.axes) for o in kernel.outputs})
    made = (op.result for op in kernel.body if isinstance(op, Buffer))
    out.update({v.name: len(v.type.axes) for v in made})
    return out
