"""What is stored of a block, what of it is needed, and how the end of the axis is cut off."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.asked import Asked
from tilec.backends.cuda.hopper.between import Comparisons
from tilec.backends.cuda.hopper.conditions import Conditions
from tilec.backends.cuda.hopper.expression import (
    Expression,
)
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.structure import Block
from tilec.dataflow import names_in
from tilec.dtypes import kind
from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    If,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Yield,
    operands,
    walk,
)

HEAVY = frozenset(
    ["tanh", "div", "floordiv", "mod", "pow", "atan2", "erf", "log", "log2", "uniform"]
)
"""Functions of which a whole fragment at once takes too many registers."""


@dataclass
class Root:
    """Something made of each element: a reduction (`op`), packed weights (in `parts`) or a stored fragment (`array`).

    `factor`: what the reduction of `value` is multiplied by.
    """

    what: str
    value: str
    op: Reduce | None = None
    array: str = ""
    parts: tuple[str, ...] = ()
    dtype: str = ""
    factor: float | None = None


@dataclass
class Registers:
    """The arrays of a thread that outlive a block: heads, weights, accumulators, carried row values."""

    heads: tuple[str, ...]
    weights: tuple[str, ...]
    slots: tuple[str, ...]
    partial: set[int] = field(default_factory=set[int])


class Analysis:
    """A block and what is known of it before it is emitted."""

    def __init__(
        self,
        scope: Scope,
        block: Block,
        registers: Registers,
        ragged: bool,
        first: bool,
        guess: bool = False,
    ) -> None:
        self.scope, self.block, self.registers = scope, block, registers
        self.ragged, self.first = ragged, first
        scope.whole = not ragged
        self.out, self.names, self.structure = scope.out, scope.names, scope.structure
        s = self.structure
        self.defs: dict[str, Op] = {v.name: op for op in walk(block.middle) for v in op.results}
        self.arrays: dict[str, str] = {}
        heads = list(block.heads)
        used_as_init = {h.init for h in heads}
        for h, array in zip(
            [h for h in heads if h.name not in used_as_init], registers.heads, strict=True
        ):
            self.arrays[h.name] = array
        self.comparisons = Comparisons(s.row, s.stream, self.defs, self.is_steady_int)
        self.masks = Conditions(
            s.row,
            s.stream,
            self.defs,
            {h.name for h in heads},
            lambda op: self.comparisons.between(op) is not None,
        )
        self.slot_of: dict[str, int] = {a: k for k, a in enumerate(block.args)}
        for k, a in enumerate(block.args):
            if not s.slots[k].width:
                scope.values[a] = Expression(registers.slots[k], "float")
        self.packs = self._packs()
        self.partial: set[str] = {block.args[k] for k in registers.partial}
        self.totals: dict[str, str] = {}
        self.pending: list[Root] = []
        self.factors: dict[str, float] = {}
        self.guesses = self._guesses() if first and guess and not s.precise else {}
        self.exact_only = first and not self.guesses
        exact = self.exact_only or s.precise
        self.rough = not exact and any(isinstance(op, If) for op in block.middle)
        self.rare = False
        """Whether what is emitted hardly ever runs: it is to be short, not fast."""
        self.conditions: list[str] = []
        self.words: dict[object, str] = {}  # those that are there at this place, by what they say
        self.given: dict[str, str] = {}  # words of the columns that count, by masked value
        self.fetched: dict[
            str, tuple[Asked, str]
        ] = {}  # what was asked for, and its array, by load
        self.keep = self._kept()
        self.heavy = any(isinstance(op, Map) and op.fn in HEAVY for op in walk(block.middle))
        self.late = [n for n in self.keep if self.rough and self._bends(n)]
        self.needed = self._needed()
        self.cut = self._cut() if ragged else frozenset[str]()

    def _guesses(self) -> dict[int, str]:
        """For a first window, which begins from nothing: the slots of stale maxima, and what each is the maximum of.

        A maximum over some columns may be as stale as one over earlier windows: the test is the same.
        """
        out: dict[int, str] = {}
        for op in self.block.middle:
            if not isinstance(op, If):
                continue
            reduced = {
                o.result.name: str(o.args[0])
                for o in op.orelse
                if isinstance(o, Reduce) and o.fn in ("max", "maxnum")
            }
            for o in op.orelse:
                if isinstance(o, Map) and o.fn == "max" and o.args[0] in self.block.args:
                    slot = self.block.args.index(str(o.args[0]))
                    if o.args[1] in reduced:
                        out[slot] = reduced[str(o.args[1])]
        empty = all(
            s.init == (-math.inf if k in out else 0.0) for k, s in enumerate(self.structure.slots)
        )
        return out if empty else {}

    def _packs(self) -> dict[str, list[tuple[tuple[str, ...], str]]]:
        """The arrays that each fragment value is packed into."""
        out: dict[str, list[tuple[tuple[str, ...], str]]] = {}
        n = self.structure.weight_parts
        for k, x in enumerate(dict.fromkeys(t.x for t in self.block.tails)):
            dtype = next(t.value.dtype for t in self.block.tails if t.x == x)
            self._pack(x, self.registers.weights[n * k : n * k + n], dtype, out)
        return out

    def _pack(
        self,
        x: str,
        parts: tuple[str, ...],
        dtype: str,
        out: dict[str, list[tuple[tuple[str, ...], str]]],
    ) -> None:
        op = self.defs.get(x)
        if isinstance(op, If):
            k = [v.name for v in op.results].index(x)
            for region in (op.then, op.orelse):
                end = region[-1]
                assert isinstance(end, Yield)
                y = end.values[k]
                if not isinstance(y, str):
                    raise Refused("it weighs by a literal")
                self._pack(y, parts, dtype, out)
            return
        out.setdefault(x, []).append((parts, dtype))

    def _kept(self) -> dict[str, str]:
        """Fragment values that are stored: dear, and used in both arms of the computation."""
        out: dict[str, str] = {}
        regions = self._regions()
        for op in self.block.middle:
            if not isinstance(op, (Map, Cast, Load)) or not self.is_fragment(op):
                continue
            name = op.result.name
            users = sum(
                name in operands(o) and not isinstance(o, Yield) for body in regions for o in body
            )
            if users < 2 or self.cost(name, out) < 2 or self.masks.kind(name) != "elements":
                continue
            factor = self._factor(op)
            if factor is not None:
                self.factors[name] = factor
            source = self.reusable(name)
            out[name] = (
                source if source is not None else self.names.fresh(self.names.of(name) + "_kept")
            )
        return out

    def _bends(self, name: str) -> bool:
        """Whether a value is computed with functions that are short for common arguments."""
        return any(self.is_short(op) for x in self._inputs(name) if (op := self.defs.get(x)))

    def is_short(self, op: Op) -> bool:
        """Whether an op of elements has a form for common arguments: a small tanh, a division by what is not extreme."""
        if not isinstance(op, Map) or not self.is_fragment(op):
            return False
        return op.fn == "tanh" or (op.fn == "div" and self.is_fixed(op.args[1]))

    def is_steady_int(self, x: Operand) -> bool:
        """Whether an operand is an integer that does not change along a row."""
        if not isinstance(x, str):
            return isinstance(x, int) and not isinstance(x, bool)
        if not self.is_fixed(x):
            return False
        argument = self.structure.kernel.arguments.get(x)
        if x in self.scope.types:
            return kind(self.scope.types[x].dtype) == "int"
        return argument is None or argument.type == "int"

    def is_fixed(self, x: Operand) -> bool:
        """Whether an operand is a scalar or row value of the program."""
        return isinstance(x, str) and self.structure.stream not in self.scope.axes(x)

    def _factor(self, op: Op) -> float | None:
        """The positive factor of a masked value, which need not be applied before it is stored: c · -inf is -inf."""
        if not isinstance(op, Map) or not is_masked(op) or len(set(op.args[1:])) != 2:
            return None
        (x,) = (y for y in op.args[1:] if y != -math.inf)
        inner = self.defs.get(str(x))
        if not isinstance(inner, Map) or inner.fn != "mul" or not self.is_fragment(inner):
            return None
        return next((c for c in inner.args if isinstance(c, float) and 0.0 < c < math.inf), None)

    def _regions(self) -> list[Body]:
        out: list[Body] = [self.block.middle]
        for op in self.block.middle:
            if isinstance(op, If):
                out += [op.then, op.orelse]
        return out

    def cost(self, name: str, kept: dict[str, str]) -> int:
        """How many operations an element takes, beyond stored ones; one that folds into its user is free."""
        op = self.defs.get(name)
        if name in self.arrays or name in kept or op is None or not self.is_fragment(op):
            return 0
        if self.is_line(name):
            return 0
        if isinstance(op, Map) and op.fn in ("add", "sub") and any(map(self.is_line, op.args)):
            (x,) = [y for y in op.args if not self.is_line(y)] or [op.args[0]]
            inner = self.defs.get(str(x))
            if isinstance(inner, Map) and inner.fn == "mul":
                return 1 + sum(self.cost(y, kept) for y in names_in(inner.args))
        return 1 + sum(self.cost(x, kept) for x in names_in(operands(op)))

    def is_line(self, x: Operand) -> bool:
        """Whether an operand is a straight line along a row: it folds into an addition."""
        if not isinstance(x, str) or self.structure.stream not in self.scope.axes(x):
            return True
        op = self.defs.get(x)
        match op:
            case None:
                return x == self.structure.stream
            case Map(fn="add" | "sub", args=args):
                return all(map(self.is_line, args))
            case Map(fn="mul", args=args):
                return all(map(self.is_line, args)) and any(map(self.is_fixed, args))
            case _:
                return False

    def reusable(self, name: str) -> str | None:
        """The array of a head that is not looked at but to compute this value."""
        feeds = self._inputs(name)
        for h, array in self.arrays.items():
            users = [
                o.result.name for o in walk(self.block.middle) if h in operands(o) and o.results
            ]
            if h in feeds and all(self._leads_only(u, name) for u in users):
                return array
        return None

    def _inputs(self, name: str) -> set[str]:
        op = self.defs.get(name)
        return {name} | (
            set().union(*(self._inputs(x) for x in names_in(operands(op)))) if op else set()
        )

    def _leads_only(self, user: str, name: str) -> bool:
        if user == name:
            return True
        op = self.defs.get(user)
        if op is None or not isinstance(op, (Map, Cast, Load)) or not self.is_fragment(op):
            return False
        users = [o for o in walk(self.block.middle) if user in operands(o)]
        return bool(users) and all(
            o.results and self._leads_only(o.results[0].name, name) for o in users
        )

    def _needed(self) -> set[str]:
        """The values that the yields and tails depend on; in the first window by way of exact arms alone."""
        seen: set[str] = set()
        todo = [*names_in(self.block.yields), *(t.x for t in self.block.tails)]
        todo += [x for x in self.block.bases.values() if isinstance(x, str)]
        while todo:
            x = todo.pop()
            op = self.defs.get(x)
            if x in seen or op is None:
                continue
            seen.add(x)
            if isinstance(op, If):
                end = op.orelse[-1]
                assert isinstance(end, Yield)
                todo += names_in(end.values)
                seen.update(v.name for v in op.results)
                if not self.exact_only:
                    last = op.then[-1]
                    assert isinstance(last, Yield)
                    todo += [*names_in(last.values), *names_in((op.cond,))]
            else:
                todo += names_in(operands(op))
        return seen

    def _cut(self) -> frozenset[str]:
        """The values that are made -inf beyond the axis's end, where that leaves every reduction as it is.

        These are stored values with a mask of their own, or else the heads. Empty: each reduction guards itself.
        """
        masked = [n for n in self.keep if is_masked(self.defs[n])]
        heads = [h for h, array in self.arrays.items() if array not in self.keep.values()]
        for cut in (frozenset(masked), frozenset([*masked, *heads])):
            if cut and all(self._harmless(r, cut) for r in self._sinks()):
                return cut
        return frozenset()

    def _sinks(self) -> list[tuple[str, str]]:
        """What is reduced along the stream: values, and whether -inf or 0 leaves the reduction as it is."""
        out = [
            (str(op.args[0]), op.fn)
            for op in walk(self.block.middle)
            if isinstance(op, Reduce) and op.fn != "all"
        ]
        return out + [(x, "sum") for x in self.packs]

    def _harmless(self, sink: tuple[str, str], cut: frozenset[str]) -> bool:
        x, fn = sink
        if fn == "sum":
            return self._zero(x, cut)
        return fn in ("max", "maxnum") and self._lowest(x, cut)

    def _lowest(self, x: Operand, cut: frozenset[str]) -> bool:
        """Whether a value is -inf where the cut ones are."""
        if x in cut or x == -math.inf:
            return True
        op = self.defs.get(str(x))
        match op:
            case Map(fn="mul", args=args):
                return any(
                    isinstance(c, float) and c > 0.0 and self._lowest(y, cut)
                    for y, c in (args, args[::-1])
                )
            case Map(fn="div", args=(y, c)):
                return isinstance(c, float) and c > 0.0 and self._lowest(y, cut)
            case Map(fn="sub", args=(y, z)):
                return self._lowest(y, cut) and not self._lowest(z, cut)
            case Map(fn="add", args=args):
                return any(self._lowest(y, cut) for y in args)
            case Map(fn="select", args=(_, a, b)):
                return self._lowest(a, cut) and self._lowest(b, cut)
            case _:
                return False

    def _zero(self, x: Operand, cut: frozenset[str]) -> bool:
        """Whether a value is 0 where the cut ones are -inf."""
        op = self.defs.get(str(x))
        match op:
            case Map(fn="exp" | "exp2" | "sigmoid", args=(y,)):
                return self._lowest(y, cut)
            case Map(fn="select", args=(_, a, b)):
                return all(y == 0 or y == ABSENT or self._zero(y, cut) for y in (a, b))
            case Cast(x=y):
                return self._zero(y, cut)
            case _:
                return False

    def total(self, x: str) -> None:
        """Adds up the parts of a sum, once."""
        if x not in self.partial:
            return
        self.partial.discard(x)
        part = self.scope.values[x].text
        name = self.names.fresh(f"{part}_total")
        self.out.add(f"float {name}[{self.scope.held}]; ROWS {name}[r] = quad_sum({part}[r]);")
        self.scope.values[x] = Expression(name, "float")

    def is_fragment(self, op: Op) -> bool:
        """Whether an op's result has rows and columns."""
        return set(op.result.type.axes) == {self.structure.row, self.structure.stream}


def is_masked(op: Op) -> bool:
    """Whether an op replaces elements by -inf."""
    return isinstance(op, Map) and op.fn == "select" and -math.inf in op.args[1:]
