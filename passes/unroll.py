"""unroll: what is asked along a short axis, written out.

Requires: no grids (best after specialise). Changes: `any`, `all`, `min` and `max` over an axis of a few positions, of values
that are no sums, become pointwise.

    r: i32[h, i, t] = load(R, h, i, t)              r: i32[h, i] = load(R, h, i, 0)
    c: bool[h, i, j, t] = eq(r, j)             ->   r_1: i32[h, i] = load(R, h, i, 1)
    s: bool[h, i, j] = any(c, over=t)               s: bool[h, i, j] = or(eq(r, j), eq(r_1, j))

So a tile has no axis but its rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilec.builder import Builder
from tilec.dataflow import backward
from tilec.ir import (
    Body,
    Cast,
    For,
    Group,
    Kernel,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    defined,
    rebuild,
    regions,
    walk,
)
from tilec.passes.simplify import simplify

LONG = 8
"""The positions of an axis that is still short."""
COMBINE = {"any": "or", "all": "and", "min": "min", "max": "max"}


def unroll(kernel: Kernel) -> Kernel:
    """The kernel without reductions over short axes that can do without."""
    windows = {a for op in walk(kernel.body) if isinstance(op, Group) for a in op.axes}
    windows |= {op.axis for op in walk(kernel.body) if isinstance(op, For)}
    for axis in kernel.axes:
        if axis.name not in windows and isinstance(n := axis.extent, int) and 1 <= n <= LONG:
            kernel = _along(kernel, axis.name, n)
    return kernel


def _along(kernel: Kernel, axis: str, length: int) -> Kernel:
    """The kernel without reductions along one axis."""
    known = {v.name: op for op in walk(kernel.body) for v in op.results}
    parts = {n: p for n, op in known.items() if (p := _parts(op, axis, known))}
    if not parts:
        return kernel
    made = _Unroller(
        kernel, axis, length, frozenset(parts), frozenset[str]().union(*parts.values())
    )
    return simplify(replace(kernel, body=made.region(kernel.body)))


def _parts(op: Op, axis: str, known: Mapping[str, Op]) -> frozenset[str]:
    """The values along an axis that a reduction over it is made of; none where it cannot do without the axis."""
    if (
        not isinstance(op, Reduce)
        or op.over != (axis,)
        or op.fn not in COMBINE
        or len(op.args) != 1
    ):
        return frozenset()
    (x,) = op.args
    names = backward([x], known) if isinstance(x, str) else ()
    made = frozenset(n for n in names if any(axis in v.type.axes for v in known[n].results))
    return made if all(isinstance(known[n], (Load, Map, Cast)) for n in made) else frozenset()


class _Unroller(Builder):
    """Writes the bodies anew. `reductions` go; of `parts` there are as many copies as the axis has positions."""

    def __init__(
        self,
        kernel: Kernel,
        axis: str,
        length: int,
        reductions: frozenset[str],
        parts: frozenset[str],
    ) -> None:
        super().__init__(kernel)
        self.axis, self.length, self.reductions, self.parts = axis, length, reductions, parts
        self.copies: dict[str, list[Operand]] = {axis: [*range(length)]}
        self.new: dict[str, Operand] = {}

    def region(self, body: Body) -> Body:
        """A region's ops."""
        held, self.ops = self.ops, []
        for op in body:
            self.types |= {v.name: v.type for v in defined(op)}
            if isinstance(op, Reduce) and op.result.name in self.reductions:
                self.new[op.result.name] = self.combined(op)
            else:
                self.ops.append(rebuild(op, self.of, self.region))
            if not regions(op) and op.results and op.result.name in self.parts:
                self.copies[op.result.name] = [*self.copied(op)]
        out, self.ops = tuple(self.ops), held
        return out

    def of(self, x: Operand) -> Operand:
        """An operand of what stays."""
        return self.new.get(x, x) if isinstance(x, str) else x

    def at(self, x: Operand, n: int) -> Operand:
        """An operand at a position of the axis."""
        return self.copies[x][n] if isinstance(x, str) and x in self.copies else self.of(x)

    def copied(self, op: Op) -> Iterator[Operand]:
        """An op at each position."""
        for n in range(self.length):
            yield self.again(op, {x: self.at(x, n) for x in (*self.new, *self.copies)})

    def combined(self, op: Reduce) -> Operand:
        """What a reduction is."""
        (x,) = op.args
        out, *rest = (self.at(x, n) for n in range(self.length))
        for y in rest:
            out = self.map(COMBINE[op.fn], out, y)
        return out
