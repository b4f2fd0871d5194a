"""Emits the ops between the products of a window.

A block that a stale maximum may serve has two ways to go on. Here the exact one begins with the first products again: their
tiles are still in shared memory, and no thread must keep the scores for what hardly ever happens.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.backends.cuda.hopper.analysis import Registers, Root
from tilec.backends.cuda.hopper.fragments import BlockEmitter
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.structure import Block
from tilec.ir import Body, Value


class Middle(BlockEmitter):
    """The middle of one block. `heads` emits the first products."""

    def __init__(
        self,
        scope: Scope,
        block: Block,
        registers: Registers,
        first: bool,
        heads: Callable[[], None],
    ) -> None:
        super().__init__(scope, block, registers, block.loop.ragged, first)
        self.heads, self.computed = heads, dict(self.arrays)

    def write(self) -> None:
        """All of it."""
        self.heads()
        self.begin()
        self.emit(self.block.middle)
        self.finish()

    def exact(self, body: Body, rows: list[tuple[int, Value]]) -> None:
        """The arm that is right for all values."""
        arrays, self.arrays, self.rough = self.arrays, dict(self.computed), False
        self.heads()
        self.begin()
        self.pending += [Root("keep", n, array=a) for n, a in self.keep.items() if n in self.needed]
        self.flush()
        self.arm(body, rows)
        self.arrays, self.rough = arrays, True
