"""No pass: an axis of its own for a reduction over an axis of the grid that it is in; for `fuse`.

    group(axes=[i, j]) { s = contract(a, b, over=j); … sub(x, s) …}      x: f32[i, j]
    ->
    group(axes=[i, j]) { s = contract(a_1, b_1, over=j_1); … }           a_1, b_1: a and b along j_1

In a tile, `j` is a window; a sum over it would be one over this window.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilec.dataflow import definitions
from tilec.ir import Axis, Body, Contract, Kernel, Op, Operand, Reduce, Value, rebuild
from tilec.renaming import fresh


class Apart:
    """The axes that are made, for all groups of a kernel."""

    def __init__(self, kernel: Kernel, taken: set[str]) -> None:
        self.kernel, self.taken = kernel, taken
        self.own: dict[str, str] = {}

    def axes(self) -> tuple[Axis, ...]:
        """The axes of the kernel, each new one behind the one that it is made of."""
        named = self.kernel.axes
        return tuple(
            Axis(name, a.extent) for a in named for name in (a.name, self.own.get(a.name)) if name
        )

    def body(self, body: Body, grid: Iterable[str]) -> Body:
        """The body of a group in which no reduction is over an axis of its grid."""
        ops: list[Op] = []
        defs = definitions(body)
        copies: dict[tuple[str, frozenset[str]], str] = {}

        def along(x: Operand, clash: frozenset[str]) -> Operand:
            """An operand along the new axes."""
            if not isinstance(x, str):
                return x
            if x in clash:
                return self._own(x)
            if x not in defs or clash.isdisjoint(defs[x].result.type.axes):
                return x
            if (x, clash) not in copies:
                op = rebuild(defs[x], lambda y: along(y, clash), value=lambda v: moved(v, clash))
                ops.append(op)
                defs[op.result.name] = op  # of which there may be a copy along another axis
                copies[x, clash] = op.result.name
            return copies[x, clash]

        def moved(v: Value, clash: frozenset[str]) -> Value:
            axes = tuple(self._own(a) if a in clash else a for a in v.type.axes)
            return Value(fresh(v.name, self.taken), replace(v.type, axes=axes))

        for op in body:
            clash = frozenset(op.over) & set(grid) if isinstance(op, (Reduce, Contract)) else None
            if clash and isinstance(op, (Reduce, Contract)):
                over = tuple(self._own(a) if a in clash else a for a in op.over)
                op = replace(rebuild(op, lambda x, c=clash: along(x, c)), over=over)
                defs[op.result.name] = op
            ops.append(op)
        return tuple(ops)

    def _own(self, axis: str) -> str:
        if axis not in self.own:
            self.own[axis] = fresh(axis, self.taken)
        return self.own[axis]
