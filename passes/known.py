"""No pass: operands that are numbers whatever the data, for `sides`.

What leaves a sum meets the zero that is left of a row without terms, and `0 · nan` is NaN: only what is never NaN or
infinite leaves without a trace.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping

from tilec.ir import Cast, Map, Op, Operand


def is_finite(x: Operand, defs: Mapping[str, Op], sizes: Collection[str]) -> bool:
    """Whether an operand is a finite number: a literal, or made of sizes."""
    if isinstance(x, (int, float)):
        return math.isfinite(x)
    return all(y is not None for y in _made_of(x, defs, sizes))


def is_divisor(
    x: Operand, defs: Mapping[str, Op], sizes: Collection[str], summed: Collection[object]
) -> bool:
    """Whether an operand is a finite number that is not zero, or only where one of the `summed` sizes is."""
    if isinstance(x, (int, float)):
        return x != 0 and math.isfinite(x)
    return all(y in summed for y in _made_of(x, defs, sizes))


def _made_of(x: Operand, defs: Mapping[str, Op], sizes: Collection[str]) -> Iterator[str | None]:
    """The sizes that an operand is made of by what keeps numbers positive; None for all else in it."""
    if isinstance(x, (int, float)):
        if not 0 < x < math.inf:
            yield None
        return
    match defs.get(x) if isinstance(x, str) else None:
        case Map(fn="sqrt" | "add" | "mul" | "max" | "min", args=args):
            for y in args:
                yield from _made_of(y, defs, sizes)
        case Cast(x=y):
            yield from _made_of(y, defs, sizes)
        case _:
            yield x if isinstance(x, str) and x in sizes else None
