"""The total of a reduction: what it starts from, one value more, several at once."""

from __future__ import annotations

import math
from typing import Any

from tilec.backends.cpu.vector import Emit, Kind

LOWEST = -(2**63)


def tree(e: Emit, fn: str, xs: list[Any]) -> Any:
    """Values combined two by two; maxima that ignore NaN one by one, as only the total may not be NaN."""
    if fn == "maxnum":
        out = xs[0]
        for x in xs[1:]:
            out = combine(e, fn, out, x)
        return out
    while len(xs) > 1:
        pairs = [combine(e, fn, a, b) for a, b in zip(xs[::2], xs[1::2], strict=False)]
        xs = [*pairs, *xs[len(pairs) * 2 :]]
    return xs[0]


def identity_of(fn: str, kind: Kind) -> float:
    """The value of a reduction of nothing."""
    match fn:
        case "sum" | "any":
            return 0
        case "all":
            return 1
        case "max" | "maxnum":
            return -math.inf if kind[0] == "f" else LOWEST
        case "min":
            return math.inf if kind[0] == "f" else -LOWEST - 1
        case _:
            raise AssertionError(f"{fn} has no loop of its own")


def combine(e: Emit, fn: str, total: Any, x: Any) -> Any:
    """A reduction's total with one more value."""
    x = e.like(x, total)
    match fn:
        case "sum":
            return e.add(total, x)
        case "any":
            return e.or_(total, x)
        case "all":
            return e.and_(total, x)
        case "max":
            return e.max(total, x)
        case "min":
            return e.min(total, x)
        case "maxnum":
            return e.greater(x, total)
        case _:
            raise AssertionError(f"{fn} has no loop of its own")
