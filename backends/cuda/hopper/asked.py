"""What a thread asks for of a window before it waits for the window's products: elements for a row and a position.

They arrive meanwhile, and are in registers then. The index must be known before the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.backends.cuda.hopper.diagonals import Diagonals, diagonals
from tilec.backends.cuda.hopper.pairs import Pairs, pairs
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.ir import Load, Op, walk

Asked = Pairs | Diagonals


def asked(s: Structure, block: Block) -> tuple[Asked, ...]:
    """What is asked for of a block's windows."""
    return tuple(_asked(s, block))


def _asked(s: Structure, block: Block) -> Iterator[Asked]:
    own: dict[str, Op] = {v.name: op for op in walk(block.loop.body) for v in op.results}
    for op in block.middle:
        if isinstance(op, Load) and set(op.result.type.axes) == {s.row, s.stream}:
            found = pairs(s, op, own) or diagonals(s, op, own)
            if found is not None:
                yield found


def registers(s: Structure) -> int:
    """The registers per thread that hold it."""
    return max(sum(x.words(s) for x in asked(s, b)) for b in s.blocks)
