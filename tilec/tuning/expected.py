"""What a candidate's result should be: exact values, everywhere or at sampled tiles, or the default schedule's result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec import accuracy
from tilec.errors import ResourceError
from tilec.tuning import space

if TYPE_CHECKING:
    from tilec.ir import Kernel
    from tilec.tuning.problem import Problem

EXACT = 400_000_000
"""Operations up to which all values are computed exactly."""
SAMPLED = 2_000_000_000
"""Operations that may be spent on exact values of some tiles."""
PER_SECOND = 200_000_000
"""Operations of the reference in a second, on a machine that is not slow."""
REFERENCE = "the float64 reference"
"""What exact values come from."""
TILES = 24
"""Tiles of each grid that are computed exactly, at most."""
ROWS = 16
"""Rows of such a tile."""


@dataclass(frozen=True)
class Part:
    """The values of an output in a part of it: `start` and `length` along each of its dimensions."""

    name: str
    start: tuple[int, ...]
    length: tuple[int, ...]
    values: Any

    def of(self, outputs: Mapping[str, Any]) -> Any:
        """The same part of a result."""
        at = tuple(slice(s, s + n) for s, n in zip(self.start, self.length, strict=True))
        return outputs[self.name][at]


@dataclass(frozen=True)
class Expected:
    """Parts of the outputs whose values are known. `source`: what they come from, for people; `tiles`: at how many tiles, 0
    for all; `plain`: how far off plain arithmetic is in each output, where that was asked."""

    parts: tuple[Part, ...]
    tolerance: float
    source: str
    tiles: int = 0
    plain: Mapping[str, float] = field(default_factory=dict[str, float])

    def differs(self, got: Mapping[str, Any]) -> tuple[str, float]:
        """What is wrong with a result (nothing: ""), and its largest error."""
        import numpy

        worst = 0.0
        for name in dict.fromkeys(p.name for p in self.parts):
            mine = [p for p in self.parts if p.name == name]
            have = numpy.concatenate([numpy.ravel(p.of(got)).astype("float64") for p in mine])
            want = numpy.concatenate([numpy.ravel(p.values).astype("float64") for p in mine])
            e = accuracy.error(have, want, self.tolerance, self.plain.get(name, 0.0))
            if not e.ok:
                return f"{name} is off by {e.largest:.3g}, allowed {e.allowed:.3g}", e.largest
            worst = max(worst, e.largest)
        return "", worst

    # ---- for another process

    def write(self, folder: Path) -> None:
        """Writes it into a folder."""
        import numpy

        about = [[p.name, p.start, p.length] for p in self.parts]
        meta: dict[str, object] = {
            "parts": about,
            "tolerance": self.tolerance,
            "source": self.source,
            "plain": dict(self.plain),
        }
        (folder / "expected.json").write_text(json.dumps(meta), encoding="utf-8")
        values = {str(n): numpy.asarray(p.values, "float64") for n, p in enumerate(self.parts)}
        save: Any = numpy.savez
        save(folder / "expected.npz", **values)

    @staticmethod
    def read(folder: Path) -> Expected:
        """Reads what `write` wrote."""
        import numpy

        meta = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        with numpy.load(folder / "expected.npz", allow_pickle=False) as values:
            parts = tuple(
                Part(name, tuple(start), tuple(length), values[str(n)])
                for n, (name, start, length) in enumerate(meta["parts"])
            )
        return Expected(parts, meta["tolerance"], meta["source"], plain=meta["plain"])


def whole(values: Mapping[str, Any], tolerance: float, source: str) -> Expected:
    """All values of the outputs."""
    parts = (Part(n, (0,) * a.ndim, a.shape, a) for n, a in values.items())
    return Expected(tuple(parts), tolerance, source)


def exact(problem: Problem, tolerance: float, seconds: float) -> Expected | None:
    """Exact values: all of them, or those of some tiles; None where both would take longer than some seconds."""
    tiles = _small_tiles(problem)
    total, before, each = _work(problem, tiles)
    most = min(SAMPLED, seconds * PER_SECOND)
    if total <= min(EXACT, most):
        return whole(problem.reference(), tolerance, REFERENCE)
    affordable = min(TILES, int((most - before) // max(each, 1)))
    if affordable < 2:
        return None
    parts = _at_tiles(problem, tiles, affordable)
    places = [p.name for p in parts]
    many = max(places.count(name) for name in places)
    return Expected(parts, tolerance, f"{REFERENCE} at {many} tiles", affordable)


def with_plain(problem: Problem, want: Expected) -> Expected:
    """Exact values, and how far off plain arithmetic is."""
    if want.tiles:
        got = _at_tiles(problem, _small_tiles(problem), want.tiles, plain=True)
    else:
        got = whole(problem.reference(plain=True), 0.0, REFERENCE).parts
    off: dict[str, float] = {}
    for have, exactly in zip(got, want.parts, strict=True):
        e = accuracy.error(have.values, exactly.values, 0.0)
        off[have.name] = max(e.largest, off.get(have.name, 0.0))
    return replace(want, plain=off)


def _at_tiles(problem: Problem, tiles: Kernel, many: int, plain: bool = False) -> tuple[Part, ...]:
    """The values of the outputs at some tiles, the same each time."""
    from tilec.backends.reference import sampling

    found = sampling.sampled(tiles, problem.arrays, problem.scalars, many, plain=plain)
    return tuple(
        Part(name, tuple(s.start for s in p.at), tuple(s.stop - s.start for s in p.at), p.values)
        for name, places in found.items()
        for p in places
    )


def _small_tiles(problem: Problem) -> Kernel:
    """The kernel in tiles of few rows."""
    plain = space.tiles_of(problem.online, problem.fixed, {}, "reference")
    rows = {a: ROWS for a in space.grid_axes(plain) if space.tiled_axes(plain)[a] > ROWS}
    try:
        return space.tiles_of(problem.online, problem.fixed, rows, "reference")
    except ResourceError:
        return plain


def _work(problem: Problem, tiles: Kernel) -> tuple[float, float, float]:
    """Operations of all grids, of those that must run whole, and of one tile of each of the others."""
    from tilec.backends.reference.sampling import count, is_last
    from tilec.ir import Grid, defined, walk
    from tilec.traffic import budget

    stated = budget(tiles, problem.sizes, problem.scalars, problem.arrays).work
    total = float(sum(stated.total(u) for u in stated.ops))
    before = each = 0.0
    for grid in (op for op in tiles.body if isinstance(op, Grid)):
        names = [v.name for op in walk(grid.body) for v in defined(op)]
        work = float(sum(stated.of(names).values()))
        if is_last(tiles, grid):
            each += work / max(1, count(tiles, grid, {**problem.sizes, **problem.scalars}))
        else:
            before += work
    return total, before, each
