"""The CUDA target: code for a kernel, and calls of it on GPU arrays.

Two emitters make the code. `hopper` is for grids that look like attention, on sm_90a; `simt` is for every grid on every GPU.
Which one made a kernel is a field of its schedule and stands in the first line of its text, with the reason where the
faster one was not taken.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from tilec import __version__, cache, rows, scalar
from tilec.backend import Draft
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, nvrtc
from tilec.backends.cuda.simt.arguments import Arguments
from tilec.backends.cuda.simt.lower import Function, lower
from tilec.backends.cuda.source import complete
from tilec.errors import ArgumentError, ResourceError, UnsupportedError
from tilec.ir import Grid, Kernel
from tilec.rows import Rows
from tilec.scalar import Number
from tilec.target import CUDA

if TYPE_CHECKING:
    from tilec.backends.cuda.hopper.schedule import Schedule
    from tilec.ceilings import Ceilings
    from tilec.pipeline import Pipeline
    from tilec.traffic import Budget

EMITTERS = ("simt", "hopper")
HOPPER = "sm_90a"
PROCESSORS = 132
"""The multiprocessors of the largest GPU of that architecture, for code that is made without one."""


@dataclass(frozen=True)
class Online:
    """A kernel before it is cut in tiles (after the pass `online`), the sizes it is for, and the fields of its schedule that
    are asked for: where the fast path begins. `packed`: another axis in the rows of its tiles. `workers`: the streamed axis
    is cut in pieces for so many. `scattered`: its tensors that no bulk copy can bring."""

    kernel: Kernel
    sizes: Mapping[str, int]
    packed: Rows | None = None
    schedule: Mapping[str, object] = field(default_factory=dict[str, object])
    workers: int | None = None
    scattered: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Unit:
    """A text that is compiled as one."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Code:
    """The code of a kernel in tiles for one architecture.

    `functions`: how the grids that `simt` made are launched, by number; `fast`: the sources of those that `hopper` made.
    `note`: why the faster emitter did not make all of them. `schedule`: that of the fast ones; `steps`: the passes that made
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
    schedule: Schedule | None = None
    steps: Pipeline = ()

    @property
    def text(self) -> str:
        """All texts, one after the other."""
        return "\n".join(u.text for u in self.units)

    @property
    def plans(self) -> tuple[str, ...]:
        """The plans of the fast kernels as text: which warpgroup does what, in which order, with which waits."""
        from tilec.backends.cuda.hopper.plan import show

        return tuple(show(s.plan) for s in self.fast.values())

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


def chosen(schedule: Mapping[str, object]) -> str | None:
    """The emitter that a schedule names, `hopper` where it has fields of that one, None for the best one.

    Raises ArgumentError for other fields and values.
    """
    fast_fields(schedule)
    emitter = schedule.get("emitter", "hopper" if schedule else None)
    if emitter is None:
        return None
    if emitter not in EMITTERS:
        raise ArgumentError(
            f"schedule: emitter is {emitter!r}, expected one of {', '.join(EMITTERS)}"
        )
    return str(emitter)


def fast_fields(schedule: Mapping[str, object]) -> dict[str, object]:
    """The fields of a schedule that are those of the emitter `hopper`. Raises ArgumentError for those that are none."""
    from tilec.backends.cuda.hopper.schedule import Schedule, changed, fields

    out = {n: x for n, x in schedule.items() if n != "emitter"}
    for name in out:
        if name not in fields():
            raise ArgumentError(
                f"schedule: target cuda has no field {name!r}; it has emitter, {', '.join(fields())}"
            )
    if out and schedule.get("emitter") == "simt":
        raise ArgumentError(f"schedule: emitter simt has no field {next(iter(out))!r}")
    changed(Schedule(), {n: x for n, x in out.items() if n != "loader"})
    return out


# ---- code


def general(kernel: Kernel, arch: str, note: str = "") -> Code:
    """The code that `simt` makes for a kernel in tiles (after place). Raises UnsupportedError for what it cannot do."""
    module = lower(kernel, architectures.shared_limit(arch))
    text = f"{_head(kernel, arch, 'simt', note)}\n{complete(module.text)}"
    unit = Unit(text, tuple(f.name for f in module.functions.values()))
    return Code(kernel, arch, "simt", (unit,), module.functions, module.arguments, {}, note)


Tiled = tuple[Kernel, "Schedule"]
"""A kernel in tiles, and the schedule that these are for."""


def uncut(online: Online) -> Tiled | None:
    """The tiles of the fast emitter with no axis in pieces; None where no grid fits it."""
    from tilec.backends.cuda.hopper import compile as hopper
    from tilec.backends.cuda.hopper.structure import Refused

    try:
        schedule = _schedule(online)
        return hopper.tiles(online.kernel, online.sizes, schedule, online.packed)
    except Refused:
        return None


def workers_for(whole: Tiled | None, known: Mapping[str, Number], processors: int) -> int | None:
    """For how many workers a streamed axis is cut in pieces: one for each multiprocessor, where there are fewer tiles."""
    from tilec.backends.cuda.hopper.compile import cutting
    from tilec.passes.split import few

    if whole is None:
        return None
    kernel, schedule = whole
    cut = few(kernel, call.completed(kernel, known), cutting(processors, schedule.rows))
    return processors if cut else None


def _schedule(online: Online) -> Schedule:
    """The default schedule with the fields that are asked for."""
    from tilec.backends.cuda.hopper import compile as hopper
    from tilec.backends.cuda.hopper.schedule import changed

    default = hopper.suggested(online.kernel, online.sizes, online.packed, online.scattered)
    if "warpgroups" in online.schedule:
        default = replace(default, blocks=1)  # as many as there is room for were for the default's
    return changed(default, online.schedule)


def fast(online: Online, compiling: bool = True) -> Code | str:
    """The code that `hopper` makes, with `simt` for the grids that do not fit it; or why none fits.

    Of several schedules it takes the first one whose kernels keep everything in registers; without `compiling` the first
    one whose plan does.
    """
    from tilec.backends.cuda.hopper import compile as hopper
    from tilec.backends.cuda.hopper.structure import Refused

    reason = ""
    try:
        schedule = _schedule(online)
        for candidate in hopper.candidates(schedule, online.schedule):
            found = _fast(online, candidate)
            if isinstance(found, str):
                return reason or found
            problem = _problem(found) if compiling else None
            if problem is None:
                return found
            reason = reason or problem
    except Refused as e:
        return str(e)
    return reason


def _problem(code: Code) -> str | None:
    """What keeps a fast kernel from being fast, as the compiler tells; None where there is no compiler to ask."""
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
            return f"{code.note}: {use.spill_stores} bytes of registers go to memory"
        serial = [w for w in made.warnings if any(c in w for c in nvrtc.SERIALISED)]
        if serial:
            return f"{code.note}: {serial[0]}"
    return None


def _fast(online: Online, schedule: Schedule) -> Code | str:
    """The code under one schedule."""
    from tilec.backends.cuda.hopper import compile as hopper

    kernel, _ = hopper.tiles(online.kernel, online.sizes, schedule, online.packed, online.workers)
    found = hopper.sources(kernel, schedule, online.scattered)
    sources = {n: s for n, s in found.items() if not isinstance(s, str)}
    reasons = [f"grid {n}: {s}" for n, s in found.items() if isinstance(s, str)]
    if not sources:
        return "; ".join(reasons)
    module = lower(kernel, architectures.shared_limit(HOPPER), sources)
    head = _head(kernel, HOPPER, "hopper", f"schedule {schedule}")
    units = [Unit(f"{head}\n{s.text}", (s.name,)) for s in sources.values()]
    if module.functions:
        names = tuple(f.name for f in module.functions.values())
        text = f"{_head(kernel, HOPPER, 'simt', '; '.join(reasons))}\n{complete(module.text)}"
        units.append(Unit(text, names))
    note = "; ".join([f"schedule {schedule}", *reasons])
    steps = hopper.steps(online.kernel, online.sizes, schedule, online.packed, online.workers)
    return Code(
        kernel,
        HOPPER,
        "hopper",
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
    emitter: str | None = None,
    online: Online | None = None,
    compiling: bool = True,
) -> Code:
    """The code for a kernel in tiles (after place), by an emitter or the best one.

    `compiling`: whether the compiler is asked if it keeps everything in registers. Raises ArgumentError where the emitter
    that is asked for cannot make it.
    """
    if emitter == "simt":
        return general(kernel, arch)
    if arch != HOPPER or online is None:
        reason = f"emitter hopper makes code for {HOPPER} only"
        found = reason
    else:
        found = fast(online, compiling)
    if isinstance(found, Code):
        return found
    if emitter == "hopper":
        raise ArgumentError(f"schedule: emitter=hopper cannot make {kernel.name}: {found}")
    return general(kernel, arch, f"not hopper: {found}" if arch == HOPPER else "")


def compiled(code: Code) -> list[nvrtc.Compiled]:
    """The cubin of each unit, from the cache on disk where it is there."""
    return [_compiled(unit.text, code.arch) for unit in code.units]


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
    arch = architectures.parse(target) or default_arch()
    emitter = chosen(schedule or {})
    if online is not None:
        online = replace(online, schedule=fast_fields(schedule or {}))
        if arch == HOPPER and emitter != "simt":
            online = _decided(online)
    return generate(kernel, arch, emitter, online, compiling)


def draft(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
) -> Draft:
    """The code of a kernel before the compiler has seen it. Raises ResourceError where the schedule does not fit."""
    try:
        code = code_for(kernel, target, schedule, online, compiling=False)
    except ArgumentError as e:
        raise ResourceError(str(e)) from e
    lines = code.text.split("\n")
    text = "\n".join(x for x in lines if not x.startswith("//"))  # the first ones name the schedule
    return Draft(code.kernel, text, _model(code))


def _model(code: Code) -> Callable[[Budget, Mapping[str, Number], Ceilings], float] | None:
    """The cost model of a kernel all of whose grids are fast; of others, nothing better is known than the general one."""
    if not _all_fast(code):
        return None
    from tilec.backends.cuda.hopper import cost

    def seconds(stated: Budget, env: Mapping[str, Number], roof: Ceilings) -> float:
        return sum(
            cost.seconds(s.plan, [t for t in stated.tiles if t.grid == n], env, roof)
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
    arch = architectures.parse(target) or default_arch()
    if arch != HOPPER or chosen(schedule) == "simt":
        return None
    from tilec.backends.cuda.hopper import misses

    code = fast(_decided(replace(online, schedule=fast_fields(schedule))))
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
    arch = architectures.parse(target) or default_arch()
    if arch != HOPPER or chosen(schedule) == "simt":
        return ()
    found = fast(_decided(replace(online, schedule=fast_fields(schedule))))
    return found.steps if isinstance(found, Code) else ()


def _decided(online: Online) -> Online:
    """With what a call would decide from its sizes, on the largest GPU; scalars without a default decide nothing."""
    known = call.completed(online.kernel, online.sizes)
    if any(n not in known for a in online.kernel.axes for n in scalar.names(a.extent)):
        return online
    packed = online.packed or rows.choose(online.kernel, known, CUDA)
    online = replace(online, packed=packed)
    return replace(online, workers=workers_for(uncut(online), known, PROCESSORS))


def source(code: Code, form: str) -> str:
    """A code as text: `cuda`, `ptx` or `sass`."""
    if form == "cuda":
        return code.text
    if form == "ptx":
        return "\n".join(nvrtc.ptx(u.text, code.arch) for u in code.units)
    return "\n".join(nvrtc.sass(c.cubin) for c in compiled(code))


def default_arch(device: int = 0) -> str:
    """The architecture of a device; where there is none, that of an H100."""
    from tilec.backends.cuda import launch

    return architectures.for_capability(launch.capability(device)) if launch.available() else HOPPER
