"""Times of several candidates beside each other in one process, on a machine that may have other work."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

LEAST, MOST = 5, 60
"""Rounds of a measurement."""


def timed(
    runs: Mapping[str, Callable[[], object]], budget: float, threads: int
) -> dict[str, list[float]]:
    """The seconds that each candidate took, round by round, in alternating order; `budget` is what all may take.

    On one thread that is the time that the thread ran, which other work on the machine does not add to.
    """
    clock = time.thread_time if threads == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in runs}
    end = time.perf_counter() + budget
    for turn in range(MOST):
        if turn >= LEAST and time.perf_counter() > end:
            break
        for name in list(runs)[:: 1 if turn % 2 == 0 else -1]:
            start = clock()
            runs[name]()
            times[name].append(clock() - start)
    return times


def typical(times: list[float], threads: int) -> float:
    """The median of a thread's own times; of elapsed times the shortest, in which the machine had least other work."""
    return statistics.median(times) if threads == 1 else min(times)


def ratio(others: list[float], ours: list[float], threads: int) -> float:
    """How many times the time of others ours is in."""
    if threads > 1:
        return min(others) / min(ours)
    return statistics.median(b / a for a, b in zip(ours, others, strict=True))
