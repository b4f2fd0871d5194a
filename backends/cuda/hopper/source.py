"""The source of a kernel: its text, and what is to be known to launch it."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from tilec.backends.cuda.hopper.plan import Plan
from tilec.backends.cuda.hopper.structure import Structure


@dataclass(frozen=True)
class CopyMap:
    """A tensor map argument: which dimension runs along the 64 columns, which along the rows of a box.

    `slabs`: the columns are cut into slabs of 64, as a dimension of their own, `box_slabs` of them per copy.
    """

    tensor: str
    feature: int
    row: int
    rows: int
    width: int
    slabs: bool


@dataclass(frozen=True)
class Parameter:
    """An argument of the kernel. `kind`: map, pointer, stride, dim, scalar, section, late, counter, redo."""

    kind: str
    name: str
    ctype: str
    map: CopyMap | None = None
    dim: int = 0


REDO = Parameter("redo", "redo", "u32* __restrict__")
"""The flag by which a kernel asks for the exact one to run."""


@dataclass(frozen=True)
class Launched:
    """A kernel's text, and how it is launched. `paired`: outputs that are written several elements at a time:
    along which dimension, and how many."""

    name: str
    text: str
    threads: int
    shared: int
    parameters: tuple[Parameter, ...]
    names: dict[str, str]
    structure: Structure
    paired: dict[str, tuple[int, int]]

    @functools.cached_property
    def watched(self) -> bool:
        """Whether the kernel may ask for another one that is exact about what is absent."""
        return self.structure.watched


@dataclass(frozen=True)
class Source(Launched):
    """A Hopper kernel with the plan that it was made from."""

    plan: Plan
