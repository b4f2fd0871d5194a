"""Where candidates run: in this process, or in one of their own (`tilec.tuning.apart`)."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from tilec import backend
from tilec.cut import Before, Cut
from tilec.errors import TilecError
from tilec.ir import Kernel
from tilec.tuning.expected import Expected


class Failed(TilecError):
    """A candidate could not be run to its end; the message says what happened."""


@dataclass(frozen=True)
class Candidate:
    """What is run: a kernel in tiles, the fields of its schedule, and the kernel before it was cut with the sizes of the
    call, for targets that choose the tiles themselves."""

    name: str
    cut: Cut
    schedule: Mapping[str, object]
    before: tuple[Kernel, Mapping[str, int]] | None


class Bench(Protocol):
    """Runs candidates on the data of the problem. `least` and `most`: how many bursts of a candidate make its time.

    `until` is a time of the monotonic clock: a bench may raise `Late` when it has come. A candidate that cannot be run
    raises a TilecError.
    """

    least: int
    most: int

    def outputs(self, c: Candidate, until: float) -> Mapping[str, Any]:
        """The outputs of a call, as NumPy arrays."""
        ...

    def expect(self, want: Expected) -> None:
        """Tells what results should be."""
        ...

    def check(self, c: Candidate, until: float) -> tuple[str, float]:
        """What is wrong with a result (nothing: ""), and its largest error."""
        ...

    def burst(self, c: Candidate, until: float) -> float:
        """The seconds of a call, the median of a few."""
        ...

    def forget(self, name: str) -> None:
        """Gives back what a candidate holds."""
        ...

    def close(self) -> None:
        """Gives back everything."""
        ...


class Here:
    """Runs candidates in this process. `run` gives the outputs of a call with a runner, by name, when they are there."""

    least, most = 3, 15

    def __init__(
        self,
        target: str,
        run: Callable[[backend.Runner], Mapping[str, Any]],
        plain: Callable[[Any], Any],
    ) -> None:
        self._target, self._run, self._plain = target, run, plain
        self._runners: dict[str, backend.Runner] = {}
        self._want: Expected | None = None

    def _runner(self, c: Candidate) -> backend.Runner:
        if c.name not in self._runners:
            before = Before.of(*c.before) if c.before else None
            made = backend.runner(
                c.cut.tiles, self._target, c.schedule, before, packed=c.cut.packed
            )
            self._runners[c.name] = made
        return self._runners[c.name]

    def outputs(self, c: Candidate, until: float) -> Mapping[str, Any]:
        del until
        return {n: self._plain(a) for n, a in self._run(self._runner(c)).items()}

    def expect(self, want: Expected) -> None:
        self._want = want

    def check(self, c: Candidate, until: float) -> tuple[str, float]:
        assert self._want is not None
        return self._want.differs(self.outputs(c, until))

    def burst(self, c: Candidate, until: float) -> float:
        del until
        runner = self._runner(c)
        start = time.perf_counter()
        self._run(runner)
        return time.perf_counter() - start

    def forget(self, name: str) -> None:
        self._runners.pop(name, None)

    def close(self) -> None:
        self._runners.clear()
