"""The search: candidates are ranked by the cost model, compiled side by side, checked, and timed against the best so far.

A candidate is timed in turn with the incumbent, so that what else the machine does falls on both; what counts is the ratio
of the two medians. Nothing is compiled while something is timed. Each result is compared with the float64 reference, or,
where that would take too long, with the default schedule's, before the time counts.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilec import accuracy, backend, ceilings, cost, roofline, text
from tilec.errors import ArgumentError, ResourceError, TilecError, UnsupportedError
from tilec.ir import Kernel
from tilec.scalar import Number
from tilec.traffic import budget
from tilec.tuning import space as spaces
from tilec.tuning.compilers import Compilers
from tilec.tuning.key import Key
from tilec.tuning.store import Choice, Store, Trial, Winner
from tilec.work import Unit

EXACT = 400_000_000
"""Operations up to which the float64 reference is run to check a candidate."""
LEAST, MOST = 3, 15
"""Rounds in which a candidate is timed."""
HOPELESS = 1.3
"""A candidate this much slower than the incumbent after the first rounds is not timed further."""
BETTER = 0.98
"""A candidate must take this share of the incumbent's time to replace it: less is noise."""


@dataclass(frozen=True)
class Problem:
    """What is tuned: a kernel's IR before and after the tensor passes, and a call of it.

    `fixed`: the sizes that code is compiled for. `run` gives the outputs of a call with a runner, by name, and returns when
    they are there; `reference` the exact ones, as NumPy arrays; `plain` makes NumPy arrays of outputs.
    """

    key: Key
    target: str
    lowered: Kernel
    online: Kernel
    sizes: Mapping[str, int]
    scalars: Mapping[str, Number]
    fixed: Mapping[str, int]
    arrays: Mapping[str, Any]
    run: Callable[[backend.Runner], Mapping[str, Any]]
    reference: Callable[[], Mapping[str, Any]]
    plain: Callable[[Any], Any]


@dataclass(frozen=True)
class Entry:
    """A candidate on the leaderboard. `relative`: its time over the default's; `error`: of its result."""

    choice: Choice
    predicted: float
    state: str = "waiting"
    relative: float = 0.0
    seconds: float = 0.0
    error: float = 0.0
    note: str = ""
    tiles: Kernel | None = None


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


@dataclass(frozen=True)
class Options:
    """How to search. `budget`: seconds; `space`: as text, None for the usual one; `jobs`: compiling processes, 0 for none.

    `resume`: keep what an earlier search for the same key measured. `progress` sees each step: how many candidates are
    done, of how many, and the best so far.
    """

    budget: float = 60.0
    space: Sequence[str] | None = None
    jobs: int = 1
    resume: bool = False
    progress: Callable[[int, int, Entry, Entry], None] | None = None


def tune(problem: Problem, store: Store, options: Options = Options()) -> Leaderboard:
    """Searches; the winner is in the store afterwards, also after Ctrl-C. Raises what the default schedule's call would."""
    return _Search(problem, store, options).run()


class _Search:
    def __init__(self, problem: Problem, store: Store, options: Options) -> None:
        self.problem, self.store, self.options = problem, store, options
        self.start = time.monotonic()
        tiles, given = self.tiles(Choice()), options.space
        self.space = (
            spaces.default_space(tiles, problem.target)
            if given is None
            else spaces.parse(given, tiles, problem.target)
        )
        self.roof = ceilings.measured(problem.target)
        self.done: list[Entry] = []
        self.trimmed: Mapping[Unit, int] | None = None
        if problem.target == "cpu":
            self.trimmed = self.smallest()
        self.default = self.entry(Choice())
        self.incumbent = self.default
        self.runners: dict[str, backend.Runner] = {}
        self.complete = False

    def run(self) -> Leaderboard:
        """The whole search."""
        if not self.options.resume:
            self.store.forget(self.problem.key)
        self.prepare_default()
        waiting = self.ranked()
        total = len(waiting) + len(self.done)
        try:
            with Compilers(max(1, self.options.jobs)) as compilers:
                for batch in _batches(waiting, max(2, 2 * self.options.jobs)):
                    for e in self.compiled(compilers, batch):
                        if self.late():
                            return self.board()
                        self.done.append(self.tried(e))
                        self.tell(total)
            self.complete = True
        except KeyboardInterrupt:
            pass  # what is known stays
        return self.board()

    def tell(self, total: int) -> None:
        """Shows the progress to whoever watches."""
        if self.options.progress is not None:
            self.options.progress(len(self.done), total, self.done[-1], self.incumbent)

    def late(self) -> bool:
        """Whether the budget is spent."""
        return time.monotonic() - self.start > self.options.budget

    # ---- candidates

    def tiles(self, choice: Choice) -> Kernel:
        p = self.problem
        return spaces.tiles_of(p.online, p.fixed, choice, p.target)

    def smallest(self) -> Mapping[Unit, int]:
        """The operations in tiles of 16: what the CPU target trims masked tiles to."""
        p = self.problem
        axes = spaces.default_space(self.tiles(Choice()), p.target)
        tiles = self.tiles(Choice({a: 16 for a in axes if a in p.online.extents}))
        work = budget(tiles, p.sizes, p.scalars, p.arrays).work
        return {u: work.total(u) for u in work.ops}

    def entry(self, choice: Choice) -> Entry:
        """A candidate with its prediction. Raises ResourceError where it does not fit."""
        p, tiles = self.problem, self.tiles(choice)
        alike = self.tiles(spaces.shape(choice, tiles))
        predicted = cost.predict(alike, p.sizes, p.scalars, p.arrays, self.roof, self.trimmed)
        return Entry(choice, predicted, tiles=tiles)

    def ranked(self) -> list[Entry]:
        """The candidates that fit, the most promising first; of those that make the same kernel, one."""
        p = self.problem
        seen = {(self.default.tiles, "{}")}
        out: list[Entry] = []
        for choice in itertools.chain(
            self.stored(), spaces.candidates(self.space, p.online, {**p.sizes, **p.scalars})
        ):
            try:
                e = self.entry(choice)
            except ResourceError as error:
                self.done.append(Entry(choice, 0.0, "does not fit", note=str(error)))
                continue
            assert e.tiles is not None
            same = (e.tiles, str(dict(choice.schedule)))
            if same not in seen:
                seen.add(same)
                out.append(e)
        return self.resumed(sorted(out, key=lambda e: e.predicted))

    def stored(self) -> Iterable[Choice]:
        """The winner of an earlier search: worth another look."""
        w = self.store.winner(self.problem.key)
        known = set(spaces.tiled_axes(self.default.tiles)) if self.default.tiles else set[str]()
        return [w.choice] if w is not None and set(w.choice.tile) <= known else []

    def resumed(self, waiting: list[Entry]) -> list[Entry]:
        """Without those that an earlier search measured; the one in flight when it died comes last."""
        if not self.options.resume:
            return waiting
        trials = {t.choice.text: t for t in self.store.trials(self.problem.key)}
        first: list[Entry] = []
        last: list[Entry] = []
        for e in waiting:
            t = trials.get(e.choice.text)
            if t is None:
                first.append(e)
            elif t.state == "running":
                last.append(e)
            else:
                self.adopt(
                    replace(e, state=t.state, relative=t.relative, seconds=t.seconds, note=t.note)
                )
        return first + last

    def adopt(self, e: Entry) -> None:
        """Takes over what an earlier search measured; it kept no errors."""
        e = replace(e, error=math.nan)
        self.done.append(e)
        if e.state == "measured" and e.relative < self.incumbent.relative * BETTER:
            self.crown(e)

    # ---- compiling

    def compiled(self, compilers: Compilers, batch: Sequence[Entry]) -> list[Entry]:
        """A batch of candidates, compiled into the cache on disk."""
        if self.options.jobs == 0 or self.late():
            return list(batch)
        answers = compilers.compile([self.request(e) for e in batch])
        return [
            e if a["ok"] else replace(e, state="failed", note=a["error"])
            for e, a in zip(batch, answers, strict=True)
        ]

    def request(self, e: Entry) -> dict[str, Any]:
        p = self.problem
        assert e.tiles is not None
        own = not e.choice.tile and backend.on_gpu(p.target)
        return {
            "tiles": text.show(e.tiles),
            "online": text.show(p.online) if own else None,
            "sizes": dict(p.sizes),
            "target": p.target,
            "schedule": dict(e.choice.schedule),
        }

    def runner(self, e: Entry) -> backend.Runner:
        """What runs a candidate; that of the incumbent is kept."""
        name = e.choice.text
        if name not in self.runners:
            p = self.problem
            assert e.tiles is not None
            before = None if e.choice.tile else (p.online, p.sizes)
            self.runners[name] = backend.runner(e.tiles, p.target, e.choice.schedule, before)
        return self.runners[name]

    # ---- checking and timing

    def prepare_default(self) -> None:
        """Runs the default schedule: its result is checked, its time is the yardstick."""
        p = self.problem
        got = {n: p.plain(a) for n, a in p.run(self.runner(self.default)).items()}
        self.tolerance = accuracy.tolerance((*p.arrays.values(), *got.values()))
        tiles = self.default.tiles
        assert tiles is not None
        stated = budget(tiles, p.sizes, p.scalars, p.arrays)
        work = sum(stated.work.total(u) for u in stated.work.ops)
        self.exact = work <= EXACT
        self.want = p.reference() if self.exact else got
        wrong, worst = self.differs(got)
        if wrong:
            raise UnsupportedError(
                f"tune: the default schedule's result is not the reference's ({wrong}); what works is to report this"
            )
        times = [self.once(self.default) for _ in range(LEAST)]
        self.default = replace(
            self.default,
            state="measured",
            relative=1.0,
            seconds=statistics.median(times),
            error=worst,
        )
        self.incumbent = self.default
        self.done.append(self.default)
        env = {**p.sizes, **p.scalars}
        self.least = roofline.stage("place", tiles, stated, env, self.roof).bound.least

    def differs(self, got: Mapping[str, Any]) -> tuple[str, float]:
        """What is wrong with a result (nothing: ""), and its largest error."""
        worst = 0.0
        for n, want in self.want.items():
            e = accuracy.error(got[n], want, self.tolerance)
            if not e.ok:
                return f"{n} is off by {e.largest:.3g}, allowed {e.allowed:.3g}", e.largest
            worst = max(worst, e.largest)
        return "", worst

    def once(self, e: Entry) -> float:
        """The seconds of one call."""
        runner = self.runner(e)
        start = time.perf_counter()
        self.problem.run(runner)
        return time.perf_counter() - start

    def tried(self, e: Entry) -> Entry:
        """A candidate after its check and its timing; it is the incumbent if it is better."""
        if e.state == "failed":
            self.note(e)
            return e
        self.store.note(self.problem.key, Trial(e.choice, "running"))
        try:
            e = self.timed(e)
        except TilecError as error:
            e = replace(e, state="failed", note=str(error).splitlines()[0])
        self.note(e)
        if e.state == "measured" and e.relative < self.incumbent.relative * BETTER:
            self.crown(e)
        elif e.choice.text != self.incumbent.choice.text:
            self.runners.pop(e.choice.text, None)
        return e

    def note(self, e: Entry) -> None:
        state = "measured" if e.state == "measured" else "failed"
        self.store.note(self.problem.key, Trial(e.choice, state, e.relative, e.seconds, e.note))

    def timed(self, e: Entry) -> Entry:
        p = self.problem
        wrong, worst = self.differs({n: p.plain(a) for n, a in p.run(self.runner(e)).items()})
        if wrong:
            return replace(e, state="wrong", note=wrong)
        ours: list[float] = []
        theirs: list[float] = []
        while len(ours) < LEAST or len(ours) < MOST and sum(ours) < 0.3 and not self.late():
            for times, which in (
                ((theirs, self.incumbent), (ours, e))
                if len(ours) % 2
                else ((ours, e), (theirs, self.incumbent))
            ):
                times.append(self.once(which))
            ratio = statistics.median(ours) / statistics.median(theirs)
            if len(ours) >= LEAST and ratio > HOPELESS:
                break
        return replace(
            e,
            state="measured",
            relative=self.incumbent.relative * statistics.median(ours) / statistics.median(theirs),
            seconds=statistics.median(ours),
            error=worst,
        )

    def crown(self, e: Entry) -> None:
        """Makes a candidate the incumbent, and stores it at once."""
        if self.incumbent.choice.text != self.default.choice.text:
            self.runners.pop(self.incumbent.choice.text, None)
        self.incumbent = e
        self.keep(e)

    def keep(self, e: Entry) -> None:
        self.store.keep(Winner(self.problem.key, e.choice, e.seconds, 1 / e.relative, time.time()))

    def board(self) -> Leaderboard:
        """The leaderboard; the winner is stored, the default if nothing beats it."""
        self.keep(self.incumbent)
        order = {"measured": 0, "wrong": 1, "failed": 2}
        entries = sorted(self.done, key=lambda e: (order.get(e.state, 3), e.relative))
        entries.remove(self.incumbent)
        entries.insert(0, self.incumbent)
        against = "the float64 reference" if self.exact else "the default schedule"
        name, key = self.problem.key.kernel, self.problem.key
        return Leaderboard(
            name, key, tuple(entries), self.default, self.least, against, self.complete
        )


def _batches(entries: Sequence[Entry], size: int) -> Iterable[Sequence[Entry]]:
    return (entries[n : n + size] for n in range(0, len(entries), size))


def check(options: Options) -> None:
    """Raises ArgumentError for options of no use."""
    if not options.budget > 0:
        raise ArgumentError(f"budget: expected a time of more than 0 seconds, got {options.budget}")
    if options.jobs < 0:
        raise ArgumentError(f"jobs: expected 0 or more compiling processes, got {options.jobs}")


# ---- showing


def show(board: Leaderboard, top: int | None = None) -> str:
    """The leaderboard as a table. `speed`: how many times faster than the default; `of roof`: the bound over the time."""
    head = f"{'':3} {'schedule':24} {'time':>10} {'speed':>7} {'of roof':>8} {'predicted':>10} {'error':>9}"
    lines = [f"{board.kernel} for {board.key.sizes} on {board.key.target}", head]
    measured = [e for e in board.entries if e.state == "measured"]
    for n, e in enumerate(measured[:top], 1):
        lines.append(
            f"{n:2}. {e.choice!s:24} {_time(board.time(e)):>10} {1 / e.relative:6.2f}x {board.least / board.time(e):8.0%} "
            f"{_time(e.predicted):>10} {_error(e.error):>9}"
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


def _error(e: float) -> str:
    return "-" if math.isnan(e) else f"{e:.1e}"


def _time(t: float) -> str:
    return f"{t * 1e6:.0f} µs" if t < 1e-3 else f"{t * 1e3:.2f} ms" if t < 1 else f"{t:.2f} s"
