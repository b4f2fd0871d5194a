"""What a condition is over a whole tile: true everywhere, true nowhere, or something in between.

`Intervals` gives, for a value over windows of axes, the ops that compute its least and greatest value there, and for
a condition the ops that compute `must` (if true, the condition holds at every position) and `may` (if false, at none).
The answers hold for any data: what cannot be decided is widened. They are scalars, or have the axes that have no window
(`any[t](…)` is decided for each t). Literals are folded, so that what is known at compile time costs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TypeAlias, Union

from tilec.dtypes import DType, kind
from tilec.folding import FoldingBuilder
from tilec.ir import Absent, Cast, Load, Map, Op, Operand, Reduce, operands
from tilec.linear import Linear, Sums
from tilec.nature import STRIDE, computed
from tilec.ranges import (
    UNKNOWN,
    Bits,
    Interval,
    between,
    combine,
    common,
    floats,
    integers,
    of_type,
)

Formula: TypeAlias = Union[Operand, tuple["Formula", ...]]
"""A condition: an operand, or ("not", f), ("and", f, g), ("or", f, g)."""

FLIP = {"lt": "ge", "ge": "lt", "le": "gt", "gt": "le", "eq": "ne", "ne": "eq"}
"""The opposite of each comparison of integers."""

BITWISE = ("bitand", "bitor", "bitxor", "invert")


@dataclass(frozen=True, slots=True)
class Truth:
    """`must`: true at all positions. `may`: true at some position."""

    must: Operand
    may: Operand


UNDECIDED = Truth(False, True)


Reduced: TypeAlias = Callable[[tuple[str, str], str, str], "tuple[Operand, Operand] | None"]
"""(two reductions, value, axis) -> the reductions of a value over the window of a streamed axis, or None."""


class Intervals(Sums):
    """Least and greatest values over windows.

    `stream` is the axis that moves, if any, and `reduced` gives the reductions of values over its windows. `samples`
    gives the axis that numbers the samples of a window, where it is to be sampled.
    """

    def __init__(
        self,
        emit: FoldingBuilder,
        definitions: Mapping[str, Op],
        available: Container[str],
        windows: Container[str],
        stream: str | None = None,
        reduced: Reduced | None = None,
        samples: Callable[[str], str | None] | None = None,
    ) -> None:
        super().__init__(emit, definitions, available, windows)
        self.stream, self.reduced, self.samples = stream, reduced, samples
        self._intervals: dict[str, Interval] = {}
        self._truths: dict[str, Truth] = {}

    # ---- intervals

    def interval(self, x: Operand) -> Interval:
        """The least and the greatest value of a number over the windows."""
        if not isinstance(x, str):
            x = int(x) if isinstance(x, bool) else x
            return UNKNOWN if isinstance(x, Absent) else Interval(x, x)
        x = self.canonical(x)
        if x not in self._intervals:
            self._intervals[x] = self._interval(x)
        return self._intervals[x]

    def _interval(self, x: str) -> Interval:
        n, dtype = self.nature(x), self.type_of(x).dtype
        if dtype == "bool":
            t = self.truth(x)
            return Interval(
                self.emit.fn("select", t.must, 1, 0), self.emit.fn("select", t.may, 1, 0)
            )
        if not n.axes:
            return Interval(self.copy(x), self.copy(x)) if n.again else of_type(dtype)
        if x in self.windows:
            return Interval(self.emit.end("first", x), self.emit.end("last", x))
        exact = self._reductions(x, "min", "max")
        if exact is not None:
            return Interval(*exact)
        op = self.definitions.get(x)
        if kind(dtype) == "float":
            return self._float(op)
        sum = self.linear(x)
        return self.total(sum) if sum.terms != ((x, 1),) else self._integer(op, dtype)

    def _reductions(self, x: str, least: str, greatest: str) -> tuple[Operand, Operand] | None:
        """Both reductions of a value over the one window it depends on, where looking at its values is worth it."""
        n = self.nature(x)
        if len(n.axes) != 1 or not n.again:
            return None
        (axis,) = n.axes
        if axis != self.stream:
            if not (n.looks or n.jumps):
                return None
            value = self.copy(x)
            return self.emit.over(least, value, (axis,)), self.emit.over(greatest, value, (axis,))
        if not n.looks or self.reduced is None:
            return None
        return self.reduced((least, greatest), x, axis)

    def total(self, sum: Linear) -> Interval:
        """The interval of a sum."""
        parts = [(self.interval(n), c) for n, c in sum.terms]
        lows = [(i.lo if c > 0 else i.hi, c) for i, c in parts]
        highs = [(i.hi if c > 0 else i.lo, c) for i, c in parts]
        sure = self.emit.all(*(i.sure for i, _ in parts))
        return Interval(self._sum(lows, sum.constant), self._sum(highs, sum.constant), sure)

    def _sum(self, parts: list[tuple[Operand | None, int]], constant: int) -> Operand | None:
        out: Operand = 0
        e = self.emit.fn
        parts = sorted(parts, key=lambda p: p[1] < 0)  # what is added first: no 0 - x is needed
        for x, c in parts:
            if x is None:
                return None
            out = e("sub" if c < 0 else "add", out, e("mul", x, abs(c)))
        return e("sub", out, -constant) if constant < 0 else e("add", out, constant)

    def _integer(self, op: Op | None, dtype: DType) -> Interval:
        """The interval of an integer that is no sum."""
        match op:
            case Map(fn="select", args=(c, a, b)):
                return self._select(self.truth(c), self.interval(a), self.interval(b))
            case Map() if op.fn in BITWISE:
                return between(self.emit, self._bits(op))
            case Map():
                return integers(self.emit, op.fn, [self.interval(a) for a in op.args])
            case Cast(x=a) if self.integral(a):
                return self.interval(a)
            case Load():
                return self._gather(op)
            case Reduce(fn="sum" | "min" | "max", args=(a,)) if not any(
                t in self.windows for t in op.over
            ):
                i = self.interval(a)
                if i.lo is None or i.hi is None:
                    return UNKNOWN
                lo, hi = (self.emit.over(op.fn, x, op.over) for x in (i.lo, i.hi))
                return Interval(lo, hi, i.sure is True or self.emit.over("all", i.sure, op.over))
            case _:
                return of_type(dtype)

    def _select(self, c: Truth, a: Interval, b: Interval) -> Interval:
        sure = self.emit.all(a.sure, b.sure)
        return Interval(
            self._chosen(c, "min", a.lo, b.lo), self._chosen(c, "max", a.hi, b.hi), sure
        )

    def _chosen(self, c: Truth, worst: str, a: Operand | None, b: Operand | None) -> Operand | None:
        if a is None or b is None:
            return None
        e = self.emit.fn
        return e("select", c.must, a, e("select", c.may, e(worst, a, b), b))

    def _bits(self, x: Operand | Map) -> Bits:
        """The bits that all values of an integer share."""
        op = self.definitions.get(x) if isinstance(x, str) else x
        if isinstance(op, Map) and op.fn in BITWISE:
            return combine(self.emit, op.fn, [self._bits(a) for a in op.args])
        assert not isinstance(x, Map)
        return common(self.emit, self.interval(x))

    def _float(self, op: Op | None) -> Interval:
        """The interval of a float."""
        match op:
            case Map(fn="select", args=(c, a, b)):
                return self._select(self.truth(c), self.interval(a), self.interval(b))
            case Map():
                return floats(self.emit, op.fn, [self.interval(a) for a in op.args])
            case Load():
                return self._gather(op)
            case Cast(x=a):
                i = self.interval(a)
                return Interval(self._converted(i.lo, op.to), self._converted(i.hi, op.to), i.sure)
            case _:
                return UNKNOWN

    def _converted(self, x: Operand | None, to: DType) -> Operand | None:
        if x is None:
            return None
        return self.emit.once(("cast", type(x).__name__, x, to), lambda: self.emit.cast(x, to))

    # ---- gathers

    def _gather(self, op: Load) -> Interval:
        """A look-up whose index is the same over the whole tile is that one element; else anything of its type."""
        found = self._element(op)
        limits = of_type(self.type_of(op.result.name).dtype)
        if found is None:
            return limits
        same, value = found
        if limits.lo is None or limits.hi is None:
            return Interval(value, value, same)
        e = self.emit.fn
        return Interval(e("select", same, value, limits.lo), e("select", same, value, limits.hi))

    def _element(self, op: Load) -> tuple[Operand, Operand] | None:
        """(whether the index is the same everywhere, the element at its least value); None where it surely moves."""
        if any(name in self.windows for x in op.index for name, _ in self.linear(x).terms):
            return None
        if any(self._steps_inside(x) for x in op.index):
            return None
        ends = [self.interval(x) for x in op.index]
        if any(i.lo is None or i.hi is None for i in ends):
            return None
        index = tuple(i.lo for i in ends if i.lo is not None)
        equal = (self.emit.fn("eq", *i.ends) for i in ends if i.ends is not None and i.lo != i.hi)
        same = self.emit.all(*(i.sure for i in ends), *equal)
        if same is False:
            return None
        load = functools.partial(self.emit.load, op.tensor, *index, guarded=True)
        return same, self.emit.once(("load", op.tensor, index), load)

    # ---- conditions

    def truth(self, f: Formula) -> Truth:
        """Whether a condition holds everywhere, and whether anywhere."""
        e = self.emit.fn
        if isinstance(f, tuple):
            match f:
                case ("not", a):
                    t = self.truth(a)
                    return Truth(e("not", t.may), e("not", t.must))
                case ("and" | "or" as fn, a, b):
                    s, t = self.truth(a), self.truth(b)
                    return Truth(e(fn, s.must, t.must), e(fn, s.may, t.may))
                case _:
                    raise ValueError(f"no condition: {f}")
        if not isinstance(f, str):
            return Truth(bool(f), bool(f)) if isinstance(f, int) else UNDECIDED
        x = self.canonical(f)
        if x not in self._truths:
            self._truths[x] = self._truth(x)
        return self._truths[x]

    def _truth(self, x: str) -> Truth:
        n = self.nature(x)
        if not n.axes:
            return Truth(self.copy(x), self.copy(x)) if n.again else UNDECIDED
        exact = self._reductions(x, "all", "any")
        if exact is not None:
            return Truth(*exact)
        sampled = self._sampled(x)
        if sampled is None:
            return self._composed(x)
        if all(isinstance(s, int) for s in self._steps(x) or ()):
            return sampled  # which is all there is to know
        samples, self.samples = self.samples, None  # not the parts of it once more
        composed = self._composed(x)
        self.samples = samples
        e = self.emit.fn
        return Truth(e("or", composed.must, sampled.must), e("and", composed.may, sampled.may))

    # ---- look-ups by block: a condition on `i // n` and `j // n` is known from positions n apart

    def _sampled(self, x: str) -> Truth | None:
        """A condition that looks data up by both windows, each in long steps, from samples of the windows."""
        n, steps = self.nature(x), self._steps(x)
        if self.samples is None or len(n.axes) < 2 or not n.looks or not n.again or not steps:
            return None
        axes = {a: self.samples(a) for a in sorted(n.axes)}
        e = self.emit.fn
        long = self.emit.all(*(e("ge", self.copy(s), STRIDE) for s in sorted(steps, key=str)))
        if None in axes.values() or long is False:
            return None
        positions = {a: self._positions(a, s) for a, s in axes.items() if s is not None}
        value = computed(
            self.emit,
            x,
            self.definitions,
            lambda y: not self.nature(y).axes and y in self.available,
            positions,
        )
        over = tuple(a for a in self.type_of(value).axes if a in axes.values())
        must, may = self.emit.over("all", value, over), self.emit.over("any", value, over)
        return Truth(e("and", long, must), e("or", e("not", long), may))

    def _positions(self, axis: str, sample: str) -> Operand:
        e = self.emit.fn
        at = e("add", self.emit.end("first", axis), e("mul", sample, STRIDE))
        return e("min", at, self.emit.end("last", axis))

    def _steps(self, x: Operand) -> set[Operand] | None:
        """The lengths of the steps in which a value moves along its windows; None if it moves otherwise, too."""
        if not isinstance(x, str) or not self.nature(x).axes:
            return set()
        match self.definitions.get(x):
            case Map(fn="floordiv", args=(a, n)) if not self.nature(n).axes and self.moves(a):
                return {n} if self.nature(n).again else None
            case Map(fn="shr", args=(a, int() as n)) if 0 <= n < 32 and self.moves(a):
                return {1 << n}
            case Map() | Cast() | Load() | Reduce() as op:
                parts = [self._steps(y) for y in operands(op)]
                return None if None in parts else {s for p in parts if p is not None for s in p}
            case _:
                return None

    def _steps_inside(self, x: Operand) -> bool:
        """Whether a value moves in steps that are shorter than each of its windows."""
        steps = self._steps(x) or set[Operand]()
        windows = [self.emit.tiles.get(a) for a in self.nature(x).axes]
        return bool(steps and windows) and all(
            isinstance(s, int) and n is not None and s < n for s in steps for n in windows
        )

    def _composed(self, x: str) -> Truth:
        """A condition from its parts."""
        e = self.emit.fn
        match self.definitions.get(x):
            case Map(fn="and" | "or" | "not" as fn, args=args):
                return self.truth((fn, *args))
            case Map(fn="bitand" | "bitor" as fn, args=(a, b)):
                return self.truth((fn.removeprefix("bit"), a, b))
            case Map(fn="bitxor", args=(a, b)):
                return self._compare("ne", a, b)
            case Map(fn="invert", args=(a,)):
                return self.truth(("not", a))
            case Map(fn="select", args=(c, a, b)):
                return self.truth(("or", ("and", c, a), ("and", ("not", c), b)))
            case Map(fn="lt" | "le" | "gt" | "ge" | "eq" | "ne" as fn, args=(a, b)):
                return self._compare(fn, a, b)
            case Cast(x=a) if self.type_of(a).dtype == "bool":
                return self.truth(a)
            case Cast(x=a):
                return self._compare("ne", a, 0)
            case Reduce(fn="any" | "all" as fn, args=(a,), over=over) if not any(
                t in self.windows for t in over
            ):
                t = self.truth(a)
                return Truth(self.emit.over(fn, t.must, over), self.emit.over(fn, t.may, over))
            case Load() as op:
                found = self._element(op)
                if found is None:
                    return UNDECIDED
                same, value = found
                return Truth(e("and", same, value), e("or", e("not", same), value))
            case _:
                return UNDECIDED

    def _compare(self, fn: str, a: Operand, b: Operand) -> Truth:
        e = self.emit.fn
        if fn == "ne":
            t = self._compare("eq", a, b)
            return Truth(e("not", t.may), e("not", t.must))
        types: list[DType] = [self.type_of(x).dtype for x in (a, b)]
        if types == ["bool", "bool"] and fn == "eq":
            return self.truth(("or", ("and", a, b), ("and", ("not", a), ("not", b))))
        if any(kind(t) == "float" for t in types):
            return self._compare_floats(fn, self.interval(a), self.interval(b))
        d = self.total(self.difference(fn, a, b))
        must: Operand = False if d.hi is None else e("le", d.hi, 0)
        may: Operand = True if d.lo is None else e("le", d.lo, 0)
        if fn == "eq":
            must = e("and", must, False if d.lo is None else e("ge", d.lo, 0))
            may = e("and", may, True if d.hi is None else e("ge", d.hi, 0))
        return self._where(d.sure, must, may)

    def _where(self, sure: Operand, must: Operand, may: Operand) -> Truth:
        """A truth that holds where `sure`; elsewhere nothing is known."""
        e = self.emit.fn
        return Truth(e("and", sure, must), e("or", e("not", sure), may))

    def _compare_floats(self, fn: str, a: Interval, b: Interval) -> Truth:
        """As for integers; a NaN at an end leaves the condition undecided."""
        e, sure = self.emit.fn, self.emit.all(a.sure, b.sure)
        if fn in ("gt", "ge"):
            fn, a, b = {"gt": "lt", "ge": "le"}[fn], b, a
        if fn == "eq":
            if a.lo is None or a.hi is None or b.lo is None or b.hi is None:
                return UNDECIDED
            apart = e("or", e("gt", a.lo, b.hi), e("lt", a.hi, b.lo))
            same = e("and", e("eq", a.lo, b.hi), e("eq", a.hi, b.lo))
            return self._where(sure, same, e("not", apart))
        never = {"lt": "ge", "le": "gt"}[fn]
        must: Operand = False if a.hi is None or b.lo is None else e(fn, a.hi, b.lo)
        may: Operand = True if a.lo is None or b.hi is None else e("not", e(never, a.lo, b.hi))
        return self._where(sure, must, may)
