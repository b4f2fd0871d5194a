"""The bytes that a Hopper kernel has from memory: what its tiles load, less what they find in the L2 cache.

A launch is played through, coarsely. Tiles are dealt out as the schedule says; each multiprocessor streams the keys of its
tile in chunks, from the rows' end on; the cache forgets what was touched longest ago. Three things decide how much of that
is read again, and were found by counting (`benchmarks/gpu_counters.py`):

- Each half of the cache keeps what its own multiprocessors read, so that the whole holds half of its size.
- Lines fall into sets, of which some overflow early and some late.
- Multiprocessors that begin side by side drift apart, as some windows take longer than others. What comes from memory
  takes longer, too: the first one that needs it waits, and the others catch up.
"""

from __future__ import annotations

import functools
import heapq
import math
import random
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.hopper import sections
from tilec.backends.cuda.hopper.plan import Plan
from tilec.ceilings import Ceilings
from tilec.scalar import Number
from tilec.traffic import Alike

HELD = 0.5
"""The share of the cache that holds different lines."""
UNEVEN, PARTS = 0.3, 5
"""How much more or less than on average a set is needed; the cache is taken as so many parts, from the least to the most."""
DRIFT = 8.0
"""How far a multiprocessor is off after streaming one position, at most; after n of them it is √n times that."""
LAUNCHES = 3
"""Launches that are played: where tiles may fall out of step, no two are alike."""
WAIT = 0.2
"""What a chunk from memory takes longer than one from the cache, as a share."""
BEGIN = 128
"""What a tile takes beside its positions, in positions."""
CHUNKS = 32
"""The chunks of the longest tile."""
TILES = 4096
"""Tiles that are followed; of more, the heads beyond do what those before them did."""


@dataclass(frozen=True)
class Row:
    """The tiles of one stretch of rows, one for each head: the chunks that one streams are from `first` up to `end`; its
    own bytes are its rows and its results."""

    first: int
    end: int
    own: int


@dataclass(frozen=True)
class Streams:
    """What the tiles of a grid stream, and how they are dealt out. `heads`: how many places there are on the other axes than
    the row axis, of which `alike` in a row share their keys; `chunk`: positions of a chunk; `each`: bytes of a position;
    `section`: heads that are dealt out together, the longest rows first; 0 where tiles are dealt out as they come. `late`:
    how many rows come after all sections."""

    heads: int
    alike: int
    rows: tuple[Row, ...]
    chunk: int
    each: int
    section: int
    workers: int
    late: int = 0

    def dealt(self, heads: int) -> Iterator[tuple[int, Row]]:
        """The tiles of some heads in the order in which they begin."""
        if not self.section:
            yield from ((h, r) for h in range(heads) for r in self.rows)
            return
        yield from sections.dealt(self.rows, heads, self.section, self.late)


class Cache:
    """A cache that forgets what was touched longest ago, in parts that hold more or less."""

    def __init__(self, size: float) -> None:
        middle = (PARTS - 1) / 2
        self.sizes = [size * HELD * (1 + 2 * UNEVEN * (n - middle) / PARTS) for n in range(PARTS)]
        self.parts = [OrderedDict[Hashable, int]() for _ in range(PARTS)]
        self.used = [0] * PARTS

    def touch(self, what: Hashable, size: int) -> float:
        """The share of some bytes that is not there; then it is."""
        missing = 0
        for n, part in enumerate(self.parts):
            if what in part:
                part.move_to_end(what)
                continue
            missing += 1
            part[what] = size
            self.used[n] += size
            while self.used[n] > self.sizes[n]:
                self.used[n] -= part.popitem(last=False)[1]
        return missing / PARTS


def memory_bytes(
    plan: Plan, tiles: Sequence[Alike], env: Mapping[str, Number], roof: Ceilings
) -> int | None:
    """The bytes that a grid reads from memory and writes to it; None where its tiles differ from head to head. `tiles`:
    those of its budget."""
    s = streams(plan, tiles, env, roof)
    return None if s is None else played(s, roof.far)


@functools.lru_cache(256)
def played(s: Streams, size: int) -> int:
    """The bytes that come from memory or go there, with a cache of a size."""
    whole = max(1, s.section or 1) * s.alike
    heads = min(s.heads, max(1, TILES // max(1, len(s.rows) * whole)) * whole)
    tiles = list(s.dealt(heads))
    own = sum(r.own for _, r in tiles)
    streamed = [_streamed(s, tiles, Cache(size), random.Random(n)) for n in range(LAUNCHES)]
    return round((own + sum(streamed) / LAUNCHES) * s.heads / heads)


def _streamed(
    s: Streams, tiles: Sequence[tuple[int, Row]], cache: Cache, chance: random.Random
) -> float:
    """The bytes of keys and values that come from memory."""
    jump = DRIFT * math.sqrt(s.chunk)
    size, total, dealt = s.chunk * s.each, 0.0, min(s.workers, len(tiles))
    busy = [(0.0, w, w, tiles[w][1].end) for w in range(dealt)]
    while busy:
        now, worker, at, chunk = busy[0]
        head, row = tiles[at]
        if chunk == row.end:
            cache.touch(at, row.own)
        if chunk > row.first:
            missing = cache.touch((head // s.alike, chunk), size)
            total += missing * size
            now += s.chunk * (1 + WAIT * missing) + jump * (2 * chance.random() - 1)
            heapq.heapreplace(busy, (now, worker, at, chunk - 1))
            continue
        at, dealt = (dealt, dealt + 1) if s.section else (at + s.workers, dealt)
        if at < len(tiles):
            heapq.heapreplace(busy, (now + BEGIN, worker, at, tiles[at][1].end))
        else:
            heapq.heappop(busy)
    return total


def streams(
    plan: Plan, tiles: Sequence[Alike], env: Mapping[str, Number], roof: Ceilings
) -> Streams | None:
    """What the tiles of a grid stream; None where they differ from head to head."""
    s, schedule = plan.structure, plan.schedule
    heads = sections.heads(s, env)
    if not heads or any(t.count % heads for t in tiles):
        return None
    longest = max((_positions(plan, t) for t in tiles), default=0)
    chunk = max(1, -(-longest // CHUNKS))
    return Streams(
        heads,
        sections.alike(s, env),
        tuple(_row(plan, t, chunk) for t in tiles for _ in range(t.count // heads)),
        chunk,
        sections.each(s),
        sections.section(s, env, schedule.section) if schedule.order == "longest" else 0,
        roof.workers * schedule.blocks,
        sections.late(s, env, schedule.late),
    )


def _positions(plan: Plan, t: Alike) -> int:
    """The positions that a tile streams."""
    return min(t.reach[1] - t.reach[0], t.windows * plan.schedule.columns)


def _row(plan: Plan, t: Alike, chunk: int) -> Row:
    positions, end = _positions(plan, t), -(-t.reach[1] // chunk)
    own = max(0, t.moved - positions * sections.each(plan.structure))
    return Row(max(0, end - -(-positions // chunk)), end, own)
