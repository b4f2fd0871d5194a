"""Expressions of CUDA C++ for pointwise functions: of scalars, of a thread's two rows, of its elements of a fragment.

Integers mean 64 bits; where they are known to fit, they are computed in 32. The position along the streamed axis is kept
apart: an integer may be `text + step · column`, where `column` is known when the loop over a fragment is unrolled, so that
comparisons and conversions cost one instruction per element.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.span import Span
from tilec.dtypes import DType, kind
from tilec.ir import Absent

Kind = Literal["float", "int", "bool"]

POSITION = 28
"""Positions and lengths are below 2 ** 28: calls with longer axes are refused."""

COLUMN = "column"
"""The name of an element's column in its fragment, in generated code."""


@dataclass(frozen=True)
class Line:
    """column · slope + rest, and a product more. What does not change along a row gathers in `rest`."""

    column: str
    slope: str
    rest: str
    product: tuple[str, str] | None = None

    def value(self) -> Expression:
        """The sum, in one instruction per product."""
        if self.slope == "1.f":
            text = f"({self.column} + {self.rest})"
        else:
            text = f"fmaf({self.column}, {self.slope}, {self.rest})"
        if self.product is not None:
            text = f"fmaf({self.product[0]}, {self.product[1]}, {text})"
        return Expression(text, "float", line=self)

    def plus(self, fn: str, other: Expression) -> Expression:
        """The line ± another float."""
        if self.product is None and other.product is not None:
            return replace(self, product=_signed(fn, other.product)).value()
        sign = "+" if fn == "add" else "-"
        return replace(self, rest=f"({self.rest} {sign} {_bracket(other.text)})").value()

    def negative(self) -> Line:
        """The line with the other sign."""
        product = None if self.product is None else _signed("sub", self.product)
        return Line(f"(-{self.column})", self.slope, f"(-{self.rest})", product)


def _signed(fn: str, product: tuple[str, str]) -> tuple[str, str]:
    return product if fn == "add" else (f"-{_bracket(product[0])}", product[1])


@dataclass(frozen=True)
class Expression:
    """A value in CUDA C++. `bits`: an integer is below 2 ** bits in size. `step`: see above.

    `product`: the factors of a product of floats, which goes into one instruction with an addition that follows. `line`: the
    float as a straight line along a row, plus such a product. `span`: the bool as a stretch of columns.
    """

    text: str
    kind: Kind
    bits: int = 64
    step: int = 0
    product: tuple[str, str] | None = None
    line: Line | None = None
    span: Span | None = None

    @property
    def ctype(self) -> str:
        """Its C type."""
        if self.kind == "int":
            return "int" if self.bits <= 31 else "i64"
        return self.kind

    def whole(self) -> Expression:
        """The same without a step."""
        if not self.step:
            return self
        return replace(self, text=f"({self.text} + {_times(self.step)})", step=0)

    def real(self) -> Expression:
        """The value as a float."""
        if self.kind == "float":
            return self
        if self.step:
            # exact where it matters: a column is small beside a base that is rounded
            base, more = f"(float)({self.text})", f"(float)({_times(self.step)})"
            return Line(more, "1.f", base).value()
        return Expression(f"(float)({self.text})", "float")


def _times(step: int) -> str:
    return COLUMN if step == 1 else f"-{COLUMN}" if step == -1 else f"{step} * {COLUMN}"


def literal(x: int | float | bool | Absent) -> Expression:
    """A literal of the IR."""
    if isinstance(x, Absent):
        return Expression("0", "int", 1)
    if isinstance(x, bool):
        return Expression("true" if x else "false", "bool")
    if isinstance(x, int):
        bits = max(1, x.bit_length() + (x < 0))
        return Expression(
            f"{x}" if bits <= 31 else f"{x}LL" if bits < 64 else f"((i64){x}LL)", "int", bits
        )
    if math.isnan(x):
        return Expression("QUIET_NAN", "float")
    if math.isinf(x):
        return Expression("POS_INF" if x > 0 else "NEG_INF", "float")
    return Expression(f"{_float(x)}f", "float")


def _float(x: float) -> str:
    try:
        (single,) = struct.unpack("f", struct.pack("f", x))
    except OverflowError:
        return "1e39" if x > 0 else "-1e39"
    texts = (f"{single:.{digits}g}" for digits in range(1, 10))
    text = next(t for t in texts if struct.unpack("f", struct.pack("f", float(t)))[0] == single)
    return text if any(c in text for c in ".e") else text + ".0"


COMPARE = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}
FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def pointwise(
    fn: str,
    args: list[Expression],
    result: DType,
    inverse: Callable[[Expression], str] | None = None,
) -> Expression:
    """The value of a pointwise function. `inverse` names 1 / x where x does not change along a loop."""
    if fn in COMPARE:
        return _compare(fn, args[0], args[1])
    if fn in ("and", "or"):
        text = f"({args[0].text} {'&&' if fn == 'and' else '||'} {args[1].text})"
        return Expression(text, "bool", span=_joined(fn, *args))
    if fn == "not":
        return Expression(f"!{args[0].text}", "bool")
    if fn == "select":
        return _select(args, result)
    if fn == "uniform":
        seed, *words = (a.whole().text for a in args)
        return Expression(f"uniform({', '.join([seed, *(f'(u32){w}' for w in words)])})", "float")
    if kind(result) == "float":
        if fn == "ipow":
            args = [args[0].real(), args[1]]
            return _real(fn, args, inverse)
        return _real(fn, [a.real() for a in args], inverse)
    if kind(result) == "int":
        return _whole(fn, args)
    return _boolean(fn, args)


def _joined(fn: str, x: Expression, y: Expression) -> Span | None:
    if x.span is None and y.span is None:
        return None
    a, b = (z.span or Span(others=(z.text,)) for z in (x, y))
    return a.both(b) if fn == "and" else a.either(b)


def _boolean(fn: str, args: list[Expression]) -> Expression:
    texts = [a.text for a in args]
    signs = {"bitand": "&&", "bitor": "||", "bitxor": "!="}
    if fn in signs:
        return Expression(f"({texts[0]} {signs[fn]} {texts[1]})", "bool")
    if fn == "invert":
        return Expression(f"!{texts[0]}", "bool")
    if fn == "isfinite":
        return Expression(f"(fabsf({args[0].real().text}) < POS_INF)", "bool")
    raise Refused(f"it has no form for {fn} of booleans")


def _select(args: list[Expression], result: DType) -> Expression:
    c, x, y = args
    if kind(result) == "float":
        return Expression(f"({c.text} ? {x.real().text} : {y.real().text})", "float")
    if kind(result) == "bool":
        return Expression(f"({c.text} ? {x.text} : {y.text})", "bool")
    x, y = x.whole(), y.whole()
    bits = max(x.bits, y.bits)
    wide = "i64" if bits > 31 else "int"
    return Expression(f"({c.text} ? ({wide}){x.text} : ({wide}){y.text})", "int", bits)


def _compare(fn: str, x: Expression, y: Expression) -> Expression:
    if "float" in (x.kind, y.kind):
        return Expression(f"({x.real().text} {COMPARE[fn]} {y.real().text})", "bool")
    if x.kind == y.kind == "bool":
        return Expression(f"({x.text} {COMPARE[fn]} {y.text})", "bool")
    if (
        max(x.bits, y.bits) > 31
        and min(x.bits, y.bits) <= 30
        and not (x if x.bits > 31 else y).step
    ):
        # beyond every position it does not matter how far
        x, y = (Expression(f"narrow({z.text})", "int", 31) if z.bits > 31 else z for z in (x, y))
    if max(x.bits, y.bits) > 31:
        x, y = x.whole(), y.whole()  # their difference may not fit
    step = x.step - y.step
    if not step:
        return Expression(f"({x.text} {COMPARE[fn]} {y.text})", "bool")
    if step < 0:
        fn, x, y, step = FLIPPED[fn], y, x, -step
    rest = f"{y.text} - {_bracket(x.text)}"
    short = step == 1 and max(x.bits, y.bits) <= 31
    text = f"({_times(step)} {COMPARE[fn]} {rest})"
    return Expression(text, "bool", span=_span(fn, rest) if short else None)


def _span(fn: str, rest: str) -> Span | None:
    """The columns that compare so with a number."""
    match fn:
        case "le":
            return Span(high=(rest,))
        case "lt":
            return Span(high=(f"{rest} - 1",))
        case "ge":
            return Span(low=(rest,))
        case "gt":
            return Span(low=(f"{rest} + 1",))
        case "eq":
            return Span((rest,), (rest,))
        case _:
            return None


def same_quotient(x: Expression, y: Expression, n: Expression) -> Expression:
    """x == y // n, where neither x nor n changes along a row: y is between two numbers."""
    quotient, number = (z.text if z.bits <= 31 else f"narrow({z.text})" for z in (x, n))
    low, high = (f"quotient_{side}({quotient}, {number})" for side in ("low", "high"))
    text = f"({x.text} == floor_div<i64>({y.whole().text}, {n.text}))"
    base = _bracket(y.text)
    return Expression(text, "bool", span=Span((f"{low} - {base}",), (f"{high} - {base}",)))


def _bracket(text: str) -> str:
    return text if text.isidentifier() else f"({text})"


# ---- floats

_ONE = {
    "exp2": "exp2_({0})",
    "exp": "exp2_({0} * 1.4426950408889634f)",
    "log2": "log2f({0})",
    "log": "logf({0})",
    "tanh": "tanh_({0})",
    "sigmoid": "sigmoid_({0})",
    "silu": "({0} * sigmoid_({0}))",
    "relu": "max_nan({0}, 0.f)",
    "sqrt": "__fsqrt_rn({0})",
    "rsqrt": "__frsqrt_rn({0})",
    "abs": "fabsf({0})",
    "neg": "-{0}",
    "floor": "floorf({0})",
    "ceil": "ceilf({0})",
    "round": "rintf({0})",
    "erf": "erff({0})",
}
_TWO = {
    "add": "({0} + {1})",
    "sub": "({0} - {1})",
    "mul": "({0} * {1})",
    "max": "max_nan({0}, {1})",
    "min": "min_nan({0}, {1})",
    "pow": "powf({0}, {1})",
    "atan2": "atan2f({0}, {1})",
    "mod": "real_mod({0}, {1})",
    "floordiv": "real_floor_div({0}, {1})",
}


def _real(
    fn: str, args: list[Expression], inverse: Callable[[Expression], str] | None
) -> Expression:
    texts = [a.text for a in args]
    if fn in _ONE:
        return Expression(_ONE[fn].format(*texts), "float")
    lines = [a.line for a in args if a.line is not None]
    if fn in ("add", "sub") and len(lines) == 1:
        x, y = args
        if x.line is not None:
            return x.line.plus(fn, y)
        return (lines[0] if fn == "add" else lines[0].negative()).plus("add", x)
    if fn in ("add", "sub") and any(a.product for a in args):
        return Expression(_fused(fn, *args), "float")
    if fn == "mul" and len(lines) == 1 and lines[0].product is None:
        (line,), y = lines, args[1] if args[0].line else args[0]
        slope = y.text if line.slope == "1.f" else f"({line.slope} * {y.text})"
        return Line(line.column, slope, f"({line.rest} * {y.text})").value()
    if (fn == "ipow" and texts[1].isdigit()) or (fn == "pow" and texts[1] == "2.0f"):
        return _power(texts[0], int(float(texts[1].rstrip("f"))))
    if fn in _TWO:
        product = (texts[0], texts[1]) if fn == "mul" else None
        return Expression(_TWO[fn].format(*texts), "float", product=product)
    if fn == "div":
        if inverse is not None:
            return Expression(f"({texts[0]} * {inverse(args[1])})", "float")
        return Expression(f"divide({texts[0]}, {texts[1]})", "float")
    raise Refused(f"it has no fast form for {fn}")


def quick_log(fn: str, x: Expression) -> Expression:
    """log or log2 as the hardware has it, some 1e-6 off where it is about 10: for elements, not for sums of a whole row."""
    text = f"log2_({x.real().text})"
    return Expression(f"({text} * 0.6931471805599453f)" if fn == "log" else text, "float")


def _power(x: str, n: int) -> Expression:
    """A float to a power, by multiplication."""
    product = (x, x) if n == 2 else None
    return Expression(
        f"({x} * {x})" if n == 2 else f"repeated({x}, {n}u)", "float", product=product
    )


def _fused(fn: str, x: Expression, y: Expression) -> str:
    """x ± y where one of them is a product."""
    if x.product is not None:
        a, b = x.product
        return f"fmaf({a}, {b}, {y.text if fn == 'add' else '-' + _bracket(y.text)})"
    assert y.product is not None
    a, b = y.product
    return f"fmaf({a if fn == 'add' else '-' + _bracket(a)}, {b}, {x.text})"


# ---- integers


def _whole(fn: str, args: list[Expression]) -> Expression:
    args = [Expression(f"(int){a.text}", "int", 1) if a.kind == "bool" else a for a in args]
    if fn in ("add", "sub"):
        x, y = args
        sign = "+" if fn == "add" else "-"
        step = x.step + y.step if fn == "add" else x.step - y.step
        return _sized(f"({{0}} {sign} {{1}})", args, max(x.bits, y.bits) + 1, step)
    if fn == "mul":
        x, y = args if args[0].step else args[::-1]
        step = x.step * int(y.text) if x.step and y.text.isdigit() else 0
        if not step:
            x, y = x.whole(), y.whole()
        return _sized("({0} * {1})", [x, y], x.bits + y.bits, step)
    args = [a.whole() for a in args]
    bits = max(a.bits for a in args)
    match fn:
        case "neg":
            return _sized("(-{0})", args, bits)
        case "abs":
            wide = "i64" if bits > 31 else "int"
            return Expression(f"greatest<{wide}>({args[0].text}, -({args[0].text}))", "int", bits)
        case "min" | "max":
            wide = "i64" if bits > 31 else "int"
            call = "least" if fn == "min" else "greatest"
            return Expression(f"{call}<{wide}>({args[0].text}, {args[1].text})", "int", bits)
        case "floordiv" if args[0].bits <= 29 < 31 < args[1].bits:
            # a position over what is beyond all of them does not depend on how far
            text = f"floor_div<int>({args[0].text}, narrow({args[1].text}))"
            return Expression(text, "int", args[0].bits)
        case "mod" if args[0].bits <= 29 < 31 < args[1].bits:
            return Expression(f"position_mod({args[0].text}, {args[1].text})", "int", args[1].bits)
        case "floordiv" | "mod":
            wide = "i64" if bits > 31 else "int"
            power = _power_of_two(args[1].text)
            if power is not None and fn == "floordiv":
                return Expression(f"({args[0].text} >> {power})", "int", args[0].bits)
            if power is not None:
                return Expression(f"({args[0].text} & {(1 << power) - 1})", "int", power)
            call = "floor_div" if fn == "floordiv" else "floor_mod"
            return Expression(
                f"{call}<{wide}>({args[0].text}, {args[1].text})",
                "int",
                args[0].bits if fn == "floordiv" else args[1].bits,
            )
        case "bitand" | "bitor" | "bitxor":
            sign = {"bitand": "&", "bitor": "|", "bitxor": "^"}[fn]
            return _sized(f"({{0}} {sign} {{1}})", args, bits)
        case "invert":
            return _sized("(~{0})", args, bits)
        case "shr":
            x, n = args
            if n.text.isdigit():
                most = 63 if x.bits > 31 else 31
                return Expression(f"({x.text} >> {min(int(n.text), most)})", "int", x.bits)
            return Expression(f"shift_right({x.text}, {n.text})", "int")
        case "shl":
            x, n = args
            if n.text.isdigit() and x.bits + int(n.text) <= 31:
                return Expression(f"({x.text} << {n.text})", "int", x.bits + int(n.text))
            return Expression(f"shift_left({x.text}, {n.text})", "int")
        case "ipow":
            return Expression(f"repeated((i64){args[0].text}, {args[1].text}u)", "int")
        case _:
            raise Refused(f"it has no fast form for {fn} of integers")


def _power_of_two(text: str) -> int | None:
    if not text.isdigit():
        return None
    n = int(text)
    return n.bit_length() - 1 if n > 0 and n & (n - 1) == 0 else None


def _sized(form: str, args: list[Expression], bits: int, step: int = 0) -> Expression:
    """The form in 64 bits where the result does not fit 32."""
    bits = min(bits, 64)
    texts = [a.text for a in args]
    if bits > 31 and all(a.bits <= 31 for a in args):
        texts[0] = f"(i64){texts[0]}"
    return Expression(form.format(*texts), "int", bits, step)


def cast(x: Expression, to: DType) -> Expression:
    """A conversion that the program asks for."""
    if kind(to) == "bool":
        raise Refused("it converts to bool")
    if kind(to) == "int":
        if x.kind == "float":
            return (
                Expression(f"(int)({x.text})", "int", 31)
                if to in ("i32", "i16", "i8", "u8")
                else Expression(f"(i64)({x.text})", "int", 64)
            )
        return x if x.kind == "int" else Expression(f"(int){x.text}", "int", 1)
    value = x.real().text
    match to:
        case "f32":
            return Expression(value, "float")
        case "f16":
            return Expression(f"f16_value((u16)pack_f16({value}, 0.f))", "float")
        case "bf16":
            return Expression(f"bf16_value((u16)pack_bf16({value}, 0.f))", "float")
        case _:
            raise Refused(f"it converts to {to}")


ELEMENT = {
    "f32": "float",
    "f16": "u16",
    "bf16": "u16",
    "i64": "i64",
    "i32": "int",
    "i16": "short",
    "i8": "signed char",
    "u8": "unsigned char",
    "bool": "bool",
}
"""The C type of a stored element."""
_BITS = {"i64": 64, "i32": 31, "i16": 15, "i8": 8, "u8": 8, "bool": 1}


def loaded(text: str, dtype: DType) -> Expression:
    """A stored element as a value."""
    if dtype not in ELEMENT:
        raise Refused(f"it loads elements of type {dtype}")
    if dtype in ("f16", "bf16"):
        return Expression(f"{dtype}_value({text})", "float")
    if dtype == "f32":
        return Expression(text, "float")
    if dtype == "bool":
        return Expression(text, "bool")
    return Expression(text, "int", _BITS[dtype])
