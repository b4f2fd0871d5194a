"""Pointwise functions as expressions of CUDA C++.

A sum with a product is one instruction, and so is a comparison of a position with what does not change along a row. Integers
stay in 32 bits where their results are known to fit.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.expression import Expression, Line, bracket, columns
from tilec.backends.cuda.hopper.span import Span
from tilec.dtypes import DType, kind

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
        span = args[0].span and args[0].span.complement()
        return Expression(f"!{args[0].text}", "bool", span=span)
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
    wide = _ctype(bits)
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
    rest = f"{y.text} - {bracket(x.text)}"
    short = step == 1 and max(x.bits, y.bits) <= 31
    text = f"({columns(step)} {COMPARE[fn]} {rest})"
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
        return f"fmaf({a}, {b}, {y.text if fn == 'add' else '-' + bracket(y.text)})"
    assert y.product is not None
    a, b = y.product
    return f"fmaf({a if fn == 'add' else '-' + bracket(a)}, {b}, {x.text})"


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
            x = args[0].text
            return Expression(f"greatest<{_ctype(bits)}>({x}, -({x}))", "int", bits)
        case "min" | "max":
            call = "least" if fn == "min" else "greatest"
            text = f"{call}<{_ctype(bits)}>({args[0].text}, {args[1].text})"
            return Expression(text, "int", bits)
        case "floordiv" | "mod":
            return _divided(fn, *args)
        case "bitand" | "bitor" | "bitxor":
            sign = {"bitand": "&", "bitor": "|", "bitxor": "^"}[fn]
            return _sized(f"({{0}} {sign} {{1}})", args, bits)
        case "invert":
            return _sized("(~{0})", args, bits)
        case "shl" | "shr":
            return _shifted(fn, *args)
        case "ipow":
            return Expression(f"repeated((i64){args[0].text}, {args[1].text}u)", "int")
        case _:
            raise Refused(f"it has no fast form for {fn} of integers")


def _ctype(bits: int) -> str:
    """The C type of integers below 2 ** bits in size."""
    return "i64" if bits > 31 else "int"


def _divided(fn: str, x: Expression, n: Expression) -> Expression:
    """The quotient that is rounded down, or its remainder."""
    quotient = fn == "floordiv"
    if x.bits <= 29 < 31 < n.bits:
        if not quotient:
            return Expression(f"position_mod({x.text}, {n.text})", "int", n.bits)
        # a position over what is beyond all of them does not depend on how far
        return Expression(f"floor_div<int>({x.text}, narrow({n.text}))", "int", x.bits)
    power = power_of_two(n.text)
    if power is not None and quotient:
        return Expression(f"({x.text} >> {power})", "int", x.bits)
    if power is not None:
        return Expression(f"({x.text} & {(1 << power) - 1})", "int", power)
    call = f"{'floor_div' if quotient else 'floor_mod'}<{_ctype(max(x.bits, n.bits))}>"
    return Expression(f"{call}({x.text}, {n.text})", "int", x.bits if quotient else n.bits)


def _shifted(fn: str, x: Expression, n: Expression) -> Expression:
    """A shift; by a literal it is one instruction."""
    known = n.text.isdigit()
    if fn == "shr":
        if not known:
            return Expression(f"shift_right({x.text}, {n.text})", "int")
        most = 63 if x.bits > 31 else 31
        return Expression(f"({x.text} >> {min(int(n.text), most)})", "int", x.bits)
    if known and x.bits + int(n.text) <= 31:
        return Expression(f"({x.text} << {n.text})", "int", x.bits + int(n.text))
    return Expression(f"shift_left({x.text}, {n.text})", "int")


def power_of_two(text: str) -> int | None:
    """The power of 2 that a literal is."""
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
