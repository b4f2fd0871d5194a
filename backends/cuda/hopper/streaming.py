"""The windows of a tile: the steps that a computing warpgroup takes in each, one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from tilec.backends.cuda.hopper.alike import Alike, alike, counting
from tilec.backends.cuda.hopper.asked import Asked, asked
from tilec.backends.cuda.hopper.bulk import BulkEpilogue
from tilec.backends.cuda.hopper.early import early
from tilec.backends.cuda.hopper.fragments import BlockEmitter
from tilec.backends.cuda.hopper.labels import RING
from tilec.backends.cuda.hopper.loop import FragmentLoop
from tilec.backends.cuda.hopper.plan import Plan
from tilec.backends.cuda.hopper.steps import (
    Acquire,
    Advance,
    Compute,
    Fetch,
    First,
    Hear,
    Issue,
    Leave,
    Loop,
    Mask,
    More,
    Next,
    Query,
    Release,
    Settle,
    Share,
    Step,
    Stream,
    Turn,
    split,
)
from tilec.backends.cuda.hopper.waiting import Waiting


class Streaming(Waiting):
    """Writes the steps of a tile. `asked`, `made`: by block, what is under way for its window, and which masks are made."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan)
        self.asked: dict[int, dict[str, tuple[Asked, str]]] = {}
        self.made: dict[int, dict[object, str]] = {}

    def steps(self, steps: Iterable[Step]) -> None:
        """Some steps, one after the other."""
        for step in steps:
            self.step(step)

    def step(self, step: Step) -> None:
        """One step of the plan."""
        match step:
            case Query():
                self.query(step)
            case Next():
                self.next_tile()
            case Acquire():
                self.acquire(step)
            case Release():
                self.release(step)
            case Advance():
                self.out.add(f"{step.cursor}.step();")
            case Hear():
                self.hear_window(step)
            case Turn():
                self.turn(step)
            case Issue(what="heads"):
                self.issue_heads()
            case Issue():
                self.issue_tails()
            case Settle():
                self.settle(step)
            case Share():
                self.share()
            case Fetch():
                self.asked[step.block] = self.fetch(step.block)
            case Mask():
                self.made[step.block] = self.early_masks(step.block)
            case Compute():
                self.compute(step)
            case First():
                self.first(step)
            case Loop():
                self.loop(step)
            case Stream():
                self.stream(step)
            case More():
                with self.out.block("if (next_origin >= 0)"):
                    self.steps(step.steps)
            case Leave():
                BulkEpilogue(self.scope, self.plan, self.registers, self.maps).write()

    def first(self, step: First) -> None:
        """The first window of a tile, in whichever loop has it."""
        self.steps(step.shared)
        if self.first_together(step):
            return
        for k in self.either_first():
            self.steps(step.blocks[k])

    def loop(self, step: Loop) -> None:
        """The windows of a loop after the first one."""
        self.out.add("#pragma unroll 1")
        with self.out.block(f"for (int n = begin_{step.block}; n < windows_{step.block}; n++)"):
            self.window(step.block, "n")
            self.steps(step.steps)

    def either_first(self) -> Iterator[int]:
        """The blocks that a first window may take, in a branch for each."""
        order = range(len(self.s.blocks)) if self.s.chosen else self.s.order
        for place, k in enumerate(order):
            head = "if" if place == 0 else "else if"
            test = self.is_block(k) if self.s.chosen else f"windows_{k} > 0"
            last = place and place == len(order) - 1
            with self.out.block("else" if last else f"{head} ({test})"):
                if not self.s.chosen:
                    self.out.add(f"begin_{k} = 1;")
                self.window(k, "0")
                yield k

    def first_together(self, step: First) -> bool:
        """The first windows as one program, where their blocks differ in masks alone, and these are words."""
        found = alike(self.s)
        if found is None:
            return False
        general, before = step.blocks[found.general], list(self.out.lines)
        others = [tuple(x for x in steps if not isinstance(x, Compute)) for steps in step.blocks]
        if len(set(others)) > 1:
            return False
        for inner in general:
            if not isinstance(inner, Compute):
                self.step(inner)
            elif not self.compute_together(inner, found):
                self.out.lines[:] = before
                return False
        return True

    def compute_together(self, step: Compute, found: Alike) -> bool:
        """Computes a first window with masks as words; False where these are no words."""
        given = {x: self.names.fresh("counting") for x in found.masked[found.general]}
        every = {x: self.names.fresh("every") for x in given}
        self.out.add(f"int at_first; u32 {', '.join(every.values())};")
        for k in self.either_first():
            self.out.add("at_first = window;")
            for x, name in every.items():
                self.out.add(f"{name} = {'0' if found.masked[k][x] else 'FULL'};")
        self.placed("at_first", True)
        saved, block = dict(self.scope.values), self.emitting(step.block, True)
        bits = {name: counting(block, x, every[x]) for x, name in given.items()}
        self.scope.values = saved
        for name, words in bits.items():
            if words is None:
                return False
            self.out.add(f"u32 {name}[{len(words) * self.scope.held}];")
            for n, text in enumerate(words):
                self.out.add(f"ROWS {name}[{n * self.scope.held} + r] = {text};")
        self.compute(step, given)
        return True

    def is_block(self, k: int) -> str:
        """The test whether the word is of a block."""
        return f"(word & {(1 << self.bits) - 1}) == {k}"

    def stream(self, step: Stream) -> None:
        """The windows after the first one, until one that is the last."""
        self.out.add("#pragma unroll 1")
        with self.out.block(f"while (!(word & {1 << self.bits}))"):
            self.steps((step.hear, *step.shared))
            last = len(step.blocks) - 1
            for k, steps in enumerate(step.blocks):
                head = "if" if k == 0 else "else if"
                with self.out.block("else" if k == last and k else f"{head} ({self.is_block(k)})"):
                    self.window(k, "")
                    self.steps(steps)

    def window(self, block: int, n: str) -> None:
        """Where the window is, and where this thread's columns in it are."""
        at = f"(int)((u32)word >> {self.bits + 1})" if self.s.chosen else self.s.at(block, n)
        self.placed(at, self.s.blocks[block].loop.ragged)

    def placed(self, at: str, ragged: bool) -> None:
        """The variables that say where a window is."""
        stream = self.s.stream
        self.out.add(
            f"const int window = {at}, stream_lane = window + 2 * (lane & 3);   // {stream}"
        )
        if ragged:
            self.out.add(f"const int rest = {self.scope.extent(stream).text} - stream_lane;")

    def emitting(self, k: int, first: bool) -> BlockEmitter:
        """What emits a block."""
        block = self.s.blocks[k]
        ragged = block.loop.ragged
        return BlockEmitter(self.scope, block, self.registers, ragged, first, self.schedule.guess)

    def fetch(self, k: int) -> dict[str, tuple[Asked, str]]:
        """Asks for what the present window needs of rows and positions; gives the arrays that it comes to."""
        block = self.s.blocks[k]
        ragged = block.loop.ragged
        self.scope.whole = not ragged
        found = asked(self.s, block)
        return {x.load.result.name: (x, x.fetched(self.scope, ragged)) for x in found}

    def early_masks(self, k: int) -> dict[object, str]:
        """Makes the masks of the present window that no product decides about; gives the names of their words."""
        saved, block = dict(self.scope.values), self.emitting(k, False)
        for x in early(self.s, self.s.blocks[k]):
            FragmentLoop(block, []).test(x)
        self.scope.values = saved
        return block.words

    def compute(self, step: Compute, given: Mapping[str, str] = MappingProxyType({})) -> None:
        """The ops between heads and tails. `given`: the words of masks."""
        before, after = split(self.s.blocks[step.block])
        if step.part != "after":
            self.saved = dict(self.scope.values)
            self.emitter = self.emitting(step.block, step.first)
            self.emitter.given.update(given)
            found = self.asked.pop(step.block, None)
            self.emitter.words.update(self.made.pop(step.block, {}))
            self.emitter.fetched.update(self.fetch(step.block) if found is None else found)
        if step.part in ("before", "all"):
            for x in self.plan.labels:
                stage = f"{self.labels_at(f'{RING}_ahead')} + {x.offset}"
                self.scope.labels[x.key] = x, f"{stage} + {2 * x.bytes} * (lane & 3)"
            self.emitter.begin()
            self.emitter.emit(before)
        if step.part in ("after", "all"):
            self.emitter.emit(after)
            self.emitter.finish()
            self.scope.values = self.saved
