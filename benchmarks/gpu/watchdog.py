"""Work on a GPU in a child process that may hang or crash: it is ended, and started again without what it was at."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

START = "START"
FIRST = 90.0
"""Seconds until the first word: libraries are loaded."""
RESTARTS = 12


class Progress:
    """What the child says: each line is printed and kept in a file that the parent reads."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a", buffering=1)

    def say(self, *words: object) -> None:
        """A line for people."""
        line = " ".join(str(w) for w in words)
        self.file.write(line + "\n")
        print(line, flush=True)

    def start(self, name: str, seconds: float = 20.0) -> None:
        """What is done next, and how long it may take."""
        self.file.write(f"{START} {seconds:.0f} {name}\n")


def started(path: Path) -> list[tuple[str, float]]:
    """What the child began so far, and the seconds it allowed for it."""
    lines = [x.split(maxsplit=2) for x in path.read_text().splitlines() if x.startswith(START)]
    return [(x[2], float(x[1])) for x in lines if len(x) == 3]


def run(command: Callable[[Sequence[str]], list[str]], progress: Path) -> list[str]:
    """Runs the command that `command(skipped)` gives until it succeeds; what had to be skipped."""
    skipped: list[str] = []
    progress.touch()
    for _ in range(RESTARTS):
        before = len(started(progress))
        child = subprocess.Popen(command(skipped))
        if _watch(child, progress, before):
            return skipped
        begun = started(progress)[before:]
        if not begun:
            raise RuntimeError("the child ended before it began anything")
        print("# died at", begun[-1][0], flush=True)
        skipped.append(begun[-1][0])
    return skipped


def _watch(child: subprocess.Popen[bytes], progress: Path, before: int) -> bool:
    """Waits for a child that must report now and then; whether it did all."""
    size, since = progress.stat().st_size, time.time()
    while child.poll() is None:
        time.sleep(0.2)
        now = progress.stat().st_size
        if now != size:
            size, since = now, time.time()
        begun = started(progress)[before:]
        if time.time() - since > (begun[-1][1] if begun else FIRST):
            child.kill()
            child.wait()
    return child.returncode == 0
