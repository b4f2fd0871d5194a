"""What a kernel becomes for element types, for the sizes that must be known, and for a target; each made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilec import backend, binding, bounds, choices, pipeline
from tilec.arrays import Array
from tilec.dtypes import DType
from tilec.errors import ArgumentError
from tilec.ir import Kernel
from tilec.source import Source

if TYPE_CHECKING:
    from tilec.cut import Cutter
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
        self._cutters: dict[object, Cutter] = {}
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

        key = target, _types(kernel), backend.threads(target)
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
        from tilec.cut import Cutter  # the passes behind it take a while to load

        key: tuple[object, ...] = (target, _types(kernel))
        online = self.online(kernel)
        tile = self.tile if tuned is None else dict(tuned.choice.tile)
        schedule = self.schedule if tuned is None else dict(tuned.choice.schedule)
        far = binding.far(kernel, bound.scalars)
        if key not in self._cutters:
            self._cutters[key] = Cutter(online, target)
        cut = self._cutters[key](bound.sizes, bound.scalars, tile, schedule, far=far)
        key += cut.key
        if key not in self._ready:
            before = None if tile or far else (online, bound.sizes)
            hint = tuned is not None
            made = backend.runner(cut.kernel, target, schedule, before, hint, cut.packed)
            self._ready[key] = cut.kernel, made
        return self._ready[key]

    def _as_written(self, kernel: Kernel) -> tuple[Kernel, backend.Runner]:
        """The tensor IR in the interpreter."""
        key = "reference", _types(kernel)
        if key not in self._ready:
            self._ready[key] = kernel, backend.runner(kernel, "reference")
        return self._ready[key]


def _types(kernel: Kernel) -> tuple[DType, ...]:
    """The element types of the tensors: what tells the versions of a kernel apart."""
    return tuple(t.dtype for t in kernel.tensors.values())
