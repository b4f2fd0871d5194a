"""The candidates of a search: tile extents and schedule fields that make sense for a kernel and its sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from tilec import backend, pipeline, scalar
from tilec.cut import Cut, Cutter
from tilec.errors import ArgumentError
from tilec.ir import For, Grid, Kernel, walk
from tilec.tuning.store import Choice

ROWS = (16, 32, 64, 128, 256)
"""Extents tried along an axis of the grid."""
COLUMNS = (16, 32, 64, 128, 256, 512)
"""Extents tried along a streamed axis."""
LONG = (128, 256, 512, 1024, 2048)
"""The same for a tile of few rows."""

Space = dict[str, tuple[object, ...]]


def tiled_axes(tiles: Kernel) -> dict[str, int]:
    """The axes of a kernel in tiles that have a window, and its length; 1 for those that a grid walks one by one."""
    out: dict[str, int] = {}
    for op in walk(tiles.body):
        if isinstance(op, Grid):
            for axis, n in op.axes:
                out[axis] = max(n, out.get(axis, 1))
        elif isinstance(op, For) and op.tile is not None:
            out[op.axis] = max(op.tile, out.get(op.axis, 1))
    return out


def grid_axes(tiles: Kernel) -> tuple[str, ...]:
    """The axes of the grids."""
    axes = (a for op in tiles.body if isinstance(op, Grid) for a, _ in op.axes)
    return tuple(dict.fromkeys(axes))


def default_space(cut: Cut, online: Kernel, target: str) -> Space:
    """What is tried unless the user says otherwise: schedule fields where the target has some, which decide the tiles too;
    else the axes that have windows of more than one position, and for few rows the streamed ones alone."""
    fields = backend.schedule_space(target)
    if fields:
        return dict(fields)
    streamed = {op.axis for op in walk(online.body) if isinstance(op, For)}
    axes = [a for a, n in tiled_axes(cut.kernel).items() if n > 1 and a in online.extents]
    if cut.packed is not None and 1 in cut.packed.extents.values():
        return {a: LONG for a in axes if a in streamed}
    return {a: COLUMNS if a in streamed else ROWS for a in axes}


def by_rule(
    online: Kernel,
    sizes: Mapping[str, int],
    scalars: Mapping[str, scalar.Number],
    target: str,
    threads: int | None = None,
    compiling: bool = True,
) -> Choice:
    """What is taken where nobody chooses, written out: the extents, or the schedule fields that are searched, of what runs.
    `threads`: of a CPU; `compiling`: whether the compiler is asked if it finds room, as it is at a call."""
    fields = backend.schedule_space(target)
    asked = {backend.WORKERS: backend.pieces(threads) or 1} if threads else {}
    tiles = Cutter.of(online, target)(sizes, scalars, {}, asked).kernel
    if not fields:
        axes = tiled_axes(tiles).items()
        return Choice({a: n for a, n in axes if n > 1 and a in online.extents})
    from tilec.backends.cuda import target as cuda

    before = cuda.here(cuda.Untiled(online, sizes), cuda.arch_of(target))
    code = cuda.code_for(tiles, target, None, before, compiling)
    if code.schedule is None:
        return Choice({}, {"emitter": code.emitter})
    return Choice({}, {n: getattr(code.schedule, n) for n in fields})


def parse(texts: Sequence[str], tiles: Kernel, target: str) -> Space:
    """The space of `i=64,128 j=32,64`. Raises ArgumentError for a name that is neither an axis nor a schedule field."""
    axes, fields = tiled_axes(tiles), backend.schedule_fields(target)
    out: Space = {}
    for part in (p for t in texts for p in t.split()):
        name, equals, values = part.partition("=")
        if not equals or not values:
            raise ArgumentError(f"--space: {part!r} is not NAME=VALUE,VALUE")
        if name in out:
            raise ArgumentError(f"--space: {name} is given twice")
        if name not in axes and name not in fields:
            known = ", ".join((*axes, *fields))
            raise ArgumentError(
                f"--space: {tiles.name} has no {name!r} to search; there are {known}"
            )
        found = tuple(dict.fromkeys(values.split(",")))
        out[name] = tuple(_field(v) if name in fields else _extent(name, v) for v in found)
    if not out:
        raise ArgumentError("--space: nothing to search; write --space 'i=64,128 j=32,64'")
    return out


def _field(text: str) -> object:
    return int(text) if text.isdecimal() else text


def _extent(axis: str, text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 1 << 31:
        raise ArgumentError(f"--space: {axis}={text}: expected an extent of 1 or more")
    return int(text)


def candidates(
    space: Space, kernel: Kernel, sizes: Mapping[str, scalar.Number]
) -> Iterator[Choice]:
    """Every point of a space, but one of those extents that cover the axis anyway."""
    axes = {a: int(scalar.evaluate(kernel.extents[a], sizes)) for a in space if a in kernel.extents}
    values = [_covering(xs, axes[n]) if n in axes else xs for n, xs in space.items()]
    for point in itertools.product(*values):
        chosen = dict(zip(space, point, strict=True))
        tile = {n: int(str(x)) for n, x in chosen.items() if n in axes}
        yield Choice(tile, {n: x for n, x in chosen.items() if n not in axes})


def _covering(extents: Sequence[object], length: int) -> tuple[object, ...]:
    """The extents up to the first that covers the axis."""
    numbers = sorted(int(str(x)) for x in extents)
    most = next((n for n in numbers if n >= length), numbers[-1])
    return tuple(n for n in numbers if n <= most)


def tiles_of(
    online: Kernel, fixed: Mapping[str, int], extents: Mapping[str, int], target: str
) -> Kernel:
    """A kernel in tiles of some extents, verified. Raises ResourceError where they do not fit the target."""
    return pipeline.run(online, pipeline.tile_pipeline(fixed, extents, target))
