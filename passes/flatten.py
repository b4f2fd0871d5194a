"""flatten: two axes that scores are summed over together, as one.

Requires: tensor IR in sums of products (after contract), without regions. Changes: where all sums over `t` or `u` are over
both, and one of them is of values that are sums for each t and u, a position of one axis stands for a pair.

    axis t < T                                     axis t_u < T * 16
    axis u < 16                                    t_1 = floordiv(t_u, 16); u_1 = mod(t_u, 16)
    … load(K, b, add(first[t], u), d) …        ->  … load(K, b, add(first[t_1], u_1), d) …
    contract(p, v, over=[t, u])                    contract(p, v, over=t_u)

So blocks of keys that a table names are streamed like any other keys, in windows of many blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.dataflow import backward, definitions, live, names_in
from tilec.folding import FoldingBuilder
from tilec.ir import Axis, Contract, Kernel, Op, Operand, Reduce, Store, operands
from tilec.passes.specialise import fix
from tilec.renaming import fresh, used_names

Pair = tuple[str, str]


def flatten(kernel: Kernel) -> Kernel:
    """The kernel with one axis for each such pair."""
    while (pair := next(_pairs(kernel), None)) is not None:
        kernel = _Flattener(kernel, pair).flattened()
    return kernel


def _pairs(kernel: Kernel) -> Iterator[Pair]:
    """The pairs of axes that are always summed over together, the inner one last."""
    sums = [op for op in kernel.body if isinstance(op, (Reduce, Contract))]
    stored = {x for op in kernel.body if isinstance(op, Store) for x in op.index}
    for op in sums:
        for pair in zip(op.over, op.over[1:], strict=False):
            apart = any(len(set(pair) & set(r.over)) == 1 for r in sums)
            if not apart and stored.isdisjoint(pair) and _is_streamed(kernel, op, pair):
                yield pair


def _is_streamed(kernel: Kernel, op: Reduce | Contract, pair: Pair) -> bool:
    """Whether a sum is of values that are sums for each position of a pair."""
    known = definitions(kernel.body)
    made = (known[x] for x in backward(names_in(operands(op)), known))
    return any(
        isinstance(r, (Reduce, Contract)) and set(pair) <= set(r.result.type.axes) for r in made
    )


class _Flattener:
    def __init__(self, kernel: Kernel, pair: Pair) -> None:
        taken = used_names(kernel)
        self.pair, self.axis = pair, fresh("_".join(pair), taken)
        outer, inner = (kernel.extents[a] for a in pair)
        both = Axis(self.axis, fix(("mul", outer, inner), {}))
        at = next(a.name for a in kernel.axes if a.name in pair)
        new = (
            both if a.name == at else a for a in kernel.axes if a.name not in pair or a.name == at
        )
        self.kernel = replace(kernel, axes=tuple(new))
        self.emit = FoldingBuilder(self.kernel, taken, {})
        length = self.emit.scalar(inner)
        places = (self.emit.fn(fn, self.axis, length) for fn in ("floordiv", "mod"))
        self.places: dict[str, Operand] = dict(zip(pair, places, strict=True))

    def flattened(self) -> Kernel:
        """The kernel over the new axis."""
        for op in self.kernel.body:
            if self.changes(op):
                self.emit.taken.discard(op.result.name)
                self.emit.again(self.over(op), self.places)
            else:
                self.emit.add(op)
        return replace(self.kernel, body=live(tuple(self.emit.ops)))

    def changes(self, op: Op) -> bool:
        """Whether an op knows of the two axes."""
        over = op.over if isinstance(op, (Reduce, Contract)) else ()
        axes = {a for v in op.results for a in v.type.axes}
        return not axes.union(over, operands(op)).isdisjoint(self.pair)

    def over(self, op: Op) -> Op:
        """A sum over the new axis."""
        if not isinstance(op, (Reduce, Contract)) or self.pair[0] not in op.over:
            return op
        return replace(op, over=(*(a for a in op.over if a not in self.pair), self.axis))
