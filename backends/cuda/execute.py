"""Calls of a CUDA kernel on GPU arrays: what must be made once, what once per layout, and what at each call."""

from __future__ import annotations

import functools
import math
from collections.abc import Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.arrays import Array
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, launch, nvrtc
from tilec.backends.cuda.block import Address
from tilec.backends.cuda.fast import HOPPER, NAMES, Emitter, emitter, makers
from tilec.backends.cuda.prepared import Prepared, Step
from tilec.backends.cuda.target import (
    Code,
    Online,
    Tiled,
    arch_of,
    chosen,
    compiled,
    fast,
    fast_fields,
    general,
    uncut,
    workers_for,
)
from tilec.dtypes import SIZES
from tilec.errors import ArgumentError, ResourceError, UnsupportedError
from tilec.ir import Grid, Kernel
from tilec.scalar import Number

MOST_BLOCKS = 1 << 30
RESIDENT = 4
"""Blocks per multiprocessor where each needs a workspace of its own."""
IDLE = 2
"""Blocks per multiprocessor of a kernel that mostly looks at a flag: as many as are there at once, whatever they hold."""
ALIGN = 256
IN_TURN = 90
"""The first compute capability whose kernels can wait for the one before them."""
REMEMBERED = 64
"""How many different calls (layouts, scalars, addresses) a kernel remembers."""
SHORT = (64, 1024)
"""Where the default schedule of the fast emitters may change: it is one for all sizes up to a number, another one beyond."""


@dataclass(frozen=True)
class Loaded:
    """Code on one device: the kernels of the grids, by number."""

    code: Code
    kernels: dict[int, launch.Kernel]


@dataclass(frozen=True)
class Part:
    """What some code does in calls of one layout: its launches, and the scratch memory that it needs."""

    steps: tuple[Step, ...]
    size: int


@dataclass
class Executable:
    """A kernel that runs on GPU arrays. The code is made for the device at the first call there; `arch` may be another
    one whose code the device can run."""

    kernel: Kernel
    arch: str | None
    emitter: str | None
    online: Online | None
    loaded: dict[object, Loaded] = field(default_factory=dict[object, Loaded])
    known: dict[object, Prepared] = field(default_factory=dict[object, Prepared])
    quick: dict[object, Code | str] = field(default_factory=dict[object, Any])
    whole: dict[object, Tiled | None] = field(default_factory=dict[object, Any])

    @functools.cached_property
    def static(self) -> tuple[str, ...]:
        """The dimensions that a kernel must know when it is compiled."""
        from tilec.passes.specialise import static_dims

        if self.online is None:
            return ()
        packed = self.online.packed
        return (*static_dims(self.online.kernel), *(packed.dims if packed else ()))

    def __call__(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> None:
        """Runs the kernel on the current stream: reads `tensors`, writes `outputs`, both by name."""
        prepared = self.ready(tensors, scalars, outputs)
        prepared([a.pointer for a in (*tensors.values(), *outputs.values())])

    def ready(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> Prepared:
        """What is common to calls of this layout, made at the first one; a call takes the addresses in order."""
        arrays = {**tensors, **outputs}
        device, library = place_of(arrays)
        layout = tuple((a.shape, a.strides, a.pointer % 16) for a in arrays.values())
        key = (device, library, layout, tuple(map(repr, scalars.values())))
        found = self.known.get(key)
        if found is None:
            views = {n: replace(a, owner=None) for n, a in arrays.items()}
            with launch.on(device):
                found = self.prepare(device, library, tensors, scalars, views)
            while len(self.known) >= REMEMBERED:
                self.known.pop(next(iter(self.known)), None)
            self.known[key] = found
        return found

    def prepare(
        self,
        device: int,
        library: str,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        arrays: Mapping[str, Array],
    ) -> Prepared:
        known = call.sizes(self.kernel, tensors, scalars)
        part = functools.partial(self.part, device, library)
        with self.general_ahead(device):
            code = self.fast_code(device, known, arrays)
        parts = [part(code or self.general_code(device), known, arrays)]
        if code is not None and any(s.watched for s in code.fast.values()):
            parts.append(part(self.general_code(device), known, arrays, redo=True))
        steps = tuple(s for p in parts for s in p.steps)
        return Prepared(device, library, steps, max(p.size for p in parts))

    def part(
        self,
        device: int,
        library: str,
        code: Code,
        known: dict[str, Number],
        arrays: Mapping[str, Array],
        redo: bool = False,
    ) -> Part:
        """What some code does. `redo`: it runs only where the fast kernels found that what is absent may have come into
        a result."""
        loaded = self.load(device, library, code)
        known = call.completed(code.kernel, known)
        scratch, words = Address(len(arrays)), Address(len(arrays) + 1)
        places = {name: Address(n) for n, name in enumerate(arrays)}
        views, size = dict(arrays), 0
        for name, view in _buffers(code, known).items():
            views[name], places[name] = view, replace(scratch, plus=size)
            size += -(-math.prod(view.shape) * SIZES[view.dtype] // ALIGN) * ALIGN
        values = call.values(code.kernel, known, dict(views))
        blocks = self.blocks(device, code, values, known, redo)
        workspace = replace(scratch, plus=size)
        size += max((blocks[n] * f.workspace for n, f in code.functions.items()), default=0)
        asked = replace(words, plus=4) if redo else None
        struct = code.arguments.parameter(values, places, workspace, asked)
        given = dict.fromkeys(code.functions, (struct,))
        if code.fast:
            its = emitter(code.emitter)
            given |= {
                n: its.parameters(s, dict(views), known, places, words)
                for n, s in code.fast.items()
            }
        grids = range(sum(isinstance(op, Grid) for op in code.kernel.body))
        return Part(
            tuple(Step(loaded.kernels[n], blocks[n], given[n]) for n in grids if blocks[n]), size
        )

    def blocks(
        self,
        device: int,
        code: Code,
        values: call.Values,
        known: Mapping[str, Number],
        redo: bool,
    ) -> dict[int, int]:
        """The blocks of each grid's launch."""
        processors = launch.processors(device)
        out: dict[int, int] = {}
        for n, f in code.functions.items():
            most = RESIDENT * processors if f.workspace else MOST_BLOCKS
            if redo:
                most = min(most, IDLE * processors)
            out[n] = min(int(values["tasks", str(n)]), most)
        if code.fast:
            its = emitter(code.emitter)
            out |= {n: its.blocks(s, known, processors) for n, s in code.fast.items()}
        return out

    # ---- which code

    def fast_code(
        self, device: int, known: Mapping[str, Number], arrays: Mapping[str, Array]
    ) -> Code | None:
        """The code of a fast emitter; None where it is not wanted or does not fit.

        Raises UnsupportedError where it was asked for and does not fit.
        """
        arch = self.arch or architectures.for_capability(launch.capability(device))
        if self.emitter == "simt":
            return None
        why = f"it makes code for {HOPPER} only"
        for its in makers(arch):
            if self.emitter not in (None, its.name):
                continue
            found = self.try_fast(its, arch, device, known, arrays)
            if isinstance(found, Code):
                return found
            why = found
        if self.emitter in NAMES:
            raise UnsupportedError(
                f"target cuda: emitter={self.emitter} cannot run {self.kernel.name}: {why}; what works is emitter=simt"
            )
        return None

    def try_fast(
        self,
        its: Emitter,
        arch: str,
        device: int,
        known: Mapping[str, Number],
        arrays: Mapping[str, Array],
    ) -> Code | str:
        """The code of an emitter for these arrays, or why there is none."""
        if self.online is None:
            return "its tiles are given"
        fixed = self.online.sizes  # those that the tiles hold as numbers
        sizes = {n: int(known[n] if n in known else fixed[n]) for n in self.online.kernel.dims}
        shared, processors = launch.shared(device), launch.processors(device)
        online = replace(self.online, sizes=sizes, shared=shared)
        known = {**sizes, **known}
        shape = tuple(n if d in self.static else size_class(n) for d, n in sizes.items())
        form = (its.name, shared, *shape)
        if form not in self.whole:
            self.whole[form] = uncut(online, arch, its)
        workers = workers_for(self.whole[form], known, processors, its)
        scattered = frozenset[str]()
        while True:
            key = (form, workers, scattered)
            if key not in self.quick:
                cut = replace(online, workers=workers, scattered=scattered)
                self.quick[key] = self.made(cut, arch, its)
            code = self.quick[key]
            if isinstance(code, str):
                return code
            known = call.completed(code.kernel, known)
            views: dict[str, call.View] = {**arrays, **_buffers(code, known)}
            more = scattered.union(*(its.in_pieces(s, views) for s in code.fast.values()))
            if more == scattered:
                break
            scattered = more
        whys = (its.refusal(s, views, known) for s in code.fast.values())
        return next((w for w in whys if w), code)

    def made(self, online: Online, arch: str, its: Emitter) -> Code | str:
        """What a fast emitter makes; where the fields of the schedule are a hint and do not fit, without them."""
        found = fast(online, arch, its)
        if isinstance(found, str) and self.emitter is None and online.schedule:
            return fast(replace(online, schedule={}), arch, its)
        return found

    @contextmanager
    def general_ahead(self, device: int) -> Generator[None]:
        """While another code is made, the general one is compiled: most calls need it beside that, or instead of it."""
        with ThreadPoolExecutor(1) as pool:
            if self.emitter != "simt" and ("simt", device) not in self.loaded:
                pool.submit(lambda: compiled(self.general_code(device)))
            yield

    def general_code(self, device: int) -> Code:
        arch = self.arch or architectures.for_capability(launch.capability(device))
        key = ("simt", device)
        there = self.loaded.get(key)
        return there.code if there else general(self.kernel, arch)

    def load(self, device: int, library: str, code: Code) -> Loaded:
        """The code on a device. Raises ResourceError where it would have to be loaded in the midst of a capture."""
        key: object = ("simt", device) if code.emitter == "simt" else (code.text, device)
        if key not in self.loaded:
            if launch.capture(launch.stream(library, device)):
                raise ResourceError(
                    f"target cuda: {self.kernel.name} is not loaded yet, which cannot be done while a CUDA graph is being "
                    "captured; call it once before the capture, on arrays like these"
                )
            self.loaded[key] = _load(device, code)
        return self.loaded[key]


def size_class(n: int) -> int:
    """Which of the numbers of `SHORT` a size is beyond."""
    return sum(n > x for x in SHORT)


def _buffers(code: Code, known: Mapping[str, Number]) -> dict[str, Array]:
    """The intermediate tensors, at no address yet."""
    out: dict[str, Array] = {}
    for name, (dtype, shape) in call.buffers(code.kernel, known).items():
        strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        out[name] = Array(0, dtype, shape, strides, None, "")
    return out


def _load(device: int, code: Code) -> Loaded:
    number = launch.capability(device)
    wanted = {f.name: (n, f.threads, f.shared) for n, f in code.functions.items()}
    wanted |= {s.name: (n, s.threads, s.shared) for n, s in code.fast.items()}
    if architectures.runs_on(code.arch, number):
        images = [c.cubin for c in compiled(code)]
    elif architectures.translates_to(code.arch, number):
        images = [nvrtc.ptx(u.text, code.arch).encode() + b"\0" for u in code.units]
    else:
        raise UnsupportedError(
            f"target cuda:{code.arch}: device {device} is an sm_{number}, which cannot run it; what works is target='cuda'"
        )
    kernels: dict[int, launch.Kernel] = {}
    for unit, image in zip(code.units, images, strict=True):
        functions = [(name, *wanted[name][1:]) for name in unit.names]
        in_turn = architectures.capability(code.arch) >= IN_TURN
        made = launch.load(image, functions, code.note or f"emitter {code.emitter}", in_turn)
        kernels |= {wanted[k.name][0]: k for k in made}
    return Loaded(code, kernels)


def executable(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
    hint: bool = False,
) -> Executable:
    """A kernel in tiles, ready to be called on arrays on a GPU. Raises ArgumentError for a schedule that is none.

    `hint`: a call that the schedule does not fit takes another one.
    """
    arch = arch_of(target)
    name = chosen(schedule or {}, arch)
    name = None if hint and name in NAMES else name
    if online is not None:
        online = replace(online, schedule=fast_fields(schedule or {}, arch))
    return Executable(kernel, architectures.parse(target), name, online)


def place_of(arrays: Mapping[str, Array]) -> tuple[int, str]:
    """The device that all arrays are on, and the library of the first. Raises ArgumentError where they are on several."""
    first = next(iter(arrays.values()))
    for name, a in arrays.items():
        if a.device != first.device:
            raise ArgumentError(
                f"argument {name}: it is on CUDA device {a.device}, others on {first.device}; expected all on one device"
            )
    if first.device is None:
        raise ArgumentError(
            "target cuda: the arrays are in this computer's memory; move them to the GPU, or use target='cpu'"
        )
    return first.device, first.library
