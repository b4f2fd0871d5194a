"""The search: candidates are ranked by the cost model, compiled side by side, checked, and timed against the best so far.

A candidate is timed in turn with the incumbent, so that what else the machine does falls on both; what counts is the ratio
of the two medians. Nothing is compiled while something is timed. Each result is compared with the float64 reference, or with
its values at some tiles where all of them would take too long, before the time counts.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tilec import accuracy
from tilec.errors import ResourceError, TilecError, UnsupportedError
from tilec.tuning import expected
from tilec.tuning import space as spaces
from tilec.tuning.bench import Candidate
from tilec.tuning.board import Entry, Leaderboard
from tilec.tuning.child import Late
from tilec.tuning.compilers import Compilers
from tilec.tuning.drafts import Drafts
from tilec.tuning.expected import Expected
from tilec.tuning.problem import Options, Problem
from tilec.tuning.store import UNFIT, Choice, Store, StoreError, Trial, Winner

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


def tune(problem: Problem, store: Store, options: Options = Options()) -> Leaderboard:
    """Searches; the winner is in the store afterwards, also after Ctrl-C. Raises what the default schedule's call would."""
    search = _Search(problem, store, options)
    try:
        return search.run()
    finally:
        search.bench.close()


class _Search:
    def __init__(self, problem: Problem, store: Store, options: Options) -> None:
        # what is measured and computed first is part of the budget
        self.until = time.monotonic() + options.budget
        self.problem, self.store, self.options = problem, store, options
        self.drafts = Drafts(problem, options.space)
        self.default = self.incumbent = self.drafts.default
        self.done: list[Entry] = []
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

    def ranked(self) -> list[Entry]:
        """The candidates that fit, the most promising first; of those that make the same code, one."""
        out: list[Entry] = []
        for e in self.drafts.candidates(self.stored(), self.in_time):
            (self.done if e.state == UNFIT else out).append(e)
        return self.resumed(sorted(out, key=lambda e: e.predicted))

    def stored(self) -> Iterable[Choice]:
        """The winner of an earlier search: worth another look."""
        try:
            w = self.store.winner(self.problem.key)
        except StoreError:  # damaged: this search stores another one in its place
            return []
        known = set(spaces.tiled_axes(self.drafts.cut(Choice()).kernel))
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
        answers = compilers.compile([self.drafts.request(e) for e in batch], self.until)
        return [
            e
            if a["ok"]
            else replace(e, state="failed" if a.get("fits", True) else UNFIT, note=a["error"])
            for e, a in zip(batch, answers, strict=True)
        ]

    # ---- checking and timing

    def prepare_default(self) -> None:
        """Runs the default schedule: its result is checked, its time is the yardstick. It may outlast the budget."""
        c = self.drafts.candidate(self.default)
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
        self.least = self.drafts.bound()

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
        wrong, worst = self.checked(self.drafts.candidate(e), self.until)
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
                times.append(self.bench.burst(self.drafts.candidate(which), self.until))
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
        """The leaderboard; the winner is stored, the default if nothing beats it. A default that was compared with nothing
        has won nothing: a search that ended before its first candidate stores none."""
        if self.complete or sum(e.state == "measured" for e in self.done) > 1:
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
