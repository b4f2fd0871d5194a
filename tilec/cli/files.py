"""The files that commands write: whether they can be written is asked before the work whose results they get."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Generator
from typing import Any, BinaryIO

from tilec.cli.options import say
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
def writing(file: str) -> Generator[BinaryIO]:
    """A file to write to. Raises ArgumentError where the system does not let it; then what was there before stays."""
    try:
        with _whole(os.path.realpath(file)) as f:
            yield f
    except OSError as e:
        raise ArgumentError(f"cannot write {file}: {e.strerror or e}") from e


@contextlib.contextmanager
def _whole(path: str) -> Generator[BinaryIO]:
    """A file that takes its name when all of it is written, and never does so on a full disk or after Ctrl-C."""
    if not _replaceable(path):
        with open(path, "wb") as f:
            yield f
        return
    part = f"{path}.{os.getpid()}.part"
    try:
        with open(part, "wb") as f:
            yield f
        if os.path.exists(path):
            os.chmod(part, os.stat(path).st_mode & 0o777)
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _replaceable(path: str) -> bool:
    """Whether another file may take a name: no device has it, no file that we may not write, and the folder is ours."""
    if os.path.exists(path) and not (os.path.isfile(path) and os.access(path, os.W_OK)):
        return False
    return os.access(os.path.dirname(path), os.W_OK)


def write_plot(file: str, figure: Any) -> None:
    """Writes a figure, and says so. Raises ArgumentError where it cannot be written."""
    from tilec import plots

    with writing(file) as f:
        f.write(plots.drawn(figure, file))
    say(f"wrote {file}")


def write(file: str, text: str) -> None:
    """Writes a text as UTF-8. Raises ArgumentError where it cannot be written."""
    with writing(file) as f:
        f.write(text.encode())
