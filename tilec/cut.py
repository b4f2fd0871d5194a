"""The tiles of a call: what its sizes, its target and its schedule make of a kernel.

Calls and searches cut kernels here, so that a search times what a call runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass

from tilec import backend, outline, pipeline, plain, rows
from tilec.heights import Heights
from tilec.ir import For, Kernel, walk
from tilec.outline import Outline, Tiles
from tilec.rows import Candidate, Candidates, Chooser, Rows
from tilec.scalar import Number
from tilec.shelf import Shelf


@dataclass(frozen=True)
class Cut:
    """A kernel in tiles. `packed`: what is in their rows in place of the usual ones; `key` tells it from other cuts."""

    tiles: Tiles
    packed: Rows | None
    key: tuple[object, ...]

    @property
    def kernel(self) -> Kernel:
        """The tiles' IR."""
        return self.tiles.kernel


@dataclass(frozen=True)
class Needs:
    """What must be known of a kernel (after the tensor passes) to cut it: the dimensions that code is compiled for, the axes
    that it streams, and what chooses its rows."""

    static: tuple[str, ...]
    streamed: tuple[str, ...]
    rows: Chooser


@dataclass(frozen=True)
class Before:
    """A kernel before it is cut, and the sizes of a call, for targets that choose the tiles themselves. `make` gives the
    kernel; `shelf`: for what is known of it."""

    needs: Needs
    sizes: Mapping[str, int]
    make: Callable[[], Kernel]
    shelf: Shelf | None = None

    @property
    def header(self) -> Kernel:
        """Its header."""
        return self.needs.rows.kernel

    @staticmethod
    def of(online: Kernel, sizes: Mapping[str, int]) -> Before:
        """A kernel that is made already."""
        return Before(needs(online), sizes, lambda: online)


KNOWN = outline.HEADER | plain.classes(Needs, Chooser, Candidates, Candidate, Heights)


def needs(online: Kernel) -> Needs:
    """What cutting a kernel depends on, beside the sizes of a call."""
    streamed = {op.axis for op in walk(online.body) if isinstance(op, For)}
    static = pipeline.module("specialise").static_dims(online)
    return Needs(static, tuple(sorted(streamed)), rows.chooser(online))


class Cutter:
    """A kernel (after the tensor passes) in tiles for calls on a target; each is made once. `shelf`: what was known of them
    before; `online`: gives the kernel."""

    def __init__(
        self, known: Needs, online: Callable[[], Kernel], target: str, shelf: Shelf | None = None
    ) -> None:
        self._known, self._online, self._target, self._shelf = known, online, target, shelf
        self._whole = pipeline.target_of(target)
        self._tiled: dict[object, Tiles] = {}

    @staticmethod
    def of(online: Kernel, target: str) -> Cutter:
        """For a kernel that is made already."""
        return Cutter(needs(online), lambda: online, target)

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
        fixed = {d: sizes[d] for d in (*self._known.static, *(packed.dims if packed else ()))}
        seen = self._whole.among(max(1, (workers or 1) // 2))
        fold = astuple(packed.fold) if packed and packed.fold else ()
        key = (*fixed.items(), *extents.items(), *schedule.items(), far, *astuple(seen), *fold)
        steps = functools.partial(pipeline.tile_pipeline, fixed, extents, seen, far=far)
        tiles = self._made(key, steps, workers)
        if tiles.outline.cut(known):
            key += ("workers", workers)
            tiles = self._made(key, functools.partial(steps, workers))
        return Cut(tiles, packed, key)

    def _packed(
        self, known: Mapping[str, Number], workers: int, tile: Mapping[str, int]
    ) -> Rows | None:
        """What is in the rows of a tile by rule; None for the usual ones, and where other rows are chosen."""
        found = self._known.rows(known, self._whole, workers)
        streamed = self._known.streamed
        extents = {a: n for a, n in found.extents.items() if a not in streamed} if found else {}
        if found and found.fold and {found.fold.heads, found.fold.rows} & set(tile):
            return None
        return found if all(tile.get(a, n) == n for a, n in extents.items()) else None

    def _made(
        self,
        key: tuple[object, ...],
        steps: Callable[[], pipeline.Pipeline],
        workers: int | None = None,
    ) -> Tiles:
        """The tiles of a key; `workers`: for how many it is asked whether an axis is to be cut in pieces."""
        found = self._tiled.get((key, workers))
        if found is None:
            whole = functools.cache(lambda: pipeline.run(self._online(), steps()))
            make = functools.partial(_outline, whole, workers)
            shelf = self._shelf and self._shelf.under(key, workers)
            known = make() if shelf is None else shelf.kept(Outline, make, outline.KNOWN)
            found = self._tiled[key, workers] = Tiles(known, whole, shelf)
        return found


def _outline(whole: Callable[[], Kernel], workers: int | None) -> Outline:
    tiles = whole()
    if workers is None:
        return outline.outline(tiles)
    split = pipeline.module("split")
    return outline.outline(tiles, split.pieces(tiles, split.Options(workers=workers)))
