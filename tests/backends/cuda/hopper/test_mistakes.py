"""The emulator notices plans that are wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from tests.backends.cuda.answers import prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tests.backends.cuda.hopper.mistakes import noticed, without
from tilec.backends.cuda.hopper import steps

pytestmark = needs_cpp

BROKEN: dict[str, Callable[[Any], bool]] = {
    "a value tile is read before it is there": lambda s: s == steps.Acquire("v", late=True),
    "a stage is never given back": lambda s: s == steps.Release("k"),
    "keys are overwritten while they are read": lambda s: (
        isinstance(s, steps.Settle) and s.pending == 1
    ),
    "weights are overwritten while they are read": lambda s: s == steps.Settle(0, ("tails",)),
    "rows are read before they are there": lambda s: s == steps.Query(True),
}


@pytest.mark.parametrize("mistake", BROKEN)
def test_mistakes_in_a_plan_are_noticed(mistake: str) -> None:
    sizes = {"B": 1, "H": 3, "M": 65, "N": 256, "D": 16, "E": 16}
    kernel, arrays = prepared("naive", "bf16", sizes)
    _, sources = running.tiles(kernel, "bf16", sizes, columns=16)
    plan = sources[0].plan
    mistaken = BROKEN[mistake]
    broken = dataclasses.replace(
        plan, begin=without(mistaken, plan.begin), steps=without(mistaken, plan.steps)
    )
    assert broken != plan
    noticed(broken, kernel, arrays, sizes, "bf16")
