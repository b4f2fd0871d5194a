"""Integers as sums of others, such as `2 * i + n - 1`: what cancels in a difference is gone before its ends are asked."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.dtypes import kind
from tilec.ir import Cast, Map, Operand
from tilec.nature import Values


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of integer values with literal coefficients, and a literal. Terms by canonical name."""

    terms: tuple[tuple[str, int], ...]
    constant: int

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor · other; terms that cancel are gone."""
        out = dict(self.terms)
        for name, c in other.terms:
            out[name] = out.get(name, 0) + factor * c
        return Linear(
            tuple((n, c) for n, c in out.items() if c), self.constant + factor * other.constant
        )


ZERO = Linear((), 0)


class Sums(Values):
    """The integers in sight of a place, as sums."""

    def linear(self, x: Operand) -> Linear:
        """An integer as a sum. What is no sum is a term."""
        if not isinstance(x, str):
            return Linear((), int(x)) if isinstance(x, int) else ZERO
        x = self.canonical(x)
        op = self.definitions.get(x)
        n = self.nature(x)
        if self.type_of(x).dtype == "bool" or (len(n.axes) == 1 and n.looks and n.again):
            return Linear(((x, 1),), 0)
        match op:
            case Map(fn="add", args=(a, b)) if self.integral(a, b):
                return self.linear(a).plus(self.linear(b))
            case Map(fn="sub", args=(a, b)) if self.integral(a, b):
                return self.linear(a).plus(self.linear(b), -1)
            case Map(fn="neg", args=(a,)) if self.integral(a):
                return ZERO.plus(self.linear(a), -1)
            case Map(fn="mul", args=(a, int() as c)) | Map(fn="mul", args=(int() as c, a)) if (
                self.integral(a)
            ):
                return ZERO.plus(self.linear(a), c)
            case Map(fn="shl", args=(a, int() as c)) if self.integral(a) and 0 <= c < 32:
                return ZERO.plus(self.linear(a), 1 << c)
            case Cast(x=a) if (
                self.integral(a) and kind(op.to) == "int" and self.type_of(a).dtype != "bool"
            ):
                return self.linear(a)
            case _:
                return Linear(((x, 1),), 0)

    def integral(self, *xs: Operand) -> bool:
        """Whether no operand is a float."""
        return all(kind(self.type_of(x).dtype) != "float" for x in xs)

    def difference(self, fn: str, a: Operand, b: Operand) -> Linear:
        """The sum that is at most 0 where the comparison of integers holds; for `eq`, exactly 0."""
        d = self.linear(a).plus(self.linear(b), -1)
        if fn in ("gt", "ge"):
            d = ZERO.plus(d, -1)
        return replace(d, constant=d.constant + 1) if fn in ("lt", "gt") else d

    def moves(self, x: Operand) -> bool:
        """Whether an integer is the position along one window, plus something that is fixed."""
        moving = [(n, c) for n, c in self.linear(x).terms if self.nature(n).axes]
        return (
            self.integral(x)
            and len(moving) == 1
            and moving[0][0] in self.windows
            and moving[0][1] == 1
        )
