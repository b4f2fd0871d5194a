"""Runs: adjacent positions of a streamed axis whose rows lie side by side in memory, wherever an index says that is.

Pages and lists of blocks are looked up by `j // n`, and the row in a block is `j % n`. So positions that follow each other
find rows that do, and a bulk copy brings them; the loading warp looks up only where each run begins. What must be a multiple
of a run's length is known partly when the kernel is made, partly in a call: a tensor without runs then comes by the piece.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tilec.ir import Body, Cast, For, Kernel, Load, Map, Op, Operand, operands
from tilec.scalar import Scalar

LEAST, MOST = 16, 256
"""The positions of a run: fewer are not worth a copy of their own, more are beyond what a copy takes."""

Way = Literal["same", "next"]
"""How an integer goes on from one position of a run to the next: not at all, or by one."""


@dataclass(frozen=True)
class Run:
    """How a tile's rows are found. `length`: the positions of a run; `row`: the dimension along which its rows follow each
    other; `finds`: the ops that say where it begins; `even`: what must be a multiple of the length in a call."""

    length: int
    row: int
    finds: Body
    even: tuple[Scalar, ...]


@dataclass
class Runs:
    """Looks for the runs of a streamed axis. `defs`: the ops in sight, `inside`: the names of those in the loops over the
    axis, whose windows have `columns` positions."""

    kernel: Kernel
    axis: str
    columns: int
    loops: Sequence[For]
    defs: Mapping[str, Op]
    inside: Collection[str]
    even: dict[Scalar, None] = field(default_factory=dict[Scalar, None])

    def of(self, op: Load, feature: str) -> Run | None:
        """The longest runs by which a load's rows can be brought."""
        lengths = [n for n in range(MOST, LEAST - 1, -LEAST) if self.columns % n == 0]
        return next((r for n in lengths if (r := self.having(op, feature, n))), None)

    def having(self, op: Load, feature: str, n: int) -> Run | None:
        """The runs of a load's rows if they have `n` positions."""
        self.even = {}
        if not self.is_multiple(self.kernel.extents[self.axis], n):
            return None
        if not all(self.is_multiple(f.start, n) for f in self.loops if f.start is not None):
            return None
        ways = [None if x == feature else self.way(x, n) for x in op.index]
        if ways.count("next") != 1 or ways.count(None) != 1:
            return None
        return Run(n, ways.index("next"), self.found(op.index), tuple(self.even))

    def found(self, index: tuple[Operand, ...]) -> Body:
        """The ops in the loops that an index is computed with, in order."""
        seen: dict[str, Op] = {}

        def visit(x: Operand) -> None:
            op = self.defs.get(x) if isinstance(x, str) else None
            if op is None or x in seen or x not in self.inside:
                return
            for y in operands(op):
                visit(y)
            seen[str(x)] = op

        for x in index:
            visit(x)
        return tuple(seen.values())

    def varies(self, x: Operand) -> bool:
        """Whether an operand depends on the position."""
        if x == self.axis:
            return True
        return x in self.kernel.values and self.axis in self.kernel.values[str(x)].type.axes

    def way(self, x: Operand, n: int) -> Way | None:
        """How an index goes on along the positions of a run; None where that is not known."""
        if not self.varies(x):
            return "same"
        if x == self.axis:
            return "next"
        match self.defs.get(str(x)):
            case Map(fn="floordiv", args=(y, by)) if y == self.axis and self.is_multiple(by, n):
                return "same"
            case Map(fn="mod", args=(y, by)) if y == self.axis and self.is_multiple(by, n):
                return "next"
            case Map(fn="add", args=(a, b)):
                ways = {self.way(a, n), self.way(b, n)}
                return "next" if ways == {"same", "next"} else "same" if ways == {"same"} else None
            case Map() | Cast() | Load() as op:
                return "same" if all(self.way(y, n) == "same" for y in operands(op)) else None
            case _:
                return None

    def is_multiple(self, x: Operand | Scalar, n: int) -> bool:
        """Whether an integer is a multiple of `n`, or must be one in a call."""
        if self.is_sure(x, n):
            return True
        match x:
            case str() if x in self.defs:
                return self.is_made(self.defs[x], n)
            case str() | tuple():
                return self.must_be(x, n)
            case _:
                return False

    def is_sure(self, x: Operand | Scalar, n: int) -> bool:
        """Whether an integer is a multiple of `n` in every call, since a factor is."""
        if isinstance(x, int):
            return x % n == 0
        if isinstance(x, tuple):
            return x[0] == "mul" and any(self.is_sure(y, n) for y in x[1:])
        op = self.defs.get(str(x))
        return isinstance(op, Map) and op.fn == "mul" and any(self.is_sure(y, n) for y in op.args)

    def is_made(self, op: Op, n: int) -> bool:
        """Whether an op makes a multiple of `n` from such."""
        match op:
            case Map(fn="add" | "sub" | "min" | "max", args=args):
                return all(self.is_multiple(y, n) for y in args)
            case _:
                return False

    def must_be(self, x: Scalar, n: int) -> bool:
        """Takes note of what a call tells. Only of short runs: what nobody knows is seldom a multiple of more."""
        if n > LEAST:
            return False
        self.even[x] = None
        return True
