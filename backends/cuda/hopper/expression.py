"""Expressions of CUDA C++: of scalars, of a thread's two rows, of its elements of a fragment.

Integers mean 64 bits; where they are known to fit, they are computed in 32. The position along the streamed axis is kept
apart: an integer may be `text + step · column`, where `column` is known when the loop over a fragment is unrolled, so that
comparisons and conversions cost one instruction per element.
"""

from __future__ import annotations

import math
import struct
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
        return replace(self, rest=f"({self.rest} {sign} {bracket(other.text)})").value()

    def negative(self) -> Line:
        """The line with the other sign."""
        product = None if self.product is None else _signed("sub", self.product)
        return Line(f"(-{self.column})", self.slope, f"(-{self.rest})", product)


def _signed(fn: str, product: tuple[str, str]) -> tuple[str, str]:
    return product if fn == "add" else (f"-{bracket(product[0])}", product[1])


@dataclass(frozen=True)
class Drawn:
    """Whether a word of random bits reaches a limit of 24 bits, or is below it."""

    word: str
    limit: str
    below: bool

    def value(self) -> Expression:
        """The test."""
        sign = "<" if self.below else ">="
        return Expression(f"(({self.word} >> 8) {sign} {self.limit})", "bool", drawn=self)


@dataclass(frozen=True)
class Expression:
    """A value in CUDA C++. `bits`: an integer is below 2 ** bits in size. `step`: see above.

    `product`: the factors of a product of floats, which goes into one instruction with an addition that follows. `line`: the
    float as a straight line along a row, plus such a product. `span`: the bool as a stretch of columns. `drawn`: the bool as
    whether random bits reach a limit.
    """

    text: str
    kind: Kind
    bits: int = 64
    step: int = 0
    product: tuple[str, str] | None = None
    line: Line | None = None
    span: Span | None = None
    drawn: Drawn | None = None

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
        return replace(self, text=f"({self.text} + {columns(self.step)})", step=0)

    def real(self) -> Expression:
        """The value as a float."""
        if self.kind == "float":
            return self
        if self.step:
            # exact where it matters: a column is small beside a base that is rounded
            base, more = f"(float)({self.text})", f"(float)({columns(self.step)})"
            return Line(more, "1.f", base).value()
        return Expression(f"(float)({self.text})", "float")


def columns(step: int) -> str:
    """step · column, as text."""
    return COLUMN if step == 1 else f"-{COLUMN}" if step == -1 else f"{step} * {COLUMN}"


def bracket(text: str) -> str:
    """A text as a factor."""
    return text if text.isidentifier() else f"({text})"


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
    "f8e4m3": "unsigned char",
    "f8e5m2": "unsigned char",
    "bool": "bool",
}
"""The C type of a stored element."""
_BITS = {"i64": 64, "i32": 31, "i16": 15, "i8": 8, "u8": 8, "bool": 1}


def loaded(text: str, dtype: DType) -> Expression:
    """A stored element as a value."""
    if dtype not in ELEMENT:
        raise Refused(f"it loads elements of type {dtype}")
    if dtype in ("f16", "bf16", "f8e4m3", "f8e5m2"):
        return Expression(f"{dtype}_value({text})", "float")
    if dtype == "f32":
        return Expression(text, "float")
    if dtype == "bool":
        return Expression(text, "bool")
    return Expression(text, "int", _BITS[dtype])
