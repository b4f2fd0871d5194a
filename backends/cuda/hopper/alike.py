"""Blocks that differ in their masks alone: the first windows of a tile are then one program, whose masks come as words.

Which block a window takes says which masks it can do without. That saves time in a loop; for the first window of a tile, of
which each block would have a copy of its own, it costs more to compile than it saves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from tilec.backends.cuda.hopper.analysis import Analysis
from tilec.backends.cuda.hopper.loop import FragmentLoop
from tilec.backends.cuda.hopper.span import Span
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.dataflow import backward, names_in
from tilec.ir import If, Map, Op, Operand, Reduce, Value, Yield, attributes, operands, walk

LEAST = 3
"""The blocks from which on one program for their first windows pays."""


@dataclass(frozen=True)
class Alike:
    """`general`: the number of a block that has the masks of all others. `masked`: for each block, by each masked value of
    the general one, whether it is masked there, too; the masks are the same then."""

    general: int
    masked: tuple[Mapping[str, bool], ...]


def alike(s: Structure) -> Alike | None:
    """How the blocks of a grid differ in their masks; None where they differ in more, or are too few for that to matter."""
    if len(s.blocks) < LEAST:
        return None
    ragged = any(b.loop.ragged for b in s.blocks)
    for k, general in enumerate(s.blocks):
        if general.loop.ragged != ragged:
            continue  # it does not know the axis's end
        found = [_Comparison(general, b).run() for b in s.blocks]
        masked = [m for m in found if m is not None]
        if len(masked) == len(found) and masked[k]:
            return Alike(k, tuple(masked))
    return None


def joined(blocks: tuple[Block, ...], few: int = LEAST) -> tuple[Block, ...]:
    """Blocks with one for two that differ in nothing but that it looks where the axis ends, where there are more than a
    `few`: one more takes longer to compile than looking there costs."""
    if len(blocks) <= few:
        return blocks
    out = list(blocks)
    for general in blocks:
        for b in blocks:
            if general.loop.ragged and not b.loop.ragged and _same(general, b):
                out.remove(b)
                n = next(k for k, x in enumerate(out) if x.choices[0] == general.choices[0])
                out[n] = replace(out[n], others=(*out[n].others, (b.number, b.choice)))
    return tuple(out)


def _same(general: Block, b: Block) -> bool:
    """Whether two blocks compute the same, with the same masks."""
    masked = _Comparison(general, b).run()
    return masked is not None and all(masked.values())


class _Comparison:
    """Whether a block computes what a general one does, with fewer masks."""

    def __init__(self, general: Block, block: Block) -> None:
        self.general, self.block = general, block
        self.ops, self.other_ops = _definitions(general), _definitions(block)
        self.known: dict[str, Operand] = dict(zip(general.args, block.args, strict=True))
        heads = zip(general.heads, block.heads, strict=True)
        self.known |= {g.name: b.name for g, b in heads}
        self.masked: dict[str, bool] = {}

    def run(self) -> dict[str, bool] | None:
        """The masked values; None where more differs."""
        g, b = self.general, self.block
        pairs: list[tuple[Operand, Operand]] = [
            (x.x, y.x) for x, y in zip(g.tails, b.tails, strict=True)
        ]
        for k, (x, y) in enumerate(zip(g.yields, b.yields, strict=True)):
            pairs.append((g.bases[k], b.bases[k]) if k in g.bases else (x, y))
        return self.masked if all(self.same(x, y) for x, y in pairs) else None

    def same(self, x: Operand, y: Operand) -> bool:
        """Whether two values are the same but for masks."""
        if not isinstance(x, str):
            return type(x) is type(y) and x == y
        if x in self.known:
            return self.known[x] == y
        self.known[x] = y
        g, b = self.ops.get(x), self.other_ops.get(y) if isinstance(y, str) else None
        if g is None:
            return x == y
        if _hides(g):
            self.masked[x] = b is not None and _hides(b)
            if b is not None and _hides(b):
                return all(map(self.same, g.args[:2], b.args[:2]))
            return self.same(g.args[1], y)
        return b is not None and self.alike(g, b, x, str(y))

    def alike(self, g: Op, b: Op, x: str, y: str) -> bool:
        """Whether two ops do the same, to the same values."""
        if type(g) is not type(b) or any(
            getattr(g, n) != getattr(b, n) for n in attributes(type(g))
        ):
            return False
        k = [v.name for v in g.results].index(x)
        if len(g.results) != len(b.results) or b.results[k].name != y:
            return False
        if _kind(g.results[k]) != _kind(b.results[k]):
            return False
        mine, others = operands(g), operands(b)
        if len(mine) != len(others) or not all(map(self.same, mine, others)):
            return False
        return all(map(self.same, _ends(g, k), _ends(b, k)))


def _definitions(b: Block) -> dict[str, Op]:
    return {v.name: op for op in walk(b.middle) for v in op.results}


def _kind(v: Value) -> object:
    return v.type.dtype, v.type.axes


def _ends(op: Op, k: int) -> list[Operand]:
    """What the arms of a branch give for its `k`th result."""
    if not isinstance(op, If):
        return []
    ends = (op.then[-1], op.orelse[-1])
    return [e.values[k] for e in ends if isinstance(e, Yield)]


def _hides(op: Op) -> TypeGuard[Map]:
    """Whether an op is a mask: what does not count is -inf."""
    return isinstance(op, Map) and op.fn == "select" and op.args[2] == -math.inf


# ---- words


def counting(block: Analysis, x: str, every: str) -> list[str] | None:
    """The words of the columns that a mask leaves, in each row; None where elements decide about that.

    `x`: the masked value; `every`: the name of a word whose bits count in any case but beyond the end of the axis. What they
    need is written before them.
    """
    loop = FragmentLoop(block, [])
    mask = _mask(block, loop, x)
    if mask is None:
        return None
    words = [f"({every} | ({loop.words.bits(mask, k)}))" for k in range(loop.words.count)]
    if x not in block.cut:
        return words
    end = Span(high=("rest - 1",))
    return [f"{word} & {loop.words.bits(end, k)}" for k, word in enumerate(words)]


def _mask(block: Analysis, loop: FragmentLoop, x: str) -> Span | None:
    """A mask, if all of it can be written before the loop over elements."""
    op, scope, out = block.defs[x], block.scope, block.out
    assert isinstance(op, Map)
    below = backward(set(names_in(op.args[:1])), block.defs)
    for y in block.block.middle:
        name = y.results[0].name
        if name in below and block.structure.stream not in scope.axes(name):
            if isinstance(y, (Reduce, If)):
                return None
            scope.declare(y)
    loop.mark = len(out.lines), out.depth
    span = loop.value(op.args[0]).span
    plain = span is not None and span.some and not span.others and loop.words.hoists(span)
    return span if plain and loop.mark[0] == len(out.lines) else None
