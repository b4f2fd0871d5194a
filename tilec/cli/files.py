"""The files that commands write: whether they can be written is asked before the work whose results they get."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator

from tilec.errors import ArgumentError


def check(file: str | None) -> None:
    """Raises ArgumentError where a file's folder is missing, or the file is a folder itself; None: none is written."""
    if file is None:
        return
    if not os.path.isdir(os.path.dirname(file) or "."):
        raise ArgumentError(f"cannot write {file}: there is no such folder")
    if os.path.isdir(file):
        raise ArgumentError(f"cannot write {file}: it is a folder")


def check_plot(file: str | None) -> None:
    """Raises what drawing to the file of `--plot` would."""
    if file is None:
        return
    from tilec import plots

    plots.check(file)
    check(file)


@contextlib.contextmanager
def writing(file: str) -> Generator[None]:
    """In it a file is written. Raises ArgumentError where the system does not let it."""
    try:
        yield
    except OSError as e:
        raise ArgumentError(f"cannot write {file}: {e.strerror or e}") from e


def write(file: str, text: str) -> None:
    """Writes a text as UTF-8. Raises ArgumentError where it cannot be written."""
    with writing(file), open(file, "w", encoding="utf-8") as f:
        f.write(text)
