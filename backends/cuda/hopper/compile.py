"""From a kernel over whole tensors (after `online`) to Hopper sources: the passes, the schedule, the plan."""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from tilec.backends.cuda.hopper import plan as plans
from tilec.backends.cuda.hopper.emit import emit
from tilec.backends.cuda.hopper.schedule import Schedule, default
from tilec.backends.cuda.hopper.source import Source
from tilec.backends.cuda.hopper.structure import Refused, Structure, recognise
from tilec.ir import Edge, Grid, Kernel, Op, operands
from tilec.pipeline import Pipeline, module, step
from tilec.target import Target


def tiles(
    kernel: Kernel, sizes: Mapping[str, int], schedule: Schedule | None = None
) -> tuple[Kernel, Schedule]:
    """The placed tile IR of a kernel under a schedule, the default one of its shape if None.

    `kernel` is what `online` gives; `sizes` are all dimensions: those that must be known are fixed, the others choose the
    default. Raises Refused where no grid fits.
    """
    schedule = schedule or suggested(kernel, sizes)
    return tiled(specialised(kernel, sizes), schedule), schedule


def suggested(kernel: Kernel, sizes: Mapping[str, int], pieces: Collection[str] = ()) -> Schedule:
    """The default schedule for a kernel's shape. Raises Refused where no grid fits. `pieces`: see `sources`."""
    probe = tiled(specialised(kernel, sizes), Schedule(2, 128, relax=False))
    return _default(fitting(probe, pieces), sizes)


def candidates(schedule: Schedule) -> Iterator[Schedule]:
    """A schedule, and those to try where its kernel does not fit the registers."""
    yield schedule
    for loader in (40, 56):
        if schedule.warpgroups == 2 and loader > schedule.loader:
            yield replace(schedule, loader=loader)
    for part in (3 / 4, 1 / 2, 1 / 4):
        columns = int(schedule.columns * part) // 16 * 16
        if columns >= 16:
            yield replace(schedule, columns=columns, loader=max(40, schedule.loader))


def specialised(kernel: Kernel, sizes: Mapping[str, int]) -> Kernel:
    """The kernel with numbers for the dimensions that must be known."""
    specialise = importlib.import_module("tilec.passes.specialise")
    fixed = {d: sizes[d] for d in specialise.static_dims(kernel)}
    return specialise.specialise(kernel, specialise.Options(sizes=fixed))


def steps(kernel: Kernel, sizes: Mapping[str, int], schedule: Tiling) -> Pipeline:
    """The passes that `tiles` runs."""
    fixed = {d: sizes[d] for d in module("specialise").static_dims(kernel)}
    names = ("prune", "stage", *(["relax"] if schedule.relax else []), "place")
    return (
        step("specialise", sizes=fixed),
        step("tile", target=_target(schedule)),
        *(step(name) for name in names),
    )


def sources(
    kernel: Kernel, schedule: Schedule, pieces: Collection[str] = ()
) -> dict[int, Source | str]:
    """For each grid of a placed kernel, by its place among the grids: its source, or why it has none.

    `pieces`: tensors that no bulk copy can bring; the loading warps take their elements one by one or eight at a time.
    """
    out: dict[int, Source | str] = {}
    for n, op in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        try:
            out[n] = emit(plans.make(recognise(kernel, op, pieces), schedule))
        except Refused as e:
            out[n] = str(e)
    return out


class Tiling(Protocol):
    """What a schedule says about the tiles."""

    @property
    def rows(self) -> int: ...
    @property
    def columns(self) -> int: ...
    @property
    def relax(self) -> bool: ...


def tiled(kernel: Kernel, schedule: Tiling) -> Kernel:
    """The placed tile IR of a specialised kernel."""
    from tilec.passes.place import place
    from tilec.passes.prune import prune
    from tilec.passes.relax import relax
    from tilec.passes.stage import stage
    from tilec.passes.tile import Options, tile

    kernel = stage(prune(tile(kernel, Options(target=_target(schedule)))))
    return place(relax(kernel) if schedule.relax else kernel)


def _target(schedule: Tiling) -> Target:
    return Target(
        "cuda:sm_90a", lanes=32, rows=schedule.rows, columns=schedule.columns, elements=1024
    )


def fitting(kernel: Kernel, pieces: Collection[str] = ()) -> Structure:
    """The first grid of a placed kernel that fits. Raises Refused where none does."""
    reason = "it has no grid"
    for op in kernel.body:
        if isinstance(op, Grid):
            try:
                return recognise(kernel, op, pieces)
            except Refused as e:
                reason = str(e)
    raise Refused(reason)


def _default(s: Structure, sizes: Mapping[str, int]) -> Schedule:
    from tilec.scalar import evaluate

    width = max([t.width for t in (*s.queries, *s.rings)] + [x.width for x in s.slots])
    length = int(evaluate(s.kernel.extents[s.stream], sizes))
    rows = int(evaluate(s.kernel.extents[s.row], sizes))
    values = sum(x.width for x in s.slots)
    schedule = default(width, values, length, rows, uneven(s))
    if s.together:
        schedule = replace(schedule, loader=40)
    whole = s.loops[0].tile is None
    if whole:
        schedule = replace(schedule, columns=s.columns)
    computed = any(t.computed for t in (*s.queries, *s.rings))
    if schedule.warpgroups == 1 and (computed or not _fits(s, schedule)):
        schedule = replace(schedule, warpgroups=2, blocks=1)
    if computed:
        schedule = replace(schedule, warpgroups=2, columns=min(128, schedule.columns), loader=104)
    if whole:
        return replace(schedule, warpgroups=min(2, schedule.warpgroups), columns=s.columns)
    while schedule.columns > 16 and not _fits(s, schedule):
        schedule = replace(schedule, columns=schedule.columns // 2)
    return schedule


def _fits(s: Structure, schedule: Schedule) -> bool:
    """Whether there is room for what a schedule holds."""
    fragments = plans.fragment_registers(replace(s, columns=schedule.columns))
    if fragments + plans.RESERVE > schedule.registers[1]:
        return False
    return plans.memory_bytes(s, schedule) <= schedule.shared


def uneven(s: Structure) -> bool:
    """Whether how many windows a tile has depends on where its rows are."""
    defs: dict[str, Op] = {v.name: op for op in s.prologue for v in op.results}
    edges = {v.name for op in s.prologue if isinstance(op, Edge) for v in op.results}
    if s.chosen:
        return True
    todo = [x for f in s.loops for x in (f.start, f.stop) if isinstance(x, str)]
    seen: set[str] = set()
    while todo:
        x = todo.pop()
        if x in edges:
            return True
        if x not in seen and x in defs:
            seen.add(x)
            todo += [y for y in operands(defs[x]) if isinstance(y, str)]
    return False
