"""Programs on the emulated machine with mma.sync; the grids that do not fit it by the interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

import tilec
from tests.backends.cuda.ampere import emulator
from tests.backends.cuda.hopper.running import completed
from tilec import pipeline
from tilec.backends.cuda.ampere import compile as ampere
from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.ampere.source import Source
from tilec.ir import Kernel

ARCH = "sm_80"
SMALL = {"warps": 2, "height": 16, "columns": 32, "blocks": 1}
"""A schedule that the emulator is soon done with."""


def tiles(
    kernel: tilec.Kernel, dtype: str, sizes: Mapping[str, int], **changes: object
) -> tuple[Kernel, dict[int, Source], dict[int, str]]:
    """A program in tiles under its default schedule, or a changed one; the sources of the grids that fit, and why others
    do not."""
    ir = kernel._for_types(dict.fromkeys(kernel._source.untyped, dtype))
    online = pipeline.run(ir, pipeline.tensor_pipeline())
    schedule: Schedule = next(ampere.schedules(online, sizes, ARCH, {}))
    schedule = dataclasses.replace(schedule, **changes)
    placed = ampere.tiles(online, sizes, schedule)
    found = ampere.sources(placed, schedule, ARCH)
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
    **changes: object,
) -> tuple[dict[str, np.ndarray], bool]:
    """The outputs of a program, and whether a kernel asks for the exact one to run."""
    placed, sources, why = tiles(kernel, dtype, sizes, **changes)
    assert sources, why
    asked: list[bool] = []

    def launch(n: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        asked.append(emulator.run(sources[n], memory, known, seed=seed))

    out = completed(placed, sources, launch, arrays, {**sizes, **(scalars or {})})
    return out, any(asked)
