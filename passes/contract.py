"""contract: sums of products into contractions.

Requires: tensor IR without regions. Changes: a `sum` of a product of two values that share the summed axes
becomes a `contract`; factors without these axes leave the sum; a sum of two contractions becomes one
accumulator.

    x: f32[i, j, d] = mul(q, k); s: f32[i, j] = sum(x, over=d)
    ->
    s: f32[i, j] = contract(q, k, over=d)

A product of more than two factors is split into two sides: the factors that span the most axes are the seeds,
and each other factor joins a side that has all its axes, so that a norm of the rows of Q is multiplied into Q,
not into the scores.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from tilec.dataflow import definitions, live, uses
from tilec.ir import Contract, Kernel, Load, Map, Op, Operand, Reduce
from tilec.rewrite import Rewrite


def contract(kernel: Kernel) -> Kernel:
    """Sums of products, as contractions."""
    b = Rewrite(kernel)
    defs, count = definitions(kernel.body), uses(kernel.body)
    for op in kernel.body:
        match op:
            case Reduce(fn="sum") if _is_product(op.args[0], defs):
                b.replace(op, _sum_of_product(b, op, defs))
            case Map(fn="add", args=(x, y)) if (pair := _accumulator(b, x, y, count)) is not None:
                first, second = pair
                name = b.begin(op)
                b.replace(op, b.contract(second.x, second.y, second.over, init=first, name=name))
            case _:
                b.keep(op)
    return replace(kernel, body=live(tuple(b.ops)))


def _is_product(x: Operand, defs: Mapping[str, Op]) -> bool:
    return isinstance(x, str) and isinstance(op := defs.get(x), Map) and op.fn == "mul"


def _factors(x: Operand, defs: Mapping[str, Op]) -> list[Operand]:
    op = defs.get(x) if isinstance(x, str) else None
    if isinstance(op, Map) and op.fn == "mul":
        return [f for a in op.args for f in _factors(a, defs)]
    return [x]


def _sum_of_product(b: Rewrite, op: Reduce, defs: Mapping[str, Op]) -> str:
    factors = list(b.all_of(tuple(_factors(op.args[0], defs))))
    name = b.begin(op)
    over = set(op.over)
    inside = [f for f in factors if over & set(b.type_of(f).axes)]
    outside = [f for f in factors if not over & set(b.type_of(f).axes)]
    sides = _split(b, inside, outside)
    if len(sides) < 2 or any(not over <= set(b.type_of(s).axes) for s in sides):
        product = _product(b, inside)
        total = b.reduce("sum", product, over=op.over, name=None if outside else name)
    else:
        total = b.contract(sides[0], sides[1], op.over, name=None if outside else name)
    for f in outside:
        total = b.map("mul", total, f, name=name if f is outside[-1] else None)
    return total


def _product(b: Rewrite, factors: list[Operand]) -> Operand:
    product = factors[0]
    for f in factors[1:]:
        product = b.map("mul", product, f)
    return product


def _split(b: Rewrite, inside: list[Operand], outside: list[Operand]) -> list[Operand]:
    """The factors as two products. Takes from `outside` what is cheaper inside a side than on the result."""
    if len(inside) < 2:
        return list(inside)
    axes = {id(f): set(b.type_of(f).axes) for f in inside}
    first = max(inside, key=lambda f: len(axes[id(f)]))
    rest = list(inside)
    rest.remove(first)  # a square has one factor twice
    second = max(rest, key=lambda f: (len(axes[id(f)] - axes[id(first)]), len(axes[id(f)])))
    rest.remove(second)
    if inside.index(second) < inside.index(first):
        first, second = second, first
    sides: tuple[list[Operand], list[Operand]] = ([first], [second])
    for f in rest:
        near = [s for s in sides if axes[id(f)] <= axes[id(s[0])]]
        (near[0] if near else sides[0]).append(f)
    for f in list(outside):
        own = set(b.type_of(f).axes)
        side = next(
            (s for s in sides if own and own <= axes[id(s[0])] and _per_tile(b, s[0])), None
        )
        if side is not None:
            side.append(f)
            outside.remove(f)
    return [_product(b, s) for s in sides]


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
