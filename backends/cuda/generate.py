"""Makes the code for a kernel: by the emitter that is asked for, or by the fastest one that it fits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tilec import __version__, rows, scalar
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, nvrtc
from tilec.backends.cuda.code import Code, Unit, image
from tilec.backends.cuda.fast import HOPPER, Emitter, Refused, makers
from tilec.backends.cuda.simt.lower import lower
from tilec.backends.cuda.source import complete
from tilec.backends.cuda.start import uncut
from tilec.backends.cuda.untiled import Untiled
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Kernel
from tilec.target import CUDA

PATIENCE = 4
"""How many schedules are compiled before it is asked whether that leads anywhere."""
PROCESSORS = 132
"""The multiprocessors of a large GPU, for code that is made without one."""


def general(kernel: Kernel, arch: str, note: str = "") -> Code:
    """The code that `simt` makes for a kernel in tiles (after place). Raises UnsupportedError for what it cannot do."""
    module = lower(kernel, architectures.shared_limit(arch))
    text = f"{_head(kernel, arch, 'simt', note)}\n{complete(module.text)}"
    unit = Unit(text, tuple(f.name for f in module.functions.values()))
    return Code(kernel, arch, "simt", (unit,), module.functions, {}, note)


def fast(online: Untiled, arch: str, its: Emitter, compiling: bool = True) -> Code | str:
    """The code that a fast emitter makes, with `simt` for the grids that do not fit it; or why none fits.

    Of several schedules it takes the first one whose kernels keep everything in registers; without `compiling` the first
    one whose plan does. Where smaller tiles do not help, it gives up. Heads and positions that do not fit as one axis are
    two.
    """
    found = _first(online, arch, its, compiling)
    other = online.unfolded if isinstance(found, str) else None
    return fast(other, arch, its, compiling) if other else found


def _first(online: Untiled, arch: str, its: Emitter, compiling: bool) -> Code | str:
    """What `fast` gives, with the rows that are asked for."""
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
        made = image(unit.text, code.arch)
        use = made.usage[unit.names[0]]
        if use.spill_stores or use.spill_loads or use.stack:
            spilled = max(use.spill_stores, use.spill_loads, use.stack)
            said = f"{spilled} bytes of registers go to memory with schedule {code.schedule}"
            return said, use.spill_stores
        serial = [w for w in made.warnings if any(c in w for c in nvrtc.SERIALISED)]
        if serial:
            return f"{serial[0]} (with schedule {code.schedule})", 0
    return None


def _fast(online: Untiled, arch: str, its: Emitter, schedule: Any) -> Code | str:
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
    online: Untiled | None = None,
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
            found = fast(decided(online, arch, its), arch, its, compiling)
        if isinstance(found, Code):
            return found
        reasons.append(f"{its.name}: {found}")
    if name is not None:
        why = reasons[0] if reasons else f"{name}: it makes code for {HOPPER} only"
        raise ArgumentError(
            f"schedule: emitter={name} cannot make {kernel.name}: {why.removeprefix(f'{name}: ')}"
        )
    return general(kernel, arch, "; ".join(f"not {r}" for r in reasons))


def decided(online: Untiled, arch: str, its: Emitter) -> Untiled:
    """With what a call would decide from its sizes, on a large GPU; scalars without a default decide nothing."""
    known = call.Numbers(online.kernel).completed(online.sizes)
    if any(n not in known for a in online.kernel.axes for n in scalar.names(a.extent)):
        return online
    packed = online.packed or rows.choose(online.kernel, known, CUDA)
    online = replace(online, packed=packed)
    whole = uncut(online, arch, its.name, PROCESSORS)
    return replace(online, workers=whole and whole.workers(known))
