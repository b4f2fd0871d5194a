"""The CUDA target: what a schedule asks for, the code of a kernel under it, and what is known of that before it runs.

Three emitters make code. `hopper` is for grids that look like attention, on sm_90a; `ampere` for such on every GPU;
`simt` is for every grid on every GPU. Which one made a kernel is a field of its schedule and stands in the first line of its
text, with the reason where a faster one was not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backend import Draft, Room
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda.code import Code, compiled
from tilec.backends.cuda.fast import HOPPER, NAMES, emitter, makers
from tilec.backends.cuda.untiled import Untiled
from tilec.errors import ArgumentError, ResourceError
from tilec.ir import Kernel

if TYPE_CHECKING:
    from tilec.ceilings import Ceilings
    from tilec.pipeline import Pipeline
    from tilec.traffic import Budget

EMITTERS = ("simt", *NAMES)


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
    if not out:
        return out
    name = schedule.get("emitter")
    if name == "simt":
        raise ArgumentError(f"schedule: emitter simt has no field {next(iter(out))!r}")
    its = emitter(str(name)) if name in NAMES else makers(arch)[0]
    for n in out:
        if n not in its.fields():
            raise ArgumentError(
                f"schedule: target cuda:{arch} has no field {n!r}; it has emitter, {', '.join(its.fields())}"
            )
    its.check(out)
    return out


def code_for(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Untiled | None = None,
    compiling: bool = True,
) -> Code:
    """The code of a kernel in tiles for a target; `cuda` means the GPU that is here. `compiling`: as for `generate`."""
    from tilec.backends.cuda.generate import generate

    arch = arch_of(target)
    name = chosen(schedule or {}, arch)
    if online is not None:
        online = replace(online, schedule=fast_fields(schedule or {}, arch))
    return generate(kernel, arch, name, online, compiling)


def prepare(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Untiled | None = None,
) -> None:
    """Compiles what a call would run into the cache on disk."""
    compiled(code_for(kernel, target, schedule, online and here(online, arch_of(target))))


def here(online: Untiled, arch: str) -> Untiled:
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
    online: Untiled | None = None,
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
    if not code.fast or not code.all_fast:
        return None
    rooms = [emitter(code.emitter).room(s) for s in code.fast.values()]
    return Room(max(r.registers for r in rooms), max(r.shared for r in rooms))


def _model(code: Code) -> Callable[[Budget, Ceilings], float] | None:
    """The cost model of a kernel all of whose grids are fast; of others, nothing better is known than the general one."""
    cost = emitter(code.emitter).seconds if code.fast else None
    if cost is None or not code.all_fast:
        return None

    def seconds(stated: Budget, roof: Ceilings) -> float:
        return sum(
            cost(s.plan, [t for t in stated.tiles if t.grid == n], stated.known, roof)
            for n, s in code.fast.items()
        )

    return seconds


def memory_bytes(
    online: Untiled,
    target: str,
    schedule: Mapping[str, object],
    stated: Budget,
    roof: Ceilings,
) -> int | None:
    """The bytes that the tiles of a kernel, whose budget is stated, move to and from memory; None where nothing is known
    about what they find in the last cache."""
    arch = arch_of(target)
    if arch != HOPPER or chosen(schedule, arch) not in (None, "hopper"):
        return None
    from tilec.backends.cuda.generate import decided, fast
    from tilec.backends.cuda.hopper import misses

    its = emitter("hopper")
    asked = replace(online, schedule=fast_fields(schedule, arch))
    code = fast(decided(asked, arch, its), arch, its)
    if not isinstance(code, Code) or not code.all_fast:
        return None
    found = [
        misses.memory_bytes(s.plan, [t for t in stated.tiles if t.grid == n], stated.known, roof)
        for n, s in code.fast.items()
    ]
    known = [n for n in found if n is not None]
    return sum(known) if len(known) == len(found) else None


def steps(online: Untiled, target: str, schedule: Mapping[str, object]) -> Pipeline:
    """The passes that cut a kernel into the tiles that run on a target; none where they are the default ones."""
    from tilec.backends.cuda.generate import decided, fast

    arch = arch_of(target)
    name = chosen(schedule, arch)
    online = replace(online, schedule=fast_fields(schedule, arch))
    for its in makers(arch):
        if name in (None, its.name):
            found = fast(decided(online, arch, its), arch, its)
            if isinstance(found, Code):
                return found.steps
    return ()


def arch_of(target: str) -> str:
    """The architecture of a target; `cuda` means the GPU that is here."""
    return architectures.parse(target) or default_arch()


def default_arch(device: int = 0) -> str:
    """The architecture of a device; where there is none, that of an H100."""
    from tilec.backends.cuda import launch

    return architectures.for_capability(launch.capability(device)) if launch.available() else HOPPER
