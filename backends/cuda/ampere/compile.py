"""From a kernel over whole tensors (after `online`) to sources: the passes, the schedule, the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda.ampere import plan as plans
from tilec.backends.cuda.ampere.emit import emit
from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper import compile as hopper
from tilec.backends.cuda.hopper.alike import joined
from tilec.backends.cuda.hopper.analysis import HEAVY
from tilec.backends.cuda.hopper.compile import fitting, specialised, tiled
from tilec.backends.cuda.hopper.recognise import recognise
from tilec.backends.cuda.hopper.schedule import changed
from tilec.backends.cuda.hopper.sections import shared_along
from tilec.backends.cuda.hopper.structure import Structure
from tilec.backends.cuda.hopper.uneven import LATE, growing, uneven
from tilec.backends.cuda.untiled import Untiled
from tilec.ir import Grid, Kernel, Load, Map, Reduce, operands, walk
from tilec.passes.split import Options
from tilec.pipeline import Pipeline
from tilec.scalar import evaluate


def tiles(online: Untiled, schedule: Schedule) -> Kernel:
    """The placed tile IR of a kernel under a schedule."""
    return tiled(_specialised(online), schedule, online.packed, online.workers)


def _specialised(online: Untiled) -> Kernel:
    return specialised(online.kernel, online.sizes, online.packed)


def steps(online: Untiled, schedule: Schedule) -> Pipeline:
    """The passes that `tiles` runs."""
    return hopper.steps(online.kernel, online.sizes, schedule, online.packed, online.workers)


def cutting(schedule: Schedule, processors: int) -> Options:
    """How a streamed axis is cut in pieces for so many multiprocessors."""
    return hopper.cutting(processors, schedule)


def schedules(online: Untiled, arch: str) -> Iterator[Schedule]:
    """The schedules to try for a kernel, the best first, with the fields that are asked for.

    Raises Refused where no grid fits.
    """
    probe = tiled(_specialised(online), Schedule(relax=False), online.packed)
    limit = online.shared or architectures.shared_limit(arch)
    found = defaults(fitting(probe, online.scattered), online.sizes, limit)
    asked = dict.fromkeys(changed(x, online.schedule) for x in found)
    return iter(asked or [changed(Schedule(), online.schedule)])


def sources(
    online: Untiled, kernel: Kernel, schedule: Schedule, arch: str
) -> dict[int, Source | str]:
    """For each grid of a placed kernel, by its place among the grids: its source, or why it has none."""
    out: dict[int, Source | str] = {}
    limit = online.shared or architectures.shared_limit(arch)
    for n, op in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        try:
            out[n] = emit(plans.make(_structure(kernel, op, online), schedule, limit))
        except Refused as e:
            out[n] = str(e)
    return out


def _structure(kernel: Kernel, grid: Grid, online: Untiled) -> Structure:
    """The parts of a grid. Each block has two programs here, and one for first windows: two blocks are enough."""
    s = recognise(kernel, grid, online.scattered)
    return replace(s, blocks=joined(s.blocks, few=2)) if s.chosen else s


SHAPES: tuple[tuple[int, tuple[Mapping[str, Any], ...]], ...] = (
    (64, ({"query": "registers"}, {})),
    (128, ({"stages": 1},)),
    (256, ({"height": 16, "query": "half", "order": "longest"},)),
)
"""By width: how the rows lie over the warps where tiles fit so. Of wide rows half in registers is as much
as fits beside the sums; there heads in turn (`longest`) are faster even where all tiles are as long. At 128 a second
stage, which a newer GPU has room for, takes 2 percent."""
SMALLER: tuple[Mapping[str, Any], ...] = (
    {"height": 16},
    {"height": 16, "warps": 8, "blocks": 1},
    {"height": 16, "blocks": 1},
    {"height": 16, "warps": 2, "blocks": 1},
)
SLICED: tuple[Mapping[str, Any], ...] = tuple(
    {"height": 16, "blocks": 1, "warps": warps, "slices": slices}
    for slices in (2, 4)
    for warps in (8, 4)
)
"""How they lie where the columns of the values are more than a thread has registers for."""
WIDEST = 256
"""The columns of accumulators beyond which they are."""
COLUMNS = (64, 48, 32)
AT_ONCE = 48
"""The elements of a window that a thread can load beside its scores. The compiler loads all of them at once."""
BY_ROW = 128
"""The registers beside tiles where what is loaded of each row meets what is loaded of each column, each row has a
pointer to its numbers, or scores are compared twice."""
FULLEST = 224
"""The most registers for tiles and the carried values of rows: the others are for addresses and what is under way."""
FEW = 64
"""Rows up to which a tile has no more."""


def defaults(s: Structure, sizes: Mapping[str, int], limit: int) -> list[Schedule]:
    """The schedules whose tiles fit a multiprocessor, those that are fast where they do first, and those last beside whose
    tiles registers are likely to lack. `limit`: the shared memory that a block may ask for."""
    late = 2 * LATE if growing(s) else 0
    turns = uneven(s) or (s.rows > FEW and shared_along(s))
    base = Schedule(order="longest" if turns else "static", late=late)
    tiles = (*s.queries, *s.rings)
    width = max([t.width for t in tiles] + [x.width for x in s.slots])
    rows = min(s.rows, int(evaluate(s.kernel.extents[s.row], sizes)))
    # to compute a tile takes registers, too
    first = () if rows <= FEW or any(t.computed for t in tiles) else fastest(s, width)
    smaller = SLICED if sum(x.width for x in s.slots) > WIDEST else SMALLER
    tried = [(n, shape) for n in COLUMNS for shape in first]
    tried += [(n, shape) for shape in smaller for n in COLUMNS]
    tried += [(16, shape) for shape in smaller]
    if s.loops[0].tile is None:
        tried = [(s.columns, shape) for shape in (*first, *smaller)]
    found: list[Schedule] = []
    for columns, shape in tried:
        stages = (replace(base, **{"stages": n, **shape}, columns=columns) for n in (2, 1))
        found += [x for x in stages if fits(s, x, limit)][:1]
    return sorted(found, key=lambda x: not roomy(s, x))


def fastest(s: Structure, width: int) -> tuple[Mapping[str, Any], ...]:
    """How the rows lie over the warps where tiles fit so."""
    shapes = next((x for most, x in SHAPES if width <= most), ())
    heavy = any(isinstance(op, Map) and op.fn in HEAVY for b in s.blocks for op in walk(b.middle))
    return tuple(x for x in shapes if not heavy or "query" not in x)


def fits(s: Structure, schedule: Schedule, limit: int) -> bool:
    """Whether tiles fit the registers and as many blocks as the schedule says a multiprocessor."""
    sized = replace(s, columns=schedule.columns, rows=min(s.rows, schedule.rows))
    try:
        plan = plans.make(sized, schedule, limit)
    except Refused:
        return False
    return architectures.resident(limit, plan.shared) >= schedule.blocks


def roomy(s: Structure, schedule: Schedule) -> bool:
    """Whether a thread's registers are likely to hold all that it needs beside its tiles. A guess, which saves compiling
    what turns out not to fit."""
    tiles = plans.fragment_registers(s, schedule)
    rows = sum(not x.width for x in s.slots)
    if tiles + rows * schedule.held > FULLEST:
        return False
    elements = plans.elements(s)
    if elements and plans.scores(schedule) > AT_ONCE:
        return False
    if elements and schedule.query == "registers":
        return False
    # truth values become words of bits as they come
    numbers = [op for op in elements if op.result.type.dtype != "bool"]
    by_row = labelled(s) or any(s.row in op.index for op in numbers)
    return not (by_row or twice(s)) or tiles + BY_ROW <= schedule.registers


def twice(s: Structure) -> bool:
    """Whether scores are compared twice, for the weights and for a result of their own: they are kept in two forms."""
    return any(
        sum(isinstance(op, Reduce) and op.fn in ("max", "maxnum", "min") for op in walk(b.middle))
        > sum(h.init is None for h in b.heads)
        for b in s.blocks
    )


def labelled(s: Structure) -> bool:
    """Whether blocks load something of each column, and use what was loaded of each row before."""
    rows = {
        op.result.name
        for op in s.prologue
        if isinstance(op, Load) and op.result.type.axes == (s.row,)
    }
    used = any(rows.intersection(map(str, operands(op))) for b in s.blocks for op in walk(b.middle))
    return used and any(op.result.type.axes == (s.stream,) for op in plans.loads(s))
