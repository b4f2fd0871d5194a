"""Processes that compile candidates side by side, and a way to wait for them that a user can interrupt."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tilec.errors import ResourceError


class Compilers:
    """Up to `jobs` processes, started when they are first needed. Use it in a `with`."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._idle: list[subprocess.Popen[str]] = []

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        for p in self._idle:
            p.kill()
            p.wait()
            for pipe in (p.stdin, p.stdout):
                if pipe is not None:
                    pipe.close()

    def compile(self, requests: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The answer to each request, in order; up to `jobs` of them are worked on at a time."""
        for n in range(0, len(requests), self._jobs):
            batch = requests[n : n + self._jobs]
            while len(self._idle) < len(batch):
                self._idle.append(_start())
            for p, r in zip(self._idle, batch, strict=False):
                _send(p, r)
            for k in range(len(batch)):
                yield self._receive(k)

    def _receive(self, k: int) -> dict[str, Any]:
        p = self._idle[k]
        assert p.stdout is not None
        line = p.stdout.readline()
        if line:
            return json.loads(line)
        self._idle[k] = _start()  # it died of this candidate; the next one gets a new process
        return {"ok": False, "error": f"the compiling process ended with status {p.wait()}"}


def _start() -> subprocess.Popen[str]:
    # away from the terminal: Ctrl-C is for the search, which then ends its processes itself
    root = str(Path(__file__).resolve().parents[2])
    known = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    try:
        return subprocess.Popen(
            [sys.executable, "-m", "tilec.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": known},
            start_new_session=True,
        )
    except OSError as e:
        raise ResourceError(f"tune: cannot start a compiling process: {e}; try --jobs 0") from e


def _send(p: subprocess.Popen[str], request: dict[str, Any]) -> None:
    assert p.stdin is not None
    try:
        p.stdin.write(json.dumps(request) + "\n")
        p.stdin.flush()
    except BrokenPipeError:
        pass  # it has died; reading its answer will tell
