"""Where along a streamed axis a condition can hold: the bounds of a loop.

A comparison that is linear in the position, also through `//`, `abs`, `min` and `max`, holds on one side of a bound;
`and` intersects, `or` takes what spans both. Two questions are asked: at which positions does the condition hold for
*some* position of the other windows (`may`: what a loop must visit), and at which for *all* (`must`: where it need not
be looked at).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilec.dtypes import kind
from tilec.interval import FLIP, UNDECIDED, Formula, Intervals, Truth
from tilec.ir import Map, Operand
from tilec.linear import ZERO, Linear

Mode = Literal["may", "must"]


@dataclass(frozen=True, slots=True)
class Region:
    """Positions lo .. hi (None: unbounded). `exact`: no test of each tile could exclude (for `must`: include) more."""

    lo: Operand | None = None
    hi: Operand | None = None
    exact: bool = True


ALL = Region()
NONE = Region(None, -1)


class Regions:
    """Regions of conditions, for one streamed axis of `extent` positions."""

    def __init__(self, intervals: Intervals, axis: str, extent: Operand, mode: Mode) -> None:
        self.intervals, self.axis, self.extent, self.mode = intervals, axis, extent, mode
        self.fn = intervals.emit.fn

    def of(self, f: Formula, positive: bool = True) -> Region:
        """Where a condition, or its opposite, may or must hold."""
        if isinstance(f, tuple):
            return self._connected(f, positive)
        if not isinstance(f, str):
            return ALL if (f is True) == positive else NONE
        if self.axis not in self.intervals.nature(f).axes:
            return self._fixed(self.intervals.truth(f), positive)
        match self.intervals.definitions.get(f):
            case Map(fn="and" | "or" | "not" as fn, args=args):
                return self._connected((fn, *args), positive)
            case Map(fn="lt" | "le" | "gt" | "ge" | "eq" | "ne" as fn, args=(a, b)) if (
                self._integral(a, b)
            ):
                region = self._compare(fn if positive else FLIP[fn], a, b)
                return region or self._undecided(f)
            case _:
                return self._undecided(f)

    def _integral(self, *xs: Operand) -> bool:
        return all(kind(self.intervals.emit.type_of(x).dtype) == "int" for x in xs)

    def _connected(self, f: tuple[Formula, ...], positive: bool) -> Region:
        match f:
            case ("not", a):
                return self.of(a, not positive)
            case ("and" | "or" as fn, a, b):
                both = (fn == "and") == positive
                s, t = self.of(a, positive), self.of(b, positive)
                return self.meet(s, t) if both else self.join(s, t)
            case _:
                raise ValueError(f"no condition: {f}")

    def _fixed(self, t: Truth, positive: bool) -> Region:
        """A condition that does not depend on the position holds at all or at none."""
        if not positive:
            t = Truth(self.fn("not", t.may), self.fn("not", t.must))
        holds = t.may if self.mode == "may" else t.must
        if isinstance(holds, bool):
            return ALL if holds else NONE
        return Region(None, self.fn("select", holds, self.extent, -1))

    def _undecided(self, f: str) -> Region:
        """All positions may satisfy it and none must; a test of each tile can do better where the tile decides it."""
        exact = self.intervals.truth(f) == UNDECIDED
        return replace(ALL if self.mode == "may" else NONE, exact=exact)

    # ---- sets

    def meet(self, a: Region, b: Region) -> Region:
        """Positions in both."""
        lo = b.lo if a.lo is None else a.lo if b.lo is None else self.fn("max", a.lo, b.lo)
        hi = b.hi if a.hi is None else a.hi if b.hi is None else self.fn("min", a.hi, b.hi)
        return Region(lo, hi, a.exact and b.exact)

    def join(self, a: Region, b: Region) -> Region:
        """Positions in either: all that lies between for `may`; for `must` one of them, unless both are open alike."""
        exact = a.exact and b.exact
        if _empty(a) or _empty(b):
            return replace(b if _empty(a) else a, exact=exact)
        alike = (a.lo is None and b.lo is None) or (a.hi is None and b.hi is None)
        if self.mode == "must" and not alike:
            return replace(a, exact=False)
        lo = None if a.lo is None or b.lo is None else self.fn("min", a.lo, b.lo)
        hi = None if a.hi is None or b.hi is None else self.fn("max", a.hi, b.hi)
        return Region(lo, hi, exact and alike)

    # ---- comparisons

    def _compare(self, fn: str, a: Operand, b: Operand) -> Region | None:
        if fn == "eq":
            return self._both(self._compare("le", a, b), self._compare("ge", a, b))
        if fn == "ne":
            return self._either(self._compare("lt", a, b), self._compare("gt", a, b))
        return self.below(self.intervals.difference(fn, a, b))

    def _both(self, a: Region | None, b: Region | None) -> Region | None:
        return None if a is None or b is None else self.meet(a, b)

    def _either(self, a: Region | None, b: Region | None) -> Region | None:
        return None if a is None or b is None else self.join(a, b)

    def below(self, sum: Linear) -> Region | None:
        """Where a sum is at most 0; None where that is no matter of one bound."""
        moving = [(n, c) for n, c in sum.terms if self.axis in self.intervals.nature(n).axes]
        rest = Linear(tuple(t for t in sum.terms if t not in moving), sum.constant)
        if len(moving) > 1:
            return None
        if not moving:  # the position has cancelled
            end = self._end(rest, -1)
            return (
                None
                if end is None
                else Region(None, self.fn("select", self.fn("ge", end, 0), self.extent, -1))
            )
        ((name, factor),) = moving
        end = self._end(rest, -1 if factor > 0 else 1)  # factor · x ≤ -rest, or |factor| · x ≥ rest
        if end is None:
            return None
        if factor > 0:
            return self._at_most(name, self.fn("floordiv", end, factor))
        return self._at_least(name, self.fn("floordiv", self.fn("add", end, -factor - 1), -factor))

    def _end(self, rest: Linear, sign: int) -> Operand | None:
        """The end of the interval of ± rest that decides: the laxer one for `may`, the stricter one for `must`."""
        i = self.intervals.total(ZERO.plus(rest, sign))
        if i.sure is not True:
            return None
        return i.hi if (self.mode == "may") == (sign < 0) else i.lo

    def _sum_below(self, x: Operand, bound: Operand, sign: int) -> Region | None:
        """Where sign · x is at most sign · bound."""
        named = isinstance(bound, str)
        limit = Linear(((bound, 1),), 0) if named else self.intervals.linear(bound)
        return self.below(ZERO.plus(self.intervals.linear(x), sign).plus(limit, -sign))

    def _at_most(self, x: Operand, bound: Operand) -> Region | None:
        """Where a value that moves with the axis is at most a bound."""
        if x == self.axis:
            return Region(None, bound)
        e = self.fn
        match self.intervals.definitions.get(str(x)):
            case Map(fn="floordiv", args=(a, n)) if self._divides(n):
                bound = e("sub", e("add", e("mul", bound, n), n), 1)
                return self._where_positive(n, self._sum_below(a, bound, 1))
            case Map(fn="shr", args=(a, int() as n)) if 0 <= n < 32:
                return self._sum_below(a, e("add", e("mul", bound, 1 << n), (1 << n) - 1), 1)
            case Map(fn="abs", args=(a,)):
                return self._both(
                    self._sum_below(a, bound, 1), self._sum_below(a, e("neg", bound), -1)
                )
            case Map(fn="min", args=(a, b)):
                return self._either(self._moved(a, bound, 1), self._moved(b, bound, 1))
            case Map(fn="max", args=(a, b)):
                return self._both(self._moved(a, bound, 1), self._moved(b, bound, 1))
            case _:
                return None

    def _at_least(self, x: Operand, bound: Operand) -> Region | None:
        """Where a value that moves with the axis is at least a bound."""
        if x == self.axis:
            return Region(bound, None)
        e = self.fn
        match self.intervals.definitions.get(str(x)):
            case Map(fn="floordiv", args=(a, n)) if self._divides(n):
                return self._where_positive(n, self._sum_below(a, e("mul", bound, n), -1))
            case Map(fn="shr", args=(a, int() as n)) if 0 <= n < 32:
                return self._sum_below(a, e("mul", bound, 1 << n), -1)
            case Map(fn="abs", args=(a,)):
                return self._either(
                    self._sum_below(a, bound, -1), self._sum_below(a, e("neg", bound), 1)
                )
            case Map(fn="min", args=(a, b)):
                return self._both(self._moved(a, bound, -1), self._moved(b, bound, -1))
            case Map(fn="max", args=(a, b)):
                return self._either(self._moved(a, bound, -1), self._moved(b, bound, -1))
            case _:
                return None

    def _moved(self, x: Operand, bound: Operand, sign: int) -> Region | None:
        return self._sum_below(x, bound, sign) if self._integral(x) else None

    def _divides(self, n: Operand) -> bool:
        """Whether a divisor is one number for the whole tile."""
        return (
            self._integral(n)
            and not self.intervals.nature(n).axes
            and self.intervals.nature(n).again
        )

    def _where_positive(self, n: Operand, region: Region | None) -> Region | None:
        """The region if the divisor is positive; nothing is known otherwise."""
        positive = self.fn("gt", self.intervals.copy(n), 0)
        if positive is True or region is None:
            return region
        if positive is False:
            return None
        e, may = self.fn, self.mode == "may"
        lo = None if region.lo is None else e("select", positive, region.lo, 0)
        hi = self.extent if region.hi is None else region.hi
        if may and region.hi is None:
            return replace(region, lo=lo)
        return Region(lo, e("select", positive, hi, self.extent if may else -1), region.exact)


def _empty(r: Region) -> bool:
    return r.lo is None and r.hi == -1
