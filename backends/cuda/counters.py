"""What the hardware counts while a kernel runs: bytes of its memory and of its L2 cache, read by NVIDIA's Nsight Compute.

The call runs in a process of its own under `ncu`, once for each set of counters that fit together. The L2 cache holds
nothing of the arrays when it begins. What it wrote and the cache still holds at its end counts as well: the kernel after it
pushes that out.
"""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.errors import UnsupportedError

SECTOR = 32
"""Bytes of a sector of the L2 cache."""
METRICS = (
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
)
FLUSH = "read_all"
"""The kernel that pushes everything out of the L2 cache."""
PATIENCE = 300.0
"""Seconds that all runs together may take."""


@dataclass(frozen=True)
class Call:
    """A call on sample data: the program's file, the kernel's name, and what `tilec.load` and `sample` take."""

    file: str
    name: str | None
    target: str
    dtype: str
    sizes: Mapping[str, int]
    scalars: Mapping[str, Any]
    tile: Mapping[str, int]
    schedule: Mapping[str, object]
    seed: int = 0


@dataclass(frozen=True)
class Counted:
    """Bytes that crossed to and from memory, and sectors of the L2 cache that were looked up, in bytes."""

    read: int
    written: int
    cache_read: int
    cache_written: int

    @property
    def moved(self) -> int:
        """Bytes read from memory and written to it."""
        return self.read + self.written


def count(call: Call) -> Counted:
    """What the hardware counts in a call. Raises UnsupportedError, saying why, where it cannot be asked."""
    rows = launches(call, METRICS)
    own = [r for r in rows if FLUSH not in r["Kernel Name"]]
    return Counted(
        total(own, METRICS[0]),
        total(rows, METRICS[1]),
        SECTOR * total(own, METRICS[2]),
        SECTOR * total(own, METRICS[3]),
    )


def total(rows: Iterable[Mapping[str, str]], metric: str) -> int:
    """The sum of a metric over launches."""
    return round(sum(float(r[metric].replace(",", "")) for r in rows))


def launches(call: Call, metrics: Sequence[str]) -> list[dict[str, str]]:
    """The kernels of a call and the one after them, each with its metrics. Raises UnsupportedError."""
    what = json.dumps(vars_of(call))
    return launched([sys.executable, "-m", "tilec.backends.cuda.counted", what], metrics)


def launched(process: Sequence[str], metrics: Sequence[str]) -> list[dict[str, str]]:
    """The kernels that a process launches between its marks for the profiler. Raises UnsupportedError."""
    tool = find()
    command = [
        tool,
        *("--csv", "--page", "raw", "--print-units", "base"),
        *("--clock-control", "none", "--cache-control", "none"),
        *("--profile-from-start", "off", "--replay-mode", "application"),
        *("--target-processes", "all", "--metrics", ",".join(metrics)),
        *process,
    ]
    root = str(Path(__file__).resolve().parents[2])
    known = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
            env={**os.environ, "PYTHONPATH": known},
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise UnsupportedError(f"hardware counters: {tool} cannot be run: {e}") from e
    rows = table(done.stdout)
    if not rows:
        raise UnsupportedError(f"hardware counters: {refusal(done.stdout + done.stderr)}")
    return rows


def find() -> str:
    """The path of `ncu`. Raises UnsupportedError where there is none."""
    tool = shutil.which("ncu")
    if tool is None:
        raise UnsupportedError(
            "hardware counters: they are read by ncu of Nsight Compute, which is not on the PATH; install it, or do without"
        )
    return tool


def vars_of(call: Call) -> dict[str, Any]:
    """A call as plain data."""
    return {n: getattr(call, n) for n in call.__dataclass_fields__}


def table(text: str) -> list[dict[str, str]]:
    """The rows of ncu's CSV, which has lines of its own and of the program before it, and a row of units."""
    lines = text.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[start:]))))
    return [r for r in rows if (r.get("ID") or "").isdecimal()]


def refusal(said: str) -> str:
    """Why there are no counters, from what ncu said."""
    if "ERR_NVGPUCTRPERM" in said:
        return (
            "this user may not read them (ERR_NVGPUCTRPERM); run as root, or let the administrator load the driver with "
            "NVreg_RestrictProfilingToAdminUsers=0"
        )
    errors = [x.replace("==ERROR==", "").strip() for x in said.splitlines() if "==ERROR==" in x]
    others = [x.strip() for x in said.splitlines() if x.strip()]
    return "ncu gave none: " + (
        errors[0] if errors else others[-1] if others else "it said nothing"
    )
