"""Rewriting a body op by op: what a pass replaces goes to new names, what it keeps follows them."""

from __future__ import annotations

from tilec.builder import Builder
from tilec.ir import Kernel, Op, Operand, Value, rebuild


class Rewrite(Builder):
    """A builder that remembers what each old name became."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.new: dict[str, Operand] = {}
        self.made: dict[str, Op] = {}

    def add(self, op: Op) -> str:
        """Appends an op; `made` tells what op gave a name in the new body."""
        self.made.update((v.name, op) for v in op.results)
        return super().add(op)

    def made_by(self, x: Operand) -> Op | None:
        """The op of the new body that gives an operand."""
        return self.made.get(x) if isinstance(x, str) else None

    def of(self, x: Operand) -> Operand:
        """What an operand of the old body is in the new one."""
        return self.new.get(x, x) if isinstance(x, str) else x

    def all_of(self, xs: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """What operands of the old body are in the new one."""
        return tuple(self.of(x) for x in xs)

    def keep(self, op: Op) -> None:
        """Appends an op of the old body as it is, but for its operands; its regions are not entered."""
        self.add(rebuild(op, self.of))

    def begin(self, op: Op) -> str:
        """Frees the name of an op that is being replaced, and takes over its place in the source."""
        self.span = op.span
        self.taken.discard(op.result.name)
        return op.result.name

    def replace(self, op: Op, by: Operand) -> None:
        """Says what the result of an old op is from here on."""
        if by != op.result.name or not isinstance(by, str):
            self.new[op.result.name] = by

    def define(self, value: Value) -> None:
        """Makes a block argument known."""
        self.types[value.name] = value.type
        self.taken.add(value.name)
