"""No pass: a product as two sides that are contracted, for `contract`.

The factors that span the most axes are the seeds, and each other factor, divisor or condition joins a side that has all its
axes. What does not vary along the summed axes leaves the sum, unless the result could tell: the sum of a row whose terms are
all absent is 0, whatever their factors are, and `0 · nan` behind the sum would be NaN. Where terms may be absent, only
numbers leave.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tilec.dataflow import backward, names_in
from tilec.dtypes import kind
from tilec.ir import Load, Map, Operand, Reduce
from tilec.passes.known import is_divisor, is_finite
from tilec.passes.products import Definitions, Product
from tilec.rewrite import Rewrite


@dataclass
class Part:
    """Factors, divisors and conditions that belong together."""

    factors: list[Operand] = field(default_factory=list[Operand])
    divisors: list[Operand] = field(default_factory=list[Operand])
    conditions: list[Operand] = field(default_factory=list[Operand])

    @property
    def around(self) -> int:
        """How many ops they are around something else."""
        return len(self.factors) + len(self.divisors) + len(self.conditions)


@dataclass(frozen=True)
class Split:
    """A product as two sides, and what is left for the result."""

    sides: tuple[Part, Part]
    outside: Part
    negative: bool
    rank: int
    """How many axes a side has, at most."""


_Place: TypeAlias = tuple[Literal["factors", "divisors", "conditions"], Operand, bool]
"""An operand that is no side's seed, what it is, and whether it leaves the sum."""


@dataclass(frozen=True)
class Summed:
    """What products are summed over, the body they are rewritten in, and what is known of the one they are from."""

    b: Rewrite
    over: frozenset[str]
    defs: Definitions
    absent: set[str]

    def splits(self, products: Iterable[Product], opened: bool) -> list[Split]:
        """Products in two sides each; none, where one of them has no such sides.

        `opened`: the user wrote no plain products, and what masks hide stays hidden in all. Of a plain one, a factor without
        a side leaves.
        """
        found = [self._split(p, opened) for p in products]
        return [] if None in found else [s for s in found if s is not None]

    def parted(self, factors: Iterable[Operand]) -> tuple[list[Operand], list[Operand]]:
        """Factors that vary along the summed axes, and those that do not."""
        inside, loose = list[Operand](), list[Operand]()
        for f in factors:
            (inside if self._varies(f) else loose).append(f)
        return inside, loose

    def masked(self, product: Product) -> bool:
        """Whether terms of a product of the old body may be absent."""
        if any(self._varies(self.b.of(c)) for c in product.conditions):
            return True
        return not self.absent.isdisjoint(names_in(product.factors))

    def leaves(self, factor: Operand, masked: bool) -> bool:
        """Whether a factor that does not vary along the axes leaves the sum."""
        return not (masked and self._may_be_nan(factor))

    def _split(self, product: Product, opened: bool) -> Split | None:
        if opened and not self._keeps_masks(product):
            return None
        p = product.renamed(self.b.all_of)
        inside, loose = self.parted(p.factors)
        if len(inside) < 2:
            return None
        sides = self._sides(inside, loose)
        spans = [frozenset[str]().union(*(self._axes(f) for f in s.factors)) for s in sides]
        if any(not self.over <= axes for axes in spans):
            return None
        split = Split(sides, Part(), p.negative, max(len(axes) for axes in spans))
        places = self._places(p, loose, self.masked(product))
        return split if self._joined(split, spans, places, opened) else None

    def _sides(self, inside: list[Operand], loose: list[Operand]) -> tuple[Part, Part]:
        """The factors as two products. Takes from `loose` what is cheaper inside a side than on the result."""
        axes = {id(f): self._axes(f) for f in inside}
        first = max(inside, key=lambda f: len(axes[id(f)]))
        rest = list(inside)
        rest.remove(first)  # a square has one factor twice
        second = max(rest, key=lambda f: (len(axes[id(f)] - axes[id(first)]), len(axes[id(f)])))
        rest.remove(second)
        if inside.index(second) < inside.index(first):
            first, second = second, first
        sides = Part([first]), Part([second])
        for f in rest:
            near = [s for s in sides if axes[id(f)] <= axes[id(s.factors[0])]]
            (near[0] if near else sides[0]).factors.append(f)
        for f in list(loose):
            own = self._axes(f)
            for s in sides:
                if own and own <= axes[id(s.factors[0])] and self._per_tile(s):
                    s.factors.append(f)
                    loose.remove(f)
                    break
        return sides

    def _places(self, p: Product, loose: list[Operand], masked: bool) -> Iterator[_Place]:
        """What joins the seeds and their like."""
        b = self.b
        summed = [b.kernel.extents[a] for a in self.over]
        for f in loose:
            yield "factors", f, self.leaves(f, masked)
        for z in p.divisors:
            yield "divisors", z, is_divisor(z, b.made, b.kernel.dims, summed)
        for c in p.conditions:
            yield "conditions", c, not self._varies(c)

    def _joined(
        self,
        split: Split,
        spans: list[frozenset[str]],
        places: Iterable[_Place],
        opened: bool,
    ) -> bool:
        """Puts all in its place. False: something has none."""
        # what is computed for each pair takes more work better than what is loaded once per tile
        order = sorted(range(2), key=lambda k: self._per_tile(split.sides[k]))
        for what, x, leaves in places:
            near = [split.sides[k] for k in order if self._axes(x) <= spans[k]]
            if opened and not leaves and not near:
                return False
            part = split.outside if leaves or not near else near[0]
            getattr(part, what).append(x)
        return True

    # ---- factors that a loop applies behind it

    def _keeps_masks(self, p: Product) -> bool:
        """Whether masks hide as much as before when `online` takes factors of a product of the old body out of its loop.

        A loop that makes weights and their normaliser divides behind it.
        """
        if not self.masked(p) or not self._streams(p):
            return True
        of = self.b.of
        loose = [f for f in p.factors if not self._varies(of(f))]
        held = [z for z in p.divisors if not self._is_sum(z, p)]
        if any(self._varies(of(c)) for c in p.conditions):
            return False
        return not any(self._may_be_nan(of(x)) for x in (*loose, *held))

    def _streams(self, p: Product) -> bool:
        """Whether a product depends on reductions over its own axes, so that one loop makes both."""
        made = backward(names_in((*p.factors, *p.divisors)), self.defs)
        ops = [op for op in map(self.defs.get, made) if isinstance(op, Reduce)]
        return any(self.over & set(op.over) for op in ops)

    def _is_sum(self, z: Operand, p: Product) -> bool:
        """Whether a divisor is the sum of a factor, which is 0 where all terms are absent."""
        match self.defs.get(z) if isinstance(z, str) else None:
            case Reduce(fn="sum", args=(x,), over=axes):
                return x in p.factors and frozenset(axes) == self.over
            case Map(fn="add" | "sub", args=args):  # l + (l - l)
                return all(self._is_sum(y, p) for y in args)
            case _:
                return False

    # ---- operands of the new body

    def _axes(self, x: Operand) -> frozenset[str]:
        return frozenset(self.b.type_of(x).axes)

    def _varies(self, x: Operand) -> bool:
        return bool(self.over & self._axes(x))

    def _may_be_nan(self, x: Operand) -> bool:
        is_float = kind(self.b.type_of(x).dtype) == "float"
        return is_float and not is_finite(x, self.b.made, self.b.kernel.dims)

    def _per_tile(self, side: Part) -> bool:
        """Whether a factor costs less in a side than on the result: what is loaded is no larger than the result."""
        return isinstance(self.b.made_by(side.factors[0]), Load)
