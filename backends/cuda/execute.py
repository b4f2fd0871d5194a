"""Calls of a CUDA kernel on GPU arrays: what must be made once, what once per layout, and what at each call."""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.arrays import Array
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, launch, nvrtc
from tilec.backends.cuda.target import Code, Online, chosen, compiled, fast, fast_fields, general
from tilec.dtypes import SIZES
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Grid, Kernel
from tilec.scalar import Number

MOST_BLOCKS = 1 << 30
RESIDENT = 4
"""Blocks per multiprocessor where each needs a workspace of its own."""
ALIGN = 256
REMEMBERED = 256
"""How many different calls (layouts, scalars, addresses) a kernel remembers."""
SHORT = 1024
"""The default schedule of the fast emitter is one for sizes up to this, and another one beyond."""
WORKSPACE = " workspace"
"""The key of the workspace among the buffers; no tensor is called so."""


@dataclass(frozen=True)
class Loaded:
    """Code on one device: the kernels of the grids, by number."""

    code: Code
    kernels: dict[int, launch.Kernel]
    counters: dict[int, Any] = field(default_factory=dict[int, Any])

    def counter(self, stream: Any) -> int:
        """The address of a stream's words: what the fast kernels deal their tiles from, and the flag by which they ask for
        the exact ones to run, with the number of blocks of these that are done."""
        key = int(getattr(stream, "ptr", 0))
        if key not in self.counters:
            self.counters[key] = launch.cupy().zeros(3, "uint32")
        return int(self.counters[key].data.ptr)


@dataclass(frozen=True)
class Template:
    """What calls on arrays of one layout have in common: the argument struct, where the addresses go in it, the number
    of blocks of each kernel, and where each intermediate tensor lies in `size` bytes of scratch memory. `exact`: what
    runs where the fast kernels find that what is absent may have come into a result."""

    loaded: Loaded
    packed: bytes
    pointers: dict[str, int]
    blocks: dict[int, int]
    views: dict[str, Array]
    sizes: dict[str, Number]
    offsets: dict[str, int]
    size: int
    exact: Template | None = None
    fast_arguments: dict[object, dict[int, tuple[Any, ...]]] = field(
        default_factory=dict[object, Any]
    )


@dataclass
class Executable:
    """A kernel that runs on GPU arrays. The code is made for the device at the first call there; `arch` may be another
    one whose code the device can run."""

    kernel: Kernel
    arch: str | None
    emitter: str | None
    online: Online | None
    loaded: dict[object, Loaded] = field(default_factory=dict[object, Loaded])
    templates: dict[object, Template] = field(default_factory=dict[object, Template])
    quick: dict[object, Code | str] = field(default_factory=dict[object, Any])

    @functools.cached_property
    def static(self) -> tuple[str, ...]:
        """The dimensions that a kernel must know when it is compiled."""
        from tilec.passes.specialise import static_dims

        return static_dims(self.online.kernel) if self.online else ()

    def __call__(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> None:
        """Runs the kernel on the current stream: reads `tensors`, writes `outputs`, both by name."""
        arrays = {**tensors, **outputs}
        device, library = place_of(arrays)
        with launch.on(device):
            template = self.template(device, tensors, scalars, arrays)
            stream = launch.stream(library, device)
            memory, address = scratch(library, device, template.size)
            self.run(template, arrays, address, stream)
            if template.exact is not None:
                more, address = scratch(library, device, template.exact.size)
                redo = template.loaded.counter(stream) + 4
                self.run(template.exact, arrays, address, stream, redo)
                del more
            del memory

    def template(
        self,
        device: int,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        arrays: Mapping[str, Array],
    ) -> Template:
        """What is common to calls of this layout; made at the first one."""
        aligned = tuple(a.pointer % 16 == 0 for a in arrays.values())
        layout = tuple((a.shape, a.strides) for a in arrays.values())
        key = (device, layout, aligned, tuple(map(repr, scalars.values())))
        found = self.templates.get(key)
        if found is None:
            found = self.new_template(device, tensors, scalars, arrays)
            while len(self.templates) >= REMEMBERED:
                self.templates.pop(next(iter(self.templates)), None)
            self.templates[key] = found
        return found

    def new_template(
        self,
        device: int,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        arrays: Mapping[str, Array],
    ) -> Template:
        known = call.sizes(self.kernel, tensors, scalars)
        code = self.fast_code(device, known, arrays)
        if code is None:
            return self.template_of(device, self.general_code(device), known, arrays)
        made = self.template_of(device, code, known, arrays)
        if not any(s.watched for s in code.fast.values()):
            return made
        exact = self.template_of(device, self.general_code(device), known, arrays)
        most = RESIDENT * launch.processors(device)
        return replace(
            made, exact=replace(exact, blocks={n: min(b, most) for n, b in exact.blocks.items()})
        )

    def template_of(
        self, device: int, code: Code, known: dict[str, Number], arrays: Mapping[str, Array]
    ) -> Template:
        """The template of some code."""
        loaded = self.load(device, code)
        views, offsets, size = dict(arrays), dict[str, int](), 0
        for name, (dtype, shape) in call.buffers(code.kernel, known).items():
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            views[name] = Array(0, dtype, shape, strides, None, "")
            offsets[name] = size
            size += -(-math.prod(shape) * SIZES[dtype] // ALIGN) * ALIGN
        values = call.values(code.kernel, known, dict(views))
        blocks = self.blocks(device, code, values, known)
        offsets[WORKSPACE] = size
        size += max((blocks[n] * f.workspace for n, f in code.functions.items()), default=0)
        fields = code.arguments.fields
        pointers = {f.key[1]: 8 * n for n, f in enumerate(fields) if f.key[0] == "pointer"}
        pointers[WORKSPACE] = next(8 * n for n, f in enumerate(fields) if f.key == ("workspace",))
        packed = code.arguments.pack(values)
        return Template(loaded, packed, pointers, blocks, views, known, offsets, size)

    def blocks(
        self, device: int, code: Code, values: call.Values, known: Mapping[str, Number]
    ) -> dict[int, int]:
        """The blocks of each grid's launch."""
        processors = launch.processors(device)
        out: dict[int, int] = {}
        for n, f in code.functions.items():
            most = RESIDENT * processors if f.workspace else MOST_BLOCKS
            out[n] = min(int(values["tasks", str(n)]), most)
        if code.fast:
            from tilec.backends.cuda.hopper import launch as hopper

            out |= {n: hopper.blocks(s, known, processors) for n, s in code.fast.items()}
        return out

    # ---- which code

    def fast_code(
        self, device: int, known: Mapping[str, Number], arrays: Mapping[str, Array]
    ) -> Code | None:
        """The code of the fast emitter; None where it is not wanted or does not fit.

        Raises UnsupportedError where it was asked for and does not fit.
        """
        number = launch.capability(device)
        arch = self.arch or architectures.for_capability(number)
        if self.emitter == "simt" or (arch != "sm_90a" and self.emitter is None):
            return None
        found = self.try_fast(arch, number, known, arrays)
        if isinstance(found, Code):
            return found
        if self.emitter == "hopper":
            raise UnsupportedError(
                f"target cuda: emitter=hopper cannot run {self.kernel.name}: {found}; what works is emitter=simt"
            )
        return None

    def try_fast(
        self, arch: str, number: int, known: Mapping[str, Number], arrays: Mapping[str, Array]
    ) -> Code | str:
        if arch != "sm_90a" or number != 90 or self.online is None:
            return "it needs an sm_90a"
        from tilec.backends.cuda.hopper import launch as hopper

        fixed = self.online.sizes  # those that the tiles hold as numbers
        sizes = {n: int(known[n] if n in known else fixed[n]) for n in self.online.kernel.dims}
        key = tuple(n if d in self.static else n <= SHORT for d, n in sizes.items())
        if key not in self.quick:
            self.quick[key] = fast(replace(self.online, sizes=sizes))
        code = self.quick[key]
        if isinstance(code, str):
            return code
        views: dict[str, call.View] = dict(arrays)
        for name, (dtype, shape) in call.buffers(code.kernel, known).items():
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            views[name] = Array(0, dtype, shape, strides, None, "")
        whys = (hopper.refusal(s, views, known) for s in code.fast.values())
        return next((w for w in whys if w), code)

    def general_code(self, device: int) -> Code:
        arch = self.arch or architectures.for_capability(launch.capability(device))
        key = ("simt", device)
        there = self.loaded.get(key)
        return there.code if there else general(self.kernel, arch)

    def load(self, device: int, code: Code) -> Loaded:
        """The code on a device."""
        key: object = ("simt", device) if code.emitter == "simt" else (code.text, device)
        if key not in self.loaded:
            self.loaded[key] = _load(device, code)
        return self.loaded[key]

    # ---- each call

    def run(
        self,
        template: Template,
        arrays: Mapping[str, Array],
        address: int,
        stream: Any,
        redo: int = 0,
    ) -> None:
        """Launches the grids in order. `redo`: the address of a flag without which they do nothing; 0 for none."""
        import numpy

        there = template.loaded
        packed = bytearray(template.packed)
        for name, at in template.pointers.items():
            pointer = arrays[name].pointer if name in arrays else address + template.offsets[name]
            packed[at : at + 8] = pointer.to_bytes(8, "little")
        packed[-8:] = redo.to_bytes(8, "little")
        struct = (numpy.frombuffer(packed, f"V{len(packed)}"),)
        given = self.fast_arguments(template, arrays, address, stream) if there.code.fast else {}
        for n in range(sum(isinstance(op, Grid) for op in there.code.kernel.body)):
            if template.blocks[n]:
                there.kernels[n](template.blocks[n], given.get(n, struct), stream)

    def fast_arguments(
        self, template: Template, arrays: Mapping[str, Array], address: int, stream: Any
    ) -> dict[int, tuple[Any, ...]]:
        """The arguments of the fast kernels: tensor maps, which are worth remembering, and the rest."""
        counter = template.loaded.counter(stream)
        key = (counter, address, *(a.pointer for a in arrays.values()))
        found = template.fast_arguments.get(key)
        if found is not None:
            return found
        from tilec.backends.cuda.hopper import launch as hopper

        views: dict[str, call.View] = {
            n: arrays[n] if n in arrays else replace(v, pointer=address + template.offsets[n])
            for n, v in template.views.items()
        }
        made = {
            n: hopper.arguments(s, views, template.sizes, counter)
            for n, s in template.loaded.code.fast.items()
        }
        while len(template.fast_arguments) >= REMEMBERED:
            template.fast_arguments.pop(next(iter(template.fast_arguments)), None)
        template.fast_arguments[key] = made
        return made


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
        made = launch.load(image, [(name, *wanted[name][1:]) for name in unit.names])
        kernels |= {wanted[k.name][0]: k for k in made}
    return Loaded(code, kernels)


def executable(
    kernel: Kernel,
    target: str,
    schedule: Mapping[str, object] | None = None,
    online: Online | None = None,
) -> Executable:
    """A kernel in tiles, ready to be called on arrays on a GPU. Raises ArgumentError for a schedule that is none."""
    emitter = chosen(schedule or {})
    if online is not None:
        online = replace(online, schedule=fast_fields(schedule or {}))
    return Executable(kernel, architectures.parse(target), emitter, online)


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


def scratch(library: str, device: int, size: int) -> tuple[Any, int]:
    """Memory for intermediate tensors, of the caller's library, and its address."""
    if not size:
        return None, 0
    if library == "torch":
        torch = importlib.import_module("torch")
        memory = torch.empty(size, dtype=torch.uint8, device=f"cuda:{device}")
        return memory, int(memory.data_ptr())
    memory = launch.cupy().empty(size, "uint8")
    return memory, int(memory.data.ptr)
