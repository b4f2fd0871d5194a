"""What each axis ranges over: the dimension that its name indexes, bare, anywhere in the kernel.

Functions count as if written out: `def pair(x) = K[b, x]`, called as `pair(j)`, makes `j` range over K's second dimension.
Each function is read once, so that this takes no longer than reading the kernel does.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilec import scalar
from tilec.errors import Span
from tilec.ir import Kernel, Op, Operand, Reduce, Tensor, rebuild
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
    element: Index | None = field(default=None, compare=False)
    """The element, where it is written out here, not in a function."""


class AxisFinder:
    """Finds the axes of a kernel, whose `axis` lines are in `names.axes` already."""

    def __init__(self, names: Names, report: Report) -> None:
        self.names, self.report = names, report
        self.fixed = set(names.axes)
        self.reordered: set[Span] = set()
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
                        yield _Use(index.name, x.tensor.name, k, index.span, certain, x)
            elif isinstance(x, Call) and x.fn.name in self.names.local:
                yield from self._called(self.names.local[x.fn.name], x)

    def _called(self, node: Def, call: Call) -> Iterator[_Use]:
        params = {p.name: arg for p, arg in zip(node.params, call.args, strict=False)}
        for use in self.summaries.get(node.name.name, ()):
            arg = params.get(use.name)
            if isinstance(arg, Name):
                yield replace(use, name=arg.name, span=arg.span, element=None)
            elif arg is None:
                yield replace(use, element=None)

    def _add(self, use: _Use) -> None:
        name = use.name
        if name in self.fixed or not name[0].islower() or self.names.no_axis(name):
            return
        if use.element is not None and use.element.span in self.reordered:
            return
        extent = self.names.tensors[use.tensor].dims[use.position]
        if name not in self.names.axes and len(self.names.axes) >= AXES:
            self.report(use.span, f"a kernel has at most {AXES} axes")
            raise Stop
        known = self.names.axes.setdefault(name, Range(extent, use.tensor, use.position))
        if known.extent != extent and use.certain:
            self._conflict(use, known, extent)

    def _conflict(self, use: _Use, known: Range, extent: scalar.Scalar) -> None:
        tensor = self.names.tensors[use.tensor]
        where = f" in {known.tensor}" if known.tensor != tensor.name else ""
        text = scalar.show(extent)
        self.report(
            use.span,
            f"axis '{use.name}' ranges over {known.text}{where} and over {text} in {tensor.name}",
            self._remedy(use, known, tensor),
        )

    def _remedy(self, use: _Use, known: Range, tensor: Tensor) -> str:
        """What to write where an axis meets a second dimension. Indices in another order are taken in the right one."""
        dims = [scalar.show(d) for d in tensor.dims]
        order = _in_another_order(use.element, tensor, self.names.axes) if use.element else None
        if use.element and order:
            self.reordered.add(use.element.span)
            for k, (axis, d) in enumerate(zip(order, tensor.dims, strict=True)):
                self.names.axes[axis] = Range(d, tensor.name, k)
            declared = f"{tensor.name}[{', '.join(dims)}]"
            return f"it is declared {declared}: write {tensor.name}[{', '.join(order)}]"
        text, dims[use.position] = dims[use.position], known.text
        declared = f"{tensor.name}[{', '.join(dims)}]"
        return f"declare {tensor.name} as {declared}, or use another index for {text}"


def _in_another_order(
    element: Index, tensor: Tensor, axes: Mapping[str, Range]
) -> list[str] | None:
    """The indices of an element as its dimensions come, where each is an axis that fits one of them and no other does.

    What an axis ranges over, other tensors say; a single one that they leave open gets the dimension that is left.
    """
    names = dict.fromkeys(x.name for x in element.index if isinstance(x, Name))
    if not len(names) == len(set(tensor.dims)) == len(tensor.dims):
        return None
    fits = {axes[a].extent: a for a in names if a in axes and axes[a].tensor != tensor.name}
    left = [a for a in names if a not in fits.values()]
    free = [d for d in tensor.dims if d not in fits]
    if len(left) != len(free) or len(free) > 1:
        return None
    fits |= dict(zip(free, left, strict=True))
    return [fits[d] for d in tensor.dims]


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
