"""Programs on the emulated Hopper: their kernels by the emulator, the grids that do not fit by the interpreter."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

import tilec
from tests.backends.cuda.hopper import emulator
from tilec import pipeline, rows
from tilec.arrays import numpy_dtype
from tilec.backends.cuda import call
from tilec.backends.cuda.hopper import compile as hopper
from tilec.backends.cuda.hopper.source import CopyMap, Source
from tilec.backends.reference import interpreter
from tilec.ir import Buffer, Grid, Kernel, Output
from tilec.scalar import evaluate


def tiles(
    kernel: tilec.Kernel,
    dtype: str,
    sizes: Mapping[str, int],
    *,
    pieces: frozenset[str] = frozenset(),
    packed: bool = False,
    workers: int | None = None,
    **changes: object,
) -> tuple[Kernel, dict[int, Source]]:
    """A program in tiles under its default schedule, or a changed one, and the sources of the grids that fit.

    `packed`: heads that share their keys are the rows. `workers`: the keys are cut in pieces for so many.
    """
    ir = kernel._versions.for_types(dict.fromkeys(kernel._source.untyped, dtype)).lowered
    online = pipeline.run(ir, pipeline.tensor_pipeline())
    heads = rows.choose(online, sizes, pipeline.target_of("cuda")) if packed else None
    assert (heads is not None) == packed
    schedule = dataclasses.replace(hopper.suggested(online, sizes, heads, pieces), **changes)
    placed, _ = hopper.tiles(online, sizes, schedule, heads, workers)
    found = hopper.sources(placed, schedule, pieces)
    fitting = {n: s for n, s in found.items() if not isinstance(s, str)}
    assert fitting, found
    without = {m.tensor for s in fitting.values() for m in _maps(s) if _uneven(m, sizes)}
    if without:  # as a call does
        more = {"pieces": pieces | without, "packed": packed, "workers": workers, **changes}
        return tiles(kernel, dtype, sizes, **more)
    return placed, fitting


def _maps(source: Source) -> list[CopyMap]:
    return [p.map for p in source.parameters if p.map is not None]


def _uneven(m: CopyMap, sizes: Mapping[str, int]) -> bool:
    return any(evaluate(x, sizes) % m.rows for x in m.even)


def run(
    kernel: tilec.Kernel,
    arrays: Mapping[str, Any],
    dtype: str,
    sizes: Mapping[str, int],
    *,
    seed: int = 1,
    processors: int = 2,
    scalars: Mapping[str, Any] | None = None,
    pieces: frozenset[str] = frozenset(),
    packed: bool = False,
    workers: int | None = None,
    **changes: object,
) -> dict[str, np.ndarray]:
    """The outputs of a program on the emulator."""
    placed, sources = tiles(
        kernel, dtype, sizes, pieces=pieces, packed=packed, workers=workers, **changes
    )

    def launch(n: int, memory: Mapping[str, np.ndarray], known: Mapping[str, Any]) -> None:
        emulator.run(sources[n], memory, known, seed=seed, processors=processors)

    return completed(placed, sources, launch, arrays, {**sizes, **(scalars or {})})


def completed(
    placed: Kernel,
    fitting: Collection[int],
    launch: Callable[[int, Mapping[str, np.ndarray], Mapping[str, Any]], None],
    arrays: Mapping[str, Any],
    sizes: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """The outputs of a program in tiles: `launch` runs the grids that are fitting, the interpreter the others."""
    known: dict[str, Any] = dict(sizes)
    for name, a in placed.arguments.items():
        if name not in known and a.default is not None:
            known[name] = evaluate(a.default, known)
    memory = dict(arrays)
    for o in placed.outputs:
        shape = tuple(int(evaluate(placed.extents[a], known)) for a in o.axes)
        memory[o.name] = np.full(shape, np.nan if "f" in o.dtype else -77).astype(
            numpy_dtype(o.dtype)
        )
    buffers = call.Numbers(placed).buffers(known)
    memory |= {n: np.zeros(shape, numpy_dtype(t)) for n, (t, shape) in buffers.items()}
    for n, grid in enumerate(op for op in placed.body if isinstance(op, Grid)):
        if n in fitting:
            launch(n, memory, known)
        else:
            memory |= _interpreted(placed, grid, memory, known)
    return {o.name: memory[o.name] for o in placed.outputs}


def _interpreted(
    kernel: Kernel,
    grid: Grid,
    memory: Mapping[str, np.ndarray],
    known: Mapping[str, Any],
) -> dict[str, np.ndarray]:
    """What one grid writes: its buffers are outputs here, those of earlier grids parameters."""
    from tilec.ir import Store, Tensor, walk

    written = [op.tensor for op in walk(grid.body) if isinstance(op, Store)]
    made = {op.result.name: op.result.type for op in kernel.body if isinstance(op, Buffer)}
    given = tuple(
        Tensor(b, t.dtype, tuple(kernel.extents[a] for a in t.axes))
        for b, t in made.items()
        if b not in written
    )
    outputs = tuple(
        next((o for o in kernel.outputs if o.name == w), None)
        or Output(w, made[w].dtype, made[w].axes)
        for w in written
    )
    rest = tuple(op for op in kernel.body if not isinstance(op, (Grid, Buffer)))
    part = dataclasses.replace(
        kernel, params=(*kernel.params, *given), outputs=outputs, body=(*rest, grid)
    )
    tensors = {n: memory[n] for n in part.tensors}
    done = interpreter.run(part, tensors, {n: known[n] for n in part.arguments})
    return {
        w: np.asarray(done.outputs[w]).astype(numpy_dtype(o.dtype))
        for w, o in zip(written, outputs, strict=True)
    }
