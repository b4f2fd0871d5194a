"""The CUDA target: compiles a kernel in tiles and runs it on GPU arrays.

Two emitters make the code. `hopper` is for attention on sm_90a; `simt` is for every program on every GPU. Which one made a
kernel is a field of its schedule and the first line of its text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tilec import __version__, cache
from tilec.arrays import Array
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import call, nvrtc
from tilec.backends.cuda.simt.lower import Module, lower
from tilec.backends.cuda.source import complete
from tilec.dtypes import SIZES
from tilec.errors import ArgumentError, UnsupportedError
from tilec.ir import Kernel
from tilec.scalar import Number

EMITTERS = ("simt",)
MOST_BLOCKS = 1 << 30
RESIDENT = 4
"""Blocks per multiprocessor where each needs a workspace of its own."""
ALIGN = 256
TEMPLATES = 256
"""How many different calls (shapes, strides, scalars) a kernel remembers."""


@dataclass(frozen=True)
class Code:
    """The code of a kernel for one architecture: the complete CUDA text, and what there is to launch."""

    kernel: Kernel
    arch: str
    emitter: str
    module: Module
    text: str

    @property
    def summary(self) -> str:
        """Threads, shared memory and workspace of each kernel, in a line each."""
        return "\n".join(
            f"{f.name}: {f.threads} threads, {f.shared:,} bytes of shared memory"
            + (f", {f.workspace:,} bytes of workspace per block" if f.workspace else "")
            for f in self.module.functions
        )


def generate(kernel: Kernel, arch: str, schedule: Mapping[str, object] | None = None) -> Code:
    """The CUDA text for a kernel in tiles (after place).

    Raises ArgumentError for a schedule field that is none, UnsupportedError for what the emitter cannot do.
    """
    emitter = chosen(schedule or {})
    module = lower(kernel, architectures.shared_limit(arch))
    head = f"// {kernel.name} for {arch}, made by tilec {__version__} (emitter {emitter})"
    return Code(kernel, arch, emitter, module, f"{head}\n{complete(module.text)}")


def chosen(schedule: Mapping[str, object]) -> str:
    """The emitter that a schedule names, or the default. Raises ArgumentError for other fields and names."""
    for name in schedule:
        if name != "emitter":
            raise ArgumentError(f"schedule: target cuda has no field {name!r}; it has emitter")
    emitter = str(schedule.get("emitter", "simt"))
    if emitter not in EMITTERS:
        raise ArgumentError(
            f"schedule: emitter is {emitter!r}, expected one of {', '.join(EMITTERS)}"
        )
    return emitter


def compiled(code: Code) -> nvrtc.Compiled:
    """The cubin of a text, from the cache on disk where it is there."""
    parts = (1, nvrtc.version(), nvrtc.options(code.arch), code.text)
    path = cache.directory("cuda") / f"{cache.key(*parts)}.cubin"

    def build() -> cache.Entry:
        made = nvrtc.compile(code.text, code.arch)
        used = {
            name: [u.registers, u.shared, u.stack, u.spill_stores, u.spill_loads]
            for name, u in made.usage.items()
        }
        return cache.Entry(made.cubin, json.dumps({"usage": used, "warnings": made.warnings}))

    entry = cache.cached(path, build)
    notes: dict[str, Any] = json.loads(entry.notes)
    usage = {name: nvrtc.Usage(*numbers) for name, numbers in notes["usage"].items()}
    return nvrtc.Compiled(entry.code, usage, tuple(notes["warnings"]))


def code_for(kernel: Kernel, target: str, schedule: Mapping[str, object] | None = None) -> Code:
    """The code of a kernel in tiles for a target; `cuda` means the GPU that is here."""
    return generate(kernel, architectures.parse(target) or default_arch(), schedule)


def source(code: Code, form: str) -> str:
    """A code as text: `cuda`, `ptx` or `sass`."""
    if form == "cuda":
        return code.text
    return nvrtc.ptx(code.text, code.arch) if form == "ptx" else nvrtc.sass(compiled(code).cubin)


def default_arch(device: int = 0) -> str:
    """The architecture of a device; where there is none, that of an H100."""
    from tilec.backends.cuda import launch

    return (
        architectures.for_capability(launch.capability(device)) if launch.available() else "sm_90a"
    )


def compile(
    kernel: Kernel, target: str = "cuda", schedule: Mapping[str, object] | None = None
) -> Executable:
    """A kernel in tiles, ready to be called on arrays on a GPU. The machine code is made for the device at the first call
    there; `target` may name another architecture that it can run, such as `cuda:sm_80`."""
    chosen(schedule or {})
    return Executable(kernel, architectures.parse(target), dict(schedule or {}))


@dataclass(frozen=True)
class _Loaded:
    """A kernel on one device."""

    code: Code
    kernels: list[Any]


@dataclass(frozen=True)
class _Template:
    """What calls on arrays of one layout have in common: the argument struct, where the addresses go in it, the number
    of blocks of each kernel, and the bytes of each intermediate tensor."""

    packed: bytes
    pointers: dict[str, int]
    blocks: list[int]
    buffers: dict[str, int]
    workspace: int


@dataclass
class Executable:
    """A kernel that runs on GPU arrays."""

    kernel: Kernel
    arch: str | None
    schedule: dict[str, object]
    loaded: dict[int, _Loaded] = field(default_factory=dict[int, _Loaded])
    templates: dict[object, _Template] = field(default_factory=dict[object, _Template])

    def __call__(
        self,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, Array],
    ) -> None:
        """Runs the kernel on the current stream: reads `tensors`, writes `outputs`, both by name."""
        import numpy

        from tilec.backends.cuda import launch

        arrays = {**tensors, **outputs}
        device, library = place_of(arrays)
        with launch.on(device):
            there = self.loaded.get(device) or self._load(device)
            layout = tuple((a.shape, a.strides) for a in arrays.values())
            key = (device, layout, tuple(map(repr, scalars.values())))
            template = self.templates.get(key)
            if template is None:
                template = self._template(there, device, tensors, scalars, arrays)
                while len(self.templates) >= TEMPLATES:
                    self.templates.pop(next(iter(self.templates)), None)
                self.templates[key] = template
            stream = launch.stream(library, device)
            memory, address = scratch(library, device, template, stream)
            packed = bytearray(template.packed)
            for name, at in template.pointers.items():
                pointer = (
                    arrays[name].pointer if name in arrays else address + template.buffers[name]
                )
                packed[at : at + 8] = pointer.to_bytes(8, "little")
            struct = numpy.frombuffer(packed, f"V{len(packed)}")
            for kernel, blocks in zip(there.kernels, template.blocks, strict=True):
                if blocks:
                    kernel(blocks, (struct,), stream)
            del memory

    def _load(self, device: int) -> _Loaded:
        from tilec.backends.cuda import launch

        number = launch.capability(device)
        arch = self.arch or architectures.for_capability(number)
        code = generate(self.kernel, arch, self.schedule)
        functions = [(f.name, f.threads, f.shared) for f in code.module.functions]
        if architectures.runs_on(arch, number):
            image = compiled(code).cubin
        elif architectures.translates_to(arch, number):
            image = nvrtc.ptx(code.text, arch).encode() + b"\0"
        else:
            raise UnsupportedError(
                f"target cuda:{arch}: device {device} is an sm_{number}, which cannot run it; what works is target='cuda'"
            )
        self.loaded[device] = _Loaded(code, launch.load(image, functions))
        return self.loaded[device]

    def _template(
        self,
        there: _Loaded,
        device: int,
        tensors: Mapping[str, Array],
        scalars: Mapping[str, Number],
        arrays: Mapping[str, Array],
    ) -> _Template:
        from tilec.backends.cuda import launch

        known = call.sizes(self.kernel, tensors, scalars)
        views: dict[str, call.View] = dict(arrays)
        offsets: dict[str, int] = {}
        size = 0
        for name, (dtype, shape) in call.buffers(self.kernel, known).items():
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            views[name] = Array(0, dtype, shape, strides, None, "")
            offsets[name] = size
            size += -(-math.prod(shape) * SIZES[dtype] // ALIGN) * ALIGN
        values = call.values(self.kernel, known, views)
        functions = there.code.module.functions
        tasks = [int(values["tasks", str(n)]) for n in range(len(functions))]
        most = RESIDENT * launch.processors(device)
        blocks = [
            min(t, most if f.workspace else MOST_BLOCKS)
            for t, f in zip(tasks, functions, strict=True)
        ]
        offsets[WORKSPACE] = size
        size += max((b * f.workspace for b, f in zip(blocks, functions, strict=True)), default=0)
        fields = there.code.module.arguments.fields
        pointers = {f.key[1]: 8 * n for n, f in enumerate(fields) if f.key[0] == "pointer"}
        pointers[WORKSPACE] = next(8 * n for n, f in enumerate(fields) if f.key == ("workspace",))
        packed = there.code.module.arguments.pack(values)
        return _Template(packed, pointers, blocks, offsets, size)


WORKSPACE = " workspace"
"""The key of the workspace among the buffers; no tensor is called so."""


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


def scratch(library: str, device: int, template: _Template, stream: Any) -> tuple[Any, int]:
    """Memory for intermediate tensors, of the caller's library, and its address."""
    if not template.workspace:
        return None, 0
    if library == "torch":
        import importlib

        torch = importlib.import_module("torch")
        memory = torch.empty(template.workspace, dtype=torch.uint8, device=f"cuda:{device}")
        return memory, int(memory.data_ptr())
    from tilec.backends.cuda import launch

    memory = launch.cupy().empty(template.workspace, "uint8")
    return memory, int(memory.data.ptr)
