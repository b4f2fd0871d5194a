"""What a kernel on mma.sync should take: its windows through the units of a multiprocessor that its blocks share.

A multiprocessor runs as many blocks as fit. In each window their warps need the tensor unit, their lanes, and what may be
the longest: shared memory, from which each warp reads all keys and values of the window, for 16 or 32 rows. So a window
takes about as long as the unit that is needed most, and more where others are nearly as busy. The warps of a block are
about as far as each other, so that the products of some do not hide what others compute; those of other blocks do.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.ampere.plan import Plan, fragment_registers, kept, padded
from tilec.backends.cuda.ampere.schedule import FILE
from tilec.backends.cuda.hopper.slices import Slice
from tilec.ceilings import Ceilings
from tilec.scalar import Number
from tilec.traffic import Alike

LANES, SPECIAL = 128, 16
"""Operations per clock of a multiprocessor outside its tensor unit, and of exponentials and their kin."""
SHARED = 128
"""The bytes per clock from shared memory."""
SYNC = 2560
"""The operations per clock that mma.sync reaches: what the tensor unit of Hopper has beyond is for wgmma."""
OTHERS = 48
"""Registers per thread beside those for tiles."""
BLOCK = 1024
"""The shared memory that each block takes for itself, in bytes."""
DEALT = 1 << 14
"""Tiles up to which dealing them out is followed one by one; of more, the uneven end counts little."""


@dataclass(frozen=True, slots=True)
class Weights:
    """What the ceilings do not say, in clocks: `tile`: what a tile takes beside its windows, and `edge`: for each byte of
    its rows and results. `launch`: seconds of a launch. `alone`: the share of what lanes compute that nothing of the same
    block hides. `sharp`: the power with which the units of a window add up (a large one: the longest alone)."""

    tile: float = 4000.0
    edge: float = 0.1
    launch: float = 3e-6
    alone: float = 1.0
    sharp: float = 2.5


@dataclass(frozen=True, slots=True)
class Units:
    """The clocks of a block in a window, by unit."""

    tensor: float
    shared: float
    lanes: float


def seconds(
    plan: Plan,
    tiles: Sequence[Alike],
    env: Mapping[str, Number],
    roof: Ceilings,
    weights: Weights = Weights(),
) -> float:
    """The time of one grid. `tiles`: its tiles, from its budget."""
    clock = roof.special / roof.workers / SPECIAL
    together = resident(plan, roof)
    each = [(t.count, _tile(plan, t, together, clock, roof, weights)) for t in tiles]
    clocks = dealt(each, roof.workers * together, plan.schedule.order == "longest")
    moved = sum(t.count * t.moved for t in tiles)
    return weights.launch + max(clocks / clock, moved / roof.cache)


def resident(plan: Plan, roof: Ceilings) -> int:
    """How many blocks a multiprocessor runs at once."""
    c = plan.schedule
    registers = min(c.registers, fragment_registers(plan.structure, c) + OTHERS)
    return max(
        1,
        min((roof.near + BLOCK) // (plan.shared + BLOCK), FILE // (c.threads * registers)),
    )


def _tile(plan: Plan, t: Alike, together: int, clock: float, roof: Ceilings, w: Weights) -> float:
    """The clocks of a tile while a multiprocessor runs so many of them."""
    beside = w.tile + w.edge * _edge(plan)
    if not t.windows:
        return beside
    u = units(plan, t, clock, roof)
    needed = (together * x for x in (u.tensor, u.shared, u.lanes))
    window = sum(x**w.sharp for x in needed) ** (1 / w.sharp)
    return t.windows * (window + w.alone * u.lanes / together) + beside


def _edge(plan: Plan) -> int:
    """The bytes of a tile's rows and results."""
    s = plan.structure
    widths = sum(q.width for q in s.queries) + sum(x.width for x in s.slots)
    return 2 * plan.busy * plan.schedule.height * widths


def units(plan: Plan, t: Alike, clock: float, roof: Ceilings) -> Units:
    """What a block needs of each unit in a window."""
    s, c, block = plan.structure, plan.schedule, plan.structure.blocks[0]
    heads = sum(padded(h.query.width) for h in block.heads)
    tails = sum(Slice(s.slots[x.slot].width, c.slices).columns for x in block.tails)
    rows = plan.busy * c.height
    rate = min(SYNC, roof.matrix / roof.workers / clock)
    tensor = 2 * rows * c.columns * (heads + tails) / rate
    read = plan.busy * 2 * c.columns * (heads + tails)
    read += 2 * rows * (heads - sum(kept(h.query, c) for h in block.heads))
    written = 2 * c.columns * sum(x.slabs * x.parts * 64 for x in s.rings)
    # per score, of those of all windows
    scores = s.rows * c.columns * t.windows
    special, other = t.work["special"] / scores, t.work["fma"] / scores
    lanes = rows * c.columns * ((special + other) / LANES + special / SPECIAL)
    return Units(tensor, (read + written) / SHARED, lanes)


def dealt(tiles: Sequence[tuple[int, float]], places: int, longest: bool) -> float:
    """When the last place ends: `tiles` are how many there are alike and how long each takes; a place takes the next one."""
    count = sum(n for n, _ in tiles)
    if not count:
        return 0.0
    if count > DEALT:
        return sum(n * t for n, t in tiles) / places + max(t for _, t in tiles) / 2
    order = [t for n, t in tiles for _ in range(n)]
    if longest:
        order.sort(reverse=True)
    ends = [0.0] * min(places, count)
    for t in order:
        heapq.heapreplace(ends, ends[0] + t)
    return max(ends)
