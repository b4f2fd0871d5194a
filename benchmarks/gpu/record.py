"""What is kept of a measurement: a line of JSON with its circumstances."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
OWN = ("--worker", "--built", "--skip", "--progress")
"""Options that a script gives to its child."""


def said(*command: str) -> str:
    """The first line that a command prints, nothing where there is no such command."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    except OSError:
        return ""
    return done.stdout.strip().split("\n")[0]


def circumstances() -> dict[str, str]:
    """When, where and how something was measured."""
    asked = ("nvidia-smi", "--format=csv,noheader")
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpu": said(*asked, "--query-gpu=name") or "none",
        "driver": said(*asked, "--query-gpu=driver_version"),
        "torch": _version("torch"),
        "commit": said("git", "rev-parse", "--short", "HEAD"),
        "command": command(sys.argv),
    }


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def command(argv: Sequence[str]) -> str:
    """A script's command line from the repository's root, without the options that it gives to its child."""
    script = Path(argv[0]).resolve()
    name = script.relative_to(ROOT) if script.is_relative_to(ROOT) else script
    return " ".join(["python", str(name), *(a for a in argv[1:] if not a.startswith(OWN))])


def write(path: Path, row: Mapping[str, Any]) -> None:
    """Adds a line."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")


def read(path: Path) -> list[dict[str, Any]]:
    """All lines."""
    return [json.loads(x) for x in path.read_text().splitlines()] if path.exists() else []


def columns(lines: Iterable[Iterable[object]]) -> str:
    """Lines of cells, the first one a head, as text with columns: numbers to the right."""
    rows = [[str(x) for x in line] for line in lines]
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    out = [
        "  ".join(x.ljust(w) if k == 0 else x.rjust(w) for k, (x, w) in enumerate(zip(r, widths)))  # noqa: B905
        for r in rows
    ]
    return "\n".join(x.rstrip() for x in out)
