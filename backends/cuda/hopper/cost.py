"""What a Hopper kernel should take: its windows through the pipeline of its warpgroups, its tiles over the multiprocessors.

In each window of a tile every computing warpgroup uses the tensor unit and then its own lanes; while it uses its lanes the
others may use the tensor unit. So a window takes what all of them need of the tensor unit in turn, or what one of them
needs of both, or what its copies need to arrive where few buffers hide that: about the longest of these, and a little more
where two are near each other. A tile's first window overlaps with nothing. Tiles are dealt out as the schedule says, and
the last multiprocessor ends the launch.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.hopper import misses, sections
from tilec.backends.cuda.hopper.plan import Plan, padded
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.slices import Slice
from tilec.ceilings import Ceilings
from tilec.scalar import Number
from tilec.traffic import Alike

LANES, SPECIAL = 128, 16
"""Operations per clock of a multiprocessor outside its tensor unit, and of exponentials and their kin."""
DEALT = 1 << 14
"""Tiles up to which dealing them out is followed one by one; of more, the uneven end counts little."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the ceilings do not say, in clocks: `turn`: a warpgroup's turn at the tensor unit beside its products;
    `window`: a warpgroup's waits in a window; `arrive`: from a free buffer to one that is full again, beside its bytes;
    `direct`: each result that is stored without shared memory. `intake`: bytes of a clock that a multiprocessor has from
    the last cache beside its other work. `launch`: seconds of a launch. `rate`: the share of the tensor unit's ceiling that
    lasts; `sharp`: the power with which bounds of a window add up (a large one: the longest alone)."""

    turn: float = 61.0
    window: float = 294.0
    arrive: float = 556.0
    direct: float = 0.01
    intake: float = 24.1
    launch: float = 3e-6
    rate: float = 0.98
    sharp: float = 10.0


def seconds(
    plan: Plan,
    tiles: Sequence[Alike],
    env: Mapping[str, Number],
    roof: Ceilings,
    weights: Weights = Weights(),
) -> float:
    """The time of one grid. `tiles`: its tiles, from its budget."""
    clock = _clock(roof)
    each = [(t.count, _tile(plan, t, roof, weights)) for t in tiles]
    clocks = dealt(each, ordered(plan, env), sections.heads(plan.structure, env), roof.workers)
    moved = sum(t.count * t.moved for t in tiles)
    memory = misses.memory_bytes(plan, tiles, env, roof) or 0
    taken = moved / (weights.intake * roof.workers)
    return weights.launch + max(clocks / clock, taken / clock, memory / roof.memory)


def _clock(roof: Ceilings) -> float:
    """The clocks of a second."""
    return roof.special / roof.workers / SPECIAL


def _tile(plan: Plan, t: Alike, roof: Ceilings, w: Weights) -> float:
    """The clocks of a tile on a multiprocessor."""
    s, c = plan.structure, plan.schedule
    if not t.windows:
        return w.window
    tensor, lanes = _tensor(plan, roof, w), _lanes(plan, t, w)
    ring = max(x.bytes for x in s.rings)
    bounds = (
        c.warpgroups * (tensor + w.turn),
        tensor + lanes if c.pingpong else c.warpgroups * tensor + lanes,
        c.warpgroups * (lanes - w.window),
        (w.arrive + ring / w.intake) / (c.stages - 1),
    )
    window = sum(x**w.sharp for x in bounds) ** (1 / w.sharp)
    stored = (
        ROWS * sum(Slice(x.width, c.slices).columns for x in s.slots) if c.store == "direct" else 0
    )
    return (t.windows - 1) * window + tensor * (1 + c.warpgroups) + lanes + stored * w.direct


def _tensor(plan: Plan, roof: Ceilings, w: Weights) -> float:
    """The clocks of a warpgroup's products of a window."""
    s, block = plan.structure, plan.structure.blocks[0]
    width = sum(padded(h.query.width) for h in block.heads) // (2 if plan.schedule.share else 1)
    width += sum(Slice(s.slots[x.slot].width, plan.schedule.slices).columns for x in block.tails)
    each = roof.matrix * w.rate / roof.workers / _clock(roof)
    return 2 * ROWS * plan.schedule.columns * width / each


def _lanes(plan: Plan, t: Alike, w: Weights) -> float:
    """The clocks of a warpgroup in a window outside the tensor unit: lanes begin operations, and wait for special ones."""
    c = plan.schedule
    scores = c.rows * c.columns * t.windows
    special, other = t.work["special"] / scores, t.work["fma"] / scores
    return ROWS * c.columns * ((special + other) / LANES + special / SPECIAL) + w.window


def ordered(plan: Plan, env: Mapping[str, Number]) -> tuple[int, int] | None:
    """The heads of a section and the late rows; None where tiles are dealt out as they come."""
    s, c = plan.structure, plan.schedule
    if c.order == "static":
        return None
    return sections.section(s, env, c.section), sections.late(s, env, c.late)


def dealt(
    tiles: Sequence[tuple[int, float]], order: tuple[int, int] | None, heads: int, workers: int
) -> float:
    """When the last worker ends: `tiles` are how many there are alike and how long each takes, row by row."""
    total = sum(n * t for n, t in tiles)
    count = sum(n for n, _ in tiles)
    if not count:
        return 0.0
    longest = max(t for _, t in tiles)
    if count > DEALT:
        return total / workers + longest / 2
    times = _times(tiles, order, heads)
    if order is None:
        return max(sum(times[w::workers]) for w in range(min(workers, len(times))))
    ends = [0.0] * min(workers, len(times))
    for t in times:
        heapq.heapreplace(ends, ends[0] + t)
    return max(ends)


def _times(
    tiles: Sequence[tuple[int, float]], order: tuple[int, int] | None, heads: int
) -> list[float]:
    """The times of all tiles in the order in which they are dealt out."""
    if len({n for n, _ in tiles}) > 1 or not heads:
        return [t for n, t in tiles for _ in range(n)]  # the heads differ: as they come
    rows, count = [t for _, t in tiles], tiles[0][0]
    if order is None:
        return rows * count
    return [t for _, t in sections.dealt(rows, count, *order)]
