"""simplify: constant folding, identities, common subexpressions, dead code.

Requires: any IR. Changes: fewer ops, the same values.

    t: f32 = sqrt(64); u: f32[i] = mul(x, 1.0); c: bool[j] = ge(j, 0)
    ->
    8.0 for t, x for u, true for c
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import replace
from typing import cast

from tilec import scalar
from tilec.dataflow import live
from tilec.functions import VANISHING
from tilec.ir import (
    Absent,
    Body,
    Cast,
    Contract,
    Edge,
    For,
    Grid,
    Group,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    defined,
    operands,
    rebuild,
)
from tilec.rewrite import Rewrite
from tilec.scalar import Scalar


def simplify(kernel: Kernel) -> Kernel:
    """Folded, shared and pruned."""
    b = Rewrite(kernel)
    body = _body(b, kernel.body, {})
    return replace(kernel, body=live(body))


# ---- folding and sharing, region by region


def _body(b: Rewrite, body: Body, seen: dict[Hashable, str]) -> Body:
    outer, b.ops = b.ops, []
    for op in body:
        match op:
            case For() | If() | Grid() | Group():
                for v in defined(op):
                    b.define(v)
                b.add(rebuild(op, b.of, lambda inner: _body(b, inner, dict(seen))))
            case Load() | Map() | Cast() | Reduce() | Contract() | Edge():
                _pure(b, op, seen)
            case _:
                b.keep(op)
    ops, b.ops = tuple(b.ops), outer
    return ops


def _pure(b: Rewrite, op: Op, seen: dict[Hashable, str]) -> None:
    op = rebuild(op, b.of)
    by = _identity(b, op) if isinstance(op, Map) else None
    if by is not None and b.type_of(by).resembles(op.result.type):
        b.replace(op, by)
        return
    key = _key(op)
    if key in seen:
        b.replace(op, seen[key])
        return
    seen[key] = b.add(op)


def _key(op: Op) -> Hashable:
    plain = replace(op, results=(), span=None)
    if isinstance(plain, Load):
        plain = replace(plain, guarded=False)
    # 1, 1.0 and true are equal, but not the same
    kinds = tuple(type(x).__name__ for x in operands(plain))
    return type(op).__name__, plain, kinds, op.result.type


def _is(x: Operand, value: float) -> bool:
    return not isinstance(x, (str, bool, Absent)) and x == value


def _literal(x: Operand) -> bool:
    return not isinstance(x, (str, Absent))


def _identity(b: Rewrite, op: Map) -> Operand | None:
    """A simpler operand that is the op's value, or None."""
    if not op.result.type.axes and all(_literal(x) for x in op.args):
        return _folded(op)
    match op.fn, op.args:
        case ("add", (x, y)) if _is(y, 0):
            return x
        case ("add", (y, x)) if _is(y, 0):
            return x
        case ("sub", (x, y)) if _is(y, 0):
            return x
        case (("mul" | "div" | "floordiv"), (x, y)) if _is(y, 1):
            return x
        case ("mul", (y, x)) if _is(y, 1):
            return x
        case ("mod", (_, y)) if _is(y, 1):
            return 0
        case ("div", (x, float() | int() as y)) if _is_power_of_two(y):
            return b.map("mul", x, 1.0 / y)
        case ("select", (c, x, y)) if c is True or c is False:
            return x if c else y
        case ("select", (_, x, y)) if x == y and type(x) is type(y):
            return x
        case ("and" | "or", (x, y)) if x == y and type(x) is type(y):
            return x
        case ("and", (x, y)) if x is True or y is True:
            return y if x is True else x
        case ("or", (x, y)) if x is False or y is False:
            return y if x is False else x
        case ("and", (x, y)) if x is False or y is False:
            return False
        case ("or", (x, y)) if x is True or y is True:
            return True
        case ("not", (str() as x,)) if isinstance(inner := b.made_by(x), Map) and inner.fn == "not":
            return inner.args[0]
        case ("ge", (str() as x, y)) if x in b.kernel.extents and _is(y, 0):
            return True
        case _:
            return None


_BEYOND_IEEE = VANISHING | {"add", "sub"}
"""Functions that make of -inf what no literal says (an absent zero), or what IEEE's arithmetic does not."""


def _is_power_of_two(y: float) -> bool:
    return not isinstance(y, bool) and math.isfinite(y) and y != 0 and abs(math.frexp(y)[0]) == 0.5


def _folded(op: Map) -> Operand | None:
    if not scalar.evaluable(op.fn) or op.fn in _BEYOND_IEEE and -math.inf in op.args:
        return None
    try:
        x = scalar.evaluate((op.fn, *cast("tuple[Scalar, ...]", op.args)), {})
    except (TypeError, ValueError, OverflowError):  # a TypeError: what is absent is no number
        return None
    match op.result.type.dtype:
        case "bool":
            return bool(x)
        case "i64":
            return int(x) if isinstance(x, int) and -(2**63) <= x < 2**63 else None
        case _:
            return math.nan if x != x else float(x)
