"""Plans with a mistake, for tests that the emulator notices it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda.answers import LIMIT, error, expected
from tests.backends.cuda.hopper import emulator
from tilec.backends.cuda.hopper import steps
from tilec.backends.cuda.hopper.emit import emit

Steps = tuple[Any, ...]


def without(unwanted: Callable[[Any], bool], steps: Steps) -> Steps:
    """Steps, and those inside them, without some."""
    return tuple(inside(unwanted, s) for s in steps if not unwanted(s))


def inside(unwanted: Callable[[Any], bool], s: Any) -> Any:
    """A step without some of those inside it."""
    if isinstance(s, (steps.Loop, steps.More)):
        return dataclasses.replace(s, steps=without(unwanted, s.steps))
    if isinstance(s, steps.First):
        return dataclasses.replace(s, shared=without(unwanted, s.shared))
    return s


def noticed(
    broken: Any, kernel: tilec.Kernel, arrays: dict[str, Any], sizes: dict[str, int], dtype: str
) -> None:
    """Runs a plan that is wrong until it hangs or gives a wrong result."""
    want = expected(kernel, arrays)[0]
    memory = {**arrays, "O": np.zeros(want.shape, arrays["V"].dtype)}
    for seed in range(20):
        try:
            emulator.run(emit(broken), memory, sizes, processors=1, seed=seed + 1)
        except RuntimeError:  # it hangs
            return
        if error(memory["O"], want) > LIMIT[dtype]:
            return
    pytest.fail("nothing was noticed")
