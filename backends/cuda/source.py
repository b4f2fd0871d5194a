"""The CUDA text of a kernel: the header of primitives, then the generated kernels."""

from __future__ import annotations

import functools
from importlib import resources


@functools.cache
def header() -> str:
    """The primitives that every kernel uses."""
    return resources.files("tilec.backends.cuda").joinpath("header.cuh").read_text()


def complete(text: str) -> str:
    """A text that compiles by itself."""
    return f"{header()}\n{text}"
