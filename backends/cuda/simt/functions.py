"""The pointwise functions of the IR as C expressions, with the language's rules for -inf, 0 / 0 and absent zeros."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tilec.backends.cuda.simt.arguments import storage
from tilec.dtypes import DType
from tilec.dtypes import kind as kind_of_dtype
from tilec.functions import VANISHING, ZERO_AT_ZERO
from tilec.ir import Absent, Map

Kind = Literal["real", "i64", "bool"]


@dataclass(frozen=True)
class Val:
    """A C expression, the kind of its value, and whether it may be an absent zero."""

    text: str
    kind: str
    marked: bool = False


COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
BITS = {"bitand": "&", "bitor": "|", "bitxor": "^"}
POSITIVE = frozenset({"exp", "exp2", "sigmoid", "relu"})
"""Functions that never give a negative zero."""
BLIND = frozenset(
    {"add", "sub", "mul", "min", "max", *COMPARE, "isfinite", "exp", "exp2", "select"}
)
"""Functions that take a negative zero for a zero."""


def kind_for(dtype: DType) -> Kind:
    """The kind in which values of an element type are computed."""
    match kind_of_dtype(dtype):
        case "float":
            return "real"
        case "int":
            return "i64"
        case "bool":
            return "bool"


def literal(x: int | float | bool | Absent, real: str) -> Val:
    """A literal, typed by its Python type."""
    if isinstance(x, Absent):
        return Val(f"tl::absent<{real}>()", "real", True)
    if isinstance(x, bool):
        return Val("true" if x else "false", "bool")
    if isinstance(x, int):
        return Val("(-9223372036854775807LL - 1)" if x == -(1 << 63) else _integer(x), "i64")
    return Val(_float(x, real), "real")


def _integer(x: int) -> str:
    return f"i64({x}LL)" if abs(x) >= 1 << 31 else f"i64({x})"


def _float(x: float, real: str) -> str:
    if math.isnan(x):
        return f"tl::nan({real}(0))"
    if math.isinf(x):
        return f"({'-' if x < 0 else ''}tl::infinity({real}(0)))"
    text = f"{x!r}f" if real == "float" else repr(x)
    return f"({text})" if text.startswith("-") else text


def convert(x: Val, kind: str, real: str) -> str:
    """The value in another kind."""
    if x.kind == kind:
        return x.text
    if kind == "real":
        return f"({real})({x.text})"
    if kind == "bool":
        return f"({x.text} != 0)"
    return f"tl::truncate({x.text})" if x.kind == "real" else f"i64({x.text})"


def apply(op: Map, args: Sequence[Val], real: str, marked: bool, plain: bool) -> Val:
    """A function of the IR. `marked`: absent zeros of the result are told from others; `plain`: sums go by IEEE."""
    fn, kind = op.fn, kind_for(op.result.type.dtype)
    if not marked and fn not in BLIND:
        args = [
            Val(f"tl::ordinary({x.text})", x.kind) if x.marked and x.kind == "real" else x
            for x in args
        ]
    if fn in COMPARE:
        common = "real" if any(x.kind == "real" for x in args) else "i64"
        a, b = (convert(x, common, real) for x in args)
        return Val(f"({a} {COMPARE[fn]} {b})", "bool")
    if fn in ("and", "or"):
        a, b = (convert(x, "bool", real) for x in args)
        return Val(f"({a} {'&&' if fn == 'and' else '||'} {b})", "bool")
    if fn == "not":
        return Val(f"!{convert(args[0], 'bool', real)}", "bool")
    if fn == "isfinite":
        return Val(f"tl::isfinite({convert(args[0], 'real', real)})", "bool")
    if fn == "select":
        return _select(args, kind, real, marked)
    if fn == "uniform":
        return Val(
            f"({real})tl::uniform({', '.join(convert(x, 'i64', real) for x in args)})", "real"
        )
    xs = [convert(x, kind, real) for x in args]
    if fn in BITS:
        text = f"({xs[0]} {BITS[fn]} {xs[1]})"
        return Val(f"bool{text}" if kind == "bool" else text, kind)
    if fn == "invert":
        return Val(f"!{xs[0]}" if kind == "bool" else f"~{xs[0]}", kind)
    if fn == "ipow":
        return Val(f"tl::ipow({xs[0]}, {op.args[1]})", kind)
    if kind != "real":
        return Val(_integers(fn, xs), kind)
    if not marked:
        return Val(_reals(fn, xs, op, plain), "real")
    return Val(_marked(fn, xs, args, op, real, plain), "real", True)


def _integers(fn: str, xs: Sequence[str]) -> str:
    signs = {"add": "+", "sub": "-", "mul": "*"}
    if fn in signs:
        return f"({xs[0]} {signs[fn]} {xs[1]})"
    return f"(-{xs[0]})" if fn == "neg" else f"tl::{fn}({', '.join(xs)})"


def _reals(fn: str, xs: Sequence[str], op: Map, plain: bool) -> str:
    if fn in ("add", "sub") and plain:
        return f"({xs[0]} {'+' if fn == 'add' else '-'} {xs[1]})"
    if fn == "mul":
        return f"({xs[0]} * {xs[1]})"
    if fn == "neg":
        return f"(-{xs[0]})"
    if fn == "pow" and op.args[1] in (2, 2.0):
        return f"({xs[0]} * {xs[0]})"
    if fn == "div" and isinstance(op.args[1], (int, float)) and op.args[1]:
        return f"({xs[0]} / {xs[1]})"
    return f"tl::{fn}({', '.join(xs)})"


def _marked(
    fn: str, xs: Sequence[str], args: Sequence[Val], op: Map, real: str, plain: bool
) -> str:
    absent, out = f"tl::absent<{real}>()", _reals(fn, xs, op, plain)
    if fn in VANISHING:
        gone = f"{xs[0]} == -tl::infinity({real}(0))"
        if args[0].marked and fn in ZERO_AT_ZERO:
            gone += f" || tl::gone({xs[0]})"
        return f"({gone} ? {absent} : {out if fn in POSITIVE else f'tl::ordinary({out})'})"
    if fn == "add" and all(x.marked for x in args):
        return out  # -0 only where both are
    where = [f"tl::gone({x})" for x, a in zip(xs, args, strict=True) if a.marked]
    if fn == "div" or fn in ZERO_AT_ZERO:
        where = where[:1] if args[0].marked else []
    elif fn in ("add", "sub"):
        where = [" && ".join(where)] if len(where) == len(xs) else []
    text = f"tl::ordinary({out})"
    return f"({' || '.join(where)} ? {absent} : {text})" if where else text


def decayed(op: Map, args: Sequence[Val], real: str, low: Val | None) -> Val:
    """An exponential that is absent where its argument is -inf and so is `low`, which it comes from."""
    x = convert(args[0], "real", real)
    out = f"tl::{op.fn}({x})"
    if low is None:
        return Val(out, "real", True)
    infinite = f"-tl::infinity({real}(0))"
    gone = f"{x} == {infinite} && {convert(low, 'real', real)} == {infinite}"
    return Val(f"({gone} ? tl::absent<{real}>() : {out})", "real", True)


def _select(args: Sequence[Val], kind: Kind, real: str, marked: bool) -> Val:
    condition = convert(args[0], "bool", real)
    arms = [convert(x, kind, real) for x in args[1:]]
    if marked:
        arms = [
            x if a.marked else f"tl::ordinary({x})" for x, a in zip(arms, args[1:], strict=True)
        ]
    return Val(f"({condition} ? {arms[0]} : {arms[1]})", kind, marked)


def cast(x: Val, to: DType, real: str, marked: bool) -> Val:
    """A conversion that the program asks for."""
    kind = kind_for(to)
    text = convert(x, kind, real)
    if kind != "real" or to == "f64" or (to == "f32" and real == "float"):
        return Val(text, kind, marked and kind == "real")
    out = f"({real})(float)({text})" if to == "f32" else f"tl::rounded<{storage(to)}>({text})"
    if not marked:
        return Val(out, kind)
    return Val(f"(tl::gone({text}) ? {text} : tl::ordinary({out}))", kind, True)
