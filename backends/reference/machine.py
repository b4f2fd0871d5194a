"""The machine that runs the IR: memory, windows of axes, and what each op does to arrays.

Every array has one dimension per axis of the kernel, in the kernel's order, of length 1 where the value lacks it; so
operands broadcast by name without further ado. A value without axes may also be an array of rank 0. Inside `Grid` and
`For` an axis has a window, and the arrays hold the positions of the window alone. Tiles of a grid that differ only along
an axis whose tile is 1, and that take the same course, are run together: their arrays are as long along that axis as
there are tiles.

In exact arithmetic (`rounding=False`) every float is a float64 and nothing is rounded to a storage type. With
`rounding=True` floats are of the kernel's compute type, and are rounded where a target rounds: in casts, in stores, and
where a contraction takes a computed operand beside a loaded one of a narrower type. With `in_order` too, the sums of
contractions are taken term by term.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, assert_never, cast

import ml_dtypes
import numpy as np

from tilec.backends.reference.contract import contract
from tilec.backends.reference.contract import in_order as ordered
from tilec.backends.reference.functions import (
    Array,
    Tile,
    add,
    as_type,
    is_float,
    number,
    pointwise,
    reduce,
    softmax,
)
from tilec.backends.reference.together import together
from tilec.control import Control
from tilec.dataflow import uses
from tilec.dtypes import NUMPY_NAMES, DType, kind
from tilec.errors import CompilerBug
from tilec.ieee import running_sums
from tilec.ir import (
    Absent,
    AnyOp,
    Body,
    Buffer,
    Cast,
    Contract,
    Edge,
    For,
    Grid,
    Group,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Type,
    Value,
    Yield,
    operands,
    regions,
    walk,
)
from tilec.meter import Meter, window
from tilec.scalar import Number, evaluate


def product_terms(kernel: Kernel) -> frozenset[str]:
    """Products that only a sum in their own body uses: the two are run as one contraction, as they are meant."""
    count = uses(kernel.body)

    def of(body: Body) -> Iterator[str]:
        products = {op.result.name for op in body if isinstance(op, Map) and op.fn == "mul"}
        for op in body:
            if (
                isinstance(op, Reduce)
                and op.fn == "sum"
                and op.args[0] in products
                and count[str(op.args[0])] == 1
            ):
                yield str(op.args[0])
            for region in regions(op):
                yield from of(region)

    return frozenset(of(kernel.body))


class Machine:
    """The state of a run: memory, values, windows.

    `scalars` holds the dimensions too; `arrays` only needs the parameters that the ops to be run load.
    """

    def __init__(
        self,
        kernel: Kernel,
        scalars: Mapping[str, Number],
        arrays: Mapping[str, Array],
        *,
        rounding: bool = False,
        in_order: bool = False,
    ) -> None:
        self.kernel, self.scalars, self.rounding = kernel, scalars, rounding
        self._sum_of_products = ordered if in_order else contract
        self.real: Any = np.float32 if rounding and kernel.compute == "f32" else np.float64
        self.extents = {a.name: int(evaluate(a.extent, self.scalars)) for a in kernel.axes}
        self.rank = len(kernel.axes)
        self.position = {a.name: n for n, a in enumerate(kernel.axes)}
        self.windows = {a: (0, n) for a, n in self.extents.items()}
        self.values: dict[str, Tile] = {}
        self.memory: dict[str, Array] = {
            t.name: self._parameter(np.asarray(arrays[t.name]), t.dtype)
            for t in kernel.tensors.values()
            if t.name in arrays
        }
        self.meter = Meter(kernel, self.elements)
        self.times = 1  # how many tiles of the grid are run together,
        self.joined: set[str] = set()  # along these axes
        self._decisive = Control(kernel).names
        self._lazy = product_terms(kernel)
        self._sums = running_sums(kernel)
        self._used = {x for op in walk(kernel.body) for x in operands(op)}
        self._factors: dict[str, tuple[Tile, Tile]] = {}

    def output(self, name: str) -> Array:
        """An output tensor as float64, int64 or bool."""
        dtypes: dict[str, DType] = {o.name: o.dtype for o in self.kernel.outputs}
        return as_type(self.memory[name], _arithmetic(dtypes[name], np.float64))

    def elements(self, t: Type) -> int:
        """How many elements a value of a type has in the present windows of one tile."""
        return math.prod(self.windows[a][1] for a in t.axes if a not in self.joined)

    # memory

    def _parameter(self, a: Array, dtype: DType) -> Array:
        if self.rounding:
            a = as_type(a, np.dtype(NUMPY_NAMES[dtype]))
        return as_type(a, _arithmetic(dtype, self.real))

    def allocate(self, name: str, t: Type) -> None:
        """Memory that nothing was stored to yet: NaN, so that a store that is missing shows."""
        dtype: Any = NUMPY_NAMES[t.dtype] if self.rounding else _arithmetic(t.dtype, np.float64)
        shape = [self.extents[a] for a in t.axes]
        self.memory[name] = np.full(shape, np.nan if kind(t.dtype) == "float" else 0).astype(dtype)

    # operands

    def read(self, x: Operand) -> Tile:
        """What an operand is here."""
        if isinstance(x, str):
            if x in self.values:
                return self.values[x]
            if x in self.position:
                return Tile(self._positions(x))
            return Tile(self._scalar(self.scalars[x]))
        if isinstance(x, Absent):
            return Tile(np.zeros((), np.int64), np.ones((), np.bool_))
        return Tile(self._scalar(x))

    def _scalar(self, x: Number) -> Array:
        if isinstance(x, (bool, np.bool_)):
            return np.asarray(x)
        return np.asarray(x, self.real) if isinstance(x, float) else np.asarray(x, np.int64)

    def _integer(self, x: Operand) -> int:
        return int(self.read(x).a.reshape(()))

    def _positions(self, axis: str) -> Array:
        start, n = self.windows[axis]
        shape = [1] * self.rank
        shape[self.position[axis]] = n
        return np.arange(start, start + n).reshape(shape)

    def _fit(self, t: Tile, type: Type) -> Tile:
        """A tile with all the axes and the element type of a type."""
        dtype = _arithmetic(type.dtype, self.real)
        want = self._shape(type)
        if t.a.shape == want and t.a.dtype == dtype:
            return t
        want = np.broadcast_shapes(t.a.shape, want)
        return Tile(np.broadcast_to(as_type(t.a, dtype), want), t.gone)

    def _shape(self, type: Type) -> tuple[int, ...]:
        shape = [1] * self.rank
        for a in type.axes:
            shape[self.position[a]] = self.windows[a][1]
        return tuple(shape)

    def _full(self, t: Tile, axes: tuple[int, ...]) -> Tile:
        """A tile of full rank that has all of its length along some dimensions."""
        a = t.a.reshape([1] * self.rank) if t.a.ndim < self.rank else t.a
        names = [self.kernel.axes[k].name for k in axes]
        shape = list(a.shape)
        for k, name in zip(axes, names, strict=True):
            shape[k] = self.windows[name][1]
        return Tile(a if a.shape == tuple(shape) else np.broadcast_to(a, shape), t.gone)

    # ops

    def body(self, body: Body) -> list[Tile]:
        """Runs the ops of a body; gives what it yields."""
        for op in body:
            if isinstance(op, Yield):
                self.meter.count(op, self.times)
                return [self.read(x) for x in op.values]
            self.op(op)
        return []

    def op(self, op: Op) -> None:
        """Runs one op, and counts its bytes."""
        op = cast(AnyOp, op)
        self.meter.count(op, self.times)
        match op:
            case Grid():
                self._grid(op)
            case Group():
                self.meter.enter(op)
                self.define(op.results, self.body(op.body))
                self.meter.leave()
            case For():
                self._for(op)
            case If():
                taken = op.then if self.read(op.cond).a.reshape(()) else op.orelse
                self.define(op.results, self.body(taken))
            case Buffer():
                self.allocate(op.result.name, op.result.type)
            case Store():
                self.store(op)
            case Yield():
                raise CompilerBug("a yield that is not the last op of its region")
            case Map() if op.result.name in self._lazy:
                x, y = (self.read(x) for x in op.args)
                self._factors[op.result.name] = x, y
            case _ if op.result.name not in self._used:
                pass
            case _:
                self.values[op.result.name] = self.evaluate(op)

    def evaluate(self, op: Load | Map | Cast | Reduce | Contract | Edge) -> Tile:
        """The result of an op without regions and effects."""
        match op:
            case Load():
                return Tile(self._load(op))
            case Map():
                running = op.result.name in self._sums
                return pointwise(op.fn, [self.read(x) for x in op.args], self.real, running)
            case Cast():
                return self._cast(self.read(op.x), op.to)
            case Reduce():
                return self._reduce(op)
            case Contract():
                return self._contract(op)
            case Edge():
                start, n = self.windows[op.axis]
                return Tile(np.asarray(start if op.which == "first" else start + n - 1))
            case _:
                assert_never(op)

    def define(self, results: tuple[Value, ...], tiles: list[Tile]) -> None:
        """Gives names to tiles that leave a region or enter one, broadcast to the declared types."""
        for v, t in zip(results, tiles, strict=True):
            self.values[v.name] = self._fit(t, v.type)

    def _cast(self, t: Tile, to: DType) -> Tile:
        if kind(to) == "float":
            a = as_type(number(t.a), self.real)
            if self.rounding:
                a = as_type(as_type(a, np.dtype(NUMPY_NAMES[to])), self.real)
            return Tile(a, t.gone)
        return Tile(t.a != 0 if to == "bool" else _truncate(t.a), t.gone)

    def _reduce(self, op: Reduce) -> Tile:
        k = tuple(sorted(self.position[a] for a in op.over))
        if op.args[0] in self._factors:
            x, y = self._factors.pop(str(op.args[0]))
            return Tile(self._sum_of_products(self._full(x, k), self._full(y, k), k, self.real))
        x, *more = (self.read(x) for x in op.args)
        a = self._full(x, k).a
        if op.fn == "softmax":
            return softmax(as_type(a, self.real), [as_type(t.a, self.real) for t in more], k)
        out = reduce(op.fn, a, k, self.real)
        for t in more:
            out = np.logaddexp(out, as_type(t.a, self.real))
        return Tile(out)

    def _contract(self, op: Contract) -> Tile:
        k = tuple(sorted(self.position[a] for a in op.over))
        x, y = self.read(op.x), self.read(op.y)
        if self.rounding:
            x, y = self._narrow(x, op.x, op.y), self._narrow(y, op.y, op.x)
        out = self._sum_of_products(self._full(x, k), self._full(y, k), k, self.real)
        if op.init is None:
            return Tile(out)
        init = self.read(op.init).a
        return Tile(add(as_type(init, out.dtype) if is_float(out) else init, out))

    def _narrow(self, t: Tile, x: Operand, other: Operand) -> Tile:
        """A computed operand of a contraction in the type that the other, loaded, one asks for."""
        computed = self._dtype(x) in ("f32", "f64")
        to = _NARROW.get(self._dtype(other)) if computed else None
        return t if to is None else self._cast(t, to)

    def _dtype(self, x: Operand) -> DType | None:
        return (
            self.kernel.values[x].type.dtype
            if isinstance(x, str) and x in self.kernel.values
            else None
        )

    # loads and stores

    def _load(self, op: Load) -> Array:
        memory = self.memory[op.tensor]
        a = self._slice(memory, op.index)
        if a is None:
            a = self._gather(memory, op.index)
        elif op.result.type.axes and not a.ndim:
            # a window of one position: its index looked like a scalar
            a = a.reshape((1,) * self.rank)
        if any(a.shape[self.position[x]] != self.windows[x][1] for x in op.result.type.axes):
            raise CompilerBug(f"{op.result.name} has the shape {a.shape}, not that of its type")
        return as_type(a, _arithmetic(op.result.type.dtype, self.real))

    def _slice(self, memory: Array, index: tuple[Operand, ...]) -> Array | None:
        """A load whose indices are distinct axes and scalars, all in range; None if it is not of this kind."""
        at: list[Any] = []
        axes: list[int] = []
        for x, n in zip(index, memory.shape, strict=True):
            if isinstance(x, str) and x in self.position and x not in self.values:
                start, length = self.windows[x]
                if start + length > n or self.position[x] in axes:
                    return None
                at.append(slice(start, start + length))
                axes.append(self.position[x])
            else:
                a = self.read(x).a
                if a.size != 1 or not 0 <= (i := int(a.reshape(()))) < n:
                    return None
                at.append(i)
        a = memory[tuple(at)]
        shape = [1] * self.rank
        for k, n in zip(axes, a.shape, strict=True):
            shape[k] = n
        return a.transpose(np.argsort(axes)).reshape(shape) if axes else np.asarray(a)

    def _gather(self, memory: Array, index: tuple[Operand, ...]) -> Array:
        at = [number(self.read(x).a) for x in index]
        inside = np.ones((), np.bool_)
        for x, n in zip(at, memory.shape, strict=True):
            inside = inside & (x >= 0) & (x < n)
        if not memory.size:
            return np.zeros(inside.shape, memory.dtype)
        found = memory[tuple(np.clip(x, 0, n - 1) for x, n in zip(at, memory.shape, strict=True))]
        return found if inside.all() else np.where(inside, found, np.zeros((), memory.dtype))

    def store(self, op: Store) -> None:
        """Writes a value into the windows of the axes of an output or a buffer."""
        at, a = self.placed(op)
        memory = self.memory[op.tensor]
        if memory.dtype.kind in "iu" and is_float(a):
            a = _truncate(a)
        memory[at] = a.astype(memory.dtype)

    def placed(self, op: Store) -> tuple[tuple[slice, ...], Array]:
        """Where a store goes, and the value there; it may have length 1 where it lacks an axis."""
        axes = [self.position[str(x)] for x in op.index]
        a = self.read(op.value).a
        if a.ndim and self.rank:
            others = [k for k in range(self.rank) if k not in axes]
            a = a.transpose(*axes, *others).reshape([a.shape[k] for k in axes])
        at = tuple(slice(start, start + n) for start, n in (self.windows[str(x)] for x in op.index))
        return at, a

    # regions

    def _grid(self, op: Grid) -> None:
        held = dict(self.windows)
        self.meter.enter(op)
        self._tiles(op.axes, together(op, self.extents, self._decisive), op.body)
        self.meter.leave()
        self.windows = held

    def _tiles(
        self, axes: tuple[tuple[str, int], ...], together: Mapping[str, int], body: Body
    ) -> None:
        if not axes:
            self.body(body)
            return
        (axis, tile), *rest = axes
        extent, many, times = self.extents[axis], together.get(axis, 1), self.times
        if axis in together:
            self.joined.add(axis)
        for start in range(0, extent, many * tile):
            self.windows[axis] = window(start, many * tile, extent)
            if axis in together:
                self.times = times * self.windows[axis][1]
            self._tiles(tuple(rest), together, body)
        self.joined.discard(axis)
        self.times = times

    def _for(self, op: For) -> None:
        carried = [self.read(x) for x in op.init]
        held = self.windows[op.axis]
        for start in self.starts(op):
            self.windows[op.axis] = window(start, op.tile, self.extents[op.axis])
            self.define(op.args, carried)
            carried = self.body(op.body)
        self.windows[op.axis] = held
        self.define(op.results, carried)

    def starts(self, op: For) -> range:
        """Where the windows of a loop start."""
        extent = self.extents[op.axis]
        if op.tile is None:
            return range(1)
        start = 0 if op.start is None else self._integer(op.start)
        stop = extent if op.stop is None else min(self._integer(op.stop), extent)
        if start < stop and (start < 0 or start % op.tile):
            raise CompilerBug(f"a loop over {op.axis} in tiles of {op.tile} starts at {start}")
        starts = range(start, stop, op.tile)
        if starts and not op.ragged and starts[-1] + op.tile > extent:
            raise CompilerBug(
                f"a loop over {op.axis} is said not to be ragged, but its last window is"
            )
        return starts


# NumPy knows bfloat16 and the float8 types by their names only once ml_dtypes has been imported.
assert ml_dtypes.bfloat16

_NARROW: dict[DType | None, DType] = {
    "f16": "f16",
    **dict.fromkeys(("bf16", "f8e4m3", "f8e5m2", "i32", "i16", "i8", "u8"), cast(DType, "bf16")),
}


def _arithmetic(dtype: DType, real: Any) -> Any:
    """The NumPy type that a value of an element type is computed in."""
    return {"float": real, "int": np.int64, "bool": np.bool_}[kind(dtype)]


def _truncate(a: Array) -> Array:
    return (np.trunc(a) if is_float(a) else a).astype(np.int64)
