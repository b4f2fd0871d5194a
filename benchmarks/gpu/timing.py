"""Times of several candidates beside each other in one process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

IDLE = 0.1
"""Seconds without work before each burst: the clock of a GPU that was just busy is lower."""
HOLD = 8_000_000
"""Cycles that the GPU is kept waiting while a burst is handed to it, so that times are those of the device."""
WARM, TIMED = 2, 12


def timed(runs: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median time of each candidate in ms: bursts after some idling, in alternating order."""
    times: dict[str, list[float]] = {r: [] for r in runs}
    for turn in range(rounds):
        for r in runs if turn % 2 == 0 else list(runs)[::-1]:
            times[r] += burst(runs[r])
    return {r: sorted(t)[len(t) // 2] for r, t in times.items()}


def burst(run: Callable[[], object]) -> list[float]:
    """The times of a few calls in a row, in ms."""
    import torch

    time.sleep(IDLE)
    torch.cuda._sleep(HOLD)
    for _ in range(WARM):
        run()
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(TIMED)]
    for start, end in events:
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in events]
