"""The tiles of a call: what its sizes, its target and its schedule make of a kernel.

Calls and searches cut kernels here, so that a search times what a call runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tilec import backend, pipeline, scalar
from tilec.ir import For, Kernel, walk
from tilec.passes import split
from tilec.passes.specialise import static_dims
from tilec.rows import Chooser, Rows
from tilec.scalar import Number


@dataclass(frozen=True)
class Cut:
    """A kernel in tiles. `packed`: what is in their rows in place of the usual ones; `key` tells it from other cuts."""

    kernel: Kernel
    packed: Rows | None
    key: tuple[object, ...]


class Cutter:
    """A kernel (after the tensor passes) in tiles for calls on a target; each is made once."""

    def __init__(self, online: Kernel, target: str) -> None:
        self._online, self._target = online, target
        self._whole = pipeline.target_of(target)
        self._static = static_dims(online)
        self._rows = Chooser(online, self._whole)
        self._streamed = {op.axis for op in walk(online.body) if isinstance(op, For)}
        self._tiled: dict[object, Kernel] = {}
        self._pieces: dict[object, tuple[scalar.Compiled, ...]] = {}

    def __call__(
        self,
        sizes: Mapping[str, int],
        scalars: Mapping[str, Number],
        tile: Mapping[str, int],
        schedule: Mapping[str, object],
        *,
        far: bool = False,
    ) -> Cut:
        """The tiles of a call. `tile`: extents that are chosen, others are the rule's; `far`: as `binding.far` says."""
        known = {**sizes, **scalars}
        workers = backend.workers(self._target, schedule)
        packed = self._packed(known, workers or 1, tile)
        extents = {**(packed.extents if packed else {}), **tile}
        fixed = {d: sizes[d] for d in (*self._static, *(packed.dims if packed else ()))}
        seen = self._whole.among(max(1, (workers or 1) // 2))
        folded = packed and packed.fold
        key = (*fixed.items(), *extents.items(), *schedule.items(), far, seen, folded)
        steps = functools.partial(pipeline.tile_pipeline, fixed, extents, seen, far=far)
        tiles = self._made(key, steps)
        if workers and self._few(key, tiles, workers, known):
            key += ("workers", workers)
            tiles = self._made(key, functools.partial(steps, workers))
        return Cut(tiles, packed, key)

    def _packed(
        self, known: Mapping[str, Number], workers: int, tile: Mapping[str, int]
    ) -> Rows | None:
        """What is in the rows of a tile by rule; None for the usual ones, and where other rows are chosen."""
        found = self._rows(known, workers)
        rows = {a: n for a, n in found.extents.items() if a not in self._streamed} if found else {}
        if found and found.fold and {found.fold.heads, found.fold.rows} & set(tile):
            return None
        return found if all(tile.get(a, n) == n for a, n in rows.items()) else None

    def _made(self, key: object, steps: Callable[[], pipeline.Pipeline]) -> Kernel:
        """The tiles of a key."""
        if key not in self._tiled:
            self._tiled[key] = pipeline.run(self._online, steps())
        return self._tiled[key]

    def _few(self, key: object, tiles: Kernel, workers: int, known: Mapping[str, Number]) -> bool:
        """Whether there are fewer tiles than workers; how many, as an expression of the sizes, is found out once."""
        counts = self._pieces.get((key, workers))
        if counts is None:
            options = split.Options(workers=workers)
            counts = self._pieces[key, workers] = split.pieces(tiles, options)
        return split.cut(counts, known)
