"""Scalar expressions over dimensions and scalar arguments: axis extents, parameter dimensions, defaults,
conditions.

An expression is a literal, a name, or a tuple `(function, operand, ...)` with the function names of
`tilec.functions`: `("sub", ("add", "M", "N"), 1)` is `M + N - 1`. They are evaluated on the host, at the call.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Union

Number = Union[int, float, bool]
Scalar = Union[int, float, bool, str, tuple["Scalar", ...]]


def names(e: Scalar) -> Iterator[str]:
    """The dimension and argument names in an expression, in order, with repetitions."""
    if isinstance(e, str):
        yield e
    elif isinstance(e, tuple):
        for part in e[1:]:
            yield from names(part)


def _floordiv(a: Number, b: Number) -> Number:
    return 0 if b == 0 else a // b


def _mod(a: Number, b: Number) -> Number:
    return 0 if b == 0 else a % b


def _div(a: Number, b: Number) -> Number:
    if b == 0:
        return (
            0.0
            if a == 0
            else math.nan
            if a != a
            else math.copysign(math.inf, a) * math.copysign(1.0, b)
        )
    return a / b


def _total(f: Callable[[float], float]) -> Callable[[Number], Number]:
    def g(x: Number) -> Number:
        try:
            return f(float(x))
        except OverflowError:
            return math.inf
        except ValueError:
            return -math.inf if x == 0 and f in (math.log, math.log2) else math.nan

    return g


def _rsqrt(x: float) -> float:
    return math.inf if x == 0 else 1.0 / math.sqrt(x)


def _pow(a: Number, b: Number) -> Number:
    try:
        return float(a) ** float(b) if a >= 0 or float(b).is_integer() else math.nan
    except ZeroDivisionError:
        return math.inf
    except OverflowError:
        return math.inf


def _sigmoid(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x > -700 else 0.0


def _select(condition: Number, x: Number, y: Number) -> Number:
    return x if condition else y


def _minimum(a: Number, b: Number) -> Number:
    return math.nan if a != a or b != b else min(a, b)


def _maximum(a: Number, b: Number) -> Number:
    return math.nan if a != a or b != b else max(a, b)


_ONE: dict[str, Callable[[Any], Number]] = {
    "neg": lambda a: -a,
    "abs": abs,
    "not": lambda a: not a,
    "invert": lambda a: not a if isinstance(a, bool) else ~a,
    "exp": _total(math.exp),
    "exp2": _total(math.exp2),
    "log": _total(math.log),
    "log2": _total(math.log2),
    "tanh": _total(math.tanh),
    "sigmoid": _total(_sigmoid),
    "sqrt": _total(math.sqrt),
    "rsqrt": _total(_rsqrt),
    "erf": _total(math.erf),
    "sin": _total(math.sin),
    "cos": _total(math.cos),
    "floor": lambda x: float(math.floor(float(x))) if math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(float(x))) if math.isfinite(x) else x,
    "round": lambda x: float(round(float(x))) if math.isfinite(x) else x,
    "relu": lambda x: float(x) if x > 0 or x != x else 0.0,
    "silu": lambda x: x * _sigmoid(x),
    "isfinite": lambda x: math.isfinite(x),
    "f64": float,
    "f32": float,
    "i64": lambda x: math.trunc(x),
    "i32": lambda x: math.trunc(x),
}

_TWO: dict[str, Callable[[Any, Any], Number]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _div,
    "floordiv": _floordiv,
    "mod": _mod,
    "pow": _pow,
    "ipow": lambda a, b: a**b,
    "min": _minimum,
    "max": _maximum,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "bitxor": lambda a, b: a ^ b,
    "shl": lambda a, b: a << b if 0 <= b < 64 else 0,
    "shr": lambda a, b: a >> (b if 0 <= b < 64 else 63),
    "atan2": lambda a, b: math.atan2(a, b),
}

_EVALUATE: dict[str, Callable[..., Number]] = {**_ONE, **_TWO, "select": _select}


def evaluate(e: Scalar, env: Mapping[str, Number]) -> Number:
    """The value of an expression; `env` gives the names. Raises KeyError for a name that is not there."""
    if isinstance(e, str):
        return env[e]
    if isinstance(e, tuple):
        function, *operands = e
        assert isinstance(function, str)
        return _EVALUATE[function](*(evaluate(x, env) for x in operands))
    return e


Compiled = Callable[[Mapping[str, Number]], Number]
"""An expression, as a function of what its names stand for."""


def compiled(e: Scalar) -> Compiled:
    """What `evaluate` does with an expression, in a fraction of the time, for one that is evaluated many times."""
    if isinstance(e, str):
        return operator.itemgetter(e)
    if not isinstance(e, tuple):
        return lambda env: e
    code = _Code()
    last = code.of(e)
    text = "\n ".join(["def f(env):", *code.lines, f"return {last}"])
    exec(text, code.known)
    return code.known["f"]


class _Code:
    """Python's code for expressions, a line for each part: what occurs twice is computed once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.known: dict[str, Any] = {}
        self._names: dict[tuple[object, ...], str] = {}

    def of(self, e: Scalar) -> str:
        """The variable that holds an expression."""
        if isinstance(e, str):
            return self._line(("name", e), f"env[{e!r}]")
        if not isinstance(e, tuple):
            name = f"c{len(self.known)}"
            self.known[name] = e
            return name
        function, *operands = e
        assert isinstance(function, str)
        args = [self.of(x) for x in operands]
        sign = PLAIN.get(function)
        if sign:
            return self._line((function, *args), f" {sign} ".join(args))
        self.known[f"f_{function}"] = _EVALUATE[function]
        return self._line((function, *args), f"f_{function}({', '.join(args)})")

    def _line(self, what: tuple[object, ...], text: str) -> str:
        if what not in self._names:
            self._names[what] = f"v{len(self._names)}"
            self.lines.append(f"{self._names[what]} = {text}")
        return self._names[what]


PLAIN = {"add": "+", "sub": "-", "mul": "*", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
"""Functions of two operands that are Python's."""


def evaluable(function: str) -> bool:
    """Whether a function can be part of a scalar expression."""
    return function in _EVALUATE


INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", 1),
    "and": ("and", 2),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "bitor": ("|", 5),
    "bitxor": ("^", 6),
    "bitand": ("&", 7),
    "shl": ("<<", 8),
    "shr": (">>", 8),
    "add": ("+", 9),
    "sub": ("-", 9),
    "mul": ("*", 10),
    "div": ("/", 10),
    "floordiv": ("//", 10),
    "mod": ("%", 10),
}
"""The sign and the binding strength of each binary function that is written between its operands."""


def show(e: Scalar, level: int = 0) -> str:
    """The expression as the language writes it; in parentheses where it binds less than `level`."""
    if isinstance(e, bool):
        return "true" if e else "false"
    if isinstance(e, str):
        return e
    if not isinstance(e, tuple):
        text = repr(e)
        return f"({text})" if text.startswith("-") and level > 11 else text
    function, *operands = e
    assert isinstance(function, str)
    if function in INFIX:
        sign, own = INFIX[function]
        # A comparison is not chained: its left operand is bracketed too.
        text = f"{show(operands[0], own + (own == 4))} {sign} {show(operands[1], own + 1)}"
        return f"({text})" if own < level else text
    if function == "not":
        text = f"not {show(operands[0], 3)}"
        return f"({text})" if level > 3 else text
    if function == "select":
        text = f"{show(operands[1], 1)} if {show(operands[0], 1)} else {show(operands[2], 0)}"
        return f"({text})" if level > 0 else text
    if function in ("neg", "invert"):
        inner = show(operands[0], 11)
        if function == "neg" and isinstance(operands[0], (int, float)):
            inner = f"({inner})"  # -(2) is a negation, -2 a literal
        return f"({_SIGNS[function]}{inner})" if level > 11 else _SIGNS[function] + inner
    # x ** 2 is ipow where the exponent is a literal >= 0, and pow everywhere else.
    if function in ("pow", "ipow") and (function == "ipow") == is_natural(operands[1]):
        text = f"{show(operands[0], 13)} ** {show(operands[1], 11)}"
        return f"({text})" if level > 12 else text
    return f"{function}({', '.join(show(x) for x in operands)})"


_SIGNS = {"neg": "-", "invert": "~"}


def assigned(values: Mapping[str, Number]) -> str:
    """`N=1048576, scale=0.0883883`: integers whole, however long, and floats short."""
    return ", ".join(
        f"{name}={f'{x:g}' if isinstance(x, float) else show(x)}" for name, x in values.items()
    )


def is_natural(e: Scalar) -> bool:
    """Whether an expression is an integer literal >= 0."""
    return isinstance(e, int) and not isinstance(e, bool) and e >= 0
