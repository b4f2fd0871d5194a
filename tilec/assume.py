"""A body under the assumption that some of its conditions are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.folding import FoldingBuilder
from tilec.ir import Body, Map, Op, Operand, rebuild


def assume(body: Body, known: Mapping[str, bool], emit: FoldingBuilder) -> Body:
    """A body in which the selects do not look at conditions that are known.

    A select keeps its condition where without it the result would have fewer axes.
    """
    new: dict[str, Operand] = dict(known)
    arms: dict[str, Operand] = {}

    def of(x: Operand) -> Operand:
        return arms.get(x, x) if isinstance(x, str) else x

    for op in body:
        if isinstance(op, Map) and op.fn in ("and", "or", "not") and op.result.name not in known:
            args = tuple(new.get(x, x) if isinstance(x, str) else x for x in op.args)
            if args != op.args:
                new[op.result.name] = emit.fn(op.fn, *args)
        op = rebuild(op, of)
        if (
            isinstance(op, Map)
            and op.fn == "select"
            and isinstance(c := op.args[0], str)
            and c in new
        ):
            op = _chosen(op, new[c], arms, emit)
        if op is not None:
            emit.add(op) if op.results else emit.ops.append(op)
    return tuple(emit.ops)


def _chosen(op: Map, c: Operand, arms: dict[str, Operand], emit: FoldingBuilder) -> Op | None:
    """A select by a condition of which more is known now; None where one arm is all of it."""
    if isinstance(c, bool):
        arm = op.args[1 if c else 2]
        if emit.type_of(arm).resembles(op.result.type):
            arms[op.result.name] = arm
            return None
        return op
    _, a, b = op.args
    axes = {x for y in (c, a, b) for x in emit.type_of(y).axes}
    return replace(op, args=(c, a, b)) if axes == set(op.result.type.axes) else op
