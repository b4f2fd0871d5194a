"""What each axis ranges over: the dimension that its name indexes, bare, anywhere in the kernel.

Functions count as if written out: `def pair(x) = K[b, x]`, called as `pair(j)`, makes `j` range over K's second dimension.
Each function is read once, so that this takes no longer than reading the kernel does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tilec import scalar
from tilec.errors import Span
from tilec.scope import Names, Range, Report, Stop
from tilec.syntax import Call, Def, Expr, Index, KernelDef, Let, Name, Statement, walk

AXES = 100
"""How many axes a kernel may have."""


@dataclass(frozen=True, slots=True)
class _Use:
    """A name as the whole index of a tensor's dimension."""

    name: str
    tensor: str
    position: int
    span: Span


class AxisFinder:
    """Finds the axes of a kernel, whose `axis` lines are in `names.axes` already."""

    def __init__(self, names: Names, report: Report) -> None:
        self.names, self.report = names, report
        self.fixed = set(names.axes)
        self.summaries: dict[str, list[_Use]] = {}
        for name, node in names.local.items():  # in call order
            unique = {(u.name, u.tensor, u.position): u for u in self._uses(node.body)}
            self.summaries[name] = list(unique.values())

    def find(self, body: tuple[Statement, ...]) -> None:
        """Adds the range of every axis to `names.axes`; an axis over two dimensions is reported."""
        for statement in body:
            if isinstance(statement, Let):
                for use in self._uses(statement.value):
                    self._add(use)

    def add_function(self, node: Def) -> None:
        """Adds the axes of a function that no statement calls."""
        for use in self.summaries[node.name.name]:
            self._add(use)

    def _uses(self, e: Expr) -> Iterator[_Use]:
        for x in walk(e):
            if isinstance(x, Index) and x.tensor.name in self.names.tensors:
                for k, index in enumerate(x.index[: len(self.names.tensors[x.tensor.name].dims)]):
                    if isinstance(index, Name):
                        yield _Use(index.name, x.tensor.name, k, index.span)
            elif isinstance(x, Call) and x.fn.name in self.names.local:
                yield from self._called(self.names.local[x.fn.name], x)

    def _called(self, node: Def, call: Call) -> Iterator[_Use]:
        params = {p.name: arg for p, arg in zip(node.params, call.args, strict=False)}
        for use in self.summaries.get(node.name.name, ()):
            arg = params.get(use.name)
            if isinstance(arg, Name):
                yield replace(use, name=arg.name, span=arg.span)
            elif arg is None:
                yield use

    def _add(self, use: _Use) -> None:
        name = use.name
        if name in self.fixed or not name[0].islower() or self.names.no_axis(name):
            return
        extent = self.names.tensors[use.tensor].dims[use.position]
        if name not in self.names.axes and len(self.names.axes) >= AXES:
            self.report(use.span, f"a kernel has at most {AXES} axes")
            raise Stop
        known = self.names.axes.setdefault(name, Range(extent, use.tensor, use.position))
        if known.extent != extent:
            self._conflict(use, known, extent)

    def _conflict(self, use: _Use, known: Range, extent: scalar.Scalar) -> None:
        text = scalar.show(extent)
        where = f" in {known.tensor}" if known.tensor != use.tensor else ""
        dims = [scalar.show(d) for d in self.names.tensors[use.tensor].dims]
        dims[use.position] = known.text
        self.report(
            use.span,
            f"axis '{use.name}' ranges over {known.text}{where} and over {text} in {use.tensor}",
            f"declare {use.tensor} as {use.tensor}[{', '.join(dims)}], or use another index for {text}",
        )


def in_order(axes: Mapping[str, Range], node: KernelDef) -> dict[str, Range]:
    """The axes in an order that agrees with how outputs and tensors are stored, where these agree with each other.

    Values have their axes in this order: so `K[b, h, j, d]` is loaded as it lies in memory.
    """
    before: dict[str, set[str]] = {a: set() for a in axes}
    for outer, inner in _stored(axes, node):
        if inner not in _all_before(outer, before):
            before[inner].add(outer)
    out: dict[str, Range] = {}
    while len(out) < len(axes):
        free = next(a for a in axes if a not in out and before[a] <= out.keys())
        out[free] = axes[free]
    return out


def _all_before(axis: str, before: Mapping[str, set[str]]) -> set[str]:
    """An axis and all that come before it."""
    out, todo = {axis}, [axis]
    while todo:
        new = before[todo.pop()] - out
        out |= new
        todo.extend(new)
    return out


def _stored(axes: Mapping[str, Range], node: KernelDef) -> Iterator[tuple[str, str]]:
    """Pairs of axes, the outer one first: of the outputs, then of every indexed tensor."""
    outputs = [o.dims or () for o in node.outputs]
    bodies = [
        s.value if isinstance(s, Let) else s.body for s in node.body if isinstance(s, Let | Def)
    ]
    tensors = [x.index for body in bodies for x in walk(body) if isinstance(x, Index)]
    for index in (*outputs, *tensors):
        yield from _pairs([x.name for x in index if isinstance(x, Name) and x.name in axes])


def _pairs(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    for outer, inner in itertools.pairwise(names):
        if outer != inner:
            yield outer, inner
