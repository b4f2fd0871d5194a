"""GPU architectures: their names, and what a block of threads may use on each."""

from __future__ import annotations

import re

from tilec.errors import ArgumentError, UnsupportedError

OLDEST = 80
KIB = 1 << 10
SHARED = {
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    101: 227,
    103: 227,
    110: 227,
    120: 99,
    121: 99,
}
"""KiB of shared memory that a block may ask for, by compute capability."""
OWN = 1
"""KiB of shared memory that each block takes for itself. A multiprocessor has these more than a block may ask for."""
WITH_FEATURES = frozenset({90, 100, 101, 103, 110, 120, 121})
"""Architectures whose own features need the suffix `a`."""


def parse(target: str) -> str | None:
    """The architecture in a target such as `cuda:sm_90a`; None in `cuda`. Raises ArgumentError for anything else."""
    if target == "cuda":
        return None
    found = re.fullmatch(r"cuda:(sm_(\d+)a?)", target)
    if not found:
        raise ArgumentError(
            f"no target is called {target!r}; expected cuda, cuda:sm_90a, cuda:sm_80 or another cuda:sm_NN"
        )
    if int(found.group(2)) < OLDEST:
        raise UnsupportedError(
            f"target {target}: the oldest architecture that tilec makes code for is sm_{OLDEST}"
        )
    return found.group(1)


def capability(arch: str) -> int:
    """The compute capability of an architecture: 90 for sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("a"))


def for_capability(number: int) -> str:
    """The architecture to compile for on a device: with its own features where there are such."""
    return f"sm_{number}a" if number in WITH_FEATURES else f"sm_{number}"


def runs_on(arch: str, number: int) -> bool:
    """Whether machine code for an architecture runs on a device of this compute capability."""
    own = capability(arch)
    if arch.endswith("a"):
        return own == number
    return own // 10 == number // 10 and own <= number


def translates_to(arch: str, number: int) -> bool:
    """Whether the driver can translate PTX for an architecture to the code of a device."""
    return not arch.endswith("a") and capability(arch) <= number


def takes(arch: str, number: int) -> bool:
    """Whether a device can run code for an architecture at all."""
    return runs_on(arch, number) or translates_to(arch, number)


def shared_limit(arch: str) -> int:
    """The most bytes of shared memory for one block; of an architecture that is not known, what all have."""
    return SHARED.get(capability(arch), 99) * KIB


def resident(limit: int, shared: int) -> int:
    """How many blocks of so many bytes of shared memory fit a multiprocessor at once, if one may ask for `limit`."""
    return (limit + OWN * KIB) // (shared + OWN * KIB)
