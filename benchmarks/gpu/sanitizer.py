"""compute-sanitizer: how it is called, and what its logs say."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TOOLS = {
    "memcheck": "accesses outside of an allocation, and misaligned ones",
    "racecheck": "accesses of shared memory in no order",
    "synccheck": "barriers that some threads do not reach",
    "initcheck": "reads of global memory that nobody wrote",
}
PLACES = (
    "/usr/local/cuda/bin/compute-sanitizer",
    "/usr/local/cuda/compute-sanitizer/compute-sanitizer",
)
OPTIONS = {
    "": ("--show-backtrace=no", "--print-limit=1000"),
    "memcheck": ("--report-api-errors=no", "--padding=1024"),
    "initcheck": ("--report-api-errors=no",),
}
"""By tool, the first ones for all: a library may probe for functions that the driver lacks, which is no error; and what
is far behind an array must not lie in another one."""


def find() -> str | None:
    """The program, where it is installed."""
    there = (p for p in PLACES if os.access(p, os.X_OK))
    return shutil.which("compute-sanitizer") or next(there, None)


def understood(program: str) -> str:
    """What the program says of its options: not every version has them all."""
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def prefix(program: str, known: str, tool: str, log: Path) -> list[str]:
    """What a command line begins with, to run under a tool that writes to `log`."""
    wanted = (*OPTIONS[""], *OPTIONS.get(tool, ()))
    options = [o for o in wanted if o.split("=")[0] in known]
    return [program, f"--tool={tool}", f"--log-file={log}", *options]


@dataclass(frozen=True)
class Finding:
    """What a tool found in one run: how many errors and warnings by its own count, and how often it said what.

    `problem`: why the run does not count; a log that has no sum is that of a tool that did not finish.
    """

    errors: int = 0
    warnings: int = 0
    said: tuple[tuple[str, int], ...] = ()
    problem: str = ""

    @property
    def clean(self) -> bool:
        """Whether the tool ran to its end and found nothing."""
        return not (self.errors or self.warnings or self.said or self.problem)

    def __str__(self) -> str:
        if self.problem or self.clean:
            return self.problem or "0"
        return f"{self.errors}" + (f"+{self.warnings}w" if self.warnings else "")


_SAID = re.compile(r"^=+ (\S.*)$", re.MULTILINE)
_TITLE = re.compile(r"COMPUTE-SANITIZER|\w+ SUMMARY:|Target application returned")
_ERRORS = re.compile(r"ERROR SUMMARY: (\d+) error")
_RACES = re.compile(r"RACECHECK SUMMARY: .*\((\d+) errors?, (\d+) warnings?\)")
_VARYING = re.compile(r"0x[0-9a-f]+|(?<=\[)\d+(?= hazards?\])")


def read(log: str) -> Finding:
    """What a log says."""
    heads = (x for x in _SAID.findall(log) if not _TITLE.match(x))
    said = tuple(Counter(_VARYING.sub("…", x) for x in heads).most_common())
    races, errors = _RACES.search(log), _ERRORS.search(log)
    if races:
        return Finding(int(races.group(1)), int(races.group(2)), said)
    return Finding(int(errors.group(1)), 0, said) if errors else Finding(0, 0, said, "no sum")


def excerpt(logs: Sequence[tuple[str, str]], most: int = 120) -> str:
    """The heads of logs, each under its title."""
    parts: list[str] = []
    for title, log in logs:
        lines = log.splitlines()
        more = [f"… {len(lines) - most} more lines"] if len(lines) > most else []
        parts.append("\n".join([f"#### {title}", *lines[:most], *more]))
    return "\n\n".join(parts) + "\n"
