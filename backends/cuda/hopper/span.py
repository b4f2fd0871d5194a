"""Conditions as stretches of columns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Period:
    """Stretches of positions, one in each `size` of them, from `low` up to `high`. `base`: the position of a thread's first
    column."""

    base: str
    low: str
    high: str
    size: str


@dataclass(frozen=True)
class Span:
    """A condition as the columns from each of `low` up to each of `high` that are in one of each of `unions`, in all
    `periods` and `words` of bits, and in none of `gaps`; where `others` hold, too. Only `others` change along a row. A word
    that differs from row to row is called `name[r]`."""

    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unions: tuple[tuple[Span, ...], ...] = ()
    words: tuple[str, ...] = ()
    periods: tuple[Period, ...] = ()
    gaps: tuple[Span, ...] = ()

    def both(self, other: Span) -> Span:
        """Where both conditions hold."""
        parts = ((getattr(self, n), getattr(other, n)) for n in self.__dataclass_fields__)
        return Span(*(tuple(dict.fromkeys(a + b)) for a, b in parts))

    def either(self, other: Span) -> Span | None:
        """Where one of two conditions holds; None where an element decides about one of them."""
        if self.others or other.others:
            return None
        plain = self.is_plain and other.is_plain
        if plain and not self.low and not other.low:
            return Span(high=(f"greatest<int>({least(self.high)}, {least(other.high)})",))
        if plain and not self.high and not other.high:
            return Span(low=(f"least<int>({greatest(self.low)}, {greatest(other.low)})",))
        return Span(unions=((self, other),))

    def complement(self) -> Span | None:
        """Where a condition does not hold; None where an element decides about that."""
        return None if self.others else Span(gaps=(self,))

    @property
    def is_plain(self) -> bool:
        """Whether it is one stretch."""
        return not (self.unions or self.words or self.periods or self.gaps)

    @property
    def some(self) -> bool:
        """Whether anything is known before an element is looked at."""
        return bool(self.low or self.high) or not self.is_plain

    def texts(self) -> Iterator[str]:
        """What its words are computed from."""
        yield from (*self.low, *self.high, *self.words)
        for p in self.periods:
            yield from (p.base, p.low, p.high, p.size)
        for union in (*self.unions, self.gaps):
            for span in union:
                yield from span.texts()


def least(texts: tuple[str, ...]) -> str:
    """The least of some integers."""
    return functools.reduce(lambda a, b: f"least<int>({a}, {b})", texts)


def greatest(texts: tuple[str, ...]) -> str:
    """The greatest of some integers."""
    return functools.reduce(lambda a, b: f"greatest<int>({a}, {b})", texts)
