"""Interval arithmetic on operands: the ends of a function's values from the ends of its arguments, as ops.

Integers are exact, as far as the program's own are: ends are values of it. What only the data of a window can tell is
`sure` or not: where it is not, the ends mean nothing. Floats keep the order: each step is rounded as in the program, and
rounding is monotonic, so ends stay ends.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.dtypes import SIZES, DType, kind
from tilec.folding import FoldingBuilder
from tilec.ir import Operand

Ends = tuple[Operand, Operand]
"""The least and the greatest value, both known."""


@dataclass(frozen=True, slots=True)
class Interval:
    """The least and the greatest value; None: unknown. They hold where `sure`, a condition, is true."""

    lo: Operand | None
    hi: Operand | None
    sure: Operand = True

    @property
    def ends(self) -> Ends | None:
        """Both ends, if they are known."""
        return None if self.lo is None or self.hi is None else (self.lo, self.hi)


UNKNOWN = Interval(None, None)


def of_type(dtype: DType) -> Interval:
    """All values of a short integer type. Longer ones are left open: products of their ends would not fit 64 bits."""
    if kind(dtype) != "int" or SIZES[dtype] > 2:
        return UNKNOWN
    bits = 8 * SIZES[dtype]
    if dtype == "u8":
        return Interval(0, (1 << bits) - 1)
    return Interval(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def integers(emit: FoldingBuilder, fn: str, args: list[Interval]) -> Interval:
    """A function of integers other than sums and bit operations."""
    ends = [a.ends for a in args]
    known = [e for e in ends if e is not None]
    result = _known(emit, fn, known) if len(known) == len(args) else _half_known(emit, fn, args)
    return replace(result, sure=emit.all(*(a.sure for a in args)))


def _known(emit: FoldingBuilder, fn: str, ends: list[Ends]) -> Interval:
    e = emit.fn
    match fn, ends:
        case (("min" | "max"), [(a, b), (c, d)]):
            return Interval(e(fn, a, c), e(fn, b, d))
        case "abs", [(a, b)]:
            return Interval(*_size(emit, a, b))
        case "mul", [x, y]:
            return _products(emit, x, y)
        case (("floordiv" | "shr" | "shl"), [(a, b), (c, d)]) if c == d:
            return _monotonic(emit, fn, a, b, c)
        case "floordiv", [(a, b), _]:
            m = e("max", e("abs", a), e("abs", b))
            return Interval(e("neg", m), m)
        case "mod", [(a, b), (c, d)]:
            return _remainder(emit, a, b, c, d)
        case "ipow", [(a, b), (int() as n, _)]:
            a, b = _size(emit, a, b) if n % 2 == 0 else (a, b)
            return Interval(e("ipow", a, n), e("ipow", b, n))
        case _:
            return UNKNOWN


def _size(emit: FoldingBuilder, a: Operand, b: Operand) -> Ends:
    """The ends of the absolute value."""
    e = emit.fn
    return e("max", e("max", a, e("neg", b)), 0), e("max", e("neg", a), b)


def _products(emit: FoldingBuilder, x: Ends, y: Ends) -> Interval:
    return _hull(emit, [emit.fn("mul", a, b) for a in dict.fromkeys(x) for b in dict.fromkeys(y)])


def _hull(emit: FoldingBuilder, values: list[Operand]) -> Interval:
    lo = hi = values[0]
    for v in values[1:]:
        lo, hi = emit.fn("min", lo, v), emit.fn("max", hi, v)
    return Interval(lo, hi)


def _monotonic(emit: FoldingBuilder, fn: str, a: Operand, b: Operand, c: Operand) -> Interval:
    """A quotient or a shift by one number: it rises or falls with the first operand, whatever the second one's sign."""
    x, y = emit.fn(fn, a, c), emit.fn(fn, b, c)
    rises = fn == "shr" or (isinstance(c, int) and (c > 0 or fn == "shl"))
    return Interval(x, y) if rises else _hull(emit, [x, y])


def _remainder(emit: FoldingBuilder, a: Operand, b: Operand, c: Operand, d: Operand) -> Interval:
    """Within one period of the divisor the remainder rises with the dividend; else it is anything below the divisor."""
    e = emit.fn
    lo, hi = e("min", e("add", c, 1), 0), e("max", e("sub", d, 1), 0)
    if c != d:
        return Interval(lo, hi)
    same = e("eq", e("floordiv", a, c), e("floordiv", b, c))
    return Interval(e("select", same, e("mod", a, c), lo), e("select", same, e("mod", b, c), hi))


def _half_known(emit: FoldingBuilder, fn: str, args: list[Interval]) -> Interval:
    """What some of the ends give: the lesser of two is at most either, a remainder is below its divisor."""
    e = emit.fn
    if fn == "abs":
        return Interval(0, None)
    if fn == "mod" and (ends := args[1].ends) is not None:
        return Interval(e("min", e("add", ends[0], 1), 0), e("max", e("sub", ends[1], 1), 0))
    if fn not in ("min", "max"):
        return UNKNOWN
    lows = [a.lo for a in args if a.lo is not None]
    highs = [a.hi for a in args if a.hi is not None]
    lo = e(fn, *lows) if len(lows) == 2 else lows[0] if fn == "max" and lows else None
    hi = e(fn, *highs) if len(highs) == 2 else highs[0] if fn == "min" and highs else None
    return Interval(lo, hi)


def floats(emit: FoldingBuilder, fn: str, args: list[Interval]) -> Interval:
    """A function of floats. A NaN among the values is a NaN at an end."""
    return replace(_floats(emit, fn, args), sure=emit.all(*(a.sure for a in args)))


def _floats(emit: FoldingBuilder, fn: str, args: list[Interval]) -> Interval:
    e = emit.fn
    match fn, [a.ends for a in args]:
        case "neg", [(a, b)]:
            return Interval(e("neg", b), e("neg", a))
        case (("floor" | "ceil" | "round"), [(a, b)]):
            return Interval(e(fn, a), e(fn, b))
        case "sub", [(a, b), (c, d)]:
            return Interval(e("sub", a, d), e("sub", b, c))
        case "mul", [(_, _) as x, (_, _) as y]:
            return _products(emit, x, y)
        case (("add" | "min" | "max"), [(a, b), (c, d)]):
            return Interval(e(fn, a, c), e(fn, b, d))
        case _:
            return UNKNOWN


# ---- bits: those that all numbers of an interval have in common, and a mask of those that differ

Bits = tuple[Operand, Operand]
"""(common bits, mask of the open bits); the common bits are 0 where the mask is 1."""


def common(emit: FoldingBuilder, i: Interval) -> Bits:
    """The bits that the numbers of an interval share: those above the highest one in which its ends differ."""
    e = emit.fn
    if i.lo is None or i.hi is None:
        return 0, -1
    mask = e("bitxor", i.lo, i.hi)
    for n in (1, 2, 4, 8, 16, 32):
        mask = e("bitor", mask, e("shr", mask, n))
    value = e("bitand", i.lo, e("invert", mask))
    return e("select", i.sure, value, 0), e("select", i.sure, mask, -1)


def combine(emit: FoldingBuilder, fn: str, parts: list[Bits]) -> Bits:
    """A bit operation."""
    e = emit.fn
    v, u = parts[0]
    if fn == "invert":
        return e("bitand", e("invert", v), e("invert", u)), u
    w, t = parts[1]
    mask = e("bitor", u, t)
    if fn == "bitand":  # a bit is open if one side is open and neither is a known 0
        mask = e("bitand", mask, e("bitand", e("bitor", v, u), e("bitor", w, t)))
    elif fn == "bitor":  # … neither is a known 1
        mask = e("bitand", mask, e("invert", e("bitor", v, w)))
    return e("bitand", e(fn, v, w), e("invert", mask)), mask


def between(emit: FoldingBuilder, bits: Bits) -> Interval:
    """The interval of all numbers with these bits, where their sign is known."""
    value, mask = bits
    return Interval(value, emit.fn("bitor", value, mask), emit.fn("ge", mask, 0))
