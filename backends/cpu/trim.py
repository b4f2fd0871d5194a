"""Which positions of a streamed axis a panel of lanes has to look at.

The blocks on the edge of a mask are masked element by element. Where the mask is an inequality in the streamed position,
each panel of lanes can do better: positions beyond its own bound contribute nothing to any reduction of the block, so its
loops leave them out. A block on the diagonal of a causal mask takes half the work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tilec.functions import VANISHING
from tilec.ir import ABSENT, Cast, Contract, Map, Op, Operand, Reduce, Store, operands

Axes = tuple[str, ...]
State = Literal["low", "zero"]
MINUS_INFINITY = float("-inf")


@dataclass(frozen=True)
class Bound:
    """`high - low` at position 0 of the window bounds the positions: from above (`upper`) or, negated, from below.

    `slack` is 1 for an upper bound that is itself allowed, or a lower one that is not.
    """

    low: Operand
    high: Operand
    upper: bool
    slack: int


def bounds(
    ops: Sequence[Op],
    axis: str,
    escaping: set[str],
    axes: Callable[[Operand], Axes],
    free: Callable[[Operand], bool],
) -> list[Bound]:
    """Bounds such that positions outside of any of them contribute nothing to what these ops compute."""
    defs = {v.name: op for op in ops for v in op.results}
    for op in ops:
        if isinstance(op, Map) and op.fn == "select" and axis in axes(op.args[0]):
            condition = op.args[0]
            found = [
                b for b in _comparisons(condition, defs, axis, axes) if free(b.low) and free(b.high)
            ]
            if found and _dead(ops, condition, axis, escaping, axes, defs):
                return found
    return []


# ---- inequalities in the position


def _comparisons(
    x: Operand, defs: dict[str, Op], axis: str, axes: Callable[[Operand], Axes]
) -> list[Bound]:
    """The bounds that a condition implies."""
    op = defs.get(x) if isinstance(x, str) else None
    if not isinstance(op, Map):
        return []
    if op.fn == "and":
        return [b for y in op.args for b in _comparisons(y, defs, axis, axes)]
    if op.fn not in ("le", "lt", "ge", "gt"):
        return []
    low, high = op.args if op.fn[0] == "l" else op.args[::-1]
    a, b = (_coefficient(y, defs, axis, axes) for y in (low, high))
    if a is None or b is None or abs(a - b) != 1:
        return []
    upper, strict = a - b == 1, op.fn[1] == "t"
    return [Bound(low, high, upper, int(upper != strict))]


def _coefficient(
    x: Operand, defs: dict[str, Op], axis: str, axes: Callable[[Operand], Axes]
) -> int | None:
    """What an integer value changes by from one position to the next; None where that differs."""
    if x == axis:
        return 1
    if axis not in axes(x):
        return 0
    op = defs.get(x) if isinstance(x, str) else None
    if not isinstance(op, Map) or op.fn not in ("add", "sub", "neg"):
        return None
    parts = [_coefficient(y, defs, axis, axes) for y in op.args]
    if None in parts:
        return None
    known = [p for p in parts if p is not None]
    return -known[0] if op.fn == "neg" else known[0] + (known[1] if op.fn == "add" else -known[1])


# ---- what a masked position contributes


def _dead(
    ops: Sequence[Op],
    condition: Operand,
    axis: str,
    escaping: set[str],
    axes: Callable[[Operand], Axes],
    defs: dict[str, Op],
) -> bool:
    """Whether positions where the condition is false contribute nothing to any reduction over the axis."""
    states: dict[str, State | None] = {}

    def state(x: Operand) -> State | None:
        if not isinstance(x, str):
            return "zero" if x == ABSENT else "low" if x == MINUS_INFINITY else None
        if x not in states:
            op = defs.get(x)
            states[x] = _state(op, condition, axis, axes, state) if op is not None else None
        return states[x]

    for op in ops:
        if isinstance(op, Store) and axis in op.index:
            return False
        if any(v.name in escaping and axis in v.type.axes for v in op.results):
            return False
        if (
            isinstance(op, Contract)
            and axis in op.over
            and "zero" not in (state(op.x), state(op.y))
        ):
            return False
        if isinstance(op, Reduce) and axis in op.over:
            wanted = "low" if op.fn in ("max", "maxnum") else "zero" if op.fn == "sum" else None
            if wanted is None or state(op.args[0]) != wanted:
                return False
    return True


def _state(
    op: Op,
    condition: Operand,
    axis: str,
    axes: Callable[[Operand], Axes],
    state: Callable[[Operand], State | None],
) -> State | None:
    """What a value is where the condition is false: -inf, an absent zero, or not known."""
    if isinstance(op, Cast):
        return state(op.x)
    if not isinstance(op, Map):
        return None
    first, *rest = operands(op)
    match op.fn:
        case "select" if first == condition:
            return state(rest[1])
        case "select":
            return state(rest[0]) if state(rest[0]) == state(rest[1]) else None
        case "add" | "sub" if state(first) == "low" and axis not in axes(rest[0]):
            return "low"
        case "mul" | "div" if state(first) == "low":
            positive = isinstance(rest[0], float) and 0 < rest[0] < float("inf")
            return "low" if positive else None
        case "mul" if "zero" in (state(first), state(rest[0])):
            return "zero"
        case "div" | "neg" if state(first) == "zero":
            return "zero"
        case fn if fn in VANISHING and state(first) == "low":
            return "zero"
        case _:
            return None
