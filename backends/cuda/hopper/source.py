"""The source of a kernel: its text, and what is to be known to launch it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.hopper.sections import Late, Sections, late_rows, sections
from tilec.ir import Kernel
from tilec.outline import header
from tilec.scalar import Scalar

if TYPE_CHECKING:
    from tilec.backends.cuda.hopper.plan import Plan
    from tilec.backends.cuda.hopper.structure import Structure


@dataclass(frozen=True)
class CopyMap:
    """A tensor map argument: which dimension runs along the 64 columns, which along the rows of a box.

    `slabs`: the columns are cut into slabs of 64, as a dimension of their own. `even`: what must be a multiple of the rows.
    """

    tensor: str
    feature: int
    row: int
    rows: int
    width: int
    slabs: bool
    even: tuple[Scalar, ...] = ()


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
class Facts:
    """What a launch needs to know of a kernel, beside its code.

    `names`: those of the C text. `header`: of the program in tiles; `axes`: the tiles of its grid. `watched`: whether it may
    ask for another kernel that is exact about what is absent. `most`: its blocks on a multiprocessor; None: there is one for
    each tile. `paired`: outputs that are written several elements at a time: along which dimension, and how many. `wide`:
    tensors that are read or written 16 bytes at a time, and the dimension along which those lie.
    """

    name: str
    threads: int
    shared: int
    parameters: tuple[Parameter, ...]
    names: dict[str, str]
    header: Kernel
    axes: tuple[tuple[str, int], ...]
    sections: Sections | None
    late: Late | None
    watched: bool
    most: int | None
    paired: dict[str, tuple[int, int]]
    wide: dict[str, int]


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

    def known(self, most: int | None, wide: dict[str, int]) -> Facts:
        """What a launch needs to know of it."""
        s = self.structure
        most_of = {p.kind: p.dim for p in self.parameters if p.kind in ("section", "late")}
        return Facts(
            self.name,
            self.threads,
            self.shared,
            self.parameters,
            self.names,
            header(s.kernel),
            s.grid.axes,
            sections(s, most_of["section"]) if "section" in most_of else None,
            late_rows(s, most_of["late"]) if "late" in most_of else None,
            s.watched,
            most,
            self.paired,
            wide,
        )


@dataclass(frozen=True)
class Source(Launched):
    """A Hopper kernel with the plan that it was made from."""

    plan: Plan

    @functools.cached_property
    def facts(self) -> Facts:
        """What a launch needs to know of it."""
        return self.known(self.plan.schedule.blocks, {})
