"""Comparisons whether a position, its quotient or its remainder is between two numbers: stretches of columns.

`abs(i // n - j // n) <= 2` is true from the least position whose quotient is `i // n - 2` up to the greatest one whose
quotient is `i // n + 2`; with `%`, there is such a stretch in each period. Nothing is divided for each element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilec.backends.cuda.hopper.expression import POSITION, Expression, bracket
from tilec.backends.cuda.hopper.pointwise import FLIPPED, pointwise, power_of_two
from tilec.backends.cuda.hopper.span import Period, Span
from tilec.ir import Map, Op, Operand


@dataclass(frozen=True)
class End:
    """The number `center + sign · reach + more`."""

    center: Operand
    sign: int
    reach: Operand
    more: int = 0


@dataclass(frozen=True)
class Between:
    """The test `low <= fn(position, n) <= high`; without `fn`, of the position itself."""

    fn: str
    n: Operand
    low: End | None
    high: End | None


@dataclass(frozen=True)
class Comparisons:
    """The comparisons of a block. `is_steady`: whether an operand is an integer that does not change along a row."""

    row: str
    stream: str
    defs: Mapping[str, Op]
    is_steady: Callable[[Operand], bool]

    def between(self, op: Op) -> Between | None:
        """A comparison as such a test; None where it is none, or cheap as it is."""
        if not isinstance(op, Map) or op.fn not in FLIPPED:
            return None
        x, y = op.args
        for fn, value, limit in ((op.fn, x, y), (FLIPPED[op.fn], y, x)):
            found = self._between(fn, value, limit) if self.is_steady(limit) else None
            if found is None or (found.fn == "mod" and self.row not in op.result.type.axes):
                continue  # what has no rows is tested by few threads each
            return found
        return None

    def _between(self, fn: str, x: Operand, limit: Operand) -> Between | None:
        inner = self.defs.get(x) if isinstance(x, str) else None
        base = inner.args[0] if isinstance(inner, Map) and inner.fn == "abs" else None
        size = base is not None
        sign, center, place = self._difference(base if base is not None else x)
        measured = self._measured(place)
        if measured is None or (not size and not measured[0]):
            return None
        if size:
            more = {"le": 0, "lt": 1}.get(fn)
            if more is None:
                return None
            return Between(*measured, End(center, -1, limit, more), End(center, 1, limit, -more))
        fn, sign = (fn, 1) if sign > 0 else (FLIPPED[fn], -1)
        end = End(center, sign, limit, {"lt": -1, "gt": 1}.get(fn, 0))
        match fn:
            case "le" | "lt":
                return Between(*measured, None, end)
            case "ge" | "gt":
                return Between(*measured, end, None)
            case "eq":
                return Between(*measured, end, end)
            case _:
                return None

    def _difference(self, x: Operand) -> tuple[int, Operand, Operand]:
        """The sign, z and y of sign · (y - z)."""
        op = self.defs.get(x) if isinstance(x, str) else None
        match op:
            case Map(fn="sub", args=(y, z)) if self.is_steady(z):
                return 1, z, y
            case Map(fn="sub", args=(z, y)) if self.is_steady(z):
                return -1, z, y
            case _:
                return 1, 0, x

    def _measured(self, x: Operand) -> tuple[str, Operand] | None:
        """The function and the number that a value is made with from the position."""
        if x == self.stream:
            return "", 1
        op = self.defs.get(x) if isinstance(x, str) else None
        match op:
            case Map(fn="floordiv" | "mod" as fn, args=(self.stream, n)) if self.is_steady(n):
                cheap = fn == "mod" and isinstance(n, int) and power_of_two(str(n)) is not None
                return None if cheap else (fn, n)
            case _:
                return None


def tested(
    test: Between,
    value: Callable[[Operand], Expression],
    position: Expression,
    once: Callable[[str, tuple[Operand, ...]], str],
) -> Expression:
    """The test of an element, and its stretch of columns. `once`: an integer of some operands, by a name if it has one."""
    wide = test.fn == "mod"  # remainders by what is beyond all positions are there, too
    low, high = (None if e is None else _end(e, value, wide) for e in (test.low, test.high))
    n = value(test.n)
    x = pointwise(test.fn, [position, n], "i64") if test.fn else position.whole()
    if test.low == test.high:
        text = f"{x.text} == {low}"
    else:
        text = " && ".join(
            [f"{low} <= {x.text}"] * (low is not None)
            + [f"{x.text} <= {high}"] * (high is not None)
        )
    ends = [e for e in (test.low, test.high) if e is not None]
    operands = (test.n, *(x for e in ends for x in (e.center, e.reach)))
    span = _span(test.fn, n, low, high, position, lambda text: once(text, operands))
    return Expression(f"({text})", "bool", span=span)


def _end(e: End, value: Callable[[Operand], Expression], wide: bool) -> str:
    """An end, in 32 bits where what is beyond all positions may be as far as 2 ** 30; sums stop at the ends."""
    center, reach = value(e.center), value(e.reach)
    sign = "+" if e.sign > 0 else "-"
    more = f" {'-' if e.more < 0 else '+'} 1" if e.more else ""
    if e.center == 0 and e.sign > 0 and reach.bits <= (31, POSITION)[bool(more)]:
        return f"({reach.text}{more})" if more else reach.text
    if max(center.bits, reach.bits) <= POSITION:
        return f"({center.text} {sign} {bracket(reach.text)}{more})"
    call = "sum" if e.sign > 0 else "difference"
    if wide:
        text = f"{call}_stopped({center.text}, {reach.text})"
        return f"{call}_stopped({text}, {1})" if e.more else text
    return f"(narrow({call}_stopped({center.text}, {reach.text})){more})"


def _span(
    fn: str,
    n: Expression,
    low: str | None,
    high: str | None,
    position: Expression,
    once: Callable[[str], str],
) -> Span:
    """The columns of the elements that are tested true."""
    base = position.text
    if fn == "mod":
        first = once(f"period_from({low or '-MOST_WIDE'}, {n.text})")
        last = once(f"period_to({high or 'MOST_WIDE'}, {n.text})")
        return Span(periods=(Period(base, first, last, once(f"period_size({n.text})")),))
    if fn == "floordiv" and not n.text.isdigit():
        divisor = n.text if n.bits <= 31 else f"narrow({n.text})"
        ends = f"{low or '-BEYOND'}, {high or 'BEYOND'}, {divisor}"
        first, last = once(f"quotients_from({ends})"), once(f"quotients_to({ends})")
        return Span((f"{first} - {base}",), (f"{last} - {base}",))
    factor = int(n.text)
    if factor > 1:
        reach = f"{(1 << POSITION) // factor + 1}"
        low = low and f"{factor} * within({low}, {reach})"
        high = high and f"{factor} * within({high}, {reach}) + {factor - 1}"
    return Span(
        (f"{low} - {base}",) if low else (),
        (f"{high} - {base}",) if high else (),
    )
