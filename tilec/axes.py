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
from tilec.ir import Kernel, Op, Operand, Reduce, rebuild
from tilec.renaming import fresh, used_names
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
    certain: bool = True
    """False among too many or too few indices: which dimension is meant is then a guess."""


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
        uses = [u for s in body if isinstance(s, Let) for u in self._uses(s.value)]
        for use in sorted(uses, key=lambda u: not u.certain):
            self._add(use)

    def add_function(self, node: Def) -> None:
        """Adds the axes of a function that no statement calls."""
        for use in self.summaries[node.name.name]:
            self._add(use)

    def _uses(self, e: Expr) -> Iterator[_Use]:
        for x in walk(e):
            if isinstance(x, Index) and x.tensor.name in self.names.tensors:
                rank = len(self.names.tensors[x.tensor.name].dims)
                for k, index in enumerate(x.index[:rank]):
                    if isinstance(index, Name):
                        certain = len(x.index) == rank
                        yield _Use(index.name, x.tensor.name, k, index.span, certain)
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
        if known.extent != extent and use.certain:
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


def apart(kernel: Kernel) -> Kernel:
    """The kernel with no axis called like a tensor: a program may do that, but in the IR a name is one thing."""
    taken = used_names(kernel)
    new = {a.name: fresh(a.name, taken) for a in kernel.axes if a.name in kernel.tensors}
    if not new:
        return kernel

    def of(x: Operand) -> Operand:
        return new.get(x, x) if isinstance(x, str) else x

    def all_of(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(new.get(a, a) for a in names)

    def op(old: Op) -> Op:
        out = rebuild(
            old, of, value=lambda v: replace(v, type=replace(v.type, axes=all_of(v.type.axes)))
        )
        return replace(out, over=all_of(out.over)) if isinstance(out, Reduce) else out

    return replace(
        kernel,
        axes=tuple(replace(a, name=new.get(a.name, a.name)) for a in kernel.axes),
        outputs=tuple(replace(o, axes=all_of(o.axes)) for o in kernel.outputs),
        body=tuple(map(op, kernel.body)),
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
