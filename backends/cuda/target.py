"""The CUDA target: code for a kernel, and calls of it on GPU arrays.

Three emitters make the code. `hopper` is for grids that look like attention, on sm_90a; `ampere` for such on every GPU;
`simt` is for every grid on every GPU. Which one made a kernel is a field of its schedule and stands in the first line of its
text, with the reason where a faster one was not taken.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilec import __version__, cache, rows, scalar
from tilec.backend import Draft, Room
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, nvrtc
from tilec.backends.cuda.block import Layout
from tilec.backends.cuda.fast import HOPPER, NAMES, Emitter, Refused, emitter, makers
from tilec.backends.cuda.online import Online
from tilec.backends.cuda.simt.arguments import Arguments
from tilec.backends.cuda.simt.lower import Function, lower
from tilec.backends.cuda.source import complete
from tilec.errors import ArgumentError, ResourceError, UnsupportedError
from tilec.ir import Grid, Kernel
from tilec.scalar import Number
from tilec.target import CUDA

if TYPE_CHECKING:
    from tilec.ceilings import Ceilings
    from tilec.pipeline import Pipeline
    from tilec.traffic import Budget

EMITTERS = ("simt", *NAMES)
PATIENCE = 4
"""How many schedules are compiled before it is asked whether that leads anywhere."""
PROCESSORS = 132
"""The multiprocessors of a large GPU, for code that is made without one."""


@dataclass(frozen=True)
class Unit:
    """A text that is compiled as one."""

    text: str
    names: tuple[str, ...]


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
    arguments: Arguments
    fast: dict[int, Any] = field(default_factory=dict[int, Any])
    note: str = ""
    schedule: Any = None
    steps: Pipeline = ()

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
        struct = (self.arguments.parameter(redo),)
        its = emitter(self.emitter) if self.fast else None
        given = dict.fromkeys(self.functions, struct)
        given |= {n: its.parameters(s) for n, s in self.fast.items()} if its else {}
        return Layout(given, self.numbers.index)

    @functools.cached_property
    def text(self) -> str:
        """All texts, one after the other."""
        return "\n".join(u.text for u in self.units)

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


def chosen(schedule: Mapping[str, object], arch: str) -> str | None:
    """The emitter that a schedule names, for an architecture; where it has fields of the fast one, that; None for the best.

    Raises ArgumentError for other fields and values.
    """
    name = schedule.get("emitter")
    if name is not None and name not in EMITTERS:
        raise ArgumentError(f"schedule: emitter is {name!r}, expected one of {', '.join(EMITTERS)}")
    if fast_fields(schedule, arch) and name is None:
        return makers(arch)[0].name
    return None if name is None else str(name)


def fast_fields(schedule: Mapping[str, object], arch: str) -> dict[str, object]:
    """The fields of a schedule that are those of a fast emitter: of the one it names, or the best one for the architecture.

    Raises ArgumentError for those that are none.
    """
    out = {n: x for n, x in schedule.items() if n != "emitter"}
    name = schedule.get("emitter")
    if name == "simt" and out:
        raise ArgumentError(f"schedule: emitter simt has no field {next(iter(out))!r}")
    its = emitter(str(name)) if name in NAMES else makers(arch)[0]
    for n in out:
        if n not in its.fields():
            raise ArgumentError(
                f"schedule: target cuda:{arch} has no field {n!r}; it has emitter, {', '.join(its.fields())}"
            )
    its.check(out)
    return out


# ---- code


def general(kernel: Kernel, arch: str, note: str = "") -> Code:
    """The code that `simt` makes for a kernel in tiles (after place). Raises UnsupportedError for what it cannot do."""
    module = lower(kernel, architectures.shared_limit(arch))
    text = f"{_head(kernel, arch, 'simt', note)}\n{complete(module.text)}"
    unit = Unit(text, tuple(f.name for f in module.functions.values()))
    return Code(kernel, arch, "simt", (unit,), module.functions, module.arguments, {}, note)


@dataclass(frozen=True)
class Whole:
    """A kernel in tiles with no axis in pieces, and into how many pieces each streamed axis would be cut for so many
    multiprocessors."""

    numbers: call.Numbers
    pieces: tuple[scalar.Compiled, ...]
    processors: int

    def workers(self, known: Mapping[str, Number]) -> int | None:
        """For how many workers a streamed axis is cut: one for each multiprocessor, where there are fewer tiles."""
        from tilec.passes.split import cut

        return self.processors if cut(self.pieces, self.numbers.completed(known)) else None


def uncut(online: Online, arch: str, its: Emitter, processors: int) -> Whole | None:
    """The tiles of a fast emitter with no axis in pieces; None where no grid fits it."""
    from tilec.passes.split import pieces

    try:
        schedule = next(its.schedules(online, arch))
        kernel = its.tiles(replace(online, workers=None), schedule)
    except Refused:
        return None
    cut = pieces(kernel, its.cutting(schedule, processors))
    return Whole(call.Numbers(kernel), cut, processors)


def fast(online: Online, arch: str, its: Emitter, compiling: bool = True) -> Code | str:
    """The code that a fast emitter makes, with `simt` for the grids that do not fit it; or why none fits.

    Of several schedules it takes the first one whose kernels keep everything in registers; without `compiling` the first
    one whose plan does. Where smaller tiles do not help, it gives up.
    """
    reason = ""
    spilled: list[int] = []
    try:
        for schedule in its.schedules(online, arch):
            found = _fast(online, arch, its, schedule)
            if isinstance(found, str):
                reason = reason or found
                continue
            problem = _problem(found) if compiling else None
            if problem is None:
                return found
            reason = reason or problem[0]
            spilled.append(problem[1])
            if len(spilled) >= PATIENCE and 2 * spilled[-1] >= spilled[0]:
                break  # it is not the tiles that take the registers
    except Refused as e:
        return str(e)
    return reason


def _problem(code: Code) -> tuple[str, int] | None:
    """What keeps a fast kernel from being fast, as the compiler tells, and how many bytes of registers go to memory; None
    where there is nothing, or no compiler to ask."""
    try:
        nvrtc.version()
    except UnsupportedError:
        return None
    for unit in code.units:
        if unit.names[0] not in {s.name for s in code.fast.values()}:
            continue
        made = _compiled(unit.text, code.arch)
        use = made.usage[unit.names[0]]
        if use.spill_stores or use.spill_loads or use.stack:
            said = f"{code.note}: {use.spill_stores} bytes of registers go to memory"
            return said, use.spill_stores
        serial = [w for w in made.warnings if any(c in w for c in nvrtc.SERIALISED)]
        if serial:
            return f"{code.note}: {serial[0]}", 0
    return None


def _fast(online: Online, arch: str, its: Emitter, schedule: Any) -> Code | str:
    """The code under one schedule."""
    kernel = its.tiles(online, schedule)
    found = its.sources(online, kernel, schedule, arch)
    sources: dict[int, Any] = {n: s for n, s in found.items() if not isinstance(s, str)}
    reasons = [f"grid {n}: {s}" for n, s in found.items() if isinstance(s, str)]
    if not sources:
        return "; ".join(reasons)
    module = lower(kernel, architectures.shared_limit(arch), sources)
    head = _head(kernel, arch, its.name, f"schedule {schedule}")
    units = [Unit(f"{head}\n{s.text}", (s.name,)) for s in sources.values()]
    if module.functions:
        names = tuple(f.name for f in module.functions.values())
        text = f"{_head(kernel, arch, 'simt', '; '.join(reasons))}\n{complete(module.text)}"
        units.append(Unit(text, names))
    note = "; ".join([f"schedule {schedule}", *reasons])
    steps = its.steps(online, schedule)
    return Code(
        kernel,
        arch,
        its.name,
        tuple(units),
        module.functions,
        module.arguments,
        sources,
        note,
        schedule,
        steps,
    )


def _head(kernel: Kernel, arch: str, emitter: str, note: str) -> str:
    more = f"; {note}" if note else ""
    return f"// {kernel.name} for {arch}, made by tilec {__version__}, emitter {emitter}{more}".replace(
        "\n", " "
    )


def generate(
    kernel: Kernel,
    arch: str,
    name: str | None = None,
    online: Online | None = None,
    compiling: bool = True,
) -> Code:
    """The code for a kernel in tiles (after place), by an emitter or the best one.

    `compiling`: whether the compiler is asked if it keeps everything in registers. Raises ArgumentError where the emitter
    that is asked for cannot make it.
    """
    if name == "simt":
        return general(kernel, arch)
    reasons: list[str] = []
    for its in makers(arch):
        if name not in (None, its.name):
            continue
        found = "its tiles are given"
        if online is not None:
            found = fast(_decided(online, arch, its), arch, its, compiling)
        if isinstance(found, Code):
            return found
        reasons.append(f"{its.name}: {found}")
    if name is not None:
        why = reasons[0] if reasons else f"{name}: it makes code for {HOPPER} only"
        raise ArgumentError(
            f"schedule: emitter={name} cannot make {kernel.name}: {why.removeprefix(f'{name}: ')}"
        )
    return general(kernel, arch, "; ".join(f"not {r}" for r in reasons))


def compiled(code: Code) -> list[nvrtc.Compiled]:
    """The cubin of each unit, from the cache on disk where it is there. Units are compiled at the same time."""
    with ThreadPoolExecutor(len(code.units)) as pool:
        return list(
            pool.map(_compiled, [u.text for u in code.units], [code.arch] * len(code.units))
        )


def _compiled(text: str, arch: str) -> nvrtc.Compiled:
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


def code_for(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
    compiling: bool = True,
) -> Code:
    """The code of a kernel in tiles for a target; `cuda` means the GPU that is here. `compiling`: as for `generate`."""
    arch = arch_of(target)
    name = chosen(schedule or {}, arch)
    if online is not None:
        online = replace(online, schedule=fast_fields(schedule or {}, arch))
    return generate(kernel, arch, name, online, compiling)


def prepare(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
) -> None:
    """Compiles what a call would run into the cache on disk."""
    compiled(code_for(kernel, target, schedule, online and here(online, arch_of(target))))


def here(online: Online, arch: str) -> Online:
    """With the shared memory of the device that is here, where it can run code for the architecture: it may have more."""
    from tilec.backends.cuda import launch

    if not launch.available():
        return online
    device = launch.current_device()
    if not architectures.takes(arch, launch.capability(device)):
        return online
    return replace(online, shared=launch.shared(device))


def draft(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
) -> Draft:
    """The code of a kernel before the compiler has seen it. Raises ResourceError where the schedule does not fit."""
    try:
        before = online and here(online, arch_of(target))
        code = code_for(kernel, target, schedule, before, compiling=False)
    except ArgumentError as e:
        raise ResourceError(str(e)) from e
    lines = code.text.split("\n")
    text = "\n".join(x for x in lines if not x.startswith("//"))  # the first ones name the schedule
    return Draft(code.kernel, text, _model(code), _room(code))


def _room(code: Code) -> Room | None:
    """What the blocks of a kernel take, the largest of each; of grids that `simt` made nothing is known before compiling."""
    if not code.fast or not _all_fast(code):
        return None
    rooms = [emitter(code.emitter).room(s) for s in code.fast.values()]
    return Room(max(r.registers for r in rooms), max(r.shared for r in rooms))


def _model(code: Code) -> Callable[[Budget, Mapping[str, Number], Ceilings], float] | None:
    """The cost model of a kernel all of whose grids are fast; of others, nothing better is known than the general one."""
    cost = emitter(code.emitter).seconds if code.fast else None
    if cost is None or not _all_fast(code):
        return None

    def seconds(stated: Budget, env: Mapping[str, Number], roof: Ceilings) -> float:
        return sum(
            cost(s.plan, [t for t in stated.tiles if t.grid == n], env, roof)
            for n, s in code.fast.items()
        )

    return seconds


def _all_fast(code: Code) -> bool:
    return len(code.fast) == sum(isinstance(op, Grid) for op in code.kernel.body)


def memory_bytes(
    online: Online,
    target: str,
    schedule: Mapping[str, object],
    stated: Budget,
    env: Mapping[str, Number],
    roof: Ceilings,
) -> int | None:
    """The bytes that the tiles of a kernel, whose budget is stated, move to and from memory; None where nothing is known
    about what they find in the last cache."""
    arch = arch_of(target)
    if arch != HOPPER or chosen(schedule, arch) not in (None, "hopper"):
        return None
    from tilec.backends.cuda.hopper import misses

    its = emitter("hopper")
    asked = replace(online, schedule=fast_fields(schedule, arch))
    code = fast(_decided(asked, arch, its), arch, its)
    if not isinstance(code, Code) or not _all_fast(code):
        return None
    found = [
        misses.memory_bytes(s.plan, [t for t in stated.tiles if t.grid == n], env, roof)
        for n, s in code.fast.items()
    ]
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def steps(online: Online, target: str, schedule: Mapping[str, object]) -> Pipeline:
    """The passes that cut a kernel into the tiles that run on a target; none where they are the default ones."""
    arch = arch_of(target)
    name = chosen(schedule, arch)
    online = replace(online, schedule=fast_fields(schedule, arch))
    for its in makers(arch):
        if name in (None, its.name):
            found = fast(_decided(online, arch, its), arch, its)
            if isinstance(found, Code):
                return found.steps
    return ()


def _decided(online: Online, arch: str, its: Emitter) -> Online:
    """With what a call would decide from its sizes, on a large GPU; scalars without a default decide nothing."""
    known = call.Numbers(online.kernel).completed(online.sizes)
    if any(n not in known for a in online.kernel.axes for n in scalar.names(a.extent)):
        return online
    packed = online.packed or rows.choose(online.kernel, known, CUDA)
    online = replace(online, packed=packed)
    whole = uncut(online, arch, its, PROCESSORS)
    return replace(online, workers=whole and whole.workers(known))


def source(code: Code, form: str) -> str:
    """A code as text: `cuda`, `ptx` or `sass`."""
    if form == "cuda":
        return code.text
    if form == "ptx":
        return "\n".join(nvrtc.ptx(u.text, code.arch) for u in code.units)
    return "\n".join(nvrtc.sass(c.cubin) for c in compiled(code))


def arch_of(target: str) -> str:
    """The architecture of a target; `cuda` means the GPU that is here."""
    return architectures.parse(target) or default_arch()


def default_arch(device: int = 0) -> str:
    """The architecture of a device; where there is none, that of an H100."""
    from tilec.backends.cuda import launch

    return architectures.for_capability(launch.capability(device)) if launch.available() else HOPPER
