"""Code is made without garbage collection in between."""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Generator[None]:
    """Nothing is garbage before the code is complete, and looking for some takes as long as making it: longer where the
    program has loaded much."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
