"""The search: candidates are ranked by the cost model, compiled side by side, checked, and timed against the best so far.

A candidate is timed in turn with the incumbent, so that what else the machine does falls on both; what counts is the ratio
of the two medians. Nothing is compiled while something is timed. Each result is compared with the float64 reference, or with
its values at some tiles where all of them would take too long, before the time counts.
"""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from tilec import accuracy, backend, binding, ceilings, cost, least, roofline, text
from tilec.control import Control
from tilec.cut import Cut, Cutter
from tilec.errors import ArgumentError, ResourceError, TilecError, UnsupportedError
from tilec.ir import Kernel
from tilec.scalar import Number
from tilec.traffic import Budget, budget
from tilec.tuning import expected
from tilec.tuning import space as spaces
from tilec.tuning.bench import Bench, Candidate
from tilec.tuning.board import Entry, Leaderboard
from tilec.tuning.child import Late
from tilec.tuning.compilers import Compilers
from tilec.tuning.expected import Expected
from tilec.tuning.key import Key
from tilec.tuning.store import UNFIT, Choice, Store, StoreError, Trial, Winner
from tilec.wide import counted
from tilec.work import Unit

LONG = 0.3
"""Seconds of its own after which a candidate has been timed long enough."""
HOPELESS = 1.3
"""A candidate this much slower than the incumbent after the first rounds is not timed further."""
CLOSE = 1.05
"""One that is no closer than this to the incumbent has been timed often enough after the fewest rounds."""
FEWEST = 3
"""Calls that a search needs at least: one whose result is checked, two that are timed."""
WORTH = 12
"""Calls after which the default and a candidate are known."""
DEFAULT = "the default schedule"
"""What results are compared with where exact values take too long."""
SHARE = 0.25
"""Of what is left of the budget, for exact values."""
SLOW = 0.5
"""Seconds from which on it is said what is being done."""
FOREVER = 1e9
"""A time of the monotonic clock that does not come."""
BETTER = 0.98
"""A candidate must take this share of the incumbent's time to replace it: less is noise."""


@dataclass(frozen=True)
class Problem:
    """What is tuned: a kernel's IR before and after the tensor passes, and a call of it.

    `fixed`: the sizes that code is compiled for. `arrays`: NumPy arrays. `reference` gives the exact outputs (`plain=True`:
    those of plain arithmetic); `bench` makes what runs the candidates.
    """

    key: Key
    target: str
    lowered: Kernel
    online: Kernel
    sizes: Mapping[str, int]
    scalars: Mapping[str, Number]
    fixed: Mapping[str, int]
    arrays: Mapping[str, Any]
    reference: Callable[..., Mapping[str, Any]]
    bench: Callable[[], Bench]


@dataclass(frozen=True)
class Options:
    """How to search. `budget`: seconds; `space`: as text, None for the usual one; `jobs`: compiling processes, 0 for none.

    `resume`: keep what an earlier search for the same key measured. `progress` sees each step: how many candidates are
    done, of how many, and the best so far. `notice` hears what is done before, where that takes long.
    """

    budget: float = 60.0
    space: Sequence[str] | None = None
    jobs: int = 1
    resume: bool = False
    progress: Callable[[int, int, Entry, Entry], None] | None = None
    notice: Callable[[str], None] | None = None


def tune(problem: Problem, store: Store, options: Options = Options()) -> Leaderboard:
    """Searches; the winner is in the store afterwards, also after Ctrl-C. Raises what the default schedule's call would."""
    search = _Search(problem, store, options)
    try:
        return search.run()
    finally:
        search.bench.close()


class _Search:
    def __init__(self, problem: Problem, store: Store, options: Options) -> None:
        self.until = (
            time.monotonic() + options.budget
        )  # also of what is measured and computed first
        self.problem, self.store, self.options = problem, store, options
        self.cutter = Cutter.of(problem.online, problem.target)
        self.far = binding.far(counted(problem.lowered), problem.scalars)
        self.budgets: dict[Kernel, Budget] = {}
        cut, given = self.cut(Choice()), options.space
        self.space = (
            spaces.default_space(cut, problem.online, problem.target)
            if given is None
            else spaces.parse(given, cut.kernel, problem.target)
        )
        self.roof = ceilings.measured(problem.target)
        self.done: list[Entry] = []
        self.trimmed: Mapping[Unit, int] | None = None
        if problem.target == "cpu":
            self.trimmed = self.smallest()
        self.default, _ = self.entry(Choice())
        self.incumbent = self.default
        self.complete = False
        self.possible()
        self.bench = problem.bench()

    def run(self) -> Leaderboard:
        """The whole search."""
        if not self.options.resume:
            self.store.forget(self.problem.key)
        self.prepare_default()
        try:
            waiting = self.ranked()
            total = len(waiting) + len(self.done)
            with Compilers(max(1, self.options.jobs)) as compilers:
                for batch in _batches(waiting, max(2, 2 * self.options.jobs)):
                    for e in self.compiled(compilers, batch):
                        self.done.append(self.tried(e))
                        self.tell(total)
            self.complete = True
        except (KeyboardInterrupt, Late):
            pass  # what is known stays
        return self.board()

    def possible(self) -> None:
        """Raises ResourceError where the budget ends before the default schedule could be timed."""
        call = self.default.predicted
        if FEWEST * call <= self.left:
            return
        raise ResourceError(
            f"tune: a call of these sizes takes {call:.2g} s or more, too long for the {max(self.left, 0):.2g} s of "
            f"the budget that are left; what works is {math.ceil(2 * WORTH * call)} s more, or smaller sizes"
        )

    @property
    def left(self) -> float:
        """Seconds until the budget is spent."""
        return self.until - time.monotonic()

    def notice(self, doing: str) -> None:
        """Says what is being done, where it takes long enough to wonder."""
        if self.options.notice is not None and FEWEST * self.default.predicted > SLOW:
            self.options.notice(doing)

    def tell(self, total: int) -> None:
        """Shows the progress to whoever watches."""
        if self.options.progress is not None:
            self.options.progress(len(self.done), total, self.done[-1], self.incumbent)

    def in_time(self) -> None:
        """Raises Late where the budget is spent."""
        if time.monotonic() > self.until:
            raise Late

    # ---- candidates

    def cut(self, choice: Choice) -> Cut:
        """The tiles that a call with this choice has."""
        p = self.problem
        own = {} if backend.on_gpu(p.target) else dict(choice.schedule)
        return self.cutter(p.sizes, p.scalars, choice.tile, own, far=self.far)

    def budget(self, tiles: Kernel) -> Budget:
        """What a kernel in tiles moves and does."""
        p = self.problem
        if tiles not in self.budgets:
            self.budgets[tiles] = budget(tiles, p.sizes, p.scalars, p.arrays)
        return self.budgets[tiles]

    def smallest(self) -> Mapping[Unit, int]:
        """The operations in tiles of 16: what the CPU target trims masked tiles to."""
        p = self.problem
        axes = spaces.default_space(self.cut(Choice()), p.online, p.target)
        work = self.budget(self.cut(Choice(dict.fromkeys(axes, 16))).kernel).work
        return {u: work.total(u) for u in work.ops}

    def entry(self, choice: Choice) -> tuple[Entry, object]:
        """A candidate with its prediction, and what tells its code from others. ResourceError: it does not fit."""
        p, cut = self.problem, self.cut(choice)
        draft = backend.draft(cut.kernel, p.target, choice.schedule, self.before(choice))
        stated = self.budget(draft.kernel)
        if draft.seconds is not None:
            predicted = draft.seconds(stated, self.roof)
        else:
            predicted = cost.seconds(draft.kernel, stated, self.roof, self.trimmed)
        e = Entry(choice, predicted, room=draft.room, cut=cut, runs=draft.kernel)
        return e, draft.identity

    def before(self, choice: Choice) -> tuple[Kernel, Mapping[str, int]] | None:
        """The kernel before it is cut, for targets that choose the tiles themselves."""
        return None if choice.tile or self.far else (self.problem.online, self.problem.sizes)

    def ranked(self) -> list[Entry]:
        """The candidates that fit, the most promising first; of those that make the same code, one."""
        p = self.problem
        known = {**p.sizes, **p.scalars}
        seen = {self.entry(Choice())[1]}
        out: list[Entry] = []
        for choice in itertools.chain(
            self.stored(), spaces.candidates(self.space, p.online, known)
        ):
            self.in_time()
            try:
                e, identity = self.entry(choice)
            except ResourceError as error:
                self.done.append(Entry(choice, 0.0, UNFIT, note=str(error)))
                continue
            if identity not in seen:
                seen.add(identity)
                out.append(e)
        return self.resumed(sorted(out, key=lambda e: e.predicted))

    def stored(self) -> Iterable[Choice]:
        """The winner of an earlier search: worth another look."""
        try:
            w = self.store.winner(self.problem.key)
        except StoreError:  # damaged: this search stores another one in its place
            return []
        known = set(spaces.tiled_axes(self.cut(Choice()).kernel))
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
        self.in_time()
        if self.options.jobs == 0:
            return list(batch)
        answers = compilers.compile([self.request(e) for e in batch], self.until)
        return [
            e
            if a["ok"]
            else replace(e, state="failed" if a.get("fits", True) else UNFIT, note=a["error"])
            for e, a in zip(batch, answers, strict=True)
        ]

    def request(self, e: Entry) -> dict[str, Any]:
        p = self.problem
        assert e.cut is not None
        own = backend.on_gpu(p.target) and self.before(e.choice) is not None
        return {
            "tiles": text.show(e.cut.kernel),
            "online": text.show(p.online) if own else None,
            "sizes": dict(p.sizes),
            "target": p.target,
            "schedule": dict(e.choice.schedule),
        }

    def candidate(self, e: Entry) -> Candidate:
        """A candidate as the bench runs it."""
        assert e.cut is not None
        return Candidate(e.choice.text, e.cut, e.choice.schedule, self.before(e.choice))

    # ---- checking and timing

    def prepare_default(self) -> None:
        """Runs the default schedule: its result is checked, its time is the yardstick. It may outlast the budget."""
        c = self.candidate(self.default)
        self.notice("computing exact values to compare with")
        self.want = self.expected(c)
        self.bench.expect(self.want)
        self.notice(f"timing the default schedule: about {self.default.predicted:.2g} s a call")
        wrong, worst = self.checked(c, FOREVER)
        if wrong:
            raise UnsupportedError(
                f"tune: the default schedule's result is not the reference's ({wrong}); what works is to report this"
            )
        seconds = self.default_seconds(c)
        self.default = replace(
            self.default, state="measured", relative=1.0, seconds=seconds, error=worst
        )
        self.incumbent = self.default
        self.done.append(self.default)
        tiles = self.default.runs
        assert tiles is not None
        self.least = self.bound(tiles)

    def checked(self, c: Candidate, until: float) -> tuple[str, float]:
        """What is wrong with a candidate's result, and its largest error. Where the first is off by more than the tolerance,
        it is found out what may be due to the types."""
        wrong, worst = self.bench.check(c, until)
        if not wrong or self.want.plain or self.want.source == DEFAULT:
            return wrong, worst
        self.notice("computing how far off plain arithmetic is")
        self.want = expected.with_plain(self.problem, self.want)
        self.bench.expect(self.want)
        return self.bench.check(c, until)

    def expected(self, default: Candidate) -> Expected:
        """What results should be: exact values, or where these take too long what the default schedule gives."""
        p = self.problem
        tolerance = accuracy.tolerance((*p.arrays.values(), *p.lowered.outputs))
        want = expected.exact(p, tolerance, SHARE * self.left)
        if want is not None:
            return want
        outputs = self.bench.outputs(default, FOREVER)
        return expected.whole(outputs, tolerance, DEFAULT)

    def default_seconds(self, c: Candidate) -> float:
        """The time of the default schedule, from fewer calls where the budget ends."""
        times: list[float] = []
        while len(times) < self.bench.least and (self.left > 0 or not times):
            times.append(self.bench.burst(c, FOREVER))
        return statistics.median(times)

    def bound(self, tiles: Kernel) -> float:
        """Seconds that no schedule beats: for the compulsory bytes, and the operations that all schedules do."""
        p = self.problem
        kept = least.work(
            p.online, p.sizes, p.scalars, p.arrays if Control(tiles, usual=True).tensors else {}
        )
        stated = self.budget(tiles)
        once = sum(roofline.compulsory(tiles, stated.known).values())
        return roofline.bound(min(once, stated.total), 0, kept, self.roof).least

    def tried(self, e: Entry) -> Entry:
        """A candidate after its check and its timing; it is the incumbent if it is better. Raises Late."""
        if e.state in ("failed", UNFIT):
            self.note(e)
            return e
        self.in_time()
        self.store.note(self.problem.key, Trial(e.choice, "running"))
        try:
            e = self.confirmed(self.timed(e))
        except TilecError as error:
            e = replace(e, state="failed", note=str(error).splitlines()[0])
        self.note(e)
        if e.state == "measured" and e.relative < self.incumbent.relative * BETTER:
            self.crown(e)
        elif e.choice.text != self.incumbent.choice.text:
            self.bench.forget(e.choice.text)
        return e

    def note(self, e: Entry) -> None:
        state = e.state if e.state in ("measured", UNFIT) else "failed"
        self.store.note(self.problem.key, Trial(e.choice, state, e.relative, e.seconds, e.note))

    def timed(self, e: Entry) -> Entry:
        """A candidate after its check and its timing. Raises Late where the budget ends before its time is known."""
        wrong, worst = self.checked(self.candidate(e), self.until)
        if wrong:
            return replace(e, state="wrong", note=wrong)
        ratio, seconds = self.beside(e, self.incumbent)
        relative = self.incumbent.relative * ratio
        return replace(e, state="measured", relative=relative, seconds=seconds, error=worst)

    def confirmed(self, e: Entry) -> Entry:
        """A candidate that looks better than the incumbent, timed beside the default: what else the machine did while it was
        timed beside the incumbent does not decide alone, and errors of ratios do not add up."""
        if e.state != "measured" or e.relative >= self.incumbent.relative * BETTER:
            return e
        ratio, seconds = self.beside(e, self.default)
        return replace(e, relative=max(ratio, e.relative), seconds=seconds)

    def beside(self, e: Entry, other: Entry) -> tuple[float, float]:
        """A candidate's time over another's, in turns, and its seconds."""
        ours: list[float] = []
        theirs: list[float] = []
        while not self.is_known(ours, theirs):
            turns = [(ours, e), (theirs, other)]
            for times, which in reversed(turns) if len(ours) % 2 else turns:
                self.in_time()
                times.append(self.bench.burst(self.candidate(which), self.until))
        return statistics.median(ours) / statistics.median(theirs), statistics.median(ours)

    def is_known(self, ours: Sequence[float], theirs: Sequence[float]) -> bool:
        """Whether a candidate has been timed often enough beside the incumbent."""
        least, most = self.bench.least, self.bench.most
        if not ours:
            return False
        ratio = statistics.median(ours) / statistics.median(theirs)
        if len(ours) >= min(least, 2) and ratio > HOPELESS:
            return True
        if len(ours) < least:
            return False
        return (
            len(ours) >= most or sum(ours) > LONG or ratio > CLOSE or time.monotonic() > self.until
        )

    def crown(self, e: Entry) -> None:
        """Makes a candidate the incumbent, and stores it at once."""
        if self.incumbent.choice.text != self.default.choice.text:
            self.bench.forget(self.incumbent.choice.text)
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
        key = self.problem.key
        return Leaderboard(
            key.kernel,
            key,
            tuple(entries),
            self.default,
            self.least,
            self.want.source,
            self.complete,
        )


def _batches(entries: Sequence[Entry], size: int) -> Iterable[Sequence[Entry]]:
    return (entries[n : n + size] for n in range(0, len(entries), size))


def check(options: Options) -> None:
    """Raises ArgumentError for options of no use."""
    budget = cast(object, options.budget)
    if not isinstance(budget, (int, float)) or not budget > 0:
        raise ArgumentError(f"budget: expected a time of more than 0 seconds, got {budget!r}")
    if options.jobs < 0:
        raise ArgumentError(f"jobs: expected 0 or more compiling processes, got {options.jobs}")
