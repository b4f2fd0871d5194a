"""From a kernel over whole tensors (after `online`) to sources: the passes, the schedule, the plan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda.ampere import plan as plans
from tilec.backends.cuda.ampere.emit import emit
from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.hopper.compile import fitting, specialised, tiled, uneven
from tilec.backends.cuda.hopper.structure import Refused, Structure, recognise
from tilec.ir import Grid, Kernel


def tiles(kernel: Kernel, sizes: Mapping[str, int], schedule: Schedule) -> Kernel:
    """The placed tile IR of a kernel under a schedule. `kernel` is what `online` gives; `sizes` are all dimensions: those
    that must be known are fixed."""
    return tiled(specialised(kernel, sizes), schedule)


def suggested(kernel: Kernel, sizes: Mapping[str, int], arch: str) -> Schedule:
    """The default schedule for a kernel's shape. Raises Refused where no grid fits."""
    probe = tiled(specialised(kernel, sizes), Schedule(relax=False))
    return _default(fitting(probe), architectures.shared_limit(arch))


def candidates(schedule: Schedule) -> Iterator[Schedule]:
    """A schedule, and those to try where its kernel does not fit the registers."""
    yield schedule
    if schedule.query == "registers":
        yield replace(schedule, query="shared")
    for part in (3 / 4, 1 / 2, 1 / 4):
        columns = int(schedule.columns * part) // 16 * 16
        if columns >= 16:
            yield replace(schedule, columns=columns, query="shared")
    if schedule.height == 32:
        yield replace(schedule, height=16, query="shared")


def sources(kernel: Kernel, schedule: Schedule, arch: str) -> dict[int, Source | str]:
    """For each grid of a placed kernel, by its place among the grids: its source, or why it has none."""
    out: dict[int, Source | str] = {}
    limit = architectures.shared_limit(arch)
    for n, op in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        try:
            out[n] = emit(plans.make(recognise(kernel, op), schedule, limit))
        except Refused as e:
            out[n] = str(e)
    return out


def _default(s: Structure, limit: int) -> Schedule:
    """The first of some schedules, from the fastest for wide heads to the smallest, that fits."""
    width = max([t.width for t in (*s.queries, *s.rings)] + [x.width for x in s.slots])
    order = "longest" if uneven(s) else "static"
    narrow = any(t.width % 8 for t in (*s.queries, *s.rings))
    both = {h.key.name for h in s.blocks[0].heads} & {t.value.name for t in s.blocks[0].tails}
    base = Schedule(order=order, access="narrow" if narrow else "wide", stages=2 if both else 1)
    if s.loops[0].tile is None:
        base = replace(base, columns=s.columns)
    tried = [
        *([replace(base, query="registers")] if width <= 64 else []),
        base,
        replace(base, warps=8, height=16, blocks=1),
        replace(base, warps=4, height=16, blocks=1),
    ]
    for schedule in tried:
        columns = [schedule.columns] if s.loops[0].tile is None else [64, 32, 16]
        for n in columns:
            found = replace(schedule, columns=n)
            sized = replace(s, columns=n)
            registers = plans.fragment_registers(sized, found) + plans.RESERVE
            if registers <= found.registers and plans.memory_bytes(sized, found) <= limit:
                return found
    raise Refused("its tiles fit neither registers nor shared memory")
