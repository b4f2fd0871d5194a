"""The CPU target: compiles a kernel in tiles, or finds it in the cache, and runs it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import math
import struct
from collections.abc import Mapping
from pathlib import Path

from tilec import scalar, text
from tilec.backends.cpu import jit, pool
from tilec.backends.cpu.context import COUNTER, TASKS, Context
from tilec.backends.cpu.view import View
from tilec.dtypes import SIZES
from tilec.ir import Buffer, Grid, Kernel
from tilec.scalar import Number

REMEMBERED = 64
"""Argument layouts whose context an executable keeps."""


def compile(kernel: Kernel) -> Executable:
    """The machine code of a kernel in tiles (after place), from the cache where it is there.

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """

    def build() -> tuple[object, str]:
        from tilec.backends.cpu.lower import lower

        module = lower(kernel, jit.host())
        return module.text, json.dumps([module.workers, module.scratch])

    entry = jit.cached(f"{_generator()}\n{text.show(kernel)}", build)
    workers, scratch = json.loads(entry.notes)
    return Executable(kernel, jit.load(entry.object), workers, scratch)


@functools.cache
def _generator() -> str:
    """A hash of the code generator: what another version of it made is not used."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class Executable:
    """A compiled kernel: call it with tensors, scalars and outputs."""

    def __init__(self, kernel: Kernel, code: jit.Code, workers: list[str], scratch: int) -> None:
        self._kernel, self._code, self._scratch = kernel, code, scratch
        self._context = Context(kernel)
        self._grids = [op for op in kernel.body if isinstance(op, Grid)]
        self._workers = [code.address(name) for name in workers]
        self._buffers = [op for op in kernel.body if isinstance(op, Buffer)]
        self._layouts: dict[object, _Layout] = {}

    def __call__(
        self,
        tensors: Mapping[str, View],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, View],
    ) -> None:
        """Runs the kernel: reads `tensors`, writes `outputs`, both by name.

        Any strides and lengths will do, as long as they fit the signature; that is checked by `tilec.kernel`. Scalars not
        given take their defaults.
        """
        views = {**tensors, **outputs}
        shapes = tuple((name, v.shape, v.strides) for name, v in views.items())
        key = (shapes, tuple(scalars.items()), tuple(map(type, scalars.values())))
        layout = self._layouts.get(key)
        if layout is None:
            if len(self._layouts) >= REMEMBERED:
                self._layouts.clear()
            layout = self._layouts[key] = self._layout(tensors, scalars, views)
        words = (ctypes.c_int64 * len(self._context)).from_buffer_copy(layout.words)
        memory: list[bytearray] = []
        for name, v in views.items():
            words[self._context.slots["pointer", name]] = v.pointer
        for name, size in layout.buffers:
            memory.append(bytearray(size + 64))
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory[-1]))
            words[self._context.slots["pointer", name]] = -(-address // 64) * 64
        for worker, tasks in zip(self._workers, layout.tasks, strict=True):
            if not tasks:
                continue
            words[self._context.slots[COUNTER]], words[self._context.slots[TASKS]] = 0, tasks
            pool.run(worker, ctypes.addressof(words), self._scratch, tasks)

    def sizes(
        self, tensors: Mapping[str, View], scalars: Mapping[str, Number]
    ) -> dict[str, Number]:
        """Dimensions and scalar arguments by name."""
        out: dict[str, Number] = {}
        for name, t in self._kernel.tensors.items():
            for d, n in zip(t.dims, tensors[name].shape, strict=True):
                if isinstance(d, str):
                    out[d] = n
        for name, argument in self._kernel.arguments.items():
            if name in scalars:
                out[name] = scalars[name]
            elif argument.default is not None:
                out[name] = scalar.evaluate(argument.default, out)
        return out

    def _layout(
        self, tensors: Mapping[str, View], scalars: Mapping[str, Number], views: Mapping[str, View]
    ) -> _Layout:
        slots, sizes = self._context.slots, self.sizes(tensors, scalars)
        words = (ctypes.c_int64 * len(self._context))()
        extents = {a.name: max(0, int(scalar.evaluate(a.extent, sizes))) for a in self._kernel.axes}
        for name, n in sizes.items():
            if name in self._kernel.arguments:
                words[slots["scalar", name]] = _word(n, self._kernel.arguments[name].type)
            else:
                words[slots["dim", name]] = int(n)
        for axis, n in extents.items():
            words[slots["extent", axis]] = n
        shapes = {name: (v.shape, v.strides) for name, v in views.items()}
        buffers: list[tuple[str, int]] = []
        for op in self._buffers:
            shape = tuple(extents[a] for a in op.result.type.axes)
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            shapes[op.result.name] = (shape, strides)
            buffers.append((op.result.name, math.prod(shape) * SIZES[op.result.type.dtype]))
        for name, (shape, strides) in shapes.items():
            for k, (n, step) in enumerate(zip(shape, strides, strict=True)):
                words[slots["shape", name, k]], words[slots["stride", name, k]] = n, step
        tasks: list[int] = []
        for number, grid in enumerate(self._grids):
            counts = [(axis, -(-extents[axis] // tile)) for axis, tile in grid.axes]
            for axis, n in counts:
                words[slots["tiles", number, axis]] = n
            tasks.append(math.prod(n for _, n in counts))
        return _Layout(bytes(words), buffers, tasks)


class _Layout:
    """The context of a call but for addresses, the bytes of each buffer, and the tasks of each grid."""

    def __init__(self, words: bytes, buffers: list[tuple[str, int]], tasks: list[int]) -> None:
        self.words, self.buffers, self.tasks = words, buffers, tasks


def _word(x: Number, type: str) -> int:
    """A scalar argument as the 64 bits that the code expects."""
    if type == "float":
        return int(struct.unpack("<q", struct.pack("<d", float(x)))[0])
    return int(x)
