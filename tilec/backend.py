"""What a backend is to the driver: a way to turn a kernel into something that runs on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tilec import gpu
from tilec.arrays import Array, view
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Kernel
from tilec.outline import Tiles
from tilec.pipeline import Pipeline
from tilec.scalar import Number

if TYPE_CHECKING:
    from tilec.ceilings import Ceilings
    from tilec.cut import Before
    from tilec.rows import Rows
    from tilec.traffic import Budget

TARGETS = ("cpu", "reference", "cuda")
"""The targets; `cuda` also as `cuda:sm_90a`, `cuda:sm_80` and so on."""

CPU_FORMS = ("llvm", "asm")
"""The forms of code for a CPU."""
GPU_FORMS = ("cuda", "ptx", "sass")
"""The forms of code for a GPU, as text."""

Online = tuple[Kernel, Mapping[str, int]]
"""A kernel before it is cut in tiles, and the sizes of a call."""

Launch = Callable[[Sequence[int]], None]
"""Runs a call that was made ready, given the addresses of its tensors and then of its outputs. Raises Stale."""


class Stale(Exception):
    """A call that was made ready cannot run as it is: it was cut for another number of threads than there are now."""


class Runner(Protocol):
    """Runs a kernel."""

    def __call__(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> None:
        """Runs it on tensors and scalars by name; writes the outputs."""
        ...

    def ready(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> Launch | None:
        """Decides all that does not depend on where the arrays are; None where nothing can be."""
        ...


WORKERS = "workers"
"""The schedule field that says for how many workers the streamed axis of few tiles is cut in pieces; 1: it is not."""


def check_target(target: str) -> None:
    """Raises ArgumentError for a name that is no target, UnsupportedError for an architecture that is too old."""
    if target in TARGETS:
        return
    if on_gpu(target):
        from tilec.backends.cuda import arch

        arch.parse(target)
        return
    raise ArgumentError(f"no target is called {target!r}; expected one of {', '.join(TARGETS)}")


def on_gpu(target: str) -> bool:
    """Whether a target runs on a GPU."""
    return target == "cuda" or target.startswith("cuda:")


def check_schedule(target: str | None, schedule: Mapping[str, object]) -> None:
    """Raises ArgumentError or UnsupportedError for schedule fields that a target does not have."""
    if not schedule:
        return
    if target is not None and on_gpu(target):
        from tilec.backends.cuda import target as cuda

        cuda.chosen(schedule, cuda.arch_of(target))
        return
    if target != "cpu":
        raise UnsupportedError(
            f"schedule: the target {target or 'of the arrays'} has no schedule fields ({', '.join(schedule)} given); "
            "what works is tile={'i': 128, 'j': 64}, or a target that has some: target='cpu', target='cuda'"
        )
    for name, x in schedule.items():
        if name != WORKERS:
            raise ArgumentError(f"schedule: target cpu has no field {name!r}; it has {WORKERS}")
        if not isinstance(x, int) or isinstance(x, bool) or x < 1:
            raise ArgumentError(f"schedule: {WORKERS} is {x!r}, expected a number from 1")


def workers(target: str, schedule: Mapping[str, object] | None = None) -> int | None:
    """For how many workers a streamed axis is cut in pieces where there are fewer tiles; None: it never is.

    Without a field of the schedule, two for each thread: then the last tile keeps no thread waiting long.
    """
    chosen = (schedule or {}).get(WORKERS)
    if chosen is not None:
        return int(str(chosen)) if chosen != 1 else None
    many = threads(target)
    return None if many is None else pieces(many)


def threads(target: str) -> int | None:
    """The threads that share a call now, where that decides how it is cut."""
    if target != "cpu":
        return None
    from tilec.backends.cpu import pool

    return pool.threads()


def pieces(threads: int) -> int | None:
    """For how many workers a streamed axis is cut in pieces on so many threads of a CPU; None: it is not."""
    return 2 * threads if threads > 1 else None


def schedule_space(target: str) -> dict[str, tuple[object, ...]]:
    """The schedule fields of a target that are worth searching, and their values."""
    if not on_gpu(target):
        return {}
    from tilec.backends.cuda import target as cuda

    if cuda.arch_of(target) != cuda.HOPPER:
        return {
            "warps": (4, 8),
            "height": (16, 32),
            "columns": (16, 32, 48, 64, 96, 128),
            "stages": (1, 2),
            "blocks": (1, 2),
        }
    return {
        "warpgroups": (2, 3, 4),
        "columns": (32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192),
        "stages": (2, 3),
        "order": ("static", "longest"),
        "store": ("tma", "direct"),
    }


def schedule_fields(target: str) -> tuple[str, ...]:
    """All schedule fields of a target."""
    if not on_gpu(target):
        return (WORKERS,) if target == "cpu" else ()
    from tilec.backends.cuda import target as cuda
    from tilec.backends.cuda.fast import makers

    return ("emitter", *makers(cuda.arch_of(target))[0].fields())


def prepare(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
) -> None:
    """Compiles a kernel in tiles into the cache on disk; a `runner` finds the code there. A GPU need not be present."""
    if on_gpu(target):
        from tilec.backends.cuda import target as cuda

        cuda.prepare(kernel, target, schedule, cuda.Untiled(*online) if online else None)
    elif target == "cpu":
        from tilec.backends.cpu.target import compile

        compile(kernel)


def tile_steps(
    online: Kernel, sizes: Mapping[str, int], target: str, schedule: Mapping[str, object]
) -> Pipeline:
    """The passes that cut a kernel (after `online`) into the tiles that run; none where they are the default ones."""
    if not on_gpu(target):
        return ()
    from tilec.backends.cuda import target as cuda

    return cuda.steps(cuda.Untiled(online, sizes), target, schedule)


@dataclass(frozen=True)
class Room:
    """What a block takes on chip: registers of each thread that computes, at most, and bytes of shared memory."""

    registers: int
    shared: int


@dataclass(frozen=True)
class Draft:
    """What would run, before it is compiled: its tiles, what tells its code from another's, and its own cost model, where
    the target has one: seconds from the kernel's budget and the ceilings. `room`: what it takes on
    chip, where that is known."""

    kernel: Kernel
    identity: object
    seconds: Callable[[Budget, Ceilings], float] | None = None
    room: Room | None = None


def draft(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
) -> Draft:
    """What `runner` would run. Raises ResourceError where the schedule does not fit the target."""
    if not on_gpu(target):
        return Draft(kernel, kernel)
    from tilec.backends.cuda import target as cuda

    return cuda.draft(kernel, target, schedule, cuda.Untiled(*online) if online else None)


def memory_bytes(
    online: tuple[Kernel, Mapping[str, int]],
    target: str,
    schedule: Mapping[str, object],
    stated: Budget,
    roof: Ceilings,
) -> int | None:
    """The bytes that the tiles of a kernel (whose budget is stated) move to and from memory, where it is known what they
    find in the last cache."""
    if not on_gpu(target):
        return None
    from tilec.backends.cuda import target as cuda

    return cuda.memory_bytes(cuda.Untiled(*online), target, schedule, stated, roof)


def see(name: str, x: Any, target: str) -> Array:
    """The description of the array given for an argument of a call on a target.

    Raises ArgumentError for an array that lives elsewhere.
    """
    return gpu.view(name, x) if on_gpu(target) else view(name, x)


def default_target() -> str:
    """The target of a command that names none."""
    from tilec.backends.cuda import launch

    return "cuda" if launch.available() else "cpu"


def target_of(devices: Mapping[str, str]) -> str:
    """The target for arrays that live on these devices (by argument): the device's own."""
    for name, device in devices.items():
        if device not in ("cpu", "cuda"):
            raise ArgumentError(
                f"argument {name} is on a device ({device}) that tilec has no target for; expected cpu or cuda"
            )
    return "cuda" if "cuda" in devices.values() else "cpu"


def runner(
    tiles: Tiles,
    target: str,
    schedule: Mapping[str, object] | None = None,
    before: Before | None = None,
    hint: bool = False,
    packed: Rows | None = None,
) -> Runner:
    """A kernel made ready to run. For `reference` any level will do, for the others it must be placed tiles.

    `before`: for targets that choose the tiles themselves. `hint`: a call that the schedule does not fit takes another one.
    `packed`: what is in the rows of a tile in place of the usual axis.
    """
    if on_gpu(target):
        from tilec.backends.cuda import execute

        return execute.executable(tiles, target, schedule, before, hint, packed)
    if target == "cpu":
        from tilec.backends.cpu.target import Executable

        return Executable(tiles)
    return _Reference(tiles.kernel)


@dataclass(frozen=True)
class _Reference:
    """The interpreter, which wants the arrays themselves."""

    kernel: Kernel

    def __call__(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> None:
        import numpy

        from tilec.backends.reference import interpreter

        arrays = {n: a.numpy() for n, a in tensors.items()}
        outcome = interpreter.run(self.kernel, arrays, scalars)
        with numpy.errstate(all="ignore"):
            for name, array in outputs.items():
                array.numpy()[...] = outcome.outputs[name]

    def ready(self, tensors: object, scalars: object, outputs: object) -> None:
        return None


def source(kernel: Kernel, form: str, placed: bool = False, processor: str | None = None) -> str:
    """The code that the CPU target makes for placed tiles: `llvm`, or `asm`. `placed`: the instructions of LLVM say which
    line of the program they come from. `processor`: another one than this machine's, by the width of its vectors.
    """
    from tilec.backends.cpu import jit
    from tilec.backends.cpu.lower import lower

    if processor is not None and processor not in jit.PROCESSORS:
        raise ArgumentError(
            f"processor is {processor!r}, expected one of {', '.join(jit.PROCESSORS)}; "
            "without one the code is for this machine"
        )
    machine = jit.PROCESSORS[processor] if processor else jit.host()
    text = lower(kernel, machine, placed=placed).text
    return text if form == "llvm" else jit.assembly(text, machine=machine)
