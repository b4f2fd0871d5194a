"""Processes that compile candidates side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tilec.tuning.child import Child, Gone

WORKER = "tilec.tuning.worker"


class Compilers:
    """Up to `jobs` processes, started when they are first needed. Use it in a `with`."""

    def __init__(self, jobs: int) -> None:
        self._jobs = jobs
        self._children: list[Child] = []

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        for c in self._children:
            c.end()

    def compile(self, requests: Sequence[dict[str, Any]], until: float) -> Iterator[dict[str, Any]]:
        """The answer to each request, in order; up to `jobs` of them are worked on at a time. Raises Late."""
        for n in range(0, len(requests), self._jobs):
            batch = requests[n : n + self._jobs]
            while len(self._children) < len(batch):
                self._children.append(Child(WORKER))
            for c, r in zip(self._children, batch, strict=False):
                c.send(r)
            for k in range(len(batch)):
                yield self._receive(k, until)

    def _receive(self, k: int, until: float) -> dict[str, Any]:
        try:
            return self._children[k].receive(until)
        except Gone as e:  # it died of this candidate; the next one gets a new process
            self._children[k].end()
            self._children[k] = Child(WORKER)
            return {"ok": False, "error": f"while compiling, {e}"}
