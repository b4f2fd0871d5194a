"""Points of a loop nest, and values at them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilec.backends.cpu.vector import lanes_of


@dataclass(frozen=True)
class Point:
    """Local positions by axis; of the axis `vector` the first of `parts` vectors of consecutive ones."""

    at: Mapping[str, Any]
    vector: str | None = None
    parts: int = 1

    def on(self, axis: str, position: Any) -> Point:
        """The point with the position on one axis set."""
        return Point({**self.at, axis: position}, self.vector, self.parts)


@dataclass(frozen=True)
class Val:
    """One scalar, or a vector per part; `marks` says where it is an absent zero."""

    parts: tuple[Any, ...]
    marks: tuple[Any, ...] | None = None

    @property
    def uniform(self) -> bool:
        """Whether it is the same along the vector axis."""
        return lanes_of(self.parts[0]) == 0

    def part(self, n: int) -> Any:
        """The value for one part."""
        return self.parts[0] if self.uniform else self.parts[n]

    def mark(self, n: int) -> Any | None:
        """The mark for one part."""
        if self.marks is None:
            return None
        return self.marks[n if len(self.marks) > 1 else 0]


@dataclass(frozen=True)
class Window:
    """The stretch of an axis that the present tile covers: `count` positions from `first` on, at most `extent`.

    `scalar`: the tile holds one position, and the axis is in no type. `begin`: loops start at this position of it.
    """

    first: Any
    count: Any
    extent: int
    scalar: bool = False
    begin: Any = 0

    def at(self, begin: Any, count: Any) -> Window:
        """The window with its loops cut to the positions from `begin` to `count`."""
        return replace(self, begin=begin, count=count)
