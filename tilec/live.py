"""Which elements of a streamed reduction count: the condition under which a block of them can be left out.

An element that is the identity of its reduction (`-inf` under max, an absent zero under sum) changes nothing. `Live`
finds the condition outside which every reduction of a loop's body sees identities only, and proves that the carried
values then stay what they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from tilec.defined import Defined
from tilec.dtypes import kind
from tilec.functions import VANISHING
from tilec.interval import Formula
from tilec.ir import (
    Absent,
    Cast,
    Contract,
    For,
    Map,
    Op,
    Operand,
    Reduce,
    Value,
    Yield,
    regions,
)

Identity = Literal["-inf", "inf", "absent", "false", "true"]

IDENTITIES: dict[str, Identity] = {
    "max": "-inf",
    "maxnum": "-inf",
    "min": "inf",
    "sum": "absent",
    "any": "false",
    "all": "true",
}
"""The element that leaves each reduction as it is."""

KEEPS_ZERO = frozenset(
    {"neg", "abs", "sqrt", "tanh", "sin", "erf", "floor", "ceil", "round", "relu", "silu"}
)
"""Functions that give an absent zero for an absent zero."""


def all_of(a: Formula, b: Formula) -> Formula:
    """a and b."""
    if a is False or b is False:
        return False
    return b if a is True or a == b else a if b is True else ("and", a, b)


def any_of(a: Formula, b: Formula) -> Formula:
    """a or b."""
    if a is True or b is True:
        return True
    return b if a is False or a == b else a if b is False else ("or", a, b)


def opposite(a: Formula) -> Formula:
    """Not a."""
    match a:
        case bool():
            return not a
        case ("not", b):
            return b
        case _:
            return ("not", a)


class Live:
    """What is dead in the body of a loop.

    `conditions` are those that decide it, in order of appearance, each with the answer that keeps an element alive.
    """

    def __init__(self, loop: For, definitions: Mapping[str, Op], defined: Defined) -> None:
        self.loop, self.definitions, self.defined = loop, definitions, defined
        self.values: Mapping[str, Value] = defined.kernel.values
        self.conditions: list[tuple[str, bool]] = []
        self._dead: dict[tuple[str, Identity], Formula] = {}

    def condition(self) -> Formula:
        """The condition outside which the loop's carried values stay as they are; True where none is found."""
        dead: Formula = True
        for op in self.loop.body:
            if regions(op):
                return True
            if isinstance(op, (Reduce, Contract)) and self.loop.axis in op.over:
                dead = all_of(dead, self._neutral(op))
        return opposite(dead) if self._unchanged() else True

    def _neutral(self, op: Reduce | Contract) -> Formula:
        """Where every element of a reduction is its identity."""
        if isinstance(op, Contract):
            return any_of(self.dead(op.x, "absent"), self.dead(op.y, "absent"))
        if op.fn not in IDENTITIES or len(op.args) != 1:
            return False
        return self.dead(op.args[0], IDENTITIES[op.fn])

    # ---- elements

    def dead(self, x: Operand, identity: Identity) -> Formula:
        """Where a value is an identity."""
        if isinstance(x, Absent):
            return identity == "absent"
        if not isinstance(x, str):
            return _literal_is(x, identity)
        key = (x, identity)
        if key not in self._dead:
            self._dead[key] = False  # for the values of other regions
            self._dead[key] = self._value(x, identity)
        return self._dead[key]

    def _value(self, x: str, identity: Identity) -> Formula:
        op = self.definitions.get(x)
        match op:
            case Map(fn="select", args=(c, a, b)):
                return self._select(c, self.dead(a, identity), self.dead(b, identity))
            case Cast(x=a):
                return (
                    self.dead(a, identity) if kind(op.to) == kind(op.result.type.dtype) else False
                )
            case Map() if identity == "absent":
                return self._absent(op)
            case Map() if identity in ("-inf", "inf"):
                return self._infinite(op, identity)
            case _ if identity in ("false", "true") and x in self.values:
                return opposite(x) if identity == "false" else x
            case _:
                return False

    def _select(self, c: Operand, a: Formula, b: Formula) -> Formula:
        if a is False and b is False:
            return False
        if isinstance(c, bool):
            return a if c else b
        assert isinstance(c, str)
        if b is True:  # else the element is dead
            self._note(c, True)
            return any_of(opposite(c), a)
        if a is True:
            self._note(c, False)
            return any_of(c, b)
        return any_of(all_of(c, a), all_of(opposite(c), b))

    def _note(self, c: str, alive: bool) -> None:
        if (c, alive) not in self.conditions:
            self.conditions.append((c, alive))

    def _absent(self, op: Map) -> Formula:
        match op.fn, op.args:
            case fn, (a,) if fn in VANISHING:
                return any_of(
                    self.dead(a, "-inf"), self.dead(a, "absent") if fn in KEEPS_ZERO else False
                )
            case fn, (a,) if fn in KEEPS_ZERO:
                return self.dead(a, "absent")
            case "mul", (a, b):
                return any_of(self.dead(a, "absent"), self.dead(b, "absent"))
            case "div", (a, _):
                return self.dead(a, "absent")
            case (("add" | "sub"), (a, b)):
                return all_of(self.dead(a, "absent"), self.dead(b, "absent"))
            case _:
                return False

    def _infinite(self, op: Map, identity: Identity) -> Formula:
        """-inf stays what it is when something that is not NaN is added; so does inf when it is finite."""
        other: Identity = "inf" if identity == "-inf" else "-inf"
        match op.fn, op.args:
            case "neg", (a,):
                return self.dead(a, other)
            case (("mul" | "div"), (a, float() | int() as c)) if (
                not isinstance(c, bool) and 0 < c < math.inf
            ):
                return self.dead(a, identity)
            case "mul", (float() | int() as c, a) if not isinstance(c, bool) and 0 < c < math.inf:
                return self.dead(a, identity)
            case "add", (a, b) if identity == "-inf":
                left = self.dead(a, identity) if self._harmless(b) else False
                return any_of(left, self.dead(b, identity) if self._harmless(a) else False)
            case "sub", (a, b) if identity == "-inf":
                return self.dead(a, identity) if self._harmless(b) else False
            case "max", (a, b) if identity == "-inf":
                return all_of(self.dead(a, identity), self.dead(b, identity))
            case _:
                return False

    def _harmless(self, x: Operand) -> bool:
        """Whether a value cannot be NaN, or is one for the whole row: it lacks the streamed axis."""
        if not isinstance(x, str):
            return not (isinstance(x, float) and math.isnan(x))
        if x not in self.values:
            return True
        t = self.values[x].type
        if kind(t.dtype) != "float" or self.loop.axis not in t.axes:
            return True
        match self.definitions.get(x):
            case Map(
                fn="add" | "sub" | "mul" | "neg" | "min" | "max" | "abs" | "select" as fn, args=args
            ):
                return all(self._harmless(a) for a in (args[1:] if fn == "select" else args))
            case Cast(x=a):
                return self._harmless(a)
            case _:
                return self.defined.holds(x)

    # ---- the carried values

    def _unchanged(self) -> bool:
        """Whether the body yields its arguments when every reduction over the axis gives its identity."""
        known: dict[str, Operand] = {}
        made: dict[tuple[str, tuple[Operand, ...]], str] = {}

        def of(x: Operand) -> Operand:
            return known.get(x, x) if isinstance(x, str) else x

        for op in self.loop.body:
            match op:
                case Reduce() if self.loop.axis in op.over:
                    known[op.result.name] = _identity_of(op)
                case Contract() if self.loop.axis in op.over:
                    known[op.result.name] = 0.0 if op.init is None else of(op.init)
                case Map():
                    args = tuple(of(x) for x in op.args)
                    same = _simpler(op.fn, args)
                    known[op.result.name] = (
                        made.setdefault((op.fn, args), op.result.name) if same is None else same
                    )
                case Yield():
                    return all(
                        of(x) == v.name for x, v in zip(op.values, self.loop.args, strict=True)
                    )
                case _:
                    pass
        return False


def _literal_is(x: int | float | bool, identity: Identity) -> bool:
    match identity:
        case "-inf" | "inf":
            return isinstance(x, float) and x == float(identity)
        case "false" | "true":
            return x is (identity == "true")
        case "absent":
            return type(x) is int and x == 0


def _identity_of(op: Reduce) -> Operand:
    """What a reduction of nothing but identities gives."""
    match IDENTITIES.get(op.fn):
        case "-inf":
            return -math.inf
        case "inf":
            return math.inf
        case "absent":
            return 0.0
        case "false":
            return False
        case "true":
            return True
        case None:
            return op.result.name


def _zero(x: Operand) -> bool:
    return isinstance(x, Absent) or (
        isinstance(x, (int, float)) and not isinstance(x, bool) and x == 0
    )


def _one(x: Operand) -> bool:
    return isinstance(x, (int, float)) and not isinstance(x, bool) and x == 1


def _simpler(fn: str, args: tuple[Operand, ...]) -> Operand | None:
    """What a function is equal to when a reduction has seen nothing. A state that is NaN stays NaN either way."""
    if fn in ("max", "min", "add", "mul", "or", "and") and len(args) == 2:
        x, y = args
        found = _neutral(fn, x, y)
        return _neutral(fn, y, x) if found is None else found
    match fn, args:
        case "gt", (a, _) if a == -math.inf:
            return False
        case "lt", (_, b) if b == -math.inf:
            return False
        case "select", (c, a, b) if isinstance(c, bool) or a == b:
            return a if c is True else b
        case "sub", (a, b) if a == b:
            return 0.0
        case "sub", (a, b) if _zero(b):
            return a
        case "div", (a, b) if _one(b):
            return a
        case (("div" | "neg"), (a, *_)) if _zero(a):
            return 0.0
        case (("exp" | "exp2"), (a,)) if _zero(a):
            return 1.0
        case _:
            return None


def _neutral(fn: str, x: Operand, y: Operand) -> Operand | None:
    """What a commutative function of x and y is, if y decides it."""
    match fn:
        case "max" if y == -math.inf or x == y:
            return x
        case "min" if y == math.inf or x == y:
            return x
        case "add" if _zero(y):
            return x
        case "mul" if _zero(y):
            return 0.0
        case "mul" if _one(y):
            return x
        case "or" if y is False or x == y:
            return x
        case "and" if y is True or x == y:
            return x
        case _:
            return None
