"""What is known of a kernel's values before it runs, and what follows for the code.

Code that goes by IEEE's arithmetic is faster than by the language's, and where it gives something else (`tilec.ieee` says
where), that is a NaN. So a hot loop may run *relaxed*: a task looks for NaN in what it stores, and runs again by the exact
rules where it finds one. That is right as long as no NaN can get lost on the way to a stored value; values that go into
something that drops NaN (a comparison, say) are computed exactly. Relaxed code also takes sizes to be small; a call with
others runs the exact code.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable

from tilec import ieee
from tilec.backends.cpu.narrow import Narrow
from tilec.dtypes import SIZES, DType, kind
from tilec.ir import (
    ABSENT,
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
    defined,
    operands,
    regions,
    walk,
)
from tilec.wide import wide

DROPS_NAN = frozenset({"lt", "le", "gt", "ge", "eq", "ne", "and", "or", "not", "isfinite", "pow"})
"""Functions that can give a number for a NaN."""


class Facts(ieee.Facts):
    """The facts about one kernel, those that are for vector code among them."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.narrow = Narrow(kernel, self.defs)

    @functools.cached_property
    def wide(self) -> set[str]:
        """The integers that data of 64 bits decides."""
        return wide(self.kernel)

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
        stores = [op for op in walk(grid.body) if isinstance(op, Store)]
        stored: list[DType] = [self.stored_as(op) for op in stores]
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
            and not self.never_cancels(x)
        )

    @functools.cached_property
    def shares(self) -> frozenset[str]:
        """Quotients of tiles by what is the same along one of their axes: there are fewer reciprocals than quotients."""
        return frozenset(
            x.result.name
            for x in walk(self.kernel.body)
            if isinstance(x, Map)
            and x.fn == "div"
            and kind(x.result.type.dtype) == "float"
            and len(self.axes_of(x.args[1])) < len(x.result.type.axes)
        )

    def axes_of(self, x: Operand) -> tuple[str, ...]:
        """The axes along which an operand differs."""
        if not isinstance(x, str):
            return ()
        return (
            self.kernel.values[x].type.axes
            if x in self.kernel.values
            else (x,) * (x in self.kernel.extents)
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
        """The operands of an op in which a NaN may be lost: no result needs to be NaN because one of these is."""
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
        """The element type of the tensor that a store writes: of an output or a buffer."""
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
            given = [ieee.yielded(r)[n] for r in regions(op)]
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
        """The values that relaxed code of a grid computes by rules of its own: sums in hot loops, and weights; with them
        quotients."""
        own = list(walk(grid.body))
        weights = {op.result.name for op in own if isinstance(op, Map) and self.weighs(op)}
        names = {v.name for op in own for v in defined(op)}
        found = ((self.hot & names) | weights) - self.lossy(grid)
        return found | (self.shares & names) - self.lossy(grid) if found else found

    def modes(self, grid: Grid) -> tuple[bool, ...]:
        """The code that a grid needs: exact (True), relaxed (False), or both, relaxed first."""
        products = self.products(grid)
        if products & self.lossy(grid):
            return (True,)
        return (False, True) if products or self.relaxed(grid) else (False,)
