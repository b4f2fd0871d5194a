"""Asking for the next window of a streamed operand while the present one is worked on.

A window is read once per panel of rows, so that it comes from a near cache but for the first time. Asked for at once, it is
more lines than a processor waits for at a time, and all stands still meanwhile. So each register tile of a panel asks for a
few lines: those of the rows that it reads itself, one window on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.points import Point
from tilec.backends.cpu.tiles import LINE


@dataclass(frozen=True)
class Ahead:
    """The next window of an operand in memory: the axis that is streamed, where it starts, the bytes of a row, and those
    from one row to the next."""

    axis: str
    base: Any
    size: int
    step: Any


def announce(ev: Evaluator, name: str, ahead: Ahead) -> None:
    """Has the register tiles of the present scope ask for a window."""
    ev.memo.keep(("ahead", name), ahead)


def _known(ev: Evaluator) -> Iterator[Ahead]:
    return (x for x in ev.memo.values() if isinstance(x, Ahead))


def ask(ev: Evaluator, points: Sequence[Point], axis: str, width: int) -> None:
    """Asks for a part of the next windows along an axis, that of the present panel of `width` lanes, for the rows at
    these points, which follow one another."""
    e, lane = ev.e, points[0].vector
    assert lane is not None
    panels = max(1, ev.window(lane).extent // width)
    for x in _known(ev):
        if x.axis != axis:
            continue
        lines = -(-x.size // (LINE * panels))
        at = e.mul(points[0].at[lane], lines * LINE // width)
        at = e.add(at, e.mul(points[0].at[axis], x.step))
        for r in range(len(points)):
            row = e.at(x.base, e.add(at, e.mul(r, x.step)), 1)
            for n in range(lines):
                e.prefetch(e.at(row, n * LINE, 1), near=False)
