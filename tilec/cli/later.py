"""Commands that are promised and not there yet. They say so, and what works instead."""

from __future__ import annotations

from typing import NoReturn

from tilec.cli import options
from tilec.errors import UnsupportedError


def tune(file: options.File) -> NoReturn:
    """Search tile extents and schedule fields (not yet)."""
    raise UnsupportedError(
        f"tune: tilec does not search schedules yet; what works is `tilec run {file} --tile i=128,j=64`"
    )


def bench(file: options.File) -> NoReturn:
    """Time a program against its peers (not yet)."""
    raise UnsupportedError(
        f"bench: tilec does not time other libraries yet; what works is `tilec run {file}`, which prints its time"
    )


def grad(file: options.File) -> NoReturn:
    """Print the backward kernel (not yet)."""
    raise UnsupportedError(
        f"grad: tilec makes no backward kernels yet; what works is `tilec ir {file}` for the forward one"
    )
