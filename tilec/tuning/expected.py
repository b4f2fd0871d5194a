"""What a candidate's result should be: exact values, everywhere or at sampled tiles, or the default schedule's result."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec import accuracy
from tilec.errors import ResourceError
from tilec.tuning import space

if TYPE_CHECKING:
    from tilec.ir import Kernel
    from tilec.tuning.search import Problem

EXACT = 400_000_000
"""Operations up to which all values are computed exactly."""
SAMPLED = 2_000_000_000
"""Operations that may be spent on exact values of some tiles."""
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
    """Parts of the outputs whose values are known. `source`: what they come from, for people."""

    parts: tuple[Part, ...]
    tolerance: float
    source: str

    def differs(self, got: Mapping[str, Any]) -> tuple[str, float]:
        """What is wrong with a result (nothing: ""), and its largest error."""
        import numpy

        worst = 0.0
        for name in dict.fromkeys(p.name for p in self.parts):
            mine = [p for p in self.parts if p.name == name]
            have = numpy.concatenate([numpy.ravel(p.of(got)).astype("float64") for p in mine])
            want = numpy.concatenate([numpy.ravel(p.values).astype("float64") for p in mine])
            e = accuracy.error(have, want, self.tolerance)
            if not e.ok:
                return f"{name} is off by {e.largest:.3g}, allowed {e.allowed:.3g}", e.largest
            worst = max(worst, e.largest)
        return "", worst

    # ---- for another process

    def write(self, folder: Path) -> None:
        """Writes it into a folder."""
        import numpy

        about = [[p.name, p.start, p.length] for p in self.parts]
        meta = {"parts": about, "tolerance": self.tolerance, "source": self.source}
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
        return Expected(parts, meta["tolerance"], meta["source"])


def whole(values: Mapping[str, Any], tolerance: float, source: str) -> Expected:
    """All values of the outputs."""
    parts = (Part(n, (0,) * a.ndim, a.shape, a) for n, a in values.items())
    return Expected(tuple(parts), tolerance, source)


def exact(problem: Problem, tolerance: float) -> Expected | None:
    """Exact values: all of them, or those of some tiles; None where both take too long."""
    from tilec.backends.reference import sampling

    tiles = _small_tiles(problem)
    total, before, each = _work(problem, tiles)
    if total <= EXACT:
        return whole(problem.reference(), tolerance, "the float64 reference")
    affordable = min(TILES, int((SAMPLED - before) // max(each, 1)))
    if affordable < 2:
        return None
    found = sampling.sampled(tiles, problem.arrays, problem.scalars, affordable)
    parts = [
        Part(name, tuple(s.start for s in p.at), tuple(s.stop - s.start for s in p.at), p.values)
        for name, places in found.items()
        for p in places
    ]
    many = max(len(places) for places in found.values())
    return Expected(tuple(parts), tolerance, f"the float64 reference at {many} tiles")


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
