"""The CPU target: compiles a kernel in tiles, or finds it in the cache, and runs it."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import math
import struct
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilec import scalar, text
from tilec.backends.cpu import jit, pool
from tilec.backends.cpu.context import ADDRESSES, Context
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
        self._known: dict[object, _Prepared] = {}

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
        k = self._kernel
        arrays = [*(tensors[n] for n in k.tensors), *(outputs[o.name] for o in k.outputs)]
        self.ready(tensors, scalars, outputs)([v.pointer for v in arrays])

    def ready(
        self,
        tensors: Mapping[str, View],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, View],
    ) -> _Prepared:
        """What is common to calls of this layout, made at the first one; a call takes the addresses in
        the order of the signature."""
        views = {**tensors, **outputs}
        shapes = tuple((name, v.shape, v.strides) for name, v in views.items())
        key = (shapes, tuple(scalars.items()), tuple(map(repr, scalars.values())))
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._prepare(tensors, scalars, views)
        return found

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

    def _prepare(
        self, tensors: Mapping[str, View], scalars: Mapping[str, Number], views: Mapping[str, View]
    ) -> _Prepared:
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
        buffers: list[int] = []
        for op in self._buffers:
            shape = tuple(extents[a] for a in op.result.type.axes)
            strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
            shapes[op.result.name] = (shape, strides)
            buffers.append(math.prod(shape) * SIZES[op.result.type.dtype])
        for name, (shape, strides) in shapes.items():
            for k, (n, step) in enumerate(zip(shape, strides, strict=True)):
                words[slots["shape", name, k]], words[slots["stride", name, k]] = n, step
        tasks: list[int] = []
        for number, grid in enumerate(self._grids):
            counts = [(axis, -(-extents[axis] // tile)) for axis, tile in grid.axes]
            for axis, n in counts:
                words[slots["tiles", number, axis]] = n
            tasks.append(math.prod(n for _, n in counts))
        return _Prepared(
            code=self._code,
            words=words,
            buffers=tuple(buffers),
            jobs=tuple((w, n) for w, n in zip(self._workers, tasks, strict=True) if n),
            scratch=self._scratch,
        )


class _Prepared:
    """A call but for addresses. `words`: its context; `buffers`: the bytes of each intermediate tensor; `jobs`: the worker
    of each grid that has tasks, and their number.

    Threads that call at once each take a context of their own.
    """

    def __init__(
        self,
        code: jit.Code,
        words: ctypes.Array[ctypes.c_int64],
        buffers: tuple[int, ...],
        jobs: tuple[tuple[int, int], ...],
        scratch: int,
    ) -> None:
        self._code = code  # whose functions the jobs are
        self._words, self._buffers, self._jobs, self._scratch = words, buffers, jobs, scratch
        self._free: deque[tuple[Any, int]] = deque()

    def __call__(self, addresses: Sequence[int]) -> None:
        """Runs the call on arrays at these addresses."""
        context = self._free.pop() if self._free else self._context()
        words, place = context
        memory = [bytearray(size + 64) for size in self._buffers]
        if memory:
            addresses = [*addresses, *map(_aligned, memory)]
        words[ADDRESSES : ADDRESSES + len(addresses)] = addresses
        for worker, tasks in self._jobs:
            words[0], words[1] = 0, tasks  # COUNTER and TASKS
            pool.run(worker, place, self._scratch, tasks)
        self._free.append(context)

    def _context(self) -> tuple[Any, int]:
        words = type(self._words).from_buffer_copy(self._words)
        return words, ctypes.addressof(words)


def _aligned(memory: bytearray) -> int:
    return -(-ctypes.addressof(ctypes.c_char.from_buffer(memory)) // 64) * 64


def _word(x: Number, type: str) -> int:
    """A scalar argument as the 64 bits that the code expects."""
    if type == "float":
        return int(struct.unpack("<q", struct.pack("<d", float(x)))[0])
    return int(x)
