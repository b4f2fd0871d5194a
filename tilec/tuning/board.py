"""The leaderboard: what became of each candidate, and how it is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilec.backend import Room
from tilec.cut import Cut
from tilec.ir import Kernel
from tilec.tuning.key import Key
from tilec.tuning.store import Choice


@dataclass(frozen=True)
class Entry:
    """A candidate on the leaderboard. `relative`: its time over the default's; `error`: of its result.

    `room`: what it takes on chip; `cut`: the tiles that the code is made of; `runs`: the IR that runs.
    """

    choice: Choice
    predicted: float
    state: str = "waiting"
    relative: float = 0.0
    seconds: float = 0.0
    error: float = 0.0
    note: str = ""
    room: Room | None = None
    cut: Cut | None = None
    runs: Kernel | None = None


@dataclass(frozen=True)
class Leaderboard:
    """What a search found. `entries`: measured candidates, the fastest first, then the others."""

    kernel: str
    key: Key
    entries: tuple[Entry, ...]
    default: Entry
    least: float
    compared_with: str
    complete: bool

    @property
    def best(self) -> Entry:
        """The fastest right candidate."""
        return self.entries[0]

    @property
    def measured(self) -> tuple[Entry, ...]:
        """Those whose time is known."""
        return tuple(e for e in self.entries if e.state == "measured")

    def time(self, e: Entry) -> float:
        """A candidate's seconds as they would be beside the default: what else the machine did is divided out."""
        return e.relative * self.default.seconds

    def __str__(self) -> str:
        return show(self)


def show(board: Leaderboard, top: int | None = None) -> str:
    """The leaderboard as a table. `speed`: how many times faster than the default; `of roof`: the time that no
    schedule beats over this one's."""
    measured = board.measured
    wide = max([24, *(len(str(e.choice)) for e in measured[:top])])
    on_chip = any(e.room for e in measured)
    lines = [
        f"{board.kernel} for sizes near {board.key.sizes} on {board.key.target}",
        f"{'':3} {'schedule':{wide}} {'time':>10} {'speed':>7} {'of roof':>8} {'predicted':>10} {'error':>9}"
        + (f" {'registers':>9} {'shared':>10}" if on_chip else ""),
    ]
    for n, e in enumerate(measured[:top], 1):
        lines.append(
            f"{n:2}. {e.choice!s:{wide}} {_time(board.time(e)):>10} {1 / e.relative:6.2f}x "
            f"{board.least / board.time(e):8.0%} {_time(e.predicted):>10} {_error(e.error):>9}"
            + (f" {_room(e.room)}" if on_chip else "")
        )
    others = [e for e in board.entries if e.state != "measured"]
    for state in dict.fromkeys(e.state for e in others):
        found = [e for e in others if e.state == state]
        lines.append(f"{len(found)} {state}: {found[0].choice}: {found[0].note}")
    lines.append(
        f"checked against {board.compared_with}"
        + ("" if board.complete else "; not all candidates were tried")
    )
    return "\n".join(lines)


def _room(room: Room | None) -> str:
    return f"{'-':>9} {'-':>10}" if room is None else f"{room.registers:9} {room.shared:8,} B"


def _error(e: float) -> str:
    return "-" if math.isnan(e) else f"{e:.1e}"


def _time(t: float) -> str:
    return f"{t * 1e6:.0f} µs" if t < 1e-3 else f"{t * 1e3:.2f} ms" if t < 1 else f"{t:.2f} s"
