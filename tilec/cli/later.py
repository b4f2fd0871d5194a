"""Commands that are promised and not there yet. They say so, and what works instead."""

from __future__ import annotations

from typing import NoReturn

from tilec.cli import options
from tilec.errors import UnsupportedError


def grad(file: options.File) -> NoReturn:
    """Print the backward kernel (not yet)."""
    raise UnsupportedError(
        f"grad: tilec makes no backward kernels yet; what works is `tilec ir {file}` for the forward one"
    )
