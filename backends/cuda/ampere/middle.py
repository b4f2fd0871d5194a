"""Emits what is computed between the products of a window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tilec.backends.cuda.ampere.arms import arms
from tilec.backends.cuda.hopper.analysis import Analysis, Registers, is_masked
from tilec.backends.cuda.hopper.fragments import BlockEmitter
from tilec.backends.cuda.hopper.loop import FragmentLoop
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.structure import Block
from tilec.ir import Operand

Heads = Callable[[tuple[str, ...], bool], None]
"""Emits the first products into some arrays; whether as a loop, for what hardly ever runs."""


class Middle:
    """The middle of a window, for a block."""

    def __init__(self, scope: Scope, block: Block, registers: Registers, heads: Heads) -> None:
        self.scope, self.block, self.registers, self.heads = scope, block, registers, heads
        self.out = scope.out

    def write(self) -> None:
        """The first products, and what becomes of them."""
        found = arms(self.block)
        saved = dict(self.scope.values)
        if found.common is None:
            self.heads(self.registers.heads, False)
            self.straight(found.exact).complete()
        else:
            self.guess(found.exact)
            self.heads(self.registers.heads, False)
            with self.out.block(""):
                common = self.straight(found.common, found.tests)
                test = common.tested(found.tests)
                with self.out.block(f"if (__builtin_expect(__all_sync(FULL, {test}), 1))"):
                    common.finish()
                self.scope.values = dict(saved)
                with self.out.block("else"):
                    self.heads(self.registers.heads, True)
                    exact = self.straight(found.exact)
                    exact.rare = True
                    exact.complete()
        self.scope.values = saved

    def straight(self, block: Block, tests: Sequence[Operand] = ()) -> Straight:
        """What emits a program of the block."""
        return Straight(self.scope, block, self.registers, self.block, tests)

    def guess(self, exact: Block) -> None:
        """The stale maxima of a first window: those over its first columns. They are as good as older ones, and the test
        is the same."""
        whole = self.block.loop.ragged
        guesses = Analysis(self.scope, self.block, self.registers, whole, True, guess=True).guesses
        if not guesses:
            return
        with self.out.block("if (n == 0)"):
            few = tuple(self.scope.names.fresh("few") for _ in self.registers.heads)
            for name in few:
                self.out.add(f"float {name}[{4 * self.scope.held}];")
            self.heads(few, False)
            e = Straight(
                self.scope, exact, replace(self.registers, heads=few), self.block, (), few=True
            )
            for slot, x in guesses.items():
                loop = FragmentLoop(e, [])
                loop.words.whole = False
                loop.guess(x, self.registers.slots[slot])


class Straight(BlockEmitter):
    """A program without branches. `tests`: what must hold for it to be right. `outer`: the block that it is a program of;
    `few`: only the first columns are there."""

    def __init__(
        self,
        scope: Scope,
        block: Block,
        registers: Registers,
        outer: Block,
        tests: Sequence[Operand],
        few: bool = False,
    ) -> None:
        self.outer, self.tests = outer, tests
        super().__init__(scope, block, registers, block.loop.ragged, False)
        self.rough = bool(tests) and not self.structure.precise
        for name, op in self.defs.items():
            factor = self._factor(op) if self.is_fragment(op) else None
            if factor is not None:
                self.factors[name] = factor
        if few:
            self.cut = frozenset[str]()

    def _packs(self) -> dict[str, list[tuple[tuple[str, ...], str]]]:
        out: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        n, known = self.structure.weight_parts, dict[str, int]()
        for t, there in zip(self.outer.tails, self.block.tails, strict=True):
            if t.x not in known:
                k = known[t.x] = len(known)
                parts = self.registers.weights[n * k : n * k + n]
                self._pack(there.x, parts, t.value.dtype, out)
        return out

    def _needed(self) -> set[str]:
        return super()._needed() | {
            x for t in self.tests for x in self._inputs(str(t)) if x in self.defs
        }

    def _cut(self) -> frozenset[str]:
        """Masks cut off the end of the axis, too, where they are there."""
        masks = [n for n, op in self.defs.items() if self.is_fragment(op) and is_masked(op)]
        cut = frozenset(n for n in masks if n in self.needed)
        if cut and all(self._harmless(r, cut) for r in self._sinks()):
            return cut
        return super()._cut()

    def complete(self) -> None:
        """All of it."""
        self.begin()
        self.emit(self.block.middle)
        self.finish()

    def tested(self, tests: Sequence[Operand]) -> str:
        """All of it but its end, and whether that counts for this thread's rows."""
        self.begin()
        self.emit(self.block.middle)
        return " & ".join([*(self.condition(t) for t in tests), *self.conditions])
