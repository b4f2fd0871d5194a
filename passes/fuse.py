"""fuse: groups of ops that become one kernel.

Requires: tensor IR after expand, without regions. Changes: all ops but scalar ones and stores are in `group`s;
a value that several groups need is made again in each, unless it is a *cut*: then one group yields it, and it
exists in HBM.

    s = contract(q, k, over=d); m = max(s, over=j); …; a = contract(p, v, over=j); store(O, …, value=o)
    ->
    O_1: f32[b, h, i, e] @hbm = group(axes=[b, h, i]) { s = …; m = …; a = …; o = div(a, l); yield(o) }
    store(O, …, value=O_1)

A group is made for each *root*: an output or a cut. Its grid is what its outermost reductions have in common,
less the axes that only a loaded operand of a contraction brings in (the columns of V): these stay whole in a
tile, so that the scores are made once. A reduction inside that lacks a grid axis would be made again for every
tile along it; it is a cut, unless it has a value for each pair of a row and a streamed position: that would be
as large as the scores. A reduction that itself needs several passes over its axis is a cut, too, and so is one over a part
of the axes of a reduction that it is in: `sum[j, e]((x - mean[j](x)) ** 2)`. What is computed from a cut alone, position
by position, is cut in its place: it is computed once then, not by each group that reads it. Roots of one
grid share a group where no path leaves it and comes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tilec.builder import Builder
from tilec.dataflow import backward, definitions, names_in
from tilec.ir import (
    Body,
    Cast,
    Contract,
    Group,
    Kernel,
    Load,
    Map,
    Op,
    Reduce,
    Store,
    Type,
    Value,
    Yield,
    operands,
    rebuild,
)
from tilec.passes.apart import Apart
from tilec.passes.inverses import inverted
from tilec.renaming import fresh, substitute

Reduction = Reduce | Contract


@dataclass(frozen=True, slots=True)
class _Root:
    """A value that must exist in HBM: its grid axes, the values of its group, and the cuts that it reads."""

    name: str
    grid: tuple[str, ...]
    inside: frozenset[str]
    cuts: frozenset[str]


def fuse(kernel: Kernel) -> Kernel:
    """Groups that keep everything but outputs and cuts on chip."""
    graph = _Graph(kernel)
    roots = graph.roots(
        [str(op.value) for op in kernel.body if isinstance(op, Store) and op.value in graph.defs]
    )
    return inverted(_emit(kernel, graph, _merge(roots)))


class _Graph:
    """The dataflow graph of the kernel's values."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.defs = definitions(kernel.body)
        self.types: dict[str, Type] = {n: op.results[0].type for n, op in self.defs.items()}
        self.order = {n: k for k, n in enumerate(self.defs)}
        self.scalars = {n for n, op in self.defs.items() if self._is_scalar(op)}
        self.readers: dict[str, list[Op]] = {n: [] for n in self.defs}
        for op in kernel.body:
            for x in names_in(operands(op)):
                if x in self.readers:
                    self.readers[x].append(op)

    def _is_scalar(self, op: Op) -> bool:
        if op.results[0].type.axes or not isinstance(op, (Map, Cast)):
            return False
        read = names_in(operands(op))
        return all(x not in self.defs or self._is_scalar(self.defs[x]) for x in read)

    def axes(self, x: str) -> frozenset[str]:
        """The axes of a value."""
        return frozenset(self.types[x].axes) if x in self.types else frozenset()

    def reads(self, x: str) -> tuple[str, ...]:
        """The values that the op of a value reads, scalars apart."""
        return tuple(
            y for y in names_in(operands(self.defs[x])) if y in self.defs and y not in self.scalars
        )

    def outermost(self, x: str, cuts: set[str]) -> list[str]:
        """The first reductions met on the way back from a value, through pointwise ops."""
        op = self.defs[x]
        if isinstance(op, (Reduce, Contract)):
            return [x]
        found = [r for y in self.reads(x) if y not in cuts for r in self.outermost(y, cuts)]
        return list(dict.fromkeys(found))

    def inside(self, x: str, cuts: Iterable[str]) -> set[str]:
        """The values that a root is made of, up to the cuts."""
        return backward([x], self.defs, stop=set(cuts) | self.scalars) - self.scalars

    def reduction(self, x: str) -> Reduction | None:
        """The op of a value, if it is a reduction."""
        op = self.defs[x]
        return op if isinstance(op, (Reduce, Contract)) else None

    def is_computed(self, x: object) -> bool:
        """Whether a reduction is on the way back from an operand."""
        return (
            isinstance(x, str) and x in self.defs and any(map(self.reduction, self.inside(x, ())))
        )

    def features(self, x: str) -> frozenset[str]:
        """Axes of a contraction that only its loaded side has, where the other side is computed."""
        op = self.defs[x]
        if not isinstance(op, Contract):
            return frozenset()
        loaded = self._loaded_side(op)
        other = op.x if loaded == self.axes(str(op.y)) else op.y
        return loaded - self.axes(str(other))

    def _loaded_side(self, op: Contract) -> frozenset[str]:
        """The axes of the operand of a contraction that is not computed, where the other one is; else none."""
        if not (isinstance(op.x, str) and isinstance(op.y, str)):
            return frozenset()
        if self.is_computed(op.x):
            return self.axes(op.y)
        return self.axes(op.x) if self.is_computed(op.y) else frozenset()

    def needs_passes(self, x: str) -> bool:
        """Whether a reduction depends on another one over the same axis of values that are reductions themselves."""
        op = self.reduction(x)
        assert op is not None
        over = set(op.over)
        earlier = [r for r in self.inside(x, ()) if r != x and self.reduction(r) is not None]
        same = [r for r in earlier if over & set(self._over(r))]
        return any(over & self.axes(r) for r in earlier) and any(
            any(
                over & self.axes(q)
                for q in self.inside(r, ())
                if q != r and self.reduction(q) is not None
            )
            for r in same
        )

    # ---- roots

    def roots(self, outputs: list[str]) -> list[_Root]:
        """A root for each output and each cut, in order of dependence."""
        done: dict[str, _Root] = {}
        todo = list(dict.fromkeys(o for o in outputs if o not in self.scalars))
        while todo:
            name = todo.pop()
            if name in done:
                continue
            done[name] = root = self._root(name)
            todo.extend(root.cuts)
        if len(done) == 1:
            return list(done.values())
        import networkx as nx  # a tenth of a second, and most programs have one root

        graph: nx.DiGraph[str] = nx.DiGraph()
        graph.add_nodes_from(sorted(done, key=self.order.__getitem__))
        graph.add_edges_from((c, r.name) for r in done.values() for c in r.cuts)
        return [
            done[n] for n in nx.lexicographical_topological_sort(graph, key=self.order.__getitem__)
        ]

    def _root(self, name: str) -> _Root:
        cuts: set[str] = set()
        grid = self._grid(name, cuts)
        while True:
            inside = self.inside(name, cuts)
            outer = self.outermost(name, cuts)
            streams = {frozenset(self._over(r)) for r in outer}
            rows = grid - self._beside(outer, inside, frozenset[str]().union(*streams))
            new = {r for r in inside if r != name and self._is_cut(r, grid, rows, streams, inside)}
            new |= {r for r in inside - cuts - {name} if self._meets(r, grid, cuts)}
            later = {self._latest(c, name) for c in cuts}
            if not new and cuts == later:
                return _Root(
                    name,
                    self._ordered(name, grid),
                    frozenset(inside - cuts),
                    self._reached(inside, cuts),
                )
            cuts = later if not new else cuts | new

    def _latest(self, cut: str, root: str) -> str:
        """The last value that is computed from a cut alone, position by position; the root itself stays what it is."""
        while True:
            match self.readers[cut]:
                case [Map() | Cast() as op] if self._follows(op, cut) and op.result.name != root:
                    cut = op.result.name
                case _:
                    return cut

    def _follows(self, op: Map | Cast, x: str) -> bool:
        """Whether an op has a result for each position of a value, which it alone is computed from."""
        others = set(names_in(operands(op))) - {x}
        return op.result.type.axes == self.types[x].axes and not others & (
            set(self.defs) - self.scalars
        )

    def _over(self, x: str) -> tuple[str, ...]:
        op = self.reduction(x)
        return op.over if op is not None else ()

    def _grid(self, name: str, cuts: set[str]) -> frozenset[str]:
        """The axes of the root's grid; reductions that do not span it become cuts."""
        outer = self.outermost(name, cuts)
        if not outer:
            return self.axes(name)
        features = frozenset[str]().union(*(self.features(r) for r in outer))
        grid = self.axes(outer[0]).intersection(*(self.axes(r) - self.features(r) for r in outer))
        if self.axes(name) - grid <= features:
            return grid
        widest = max(len(self.axes(r)) for r in outer)
        cuts.update(
            r
            for r in outer
            if r != name and (len(self.axes(r)) < widest or not self.axes(name) <= self.axes(r))
        )
        return self._grid(name, cuts) if name not in outer else self.axes(name)

    def _beside(
        self, outer: list[str], inside: set[str], streamed: frozenset[str]
    ) -> frozenset[str]:
        """The axes of what is streamed past a tile: of the loaded operand of a contraction, else of the largest load."""
        for r in outer:
            op = self.defs[r]
            if isinstance(op, Contract) and (found := self._loaded_side(op)):
                return found
        loads = [x for x in inside if isinstance(self.defs[x], Load) and streamed & self.axes(x)]
        return max((self.axes(x) for x in loads), key=len, default=frozenset[str]())

    def _is_cut(
        self,
        r: str,
        grid: frozenset[str],
        rows: frozenset[str],
        streams: set[frozenset[str]],
        inside: set[str],
    ) -> bool:
        op = self.reduction(r)
        if op is None:
            return False
        if any(s & set(op.over) and s & self.axes(r) for s in streams) and self._is_long(
            op.over, inside
        ):
            return True
        if not grid <= self.axes(r):
            # a value for each pair of a row and a streamed position stays on chip, all the same
            return not (rows & self.axes(r) and any(s & self.axes(r) for s in streams))
        return frozenset(op.over) not in streams and self.needs_passes(r)

    def _meets(self, r: str, grid: frozenset[str], cuts: set[str]) -> bool:
        """Whether a reduction is over an axis of the grid, and so of cuts in it: those exist along that axis alone."""
        clash = grid & set(self._over(r)) if self.reduction(r) is not None else frozenset[str]()
        return bool(clash) and any(
            clash & self.axes(c) for c in self._reached(self.inside(r, cuts), cuts)
        )

    def _is_long(self, over: Iterable[str], inside: set[str]) -> bool:
        """Whether other reductions have a value for each position along some axes: these are not held whole in a tile."""
        return any(set(over) & self.axes(q) for q in inside if self.reduction(q) is not None)

    def _reached(self, inside: set[str], cuts: set[str]) -> frozenset[str]:
        return frozenset(y for x in inside - cuts for y in self.reads(x) if y in cuts)

    def _ordered(self, name: str, grid: frozenset[str]) -> tuple[str, ...]:
        """The grid in the order in which an output or the value has its axes."""
        stores = [op for op in self.kernel.body if isinstance(op, Store) and op.value == name]
        first = [str(x) for op in stores for x in op.index]
        return tuple(
            a for a in dict.fromkeys([*first, *self.types[name].axes, *sorted(grid)]) if a in grid
        )


# ---- groups


def _merge(roots: list[_Root]) -> list[list[_Root]]:
    """Roots of one grid together, where all that the later one reads from elsewhere comes from earlier groups."""
    groups: list[list[_Root]] = []
    place: dict[str, int] = {}
    for root in roots:
        after = max((place[c] for c in root.cuts), default=-1)
        found = next(
            (k for k, g in enumerate(groups) if k >= after and set(g[0].grid) == set(root.grid)),
            None,
        )
        if found is None:
            found = len(groups)
            groups.append([])
        groups[found].append(root)
        place[root.name] = found
    return groups


def _emit(kernel: Kernel, graph: _Graph, groups: list[list[_Root]]) -> Kernel:
    b = Builder(kernel)
    apart = Apart(kernel, b.taken)
    ops: list[Op] = [graph.defs[n] for n in sorted(graph.scalars, key=graph.order.__getitem__)]
    outside: dict[str, str] = {}
    used: set[str] = set()
    for group in groups:
        results = [r.name for r in group]
        inside = set[str]().union(*(r.inside for r in group)) | set(results)
        body = tuple(graph.defs[n] for n in sorted(inside, key=graph.order.__getitem__))
        again = inside & used  # values that an earlier group makes, too, get new names
        body = substitute(body, {n: outside[n] for n in outside if n not in inside})
        names = {n: fresh(n, b.taken) for n in sorted(again, key=graph.order.__getitem__)}
        body = apart.body(_renamed(body, names), group[0].grid)
        used |= inside
        values = tuple(_in_hbm(graph.types[n], fresh(n, b.taken)) for n in results)
        end = Yield((), tuple(names.get(n, n) for n in results))
        ops.append(Group(values, axes=group[0].grid, body=(*body, end)))
        outside.update((n, v.name) for n, v in zip(results, values, strict=True))
    ops.extend(substitute(tuple(op for op in kernel.body if isinstance(op, Store)), outside))
    return replace(kernel, axes=apart.axes(), body=tuple(ops))


def _in_hbm(t: Type, name: str) -> Value:
    return Value(name, Type(t.dtype, t.axes, t.tile, "hbm"))


def _renamed(body: Body, names: dict[str, str]) -> Body:
    def value(v: Value) -> Value:
        return replace(v, name=names.get(v.name, v.name))

    return tuple(
        rebuild(op, lambda x: names.get(x, x) if isinstance(x, str) else x, value=value)
        for op in body
    )
