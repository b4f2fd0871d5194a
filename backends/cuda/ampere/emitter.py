"""What this package offers as an emitter."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.backend import Room
from tilec.backends.cuda.ampere import plan
from tilec.backends.cuda.ampere.compile import cutting, schedules, sources, steps, tiles
from tilec.backends.cuda.ampere.cost import seconds
from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.hopper.schedule import changed
from tilec.backends.cuda.hopper.schedule import fields as fields_of

name = "ampere"


def fields() -> Mapping[str, str]:
    """The fields of a schedule and their types."""
    return fields_of(Schedule)


def check(fields: Mapping[str, object]) -> None:
    """Raises ArgumentError for fields that no schedule has."""
    changed(Schedule(), fields)


def room(source: Source) -> Room:
    """What a block of a kernel takes on chip."""
    return Room(source.plan.schedule.registers, source.plan.shared)


def show(source: Source) -> str:
    """The plan of a kernel as text."""
    return plan.show(source.plan)


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
