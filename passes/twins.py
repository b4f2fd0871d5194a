"""No pass: results of groups that an earlier group has too, along other axes of the same extents; for `tile`.

    x: i64[i] = group(axes=i) { … f(i) … yield(a) }      y[j] is x[j] where i and j are as long
    y: i64[j] = group(axes=j) { … f(j) … yield(b) }

A function of a position that a program asks for at i and at j, the number of a document say, is computed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.ir import (
    Body,
    Contract,
    Edge,
    For,
    Group,
    Kernel,
    Op,
    Operand,
    Reduce,
    Store,
    Value,
    rebuild,
)


def twins(kernel: Kernel) -> Mapping[str, str]:
    """For results of groups, the results that are the same."""
    outputs = {op.value for op in kernel.body if isinstance(op, Store)}
    groups = [op for op in kernel.body if isinstance(op, Group)]
    inner = [g for g in groups if not any(v.name in outputs for v in g.results)]
    found: dict[str, str] = {}
    known: dict[object, Group] = {}
    for group in inner if len(inner) > 1 else ():
        first = known.setdefault(_form(kernel, group), group)
        if first is not group:
            found |= {v.name: w.name for v, w in zip(group.results, first.results, strict=True)}
    return found


def _form(kernel: Kernel, group: Group) -> object:
    """A group whose names and axes are numbers, in the order in which they occur, and how long its axes are."""
    axes = {a: f"axis {n}" for n, a in enumerate(group.axes)}
    names: dict[str, str] = dict(axes)

    def operand(x: Operand) -> Operand:
        return names.get(x, x) if isinstance(x, str) else x

    def value(v: Value) -> Value:
        names[v.name] = f"value {len(names)}"
        along = tuple(axes.get(a, a) for a in v.type.axes)
        return Value(names[v.name], replace(v.type, axes=along))

    def region(body: Body) -> Body:
        return tuple(along(rebuild(op, operand, region, value)) for op in body)

    def along(op: Op) -> Op:
        match op:
            case Reduce() | Contract():
                return replace(op, over=tuple(axes.get(a, a) for a in op.over))
            case For() | Edge():
                return replace(op, axis=axes.get(op.axis, op.axis))
            case _:
                return op

    extents = tuple(kernel.extents[a] for a in group.axes)
    return extents, region((replace(group, axes=tuple(axes.values())),))
