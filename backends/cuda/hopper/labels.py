"""Labels: what a block reads of each position of the streamed axis, such as the document that a key belongs to.

A loading warp brings them beside the keys, a ring of stages in shared memory: a thread of a computing warpgroup then has
the two adjacent ones of its columns in one instruction, and none of them waits for memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilec.backends.cuda.hopper.expression import Expression, loaded
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.dtypes import DType
from tilec.ir import Load, Operand, walk

RING = "labels"
"""The name of their ring."""


@dataclass(frozen=True)
class Label:
    """The elements of a tensor at the positions of a window. `offset`: where they are in a stage."""

    load: Load
    offset: int

    @property
    def tensor(self) -> str:
        """The tensor."""
        return self.load.tensor

    @property
    def index(self) -> tuple[Operand, ...]:
        """The index, in which the streamed axis stands for the position."""
        return self.load.index

    @property
    def key(self) -> object:
        """What makes two loads the same label."""
        return self.tensor, self.index

    @property
    def ctype(self) -> str:
        """The C type that they have in shared memory."""
        ctype = self.element("x").ctype
        return "int" if ctype == "bool" else ctype

    @property
    def bytes(self) -> int:
        """The bytes of one of them there."""
        return size(self.load.result.type.dtype)

    def element(self, text: str) -> Expression:
        """What a word of shared memory stands for."""
        e = loaded("x", self.load.result.type.dtype)
        return Expression(text if e.kind != "bool" else f"({text} != 0)", e.kind, e.bits)


def size(dtype: DType) -> int:
    """The bytes of a label in shared memory."""
    return 8 if dtype == "i64" else 4


def labels(s: Structure) -> tuple[Label, ...]:
    """The labels that the blocks of a grid read; none where the loading warps compute the keys of windows that they are yet
    to choose, and have no time."""
    if s.blocks[0].heads[0].key.computed and s.chosen:
        return ()
    found: dict[object, Label] = {}
    at = 0
    for b in s.blocks:
        for op in reads(s, b):
            label = Label(op, at)
            if label.key not in found:
                found[label.key] = label
                at += label.bytes * s.columns
    return tuple(found.values())


def labelled(s: Structure) -> frozenset[int]:
    """The blocks that read labels, by number."""
    return frozenset(k for k, b in enumerate(s.blocks) if any(True for _ in reads(s, b)))


def reads(s: Structure, block: Block) -> Iterator[Load]:
    """The loads of a block whose index is a position and what is known before its loop."""
    own = {v.name for op in walk(block.loop.body) for v in op.results}
    for op in walk(block.middle):
        if isinstance(op, Load) and op.result.type.axes == (s.stream,):
            others = [x for x in op.index if x != s.stream]
            if len(others) == len(op.index) - 1 and not own.intersection(map(str, others)):
                yield op
