"""Schedules: how a kernel is laid over the warps of a block, and which one a shape gets."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Literal

from tilec.backends.cuda.hopper.schedule import shown
from tilec.errors import ArgumentError

MOST_REGISTERS = 255
"""The most registers that a thread can have."""
FILE = 65536
"""The registers of a multiprocessor."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """The schedule of one kernel.

    A block has `warps`, each with `height` rows: 16 or 32; 32 halve what is read from shared memory per product.
    `slices` of them have the same rows, and each a slice of the columns of the values.
    `columns`: the window of the streamed axis. `stages`: buffers per streamed tensor; with one, the keys of the next window
    arrive while the values are multiplied. `query`: where the rows of the first product stay; `half`: of wide ones, half
    in registers. `blocks`: how many blocks are
    to fit a multiprocessor, which bounds the registers. `order`: tiles as they come (`static`), or those with the most
    windows first (`longest`), in sections of `section` heads that share the L2 cache, but the first rows of all heads, at
    most `late` tiles, at the end. `relax`: maxima may be stale.
    `pieces`: how many the streamed axis of a tile is cut in; 0: as many as keep all multiprocessors busy.
    """

    warps: int = 4
    height: int = 32
    columns: int = 64
    stages: int = 1
    slices: int = 1
    query: Literal["shared", "half", "registers"] = "shared"
    blocks: int = 2
    order: Literal["static", "longest"] = "static"
    section: int = 8
    late: int = 0
    relax: bool = True
    pieces: int = 0

    @property
    def rows(self) -> int:
        """The rows of a block's tile."""
        return self.height * self.warps // self.slices

    @property
    def high(self) -> bool:
        """Whether what is computed is made once, before: the warps compute it as fast as they copy."""
        return False

    @property
    def held(self) -> int:
        """The rows of which a thread has elements."""
        return self.height // 8

    @property
    def at_once(self) -> int:
        """The tiles in which a multiprocessor counts where there are few."""
        return 1

    @property
    def apart(self) -> bool:
        """Whether masks of data and of positions are apart: each would be one more program of a window."""
        return False

    @property
    def threads(self) -> int:
        """The threads of a block."""
        return 32 * self.warps

    @property
    def registers(self) -> int:
        """The most registers per thread with which the blocks fit a multiprocessor."""
        return min(MOST_REGISTERS, FILE // (self.threads * self.blocks) // 8 * 8)

    def check(self) -> None:
        """Raises ArgumentError for values that no kernel can have."""
        if self.warps not in (1, 2, 4, 8):
            raise ArgumentError(f"schedule: warps is {self.warps}, expected 1, 2, 4 or 8")
        if self.slices < 1 or self.warps % self.slices:
            raise ArgumentError(
                f"schedule: slices is {self.slices}, expected a divisor of the {self.warps} warps"
            )
        if self.height not in (16, 32):
            raise ArgumentError(f"schedule: height is {self.height}, expected 16 or 32")
        if self.columns % 16 or not 16 <= self.columns <= 256:
            raise ArgumentError(
                f"schedule: columns is {self.columns}, expected a multiple of 16 from 16 to 256"
            )
        if not 1 <= self.stages <= 4:
            raise ArgumentError(f"schedule: stages is {self.stages}, expected 1 to 4")
        if not 1 <= self.blocks <= 16:
            raise ArgumentError(f"schedule: blocks is {self.blocks}, expected 1 to 16")
        if self.section < 1:
            raise ArgumentError(f"schedule: section is {self.section}, expected 1 or more")
        for name, value, known in (
            ("query", self.query, ("shared", "half", "registers")),
            ("order", self.order, ("static", "longest")),
        ):
            if value not in known:
                raise ArgumentError(f"schedule: {name} is {value}, expected {' or '.join(known)}")

    def __str__(self) -> str:
        return ",".join(
            f"{f.name}={shown(getattr(self, f.name))}" for f in dataclasses.fields(self)
        )
