"""What a kernel on mma.sync should take, held against what an H200 showed."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import backend, ceilings
from tilec.traffic import budget

FULL = CAUSAL.replace(" if j <= i + N - M else -inf", "")
PLAIN = {"columns": 48, "query": "shared", "order": "static"}
HALF = {"columns": 48, "query": "half", "order": "longest"}
WIDE = {"warps": 8, "blocks": 1, "columns": 48, "stages": 2, "query": "shared", "order": "static"}
TIMES: tuple[tuple[str, int, int, Mapping[str, object], float], ...] = (
    (FULL, 256, 1024, PLAIN, 289.0),
    (FULL, 256, 1024, HALF, 304.0),
    (FULL, 256, 1024, WIDE, 264.0),
    (FULL, 256, 4096, PLAIN, 315.0),
    (FULL, 256, 4096, HALF, 338.0),
    (FULL, 256, 4096, WIDE, 289.0),
    (FULL, 256, 16384, HALF, 345.0),
    (CAUSAL, 256, 1024, HALF, 237.0),
    (FULL, 128, 1024, {}, 372.0),
    (FULL, 128, 4096, {}, 400.0),
    (CAUSAL, 128, 4096, {}, 366.5),
    (FULL, 64, 4096, {}, 367.9),
    (CAUSAL, 64, 4096, {}, 334.0),
)
"""TFLOPS of 16,384 positions with 2,048 features: the program, a head's features, its positions, and the schedule."""


def predicted(text: str, d: int, n: int, schedule: Mapping[str, object]) -> float:
    """The TFLOPS that a schedule should reach."""
    kernel = tilec.compile(text, target="cuda:sm_80")
    sizes = {"B": 16384 // n, "H": 2048 // d, "M": n, "N": n, "D": d, "E": d}
    known, scalars = kernel.environment(sizes)
    steps = dict(kernel.stages(dtype="bf16", sizes=known))
    found = backend.draft(steps["place"], "cuda:sm_80", schedule, (steps["online"], known))
    assert found.seconds is not None
    took = found.seconds(budget(found.kernel, known, scalars), ceilings.H200)
    return 4 * 16384 * 2048 * n / (2 if text == CAUSAL else 1) / took / 1e12


@pytest.mark.parametrize("k", range(len(TIMES)))
def test_kernels_take_about_what_was_measured(k: int) -> None:
    text, d, n, schedule, measured = TIMES[k]
    assert predicted(text, d, n, schedule) == pytest.approx(measured, rel=0.1)


def test_fewer_columns_are_slower() -> None:
    found = [predicted(FULL, 256, 1024, {"columns": c}) for c in (16, 32, 48)]
    assert found == sorted(set(found))


def test_rows_in_registers_are_faster() -> None:
    plain, half, wide = (predicted(FULL, 256, 4096, x) for x in (PLAIN, HALF, WIDE))
    assert half > 1.03 * plain > 1.03 * wide
