"""Candidates in a process of their own: one that crashes, or that never comes back, costs its process and nothing else."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tilec import text
from tilec.arrays import Array
from tilec.ir import Kernel
from tilec.results import Result
from tilec.scalar import Number
from tilec.tuning.bench import Candidate, Failed
from tilec.tuning.child import Child, Gone, Late
from tilec.tuning.expected import Expected

RUNNER = "tilec.tuning.running"
START = 60.0
"""Seconds that a process may take to start and to read the data."""
PATIENCE = 20.0
"""Seconds that a candidate may take to be loaded and checked, or timed."""
SLOWER = 50
"""How many times slower than the default's calls those of a candidate may be before it counts as hanging."""


class Apart:
    """Runs candidates in another process, which is started anew where one ends it."""

    least, most = 2, 5

    def __init__(
        self,
        target: str,
        online: Kernel,
        sizes: Mapping[str, int],
        scalars: Mapping[str, Number],
        arrays: Mapping[str, tuple[Array, Any]],
        outputs: Sequence[Result],
    ) -> None:
        """`arrays`: each as the call sees it, and its elements as a NumPy array."""
        self._folder = Path(tempfile.mkdtemp(prefix="tilec-tune-"))
        self._child: Child | None = None
        self._patience = PATIENCE
        self._online, self._sizes = online, sizes
        about = {
            "target": target,
            "online": text.show(online),
            "sizes": dict(sizes),
            "scalars": dict(scalars),
            "arrays": [self._packed(n, *a) for n, a in arrays.items()],
            "outputs": [[r.name, r.dtype, r.shape] for r in outputs],
        }
        (self._folder / "problem.json").write_text(json.dumps(about), encoding="utf-8")

    def _packed(self, name: str, a: Array, values: Any) -> dict[str, Any]:
        """A description of an array, whose elements go to a file."""
        import numpy

        file = self._folder / f"{name}.bin"
        numpy.ascontiguousarray(values).tofile(file)
        return {
            "name": name,
            "file": file.name,
            "dtype": a.dtype,
            "shape": a.shape,
            "strides": a.strides,
            "offset": a.pointer % 256,
        }

    # ---- asking

    def outputs(self, c: Candidate, until: float) -> Mapping[str, Any]:
        import numpy

        self._ask("outputs", c, until)
        with numpy.load(self._folder / "outputs.npz", allow_pickle=False) as found:
            return {name: found[name] for name in found.files}

    def expect(self, want: Expected) -> None:
        want.write(self._folder)
        self._tell({"do": "expect"})

    def check(self, c: Candidate, until: float) -> tuple[str, float]:
        a = self._ask("check", c, until)
        return a["wrong"], a["error"]

    def burst(self, c: Candidate, until: float) -> float:
        seconds = self._ask("burst", c, until)["seconds"]
        self._patience = max(self._patience, PATIENCE + SLOWER * seconds)
        return seconds

    def forget(self, name: str) -> None:
        self._tell({"do": "forget", "name": name})

    def _tell(self, request: dict[str, Any]) -> None:
        """Says something to the process, where there is one."""
        if self._child is not None:
            self._child.send(request)
            try:
                self._child.receive(time.monotonic() + PATIENCE)
            except (Late, Gone):
                self._end()

    def close(self) -> None:
        self._end()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _ask(self, what: str, c: Candidate, until: float) -> dict[str, Any]:
        """An answer about a candidate. Raises Failed where it has none, Late where there is no time left for one."""
        request = {
            "do": what,
            "name": c.name,
            "tiles": text.show(c.cut.kernel),
            "schedule": dict(c.schedule),
            "own": c.before is not None,
        }
        self._start(until)
        assert self._child is not None
        self._child.send(request)
        limit = time.monotonic() + self._patience
        try:
            answer = self._child.receive(min(limit, until))
        except Gone as e:
            self._end()
            raise Failed(f"{e}{self._last_words()}") from e
        except Late:
            self._end()
            if limit > until:
                raise
            raise Failed(f"it did not come back within {self._patience:.0f} s") from None
        if answer.get("fatal"):
            self._end()
        if "failed" in answer:
            raise Failed(answer["failed"])
        return answer

    def _start(self, until: float) -> None:
        """The process, with the data in its memory."""
        if self._child is not None:
            return
        with open(self._folder / "errors", "w", encoding="utf-8") as errors:
            self._child = Child(RUNNER, str(self._folder), errors=errors)
        limit = time.monotonic() + START
        try:
            self._child.receive(min(limit, until))
        except (Gone, Late) as e:
            self._end()
            if isinstance(e, Late) and limit > until:
                raise
            why = str(e) or f"nothing was heard of it for {START:.0f} s"
            raise Failed(
                f"the process for candidates does not start: {why}{self._last_words()}"
            ) from e

    def _last_words(self) -> str:
        """The last line that the process wrote to its standard error."""
        try:
            lines = (
                (self._folder / "errors").read_text(encoding="utf-8", errors="replace").split("\n")
            )
        except OSError:
            return ""
        return next((f" ({line.strip()[:200]})" for line in reversed(lines) if line.strip()), "")

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None
