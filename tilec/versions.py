"""What a kernel becomes for element types, for the sizes that must be known, and for a target; each made once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tilec import backend, binding, cache, choices
from tilec.arrays import Array
from tilec.dtypes import DType
from tilec.errors import ArgumentError
from tilec.outline import Tiles
from tilec.source import Source
from tilec.typed import Typed

if TYPE_CHECKING:
    from tilec.tuning.shipped import Default
    from tilec.tuning.store import Winner


class Versions:
    """The IR and the code of a kernel. `tile` and `schedule` are those that the user chose."""

    def __init__(
        self, source: Source, tile: Mapping[str, int], schedule: Mapping[str, object]
    ) -> None:
        self.source, self.tile, self.schedule = source, tile, schedule
        self._typed: dict[tuple[DType, ...], Typed] = {}
        self._ready: dict[object, tuple[Tiles, backend.Runner]] = {}
        self._offers: dict[object, tuple[Default, ...]] = {}

    # ---- for element types

    def typed(self, arrays: Mapping[str, Array]) -> Typed:
        """The kernel for the element types of the arrays. Raises ArgumentError for one that the program excludes."""
        for t in self.source.header.tensors.values():
            got = arrays[t.name].dtype
            if t.name not in self.source.untyped and got != t.dtype:
                raise ArgumentError(
                    f"argument {t.name}: expected elements of type {t.dtype}, got {got}: "
                    f"convert it, or declare {t.name}: {got}[…]"
                )
        return self.for_types({n: arrays[n].dtype for n in self.source.untyped})

    def for_types(self, dtypes: Mapping[str, DType]) -> Typed:
        """The kernel for the element types of the untyped tensors, in their order."""
        key = tuple(dtypes.values())
        if key not in self._typed:
            self._typed[key] = Typed(self.source, dtypes)
        return self._typed[key]

    def all_of(self, dtype: DType) -> Typed:
        """The kernel with one element type for the untyped tensors. Raises ArgumentError for one that is none."""
        return self.for_types(self.source.types(choices.dtype(dtype)))

    # ---- for sizes

    def tuned(self, target: str, typed: Typed, sizes: Mapping[str, int]) -> Winner | None:
        """The stored schedule for a call, where the user chose none; a file that cannot be trusted gives a warning."""
        if self.tile or self.schedule or target == "reference":
            return None
        offers = self._offered(target, typed) if typed.facts.shipped else ()
        if not offers and not cache.schedules().exists():
            return None
        from tilec.tuning import use  # the tuner's parts, not needed where nothing was ever tuned

        fixed = typed.fixed(sizes)
        return use.winner(typed.lowered, typed.online, sizes, fixed, target, offers)

    def _offered(self, target: str, typed: Typed) -> tuple[Default, ...]:
        from tilec.tuning import shipped

        key = target, typed, backend.threads(target)
        if key not in self._offers:
            self._offers[key] = shipped.offers(typed.facts.program, target)
        return self._offers[key]

    # ---- for a target

    def compiled(
        self, target: str, typed: Typed, bound: binding.Bound, tuned: Winner | None
    ) -> tuple[Tiles, backend.Runner]:
        """The IR that runs and what runs it, for given element types and the sizes that must be known to compile."""
        key: tuple[object, ...] = (target, typed)
        if target == "reference" and not self.tile:
            if key not in self._ready:
                whole = Tiles.of(typed.lowered)
                self._ready[key] = whole, backend.runner(whole, target)
            return self._ready[key]
        tile = self.tile if tuned is None else dict(tuned.choice.tile)
        schedule = self.schedule if tuned is None else dict(tuned.choice.schedule)
        far = binding.far(typed.facts.counted, bound.scalars)
        cut = typed.cutter(target)(bound.sizes, bound.scalars, tile, schedule, far=far)
        key += cut.key
        if key not in self._ready:
            before = None if tile or far else typed.before(bound.sizes)
            hint = tuned is not None
            made = backend.runner(cut.tiles, target, schedule, before, hint, cut.packed)
            self._ready[key] = cut.tiles, made
        return self._ready[key]
