"""The IR: one language of SSA ops over values with named axes, for whole tensors and for tiles.

A kernel is a list of ops. Every value has a name, and ops refer to each other by name, so an IR is plain data:
frozen, comparable, printable (`tilec.text`) and readable (`tilec.reader`). What an operand name means is looked
up in the kernel: a value, an axis (the position along it, an i64), a dimension or a scalar parameter.

*Windows.* Inside `Grid` and `For` an axis has a window: the stretch of positions that the present tile covers.
An op means the same there as on whole tensors, on fewer positions; at the ragged end of an axis the window is
cut short. So a tile program needs no op of its own, and any tile program can be run by evaluating its ops on
windows. An axis whose tile is 1 is a scalar and does not appear in the types.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeAlias, Union, cast

from tilec.dtypes import DType
from tilec.errors import Span
from tilec.scalar import Scalar, names

Space = Literal["hbm", "sram", "reg"]


@dataclass(frozen=True, slots=True)
class Absent:
    """The literal 0 of an `if` arm: a zero that contributes nothing, whatever it is multiplied by."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()
Operand: TypeAlias = Union[str, int, float, bool, Absent]
"""A name (value, axis, dimension, scalar parameter) or a literal. A NaN literal is always `math.nan`."""


@dataclass(frozen=True, slots=True)
class Type:
    """Element type, named axes, the tile's extent along each (None: the whole axis), and where the value lives."""

    dtype: DType
    axes: tuple[str, ...] = ()
    tile: tuple[int | None, ...] = ()
    space: Space | None = None

    def __post_init__(self) -> None:
        if len(self.tile) != len(self.axes):
            object.__setattr__(self, "tile", (None,) * len(self.axes))

    def resembles(self, other: Type) -> bool:
        """Whether the element types and the axes are the same, in whatever order."""
        return self.dtype == other.dtype and set(self.axes) == set(other.axes)


@dataclass(frozen=True, slots=True)
class Value:
    """A result of an op, or a block argument."""

    name: str
    type: Type


# ---- the header of a kernel


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor parameter. `dims`: one scalar expression per dimension, in storage order."""

    name: str
    dtype: DType
    dims: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Argument:
    """A scalar parameter, with its default or None."""

    name: str
    type: Literal["int", "float", "bool"]
    default: Scalar | None = None


@dataclass(frozen=True, slots=True)
class Output:
    """An output tensor: its axes in storage order."""

    name: str
    dtype: DType
    axes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """A named axis that ranges over 0 .. extent - 1. `span`: the bound of its `axis` line, if it has one."""

    name: str
    extent: Scalar
    span: Span | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Assertion:
    """A condition on dimensions and scalar arguments, checked at the call. `span`: where the program has it."""

    condition: Scalar
    message: str
    span: Span | None = field(default=None, compare=False)


# ---- ops


def _operand() -> Any:
    return field(metadata={"role": "operand"})


def _operands() -> Any:
    return field(metadata={"role": "operands"})


def _region() -> Any:
    return field(metadata={"role": "region"})


@dataclass(frozen=True)
class Op:
    """What every op has: its results and the place in the program that it came from."""

    word: ClassVar[str] = ""
    results: tuple[Value, ...]
    span: Span | None = field(default=None, compare=False, kw_only=True)

    @property
    def result(self) -> Value:
        """The only result."""
        (value,) = self.results
        return value


@dataclass(frozen=True)
class Load(Op):
    """`k: f16[j:64, d] = load(K, b, g, j, d)`: elements of a parameter, an output or a buffer, one index per dimension.

    An index is any integer operand. An index out of range gives 0 and touches no memory. `guarded` says that an `if`
    of the program decides whether the element is looked at, so that a miss is no error of the call.
    """

    word: ClassVar[str] = "load"
    tensor: str
    index: tuple[Operand, ...] = _operands()
    guarded: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Store(Op):
    """`store(O, b, h, i, e, value=o)`: writes a value; the indices are the axes of the output or buffer, in order."""

    word: ClassVar[str] = "store"
    tensor: str
    index: tuple[Operand, ...] = _operands()
    value: Operand = _operand()


@dataclass(frozen=True)
class Buffer(Op):
    """`m: f32[b, h, i] @hbm = buffer()`: an intermediate tensor in HBM, stored by one grid and loaded by later ones."""

    word: ClassVar[str] = "buffer"


@dataclass(frozen=True)
class Map(Op):
    """`x: f32[i, j] = add(s, t)`: a pointwise function of `tilec.functions`; operands broadcast by axis name."""

    word: ClassVar[str] = "map"
    fn: str
    args: tuple[Operand, ...] = _operands()


@dataclass(frozen=True)
class Cast(Op):
    """`p: f16[i, j] = cast(x, to=f16)`: a conversion the program asks for; to an integer it truncates toward zero."""

    word: ClassVar[str] = "cast"
    x: Operand = _operand()
    to: DType = field(kw_only=True)


@dataclass(frozen=True)
class Reduce(Op):
    """`m: f32[i] = max(x, over=j)`: a reduction. `softmax` keeps the axes; it and `logsumexp` take further logits."""

    word: ClassVar[str] = "reduce"
    fn: str
    args: tuple[Operand, ...] = _operands()
    over: tuple[str, ...] = field(kw_only=True)


@dataclass(frozen=True)
class Contract(Op):
    """`s: f32[i, j] = contract(q, k, over=d)`: the sum over `over` of x · y, plus `init` where there is one.

    Axes that both operands have and that are not summed are batch axes. The products are accumulated in the compute
    type. A computed operand may be rounded to the storage type of the other, loaded, one.
    """

    word: ClassVar[str] = "contract"
    x: Operand = _operand()
    y: Operand = _operand()
    over: tuple[str, ...] = field(kw_only=True)
    init: Operand | None = field(default=None, kw_only=True, metadata={"role": "operand"})


@dataclass(frozen=True)
class Yield(Op):
    """`yield(m, l)`: the last op of the region of a `Group`, `For` or `If`: the values that it gives."""

    word: ClassVar[str] = "yield"
    values: tuple[Operand, ...] = _operands()


@dataclass(frozen=True)
class Group(Op):
    """`m: f32[b, h, i] @hbm, … = group(axes=[b, h, i]) { … yield(m0, …) }`: ops that become one kernel.

    Only what it yields exists outside; the values inside stay on chip. `axes` are those that its tiles will not share:
    the grid.
    """

    word: ClassVar[str] = "group"
    axes: tuple[str, ...] = field(kw_only=True)
    body: tuple[Op, ...] = _region()


@dataclass(frozen=True)
class Grid(Op):
    """`grid(axes=[b:1, h:1, i:128]) { … }`: runs its body once per tile, in any order and in parallel."""

    word: ClassVar[str] = "grid"
    axes: tuple[tuple[str, int], ...] = field(kw_only=True)
    body: tuple[Op, ...] = _region()


@dataclass(frozen=True)
class For(Op):
    """`m, l = for(-inf, 0.0, axis=j, tile=64, start=lo, stop=hi) as (mp, lp) { … yield(mn, ln) }`: a streamed axis.

    The window of `axis` moves from `start` to `stop` (None: 0 and the axis's end) in steps of `tile` (None: one window
    over all of it). `args` are the carried values as the body sees them. `start` must be a multiple of `tile`.
    `ragged` is False where every window is proven to hold `tile` positions. `note` says why a reduction has a loop of
    its own.
    """

    word: ClassVar[str] = "for"
    init: tuple[Operand, ...] = _operands()
    axis: str = field(kw_only=True)
    tile: int | None = field(default=None, kw_only=True)
    start: Operand | None = field(default=None, kw_only=True, metadata={"role": "operand"})
    stop: Operand | None = field(default=None, kw_only=True, metadata={"role": "operand"})
    ragged: bool = field(default=True, kw_only=True)
    note: str | None = field(default=None, kw_only=True)
    args: tuple[Value, ...] = field(default=(), kw_only=True, metadata={"role": "arguments"})
    body: tuple[Op, ...] = _region()


@dataclass(frozen=True)
class If(Op):
    """`m, l = if(c) { … yield(…) } else { … yield(…) }`: `cond` is a scalar bool; one of the regions runs.

    `relaxed` says that `else` is right whatever `cond` is, and that `cond` holds for all rows of a tile: a target may
    decide for parts of the rows, and may take `else` more often than `cond` says.
    """

    word: ClassVar[str] = "if"
    cond: Operand = _operand()
    relaxed: bool = field(default=False, kw_only=True)
    then: tuple[Op, ...] = _region()
    orelse: tuple[Op, ...] = _region()


@dataclass(frozen=True)
class Edge(Op):
    """`j1: i64 = last(j)`: the first or last position of an axis's present window, a scalar."""

    word: ClassVar[str] = "edge"
    which: Literal["first", "last"]
    axis: str


AnyOp: TypeAlias = Union[
    Load, Store, Buffer, Map, Cast, Reduce, Contract, Yield, Group, Grid, For, If, Edge
]
Body: TypeAlias = tuple[Op, ...]


@dataclass(frozen=True)
class Kernel:
    """A kernel: its signature, its axes and its ops."""

    name: str
    params: tuple[Tensor | Argument, ...]
    outputs: tuple[Output, ...]
    axes: tuple[Axis, ...]
    body: Body
    assertions: tuple[Assertion, ...] = ()

    @functools.cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The tensor parameters by name."""
        return {p.name: p for p in self.params if isinstance(p, Tensor)}

    @functools.cached_property
    def arguments(self) -> dict[str, Argument]:
        """The scalar parameters by name."""
        return {p.name: p for p in self.params if isinstance(p, Argument)}

    @functools.cached_property
    def dims(self) -> tuple[str, ...]:
        """The names of the dimensions, in order of appearance."""
        return tuple(
            dict.fromkeys(n for t in self.tensors.values() for d in t.dims for n in names(d))
        )

    @functools.cached_property
    def extents(self) -> dict[str, Scalar]:
        """The extent of each axis."""
        return {a.name: a.extent for a in self.axes}

    @functools.cached_property
    def compute(self) -> DType:
        """The float type of the kernel's arithmetic."""
        return "f64" if any(t.dtype == "f64" for t in self.tensors.values()) else "f32"

    @functools.cached_property
    def values(self) -> dict[str, Value]:
        """Every value of the kernel by name, block arguments included."""
        return {v.name: v for op in walk(self.body) for v in defined(op)}


# ---- reading and rebuilding ops, from the roles of their fields


@functools.cache
def _roles(op: type[Op]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (f.name, f.metadata["role"]) for f in dataclasses.fields(op) if "role" in f.metadata
    )


@functools.cache
def attributes(op: type[Op]) -> tuple[str, ...]:
    """The names of an op's fields that are neither operands, regions, results nor its place in the source."""
    return tuple(
        f.name
        for f in dataclasses.fields(op)
        if "role" not in f.metadata and f.name not in ("results", "span")
    )


@functools.cache
def _fields(op: type[Op], *roles: str) -> tuple[tuple[str, str], ...]:
    """The fields of an op with one of these roles."""
    return tuple((name, role) for name, role in _roles(op) if role in roles)


def operands(op: Op) -> tuple[Operand, ...]:
    """The operands of an op itself, not those of the ops in its regions."""
    out: list[Operand] = []
    for name, role in _fields(type(op), "operand", "operands"):
        x = getattr(op, name)
        if role == "operands":
            out += cast("tuple[Operand, ...]", x)
        elif x is not None:
            out.append(x)
    return tuple(out)


def regions(op: Op) -> tuple[Body, ...]:
    """The regions of an op."""
    return tuple(getattr(op, name) for name, _ in _fields(type(op), "region"))


def defined(op: Op) -> tuple[Value, ...]:
    """The values that an op defines: its results, and the arguments of its regions."""
    return op.results + (op.args if isinstance(op, For) else ())


def rebuild(
    op: Op,
    operand: Callable[[Operand], Operand] = lambda x: x,
    region: Callable[[Body], Body] = lambda body: body,
    value: Callable[[Value], Value] = lambda v: v,
) -> Op:
    """The op with each operand, region and defined value replaced by what the functions give."""
    changes: dict[str, Any] = {"results": tuple([value(v) for v in op.results])}
    for name, role in _roles(type(op)):
        x = getattr(op, name)
        if role == "operand":
            changes[name] = None if x is None else operand(x)
        elif role == "operands":
            changes[name] = tuple([operand(y) for y in x])
        elif role == "region":
            changes[name] = region(x)
        elif role == "arguments":
            changes[name] = tuple([value(v) for v in x])
    return replace(op, **changes)


def walk(body: Iterable[Op]) -> Iterator[Op]:
    """Every op of a body, outer ops before those in their regions."""
    for op in body:
        yield op
        for name, _ in _fields(type(op), "region"):
            yield from walk(getattr(op, name))
