"""Conditions as stretches of columns."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A condition as the columns from each of `low` up to each of `high` that are in one of each of `unions`, and in all
    `words` of bits; where `others` hold, too. Only `others` change along a row. A word that differs from row to row is
    called `name[r]`."""

    low: tuple[str, ...] = ()
    high: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    unions: tuple[tuple[Span, ...], ...] = ()
    words: tuple[str, ...] = ()

    def both(self, other: Span) -> Span:
        """Where both conditions hold."""
        parts = ((getattr(self, n), getattr(other, n)) for n in self.__dataclass_fields__)
        return Span(*(tuple(dict.fromkeys(a + b)) for a, b in parts))

    def either(self, other: Span) -> Span | None:
        """Where one of two conditions holds; None where an element decides about one of them."""
        if self.others or other.others:
            return None
        plain = not (self.unions or other.unions or self.words or other.words)
        if plain and not self.low and not other.low:
            return Span(high=(f"greatest<int>({least(self.high)}, {least(other.high)})",))
        if plain and not self.high and not other.high:
            return Span(low=(f"least<int>({greatest(self.low)}, {greatest(other.low)})",))
        return Span(unions=((self, other),))

    @property
    def some(self) -> bool:
        """Whether anything is known before an element is looked at."""
        return bool(self.low or self.high or self.unions or self.words)

    def texts(self) -> Iterator[str]:
        """What its words are computed from."""
        yield from (*self.low, *self.high, *self.words)
        for union in self.unions:
            for span in union:
                yield from span.texts()


def least(texts: tuple[str, ...]) -> str:
    """The least of some integers."""
    return functools.reduce(lambda a, b: f"least<int>({a}, {b})", texts)


def greatest(texts: tuple[str, ...]) -> str:
    """The greatest of some integers."""
    return functools.reduce(lambda a, b: f"greatest<int>({a}, {b})", texts)
