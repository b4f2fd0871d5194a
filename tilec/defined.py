"""Which values are never NaN, whatever the data: references of maxima, and what is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from tilec.dtypes import kind
from tilec.ir import Cast, For, Kernel, Load, Map, Op, Operand, Reduce, Store, Yield, walk

KEEPS = frozenset({"min", "max", "abs", "neg", "exp", "exp2", "relu", "sigmoid"})
"""Functions that are NaN only where an operand is."""


class Defined:
    """The values of a kernel that are never NaN."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.known: dict[str, bool] = {}
        self.defs: dict[str, tuple[Op, int]] = {}
        self.args: dict[str, tuple[For, int]] = {}
        self.stored: dict[str, list[Operand]] = {}
        for op in walk(kernel.body):
            self.defs.update((v.name, (op, k)) for k, v in enumerate(op.results))
            if isinstance(op, For):
                self.args.update((v.name, (op, k)) for k, v in enumerate(op.args))
            elif isinstance(op, Store):
                self.stored.setdefault(op.tensor, []).append(op.value)

    def holds(self, x: Operand) -> bool:
        """Whether an operand is never NaN."""
        if not isinstance(x, str):
            return not (isinstance(x, float) and math.isnan(x))
        if x in self.kernel.values and kind(self.kernel.values[x].type.dtype) != "float":
            return True
        if x not in self.known:
            before = dict(self.known)
            self.known[x] = (
                True  # of a carried value that holds if it does at first, and from window to window
            )
            sources = self.sources(x)
            if sources is None or not all(map(self.holds, sources)):
                self.known = {**before, x: False}  # without what was found by assuming it
        return self.known[x]

    def sources(self, x: str) -> list[Operand] | None:
        """The operands that must never be NaN for a value to be none; None where it may be one for others."""
        if x in self.args:
            return list(_carried(*self.args[x]))
        op, place = self.defs.get(x, (None, 0))
        match op:
            case Map(fn=fn, args=args) if fn in KEEPS:
                return list(args)
            case Map(fn="select", args=(_, a, b)):
                return [a, b]
            case Cast(x=a, to="f64" | "f32" | "bf16" | "f16"):
                return [a]
            case Reduce(fn="maxnum"):
                return []
            case Reduce(fn="max" | "min", args=(a,)):
                return [a]
            case For():
                return list(_carried(op, place))
            case Load(tensor=tensor) if tensor in self.stored:
                return self.stored[tensor]
            case _:
                return None


def _carried(loop: For, place: int) -> Iterator[Operand]:
    """What a carried value is before the first window, and after each."""
    yield loop.init[place]
    end = loop.body[-1]
    assert isinstance(end, Yield)
    yield end.values[place]
