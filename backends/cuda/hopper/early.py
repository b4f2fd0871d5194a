"""Masks that are made while products are under way: those that no product decides about, and that are dear.

Their words (see `words`) take few registers. Made with the weights, beside which a thread has none left, each number would
wait for the one before.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.hopper.between import Comparisons
from tilec.backends.cuda.hopper.conditions import Conditions
from tilec.backends.cuda.hopper.labels import reads
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.dataflow import names_in
from tilec.dtypes import kind
from tilec.ir import Cast, Load, Map, Op, Operand, operands, walk


def early(s: Structure, block: Block) -> tuple[str, ...]:
    """The masks of a block's window that are made before its products are waited for."""
    return tuple(_early(s, block))


def _early(s: Structure, block: Block) -> Iterator[str]:
    defs: dict[str, Op] = {
        op.result.name: op for op in block.middle if isinstance(op, (Map, Cast, Load))
    }

    def is_steady(x: Operand) -> bool:
        if not isinstance(x, str):
            return isinstance(x, int) and not isinstance(x, bool)
        value, argument = s.kernel.values.get(x), s.kernel.arguments.get(x)
        if value is None:
            return x != s.stream and (argument is None or argument.type == "int")
        return s.stream not in value.type.axes and kind(value.type.dtype) == "int"

    between = Comparisons(s.row, s.stream, defs, is_steady).between

    def is_stretch(op: Op) -> bool:
        return between(op) is not None

    masks = Conditions(s.row, s.stream, defs, {h.name for h in block.heads}, is_stretch)
    labels = set(reads(s, block))
    late = {v.name for op in walk(block.loop.body) for v in op.results} | set(block.args)
    for name in defs:
        if masks.kind(name) == "elements" or not _used(block, masks, name):
            continue
        ops = masks.below(name)
        others = {x for op in ops for x in names_in(operands(op))} - {
            v.name for op in ops for v in op.results
        }
        if not others & late and not labels.intersection(ops):
            yield name


def _used(block: Block, masks: Conditions, name: str) -> bool:
    """Whether a mask is more than a part of another one with words of its own."""
    users = [op for op in walk(block.middle) if op.results and name in operands(op)]
    return any(
        v.name not in masks.defs or masks.kind(v.name) == "elements"
        for op in users
        for v in op.results
    )
