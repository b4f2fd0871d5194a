"""What is known of a kernel's values before it runs, and what follows for the code.

The language's arithmetic differs from IEEE's in three places: absent zeros, -inf beside an infinity, and 0 / 0. Code that
goes by IEEE is faster, and where it gives something else, that is a NaN. So a hot loop may run *relaxed*: a task looks for
NaN in what it stores, and runs again by the exact rules where it finds one. That is right as long as no NaN can get lost on
the way to a stored value; values that go into something that drops NaN (a comparison, say) are computed exactly. Relaxed
code also takes sizes to be small; a call with others runs the exact code.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable

from tilec.backends.cpu.functions import ZERO_AT_ZERO
from tilec.backends.cpu.narrow import Narrow
from tilec.dtypes import SIZES, DType, kind
from tilec.functions import VANISHING
from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    Contract,
    For,
    Grid,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Store,
    Yield,
    defined,
    operands,
    regions,
    walk,
)

NOT_NEGATIVE = frozenset(
    {"exp", "exp2", "sigmoid", "relu", "abs", "uniform", "tanh", "erf", "sin", "cos", "silu"}
)
"""Functions whose value is never -inf."""
BOUNDED = frozenset({"sigmoid", "uniform", "tanh", "erf", "sin", "cos"})
"""Functions whose value is never infinite."""
DROPS_NAN = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "isfinite", "pow"})
"""Functions that can give a number for a NaN."""


class Facts:
    """The facts about one kernel."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.defs: dict[str, Op] = {v.name: op for op in walk(kernel.body) for v in defined(op)}
        self.absent = absent_values(kernel)
        self.narrow = Narrow(kernel, self.defs)

    def dtype(self, x: Operand) -> DType:
        """The element type of an operand."""
        if isinstance(x, str):
            if x in self.kernel.values:
                return self.kernel.values[x].type.dtype
            argument = self.kernel.arguments.get(x)
            return self.kernel.compute if argument and argument.type == "float" else "i64"
        return (
            "bool" if isinstance(x, bool) else "i64" if isinstance(x, int) else self.kernel.compute
        )

    # ---- infinities

    def finite(self, x: Operand, sign: int, depth: int = 12) -> bool:
        """Whether an operand is never the infinity of this sign (it may be NaN)."""
        if not isinstance(x, str):
            return x == ABSENT or x != sign * math.inf
        if kind(self.dtype(x)) != "float":
            return True
        op = self.defs.get(x)
        if not isinstance(op, Map) or not depth:
            return False

        def again(y: Operand) -> bool:
            return self.finite(y, sign, depth - 1)

        if op.fn in ("max", "min"):
            return (any if (op.fn == "max") == (sign < 0) else all)(map(again, op.args))
        if op.fn == "select":
            return all(map(again, op.args[1:]))
        if op.fn == "neg":
            return self.finite(op.args[0], -sign, depth - 1)
        return op.fn in (NOT_NEGATIVE if sign < 0 else BOUNDED)

    def plain(self, op: Map) -> bool:
        """Whether IEEE's sum or difference is the language's."""
        a, b = op.args
        if op.fn == "sub":
            return self.finite(a, -1) or self.finite(b, -1)
        return (self.finite(a, -1) or self.finite(b, 1)) and (
            self.finite(a, 1) or self.finite(b, -1)
        )

    # ---- weights

    def weighs(self, op: Map) -> bool:
        """Whether it is `exp` or `exp2` of a difference to something that is not smaller: a weight of 1 at most."""
        x = op.args[0]
        d = self.defs.get(x) if isinstance(x, str) and op.fn in ("exp", "exp2") else None
        return isinstance(d, Map) and d.fn == "sub" and self.tops(d.args[1], d.args[0])

    def tops(self, m: Operand, x: Operand) -> bool:
        """Whether m is not below x: a maximum of it and others, or along some axes, up to clamping at finite numbers."""
        op = self.defs.get(m) if isinstance(m, str) else None
        if isinstance(op, Reduce):
            return op.fn in ("max", "maxnum") and op.args[0] == x
        if m == x:
            return True
        if not isinstance(op, Map) or op.fn not in ("max", "min"):
            return False
        same = self.defs.get(x) if isinstance(x, str) else None
        if isinstance(same, Map) and same.fn == op.fn and same.args[1] == op.args[1]:
            return self.tops(op.args[0], same.args[0])
        if op.fn == "max":
            return any(self.tops(y, x) for y in op.args)
        # min(m, largest): below m where m is beyond it, where x - m is NaN or infinite in any case
        return any(self.tops(y, x) for y in op.args) and any(
            isinstance(y, float) and y > 1e38 for y in op.args
        )

    def degree(self, grid: Grid) -> int:
        """The degree of the polynomial that is enough for the weights of a grid: less where all is rounded to 16 bits."""
        stored: list[DType] = [
            self.stored_as(op) for op in walk(grid.body) if isinstance(op, Store)
        ]
        return 4 if all(SIZES[dtype] <= 2 for dtype in stored if kind(dtype) == "float") else 5

    # ---- relaxed code

    @functools.cached_property
    def hot(self) -> frozenset[str]:
        """Sums and differences of tiles in loops that are not plain."""
        return frozenset(
            x.result.name
            for op in walk(self.kernel.body)
            if isinstance(op, For)
            for x in walk(op.body)
            if isinstance(x, Map)
            and x.fn in ("add", "sub")
            and kind(x.result.type.dtype) == "float"
            and x.result.type.axes
            and not self.plain(x)
        )

    def lossy(self, grid: Grid) -> frozenset[str]:
        """The values of a grid that go into something that can drop a NaN."""
        todo: list[Operand] = []
        for op in walk(grid.body):
            todo += self.drops(op)
        found: set[str] = set()
        while todo:
            x = todo.pop()
            if not isinstance(x, str) or x in found or x not in self.defs:
                continue
            found.add(x)
            todo += self.sources(x)
        return frozenset(found)

    def drops(self, op: Op) -> list[Operand]:
        match op:
            case Map() if op.fn in DROPS_NAN:
                return list(op.args)
            case Map() if op.fn == "select":
                return [op.args[0]]
            case Cast() if kind(op.to) != "float":
                return [op.x]
            case Reduce() if op.fn in ("any", "all"):
                return list(op.args)
            case Store() if kind(self.stored_as(op)) != "float":
                return [op.value]
            case Load():
                return list(op.index)
            case If():
                return [op.cond]
            case _:
                return []

    def stored_as(self, op: Store) -> DType:
        for o in self.kernel.outputs:
            if o.name == op.tensor:
                return o.dtype
        return self.kernel.values[op.tensor].type.dtype

    def sources(self, x: str) -> list[Operand]:
        """What a value is computed from."""
        op = self.defs[x]
        if isinstance(op, (For, If)):
            names = [v.name for v in op.results]
            n = (
                names.index(x)
                if x in names
                else [v.name for v in defined(op)].index(x) - len(names)
            )
            given = [_yielded(r)[n] for r in regions(op)]
            return [*given, op.init[n]] if isinstance(op, For) else given
        return list(operands(op))

    def products(self, grid: Grid) -> set[str]:
        """Products and contractions of a grid in which an absent factor would make a difference."""
        out: set[str] = set()
        for op in walk(grid.body):
            factors: Iterable[Operand] = ()
            if isinstance(op, Contract):
                factors = (op.x, op.y)
            elif isinstance(op, Map) and op.fn in ("mul", "div"):
                factors = op.args
            if any(x in self.absent if isinstance(x, str) else x == ABSENT for x in factors):
                out.add(op.result.name)
        return out

    def relaxed(self, grid: Grid) -> frozenset[str]:
        """The values that relaxed code of a grid computes by rules of its own: sums in hot loops, and weights."""
        own = list(walk(grid.body))
        weights = {op.result.name for op in own if isinstance(op, Map) and self.weighs(op)}
        names = {v.name for op in own for v in defined(op)}
        return ((self.hot & names) | weights) - self.lossy(grid)

    def modes(self, grid: Grid) -> tuple[bool, ...]:
        """The code that a grid needs: exact (True), relaxed (False), or both, relaxed first."""
        products = self.products(grid)
        if products & self.lossy(grid):
            return (True,)
        return (False, True) if products or self.relaxed(grid) else (False,)


# ---- absent zeros


def absent_values(kernel: Kernel) -> set[str]:
    """The values, block arguments included, that may hold an absent zero."""
    found: set[str] = set()
    while True:
        before = len(found)
        _visit(kernel.body, found)
        if len(found) == before:
            return found


def _visit(body: Body, found: set[str]) -> None:
    def may(x: Operand) -> bool:
        return x in found if isinstance(x, str) else x == ABSENT

    for op in body:
        for region in regions(op):
            _visit(region, found)
        found.update(_marked(op, may))


def _marked(op: Op, may: Callable[[Operand], bool]) -> list[str]:
    match op:
        case Map() if kind(op.result.type.dtype) == "float":
            return [op.result.name] if _map(op, may) else []
        case Cast() if kind(op.to) == "float":
            return [op.result.name] if may(op.x) else []
        case For():
            ends = _yielded(op.body)
            hit = [n for n, x in enumerate(op.init) if may(x) or may(ends[n])]
            return [v.name for n in hit for v in (op.args[n], op.results[n])]
        case If():
            arms = zip(_yielded(op.then), _yielded(op.orelse), strict=True)
            return [v.name for v, pair in zip(op.results, arms, strict=True) if any(map(may, pair))]
        case _:
            return []


def _yielded(body: Body) -> tuple[Operand, ...]:
    last = body[-1] if body else None
    return last.values if isinstance(last, Yield) else ()


def _map(op: Map, may: Callable[[Operand], bool]) -> bool:
    if op.fn in VANISHING:
        return True
    if op.fn == "select":
        return may(op.args[1]) or may(op.args[2])
    if op.fn == "mul":
        return any(map(may, op.args))
    if op.fn in ("add", "sub"):
        return all(map(may, op.args))
    return (op.fn == "div" or op.fn in ZERO_AT_ZERO) and may(op.args[0])
