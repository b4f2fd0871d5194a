"""The pointwise functions of the IR on LLVM values, with the language's rules for -inf, 0 / 0 and absent zeros."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from tilec.backends.cpu import math as elementary
from tilec.backends.cpu.vector import Emit, Kind, Order, constant, kind_of
from tilec.dtypes import DType
from tilec.dtypes import kind as kind_of_dtype
from tilec.functions import VANISHING, ZERO_AT_ZERO

Marked: TypeAlias = tuple[Any, Any | None]
"""A value, and where it is an absent zero."""

ORDERS: dict[str, Order] = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}


def kind_for(dtype: DType, float: Kind) -> Kind:
    """The kind in which values of an element type are computed."""
    match kind_of_dtype(dtype):
        case "float":
            return float
        case "int":
            return "i64"
        case "bool":
            return "i1"


@dataclass(frozen=True)
class Rule:
    """How a function is to be computed.

    `kind` is that of the result, `float` the kernel's; `marked`: absent zeros of the result are told from others; `plain`:
    a sum goes by IEEE; `literals` are the operands as the program writes them, where they are numbers.
    """

    kind: Kind
    float: Kind
    marked: bool
    plain: bool
    literals: tuple[Any, ...]


def apply(e: Emit, fn: str, rule: Rule, args: Sequence[Marked]) -> Marked:
    """A function of the IR."""
    kind, float, literals = rule.kind, rule.float, rule.literals
    xs, marks = [x for x, _ in args], [m if rule.marked else None for _, m in args]
    match fn:
        case "lt" | "le" | "gt" | "ge" | "eq" | "ne":
            a, b = _common(e, xs, float)
            return e.compare(ORDERS[fn], a, b), None
        case "and" | "or":
            a, b = (e.convert(x, "i1") for x in xs)
            return (e.and_ if fn == "and" else e.or_)(a, b), None
        case "not":
            return e.not_(e.convert(xs[0], "i1")), None
        case "isfinite":
            return elementary.isfinite(e, e.convert(xs[0], float)), None
        case "select":
            return _select(e, kind, xs, marks)
        case "bitand" | "bitor" | "bitxor":
            a, b = (e.convert(x, kind) for x in xs)
            return {"bitand": e.and_, "bitor": e.or_, "bitxor": e.xor}[fn](a, b), None
        case "invert":
            return e.not_(e.convert(xs[0], kind)), None
        case "uniform":
            words = [e.convert(x, "i64") for x in xs]
            return elementary.uniform(e, words[0], *words[1:], kind=float), None
        case "ipow":
            return elementary.ipow(e, e.convert(xs[0], kind), int(literals[1])), None
        case _:
            return _arithmetic(e, fn, rule, [e.convert(x, kind) for x in xs], marks)


def _arithmetic(e: Emit, fn: str, rule: Rule, xs: list[Any], marks: list[Any | None]) -> Marked:
    absorb = rule.kind[0] == "f" and not rule.plain
    match fn:
        case "add":
            return (_absorb(e, e.add(*xs), xs, True) if absorb else e.add(*xs)), _both(e, *marks)
        case "sub":
            return (_absorb(e, e.sub(*xs), xs, False) if absorb else e.sub(*xs)), _both(e, *marks)
        case "mul":
            mark = _either(e, *marks)
            return _zero_where(e, mark, e.mul(*xs)), mark
        case "div":
            both = e.and_(e.compare("==", xs[0], 0.0), e.compare("==", xs[1], 0.0))
            out = e.select(both, 0.0, e.div(*xs))
            return _zero_where(e, marks[0], out), marks[0]
        case "min" | "max":
            known = [n for n, x in enumerate(rule.literals) if x is not None]
            if len(known) == 1:
                xs[known[0]] = rule.literals[known[0]]
            return (e.min if fn == "min" else e.max)(*xs), None
        case "neg":
            return e.neg(xs[0]), marks[0]
        case "abs":
            return e.abs(xs[0]), marks[0]
        case _:
            out = _FUNCTIONS[fn](e, *xs)
            return _vanished(e, fn, xs[0], out, marks[0]) if rule.marked else (out, None)


def _vanished(e: Emit, fn: str, x: Any, out: Any, mark: Any | None) -> Marked:
    """The mark of a function's value: absent where the argument is -inf, or was and stays so."""
    kept = mark if fn in ZERO_AT_ZERO else None
    if fn not in VANISHING:
        return out, kept
    gone = e.compare("==", x, -math.inf)
    gone = gone if kept is None else e.or_(gone, kept)
    return _zero_where(e, gone, out), gone


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "floordiv": elementary.floordiv,
    "mod": elementary.mod,
    "shl": elementary.shl,
    "shr": elementary.shr,
    "pow": elementary.pow,
    "atan2": elementary.atan2,
    "exp": elementary.exp,
    "exp2": elementary.exp2,
    "log": elementary.log,
    "log2": elementary.log2,
    "tanh": elementary.tanh,
    "sigmoid": elementary.sigmoid,
    "rsqrt": elementary.rsqrt,
    "erf": elementary.erf,
    "sin": elementary.sin,
    "cos": elementary.cos,
    "relu": elementary.relu,
    "silu": elementary.silu,
    "sqrt": Emit.sqrt,
    "floor": Emit.floor,
    "ceil": Emit.ceil,
    "round": Emit.round,
}


def _common(e: Emit, xs: Sequence[Any], float: Kind) -> list[Any]:
    """Two operands of a comparison in one kind."""
    kinds = {kind_of(x) for x in xs}
    if len(kinds) == 1:
        return list(xs)
    kind: Kind = float if any(k[0] == "f" for k in kinds) else "i64"
    return [e.convert(x, kind) for x in xs]


def _absorb(e: Emit, out: Any, xs: Sequence[Any], adding: bool) -> Any:
    """A sum or difference in which -inf stays -inf beside anything but NaN.

    IEEE arithmetic differs from that only where two infinities cancel.
    """
    a, b = e.match(*xs)
    low = e.compare("==", a, -math.inf)
    if not adding:
        return e.select(e.and_(low, e.compare("==", b, -math.inf)), -math.inf, out)
    cancel = e.and_(low, e.compare("==", b, math.inf))
    other = e.and_(e.compare("==", a, math.inf), e.compare("==", b, -math.inf))
    return e.select(e.or_(cancel, other), -math.inf, out)


def absorbing_sum(e: Emit, a: Any, b: Any) -> Any:
    """a + b of floats, in which -inf absorbs infinities."""
    return _absorb(e, e.add(a, b), [a, b], True)


def _select(e: Emit, kind: Kind, xs: Sequence[Any], marks: Sequence[Any | None]) -> Marked:
    condition = e.convert(xs[0], "i1")
    a, b = (e.convert(x, kind) for x in xs[1:])
    out = e.select(condition, a, b)
    if marks[1] is None and marks[2] is None:
        return out, None
    no = constant("i1", 0)
    a, b = (no if m is None else m for m in marks[1:])
    return out, e.select(condition, a, b)


def _both(e: Emit, a: Any | None, b: Any | None) -> Any | None:
    return None if a is None or b is None else e.and_(a, b)


def _either(e: Emit, a: Any | None, b: Any | None) -> Any | None:
    if a is None or b is None:
        return a if b is None else b
    return e.or_(a, b)


def _zero_where(e: Emit, mark: Any | None, x: Any) -> Any:
    return x if mark is None else e.select(mark, 0 if kind_of(x)[0] == "i" else 0.0, x)


def product(e: Emit, a: Marked, b: Marked, total: Any) -> Any:
    """total + a · b, where an absent factor contributes nothing."""
    mark = _either(e, a[1], b[1])
    if mark is None and kind_of(total)[0] == "f":
        return e.fma(a[0], b[0], total)
    return e.add(total, _zero_where(e, mark, e.mul(a[0], b[0])))
