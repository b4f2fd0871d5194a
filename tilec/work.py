"""The operations of an op, by the unit of the machine that does them.

`matrix`: a multiplication or an addition of a contraction. `fma`: any other pointwise operation or step of a reduction.
`special`: an exponential, logarithm, root, division or other function that a machine computes in many steps or in a slow
unit. Loads, stores and the arithmetic of scalars count nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal, get_args

from tilec.ir import Cast, Contract, Map, Op, Reduce

Unit = Literal["matrix", "fma", "special"]
UNITS: tuple[Unit, ...] = get_args(Unit)

SPECIAL = frozenset(
    {
        *("div", "pow", "atan2", "exp", "exp2", "log", "log2", "tanh", "sigmoid", "silu"),
        *("sqrt", "rsqrt", "erf", "sin", "cos", "uniform", "floordiv", "mod"),
    }
)
"""The functions of the unit `special`."""


@dataclass(frozen=True)
class Work:
    """Operations per op, by unit. The key of an op is its result's name.

    `steps`: how often the region of a loop or a condition ran in a grid, under the name of what it yields first.
    """

    ops: dict[Unit, Counter[str]] = field(default_factory=lambda: {u: Counter() for u in UNITS})
    steps: Counter[str] = field(default_factory=Counter[str])

    def total(self, unit: Unit) -> int:
        """All operations of a unit."""
        return self.ops[unit].total()

    def of(self, names: Iterable[str]) -> dict[Unit, int]:
        """The operations of some ops, by unit."""
        wanted = tuple(names)
        return {u: sum(self.ops[u][n] for n in wanted) for u in UNITS}


def costs(op: Op) -> dict[Unit, int]:
    """Operations per element that an op runs over: of its result, for a sum those of all operands together."""
    match op:
        case Contract():
            return {"matrix": 2}
        case Map():
            return {"special": 1} if op.fn in SPECIAL else {"fma": 1}
        case Cast():
            return {"fma": 1}
        case Reduce(fn="softmax"):  # maximum, difference, sum, and a division
            return {"special": 2, "fma": 3}
        case Reduce(fn="logsumexp"):
            return {"special": 1, "fma": 3}
        case Reduce():
            return {"fma": 1}
        case _:
            return {}
