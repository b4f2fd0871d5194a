"""exp2: exponentials to base 2, with the factor log2(e) folded into a scale that is there anyway.

Requires: tensor IR after expand, without regions. Changes: no `exp` is left.

    x = mul(s, scale); m = max(x, over=j); p = exp(sub(x, m))
    ->
    x = mul(s, t), t = mul(scale, 1.4427); m = max(x, over=j); p = exp2(sub(x, m))

Where scores are scores times a factor that does not vary along the reduced axis, they and their running
reference are kept in units of ln 2, and what else uses the reference multiplies it by ln 2. A score with a
summand that comes as it is (a bias tensor) is left alone: its largest finite values would overflow. There, and
elsewhere, exp(z) becomes exp2(z · log2 e).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from tilec.dataflow import definitions
from tilec.ir import Contract, Kernel, Map, Op, Operand, Reduce
from tilec.passes.expand import LIMITS
from tilec.rewrite import Rewrite

LOG2E = math.log2(math.e)
LN2 = math.log(2.0)


def exp2(kernel: Kernel) -> Kernel:
    """Exponentials to base 2."""
    return replace(kernel, body=_Base2(kernel).run())


class _Base2(Rewrite):
    """`scaled`: the new names, in units of ln 2, of old values; with the axes of the reduction they belong to."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__(kernel)
        self.defs = definitions(kernel.body)
        self.scaled: dict[str, tuple[str, frozenset[str]]] = {}
        self.plain: dict[str, str] = {}
        self.candidates = dict(_candidates(kernel.body))

    def run(self) -> tuple[Op, ...]:
        for op in self.kernel.body:
            self._one(op)
        return tuple(self.ops)

    def _one(self, op: Op) -> None:
        if op.results and op.results[0].name in self.candidates:
            over = self.candidates[op.results[0].name]
            if self._scalable(op.results[0].name, over):
                name = self.begin(op)
                self.scaled[name] = (self._scale(name, over, name), over)
                return
        match op:
            case Reduce(fn="max" | "maxnum", args=(str() as x,)) if x in self.scaled:
                name = self.begin(op)
                y, over = self.scaled[x]
                self.scaled[name] = (self.reduce(op.fn, y, over=op.over, name=name), over)
            case Map(fn="max" | "min" | "select" | "sub") if (
                found := self._follows(op)
            ) is not None:
                name = self.begin(op)
                first = op.args[:1] if op.fn == "select" else ()
                rest = [self._in_units(x) for x in op.args[len(first) :]]
                self.scaled[name] = (
                    self.map(op.fn, *(self.of(x) for x in first), *rest, name=name),
                    found,
                )
            case Map(fn="exp", args=(str() as z,)) if z in self.scaled:
                self.replace(op, self.map("exp2", self.scaled[z][0], name=self.begin(op)))
            case Map(fn="exp", args=(z,)):
                name = self.begin(op)
                self.replace(op, self.map("exp2", self.map("mul", self.of(z), LOG2E), name=name))
            case _:
                self.keep(op)

    def of(self, x: Operand) -> Operand:
        """An operand outside the scaled region: a scaled value is multiplied by ln 2, once."""
        if not isinstance(x, str) or x not in self.scaled:
            return super().of(x)
        if x not in self.plain:
            self.plain[x] = self.map("mul", self.scaled[x][0], LN2)
        return self.plain[x]

    def _follows(self, op: Map) -> frozenset[str] | None:
        """The reduction axes, where the op's result can be kept in units of ln 2: the other operands are per row."""
        arms = op.args[1:] if op.fn == "select" else op.args
        found = [self.scaled[x][1] for x in arms if isinstance(x, str) and x in self.scaled]
        if not found:
            return None
        over = found[0]
        others = [x for x in arms if not (isinstance(x, str) and x in self.scaled)]
        if any(over & set(self.type_of(self.of(x)).axes) for x in others):
            return None
        return over

    def _in_units(self, x: Operand) -> Operand:
        if isinstance(x, str) and x in self.scaled:
            return self.scaled[x][0]
        if isinstance(x, (int, float)) and not isinstance(x, bool):
            return x if abs(x) in (math.inf, LIMITS[self.kernel.compute]) else x * LOG2E
        return self.map("mul", self.of(x), LOG2E)

    # which scores can take the factor, and how they take it

    def _row(self, x: Operand, over: frozenset[str]) -> bool:
        return not over & set(self.type_of(self.of(x)).axes)

    def _scalable(self, x: Operand, over: frozenset[str]) -> bool:
        op = self.defs.get(x) if isinstance(x, str) else None
        match op:
            case Map(fn="mul", args=(u, v)) if op.result.type.dtype == self.kernel.compute:
                return self._row(u, over) or self._row(v, over)
            case Map(fn="div", args=(u, v)):
                return self._divides(u, v)
            case Map(fn="add" | "sub", args=(u, v)):
                return self._scalable(u, over) and self._scalable(v, over)
            case Map(fn="neg", args=(u,)):
                return self._scalable(u, over)
            case Map(fn="select", args=(_, u, v)):
                return self._scalable(u, over) and (v == -math.inf or self._scalable(v, over))
            case _:
                return False

    def _divides(self, u: Operand, v: Operand) -> bool:
        """A literal divisor, or sqrt(D) of a sum over an axis of extent D: where D is 0 the sum is, too."""
        if isinstance(v, (int, float)):
            return not isinstance(v, bool) and math.isfinite(v) and v != 0
        root = self.defs.get(v) if isinstance(v, str) else None
        total = self.defs.get(u) if isinstance(u, str) else None
        if not (
            isinstance(root, Map) and root.fn == "sqrt" and isinstance(total, (Reduce, Contract))
        ):
            return False
        return [self.kernel.extents[a] for a in total.over] == [root.args[0]]

    def _scale(self, x: Operand, over: frozenset[str], name: str | None = None) -> str:
        op = self.defs[str(x)]
        assert isinstance(op, Map)
        self.span = op.span
        match op.fn, op.args:
            case "mul", (u, v):
                u, v = (u, v) if self._row(v, over) else (v, u)
                return self.map("mul", self.of(u), self._times(v), name=name)
            case "div", (u, v):
                return self.map("mul", self.of(u), self._reciprocal(v), name=name)
            case (("add" | "sub"), (u, v)):
                return self.map(op.fn, self._scale(u, over), self._scale(v, over), name=name)
            case "neg", (u,):
                return self.map("neg", self._scale(u, over), name=name)
            case _, (c, u, v):
                other = v if v == -math.inf else self._scale(v, over)
                return self.map("select", self.of(c), self._scale(u, over), other, name=name)
            case _:
                raise AssertionError(op.fn)

    def _times(self, v: Operand) -> Operand:
        if isinstance(v, (int, float)) and not isinstance(v, bool):
            return v * LOG2E
        return self.map("mul", self.of(v), LOG2E)

    def _reciprocal(self, v: Operand) -> Operand:
        if isinstance(v, (int, float)):
            return LOG2E / v
        return self.map("div", LOG2E, self.map("max", self.of(v), 1e-30))


def _candidates(body: Iterable[Op]) -> Iterable[tuple[str, frozenset[str]]]:
    """Values that have both a maximum taken and an exponential of a difference: the axes of the maximum."""
    body = tuple(body)
    defs = definitions(body)
    minuends: set[Operand] = set()
    for op in body:
        if isinstance(op, Map) and op.fn == "exp" and isinstance(op.args[0], str):
            z = defs.get(op.args[0])
            if isinstance(z, Map) and z.fn == "sub":
                minuends.add(z.args[0])
    for op in body:
        if isinstance(op, Reduce) and op.fn in ("max", "maxnum") and op.args[0] in minuends:
            yield str(op.args[0]), frozenset(op.over)
