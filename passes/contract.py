"""contract: sums of products into contractions.

Requires: tensor IR without regions. Changes: a `sum` of a product of two values that share the summed axes
becomes a `contract`; factors without these axes leave the sum; a sum of two contractions becomes one
accumulator.

    x: f32[i, j, d] = mul(q, k); s: f32[i, j] = sum(x, over=d)
    ->
    s: f32[i, j] = contract(q, k, over=d)

A product of more than two factors is split into two sides (`sides`), so that a norm of the rows of Q is multiplied into
Q, not into the scores. What stands around a product (a division, a condition, a sign) goes to a side as well.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilec.dataflow import definitions, live, uses
from tilec.dtypes import kind
from tilec.ieee import absent_values
from tilec.ir import ABSENT, Contract, Kernel, Map, Operand, Reduce
from tilec.passes.products import Product, plain, terms
from tilec.passes.sides import Part, Split, Summed
from tilec.rewrite import Rewrite


def contract(kernel: Kernel) -> Kernel:
    """Sums of products, as contractions."""
    b = Rewrite(kernel)
    defs, absent, count = definitions(kernel.body), absent_values(kernel), uses(kernel.body)
    for op in kernel.body:
        match op:
            case Reduce(fn="sum"):
                total = _sum(op, Summed(b, frozenset(op.over), defs, absent))
                b.keep(op) if total is None else b.replace(op, total)
            case Map(fn="add", args=(x, y)) if (pair := _accumulator(b, x, y, count)) is not None:
                first, second = pair
                name = b.begin(op)
                b.replace(op, b.contract(second.x, second.y, second.over, init=first, name=name))
            case _:
                b.keep(op)
    return replace(kernel, body=live(tuple(b.ops)))


def _sum(op: Reduce, summed: Summed) -> Operand | None:
    """A sum as contractions, or of fewer factors. None: it stays as it is."""
    x, defs = op.args[0], summed.defs
    product = plain(x, defs)
    ways = summed.splits([product], opened=False), summed.splits(terms(x, defs), opened=True)
    if found := [splits for splits in ways if splits]:
        return _added(summed.b, op, min(found, key=lambda splits: max(s.rank for s in splits)))
    return _smaller(op, product, summed) if len(product.factors) > 1 else None


def _smaller(op: Reduce, product: Product, summed: Summed) -> Operand:
    """A sum without the factors that do not vary along its axes."""
    b, masked = summed.b, summed.masked(product)
    name, factors = b.begin(op), product.renamed(b.all_of).factors
    _, loose = summed.parted(factors)
    outside = [f for f in loose if summed.leaves(f, masked)]
    inside = [f for f in factors if f not in outside]
    total = b.reduce("sum", _times(b, inside), over=op.over, name=None if outside else name)
    return _around(b, total, Part(outside), 0, name)


# ---- as ops


def _added(b: Rewrite, op: Reduce, splits: list[Split]) -> Operand:
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


def _contracted(b: Rewrite, op: Reduce, split: Split, name: str | None) -> Operand:
    x, y = (_side(b, side) for side in split.sides)
    total = b.contract(x, y, op.over, name=None if split.outside.around else name)
    zero = 0.0 if kind(b.type_of(total).dtype) == "float" else 0
    return _around(b, total, split.outside, zero, name)


def _side(b: Rewrite, side: Part) -> Operand:
    around = Part([], side.divisors, side.conditions)
    return _around(b, _times(b, side.factors), around, ABSENT, None)


def _times(b: Rewrite, factors: list[Operand]) -> Operand:
    product = factors[0]
    for f in factors[1:]:
        product = b.map("mul", product, f)
    return product


def _around(b: Rewrite, x: Operand, part: Part, zero: Operand, name: str | None) -> Operand:
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
