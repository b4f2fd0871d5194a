"""Calls of a CUDA kernel on GPU arrays: what must be made once, what once per layout, and what at each call."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.arrays import Array
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, launch, nvrtc, start
from tilec.backends.cuda.block import WORDS, WORKSPACE, Address
from tilec.backends.cuda.code import Called, Code, compiled
from tilec.backends.cuda.fast import HOPPER, NAMES, emitter, launcher, names
from tilec.backends.cuda.prepared import Part, Prepared, Step
from tilec.backends.cuda.start import Start, Whole, uncut
from tilec.backends.cuda.target import arch_of, chosen, fast_fields
from tilec.backends.cuda.untiled import Untiled
from tilec.cut import Before
from tilec.dtypes import SIZES
from tilec.errors import ArgumentError, ResourceError, UnsupportedError
from tilec.ir import Kernel
from tilec.outline import Tiles
from tilec.rows import Rows
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

    code: Called
    kernels: dict[int, launch.Kernel]


@dataclass(frozen=True)
class Case:
    """A call of some code: all sizes and scalars that this knows, and all tensors, intermediate ones last."""

    code: Called
    known: dict[str, Number]
    views: dict[str, call.View]


@dataclass
class Executable:
    """A kernel that runs on GPU arrays. The code is made for the device at the first call there; `arch` may be another
    one whose code the device can run."""

    tiles: Tiles
    arch: str | None
    emitter: str | None
    start: Start | None
    loaded: dict[object, Loaded] = field(default_factory=dict[object, Loaded])
    known: dict[object, Prepared] = field(default_factory=dict[object, Prepared])
    quick: dict[object, Called | str] = field(default_factory=dict[object, Any])
    whole: dict[object, Whole | None] = field(default_factory=dict[object, Any])

    @property
    def kernel(self) -> Kernel:
        """The outline of its tiles."""
        return self.tiles.outline.kernel

    @functools.cached_property
    def numbers(self) -> call.Numbers:
        """What a call tells of its sizes, whatever code it takes."""
        return call.Numbers(self.kernel)

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
            views = {n: a.bare() for n, a in arrays.items()}
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
        known = self.numbers.sizes(tensors, scalars)
        part = functools.partial(self.part, device, library, arrays)
        with self.general_ahead(device):
            fast = self.fast_case(device, known, arrays)
        if fast is None:
            parts = [part(case_of(self.general_code(device), known, arrays))]
        elif any(s.watched for s in fast.code.fast.values()):
            exact = case_of(self.general_code(device), known, arrays)
            parts = [part(fast), part(exact, redo=True)]
        else:
            parts = [part(fast)]
        return Prepared(device, library, parts)

    def part(
        self, device: int, library: str, arrays: Mapping[str, Array], case: Case, redo: bool = False
    ) -> Part:
        """What some code does. `redo`: it runs only where the fast kernels found that what is absent may have come into
        a result."""
        code, known, views = case.code, case.known, case.views
        loaded = self.load(device, library, code)
        places = {name: Address(n) for n, name in enumerate(arrays)}
        size = 0
        for name in [n for n in views if n not in arrays]:
            places[name] = Address(len(arrays), size)
            size += -(-math.prod(views[name].shape) * SIZES[views[name].dtype] // ALIGN) * ALIGN
        numbers = code.numbers.list(known, views)
        blocks = self.blocks(device, code, numbers, known, redo)
        places |= {WORKSPACE: Address(len(arrays), size), WORDS: Address(len(arrays) + 1)}
        size += max((blocks[n] * f.workspace for n, f in code.functions.items()), default=0)
        layout = code.layout_of_redo if redo else code.layout
        grids = range(code.numbers.grids)
        steps = tuple(Step(loaded.kernels[n], n, blocks[n]) for n in grids if blocks[n])
        return Part(steps, layout.contents(numbers, known, places, views), size)

    def blocks(
        self,
        device: int,
        code: Called,
        numbers: Sequence[int | float],
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
            tasks = numbers[code.numbers.index["tasks", str(n)]]
            out[n] = min(int(tasks), most)
        if code.fast:
            its = launcher(code.emitter)
            out |= {n: its.blocks(s, known, processors) for n, s in code.fast.items()}
        return out

    # ---- which code

    def fast_case(
        self, device: int, known: Mapping[str, Number], arrays: Mapping[str, Array]
    ) -> Case | None:
        """A call of the code of a fast emitter; None where it is not wanted or does not fit.

        Raises UnsupportedError where it was asked for and does not fit.
        """
        arch = self.arch or architectures.for_capability(launch.capability(device))
        if self.emitter == "simt":
            return None
        why = f"it makes code for {HOPPER} only"
        for name in names(arch):
            if self.emitter not in (None, name):
                continue
            found = self.try_fast(name, arch, device, known, arrays)
            if isinstance(found, Case):
                return found
            why = found
        if self.emitter in NAMES:
            raise UnsupportedError(
                f"target cuda: emitter={self.emitter} cannot run {self.kernel.name}: {why}; what works is emitter=simt"
            )
        return None

    def try_fast(
        self,
        name: str,
        arch: str,
        device: int,
        known: Mapping[str, Number],
        arrays: Mapping[str, Array],
    ) -> Case | str:
        """A call of the code of an emitter, or why there is none for these arrays."""
        start = self.start
        if start is None:
            return "its tiles are given"
        fixed = start.before.sizes  # those that the tiles hold as numbers
        sizes = {n: int(known[n] if n in known else fixed[n]) for n in start.before.header.dims}
        known = {**sizes, **known}
        code_for = self.fast_code(start, name, arch, device, sizes, known)
        case = settled(code_for, name, known, arrays)
        if isinstance(case, str):
            return case
        its = launcher(name)
        whys = (its.refusal(s, case.views, case.known) for s in case.code.fast.values())
        return next((w for w in whys if w), case)

    def fast_code(
        self,
        start: Start,
        name: str,
        arch: str,
        device: int,
        sizes: Mapping[str, int],
        known: Mapping[str, Number],
    ) -> Callable[[frozenset[str]], Called | str]:
        """What finds the code of an emitter, or why there is none, given the tensors that are copied element by element."""
        shared, processors = launch.shared(device), launch.processors(device)
        begun = functools.partial(start.untiled, sizes=sizes, shared=shared)
        shape = tuple(n if d in start.static else size_class(n) for d, n in sizes.items())
        form = (name, arch, shared, processors, *shape)
        if form not in self.whole:
            self.whole[form] = start.whole(form, lambda: uncut(begun(), arch, name, processors))
        whole = self.whole[form]
        workers = whole and whole.workers(known)

        def found(scattered: frozenset[str]) -> Called | str:
            key = (form, workers, scattered)
            if key not in self.quick:
                cut = functools.partial(begun, workers=workers, scattered=scattered)
                exact = (*form, workers, *sorted(scattered), self.emitter)
                self.quick[key] = start.code(exact, functools.partial(self.made, cut, arch, name))
            return self.quick[key]

        return found

    def made(self, begun: Callable[[], Untiled], arch: str, name: str) -> Code | str:
        """What a fast emitter makes; where the fields of the schedule are a hint and do not fit, without them."""
        from tilec.backends.cuda.generate import fast

        its, online = emitter(name), begun()
        found = fast(online, arch, its)
        if isinstance(found, str) and self.emitter is None and online.schedule:
            return fast(replace(online, schedule={}), arch, its)
        return found

    @contextmanager
    def general_ahead(self, device: int) -> Generator[None]:
        """While another code is made, the general one is compiled: most calls need it beside that, or instead of it."""
        if self.emitter == "simt" or ("simt", device) in self.loaded:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: compiled(self.general_code(device)))
            yield

    def general_code(self, device: int) -> Called:
        arch = self.arch or architectures.for_capability(launch.capability(device))
        key = ("simt", device)
        there = self.loaded.get(key)
        return there.code if there else start.general(self.tiles, arch)

    def load(self, device: int, library: str, code: Called) -> Loaded:
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


def settled(
    code_for: Callable[[frozenset[str]], Called | str],
    name: str,
    known: Mapping[str, Number],
    arrays: Mapping[str, Array],
) -> Case | str:
    """A call of code that copies element by element what these arrays do not hold in pieces, or why there is none."""
    its, scattered = launcher(name), frozenset[str]()
    while True:
        code = code_for(scattered)
        if isinstance(code, str):
            return code
        case = case_of(code, known, arrays)
        found = (its.in_pieces(s, case.views, case.known) for s in code.fast.values())
        more = scattered.union(*found)
        if more == scattered:
            return case
        scattered = more


def case_of(code: Called, known: Mapping[str, Number], arrays: Mapping[str, Array]) -> Case:
    """A call of some code. Its intermediate tensors are at no address yet."""
    known = code.numbers.completed(known)
    views: dict[str, call.View] = dict(arrays)
    for name, (dtype, shape) in code.numbers.buffers(known).items():
        strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
        views[name] = Array(0, dtype, shape, strides, None, "")
    return Case(code, known, views)


def _load(device: int, code: Called) -> Loaded:
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
    tiles: Tiles,
    target: str,
    schedule: Mapping[str, object] | None = None,
    before: Before | None = None,
    hint: bool = False,
    packed: Rows | None = None,
) -> Executable:
    """A kernel in tiles, ready to be called on arrays on a GPU. Raises ArgumentError for a schedule that is none.

    `hint`: a call that the schedule does not fit takes another one. `packed`: another axis in the rows of tiles.
    """
    arch = arch_of(target)
    name = chosen(schedule or {}, arch)
    name = None if hint and name in NAMES else name
    begun = before and Start(before, packed, fast_fields(schedule or {}, arch))
    return Executable(tiles, architectures.parse(target), name, begun)


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
