"""What is known of code before it is made: a process that finds it, and its cubins, runs no pass."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from typing import Any

from tilec import outline, plain
from tilec.backends.cuda import call, nvrtc
from tilec.backends.cuda.code import Called, Code, Unit
from tilec.backends.cuda.fast import Refused, emitter
from tilec.backends.cuda.hopper.sections import Late, Sections
from tilec.backends.cuda.hopper.source import CopyMap, Facts, Parameter
from tilec.backends.cuda.simt.arguments import Function
from tilec.backends.cuda.untiled import Untiled
from tilec.cut import Before
from tilec.errors import UnsupportedError
from tilec.outline import Outline, Tiles
from tilec.rows import Rows
from tilec.scalar import Number


@dataclass(frozen=True)
class Whole:
    """A kernel in tiles with no axis in pieces. Its outline knows into how many pieces each streamed axis would be cut for
    so many multiprocessors."""

    outline: Outline
    processors: int

    @functools.cached_property
    def numbers(self) -> call.Numbers:
        """What a call tells of its sizes."""
        return call.Numbers(self.outline.kernel)

    def workers(self, known: Mapping[str, Number]) -> int | None:
        """For how many workers a streamed axis is cut: one for each multiprocessor, where there are fewer tiles."""
        return self.processors if self.outline.cut(self.numbers.completed(known)) else None


def uncut(online: Untiled, arch: str, name: str, processors: int) -> Whole | None:
    """The tiles of a fast emitter with no axis in pieces; None where no grid fits it."""
    from tilec.passes.split import pieces

    its = emitter(name)
    try:
        schedule = next(its.schedules(online, arch))
        kernel = its.tiles(replace(online, workers=None), schedule)
    except Refused:
        other = online.unfolded
        return uncut(other, arch, name, processors) if other else None
    cut = pieces(kernel, its.cutting(schedule, processors))
    return Whole(outline.outline(kernel, cut), processors)


@dataclass(frozen=True)
class Tried:
    """What came of an emitter: code, or why there is none; tiles with no axis in pieces."""

    code: Called | None = None
    why: str = ""
    whole: Whole | None = None


KNOWN = outline.KNOWN | plain.classes(
    Tried, Whole, Called, Unit, Function, Facts, Parameter, CopyMap, Sections, Late
)


@dataclass(frozen=True)
class Start:
    """A call's kernel before it is cut. `packed`: another axis in the rows of its tiles; `fields`: of the schedule."""

    before: Before
    packed: Rows | None
    fields: Mapping[str, object]

    @functools.cached_property
    def static(self) -> tuple[str, ...]:
        """The dimensions that a kernel must know when it is compiled."""
        return (*self.before.needs.static, *(self.packed.dims if self.packed else ()))

    def untiled(self, **decided: Any) -> Untiled:
        """The kernel itself, and what is decided about its tiles."""
        return Untiled(self.before.make(), packed=self.packed, schedule=self.fields, **decided)

    def whole(self, key: tuple[object, ...], make: Callable[[], Whole | None]) -> Whole | None:
        """The tiles of a key with no axis in pieces, made where they are not known."""
        return self._kept(("whole", *key), lambda: Tried(whole=make())).whole

    def code(self, key: tuple[object, ...], make: Callable[[], Code | str]) -> Called | str:
        """The code of a key, or why there is none, made where it is not known."""
        found = self._kept(("code", _compiler(), *key), lambda: _tried(make()))
        return found.code or found.why

    def _kept(self, key: tuple[object, ...], make: Callable[[], Tried]) -> Tried:
        if self.before.shelf is None:
            return make()
        packed = self.packed and [dict(self.packed.extents), self.packed.dims]
        fold = astuple(self.packed.fold) if self.packed and self.packed.fold else None
        shelf = self.before.shelf.under("cuda", key, packed, fold, dict(self.fields))
        return shelf.kept(Tried, make, KNOWN)


def general(tiles: Tiles, arch: str) -> Called:
    """The general code of a kernel in tiles."""

    def make() -> Called:
        from tilec.backends.cuda.generate import general

        return general(tiles.kernel, arch).called

    shelf = tiles.shelf and tiles.shelf.under("simt", arch)
    return make() if shelf is None else shelf.kept(Called, make, KNOWN)


def _tried(made: Code | str) -> Tried:
    return Tried(why=made) if isinstance(made, str) else Tried(made.called)


def _compiler() -> object:
    """The version of the compiler, which is asked whether code fits; None where there is none."""
    try:
        return nvrtc.version()
    except UnsupportedError:
        return None
