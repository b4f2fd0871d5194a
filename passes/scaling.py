"""The proof for `relax` that a carried maximum is only a reference: how values move with it.

Each value has a *degree* e, a factor 2 ** (e · d) when the reference moves by d, and a *shift*, what d adds to it; both
count for the old and for the new reference. A value has one of them or none; where a rule is lacking, nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    Contract,
    For,
    If,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    operands,
)

Tree = Operand | tuple["Tree", ...]
"""An expression of row values in which "?" is the reference's carried maximum."""


def tree(x: Operand, hole: str, defs: Mapping[str, Op]) -> Tree | None:
    """An operand as an expression of `hole`; None where it is not one of pointwise functions and fixed values."""
    if x == hole:
        return "?"
    op = defs.get(x) if isinstance(x, str) else None
    if op is None:
        return x
    parts = [tree(y, hole, defs) for y in operands(op)]
    known = tuple(p for p in parts if p is not None)
    if len(known) < len(parts):
        return None
    match op:
        case Map():
            return (op.fn, *known)
        case Load() if not any(map(mentions, known)):
            return x
        case _:
            return None


def mentions(t: Tree) -> bool:
    """Whether the reference is in an expression."""
    return t == "?" or (isinstance(t, tuple) and any(mentions(x) for x in t[1:]))


STILL = (0.0, 0.0)
"""No movement, neither with the old nor with the new reference."""


@dataclass(frozen=True)
class Measure:
    """How a value moves with the old and the new reference: degree (a factor 2 ** e·d) and shift (a summand)."""

    degree: tuple[float, float] = STILL
    shift: tuple[float, float] = STILL


FIXED = Measure()


class Scaling:
    """Degrees and shifts of values. `holes`: the names of the maxima, 0 for the old and 1 for the new one."""

    def __init__(self, defs: Mapping[str, Op], shape: Tree, holes: Mapping[str, int]) -> None:
        self.defs, self.shape, self.holes = defs, shape, holes
        self.known: dict[str, Measure | None] = {}
        self.exponents: list[float] = [0.0]

    def powers(self, ops: Body, carried: Iterable[tuple[str, Operand]]) -> tuple[float, ...] | None:
        """The degree of each carried value, given as it goes in and comes out of ops; None where one has none."""
        for op in ops:
            for v in op.results:
                m = self.measure(v.name)
                if isinstance(op, Map) and op.fn in ("exp", "exp2") and m is not None:
                    self.exponents.append(m.degree[1])
        out: list[float] = []
        for old, new in carried:
            power = 0.0 if old in self.holes else self.power(old, new)
            if power is None:
                return None
            out.append(power)
        return tuple(out)

    def power(self, old: str, new: Operand) -> float | None:
        """The degree with which a carried value goes in and comes out."""
        for e in dict.fromkeys(self.exponents):
            trial = Scaling(self.defs, self.shape, self.holes)
            trial.known[old] = Measure((e, 0.0))
            m = trial.measure(new)
            if m == Measure((0.0, e)):
                return e
        return None

    def measure(self, x: Operand) -> Measure | None:
        """How an operand moves; None where that is unknown."""
        if not isinstance(x, str):
            return FIXED
        if x not in self.known:
            self.known[x] = self._measure(x)
        return self.known[x]

    def _measure(self, x: str) -> Measure | None:
        for hole, which in self.holes.items():
            if tree(x, hole, self.defs) == self.shape:
                return Measure(shift=(1.0, 0.0) if which == 0 else (0.0, 1.0))
        if x in self.holes:
            return None
        op = self.defs.get(x)
        if op is None or isinstance(op, (For, If)):
            return FIXED if op is None else None
        parts = [self.measure(y) for y in operands(op)]
        if all(p == FIXED for p in parts):
            return FIXED
        if any(p is None for p in parts):
            return None
        return self.rule(op, [p for p in parts if p is not None])

    def rule(self, op: Op, parts: list[Measure]) -> Measure | None:
        """The measure of an op's result from those of its operands, not all of them fixed."""
        match op:
            case Map(fn=fn, args=args):
                return _map_rule(fn, args, parts)
            case Cast():
                return parts[0]
            case Reduce(fn="sum"):
                return parts[0] if parts[0].shift == STILL else None
            case Contract():
                m = _times(parts[0], parts[1], 1.0)
                return m if m is None or op.init is None else _plus(m, parts[2], 1.0)
            case _:
                return None


def _map_rule(fn: str, args: tuple[Operand, ...], parts: list[Measure]) -> Measure | None:
    first = parts[0]
    match fn:
        case "add" | "sub":
            if 0 in args:
                return parts[1 - args.index(0)] if fn == "add" else None
            return _plus(parts[0], parts[1], 1.0 if fn == "add" else -1.0)
        case "mul":
            for x, other in ((args[0], parts[1]), (args[1], parts[0])):
                if isinstance(x, (int, float)):
                    return _scaled(other, float(x))
            return _times(parts[0], parts[1], 1.0)
        case "div":
            if isinstance(args[1], (int, float)) and args[1]:
                return _scaled(first, 1.0 / args[1])
            return _times(parts[0], parts[1], -1.0)
        case "neg":
            return _scaled(first, -1.0)
        case "exp" | "exp2":
            if first.degree != STILL:
                return None
            c = 1.0 if fn == "exp2" else 1.0 / math.log(2.0)
            return Measure((_clean(first.shift[0] * c), _clean(first.shift[1] * c)))
        case "log" | "log2":
            if first.shift != STILL:
                return None
            c = 1.0 if fn == "log2" else math.log(2.0)
            return Measure(shift=(_clean(first.degree[0] * c), _clean(first.degree[1] * c)))
        case "abs" | "relu":
            return first if first.shift == STILL else None
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            sign = args[1] == 0 and not isinstance(args[1], (str, bool)) and first.shift == STILL
            return FIXED if sign else None
        case "select":
            arms = [p for p, x in zip(parts[1:], args[1:], strict=True) if x != ABSENT and x != 0]
            return arms[0] if first == FIXED and arms and all(p == arms[0] for p in arms) else None
        case _:
            return None


def _clean(x: float) -> float:
    """A number free of the last bits of rounding, so that equal exponents compare equal."""
    return float(f"{x:.12g}") + 0.0


def _plus(a: Measure, b: Measure, sign: float) -> Measure | None:
    if a.degree == b.degree == STILL:
        return Measure(
            shift=(_clean(a.shift[0] + sign * b.shift[0]), _clean(a.shift[1] + sign * b.shift[1]))
        )
    return a if a == b and a.shift == STILL else None


def _times(a: Measure, b: Measure, sign: float) -> Measure | None:
    if a.shift != STILL or b.shift != STILL:
        return None
    return Measure(
        (_clean(a.degree[0] + sign * b.degree[0]), _clean(a.degree[1] + sign * b.degree[1]))
    )


def _scaled(a: Measure, c: float) -> Measure:
    return Measure(a.degree, (_clean(a.shift[0] * c), _clean(a.shift[1] * c)))
