"""Schedules: how a kernel is laid over the warpgroups of a Hopper multiprocessor, and which one a shape gets."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from tilec.errors import ArgumentError

ROWS = 64
"""The rows of a warpgroup's tile: those of one wgmma."""
THREADS = 128
"""The threads of a warpgroup."""
SHARED, PER_BLOCK = 233472, 1024
"""The shared memory of a multiprocessor, and what of it each block takes for itself, in bytes."""
REGISTERS = 65536
"""The registers of a multiprocessor."""
MOST_REGISTERS = 240
"""The most registers per thread that a computing warpgroup asks for."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of one kernel.

    `warpgroups` compute, with 64 rows each; one more loads. `slices` of them have the same rows, and each a slice of the
    columns of the values; with `share` each of two computes a half of the products that scores are sums of. `blocks` of
    these share a multiprocessor. `columns`: the window of the streamed axis. `stages`: buffers per streamed tensor.
    `pingpong`: warpgroups take turns at the tensor unit.
    `order`: tiles are dealt out `static`, or one by one from a counter, those with the most blocks first (`longest`), in
    sections of heads that share the L2 cache, at most `section` of them, fewer where they are long; the first rows of all
    heads, at most `late` tiles, come after the last section. `store`: outputs leave through shared memory (`tma`) or
    straight from registers (`direct`). `loader`: registers per thread of the loading warpgroup; the others share the
    rest. `relax`: maxima may be stale. `apart`: windows in which all positions meet what is asked of their data have a
    program of their own, beside the others with a mask. `guess`: a tile's first window takes the maximum of its first
    columns for that of all. `chain`: a tile's last products are issued with the first of the next tile, where there is
    shared memory for the rows of both. `pieces`: how many the streamed axis of a tile is cut in; 0: as many as keep all
    multiprocessors busy.
    """

    warpgroups: int = 2
    columns: int = 128
    stages: int = 2
    slices: int = 1
    share: bool = False
    pingpong: bool = True
    order: Literal["static", "longest"] = "static"
    section: int = 8
    late: int = 0
    store: Literal["tma", "direct"] = "tma"
    loader: int = 24
    relax: bool = True
    apart: bool = True
    guess: bool = True
    blocks: int = 1
    chain: bool = True
    pieces: int = 0

    @property
    def high(self) -> bool:
        """Whether a tile has many rows: there are others then that read the same keys."""
        return self.teams > 1

    @property
    def teams(self) -> int:
        """How many warpgroups have rows of their own."""
        return self.warpgroups // self.slices

    @property
    def rows(self) -> int:
        """The rows of a block's tile."""
        return ROWS * self.teams

    @property
    def at_once(self) -> int:
        """The tiles that a multiprocessor works on at once."""
        return self.blocks

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return THREADS * (self.warpgroups + 1)

    @property
    def entry(self) -> int:
        """The registers per thread at launch: the file divided by the threads, in eights."""
        return REGISTERS // (self.threads * self.blocks) // 8 * 8

    @property
    def shared(self) -> int:
        """The shared memory that a block may use, in bytes."""
        return SHARED // self.blocks // PER_BLOCK * PER_BLOCK - PER_BLOCK

    @property
    def turns(self) -> bool:
        """Whether there are warpgroups that take turns."""
        return self.pingpong and self.warpgroups > 1 and not self.share

    @property
    def traded(self) -> bool:
        """Whether the loading warpgroup gives registers to the others, which may have as many as they can use."""
        return self.entry <= MOST_REGISTERS

    @property
    def registers(self) -> tuple[int, int]:
        """The registers per thread of the loading and of a computing warpgroup."""
        if not self.traded:
            return MOST_REGISTERS, MOST_REGISTERS
        free = self.entry * (self.warpgroups + 1) - self.loader
        return self.loader, min(MOST_REGISTERS, free // self.warpgroups // 8 * 8)

    def check(self) -> None:
        """Raises ArgumentError for values that no kernel can have."""
        if self.warpgroups not in (1, 2, 3, 4):
            raise ArgumentError(f"schedule: warpgroups is {self.warpgroups}, expected 1 to 4")
        if self.slices < 1 or self.warpgroups % self.slices:
            raise ArgumentError(
                f"schedule: slices is {self.slices}, expected a divisor of the {self.warpgroups} warpgroups"
            )
        if self.share and self.slices != 2:
            raise ArgumentError(f"schedule: share is true with {self.slices} slices, expected 2")
        if not 1 <= self.blocks <= 8 // (self.warpgroups + 1):
            raise ArgumentError(
                f"schedule: blocks is {self.blocks}, expected 1 to {8 // (self.warpgroups + 1)}"
                f" with {self.warpgroups} warpgroups"
            )
        if self.columns % 16 or not 16 <= self.columns <= 256:
            raise ArgumentError(
                f"schedule: columns is {self.columns}, expected a multiple of 16 from 16 to 256"
            )
        if self.stages < 2:
            raise ArgumentError(f"schedule: stages is {self.stages}, expected 2 or more")
        if self.order not in ("static", "longest") or self.store not in ("tma", "direct"):
            raise ArgumentError(f"schedule: order {self.order} or store {self.store} is unknown")
        if self.loader % 8 or not 24 <= self.loader <= self.entry:
            raise ArgumentError(
                f"schedule: loader is {self.loader}, expected a multiple of 8 from 24 to {self.entry}"
            )

    def __str__(self) -> str:
        return ",".join(
            f"{f.name}={shown(getattr(self, f.name))}" for f in dataclasses.fields(self)
        )


class Checked(Protocol):
    """A schedule: a frozen dataclass whose values can be checked."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    def check(self) -> None: ...


S = TypeVar("S", bound=Checked)


def fields(schedule: type[Checked] = Schedule) -> dict[str, str]:
    """The fields of a schedule and their types."""
    return {f.name: str(f.type) for f in dataclasses.fields(schedule)}


def changed(schedule: S, given: Mapping[str, object]) -> S:
    """A schedule with other values in some fields, which may come as text. Raises ArgumentError for what is none."""
    known = fields(type(schedule))
    values: dict[str, Any] = {}
    for name, x in given.items():
        if name not in known:
            raise ArgumentError(
                f"schedule: there is no field {name!r}; there are {', '.join(known)}"
            )
        values[name] = _value(name, x, known[name])
    out = replace(schedule, **values)
    out.check()
    return out


def _value(name: str, x: object, kind: str) -> object:
    text = shown(x)
    if kind == "int" and text.isdigit():
        return int(text)
    if kind == "bool" and text in ("true", "false"):
        return text == "true"
    if kind.startswith("Literal"):
        return text
    raise ArgumentError(
        f"schedule: {name} is {text}, expected {'true or false' if kind == 'bool' else 'a number'}"
    )


def shown(x: object) -> str:
    """A value as text."""
    return str(x).lower() if isinstance(x, bool) else str(x)


def default(width: int, values: int, length: int, rows: int, uneven: bool) -> Schedule:
    """The schedule for heads of `width` with `values` columns to add up, about `rows` queries and `length` positions.

    `uneven`: row tiles differ in their blocks.
    """
    order: Literal["static", "longest"] = "longest" if uneven else "static"
    if max(rows, length) <= ROWS and max(width, values) <= 64:
        return Schedule(1, ROWS, store="direct", blocks=4 if max(width, values) <= 32 else 3)
    if rows <= ROWS:
        return narrow(width, length, uneven)
    if width <= 64:
        if uneven and length <= 1024:
            return Schedule(2, 128, order=order, section=16)
        if length <= 1024:
            return Schedule(4, 64, order=order, section=16)
        return Schedule(3, 128, order=order, section=16)
    if width <= 128:
        return Schedule(2, 128, order=order)
    if width <= 192 and values <= 128:
        return Schedule(2, 112, order=order, store="direct", loader=40)
    return Schedule(2, 64, order=order, store="direct", loader=40 if uneven else 24)


def narrow(width: int, length: int, uneven: bool) -> Schedule:
    """The schedule for tiles of at most 64 rows, which wait for memory: as many bytes as there is room for under way."""
    columns = 128 if width <= 128 and length > 64 else 64
    stages = max(2, min(8, 3 * 128 * 128 // (columns * (-(-width // 64) * 64))))
    order: Literal["static", "longest"] = "longest" if uneven else "static"
    return Schedule(1, columns, stages, pingpong=False, order=order, store="direct")
