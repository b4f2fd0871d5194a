"""No pass: what a sum meets behind its loop that is no number, for `online`.

The sum of the weights tells. It is 0 where all terms are absent: a factor that is NaN must not show there. It is infinite
where a score is: by the definition exp(inf - inf) is NaN then, but loops keep their reference finite, and make infinities.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tilec.ir import Map, Op, Operand, Reduce, operands
from tilec.passes.factor import Term, Weights
from tilec.passes.known import is_finite


def key(over: tuple[str, ...], t: Term) -> tuple[object, ...]:
    """What is the same for terms that are one sum."""
    return frozenset(over), t.x, t.y, t.phis


def alone(w: Weights) -> Term:
    """Weights as a term of their own."""
    return Term((), w.x, None, (w.phi,), w)


@dataclass(frozen=True)
class Behind:
    """A group's ops, what it yields, and the dimensions; the reductions of a loop, and the values that depend on them."""

    defs: Mapping[str, Op]
    yields: Collection[Operand]
    dims: Collection[str]
    reductions: Mapping[str, list[Term] | None]
    moving: Collection[object]

    def guarded(self, t: Term, c: Operand) -> bool:
        """Whether a coefficient may be NaN, which must not show in rows whose weights are all absent; these sum to 0."""
        if t.weights is None or self._is_sum(t.weights, c):
            return False
        if c not in self.moving and not t.weights.peak:
            return False  # weights that underflowed may sum to 0, too
        return not is_finite(c, self.defs, self.dims)

    def _is_sum(self, w: Weights, c: Operand) -> bool:
        """Whether a coefficient is NaN only where the sum of the weights is NaN or infinite."""
        match self.defs.get(c) if isinstance(c, str) else None:
            case Reduce(fn="sum", over=over) as op:
                terms = self.reductions.get(op.result.name) or []
                return [key(over, x) for x in terms] == [key(over, alone(w))]
            case Map(fn="add" | "sub" | "max", args=args):
                return all(isinstance(x, float) or self._is_sum(w, x) for x in args)
            case _:
                return False

    def unbounded(self, name: str, t: Term) -> bool:
        """Whether a term of a reduction must be made NaN where it is infinite, and the sum of the weights as well."""
        w = t.weights
        if w is None or not isinstance(w.phi.w, tuple):
            return False  # a reference that is a value was finite by itself
        return self._shows(name)

    def _shows(self, name: str) -> bool:
        """Whether a sum is anything but a side of a quotient of two sums, which is NaN where these are infinite."""
        if name in self.yields:
            return True
        uses = [op for op in self.defs.values() if name in operands(op)]
        quotients = [op for op in uses if isinstance(op, Map) and op.fn == "div"]
        return len(quotients) < len(uses) or any(
            x not in self.moving for op in quotients for x in op.args
        )
