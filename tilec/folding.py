"""The builder of the tile passes: small scalar arithmetic, with literals folded and nothing made twice."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Literal

from tilec import scalar
from tilec.builder import Builder
from tilec.dtypes import kind
from tilec.ir import Kernel, Op, Operand
from tilec.scalar import Scalar
from tilec.wide import reached, saturated


class FoldingBuilder(Builder):
    """A builder that folds literals and makes nothing twice.

    `wide`: the integers, and tensors of them, whose sums might not fit 64 bits; what is made of them joins them.
    """

    def __init__(
        self,
        kernel: Kernel,
        taken: set[str],
        tiles: Mapping[str, int | None],
        wide: Iterable[str] = (),
    ) -> None:
        super().__init__(kernel, taken)
        self.wide = set(wide)
        self.tiles = dict(tiles)
        self.made: dict[Hashable, Operand] = {}
        self.own: set[str] = set()

    def add(self, op: Op) -> str:
        """Appends an op; `own` tells which names were made here."""
        self.own.update(v.name for v in op.results)
        self.wide.update(reached(op, self.wide))
        return super().add(op)

    def fn(self, fn: str, *args: Operand) -> Operand:
        """A pointwise function; integers of which some are wide stop at the ends of 64 bits."""
        if self.wide and any(x in self.wide for x in args) and not self._float(args):
            return saturated(self.same, fn, args)
        return self.same(fn, *args)

    def _float(self, args: Iterable[Operand]) -> bool:
        return any(kind(self.type_of(x).dtype) == "float" for x in args)

    def same(self, fn: str, *args: Operand) -> Operand:
        """A pointwise function as the program has it, folded where its operands allow."""
        key = (fn, tuple((type(x).__name__, x) for x in args))
        if key not in self.made:
            folded = fold(fn, args)
            self.made[key] = self.map(fn, *args) if folded is None else folded
        return self.made[key]

    def over(self, fn: str, x: Operand, over: tuple[str, ...]) -> Operand:
        """A reduction; axes that the operand lacks are given to it first."""
        for axis in over:
            if axis not in self.type_of(x).axes:
                x = (
                    self.map("or", x, self.map("lt", axis, 0))
                    if fn in ("any", "all")
                    else self.map("add", x, self.map("mul", axis, 0))
                )
        return self.once(("reduce", fn, x, over), lambda: self.reduce(fn, x, over=over))

    def end(self, which: Literal["first", "last"], axis: str) -> Operand:
        """The first or last position of a window."""
        return self.once((which, axis), lambda: self.edge(which, axis))

    def once(self, key: Hashable, make: Callable[[], Operand]) -> Operand:
        """What `make` gave for this key the first time."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]

    def scalar(self, e: Scalar) -> Operand:
        """An expression over dimensions and scalar arguments."""
        if not isinstance(e, tuple):
            return e
        function, *parts = e
        assert isinstance(function, str)
        return self.fn(function, *(self.scalar(p) for p in parts))

    def all(self, *xs: Operand) -> Operand:
        """True where all are."""
        out: Operand = True
        for x in xs:
            out = self.fn("and", out, x)
        return out


def _is(x: Operand, value: int | bool) -> bool:
    return type(x) is type(value) and x == value


def fold(fn: str, args: tuple[Operand, ...]) -> Operand | None:
    """The operand that an integer or boolean function is equal to, if it needs no op."""
    if all(isinstance(x, int) for x in args) and scalar.evaluable(fn) and fn != "div":
        value = scalar.evaluate((fn, *(x for x in args if isinstance(x, int))), {})
        return value if isinstance(value, int) and abs(value) < 1 << 63 else None
    match fn, args:
        case (("add" | "sub" | "bitor" | "bitxor" | "shl" | "shr"), (x, y)) if _is(y, 0):
            return x
        case (("add" | "bitor" | "bitxor"), (y, x)) if _is(y, 0):
            return x
        case (("mul" | "floordiv"), (x, y)) if _is(y, 1):
            return x
        case "mul", (y, x) if _is(y, 1):
            return x
        case "bitand", (x, y) if _is(x, 0) or _is(y, 0):
            return 0
        case "bitand", (x, y) if _is(y, -1):
            return x
        case (("min" | "max" | "and" | "or" | "bitand" | "bitor"), (x, y)) if (
            isinstance(x, str) and x == y
        ):
            return x
        case "and", (x, y) if x is True or y is False:
            return y
        case "and", (x, y) if y is True or x is False:
            return x
        case "or", (x, y) if x is False or y is True:
            return y
        case "or", (x, y) if y is False or x is True:
            return x
        case "select", (c, x, y) if isinstance(c, bool):
            return x if c else y
        case "select", (c, x, y) if type(x) is type(y) and x == y:
            return x
        case _:
            return None
