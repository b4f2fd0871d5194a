"""Searches take turns: two that time candidates at once would time each other."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Generator
from pathlib import Path


@contextlib.contextmanager
def taken(target: str, folder: Path, notice: Callable[[str], None] | None) -> Generator[None]:
    """Holds what a target runs on until the search ends; waits, and says so, while another search holds it.

    The lock is on a file of the folder. The system takes it from a process that dies. Where there are no such locks,
    searches do not wait for each other.
    """
    try:
        import fcntl
    except ImportError:  # outside of POSIX
        yield
        return
    kind = target.partition(":")[0]
    lock = os.open(folder / f"search-{platform.node()}-{kind}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if notice is not None:
                    notice(
                        f"waiting for {_holder(lock)} to end, so that neither is timed with the other"
                    )
                fcntl.flock(lock, fcntl.LOCK_EX)
            os.truncate(lock, 0)
            os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


def _holder(lock: int) -> str:
    """The search that has the lock."""
    number = os.pread(lock, 32, 0).decode(errors="replace")
    return f"the search of process {number}" if number.isdecimal() else "another search"
