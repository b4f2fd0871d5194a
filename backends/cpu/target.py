"""The CPU target: compiles a kernel in tiles, or finds it in the cache, and runs it."""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec import scalar
from tilec.backend import Stale
from tilec.backends.cpu import jit, pool, ways
from tilec.backends.cpu.context import ADDRESSES, Context
from tilec.backends.cpu.view import View
from tilec.backends.cpu.ways import EXACT, NONE, Choice, Ways, choose, row_axis, small
from tilec.dtypes import SIZES
from tilec.ir import Buffer, Grid, Kernel
from tilec.outline import Tiles
from tilec.scalar import Number
from tilec.uncollected import uncollected

REMEMBERED = 64
"""Argument layouts whose context an executable keeps."""


def compile(kernel: Kernel) -> Executable:
    """The machine code of a kernel in tiles (after place) that nearly all calls take, from the cache where it is there.

    Raises UnsupportedError for a tile whose extent is not known to the compiler.
    """
    made = Executable(Tiles.of(kernel))
    made.code(made.ways.usual)
    return made


@dataclass(frozen=True)
class _Code:
    """The machine code of a kernel's grids, each in the way that was chosen for it."""

    code: jit.Code
    scratch: int

    def worker(self, grid: int) -> int:
        """The address of a grid's worker."""
        return self.code.address(f"worker_{grid}")

    def task(self, grid: int) -> int:
        """The address of the code of a grid's tasks."""
        return self.code.address(f"task_{grid}")


@uncollected()
def _code(tiles: Tiles, chosen: Choice) -> _Code:
    """The code for a choice of ways, from the cache where it is there."""

    def build() -> tuple[object, str]:
        from tilec.backends.cpu.lower import lower

        module = lower(tiles.kernel, jit.host(), chosen)
        return module.text, str(module.scratch)

    entry = jit.cached(f"{chosen}\n{tiles.outline.digest}", build)
    return _Code(jit.load(entry.object), int(entry.notes))


class Executable:
    """A kernel in tiles that runs: call it with tensors, scalars and outputs. What a call takes is compiled at the
    first one that does; where that is in the cache, the outline of the tiles will do."""

    def __init__(self, tiles: Tiles) -> None:
        self._tiles, self._codes = tiles, dict[Choice, _Code]()
        self._kernel = kernel = tiles.outline.kernel
        self._context = Context(kernel)
        self._grids = [op for op in kernel.body if isinstance(op, Grid)]
        self._buffers = [op for op in kernel.body if isinstance(op, Buffer)]
        self._known: dict[object, _Prepared] = {}
        self._counted = frozenset(tiles.outline.counted)

    @functools.cached_property
    def ways(self) -> Ways:
        """The ways of its grids."""
        return ways.of(self._tiles, jit.host().lanes)

    def code(self, chosen: Choice) -> _Code:
        """The code for a choice of ways."""
        made = self._codes.get(chosen)
        # of two threads that compile it at once, both take what the first has kept
        return made or self._codes.setdefault(chosen, _code(self._tiles, chosen))

    def _exact(self, chosen: Choice) -> tuple[dict[int, int], int]:
        """The address of the exact code of each grid that has some, by slot; and the scratch memory that it needs."""
        code = self.code(chosen)
        grids = (n for n, way in enumerate(chosen.ways) if way == EXACT)
        return {self._context.slots["exact", n]: code.task(n) for n in grids}, code.scratch

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
        self.ready(tensors, scalars, outputs).run([v.pointer for v in arrays], pool.crew())

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
        words = tuple(scalars.items()), tuple(map(repr, scalars.values()))
        key = (shapes, words, pool.crew().threads)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._prepare(tensors, scalars, views)
        return found

    def memory(
        self,
        tensors: Mapping[str, View],
        scalars: Mapping[str, Number],
        outputs: Mapping[str, View],
    ) -> int:
        """The bytes that a call needs beside its arrays: the tensors between its grids, and what its threads have to
        themselves. Of the arrays, only shapes and strides are looked at."""
        return self.ready(tensors, scalars, outputs).memory

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
        near = small([*extents.values(), *self._integers(sizes)])
        tasks: list[int] = []
        for number, grid in enumerate(self._grids):
            counts = [(axis, -(-extents[axis] // tile)) for axis, tile in grid.axes]
            for axis, n in counts:
                words[slots["tiles", number, axis]] = n
            tasks.append(math.prod(n for _, n in counts))
        dense = all(map(_dense, views.values()))
        jobs = self._jobs(tasks, near, dense, extents)
        exact = self.ways.exact(dense)
        make = functools.partial(self._exact, exact)
        prepared = _Prepared(words, tuple(buffers), jobs, make, pool.crew().threads)
        if exact in self._codes:
            prepared.know_exact()
        return prepared

    def _integers(self, sizes: Mapping[str, Number]) -> Iterator[int]:
        """The dimensions and whole-number arguments of a call; not those that are only seeds."""
        for name, n in sizes.items():
            argument = self._kernel.arguments.get(name)
            if argument is None or argument.type == "int" and name in self._counted:
                yield int(n)

    def _jobs(
        self, tasks: Sequence[int], near: bool, dense: bool, extents: Mapping[str, int]
    ) -> tuple[_Job, ...]:
        """What runs the grids that have tasks."""
        chosen = tuple(
            choose(own, near, _positions(grid, extents)) if many else NONE
            for own, grid, many in zip(self.ways.grids, self._grids, tasks, strict=True)
        )
        if not any(tasks):
            return ()
        code = self.code(Choice(chosen, dense))
        return tuple(
            _Job(code.worker(n), many, code.scratch) for n, many in enumerate(tasks) if many
        )


def _dense(view: View) -> bool:
    """Whether elements along the last dimension are consecutive."""
    return not view.shape or view.shape[-1] <= 1 or view.strides[-1] == 1


def _positions(grid: Grid, extents: Mapping[str, int]) -> int:
    """How many rows a tile has, at most."""
    rows = row_axis(grid)
    return min(extents[rows], dict(grid.axes)[rows]) if rows else 0


@dataclass(frozen=True)
class _Job:
    """A worker, how many tasks there are for it, and the scratch memory it needs."""

    worker: int
    tasks: int
    scratch: int


class _Prepared:
    """A call but for addresses. `words`: its context; `buffers`: the bytes of each intermediate tensor; `jobs`: one for each
    grid that has tasks; `exact`: gives the words that tell workers where exact code is, and compiles it before; `threads`:
    for how many it was cut.

    Threads that call at once each take a context of their own.
    """

    def __init__(
        self,
        words: ctypes.Array[ctypes.c_int64],
        buffers: tuple[int, ...],
        jobs: tuple[_Job, ...],
        exact: Callable[[], tuple[dict[int, int], int]],
        threads: int,
    ) -> None:
        self._words, self._buffers, self._jobs, self._exact = words, buffers, jobs, exact
        self._threads = threads
        self._scratch = max((job.scratch for job in jobs), default=0)
        self._free: deque[tuple[Any, int]] = deque()

    def __call__(self, addresses: Sequence[int]) -> None:
        """Runs the call on arrays at these addresses. Raises Stale where there are now more threads or fewer."""
        crew = pool.crew()
        if crew.threads != self._threads:
            raise Stale
        self.run(addresses, crew)

    def run(self, addresses: Sequence[int], crew: pool.Crew) -> None:
        """Runs the call, whoever shares it."""
        context = self._taken()
        words, place = context
        memory = [bytearray(size + 64) for size in self._buffers]
        if memory:
            addresses = [*addresses, *map(_aligned, memory)]
        words[ADDRESSES : ADDRESSES + len(addresses)] = addresses
        for job in self._jobs:
            words[0], words[1] = 0, job.tasks  # COUNTER and TASKS
            pool.run(job.worker, place, self._scratch, job.tasks, place, crew)
            if words[2]:  # MISSED
                self._again(job, words, place)
        self._free.append(context)

    @property
    def memory(self) -> int:
        """The bytes that a call needs beside its arrays."""
        threads = min(pool.threads(), max((job.tasks for job in self._jobs), default=0))
        return sum(self._buffers) + threads * self._scratch

    def know_exact(self) -> dict[int, int]:
        """Tells workers from now on where exact code is, and gives the words that do so."""
        slots, scratch = self._exact()
        # first the memory: no thread may run that code with less
        self._scratch = max(self._scratch, scratch)
        for slot, address in slots.items():
            self._words[slot] = address
        return slots

    def _again(self, job: _Job, words: Any, place: int) -> None:
        """Runs a job whose exact code was missed once more, with that."""
        for slot, address in self.know_exact().items():
            words[slot] = address
        words[0] = words[2] = 0  # COUNTER and MISSED
        pool.run(job.worker, place, self._scratch, job.tasks, place)

    def _taken(self) -> tuple[Any, int]:
        """A context that no other call has."""
        try:
            return self._free.pop()
        except IndexError:  # also where another thread has just taken the last one
            return self._context()

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
