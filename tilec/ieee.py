"""Where IEEE's arithmetic is the language's.

They differ in three places: absent zeros, -inf beside an infinity, and 0 / 0. What is known of a kernel's values before it
runs tells where that cannot happen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping

from tilec.dtypes import DType, kind
from tilec.functions import VANISHING, ZERO_AT_ZERO
from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    For,
    If,
    Kernel,
    Map,
    Op,
    Operand,
    Yield,
    defined,
    regions,
    walk,
)

NOT_NEGATIVE = frozenset(
    {"exp", "exp2", "sigmoid", "relu", "abs", "uniform", "tanh", "erf", "sin", "cos", "silu"}
)
"""Functions whose value is never -inf."""
BOUNDED = frozenset({"sigmoid", "uniform", "tanh", "erf", "sin", "cos"})
"""Functions whose value is never infinite."""


class Facts:
    """What is known of the values of a kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.defs: dict[str, Op] = {v.name: op for op in walk(kernel.body) for v in defined(op)}
        self.absent = absent_values(kernel)
        self.sums = running_sums(kernel)

    def dtype(self, x: Operand) -> DType:
        """The element type of an operand."""
        if isinstance(x, str):
            if x in self.kernel.values:
                return self.kernel.values[x].type.dtype
            argument = self.kernel.arguments.get(x)
            return self.kernel.compute if argument and argument.type == "float" else "i64"
        return (
            "bool" if isinstance(x, bool) else "i64" if isinstance(x, int) else self.kernel.compute
        )

    # ---- infinities

    def finite(self, x: Operand, sign: int, depth: int = 12) -> bool:
        """Whether an operand is never the infinity of this sign (it may be NaN)."""
        if not isinstance(x, str):
            return x == ABSENT or x != sign * math.inf
        if kind(self.dtype(x)) != "float":
            return True
        op = self.defs.get(x)
        if not isinstance(op, Map) or not depth:
            return False

        def again(y: Operand) -> bool:
            return self.finite(y, sign, depth - 1)

        if op.fn in ("max", "min"):
            return (any if (op.fn == "max") == (sign < 0) else all)(map(again, op.args))
        if op.fn == "select":
            return all(map(again, op.args[1:]))
        if op.fn == "neg":
            return self.finite(op.args[0], -sign, depth - 1)
        return op.fn in (NOT_NEGATIVE if sign < 0 else BOUNDED)

    def origin(self, x: Operand, kept: Container[str], depth: int = 12) -> Operand | None:
        """The operand that is -inf where this one is so by the language and not by overflow; None where that is never so.

        A score of -1e38 that is scaled may overflow: its weight is a small number, and no absent zero. `kept`: values of
        which that is not asked, as what they are made of is gone.
        """
        if not isinstance(x, str) or kind(self.dtype(x)) != "float":
            return None if self.finite(x, -1) else x
        if x in kept or not depth:
            return x
        match self.defs.get(x):
            case Map(fn="mul", args=(y, float() as c)) | Map(fn="mul", args=(float() as c, y)) if (
                0 < c < math.inf
            ):
                return self.origin(y, kept, depth - 1)
            case Map(fn="add" | "sub", args=(y, z)) if self.finite(z, -1) and self.finite(z, 1):
                return self.origin(y, kept, depth - 1)
            case _:
                return None if self.finite(x, -1) else x

    def plain(self, op: Map) -> bool:
        """Whether a sum or difference is IEEE's."""
        return op.result.name in self.sums or self.never_cancels(op)

    def never_cancels(self, op: Map) -> bool:
        """Whether IEEE's sum or difference is the language's, as no infinities can meet."""
        a, b = op.args
        if op.fn == "sub":
            return self.finite(a, -1) or self.finite(b, -1)
        return (self.finite(a, -1) or self.finite(b, 1)) and (
            self.finite(a, 1) or self.finite(b, -1)
        )


# ---- sums in parts


def running_sums(kernel: Kernel) -> set[str]:
    """The `add`s by which loops carry on a sum. Where infinities meet in one it is NaN, as in any sum of many terms."""
    found: set[str] = set()
    loops = [op for op in walk(kernel.body) if isinstance(op, For)]
    if not loops:
        return found
    made = {v.name: op for op in walk(kernel.body) for v in op.results}
    for loop in loops:
        for arg, end in zip(loop.args, yielded(loop.body), strict=True):
            found.update(_carried_on(end, arg.name, made))
    return found


def _carried_on(x: Operand, arg: str, made: Mapping[str, Op]) -> list[str]:
    """The sums among what an argument of a loop is at its end, in any branch."""

    def scaled(y: Operand) -> bool:
        op = made.get(y) if isinstance(y, str) else None
        return y == arg or isinstance(op, Map) and op.fn == "mul" and any(map(scaled, op.args))

    match made.get(x) if isinstance(x, str) else None:
        case If() as op:
            n = next(n for n, v in enumerate(op.results) if v.name == x)
            ends = (yielded(op.then)[n], yielded(op.orelse)[n])
            return [name for y in ends for name in _carried_on(y, arg, made)]
        case Map(fn="add", args=args) as op if any(map(scaled, args)):
            return [op.result.name]
        case _:
            return []


# ---- absent zeros


def absent_values(kernel: Kernel) -> set[str]:
    """The values, block arguments included, that may hold an absent zero."""
    found: set[str] = set()
    while True:
        before = len(found)
        _visit(kernel.body, found)
        if len(found) == before:
            return found


def _visit(body: Body, found: set[str]) -> None:
    def may(x: Operand) -> bool:
        return x in found if isinstance(x, str) else x == ABSENT

    for op in body:
        for region in regions(op):
            _visit(region, found)
        found.update(_marked(op, may))


def _marked(op: Op, may: Callable[[Operand], bool]) -> list[str]:
    match op:
        case Map() if kind(op.result.type.dtype) == "float":
            return [op.result.name] if _map(op, may) else []
        case Cast() if kind(op.to) == "float":
            return [op.result.name] if may(op.x) else []
        case For():
            ends = yielded(op.body)
            hit = [n for n, x in enumerate(op.init) if may(x) or may(ends[n])]
            return [v.name for n in hit for v in (op.args[n], op.results[n])]
        case If():
            arms = zip(yielded(op.then), yielded(op.orelse), strict=True)
            return [v.name for v, pair in zip(op.results, arms, strict=True) if any(map(may, pair))]
        case _:
            return []


def yielded(body: Body) -> tuple[Operand, ...]:
    """What a region gives."""
    last = body[-1] if body else None
    return last.values if isinstance(last, Yield) else ()


def _map(op: Map, may: Callable[[Operand], bool]) -> bool:
    if op.fn in VANISHING:
        return True
    if op.fn == "select":
        return may(op.args[1]) or may(op.args[2])
    if op.fn == "mul":
        return any(map(may, op.args))
    if op.fn in ("add", "sub"):
        return all(map(may, op.args))
    return (op.fn == "div" or op.fn in ZERO_AT_ZERO) and may(op.args[0])
