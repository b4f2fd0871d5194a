"""The range check of a call: an index made of axes, dimensions and scalars alone must stay inside its tensor.

Intervals prove most of it. What they leave open (`i // P * P + i % P`) is cut into boxes until an interval proves a box
or the box is small enough to look at every position of it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tilec import scalar
from tilec.binding import Bound, values_of
from tilec.dtypes import DType, kind
from tilec.errors import ArgumentError, Span
from tilec.ir import Absent, Cast, Kernel, Load, Map, Op, Operand, Value, operands, walk
from tilec.scalar import Number, Scalar

Interval = tuple[float, float]
"""The least and the greatest value; both are integers, or infinite where nothing is known."""

UNKNOWN: Interval = (-math.inf, math.inf)
SMALL = 1 << 16
"""A box of so many positions is evaluated whole."""


@dataclass(frozen=True)
class Index:
    """One index to check: which dimension of which tensor it is for, its operand and the axes that make it.

    `over` are the axes of the whole load: where one of them is empty, nothing is loaded. `written`: the index as the program
    writes it; empty where that is not known.
    """

    tensor: str
    position: int
    size: Scalar
    operand: Operand
    axes: tuple[str, ...]
    over: tuple[str, ...]
    span: Span | None
    written: str = ""


def indices(
    kernel: Kernel, written: Callable[[Span, int], str] = lambda span, n: ""
) -> tuple[Index, ...]:
    """The indices of a kernel over whole tensors that data does not decide, and that no `if` guards.

    An axis is one that is guarded by no condition on it (the others are written as `min`). An index that is an axis over its
    own dimension is left out. `written`: the index at a position of the element at a span,
    as the program writes it.
    """
    ops = {op.results[0].name: op for op in walk(kernel.body) if op.results}
    out: list[Index] = []
    for op in walk(kernel.body):
        if not isinstance(op, Load) or op.tensor not in kernel.tensors:
            continue
        for n, (x, size) in enumerate(zip(op.index, kernel.tensors[op.tensor].dims, strict=True)):
            extent = kernel.extents.get(x) if isinstance(x, str) else None
            free = op.guarded and extent is None
            if extent != size and not free and _is_fixed(x, ops):
                axes = _axes(x, kernel.values, kernel.extents)
                over = op.result.type.axes
                text = written(op.span, n) if op.span else ""
                out.append(Index(op.tensor, n, size, x, axes, over, op.span, text))
    return tuple(dict.fromkeys(out))


def _is_fixed(x: Operand, ops: Mapping[str, Op]) -> bool:
    """Whether a value comes from axes, dimensions, scalars and literals alone, through pointwise ops."""
    if not isinstance(x, str) or x not in ops:
        return True
    op = ops[x]
    return isinstance(op, (Map, Cast)) and all(_is_fixed(y, ops) for y in operands(op))


def _axes(
    x: Operand, values: Mapping[str, Value], extents: Mapping[str, Scalar]
) -> tuple[str, ...]:
    if not isinstance(x, str):
        return ()
    return values[x].type.axes if x in values else (x,) if x in extents else ()


def check(kernel: Kernel, found: tuple[Index, ...], bound: Bound) -> None:
    """Raises ArgumentError for the first index that leaves its range for these sizes and scalars."""
    if not found:
        return
    ops = {op.results[0].name: op for op in walk(kernel.body) if op.results}
    env: dict[str, Number] = {**bound.sizes, **bound.scalars}
    for index in found:
        if any(bound.extents[a] == 0 for a in index.over):
            continue
        box = {a: (0, bound.extents[a] - 1) for a in index.axes}
        size = int(scalar.evaluate(index.size, env))
        miss = _miss(index.operand, ops, env, box, size)
        if miss is not None:
            raise ArgumentError(_message(index, size, *miss, env, bound.extents))


Box = dict[str, tuple[int, int]]


def _miss(
    x: Operand, ops: Mapping[str, Op], env: Mapping[str, Number], box: Box, size: int
) -> tuple[int, dict[str, int]] | None:
    """A value of the index outside 0 .. size - 1, and the positions where it occurs; None where there is none."""
    low, high = _Intervals(ops, env, box).of(x)
    if low >= 0 and high < size:
        return None
    count = math.prod(b - a + 1 for a, b in box.values())
    if count <= SMALL:
        return _look(x, ops, env, box, size)
    for half in _halves(box):
        found = _miss(x, ops, env, half, size)
        if found is not None:
            return found
    return None


def _halves(box: Box) -> Iterator[Box]:
    longest = max(box, key=lambda a: box[a][1] - box[a][0])
    low, high = box[longest]
    middle = (low + high) // 2
    yield {**box, longest: (low, middle)}
    yield {**box, longest: (middle + 1, high)}


def _look(
    x: Operand, ops: Mapping[str, Op], env: Mapping[str, Number], box: Box, size: int
) -> tuple[int, dict[str, int]] | None:
    """The first miss among all positions of a small box."""
    import numpy

    shape = tuple(b - a + 1 for a, b in box.values())
    known: dict[str, Any] = {n: numpy.asarray(v) for n, v in env.items()}
    for n, (axis, (a, b)) in enumerate(box.items()):
        across = [1] * len(shape)
        across[n] = -1
        known[axis] = numpy.arange(a, b + 1, dtype=numpy.int64).reshape(across)
    with numpy.errstate(all="ignore"):
        got = numpy.broadcast_to(_value(x, ops, known), shape)
    bad = numpy.argwhere((got < 0) | (got >= size))
    if not len(bad):
        return None
    at = tuple(int(n) for n in bad[0])
    places = {axis: low + n for (axis, (low, _)), n in zip(box.items(), at, strict=True)}
    return int(got[at]), places


def _value(x: Operand, ops: Mapping[str, Op], known: dict[str, Any]) -> Any:
    """The NumPy array of a value made of positions, sizes and scalars; `known` grows by those on the way."""
    import numpy

    from tilec.backends.reference.functions import Tile, pointwise

    if not isinstance(x, str):
        return numpy.asarray(0 if isinstance(x, Absent) else x)
    if x not in known:
        op = ops[x]
        args = [_value(y, ops, known) for y in operands(op)]
        if isinstance(op, Map):
            known[x] = pointwise(op.fn, [Tile(a) for a in args], numpy.float64).a
        else:
            assert isinstance(op, Cast)
            known[x] = _converted(args[0], op.to)
    return known[x]


def _converted(x: Any, to: DType) -> Any:
    import numpy

    if kind(to) == "bool":
        return x != 0
    return numpy.trunc(x).astype(numpy.int64) if kind(to) == "int" else x.astype(numpy.float64)


def _message(
    index: Index,
    size: int,
    value: int,
    at: Mapping[str, int],
    env: Mapping[str, Number],
    extents: Mapping[str, int],
) -> str:
    where = "" if index.span is None else f"{index.span}: "
    positions = ", ".join(f"{a} = {n}" for a, n in at.items())
    sizes = values_of(index.size, env)
    if isinstance(index.operand, str) and index.operand in extents:
        return (
            f"{where}axis {index.operand} ranges over {extents[index.operand]}, and index {index.position} "
            f"of {index.tensor} over {size} only" + (f" ({sizes})" if sizes else "")
        )
    dim = "its dimension" if isinstance(index.size, int) else f"dimension {scalar.show(index.size)}"
    values = f" ({sizes})" if sizes and not isinstance(index.size, str) else ""
    return (
        f"{where}index {index.position} of {index.tensor}"
        + (f", {index.written}, is {value}" if index.written else f" is {value}")
        + (f" at {positions}" if positions else "")
        + f", outside {dim} of length {size}{values}"
        + "; guard the load with an `if`, or keep the index in range with clamp"
    )


# ---- intervals of integers


class _Intervals:
    """The interval of each value over a box of positions."""

    def __init__(self, ops: Mapping[str, Op], env: Mapping[str, Number], box: Box) -> None:
        self.ops = ops
        self.known: dict[str, Interval] = {n: (x, x) for n, x in env.items() if x == x}
        self.known.update(box)

    def of(self, x: Operand) -> Interval:
        if not isinstance(x, str):
            return (x, x) if isinstance(x, int) else UNKNOWN
        if x not in self.known:
            self.known[x] = self._op(self.ops[x]) if x in self.ops else UNKNOWN
        return self.known[x]

    def _op(self, op: Op) -> Interval:
        args = [self.of(x) for x in operands(op)]
        if isinstance(op, Cast):
            return _cast(args[0], op.to)
        assert isinstance(op, Map)
        if op.result.type.dtype == "bool":
            return 0, 1
        if op.fn == "select":
            return _hull([args[1], args[2]])
        if op.result.type.dtype != "i64" or any(math.isinf(e) for a in args for e in a):
            return UNKNOWN
        return _integer(op.fn, args)


def _cast(x: Interval, to: DType) -> Interval:
    if kind(to) == "bool":
        return 0, 1
    if kind(to) == "float" or math.isinf(x[0]) or math.isinf(x[1]):
        return x
    return math.trunc(x[0]), math.trunc(x[1])


def _hull(intervals: list[Interval]) -> Interval:
    return min(a for a, _ in intervals), max(b for _, b in intervals)


def _integer(fn: str, args: list[Interval]) -> Interval:
    """The interval of a function of bounded integers."""
    match fn, args:
        case (
            ("add" | "sub" | "mul" | "min" | "max"),
            [_, _],
        ):  # monotonic or bilinear: the corners decide
            return _corners(fn, args)
        case "neg", [(a, b)]:
            return -b, -a
        case "abs", [(a, b)]:
            return (0 if a <= 0 <= b else min(abs(a), abs(b))), max(abs(a), abs(b))
        case "floordiv", [_, (c, d)] if c > 0 or d < 0:
            return _corners(fn, args)
        case "mod", [(a, b), (c, d)] if c == d and c != 0:
            return (a % c, b % c) if a // c == b // c else (0, c - 1) if c > 0 else (c + 1, 0)
        case "mod", [_, (c, d)] if c > 0:
            return 0, d - 1
        case (("shl" | "shr"), [_, (c, d)]) if c >= 0 and d < 64:
            return _corners(fn, args)
        case "bitand", [(a, b), (c, d)] if a >= 0 and c >= 0:
            return 0, min(b, d)
        case _ if all(a == b for a, b in args):
            value = scalar.evaluate((fn, *(int(a) for a, _ in args)), {})
            return value, value
        case _:
            return UNKNOWN


def _corners(fn: str, args: list[Interval]) -> Interval:
    values = [scalar.evaluate((fn, *(int(x) for x in c)), {}) for c in itertools.product(*args)]
    return min(values), max(values)
