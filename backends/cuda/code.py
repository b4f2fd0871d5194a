"""The code of a kernel in tiles: its texts, how its grids are launched, and what the compiler makes of it."""

from __future__ import annotations

import functools
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilec import cache, outline
from tilec.backends.cuda import call, nvrtc
from tilec.backends.cuda.block import Layout
from tilec.backends.cuda.fast import emitter, launcher
from tilec.backends.cuda.hopper import source as hopper
from tilec.backends.cuda.simt.arguments import Arguments, Function
from tilec.ir import Grid, Kernel

if TYPE_CHECKING:
    from tilec.pipeline import Pipeline


@dataclass(frozen=True)
class Unit:
    """A text that is compiled as one."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Called:
    """What a call needs of code. `kernel`: its tiles with nothing in the grids; `functions`: how the grids that `simt` made
    are launched, by number; `fast`: the same of those that `emitter` made. `note`: why a faster emitter did not make all of
    them."""

    kernel: Kernel
    arch: str
    emitter: str
    units: tuple[Unit, ...]
    functions: dict[int, Function]
    fast: dict[int, hopper.Facts]
    note: str

    @functools.cached_property
    def numbers(self) -> call.Numbers:
        """What its kernels are told at a call."""
        return call.Numbers(self.kernel)

    @functools.cached_property
    def layout(self) -> Layout:
        """The parameters of its kernels."""
        return self._layout(redo=False)

    @functools.cached_property
    def layout_of_redo(self) -> Layout:
        """The same, where they run only if fast kernels found that what is absent may have come into a result."""
        return self._layout(redo=True)

    def _layout(self, redo: bool) -> Layout:
        struct = (Arguments(self.kernel).parameter(redo),)
        its = launcher(self.emitter) if self.fast else None
        given = dict.fromkeys(self.functions, struct)
        given |= {n: its.parameters(s) for n, s in self.fast.items()} if its else {}
        return Layout(given, self.numbers.index)

    @functools.cached_property
    def text(self) -> str:
        """All texts, one after the other."""
        return "\n".join(u.text for u in self.units)


@dataclass(frozen=True)
class Code:
    """The code of a kernel in tiles for one architecture.

    `functions`: how the grids that `simt` made are launched, by number; `fast`: the sources of those that `emitter` made.
    `note`: why a faster emitter did not make all of them. `schedule`: that of the fast ones; `steps`: the passes that made
    the tiles of a kernel after `online` under it.
    """

    kernel: Kernel
    arch: str
    emitter: str
    units: tuple[Unit, ...]
    functions: dict[int, Function]
    fast: dict[int, Any] = field(default_factory=dict[int, Any])
    note: str = ""
    schedule: Any = None
    steps: Pipeline = ()

    @functools.cached_property
    def called(self) -> Called:
        """What a call needs of it."""
        fast = {n: s.facts for n, s in self.fast.items()}
        kernel = outline.bare(self.kernel)
        return Called(kernel, self.arch, self.emitter, self.units, self.functions, fast, self.note)

    @property
    def text(self) -> str:
        """All texts, one after the other."""
        return self.called.text

    @property
    def all_fast(self) -> bool:
        """Whether `emitter` made every grid."""
        return len(self.fast) == sum(isinstance(op, Grid) for op in self.kernel.body)

    @property
    def plans(self) -> tuple[str, ...]:
        """The plans of the fast kernels as text: which warps do what, in which order, with which waits."""
        return tuple(emitter(self.emitter).show(s) for s in self.fast.values())

    @property
    def summary(self) -> str:
        """Threads, shared memory and workspace of each kernel, in a line each."""
        lines = [
            f"{s.name}: {s.threads} threads, {s.shared:,} bytes of shared memory"
            for s in self.fast.values()
        ]
        for f in self.functions.values():
            more = f", {f.workspace:,} bytes of workspace per block" if f.workspace else ""
            lines.append(
                f"{f.name}: {f.threads} threads, {f.shared:,} bytes of shared memory{more}"
            )
        return "\n".join([*lines, *([self.note] if self.note else [])])


def compiled(code: Code | Called) -> list[nvrtc.Compiled]:
    """The cubin of each unit, from the cache on disk where it is there. Units are compiled at the same time."""
    with ThreadPoolExecutor(len(code.units)) as pool:
        return list(pool.map(image, [u.text for u in code.units], [code.arch] * len(code.units)))


def image(text: str, arch: str) -> nvrtc.Compiled:
    """The cubin of a text, from the cache on disk where it is there."""
    path = (
        cache.directory("cuda")
        / f"{cache.key(1, nvrtc.version(), nvrtc.options(arch), text)}.cubin"
    )

    def build() -> cache.Entry:
        made = nvrtc.compile(text, arch)
        used = {
            name: [u.registers, u.shared, u.stack, u.spill_stores, u.spill_loads]
            for name, u in made.usage.items()
        }
        return cache.Entry(made.cubin, json.dumps({"usage": used, "warnings": made.warnings}))

    entry = cache.cached(path, build)
    notes: dict[str, Any] = json.loads(entry.notes)
    usage = {name: nvrtc.Usage(*numbers) for name, numbers in notes["usage"].items()}
    return nvrtc.Compiled(entry.object, usage, tuple(notes["warnings"]))


def source(code: Code, form: str) -> str:
    """A code as text: `cuda`, `ptx` or `sass`."""
    if form == "cuda":
        return code.text
    if form == "ptx":
        return "\n".join(nvrtc.ptx(u.text, code.arch) for u in code.units)
    return "\n".join(nvrtc.sass(c.cubin) for c in compiled(code))
