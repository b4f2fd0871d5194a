"""What the tile passes know of a target: how many rows and columns a tile should have, and how much it may hold."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Target:
    """A target as the tile passes see it. `cache` and `limit` are bytes per worker; None: unbounded.

    `rows` and `columns` are the default extents of the row axis and of a streamed axis, `elements` that of the last
    axis of a grid that reduces nothing. Default extents shrink until the tiles fit `cache`; rows only where tiles are
    larger by more than `over`, as half the rows read all that is streamed twice as often. What does not fit `limit` is
    an error. `narrow`: the columns of a tile that has no more rows than `lanes`. `near`: bytes of a window of one
    streamed operand, in the type of the arithmetic, that a core has next to it; the default columns are halved once
    where that makes it fit. `heights`: other rows that a tile may have. `memory`: bytes of the tiles of all workers. `fold`:
    the rows of a tile in which heads and positions may lie together. `once`: whether a factor that meets one other is read
    where it lies.
    """

    name: str
    lanes: int
    rows: int
    columns: int
    elements: int
    cache: int | None = None
    over: int = 0
    limit: int | None = None
    narrow: int | None = None
    near: int | None = None
    heights: tuple[int, ...] = ()
    memory: int | None = None
    fold: int | None = None
    once: bool = False

    def among(self, workers: int) -> Target:
        """The target as each of so many workers sees it: what is theirs together limits the tiles of each."""
        if self.cache is None or self.memory is None:
            return self
        share = self.memory // workers
        cache = min(self.cache, share)
        return replace(self, cache=cache, over=min(self.over, share - cache))


CPU = Target(
    "cpu",
    lanes=8,
    rows=128,
    columns=128,
    elements=1024,
    cache=1 << 20,
    over=256 << 10,
    limit=64 << 20,
    narrow=1024,
    near=28 << 10,
    heights=(32, 64, 256),
    memory=15 << 20,
)
REFERENCE = Target("reference", lanes=1, rows=128, columns=128, elements=1024)
CUDA = Target(
    "cuda", lanes=32, rows=64, columns=64, elements=1024, cache=96 << 10, fold=64, once=True
)
