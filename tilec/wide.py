"""Whole numbers that data of 64 bits decides, and sums of them that do not overflow.

Bounds of loops are sums that the program does not ask for: where a sequence number of 2^63 - 1 means "none", a difference of
two of them has no 64 bits. What depends on such data is therefore computed in arithmetic that stops at the ends: the sign
is right, and no position is beyond the ends.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.dtypes import SIZES, kind
from tilec.ir import For, If, Kernel, Load, Map, Op, Operand, Store, Yield, operands, regions, walk

MOST = (1 << 63) - 1
"""Where numbers stop, on both sides."""
Make = Callable[..., Operand]


def wide(kernel: Kernel) -> set[str]:
    """The tensors of 64-bit integers that data decides, and the integers that are made from them."""
    found = {
        t.name for t in kernel.tensors.values() if kind(t.dtype) == "int" and SIZES[t.dtype] == 8
    }
    before = 0
    while found and len(found) > before:
        before = len(found)
        for op in walk(kernel.body):
            found.update(reached(op, found))
    return found


def counted(kernel: Kernel) -> set[str]:
    """The names that some op takes as a number, and not as the seed of random ones."""
    return {
        x
        for op in walk(kernel.body)
        for x in (op.args[1:] if isinstance(op, Map) and op.fn == "uniform" else operands(op))
        if isinstance(x, str)
    }


def reached(op: Op, found: set[str]) -> list[str]:
    """The names to which an op carries such data."""
    match op:
        case Load():
            return [op.result.name] if op.tensor in found else []
        case Store():
            return [op.tensor] if op.value in found else []
        case For() | If():
            ends = [r[-1].values for r in regions(op) if isinstance(r[-1], Yield)]
            given = [*ends, op.init] if isinstance(op, For) else ends
            hit = [n for n in range(len(op.results)) if any(xs[n] in found for xs in given)]
            names = [op.results, op.args] if isinstance(op, For) else [op.results]
            return [values[n].name for values in names for n in hit]
        case _:
            whole = [v.name for v in op.results if kind(v.type.dtype) == "int"]
            return whole if any(x in found for x in operands(op)) else []


def saturated(make: Make, fn: str, args: tuple[Operand, ...]) -> Operand:
    """A function of integers of which some are wide, at most `MOST` in size. `make` makes a function as it is."""
    match fn, args:
        case "neg", (x,):
            return make("neg", make("max", x, -MOST))
        case "abs", (x,):
            return make("abs", make("max", x, -MOST))
        case "add", (int() as n, x) | (x, int() as n):
            return _shifted(make, x, n)
        case "sub", (x, int() as n):
            return _shifted(make, x, -n)
        case "sub", (int() as n, x):
            near = make("max", x, n - MOST) if n >= 0 else make("min", x, n + MOST)
            return make("sub", n, near)
        case (("add" | "sub"), (x, y)):
            total = make(fn, x, y)
            turned = make("bitxor", y if fn == "add" else x, total)
            changed = make("bitxor", x, total if fn == "add" else y)
            end = make("select", make("lt", x, 0), -MOST, MOST)
            return make("select", make("lt", make("bitand", turned, changed), 0), end, total)
        case "mul", (int() as n, x) | (x, int() as n):
            return x if n == 1 else make("mul", _within(make, x, MOST // max(abs(n), 1)), n)
        case "mul", (x, y):
            factor = make("max", y, -MOST)
            most = make("floordiv", MOST, make("max", make("abs", factor), 1))
            low = make("max", x, make("neg", most))
            return make("mul", make("min", low, most), factor)
        case "shl", (x, int() as n) if 0 <= n < 63:
            return saturated(make, "mul", (x, 1 << n))
        case _:
            return make(fn, *args)


def _shifted(make: Make, x: Operand, n: int) -> Operand:
    """x + n."""
    if n == 0:
        return x
    return make("add", make("min", x, MOST - n) if n > 0 else make("max", x, -MOST - n), n)


def _within(make: Make, x: Operand, most: int) -> Operand:
    return make("min", make("max", x, -most), most)
