"""Accumulators that are wider than a group of threads has registers for: several groups have the same rows, and each a slice
of the columns of the values.

Each of them computes the scores and the weights of its rows for itself, from rows, keys and values that are in shared memory
once. A slice is whole slabs of 64 columns; where these cannot be divided evenly, neighbours have some in common, which both
write alike.
"""

from __future__ import annotations

from dataclasses import dataclass

SLAB = 64
"""The columns of a slab."""


@dataclass(frozen=True)
class Slice:
    """The part of an accumulator of `width` columns that one of `count` groups has."""

    width: int
    count: int

    @property
    def slabs(self) -> int:
        """Its slabs."""
        return -(-self._all // self.count)

    @property
    def columns(self) -> int:
        """Its columns, filled up to a product's."""
        return -(-self.width // 16) * 16 if self.count == 1 else self.slabs * SLAB

    @property
    def first_slab(self) -> str:
        """The number of its first slab in generated code, where `slice` says whose it is; empty where that is 0."""
        rest = self._all - self.slabs
        if rest == 0:
            return ""
        even = self.slabs * (self.count - 1) == rest
        place = f"slice * {self.slabs}"
        return place if even else f"least<int>({place}, {rest})"

    @property
    def _all(self) -> int:
        return -(-self.width // SLAB)


def named(group: str, groups: int, count: int) -> str:
    """The variables that say which rows one of the groups has, and which slice of the columns."""
    if groups == count:
        return f"const int team = 0, slice = {group};"
    return f"const int team = {group} / {count}, slice = {group} % {count};"
