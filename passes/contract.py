"""contract: sums of products into contractions.

Requires: tensor IR without regions. Changes: a `sum` of a product of two values that share the summed axes
becomes a `contract`; factors without these axes leave the sum; a sum of two contractions becomes one
accumulator.

    x: f32[i, j, d] = mul(q, k); s: f32[i, j] = sum(x, over=d)
    ->
    s: f32[i, j] = contract(q, k, over=d)

A product of more than two factors is split into two sides: the factors that span the most axes are the seeds,
and each other factor joins a side that has all its axes, so that a norm of the rows of Q is multiplied into Q,
not into the scores. What stands around a product (a division, a condition, a sign) goes to a side as well, or leaves
the sum where it does not vary along the summed axes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tilec.dataflow import definitions, live, uses
from tilec.dtypes import kind
from tilec.ir import ABSENT, Contract, Kernel, Load, Map, Op, Operand, Reduce
from tilec.passes.products import Product, plain, terms
from tilec.rewrite import Rewrite


def contract(kernel: Kernel) -> Kernel:
    """Sums of products, as contractions."""
    b = Rewrite(kernel)
    defs, count = definitions(kernel.body), uses(kernel.body)
    for op in kernel.body:
        match op:
            case Reduce(fn="sum") if (total := _sum(b, op, defs)) is not None:
                b.replace(op, total)
            case Map(fn="add", args=(x, y)) if (pair := _accumulator(b, x, y, count)) is not None:
                first, second = pair
                name = b.begin(op)
                b.replace(op, b.contract(second.x, second.y, second.over, init=first, name=name))
            case _:
                b.keep(op)
    return replace(kernel, body=live(tuple(b.ops)))


def _sum(b: Rewrite, op: Reduce, defs: Mapping[str, Op]) -> Operand | None:
    """A sum as contractions, or of fewer factors. None: it stays as it is."""
    x, over = op.args[0], set(op.over)
    product = plain(x, defs).renamed(b.all_of)
    opened = [p.renamed(b.all_of) for p in terms(x, defs)]
    found = [s for products in ([product], opened) if (s := _splits(b, products, over))]
    if found:
        return _added(b, op, min(found, key=lambda splits: max(s.rank for s in splits)))
    return _smaller(b, op, product) if len(product.factors) > 1 else None


def _smaller(b: Rewrite, op: Reduce, product: Product) -> Operand:
    """A sum without the factors that do not vary along its axes."""
    name, over = b.begin(op), set(op.over)
    inside = [f for f in product.factors if over & _axes(b, f)]
    outside = [f for f in product.factors if not over & _axes(b, f)]
    total = b.reduce("sum", _times(b, inside), over=op.over, name=None if outside else name)
    return _around(b, total, _Part(outside), 0, name)


# ---- products in two sides


@dataclass
class _Part:
    """Factors, divisors and conditions that belong together."""

    factors: list[Operand]
    divisors: list[Operand] = field(default_factory=list[Operand])
    conditions: list[Operand] = field(default_factory=list[Operand])

    @property
    def around(self) -> int:
        """How many ops they are around something else."""
        return len(self.factors) + len(self.divisors) + len(self.conditions)


@dataclass(frozen=True)
class _Split:
    """A product as two sides that are contracted, and what is left for the result."""

    sides: tuple[_Part, _Part]
    outside: _Part
    negative: bool
    rank: int
    """How many axes a side has, at most."""


def _splits(b: Rewrite, products: list[Product], over: set[str]) -> list[_Split]:
    """Products in two sides each; none, where one of them has no such sides."""
    found = [_split(b, p, over) for p in products]
    return [] if None in found else [s for s in found if s is not None]


def _split(b: Rewrite, p: Product, over: set[str]) -> _Split | None:
    """A product as two sides that both vary along the summed axes. None: it has no such sides."""
    inside = [f for f in p.factors if over & _axes(b, f)]
    outside = _Part([f for f in p.factors if not over & _axes(b, f)])
    if len(inside) < 2:
        return None
    sides = _sides(b, inside, outside.factors)
    spans = [set[str]().union(*(_axes(b, f) for f in side.factors)) for side in sides]
    if any(not over <= axes for axes in spans):
        return None
    loaded = [_per_tile(b, side.factors[0]) for side in sides]
    # what is computed for each pair takes more work better than what is loaded once per tile
    order = sorted(range(2), key=lambda k: loaded[k])

    def part(x: Operand) -> _Part | None:
        own = _axes(b, x)
        near = [sides[k] for k in order if own <= spans[k]]
        return outside if not over & own else near[0] if near else None

    for z in p.divisors:
        if (near := part(z)) is None:
            return None
        near.divisors.append(z)
    for c in p.conditions:
        if (near := part(c)) is None:
            return None
        near.conditions.append(c)
    return _Split(sides, outside, p.negative, max(len(axes) for axes in spans))


def _sides(b: Rewrite, inside: list[Operand], outside: list[Operand]) -> tuple[_Part, _Part]:
    """The factors as two products. Takes from `outside` what is cheaper inside a side than on the result."""
    axes = {id(f): _axes(b, f) for f in inside}
    first = max(inside, key=lambda f: len(axes[id(f)]))
    rest = list(inside)
    rest.remove(first)  # a square has one factor twice
    second = max(rest, key=lambda f: (len(axes[id(f)] - axes[id(first)]), len(axes[id(f)])))
    rest.remove(second)
    if inside.index(second) < inside.index(first):
        first, second = second, first
    sides = _Part([first]), _Part([second])
    for f in rest:
        near = [s for s in sides if axes[id(f)] <= axes[id(s.factors[0])]]
        (near[0] if near else sides[0]).factors.append(f)
    for f in list(outside):
        own = _axes(b, f)
        for s in sides:
            if own and own <= axes[id(s.factors[0])] and _per_tile(b, s.factors[0]):
                s.factors.append(f)
                outside.remove(f)
                break
    return sides


def _axes(b: Rewrite, x: Operand) -> set[str]:
    return set(b.type_of(x).axes)


# ---- and as ops


def _added(b: Rewrite, op: Reduce, splits: list[_Split]) -> Operand:
    """The contractions of some products, added up."""
    name = b.begin(op)
    total: Operand | None = None
    for k, split in enumerate(splits):
        last = name if k == len(splits) - 1 else None
        if total is not None and not split.negative and not split.outside.around:
            x, y = (_side(b, side) for side in split.sides)
            total = b.contract(x, y, op.over, init=total, name=last)
            continue
        alone = total is None and not split.negative
        product = _contracted(b, op, split, last if alone else None)
        if total is not None:
            total = b.map("sub" if split.negative else "add", total, product, name=last)
        else:
            total = b.map("neg", product, name=last) if split.negative else product
    assert total is not None
    return total


def _contracted(b: Rewrite, op: Reduce, split: _Split, name: str | None) -> Operand:
    x, y = (_side(b, side) for side in split.sides)
    total = b.contract(x, y, op.over, name=None if split.outside.around else name)
    zero = 0.0 if kind(b.type_of(total).dtype) == "float" else 0
    return _around(b, total, split.outside, zero, name)


def _side(b: Rewrite, side: _Part) -> Operand:
    around = _Part([], side.divisors, side.conditions)
    return _around(b, _times(b, side.factors), around, ABSENT, None)


def _times(b: Rewrite, factors: list[Operand]) -> Operand:
    product = factors[0]
    for f in factors[1:]:
        product = b.map("mul", product, f)
    return product


def _around(b: Rewrite, x: Operand, part: _Part, zero: Operand, name: str | None) -> Operand:
    """A part around a value; the last op gets the name."""
    left = part.around

    def last() -> str | None:
        nonlocal left
        left -= 1
        return None if left else name

    for f in part.factors:
        x = b.map("mul", x, f, name=last())
    for z in part.divisors:
        x = b.map("div", x, z, name=last())
    for c in part.conditions:
        x = b.map("select", c, x, zero, name=last())
    return x


def _per_tile(b: Rewrite, seed: Operand) -> bool:
    """Whether a factor costs less beside `seed` than on the result: a loaded side is no larger than the result."""
    return isinstance(b.made_by(seed), Load)


def _accumulator(
    b: Rewrite, x: Operand, y: Operand, count: Counter[str]
) -> tuple[Operand, Contract] | None:
    """The two summands, where both are contractions with one set of axes and the second has no other use."""
    left, right = (b.made_by(b.of(z)) for z in (x, y))
    if not (isinstance(left, Contract) and isinstance(right, Contract)) or right.init is not None:
        return None
    if set(left.result.type.axes) != set(right.result.type.axes) or count[str(y)] > 1:
        return None
    return left.result.name, right
