"""Which conditions of a block are worth words of bits, and how these are made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from tilec.dataflow import names_in
from tilec.ir import Cast, Load, Map, Op, Operand, operands

BOTH = frozenset(["and", "or", "not"])
DEAR = frozenset(["uniform", "pow", "ipow", "atan2", "erf", "log", "log2", "exp", "exp2", "tanh"])
"""Functions that are not computed for each element in each copy of a loop; and divisions."""


@dataclass(frozen=True)
class Conditions:
    """The conditions among the values of a block. `heads`: what is held in registers; `is_stretch`: whether a test is known
    as a stretch of columns."""

    row: str
    stream: str
    defs: Mapping[str, Op]
    heads: Collection[str]
    is_stretch: Callable[[Op], bool]

    def kind(self, x: str) -> Literal["columns", "rows", "elements"]:
        """How a value is computed: as bits that depend on the column alone, as bits for each row, or with the elements."""
        op = self.defs.get(x)
        if op is None or op.result.type.dtype != "bool" or not self.is_apart(x):
            return "elements"
        tests = self.tests(x)
        if op.result.type.axes == (self.stream,) and any(map(self.is_dear, tests)):
            return "columns"
        if self.row in op.result.type.axes and all(map(self.is_dear, tests)):
            return "rows"
        return "elements"

    def tests(self, x: str) -> list[str]:
        """The comparisons, and other tests, that a condition is made of."""
        op = self.defs.get(x)
        if isinstance(op, Map) and op.fn in BOTH and self.is_tile(op):
            return [t for y in names_in(op.args) for t in self.tests(y)]
        return [x]

    def is_tile(self, op: Op) -> bool:
        """Whether an op has a value for each column."""
        return self.stream in op.result.type.axes

    def below(self, x: str) -> list[Op]:
        """The ops that a value for each column is computed by, down to what does not change along a row."""
        op = self.defs.get(x)
        if op is None or not self.is_tile(op):
            return []
        return [op, *(o for y in names_in(operands(op)) for o in self.below(y))]

    def is_apart(self, x: str) -> bool:
        """Whether a value is computed from none that is held in registers."""
        ops = self.below(x)
        used = {y for o in ops for y in names_in(operands(o))}
        return not used & {*self.heads} and all(isinstance(o, (Map, Cast, Load)) for o in ops)

    def is_dear(self, x: str) -> bool:
        """Whether a test is worth bits: not one that is a stretch of columns, and not a few cheap instructions."""
        op = self.defs.get(x)
        if op is None or self.is_stretch(op):
            return False
        alone = op.result.type.axes == (self.stream,)
        return any((alone and isinstance(o, Load)) or _is_dear(o) for o in self.below(x))


def quotient(
    op: Op, defs: Mapping[str, Op], stream: str, is_steady: Callable[[Operand], bool]
) -> tuple[Operand, Operand, Operand] | None:
    """The z, y and n of a test z == y // n whether a position over a number is a given one."""
    if not isinstance(op, Map) or op.fn != "eq":
        return None
    for z, q in (op.args, op.args[::-1]):
        inner = defs.get(str(q))
        if not isinstance(inner, Map) or inner.fn != "floordiv" or not is_steady(z):
            continue
        y, n = inner.args
        if is_steady(n) and y == stream:
            return z, y, n
    return None


def _is_dear(op: Op) -> bool:
    if not isinstance(op, Map) or op.fn not in ("floordiv", "mod"):
        return isinstance(op, Map) and op.fn in DEAR
    n = op.args[1]
    return not (isinstance(n, int) and n > 0 and n & (n - 1) == 0)
