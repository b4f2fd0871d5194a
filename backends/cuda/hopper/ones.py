"""Sums of weights as products with ones: the tensor unit adds up what it multiplies, weights as they are rounded.

A sum of a row's weights that does nothing but divide what the same weights have added up may be that of the rounded ones:
their errors cancel where one of them is most of the sum. It is then a product of 16 x 8 x 16 for each 16 columns, whose
operand is in the registers for the next tail.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.dataflow import names_in
from tilec.ir import If, Map, Op, Operand, Reduce, Store, Yield, operands, walk


def divisors(s: Structure) -> frozenset[int]:
    """The slots of sums that may be those of rounded weights."""
    if s.precise:
        return frozenset()
    return frozenset(k for k in range(len(s.slots)) if _divides(s, k))


def _divides(s: Structure, k: int) -> bool:
    slot = s.slots[k]
    if slot.width or slot.init != 0.0:
        return False
    sides = {_weights(b, k) for b in s.blocks}
    if len(sides) != 1 or None in sides:
        return False
    (fed,) = sides
    return fed is not None and _only_divides(s, k, fed)


def _weights(b: Block, k: int) -> frozenset[int] | None:
    """The accumulators that add up what a carried sum adds up; None if it adds up anything else, or is used elsewhere."""
    terms = list(_terms(b.yields[k], b.args[k], b))
    if not terms or None in terms:
        return None
    summed = {op.args[0] for op in terms if op is not None}
    fed = {t.x: t.slot for t in b.tails}
    sides = [t for t in b.tails if set(_arms(t.x, b)) & summed]
    covered = {y for t in sides for y in _arms(t.x, b)}
    if not sides or summed - covered or not fed:
        return None
    own = {op.result.name for op in terms if op is not None} | {b.args[k]}
    others = [y for n, y in enumerate(b.yields) if n != k] + [t.x for t in b.tails]
    others += list(b.bases.values())
    if any(own & _feeding(y, b) for y in others):
        return None
    return frozenset(t.slot for t in sides)


def terms(b: Block, k: int) -> list[Reduce]:
    """The sums over a window that a carried sum adds."""
    return [op for op in _terms(b.yields[k], b.args[k], b) if op is not None]


def _terms(x: Operand, arg: str, b: Block) -> Iterator[Reduce | None]:
    """The sums over a window that a carried sum adds; None for anything else."""
    if x == arg:
        return
    op = _definitions(b).get(str(x))
    match op:
        case Reduce(fn="sum"):
            yield op
        case Map(fn="add", args=args):
            for y in args:
                yield from _terms(y, arg, b)
        case Map(fn="mul", args=(y, z)):
            yield from _terms(y if _holds(y, arg, b) else z, arg, b)
        case If():
            for y in _arms(str(x), b):
                yield from _terms(y, arg, b)
        case _:
            yield None


def _holds(x: Operand, arg: str, b: Block) -> bool:
    return arg in _feeding(x, b)


def _definitions(b: Block) -> dict[str, Op]:
    return {v.name: op for op in walk(b.middle) for v in op.results}


def _arms(x: Operand, b: Block) -> list[Operand]:
    """What a value is in each arm."""
    op = _definitions(b).get(str(x))
    if not isinstance(op, If):
        return [x]
    n = [v.name for v in op.results].index(str(x))
    ends = [arm[-1] for arm in (op.then, op.orelse)]
    return [z for e in ends if isinstance(e, Yield) for z in _arms(e.values[n], b)]


def _feeding(x: Operand, b: Block) -> set[str]:
    """What a value is computed from, the tests of its arms apart."""
    defs, seen, todo = _definitions(b), set[str](), [x]
    while todo:
        y = todo.pop()
        if not isinstance(y, str) or y in seen:
            continue
        seen.add(y)
        op = defs.get(y)
        if isinstance(op, If):
            todo += _arms(y, b)
        elif op is not None:
            todo += names_in(operands(op))
    return seen


def _only_divides(s: Structure, k: int, fed: frozenset[int]) -> bool:
    """Whether a sum does nothing after the loops but divide these accumulators."""
    tainted = {s.results[k]}
    accumulators = {s.results[n] for n in fed}
    for op in s.epilogue:
        used = tainted & set(names_in(operands(op)))
        if not used:
            continue
        if isinstance(op, Store) or not isinstance(op, Map):
            return False
        if len(op.result.type.axes) < 2:
            if op.fn not in ("add", "max", "select"):
                return False
            tainted.add(op.result.name)
        elif op.fn != "div" or op.args[0] not in accumulators or op.args[1] not in used:
            return False
    return True
