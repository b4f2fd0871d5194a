"""Loads and launches a Hopper kernel: tensor maps, arguments, the launch itself, through cuda-bindings and CuPy."""

from __future__ import annotations

import ctypes
import importlib
import struct
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tilec.backends.cuda import block, driver
from tilec.backends.cuda.block import MAP_BYTES, Address
from tilec.backends.cuda.call import View
from tilec.backends.cuda.hopper.expression import POSITION
from tilec.backends.cuda.hopper.sections import section
from tilec.backends.cuda.hopper.source import CopyMap, Launched, Parameter, Source
from tilec.errors import UnsupportedError
from tilec.scalar import Number, evaluate

BYTES = 2
"""The bytes of an element that comes by a bulk copy."""


def refusal(source: Launched, views: Mapping[str, View], sizes: Mapping[str, Number]) -> str | None:
    """Why the kernel cannot take these tensors, or None: bulk copies need aligned rows of adjacent elements."""
    for n in sizes.values():
        if (
            isinstance(n, int)
            and n >= 1 << POSITION
            and n in [s for v in views.values() for s in v.shape]
        ):
            return f"a dimension is {n:,}; positions must be below 2 ** {POSITION}"
    for name, (feature, count) in source.paired.items():
        why = _unpaired(name, views[name], feature, count)
        if why:
            return why
    maps = [p.map for p in source.parameters if p.map is not None]
    return next((w for m in maps if (w := _uncopied(m, views[m.tensor]))), None)


def in_pieces(source: Launched, views: Mapping[str, View]) -> frozenset[str]:
    """The parameters of the program that no bulk copy can bring, in a kernel that has such copies."""
    maps = [p.map for p in source.parameters if p.map is not None]
    given = source.structure.kernel.tensors
    return frozenset(m.tensor for m in maps if m.tensor in given and _uncopied(m, views[m.tensor]))


def _uncopied(m: CopyMap, view: View) -> str | None:
    """Why a bulk copy cannot bring a tensor's tiles."""
    if view.strides[m.feature] != 1 and view.shape[m.feature] > 1:
        return f"{m.tensor}: the elements of a row are not adjacent"
    if view.pointer % 16:
        return f"{m.tensor}: it does not begin at a multiple of 16 bytes"
    for k, (n, step) in enumerate(zip(view.shape, view.strides, strict=True)):
        size = step * BYTES
        if k != m.feature and n > 1 and (size <= 0 or size % 16 or size >= 1 << 40):
            return (
                f"{m.tensor}: the step of dimension {k} is {size} bytes, no positive multiple of 16"
            )
    return None


def _unpaired(name: str, view: View, feature: int, count: int) -> str | None:
    """Why an output cannot be written `count` elements at a time."""
    steps = [
        s
        for k, (n, s) in enumerate(zip(view.shape, view.strides, strict=True))
        if n > 1 and k != feature
    ]
    size = count * BYTES
    if view.pointer % size or view.strides[feature] != 1 or any(s % count for s in steps):
        return f"{name}: its rows do not begin at multiples of {size} bytes"
    return None


class TensorMap:
    """Writes tensor maps of tensors that differ in nothing but their address. The driver makes the first."""

    def __init__(self, copy: CopyMap, view: View) -> None:
        self._copy, self._view = copy, view
        self._made = b""

    def write(self, place: int, tensor: int) -> None:
        """The map of the tensor at an address, to a place in memory."""
        if not self._made:
            self._made = _encoded(self._copy, self._view, tensor)
        ctypes.memmove(place, self._made, MAP_BYTES)
        self.move(place, tensor)

    def move(self, place: int, tensor: int) -> None:
        """Another address for the map that is there."""
        if driver.library().cuTensorMapReplaceAddress(place, tensor):
            ctypes.memmove(place, _encoded(self._copy, self._view, tensor), MAP_BYTES)


def _encoded(m: CopyMap, view: View, pointer: int) -> bytes:
    """The map of a tensor. Raises UnsupportedError where the driver makes none."""
    bindings: Any = importlib.import_module("cuda.bindings.driver")
    row = max(1, -(-view.shape[m.feature] * BYTES // 16) * 16)

    def step(k: int) -> int:
        return view.strides[k] * BYTES if view.shape[k] > 1 else row

    others = [k for k in range(len(view.shape)) if k not in (m.feature, m.row)]
    if m.slabs:
        dims = [64, view.shape[m.row], m.width // 64, *(view.shape[k] for k in others)]
        steps = [step(m.row), 128, *(step(k) for k in others)]
        box = [64, m.rows, m.width // 64, *(1 for _ in others)]
    else:
        dims = [view.shape[m.feature], view.shape[m.row], *(view.shape[k] for k in others)]
        steps = [step(m.row), *(step(k) for k in others)]
        box = [64, m.rows, *(1 for _ in others)]
    kinds = bindings.CUtensorMapDataType
    kind = (
        kinds.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
        if view.dtype == "bf16"
        else kinds.CU_TENSOR_MAP_DATA_TYPE_FLOAT16
    )
    wide, narrow = bindings.cuuint64_t, bindings.cuuint32_t
    status, made = bindings.cuTensorMapEncodeTiled(
        kind,
        len(dims),
        pointer,
        [wide(x) for x in dims],
        [wide(x) for x in steps],
        [narrow(x) for x in box],
        [narrow(1)] * len(dims),
        bindings.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        bindings.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        # a row of a box has 128 bytes: more would fetch what another box brings
        bindings.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        bindings.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if int(status):
        raise UnsupportedError(
            f"the driver makes no tensor map of {m.tensor}: sizes {dims}, steps {steps} bytes, box {box}"
        )
    return ctypes.string_at(made.getPtr(), MAP_BYTES)


def parameters(
    source: Launched,
    views: Mapping[str, View],
    sizes: Mapping[str, Number],
    places: Mapping[str, Address],
    words: Address,
) -> tuple[block.Parameter, ...]:
    """The kernel's parameters. `places`: where the tensors are.

    `words`: two words, 0 before the first launch: the tile counter, which each launch leaves at 0, and a flag that a
    launch raises where its results may not be those of the program.
    """
    return tuple((x,) for x in _pieces(source, views, sizes, places, words))


def _pieces(
    source: Launched,
    views: Mapping[str, View],
    sizes: Mapping[str, Number],
    places: Mapping[str, Address],
    words: Address,
) -> Iterator[block.Piece]:
    names, last = _c_names(source), ""
    for p in source.parameters:
        match p.kind:
            case "map":
                assert p.map is not None
                at, view = places[p.map.tensor], views[p.map.tensor]
                yield block.Map(at.base, at.plus, TensorMap(p.map, view))
            case "pointer":
                last = p.name
                yield places[last]
            case "stride":
                yield struct.pack("<q", views[last].strides[p.dim])
            case "dim":
                yield struct.pack("<i", int(sizes[names[p.name]]))
            case "scalar":
                yield _scalar(p, sizes[names[p.name]])
            case "section":
                yield struct.pack("<i", section(source.structure, sizes, p.dim))
            case "counter":
                yield words
            case _:
                yield replace(words, plus=words.plus + 4)


def _c_names(source: Launched) -> dict[str, str]:
    kernel = source.structure.kernel
    return {source.names[n]: n for n in (*kernel.dims, *kernel.arguments)}


def _scalar(p: Parameter, value: Number) -> bytes:
    if "float" in p.ctype:
        return single(value)
    return struct.pack("<?", bool(value)) if "bool" in p.ctype else struct.pack("<q", int(value))


def single(value: Number) -> bytes:
    """A number as an f32, infinite beyond its range."""
    return bytes(ctypes.c_float(value))


def blocks(source: Source, sizes: Mapping[str, Number], processors: int) -> int:
    """The blocks of a launch: as many as there can be at once, or one per tile where there are fewer."""
    s = source.structure
    tiles = 1
    for axis, n in s.grid.axes:
        tiles *= -(-int(evaluate(s.kernel.extents[axis], sizes)) // n)
    return min(tiles, processors * source.plan.schedule.blocks)
