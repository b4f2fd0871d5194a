"""The source of a kernel: its text, and what is to be known to launch it."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.hopper.source import Facts, Launched

if TYPE_CHECKING:
    from tilec.backends.cuda.ampere.plan import Plan


@dataclass(frozen=True)
class Source(Launched):
    """A kernel with the plan that it was made from. `wide`: tensors that are read or written 16 bytes at a time, and the
    dimension along which those lie."""

    plan: Plan
    wide: dict[str, int]

    @functools.cached_property
    def facts(self) -> Facts:
        """What a launch needs to know of it."""
        return self.known(None, self.wide)
