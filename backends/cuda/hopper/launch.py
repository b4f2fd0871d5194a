"""What a launch of a Hopper kernel needs: tensor maps and parameters."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Mapping

from tilec.backends.cuda import block, driver
from tilec.backends.cuda.block import MAP_BYTES, WORDS, Field, Pointer
from tilec.backends.cuda.call import View
from tilec.backends.cuda.hopper.expression import POSITION
from tilec.backends.cuda.hopper.source import CopyMap, Facts, Parameter
from tilec.dtypes import DType
from tilec.errors import UnsupportedError
from tilec.scalar import Number, evaluate

MAPS = 256
"""How many tensor maps are kept."""
BYTES = 2
"""The bytes of an element that comes by a bulk copy."""


def refusal(facts: Facts, views: Mapping[str, View], sizes: Mapping[str, Number]) -> str | None:
    """Why the kernel cannot take these tensors, or None: bulk copies need aligned rows of adjacent elements."""
    for n in sizes.values():
        if (
            isinstance(n, int)
            and n >= 1 << POSITION
            and n in [s for v in views.values() for s in v.shape]
        ):
            return f"a dimension is {n:,}; positions must be below 2 ** {POSITION}"
    for name, (feature, count) in facts.paired.items():
        why = _unpaired(name, views[name], feature, count)
        if why:
            return why
    maps = [p.map for p in facts.parameters if p.map is not None]
    return next((w for m in maps if (w := _uncopied(m, views[m.tensor], sizes))), None)


def in_pieces(
    facts: Facts, views: Mapping[str, View], sizes: Mapping[str, Number]
) -> frozenset[str]:
    """The parameters of the program that no bulk copy can bring, in a kernel that has such copies."""
    maps = [p.map for p in facts.parameters if p.map is not None]
    given = facts.header.tensors
    return frozenset(
        m.tensor for m in maps if m.tensor in given and _uncopied(m, views[m.tensor], sizes)
    )


def _uncopied(m: CopyMap, view: View, sizes: Mapping[str, Number]) -> str | None:
    """Why bulk copies cannot bring a tensor's tiles."""
    for x in m.even:
        if evaluate(x, sizes) % m.rows:
            return f"{m.tensor}: not all of its rows come {m.rows} at a time"
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


def _map(copy: CopyMap, view: View) -> TensorMap:
    return _maps(copy, view.dtype, view.shape, view.strides)


@functools.lru_cache(MAPS)
def _maps(
    copy: CopyMap, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
) -> TensorMap:
    """Where keys become longer from call to call, the maps of queries and results stay the same."""
    return TensorMap(copy, dtype, shape, strides)


class TensorMap:
    """Writes tensor maps of tensors that differ in nothing but their address. The driver makes the first."""

    def __init__(
        self, copy: CopyMap, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> None:
        self._tensor = copy, dtype, shape, strides
        self._made = b""

    def write(self, place: int, tensor: int) -> None:
        """The map of the tensor at an address, to a place in memory."""
        if self._made:
            ctypes.memmove(place, self._made, MAP_BYTES)
            self.move(place, tensor)
        else:
            encode(*self._tensor, tensor, place)
            self._made = ctypes.string_at(place, MAP_BYTES)

    def move(self, place: int, tensor: int) -> None:
        """Another address for the map that is there."""
        if driver.library().cuTensorMapReplaceAddress(place, tensor):
            encode(*self._tensor, tensor, place)


def encode(
    m: CopyMap,
    dtype: DType,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    tensor: int,
    place: int,
) -> None:
    """Writes the map of a tensor to a place in memory. Raises UnsupportedError where the driver makes none."""
    row = max(1, -(-shape[m.feature] * BYTES // 16) * 16)
    others = [k for k in range(len(shape)) if k not in (m.feature, m.row)]
    steps = [strides[k] * BYTES if shape[k] > 1 else row for k in (m.row, *others)]
    dims = [shape[k] for k in (m.row, *others)]
    box = [m.rows, *(1 for _ in others)]
    if m.slabs:
        dims, box = [64, dims[0], m.width // 64, *dims[1:]], [64, m.rows, m.width // 64, *box[1:]]
        steps = [steps[0], 128, *steps[1:]]
    else:
        dims, box = [shape[m.feature], *dims], [64, *box]
    status = driver.encode(place, driver.KINDS[dtype], tensor, dims, steps, box)
    if status:
        raise UnsupportedError(
            f"the driver makes no tensor map of {m.tensor}: sizes {dims}, steps {steps} bytes, box {box}"
        )


def parameters(facts: Facts) -> tuple[block.Parameter, ...]:
    """The kernel's parameters.

    It has two words, 0 before the first launch: the tile counter, which each launch leaves at 0, and a flag that a launch
    raises where its results may not be those of the program.
    """
    return tuple((x,) for x in _pieces(facts))


def _pieces(facts: Facts) -> Iterator[block.Piece]:
    names, last = _c_names(facts), ""
    for p in facts.parameters:
        match p.kind:
            case "map":
                assert p.map is not None
                yield block.Map(p.map.tensor, functools.partial(_map, p.map))
            case "pointer":
                last = p.name
                yield Pointer(last)
            case "stride":
                yield Field("q", ("stride", last, str(p.dim)))
            case "dim":
                yield Field("i", ("dim", names[p.name]))
            case "scalar":
                yield _scalar(p, names[p.name])
            case "section":
                assert facts.sections is not None
                yield Field("i", facts.sections)
            case "late":
                assert facts.late is not None
                yield Field("i", facts.late)
            case "counter":
                yield Pointer(WORDS)
            case _:
                yield Pointer(WORDS, 4)


def _c_names(facts: Facts) -> dict[str, str]:
    kernel = facts.header
    return {facts.names[n]: n for n in (*kernel.dims, *kernel.arguments)}


def _scalar(p: Parameter, name: str) -> Field:
    """An f32 is infinite beyond its range."""
    if "float" in p.ctype:
        return Field("f", ("single", name))
    return Field("?" if "bool" in p.ctype else "q", ("scalar", name))


def blocks(facts: Facts, sizes: Mapping[str, Number], processors: int) -> int:
    """The blocks of a launch: as many as there can be at once, or one per tile where there are fewer."""
    tiles = 1
    for axis, n in facts.axes:
        tiles *= -(-int(evaluate(facts.header.extents[axis], sizes)) // n)
    return tiles if facts.most is None else min(tiles, processors * facts.most)
