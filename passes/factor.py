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
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union, cast

from tilec.dtypes import DType
from tilec.ir import ABSENT, Absent, Cast, Contract, Map, Op, Operand, Reduce, Type

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
class Term:
    """Coefficients to be applied after the loop (`mul` or `div`), the operand or operands summed, and the factors."""

    coefficients: tuple[tuple[str, Expr], ...]
    x: Expr
    y: Expr | None
    phis: tuple[Phi, ...]


@dataclass(frozen=True, slots=True)
class Context:
    """The definitions and types of the body, the streamed axes, and the values that depend on a state."""

    defs: Mapping[str, Op]
    types: Mapping[str, Type]
    over: frozenset[str]
    moving: set[str]

    def streamed(self, x: Expr) -> bool:
        """Whether an operand varies along the streamed axes."""
        if not isinstance(x, str):
            return False
        return x in self.over or (x in self.types and bool(self.over & set(self.types[x].axes)))

    def moves(self, x: Expr) -> bool:
        """Whether an operand depends on a state."""
        return isinstance(x, str) and x in self.moving

    def op(self, x: Expr) -> Op | None:
        """The op that gives an operand."""
        return self.defs.get(x) if isinstance(x, str) else None


ONE: Expr = 1.0


@dataclass(frozen=True, slots=True)
class _Part:
    """A term in the making; `x` is None where nothing of it varies along the axis yet."""

    coefficients: tuple[tuple[str, Expr], ...] = ()
    x: Expr | None = None
    phis: tuple[Phi, ...] = ()


def factor(op: Reduce | Contract, c: Context) -> list[Term]:
    """The terms of a sum or a contraction. Raises NotFactored."""
    if isinstance(op, Reduce):
        return [
            Term(p.coefficients, ONE if p.x is None else p.x, None, p.phis)
            for p in _parts(op.args[0], c)
        ]
    terms: list[Term] = []
    for a in _parts(op.x, c):
        for b in _parts(op.y, c):
            both = (*a.coefficients, *b.coefficients)
            phis = (*a.phis, *b.phis)
            x, y = (a.x, b.x) if a.x is not None else (b.x, None)
            terms.append(Term(both, ONE if x is None else x, y, phis))
    return terms


def _parts(v: Expr, c: Context) -> list[_Part]:
    if not c.streamed(v):
        return [_Part(coefficients=(("mul", v),))]
    if not c.moves(v):
        return [_Part(x=v)]
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
            return [_Part(p.coefficients, (CAST + to, p.x or ONE), p.phis) for p in _parts(x, c)]
        case op:
            what = getattr(op, "fn", None) or (op.word if op is not None else "it")
            raise NotFactored(f"{what} of a value that changes as the loop goes on")


def _times(p: _Part, q: _Part) -> _Part:
    x = q.x if p.x is None else p.x if q.x is None else ("mul", p.x, q.x)
    return _Part((*p.coefficients, *q.coefficients), x, (*p.phis, *q.phis))


def _over(p: _Part, by: Expr, c: Context) -> _Part:
    if not c.streamed(by):
        return _Part((*p.coefficients, ("div", by)), p.x, p.phis)
    if c.moves(by):
        raise NotFactored("a divisor that varies along the axis and changes as the loop goes on")
    return _Part(p.coefficients, ("div", ONE if p.x is None else p.x, by), p.phis)


def _negated(p: _Part) -> _Part:
    return _Part((*p.coefficients, ("mul", -1.0)), p.x, p.phis)


def _masked(cond: Expr, arm: Expr, when: bool, c: Context) -> list[_Part]:
    """The terms of an arm, absent where the condition chooses the other."""
    if isinstance(arm, Absent):
        return []

    def mask(x: Expr | None) -> Expr:
        inner = ONE if x is None else x
        return ("select", cond, inner, ABSENT) if when else ("select", cond, ABSENT, inner)

    return [_Part(p.coefficients, mask(p.x), p.phis) for p in _parts(arm, c)]


# ---- exponentials


def _exponential(fn: str, z: Expr, c: Context) -> _Part:
    scale, us, ws = _split(z, c)
    if not us:
        raise NotFactored(f"{fn} of a value without a part that varies along the axis alone")
    u, (negative, w) = _signed(us), _leading(ws)
    w = w if _is_clamped(w, c) else ("clamp", w)
    inner: Expr = ("sub" if negative else "add", u, w)
    return _Part(
        x=(fn, inner if scale is None else ("mul", inner, scale)),
        phis=(Phi(fn, w, negative, scale),),
    )


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
