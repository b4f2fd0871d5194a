"""What a Hopper kernel should take: its windows through the pipeline of its warpgroups, its tiles over the multiprocessors.

In each window of a tile every computing warpgroup uses the tensor unit and then its own lanes; while it uses its lanes the
others may use the tensor unit. So a window takes what all of them need of the tensor unit, or what one of them needs of
both, whichever is longer; special functions and other instructions have their own bounds. A tile has a first window that
overlaps with nothing, and an end. Tiles are dealt out as the schedule says, and the last multiprocessor ends the launch.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.hopper.plan import Plan, padded
from tilec.backends.cuda.hopper.schedule import ROWS, THREADS, Schedule
from tilec.ceilings import Ceilings
from tilec.scalar import Number, evaluate
from tilec.traffic import Alike

LANES = 128
"""Operations per clock of a multiprocessor outside its tensor unit."""
DEALT = 1 << 14
"""Tiles up to which dealing them out is followed one by one; of more, the uneven end counts little."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Clocks beside what the ceilings say. `window`: of each window of a warpgroup; `issue`: how much longer lanes take than
    their operations; `first`: a first window over a later one; `tile`, `row`: of each tile, and of each of its rows and
    columns of results; `direct`: those of a store without shared memory. `launch`: seconds of a launch."""

    window: float = 250.0
    issue: float = 1.3
    first: float = 1.5
    tile: float = 1500.0
    row: float = 0.03
    direct: float = 0.02
    launch: float = 3e-6


def seconds(
    plan: Plan,
    tiles: Sequence[Alike],
    env: Mapping[str, Number],
    roof: Ceilings,
    weights: Weights = Weights(),
) -> float:
    """The time of one grid. `tiles`: its tiles, from its budget."""
    clock = roof.fma / roof.workers / LANES
    each = [(t.count, _tile(plan, t, roof, weights)) for t in tiles]
    clocks = dealt(each, plan.schedule, _heads(plan, env), roof.workers)
    moved = sum(t.count * t.moved for t in tiles)
    return weights.launch + max(clocks / clock, moved / roof.cache)


def _heads(plan: Plan, env: Mapping[str, Number]) -> int:
    """The tiles that differ in other axes than the row axis."""
    s, out = plan.structure, 1
    for axis, n in s.grid.axes:
        if axis != s.row:
            out *= -(-int(evaluate(s.kernel.extents[axis], env)) // n)
    return out


def _tile(plan: Plan, t: Alike, roof: Ceilings, w: Weights) -> float:
    """The clocks of a tile on a multiprocessor."""
    s, c = plan.structure, plan.schedule
    if not t.windows:
        return w.tile
    clock = roof.fma / roof.workers / LANES
    block = s.blocks[0]
    width = sum(padded(h.query.width) for h in block.heads)
    width += sum(padded(s.slots[x.slot].width) for x in block.tails)
    elements = ROWS * c.columns
    tensor = 2 * elements * width / (roof.matrix / roof.workers / clock)
    scores = c.rows * c.columns * t.windows
    special, other = t.work["special"] / scores, t.work["fma"] / scores
    slow = elements * special / (roof.special / roof.workers / clock)
    lanes = elements / THREADS * (special + other) * w.issue + slow + w.window
    busy = elements / LANES * (special + other) * w.issue
    window = max(c.warpgroups * tensor, tensor + lanes, c.warpgroups * slow, c.warpgroups * busy)
    if not c.pingpong:
        window = max(window, c.warpgroups * tensor + lanes / c.warpgroups)
    stored = ROWS * sum(padded(x.width) for x in s.slots)
    end = w.tile + stored * (w.row + (w.direct if c.store == "direct" else 0.0))
    return (t.windows - 1) * window + tensor * (1 + c.warpgroups) + w.first * lanes + end


def dealt(
    tiles: Sequence[tuple[int, float]], schedule: Schedule, heads: int, workers: int
) -> float:
    """When the last worker ends: `tiles` are how many there are alike and how long each takes, row by row."""
    total = sum(n * t for n, t in tiles)
    count = sum(n for n, _ in tiles)
    if not count:
        return 0.0
    longest = max(t for _, t in tiles)
    if count > DEALT:
        return total / workers + longest / 2
    order = _order(tiles, schedule, heads)
    if schedule.order == "static":
        return max(sum(order[w::workers]) for w in range(min(workers, len(order))))
    ends = [0.0] * min(workers, len(order))
    for t in order:
        heapq.heapreplace(ends, ends[0] + t)
    return max(ends)


def _order(tiles: Sequence[tuple[int, float]], schedule: Schedule, heads: int) -> list[float]:
    """The times of all tiles in the order in which they are dealt out."""
    if len({n for n, _ in tiles}) > 1 or not heads:
        return [t for n, t in tiles for _ in range(n)]  # the heads differ: as they come
    rows = [t for _, t in tiles]
    if schedule.order == "static":
        return rows * tiles[0][0]
    out: list[float] = []
    for start in range(0, tiles[0][0], schedule.section):
        width = min(schedule.section, tiles[0][0] - start)
        out += [t for t in reversed(rows) for _ in range(width)]
    return out
