"""Reductions to ops, also over axes that the operand does not vary over.

`sum[j](x)` of an x without j is N·x. No op of the IR introduces an axis, and none needs to: such a reduction is written
without it, from the axis's length n:

    sum   n·x (0 where n = 0)      mean  x (NaN where n = 0)     any  x and n > 0     all  x or n = 0
    max   x (-inf where n = 0)     min   x (inf where n = 0)     logsumexp  x + log n
    softmax  the softmax of x + log n over the other axes, divided by n
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.errors import Span
from tilec.lowering import lower_scalar
from tilec.scope import KindOf, Term

if TYPE_CHECKING:
    from tilec.elaborate import Elaborator

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1


def reduce(
    e: Elaborator, span: Span, fn: str, x: Term, logits: list[Term], axes: tuple[str, ...]
) -> Term:
    """The reduction `fn` of x over `axes`, with further logits."""
    if fn in ("any", "all"):
        x = e.truth(span, x)
    over = tuple(a for a in axes if a in x.axes)
    if len(over) < len(axes):
        n = _length(e, span, [a for a in axes if a not in x.axes])
        return _without(e, span, fn, x, logits, over, n)
    return _reduce(e, span, fn, x, logits, over)


def _reduce(
    e: Elaborator, span: Span, fn: str, x: Term, logits: list[Term], over: tuple[str, ...]
) -> Term:
    if not over:
        return x
    e.builder.span = span
    more = (a.operand for a in logits)
    operand = e.builder.reduce(fn, x.operand, *more, over=over, name=e.new_name("t"))
    kind = _kind(fn, x)
    left = x.open if kind == "any" else frozenset[str]()
    return Term(operand, e.builder.types[operand].axes, kind, open=left)


def _kind(fn: str, x: Term) -> KindOf:
    if fn in ("any", "all"):
        return "bool"
    if fn in ("sum", "max", "min"):
        return "int" if x.kind == "bool" else x.kind
    return "float"


def _length(e: Elaborator, span: Span, axes: list[str]) -> Term:
    """How many positions some axes have together."""
    out = Term(1, kind="int")
    for k, a in enumerate(axes):
        e.builder.span = span
        extent = Term(lower_scalar(e.builder, e.names.axes[a].extent), kind="int")
        out = extent if k == 0 else e.emit(span, "mul", "int", out, extent)
    return out


def _without(
    e: Elaborator, span: Span, fn: str, x: Term, logits: list[Term], over: tuple[str, ...], n: Term
) -> Term:
    """The reduction over `over`, and over further axes of n positions in all that x does not have."""
    some = e.emit(span, "gt", "bool", n, Term(0, kind="int"))
    if fn == "sum":
        total = e.emit(span, "mul", _kind(fn, x), _reduce(e, span, fn, x, logits, over), n)
        return _where(e, span, some, total, 0.0 if x.kind == "float" else 0)
    if fn in ("max", "min"):
        whole = (_LOWEST, _HIGHEST) if x.kind == "int" else (-math.inf, math.inf)
        return _where(e, span, some, _number(e, span, fn, x, over), whole[fn == "min"])
    if fn == "mean":
        mean = (
            _reduce(e, span, fn, x, logits, over)
            if over
            else e.emit(span, "mul", "float", x, Term(1.0))
        )
        return _where(e, span, some, mean, math.nan)
    if fn == "any":
        return e.emit(span, "and", "bool", _reduce(e, span, fn, x, logits, over), some)
    if fn == "all":
        none = e.emit(span, "not", "bool", some)
        return e.emit(span, "or", "bool", _reduce(e, span, fn, x, logits, over), none)
    more = e.emit(span, "add", "float", x, e.emit(span, "log", "float", n))
    if fn == "logsumexp":
        return _reduce(e, span, fn, more, logits, over) if over else _log_add(e, span, more, logits)
    if over:
        weights = _reduce(e, span, fn, more, logits, over)
    else:
        total = _log_add(e, span, more, logits)
        weights = e.emit(span, "exp", "float", e.emit(span, "sub", "float", more, total))
    return e.emit(span, "div", "float", weights, n)


def _number(e: Elaborator, span: Span, fn: str, x: Term, over: tuple[str, ...]) -> Term:
    """A max or a min over `over`; of a boolean it is an integer."""
    if over or x.kind != "bool":
        return _reduce(e, span, fn, x, [], over)
    return e.emit(span, "add", "int", x, Term(0, kind="int"))


def _where(e: Elaborator, span: Span, some: Term, x: Term, empty: int | float) -> Term:
    kind: KindOf = "float" if isinstance(empty, float) else x.kind
    return e.emit(span, "select", kind, some, x, Term(empty, kind=kind))


def _log_add(e: Elaborator, span: Span, x: Term, logits: list[Term]) -> Term:
    """The log-sum-exp of single numbers."""
    if not logits:
        return x
    top = x
    for a in logits:
        top = e.emit(span, "max", "float", top, a)
    # beside an infinity all that counts is that it is there
    top = _where(e, span, e.emit(span, "isfinite", "bool", top), top, 0.0)
    total: Term | None = None
    for a in (x, *logits):
        weight = e.emit(span, "exp", "float", e.emit(span, "sub", "float", a, top))
        total = weight if total is None else e.emit(span, "add", "float", total, weight)
    assert total is not None
    return e.emit(span, "add", "float", top, e.emit(span, "log", "float", total))
