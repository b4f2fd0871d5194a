"""What this package offers as an emitter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.backend import Room
from tilec.backends.cuda.hopper import compile as hopper
from tilec.backends.cuda.hopper import listing
from tilec.backends.cuda.hopper.cost import seconds
from tilec.backends.cuda.hopper.schedule import Schedule, changed
from tilec.backends.cuda.hopper.schedule import fields as fields_of
from tilec.backends.cuda.hopper.source import Source
from tilec.backends.cuda.untiled import Untiled
from tilec.ir import Kernel
from tilec.passes.split import Options
from tilec.pipeline import Pipeline

name = "hopper"


def fields() -> Mapping[str, str]:
    """The fields of a schedule and their types."""
    return fields_of(Schedule)


def check(fields: Mapping[str, object]) -> None:
    """Raises ArgumentError for fields that no schedule has."""
    changed(Schedule(), {n: x for n, x in fields.items() if n != "loader"})


def schedules(online: Untiled, arch: str) -> Iterator[Schedule]:
    """The schedules to try."""
    first = hopper.suggested(online.kernel, online.sizes, online.packed, online.scattered)
    if "warpgroups" in online.schedule:
        first = replace(first, blocks=1)  # as many as there is room for were for the default's
    return hopper.candidates(changed(first, online.schedule), online.schedule)


def tiles(online: Untiled, schedule: Schedule) -> Kernel:
    """The placed tile IR under a schedule."""
    return hopper.tiles(online.kernel, online.sizes, schedule, online.packed, online.workers)[0]


def steps(online: Untiled, schedule: Schedule) -> Pipeline:
    """The passes that make these tiles."""
    return hopper.steps(online.kernel, online.sizes, schedule, online.packed, online.workers)


def cutting(schedule: Schedule, processors: int) -> Options:
    """How a streamed axis is cut in pieces."""
    return hopper.cutting(processors, schedule)


def sources(
    online: Untiled, kernel: Kernel, schedule: Schedule, arch: str
) -> Mapping[int, Source | str]:
    """The sources of the grids, or why there are none."""
    return hopper.sources(kernel, schedule, online.scattered)


def room(source: Source) -> Room:
    """What a block of a kernel takes on chip."""
    return Room(source.plan.schedule.registers[1], source.plan.shared)


def show(source: Source) -> str:
    """The plan of a kernel as text."""
    return listing.show(source.plan)


__all__ = [
    "check",
    "cutting",
    "fields",
    "name",
    "room",
    "schedules",
    "seconds",
    "show",
    "sources",
    "steps",
    "tiles",
]
