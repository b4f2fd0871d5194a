"""Programs on the emulated machine with mma.sync; the grids that do not fit it by the interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilec
from tests.backends.cuda.ampere import emulator
from tests.backends.cuda.hopper.running import completed
from tilec import pipeline, rows
from tilec.backends.cuda.ampere import compile as ampere
from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.untiled import Untiled
from tilec.ir import Kernel

ARCH = "sm_80"
SMALL = {"warps": 2, "height": 16, "columns": 32, "blocks": 1}
"""A schedule that the emulator is soon done with."""


def online(
    kernel: tilec.Kernel,
    dtype: str,
    sizes: Mapping[str, int],
    pieces: frozenset[str] = frozenset(),
    packed: bool = False,
    workers: int | None = None,
) -> Untiled:
    """A program before it is cut in tiles. `pieces`: tensors that are not copied 16 bytes at a time. `packed`: heads that
    share their keys are the rows. `workers`: the keys are cut in pieces for so many."""
    ir = kernel._versions.for_types(dict.fromkeys(kernel._source.untyped, dtype)).lowered
    made = pipeline.run(ir, pipeline.tensor_pipeline())
    heads = rows.choose(made, sizes, pipeline.target_of("cuda")) if packed else None
    assert (heads is not None) == packed
    return Untiled(made, sizes, heads, {}, workers, pieces)


def tiles(begun: Untiled, **changes: object) -> tuple[Kernel, dict[int, Source], dict[int, str]]:
    """A program in tiles under its default schedule, or a changed one; the sources of the grids that fit, and why others
    do not."""
    schedule: Schedule = next(ampere.schedules(begun, ARCH))
    schedule = dataclasses.replace(schedule, **changes)
    placed = ampere.tiles(begun, schedule)
    found = ampere.sources(begun, placed, schedule, ARCH)
    return (
        placed,
        {n: s for n, s in found.items() if not isinstance(s, str)},
        {n: s for n, s in found.items() if isinstance(s, str)},
    )


def run(
    kernel: tilec.Kernel,
    arrays: Mapping[str, Any],
    dtype: str,
    sizes: Mapping[str, int],
    *,
    seed: int = 1,
    scalars: Mapping[str, Any] | None = None,
    pieces: frozenset[str] = frozenset(),
    packed: bool = False,
    workers: int | None = None,
    **changes: object,
) -> tuple[dict[str, np.ndarray], bool]:
    """The outputs of a program, and whether a kernel asks for the exact one to run."""
    begun = online(kernel, dtype, sizes, pieces, packed, workers)
    placed, sources, why = tiles(begun, **changes)
    assert sources, why
    asked: list[bool] = []

    def launch(n: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        asked.append(emulator.run(sources[n], memory, known, seed=seed))

    out = completed(placed, sources, launch, arrays, {**sizes, **(scalars or {})})
    return out, any(asked)
