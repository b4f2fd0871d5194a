"""A process that answers lines of JSON, and that its parent need not wait for longer than it wants to."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from tilec.errors import ResourceError


class Late(Exception):
    """The time for an answer is over."""


class Gone(Exception):
    """The process has ended; the message says how."""


class Child:
    """`python -m MODULE ARGUMENTS`, in a session of its own: Ctrl-C at the terminal is for the parent, which ends it."""

    def __init__(self, module: str, *arguments: str, errors: IO[str] | None = None) -> None:
        root = str(Path(__file__).resolve().parents[2])
        known = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "PYTHONPATH": known},
                start_new_session=True,
            )
        except OSError as e:
            raise ResourceError(f"tune: cannot start a process: {e}; try --jobs 0") from e
        self._lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def send(self, request: dict[str, Any]) -> None:
        """Asks something. That the process is gone, `receive` tells."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def receive(self, until: float) -> dict[str, Any]:
        """The next answer. Raises Late at a time of the monotonic clock, and Gone where the process ends before it."""
        try:
            line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            raise Late from None
        if not line:
            raise Gone(f"the process ended with status {self._process.wait()}")
        return json.loads(line)

    def end(self) -> None:
        """Ends the process at once."""
        self._process.kill()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
