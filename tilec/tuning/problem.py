"""What a search is about: a call of a kernel, and how to search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from tilec.errors import ArgumentError
from tilec.ir import Kernel
from tilec.scalar import Number
from tilec.tuning.bench import Bench
from tilec.tuning.board import Entry
from tilec.tuning.key import Key


@dataclass(frozen=True)
class Problem:
    """What is tuned: a kernel's IR before and after the tensor passes, and a call of it.

    `fixed`: the sizes that code is compiled for. `arrays`: NumPy arrays. `reference` gives the exact outputs (`plain=True`:
    those of plain arithmetic); `bench` makes what runs the candidates.
    """

    key: Key
    target: str
    lowered: Kernel
    online: Kernel
    sizes: Mapping[str, int]
    scalars: Mapping[str, Number]
    fixed: Mapping[str, int]
    arrays: Mapping[str, Any]
    reference: Callable[..., Mapping[str, Any]]
    bench: Callable[[], Bench]


@dataclass(frozen=True)
class Options:
    """How to search. `budget`: seconds; `space`: as text, None for the usual one; `jobs`: compiling processes, 0 for none.

    `resume`: keep what an earlier search for the same key measured. `progress` sees each step: how many candidates are
    done, of how many, the last one and the best so far. `notice` hears what is done before, where that takes long.
    """

    budget: float = 60.0
    space: Sequence[str] | None = None
    jobs: int = 1
    resume: bool = False
    progress: Callable[[int, int, Entry, Entry], None] | None = None
    notice: Callable[[str], None] | None = None


def check(options: Options) -> None:
    """Raises ArgumentError for options of no use."""
    budget = cast(object, options.budget)
    if not isinstance(budget, (int, float)) or not budget > 0:
        raise ArgumentError(f"budget: expected a time of more than 0 seconds, got {budget!r}")
    if options.jobs < 0:
        raise ArgumentError(f"jobs: expected 0 or more compiling processes, got {options.jobs}")
