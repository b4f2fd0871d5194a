"""relax: the running reference of an online reduction may be stale.

Requires: tiles (after prune). Changes: where a carried maximum is only a reference, a block keeps the old one as long as
its terms stay small, and takes the block as it was, with the new maximum, where they do not.

    n = max(m, maxnum(x, over=j)); p = exp2(sub(x, n)); l1 = add(mul(l, exp2(sub(m, n))), sum(p, over=j))
    ->
    q = exp2(sub(x, m)); w = sum(q, over=j); c = le(w, 1024.0); ok = all(c, over=i)
    n, l1, p = if(ok, relaxed=true) { yield(m, add(l, w), q) } else { … as before … yield(n, …, p) }

A maximum is *only a reference* where moving it by d multiplies every accumulator by 2 ** (e · d) for a known e, and changes
nothing that leaves the grid. `scaling` proves it: it gives each value its degree e and its shift, what d adds to it.
Any reference then gives the same result as long as nothing overflows, and the test shows that nothing does: it fails for NaN
and infinity too. Where there is no such proof, the loop stays as it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tilec.builder import Builder
from tilec.dataflow import definitions
from tilec.ir import (
    Body,
    For,
    Grid,
    If,
    Kernel,
    Map,
    Op,
    Reduce,
    Store,
    Yield,
    rebuild,
    walk,
)
from tilec.passes.scaling import FIXED, Measure, Scaling, Tree, mentions, tree
from tilec.passes.stale import Block, Stale

LIMIT = 1024.0
"""How large the sum of a row's terms may be under a stale reference: far from overflow in f16 and f32."""


@dataclass(frozen=True)
class Options:
    """`limit`: the largest sum of a row's terms under a stale reference."""

    limit: float = LIMIT


def relax(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel with stale references where they are proven to be right."""
    taken = Builder(kernel).taken
    body = tuple(
        _Grid(kernel, op, taken, options).run() if isinstance(op, Grid) else op
        for op in kernel.body
    )
    return replace(kernel, body=body)


def _blocks(args: tuple[str, ...], body: Body) -> Iterator[Block]:
    """The blocks of a loop. What is neither straight nor ends in one `if` has none."""
    end = body[-1]
    assert isinstance(end, Yield)
    branch = [op for op in body if isinstance(op, If)]
    if not branch:
        yield Block(args, body[:-1], end.values)
    elif len(branch) == 1 and end.values == tuple(v.name for v in branch[0].results):
        yield from _blocks(args, branch[0].then)
        yield from _blocks(args, branch[0].orelse)


class _Grid:
    """Relaxes the loops of one grid."""

    def __init__(self, kernel: Kernel, grid: Grid, taken: set[str], options: Options) -> None:
        self.kernel, self.grid, self.taken, self.options = kernel, grid, taken, options
        self.loops = [op for op in grid.body if isinstance(op, For)]
        self.blocks = [
            b for f in self.loops for b in _blocks(tuple(v.name for v in f.args), f.body)
        ]
        self.defs = {v.name: op for op in walk(grid.body) for v in op.results}
        # whether weights of any type that the operands have reach as far as f32 does
        self.wide = all(v.type.dtype != "f16" for op in self.defs.values() for v in op.results)

    def run(self) -> Grid:
        """The grid, relaxed where there is a reference."""
        if not self.chained():
            return self.grid
        live = [b for b in self.blocks if not b.idle]
        slots = [k for k in range(len(self.loops[0].args)) if all(_is_maximum(b, k) for b in live)]
        slots = [k for k in slots if self.is_reference(k, live)]
        if not live or not slots:
            return self.grid
        body = tuple(self.loop(op, slots) if isinstance(op, For) else op for op in self.grid.body)
        return replace(self.grid, body=body)

    def chained(self) -> bool:
        """Whether the grid's loops carry the same values, one after the other."""
        loops = self.loops
        if not loops or len(loops[0].args) == 0:
            return False
        flat = all(not any(isinstance(x, For) for x in walk(f.body)) for f in loops)
        linked = all(
            b.init == tuple(v.name for v in a.results) for a, b in itertools.pairwise(loops)
        )
        return flat and linked and all(list(_blocks((), f.body)) for f in loops)

    def is_reference(self, slot: int, live: list[Block]) -> bool:
        """Whether it is proven that a carried maximum is only a reference."""
        shape = _shape(live[0], slot, self.defs)
        if shape is None:
            return False
        powers = {self.powers(b, slot, shape) for b in live}
        found = powers.pop()
        if found is None or powers:
            return False
        last = self.loops[-1]
        after = Scaling(self.defs, shape, {last.results[slot].name: 0})
        for v, power in zip(last.results, found, strict=True):
            after.known.setdefault(v.name, Measure((power, 0.0)))
        stored = [op.value for op in self.grid.body if isinstance(op, Store)]
        return all(after.measure(x) == FIXED for x in stored)

    def powers(self, b: Block, slot: int, shape: Tree) -> tuple[float, ...] | None:
        """The degree of each value that a block carries; None where one has none."""
        scaling = Scaling(self.defs, shape, {b.args[slot]: 0, str(b.yields[slot]): 1})
        return scaling.powers(b.ops, zip(b.args, b.yields, strict=True))

    # ---- rewriting

    def loop(self, op: For, slots: list[int]) -> For:
        """A loop with its blocks relaxed."""
        return replace(op, body=self.body(tuple(v.name for v in op.args), op.body, slots, op.axis))

    def body(self, args: tuple[str, ...], body: Body, slots: list[int], axis: str) -> Body:
        """A loop's body or an arm of it, with its blocks relaxed."""
        if any(isinstance(op, If) for op in body):
            return tuple(
                rebuild(op, region=lambda arm: self.body(args, arm, slots, axis))
                if isinstance(op, If)
                else op
                for op in body
            )
        (block,) = _blocks(args, body)
        for slot in slots:
            if not block.idle:
                block = Stale(
                    self.builder(), block, slot, axis, wide=self.wide, limit=self.options.limit
                ).run()
        return (*block.ops, Yield((), block.yields))

    def builder(self) -> Builder:
        """For ops inside the loops."""
        out = Builder(self.kernel, self.taken)
        out.tiles = {**dict(self.grid.axes), **{f.axis: f.tile for f in self.loops}}
        return out


def _is_maximum(b: Block, slot: int) -> bool:
    """Whether the new value of a slot is the greater of the old one and the block's maximum."""
    defs = definitions(b.ops)
    op = defs.get(str(b.yields[slot]))
    if not isinstance(op, Map) or op.fn != "max" or b.args[slot] not in op.args:
        return False
    other = op.args[1 - op.args.index(b.args[slot])]
    part = defs.get(str(other))
    return isinstance(part, Reduce) and part.fn == "maxnum"


def _shape(b: Block, slot: int, defs: Mapping[str, Op]) -> Tree | None:
    """What is subtracted in the block's exponents, as an expression of the maximum; None where nothing is."""
    new = str(b.yields[slot])
    for op in b.ops:
        if isinstance(op, Map) and op.fn == "sub" and isinstance(op.args[1], str):
            t = tree(op.args[1], new, defs)
            if t is not None and mentions(t):
                return t
    return None
