"""The bytes that a Hopper kernel has from memory: what its tiles load, less what they find in the L2 cache.

As many tiles run at a time as there are multiprocessors: a *wave*, in the order in which tiles are dealt out. The tiles of a
wave that share keys stream them side by side, so that memory gives them once. What the wave before streamed is still
there if the cache holds all that is touched in between: what that wave streamed, its rows and its results. Otherwise each
line makes room just before it is needed again, and all comes from memory once more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.hopper.launch import section
from tilec.backends.cuda.hopper.plan import Plan
from tilec.backends.cuda.hopper.schedule import Schedule
from tilec.ceilings import Ceilings
from tilec.dtypes import SIZES
from tilec.ir import Kernel
from tilec.scalar import Number, evaluate
from tilec.traffic import Alike

HELD = 0.6
"""The share of the L2 cache that may be touched before a line that is needed again makes room. At 16384 positions of 16
causal heads of 128 in sections of 8, memory gives 614 MB: any share from 0.52 to 0.65 says 613."""


Wave = list[tuple[int, Alike]]


@dataclass(frozen=True)
class Streams:
    """What the tiles of a grid stream. `heads`: how many places there are on the other axes than the row axis; `rows`: the
    tiles of each; `each`: bytes of a position, of which a `share` differs from head to head."""

    heads: int
    rows: tuple[Alike, ...]
    each: int
    share: float

    def own(self, t: Alike) -> int:
        """The bytes of a tile that it does not stream."""
        return max(0, t.moved - (t.reach[1] - t.reach[0]) * self.each)

    def waves(self, schedule: Schedule, section: int, workers: int) -> Iterator[Wave]:
        """All tiles with their heads as they are dealt out, those that run at a time together. A section has waves of its
        own: what it streams, none before it did."""
        if schedule.order == "static":
            yield from _chunks([(h, t) for h in range(self.heads) for t in self.rows], workers)
            return
        for h in range(0, self.heads, section):
            heads = range(h, min(h + section, self.heads))
            yield from _chunks([(h, t) for t in reversed(self.rows) for h in heads], workers)


def _chunks(tiles: Wave, n: int) -> Iterator[Wave]:
    return (tiles[k : k + n] for k in range(0, len(tiles), n))


def memory_bytes(
    plan: Plan, tiles: Sequence[Alike], env: Mapping[str, Number], roof: Ceilings
) -> int | None:
    """The bytes that a grid reads from memory and writes to it; None where its tiles differ from head to head. `tiles`:
    those of its budget."""
    s = streams(plan, tiles, env)
    if s is None:
        return None
    total, before, touched = 0.0, dict[int, tuple[int, int]](), math.inf
    schedule, heads = plan.schedule, section(plan.structure, env, plan.schedule.section)
    for wave in s.waves(schedule, heads, roof.workers * schedule.blocks):
        reach = _reach(wave)
        held = before if touched <= HELD * roof.far else {}
        streamed = s.each * s.share * sum(b - a for a, b in reach.values())
        again = s.each * s.share * sum(_both(r, held.get(h, (0, 0))) for h, r in reach.items())
        own = sum(s.own(t) for _, t in wave)
        total += streamed - again + own
        before, touched = reach, streamed + own
    return round(total)


def streams(plan: Plan, tiles: Sequence[Alike], env: Mapping[str, Number]) -> Streams | None:
    """What the tiles of a grid stream; None where they differ from head to head."""
    s = plan.structure
    others = [
        -(-int(evaluate(s.kernel.extents[a], env)) // n) for a, n in s.grid.axes if a != s.row
    ]
    heads = math.prod(others)
    if not heads or any(t.count % heads for t in tiles):
        return None
    rows = tuple(t for t in tiles for _ in range(t.count // heads))
    each = sum(t.width * SIZES[t.dtype] for t in s.rings)
    positions = int(evaluate(s.kernel.extents[s.stream], env))
    names = {t.tensor for t in s.rings}
    known = [_bytes(s.kernel, n, env) for n in names if n in s.kernel.tensors]
    full = max(1, heads * positions * each)
    return Streams(
        heads, rows, each, min(1.0, sum(known) / full) if len(known) == len(names) else 1.0
    )


def _bytes(kernel: Kernel, tensor: str, env: Mapping[str, Number]) -> int:
    t = kernel.tensors[tensor]
    return SIZES[t.dtype] * math.prod(int(evaluate(d, env)) for d in t.dims)


def _reach(wave: Wave) -> dict[int, tuple[int, int]]:
    """From where to where the tiles of each head stream."""
    out: dict[int, tuple[int, int]] = {}
    for head, t in wave:
        if t.windows:
            a, b = out.get(head, t.reach)
            out[head] = min(a, t.reach[0]), max(b, t.reach[1])
    return out


def _both(x: tuple[int, int], y: tuple[int, int]) -> int:
    """The positions that two stretches share."""
    return max(0, min(x[1], y[1]) - max(x[0], y[0]))
