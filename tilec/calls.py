"""Calls: functions of the program are expanded, built-in ones become ops."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, cast

from tilec import syntax, unknown
from tilec.dtypes import SIZES as DTYPES
from tilec.dtypes import DType, kind
from tilec.errors import Span
from tilec.scope import BUILT_IN, FAILED, Frame, KindOf, Term
from tilec.syntax import Expr
from tilec.wording import count

if TYPE_CHECKING:
    from tilec.elaborate import Elaborator


REPEATED = 4
"""Up to this power, a float is multiplied by itself: no less accurate than a logarithm and an exponential, and fast."""


def power(el: Elaborator, span: Span, x: Term, y: Term, exponent: Expr) -> Term:
    """`x ** y`: an integer where both are and the exponent is a literal of 0 or more, else a float."""
    n = y.operand
    if not isinstance(n, int) or isinstance(n, bool) or n < 0 or y.failed:
        return el.emit(span, "pow", "float", x, y)
    if x.kind == "any":
        return el.emit(span, "ipow", "any", x, y)
    if x.kind not in ("int", "bool"):
        return el.emit(span, "ipow" if n <= REPEATED else "pow", "float", x, y)
    if n >= 64:
        message = f"an integer to the power of {n} does not fit in 64 bits"
        el.report(exponent.span, message, "make the base a float: f32(…), or with a decimal point")
        return FAILED
    return el.emit(span, "ipow", "int", x, y)


def call(el: Elaborator, e: syntax.Call, frame: Frame) -> Term:
    """A call: the expression of a function of the program, or an op for a built-in one."""
    name = e.fn.name
    node = el.names.function(name, frame.top)
    if node is not None:
        return _expand(el, e, node, frame)
    if name not in BUILT_IN:
        unknown.no_function(el, e, frame)
    args = [el.term(a, frame) for a in e.args]
    if name not in BUILT_IN:
        return FAILED
    least, most = _arity(name)
    if not least <= len(args) <= most:
        _wrong_count(el, e, least, most)
        return FAILED
    return _built_in(el, e, name, args)


def _expand(el: Elaborator, e: syntax.Call, node: syntax.Def, frame: Frame) -> Term:
    name = node.name.name
    top = el.names.functions.get(name) is node
    el.called.add(name)
    el.names.incomplete |= isinstance(node.body, syntax.Broken)
    exposed = el.names.always[name]
    args: list[Term] = []
    for k, a in enumerate(e.args):
        param = node.params[k].name if k < len(node.params) else None
        with el.guard(param is not None and param not in exposed):
            args.append(el.term(a, frame))
    if isinstance(node.body, syntax.Broken):
        return FAILED
    if len(args) != len(node.params):
        hint = f"it is defined as {name}({', '.join(p.name for p in node.params)}) in line {node.span.line}"
        takes = f"'{name}' takes {count(len(node.params), 'argument')}, not {len(args)}"
        el.report(e.span, takes, hint)
        return FAILED
    params = {p.name: a for p, a in zip(node.params, args, strict=True)}
    el.count(e.span)
    return el.term(node.body, Frame(params, top, name, frame.axes))


def _built_in(el: Elaborator, e: syntax.Call, name: str, args: list[Term]) -> Term:
    span = e.span
    kinds: list[KindOf] = [a.kind for a in args]
    if name in DTYPES:
        return _convert(el, span, args[0], name)
    if name in ("min", "max"):
        out = args[0]
        for a in args[1:]:
            out = el.emit(span, name, el.number([out.kind, a.kind]), out, a)
        return out
    if name == "clamp":
        low = el.emit(span, "max", el.number(kinds[:2]), args[0], args[1])
        return el.emit(span, "min", el.number(kinds), low, args[2])
    if name == "pow":
        return power(el, span, args[0], args[1], e.args[1])
    if name == "uniform":
        whole = [el.whole(a, x, "'uniform'") for a, x in zip(args, e.args, strict=True)]
        return el.emit(span, name, "float", *whole)
    if kinds == ["int"] and name in ("floor", "ceil"):
        return args[0]
    if kinds == ["int"] and name == "relu":
        return el.emit(span, "max", "int", args[0], Term(0, kind="int", scalar=0))
    result: KindOf = (
        "bool" if name == "isfinite" else el.number(kinds) if name == "abs" else "float"
    )
    return el.emit(span, name, result, *args)


def _convert(el: Elaborator, span: Span, x: Term, to: str) -> Term:
    if x.failed:
        return FAILED
    if to == "bool":
        return x if x.kind == "bool" else el.truth(span, x)
    el.count(span)
    el.builder.span = span
    operand = el.builder.cast(x.operand, cast(DType, to), name=el.new_name("t"))
    whole = kind(cast(DType, to)) == "int"
    out = el.made(operand, "int" if whole else "float", [x], "i64" if whole else "f64")
    return replace(out, bare=None)


def _wrong_count(el: Elaborator, e: syntax.Call, least: int, most: int) -> None:
    name, given = e.fn.name, len(e.args)
    if name in ("min", "max") and given == 1:
        hint = f"write {name}[j](…) for the {name}imum over an axis"
        el.report(e.span, f"'{name}' of numbers takes two or more", hint)
        return
    takes = count(least, "argument") if least == most else f"{least} to {count(most, 'argument')}"
    takes = f"{least} or more arguments" if most > 9 else takes
    hint = {
        "clamp": "write clamp(x, lo, hi)",
        "uniform": "write uniform(seed, b, h, i, j)",
        "pow": "write pow(x, y)",
        "atan2": "write atan2(y, x)",
    }.get(name, f"write {name}(x)")
    el.report(e.span, f"'{name}' takes {takes}, not {given}", hint)


def _arity(name: str) -> tuple[int, int]:
    if name in ("min", "max"):
        return 2, 99
    if name == "uniform":
        return 1, 5
    if name == "clamp":
        return 3, 3
    return (2, 2) if name in ("pow", "atan2") else (1, 1)
