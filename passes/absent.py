"""Integers that may be absent zeros, as floats: `(1 if j <= i else 0) * v` has no term where j > i, whatever v holds."""

from __future__ import annotations

from tilec.dtypes import kind
from tilec.folding import fold
from tilec.ir import ABSENT, Cast, Map, Operand
from tilec.rewrite import Rewrite


def real(b: Rewrite, x: Operand) -> Operand:
    """An operand of a function of floats: a float itself where it is an integer that may be absent."""
    op, gone = b.made_by(x), _gone(b, x)
    if gone is False or x == ABSENT:
        return x
    if isinstance(op, Map) and op.fn == "select":
        condition, *arms = op.args
        return b.map("select", condition, *(_arm(b, a) for a in arms))
    return b.map("select", gone, ABSENT, b.cast(x, b.kernel.compute))


def _arm(b: Rewrite, x: Operand) -> Operand:
    x = real(b, x)
    if x is ABSENT:
        return x
    if isinstance(x, int):
        return float(x)
    return b.cast(x, b.kernel.compute) if kind(b.type_of(x).dtype) != "float" else x


def _gone(b: Rewrite, x: Operand) -> Operand:
    """The condition under which an integer is an absent zero. False: never."""
    if x == ABSENT:
        return True
    op = b.made_by(x)
    if op is None or kind(op.result.type.dtype) != "int":
        return False
    match op:
        case Cast():
            return _gone(b, op.x)
        case Map(fn="select", args=(condition, x, y)):
            here, there = _gone(b, x), _gone(b, y)
            if there is not False:
                there = _fn(b, "and", _fn(b, "not", condition), there)
            return _fn(b, "or", _fn(b, "and", condition, here), there)
        case Map(fn="mul", args=(x, y)):
            return _fn(b, "or", _gone(b, x), _gone(b, y))
        case Map(fn="add" | "sub", args=(x, y)):
            return _fn(b, "and", _gone(b, x), _gone(b, y))
        case Map(fn="neg" | "abs", args=(x,)):
            return _gone(b, x)
        case _:
            return False


def _fn(b: Rewrite, fn: str, *args: Operand) -> Operand:
    folded = fold(fn, args)
    return b.map(fn, *args) if folded is None else folded
