"""The two programs of a block: one for values as they mostly are, and one that is right for all.

Where a maximum may be stale, a block goes on in one of two ways. Here each way is a program of its own, from the first
products on: their tiles are still in shared memory, and no thread keeps scores for what hardly ever happens.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tilec.backends.cuda.hopper.structure import Block
from tilec.ir import Body, If, Op, Operand, Yield
from tilec.renaming import substitute


@dataclass(frozen=True)
class Arms:
    """`common` is right where all `tests` hold; None where there is but one way. `exact` is always right."""

    common: Block | None
    tests: tuple[Operand, ...]
    exact: Block


def arms(block: Block) -> Arms:
    """The programs of a block."""
    tests = tuple(op.cond for op in block.middle if isinstance(op, If))
    common = _straight(block, lambda op: op.then) if tests else None
    return Arms(common, tests, _straight(block, lambda op: op.orelse))


def _straight(block: Block, arm: Callable[[If], Body]) -> Block:
    """The block with an arm in the place of each branch."""
    names: dict[str, Operand] = {}
    out: list[Op] = []

    def known(x: Operand) -> Operand:
        return names.get(x, x) if isinstance(x, str) else x

    for op in block.middle:
        if not isinstance(op, If):
            out += substitute((op,), names)
            continue
        *inner, end = arm(op)
        assert isinstance(end, Yield)
        out += substitute(tuple(inner), names)
        names |= {v.name: known(y) for v, y in zip(op.results, end.values, strict=True)}
    return replace(
        block,
        middle=tuple(out),
        tails=tuple(replace(t, x=str(known(t.x))) for t in block.tails),
        yields=tuple(known(y) for y in block.yields),
        bases={slot: known(x) for slot, x in block.bases.items()},
    )
