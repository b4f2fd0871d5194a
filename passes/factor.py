"""The algebra of the online pass: a reduction as a sum of terms in which its states are factors.

A *state* is an earlier reduction over the same axis, whose value moves as the axis is streamed. The operand of
a sum is brought into the form  Σ_k c_k · x_k · exp(scale_k · (u_k ± w_k))  where u_k and x_k vary along the
axis and know no state, w_k is made of states only, and c_k does not vary along the axis. The rules, for the
operand v:

    no streamed axis                      c = v
    no state                              x = v
    a · b, a / c, -a, cast(a)             products of the terms of a and b; c without streamed axis
    a + b, a - b                          the terms of both
    a if cond else b                      the terms of both, each masked; cond without states
    exp(z)                                z = scale · (u ± w), split over sums

Absent terms stay absent whatever c is, and 0 · nan behind a sum is NaN. So `online` looks at the sum of the weights: it
is 0 in rows without any. Where that does not tell, a c that may be NaN and knows no state stays in x. And a condition that
hides whole rows is a c as well: what is hidden must not meet a state that is NaN.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import TypeAlias, Union, cast

from tilec.dtypes import DType
from tilec.ir import ABSENT, Absent, Cast, Contract, Map, Op, Operand, Reduce, Type
from tilec.passes.expand import LIMITS
from tilec.passes.known import is_finite

Expr: TypeAlias = Union[Operand, tuple["Expr", ...]]
"""An operand of the old body, or `(function, operand, …)`; `clamp` makes infinities finite, `cast:T` converts."""


CAST = "cast:"
"""What the name of a conversion begins with."""


def conversion(function: object) -> DType | None:
    """The type that a function of an expression converts to; None for any other function."""
    if not isinstance(function, str) or not function.startswith(CAST):
        return None
    return cast(DType, function.removeprefix(CAST))


class NotFactored(Exception):
    """The reduction is not of the form; the message says where it stops."""


@dataclass(frozen=True, slots=True)
class Phi:
    """The factor fn(± scale · w) of a term; `negative` where w is subtracted."""

    fn: str
    w: Expr
    negative: bool
    scale: Expr | None


@dataclass(frozen=True, slots=True)
class Weights:
    """The exponentials in a term, where w is a maximum over u: none is above 1, unless w is infinite.

    `peak`: w is the maximum over u alone, so that one of a row is 1, unless all are absent or one is NaN.
    """

    x: Expr
    phi: Phi
    peak: bool


@dataclass(frozen=True, slots=True)
class Term:
    """Coefficients to be applied after the loop, the operand or operands summed, and the factors.

    A coefficient multiplies (`mul`), divides (`div`), or is a condition on which the row is kept (`keep`) or is 0 (`drop`).
    """

    coefficients: tuple[tuple[str, Operand], ...]
    x: Expr
    y: Expr | None
    phis: tuple[Phi, ...]
    weights: Weights | None = None


@dataclass(frozen=True, slots=True)
class Known:
    """The values of a kernel that may be absent zeros, and its dimensions."""

    absent: AbstractSet[object] = frozenset[str]()
    dims: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Context:
    """A body's definitions and types, the streamed axes, the values that depend on a state, and what else is known."""

    defs: Mapping[str, Op]
    types: Mapping[str, Type]
    over: frozenset[str]
    moving: set[str]
    known: Known = Known()

    def streamed(self, x: Expr) -> bool:
        """Whether an operand varies along the streamed axes."""
        if not isinstance(x, str):
            return False
        return x in self.over or (x in self.types and bool(self.over & set(self.types[x].axes)))

    def moves(self, x: Expr) -> bool:
        """Whether an operand depends on a state."""
        return isinstance(x, str) and x in self.moving

    def axes(self, x: Expr) -> tuple[str, ...]:
        """The axes of an operand."""
        return self.types[x].axes if isinstance(x, str) and x in self.types else ()

    def op(self, x: Expr) -> Op | None:
        """The op that gives an operand."""
        return self.defs.get(x) if isinstance(x, str) else None


ONE: Expr = 1.0
ROWS = ("keep", "drop")
"""Coefficients that are conditions, and are applied last."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A term in the making; `x` is None where nothing of it varies along the axis yet."""

    coefficients: tuple[tuple[str, Operand], ...] = ()
    x: Expr | None = None
    phis: tuple[Phi, ...] = ()
    weights: Weights | None = None


def factor(op: Reduce | Contract, c: Context) -> list[Term]:
    """The terms of a sum or a contraction. Raises NotFactored."""
    if isinstance(op, Reduce):
        return [_term(p, None, c) for p in _parts(op.args[0], c)]
    terms: list[Term] = []
    for a in _parts(op.x, c):
        for b in _parts(op.y, c):
            first, second = (a, b) if a.x is not None else (b, a)
            both = replace(
                first,
                coefficients=(*a.coefficients, *b.coefficients),
                phis=(*a.phis, *b.phis),
                weights=first.weights or second.weights,
            )
            terms.append(_term(both, second.x, c))
    return terms


def _term(p: _Part, y: Expr | None, c: Context) -> Term:
    """A term of a part; what must not meet the sum of a row without terms is kept in it."""
    rows = tuple(c for c in p.coefficients if c[0] in ROWS)
    numbers = tuple(c for c in p.coefficients if c[0] not in ROWS)
    rows = tuple(dict.fromkeys(rows)) if p.phis or numbers else ()
    term = Term((*numbers, *rows), ONE if p.x is None else p.x, y, p.phis, p.weights)
    w = p.weights
    absent = c.known.absent
    if not (p.phis or _may(term.x, absent)) or (w and w.peak and w.x == term.x and y not in absent):
        return term
    outside = list[tuple[str, Operand]]()
    for how, by in numbers:
        if c.moves(by) or not c.axes(by) or is_finite(by, c.defs, c.known.dims):
            outside.append((how, by))
        else:
            term = replace(term, x=(how, term.x, by))
    return replace(term, coefficients=(*outside, *rows))


def _may(x: Expr, absent: AbstractSet[object]) -> bool:
    """Whether an expression without exponentials may be an absent zero."""
    if isinstance(x, tuple):
        return x[0] == "select" or any(_may(y, absent) for y in x[1:])
    return x in absent


def _parts(v: Operand, c: Context) -> list[_Part]:
    if not c.streamed(v):
        return [_Part(coefficients=(("mul", v), *_hidden(v, c)))]
    if not c.moves(v):
        return [_Part(tuple(_hidden(v, c)), x=v)]
    match c.op(v):
        case Map(fn="mul", args=(a, b)):
            left, right = _parts(a, c), _parts(b, c)
            if len(left) > 1 and len(right) > 1:
                # exact, but Σ x² - (Σ x)² / n loses every digit that matters
                raise NotFactored("a product of two sums that both change as the loop goes on")
            return [_times(p, q) for p in left for q in right]
        case Map(fn="div", args=(a, b)):
            return [_over(p, b, c) for p in _parts(a, c)]
        case Map(fn="add", args=(a, b)):
            return [*_parts(a, c), *_parts(b, c)]
        case Map(fn="sub", args=(a, b)):
            return [*_parts(a, c), *(_negated(p) for p in _parts(b, c))]
        case Map(fn="neg", args=(a,)):
            return [_negated(p) for p in _parts(a, c)]
        case Map(fn="select", args=(cond, a, b)) if not c.moves(cond):
            return [*_masked(cond, a, True, c), *_masked(cond, b, False, c)]
        case Map(fn="exp" | "exp2" as fn, args=(z,)):
            return [_exponential(fn, z, c)]
        case Cast(x=x, to=to) if to[0] in "fb" and to != "bool":
            return [replace(p, x=(CAST + to, p.x or ONE)) for p in _parts(x, c)]
        case op:
            what = getattr(op, "fn", None) or (op.word if op is not None else "it")
            raise NotFactored(f"{what} of a value that changes as the loop goes on")


def _times(p: _Part, q: _Part) -> _Part:
    x = q.x if p.x is None else p.x if q.x is None else ("mul", p.x, q.x)
    phis = (*p.phis, *q.phis)
    return _Part((*p.coefficients, *q.coefficients), x, phis, p.weights or q.weights)


def _over(p: _Part, by: Operand, c: Context) -> _Part:
    if not c.streamed(by):
        return replace(p, coefficients=(*p.coefficients, ("div", by)))
    if c.moves(by):
        raise NotFactored("a divisor that varies along the axis and changes as the loop goes on")
    return replace(p, x=("div", ONE if p.x is None else p.x, by))


def _negated(p: _Part) -> _Part:
    return replace(p, coefficients=(*p.coefficients, ("mul", -1.0)))


def _masked(cond: Operand, arm: Operand, when: bool, c: Context) -> list[_Part]:
    """The terms of an arm, absent where the condition chooses the other."""
    if isinstance(arm, Absent):
        return []

    def mask(x: Expr | None) -> Expr:
        inner = ONE if x is None else x
        return ("select", cond, inner, ABSENT) if when else ("select", cond, ABSENT, inner)

    rows = tuple(_rows(cond, when, c))
    return [replace(p, coefficients=(*p.coefficients, *rows), x=mask(p.x)) for p in _parts(arm, c)]


def _rows(cond: Operand, when: bool, c: Context) -> Iterator[tuple[str, Operand]]:
    """The conditions on rows alone that must hold for a condition to be `when`."""
    if not c.streamed(cond):
        yield ("keep" if when else "drop"), cond
        return
    match c.op(cond):
        case Map(fn="and" | "or" as fn, args=args) if (fn == "and") == when:
            for x in args:
                yield from _rows(x, when, c)
        case Map(fn="not", args=(x,)):
            yield from _rows(x, not when, c)
        case _:
            pass


def _hidden(v: Operand, c: Context) -> Iterator[tuple[str, Operand]]:
    """The conditions on rows alone under which a value is no absent zero."""
    match c.op(v):
        case Map(fn="select", args=(cond, _, b)) if b is ABSENT:
            yield from _rows(cond, True, c)
        case Map(fn="select", args=(cond, a, _)) if a is ABSENT:
            yield from _rows(cond, False, c)
        case Map(fn="mul", args=(a, b)):
            yield from _hidden(a, c)
            yield from _hidden(b, c)
        case Cast(x=x):
            yield from _hidden(x, c)
        case _:
            pass


# ---- exponentials


def _exponential(fn: str, z: Expr, c: Context) -> _Part:
    scale, us, ws = _split(z, c)
    if not us:
        raise NotFactored(f"{fn} of a value without a part that varies along the axis alone")
    u, (negative, w) = _signed(us), _leading(ws)
    positive = scale is None or isinstance(scale, float) and scale > 0
    peaks = _peaks(w, u, c) if negative and positive else set[bool]()
    w = w if _is_clamped(w, c) else ("clamp", w)
    inner: Expr = ("sub" if negative else "add", u, w)
    x = (fn, inner if scale is None else ("mul", inner, scale))
    phi = Phi(fn, w, negative, scale)
    weights = Weights(x, phi, peaks == {True}) if True in peaks else None
    return _Part(x=x, phis=(phi,), weights=weights)


def _peaks(w: Expr, u: Expr, c: Context) -> set[bool]:
    """Whether w is the maximum over u, of each of the values of which it is the greatest."""
    match c.op(w):
        case Reduce(fn="max" | "maxnum", args=(x,), over=over) if x == u and c.over <= set(over):
            return {True}
        case Map(fn="min" | "max", args=(x, float() as limit)) if abs(limit) in LIMITS.values():
            return _peaks(x, u, c)
        case Map(fn="max", args=args):
            return set[bool]().union(*(_peaks(x, u, c) for x in args))
        case Map(fn="select", args=(test, a, b)):  # the greater one, of which `a` may be NaN
            op = c.op(test)
            greater = isinstance(op, Map) and op.fn == "gt" and op.args == (a, b)
            return _peaks(a, u, c) | _peaks(b, u, c) if greater else {False}
        case _:
            return {False}


Signed: TypeAlias = list[tuple[int, Expr]]


def _split(z: Expr, c: Context) -> tuple[Expr | None, Signed, Signed]:
    """z = scale · (Σ ± u + Σ ± w): scale is per row, the u know no state, the w do not vary along the axis."""
    if not c.moves(z):
        return None, [(1, z)], []
    if not c.streamed(z):
        return None, [], [(1, z)]
    match c.op(z):
        case Map(fn="add" | "sub" as fn, args=(a, b)):
            left, right = _scaled(_split(a, c)), _scaled(_split(b, c))
            sign = 1 if fn == "add" else -1
            us = [*left[0], *((sign * s, e) for s, e in right[0])]
            return None, us, [*left[1], *((sign * s, e) for s, e in right[1])]
        case Map(fn="neg", args=(a,)):
            scale, us, ws = _split(a, c)
            return scale, [(-s, e) for s, e in us], [(-s, e) for s, e in ws]
        case Map(fn="mul", args=(a, b)):
            inner, by = (a, b) if not c.streamed(b) else (b, a)
            if c.streamed(by) or c.moves(by):
                raise NotFactored(
                    "an exponent that is a product with a value that changes as the loop goes on"
                )
            scale, us, ws = _split(inner, c)
            return (by if scale is None else ("mul", scale, by)), us, ws
        case Map(fn="div", args=(a, b)) if not c.streamed(b) and not c.moves(b):
            us, ws = _scaled(_split(a, c))
            return None, [(s, ("div", e, b)) for s, e in us], [(s, ("div", e, b)) for s, e in ws]
        case op:
            what = getattr(op, "fn", None) or "it"
            raise NotFactored(
                f"an exponent with {what} of a value that changes as the loop goes on"
            )


def _scaled(parts: tuple[Expr | None, Signed, Signed]) -> tuple[Signed, Signed]:
    scale, us, ws = parts
    if scale is None:
        return us, ws
    return [(s, ("mul", e, scale)) for s, e in us], [(s, ("mul", e, scale)) for s, e in ws]


def _signed(parts: Signed) -> Expr:
    negative, total = _leading(parts)
    return ("neg", total) if negative else total


def _leading(parts: Signed) -> tuple[bool, Expr]:
    """Whether the first part is negative, and the sum with all signs turned if it is."""
    first = parts[0][0]
    total = parts[0][1]
    for sign, e in parts[1:]:
        total = ("add" if sign == first else "sub", total, e)
    return first < 0, total


def _is_clamped(w: Expr, c: Context) -> bool:
    op = c.op(w)
    inner = c.op(op.args[0]) if isinstance(op, Map) and op.fn == "max" else None
    return isinstance(inner, Map) and inner.fn == "min" and isinstance(inner.args[1], float)
