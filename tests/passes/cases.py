"""Golden cases of a pass: input and output as IR text, and data to run both on.

A file `NAME.ir` holds cases, separated by a line `====`:

    # title; a step of a pipeline, as on the command line
    kernel …
    ----
    kernel …
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tilec import pipeline
from tilec.backends.reference.interpreter import run
from tilec.dtypes import kind
from tilec.ir import Kernel
from tilec.reader import read
from tilec.scalar import Number, evaluate
from tilec.text import show

SIZES = {"B": 2, "H": 2, "HK": 1, "M": 7, "N": 11, "D": 4, "E": 3}


@dataclass(frozen=True)
class Case:
    """One case of a file."""

    title: str
    step: str
    before: str
    after: str

    def kernel(self) -> Kernel:
        """The input."""
        (kernel,) = read(self.before)
        return kernel

    def passed(self) -> Kernel:
        """What the step makes of the input."""
        (step,) = pipeline.parse(self.step)
        return pipeline.apply(self.kernel(), step)

    def text(self, after: str) -> str:
        """The case as the file has it."""
        return f"# {self.title}; {self.step}\n{self.before}----\n{after}"


def load(path: Path) -> list[Case]:
    """The cases of a file."""
    return [_case(part) for part in path.read_text(encoding="utf-8").split("====\n")]


def _case(text: str) -> Case:
    head, _, rest = text.partition("\n")
    title, _, step = head.removeprefix("# ").rpartition("; ")
    before, _, after = rest.partition("----\n")
    return Case(title, step, before, after)


def data(kernel: Kernel, seed: int = 0) -> tuple[dict[str, np.ndarray], dict[str, Number]]:
    """Arrays and scalars for a kernel: floats are normal, integers small and sorted along the last axis."""
    rng = np.random.default_rng(seed)
    sizes: dict[str, Number] = {d: SIZES.get(d, 5) for d in kernel.dims}
    scalars: dict[str, Number] = {}
    for name, a in kernel.arguments.items():
        scalars[name] = 3 if a.default is None else evaluate(a.default, {**sizes, **scalars})
    arrays: dict[str, np.ndarray] = {}
    for name, t in kernel.tensors.items():
        shape = [int(evaluate(d, {**sizes, **scalars})) for d in t.dims]
        match kind(t.dtype):
            case "float":
                arrays[name] = rng.standard_normal(shape).astype(np.float32)
            case "int":
                arrays[name] = np.sort(rng.integers(0, 4, shape), axis=-1).astype(np.int32)
            case "bool":
                arrays[name] = rng.random(shape) < 0.4
    return arrays, scalars


def same(a: Kernel, b: Kernel, seed: int = 0) -> bool:
    """Whether two kernels give the same outputs for the same data."""
    arrays, scalars = data(a, seed)
    x, y = run(a, arrays, scalars).outputs, run(b, arrays, scalars).outputs
    return (
        all(np.allclose(x[n], y[n], 1e-9, 1e-9, equal_nan=True) for n in x) and x.keys() == y.keys()
    )


def finite(kernel: Kernel) -> bool:
    """Whether some output of a run is an ordinary number, so that comparing it says something."""
    arrays, scalars = data(kernel)
    return any(
        math.isfinite(v) for o in run(kernel, arrays, scalars).outputs.values() for v in o.flat
    )


def shown(kernel: Kernel) -> str:
    """The text of a kernel, with a newline at its end."""
    return show(kernel).rstrip("\n") + "\n"
