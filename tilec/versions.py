"""What a kernel becomes for element types, for the sizes that must be known, and for a target; each made once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tilec import backend, binding, bounds, choices, pipeline, scalar
from tilec.arrays import Array
from tilec.dtypes import DType
from tilec.errors import ArgumentError
from tilec.ir import Kernel
from tilec.scalar import Number
from tilec.source import Source

if TYPE_CHECKING:
    from tilec.rows import Chooser
    from tilec.tuning.shipped import Default
    from tilec.tuning.store import Winner


class Versions:
    """The IR and the code of a kernel. `tile` and `schedule` are those that the user chose."""

    def __init__(
        self, source: Source, tile: Mapping[str, int], schedule: Mapping[str, object]
    ) -> None:
        self.source, self.tile, self.schedule = source, tile, schedule
        self._lowered: dict[tuple[DType, ...], Kernel] = {}
        self._online: dict[tuple[DType, ...], Kernel] = {}
        self._indices: dict[tuple[DType, ...], tuple[bounds.Index, ...]] = {}
        self._static: dict[tuple[DType, ...], tuple[str, ...]] = {}
        self._rows: dict[object, Chooser] = {}
        self._tiled: dict[object, Kernel] = {}
        self._pieces: dict[object, tuple[scalar.Compiled, ...]] = {}
        self._ready: dict[object, tuple[Kernel, backend.Runner]] = {}
        self._offers: dict[object, tuple[Default, ...]] = {}

    # ---- for element types

    def typed(self, arrays: Mapping[str, Array]) -> Kernel:
        """The tensor IR for the element types of the arrays. Raises ArgumentError for one that the program excludes."""
        for t in self.source.signature.tensors.values():
            got = arrays[t.name].dtype
            if t.name not in self.source.untyped and got != t.dtype:
                raise ArgumentError(
                    f"argument {t.name}: expected elements of type {t.dtype}, got {got}: "
                    f"convert it, or declare {t.name}: {got}[…]"
                )
        return self.for_types({n: arrays[n].dtype for n in self.source.untyped})

    def for_types(self, dtypes: Mapping[str, DType]) -> Kernel:
        """The tensor IR for the element types of the untyped tensors, in their order."""
        key = tuple(dtypes.values())
        if key not in self._lowered:
            self._lowered[key] = self.source.lowered(dtypes)
        return self._lowered[key]

    def all_of(self, dtype: DType) -> Kernel:
        """The tensor IR with one element type for the untyped tensors. Raises ArgumentError for one that is none."""
        return self.for_types(self.source.types(choices.dtype(dtype)))

    def online(self, kernel: Kernel) -> Kernel:
        """The tensor IR after the passes that need no sizes."""
        types = _types(kernel)
        if types not in self._online:
            self._online[types] = pipeline.run(kernel, pipeline.tensor_pipeline())
        return self._online[types]

    def indices(self, kernel: Kernel) -> tuple[bounds.Index, ...]:
        """The indices whose range is checked at a call."""
        types = _types(kernel)
        if types not in self._indices:
            self._indices[types] = bounds.indices(kernel)
        return self._indices[types]

    # ---- for sizes

    def fixed(self, online: Kernel, sizes: Mapping[str, int]) -> dict[str, int]:
        """The sizes that code is compiled for."""
        types = _types(online)
        if types not in self._static:
            self._static[types] = pipeline.module("specialise").static_dims(online)
        return {d: sizes[d] for d in self._static[types]}

    def tuned(self, target: str, kernel: Kernel, sizes: Mapping[str, int]) -> Winner | None:
        """The stored schedule for a call, where the user chose none; a file that cannot be trusted gives a warning."""
        if self.tile or self.schedule or target == "reference":
            return None
        from tilec.tuning import shipped, store

        key = target, _types(kernel)
        if key not in self._offers:
            self._offers[key] = shipped.offers(kernel, target)
        offers = self._offers[key]
        if not offers and not store.exists():
            return None
        from tilec.tuning import use  # the tuner's parts, not needed where nothing was ever tuned

        online = self.online(kernel)
        return use.winner(kernel, online, sizes, self.fixed(online, sizes), target, offers)

    # ---- for a target

    def compiled(
        self, target: str, kernel: Kernel, bound: binding.Bound, tuned: Winner | None
    ) -> tuple[Kernel, backend.Runner]:
        """The IR that runs and what runs it, for given element types and the sizes that must be known to compile."""
        if target == "reference" and not self.tile:
            return self._as_written(kernel)
        from tilec import rows  # the passes behind it take a while to load

        key: tuple[object, ...] = (target, _types(kernel))
        sizes = bound.sizes
        online = self.online(kernel)
        fixed = self.fixed(online, sizes)
        tile = self.tile if tuned is None else dict(tuned.choice.tile)
        schedule = self.schedule if tuned is None else dict(tuned.choice.schedule)
        known = {**sizes, **bound.scalars}
        if key not in self._rows:
            self._rows[key] = rows.Chooser(online, pipeline.target_of(target))
        chosen = None if tile else self._rows[key](known)
        extents = chosen.extents if chosen else tile
        fixed |= {d: sizes[d] for d in chosen.dims} if chosen else {}
        far = binding.far(kernel, bound.scalars)
        key += (*fixed.items(), *extents.items(), *schedule.items(), far)
        steps = functools.partial(pipeline.tile_pipeline, fixed, extents, target, far=far)
        tiles = self._in_tiles(key, online, steps)
        workers = backend.workers(target, schedule)
        if workers and self._few(key, tiles, workers, known):
            key += ("workers", workers)
            tiles = self._in_tiles(key, online, functools.partial(steps, workers))
        if key not in self._ready:
            before = None if tile or far else (online, sizes)
            runner = backend.runner(tiles, target, schedule, before, tuned is not None, chosen)
            self._ready[key] = tiles, runner
        return self._ready[key]

    def _as_written(self, kernel: Kernel) -> tuple[Kernel, backend.Runner]:
        """The tensor IR in the interpreter."""
        key = "reference", _types(kernel)
        if key not in self._ready:
            self._ready[key] = kernel, backend.runner(kernel, "reference")
        return self._ready[key]

    def _in_tiles(
        self, key: object, online: Kernel, steps: Callable[[], pipeline.Pipeline]
    ) -> Kernel:
        """The tile IR of a key."""
        if key not in self._tiled:
            self._tiled[key] = pipeline.run(online, steps())
        return self._tiled[key]

    def _few(self, key: object, tiles: Kernel, workers: int, known: Mapping[str, Number]) -> bool:
        """Whether there are fewer tiles than workers; how many, as an expression of the sizes, is found out once."""
        split = pipeline.module("split")
        counts = self._pieces.get((key, workers))
        if counts is None:
            counts = self._pieces[key, workers] = split.pieces(
                tiles, split.Options(workers=workers)
            )
        return split.cut(counts, known)


def _types(kernel: Kernel) -> tuple[DType, ...]:
    """The element types of the tensors: what tells the versions of a kernel apart."""
    return tuple(t.dtype for t in kernel.tensors.values())
