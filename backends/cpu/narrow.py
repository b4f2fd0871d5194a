"""Which whole numbers fit 32 bits as long as all sizes are small: so many more of them fit a vector.

Positions, dimensions and the integer arguments of a call are taken to be of a magnitude of `LIMIT` at most. A worker makes
sure of that before it runs code that relies on it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.dtypes import SIZES, kind
from tilec.ir import Cast, Edge, Kernel, Load, Map, Op, Operand

LIMIT = 1 << 24
BITS = 31
Range = tuple[int, int]


class Narrow:
    """The least and greatest value of integers, where they are known to fit."""

    def __init__(self, kernel: Kernel, defs: Mapping[str, Op]) -> None:
        self.kernel, self.defs = kernel, defs
        self.known: dict[str, Range | None] = {}

    def fits(self, x: Operand) -> bool:
        """Whether an operand is an integer that fits 32 bits."""
        return self.range(x) is not None

    def range(self, x: Operand) -> Range | None:
        """The range of an operand; None where it is no integer, unknown or does not fit."""
        if isinstance(x, bool) or not isinstance(x, (str, int)):
            return None
        if isinstance(x, int):
            return _fitting((x, x))
        if x not in self.known:
            self.known[x] = self._range(x)
        return self.known[x]

    def _range(self, x: str) -> Range | None:
        if x in self.kernel.extents or x in self.kernel.dims:
            return (0, LIMIT)
        if x in self.kernel.arguments:
            return (-LIMIT, LIMIT) if self.kernel.arguments[x].type == "int" else None
        op = self.defs.get(x)
        if op is None or x not in self.kernel.values:
            return None
        dtype = self.kernel.values[x].type.dtype
        if kind(dtype) != "int":
            return None
        match op:
            case Edge():
                return (-1, LIMIT)
            case Load():
                return (-(1 << BITS), (1 << BITS) - 1) if SIZES[dtype] <= 4 else None
            case Cast():
                return self.range(op.x)
            case Map():
                parts = [self.range(y) for y in op.args[op.fn == "select" :]]
                known = [p for p in parts if p is not None]
                return _fitting(_result(op.fn, known)) if len(known) == len(parts) else None
            case _:
                return None


def _result(fn: str, xs: list[Range]) -> Range | None:
    lows, highs = [lo for lo, _ in xs], [hi for _, hi in xs]
    match fn:
        case "add":
            return sum(lows), sum(highs)
        case "sub":
            return lows[0] - highs[1], highs[0] - lows[1]
        case "mul":
            ends = [a * b for a in xs[0] for b in xs[1]]
            return min(ends), max(ends)
        case "neg":
            return -highs[0], -lows[0]
        case "min":
            return min(lows), min(highs)
        case "max":
            return max(lows), max(highs)
        case "select":
            return min(lows), max(highs)
        case _:
            return None


def _fitting(x: Range | None) -> Range | None:
    return x if x is not None and x[0] >= -(1 << BITS) and x[1] < 1 << BITS else None
