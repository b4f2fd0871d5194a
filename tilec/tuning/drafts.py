"""Candidates before they run: their tiles, what these move and do, and the time that the cost model predicts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tilec import backend, binding, ceilings, cost, least, roofline, text
from tilec.backend import Draft
from tilec.ceilings import Ceilings
from tilec.control import Control
from tilec.cut import Cut, Cutter
from tilec.errors import ResourceError
from tilec.ir import Kernel
from tilec.traffic import Budget, budget
from tilec.tuning import space as spaces
from tilec.tuning.bench import Candidate
from tilec.tuning.board import Entry
from tilec.tuning.problem import Problem
from tilec.tuning.store import UNFIT, Choice
from tilec.wide import counted
from tilec.work import Unit


def predicted(
    draft: Draft, stated: Budget, roof: Ceilings, trimmed: Mapping[Unit, int] | None = None
) -> float:
    """Seconds that what would run should take: by the target's own cost model, where it has one.

    `stated`: the budget of its tiles; `trimmed`: the operations of the smallest tiles, as for `cost.predict`.
    """
    if draft.seconds is not None:
        return draft.seconds(stated, roof)
    return cost.seconds(draft.kernel, stated, roof, trimmed)


class Drafts:
    """The candidates of a problem. `space`: as text, None for the usual one."""

    def __init__(self, problem: Problem, space: Iterable[str] | None) -> None:
        self.problem = problem
        self._cutter = Cutter.of(problem.online, problem.target)
        self._far = binding.far(counted(problem.lowered), problem.scalars)
        self._budgets: dict[Kernel, Budget] = {}
        self._roof = ceilings.measured(problem.target)
        usual = self.cut(Choice())
        self.space = (
            spaces.default_space(usual, problem.online, problem.target)
            if space is None
            else spaces.parse(list(space), usual.kernel, problem.target)
        )
        self._trimmed = self._smallest(usual) if problem.target == "cpu" else None
        self.default, self._default_code = self._draft(Choice())

    def candidates(self, first: Iterable[Choice], meanwhile: Callable[[], None]) -> Iterator[Entry]:
        """Those of the space, after some that come `first`; of those that make the same code there is one, and none that
        makes the default's. What does not fit says so. `meanwhile` is called before each is looked at, and may raise."""
        p = self.problem
        seen = {self._default_code}
        points = spaces.candidates(self.space, p.online, {**p.sizes, **p.scalars})
        for choice in itertools.chain(first, points):
            meanwhile()
            try:
                e, code = self._draft(choice)
            except ResourceError as error:
                yield Entry(choice, 0.0, UNFIT, note=str(error))
                continue
            if code not in seen:
                seen.add(code)
                yield e

    def cut(self, choice: Choice) -> Cut:
        """The tiles that a call with this choice has."""
        p = self.problem
        own = {} if backend.on_gpu(p.target) else dict(choice.schedule)
        return self._cutter(p.sizes, p.scalars, choice.tile, own, far=self._far)

    def _draft(self, choice: Choice) -> tuple[Entry, object]:
        """A candidate with its prediction, and what tells its code from others. ResourceError: it does not fit."""
        p, cut = self.problem, self.cut(choice)
        draft = backend.draft(cut.kernel, p.target, choice.schedule, self._before(choice))
        expected = predicted(draft, self._budget(draft.kernel), self._roof, self._trimmed)
        e = Entry(choice, expected, room=draft.room, cut=cut, runs=draft.kernel)
        return e, draft.identity

    def _before(self, choice: Choice) -> tuple[Kernel, Mapping[str, int]] | None:
        """The kernel before it is cut, for targets that choose the tiles themselves."""
        return None if choice.tile or self._far else (self.problem.online, self.problem.sizes)

    def _budget(self, tiles: Kernel) -> Budget:
        """What a kernel in tiles moves and does."""
        p = self.problem
        if tiles not in self._budgets:
            self._budgets[tiles] = budget(tiles, p.sizes, p.scalars, p.arrays)
        return self._budgets[tiles]

    def _smallest(self, usual: Cut) -> Mapping[Unit, int]:
        """The operations in tiles of 16: what the CPU target trims masked tiles to."""
        p = self.problem
        axes = spaces.default_space(usual, p.online, p.target)
        work = self._budget(self.cut(Choice(dict.fromkeys(axes, 16))).kernel).work
        return {u: work.total(u) for u in work.ops}

    # ---- for those who compile and run them

    def candidate(self, e: Entry) -> Candidate:
        """A candidate as the bench runs it."""
        assert e.cut is not None
        return Candidate(e.choice.text, e.cut, e.choice.schedule, self._before(e.choice))

    def request(self, e: Entry) -> dict[str, Any]:
        """A candidate as a process that compiles it is asked for it."""
        p = self.problem
        assert e.cut is not None
        own = backend.on_gpu(p.target) and self._before(e.choice) is not None
        return {
            "tiles": text.show(e.cut.kernel),
            "online": text.show(p.online) if own else None,
            "sizes": dict(p.sizes),
            "target": p.target,
            "schedule": dict(e.choice.schedule),
        }

    def bound(self) -> float:
        """Seconds that no schedule beats: for the compulsory bytes, and the operations that all schedules do."""
        p, tiles = self.problem, self.default.runs
        assert tiles is not None
        arrays: Mapping[str, Any] = p.arrays if Control(tiles, usual=True).tensors else {}
        kept = least.work(p.online, p.sizes, p.scalars, arrays)
        stated = self._budget(tiles)
        once = sum(roofline.compulsory(tiles, stated.known).values())
        return roofline.bound(min(once, stated.total), 0, kept, self._roof).least
