"""No pass: which reductions of a group share a loop, for `online`.

A reduction joins the loop of the ones it depends on where `factor` proves that this is possible; else it gets a loop of its
own, after them.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tilec.dataflow import definitions, forward, names_in
from tilec.ir import Body, Contract, Operand, Reduce, Type, operands
from tilec.passes.factor import Context, Known, NotFactored, Term, factor

Reduction = Reduce | Contract


@dataclass
class Loop:
    """A loop to be: its axes, its reductions with their terms (None: max, min, any, all)."""

    axes: tuple[str, ...]
    reductions: dict[str, list[Term] | None] = field(default_factory=dict[str, "list[Term] | None"])
    note: str | None = None


class Sharing:
    """The loops of a group's body, and which reductions share each.

    `whole`: the axes that a tile holds whole, so that no loop runs over them. `types`: those of the body's values. `known`:
    what else is known of these.
    """

    def __init__(
        self,
        body: Body,
        yields: tuple[Operand, ...],
        whole: AbstractSet[str],
        types: Mapping[str, Type],
        known: Known,
    ) -> None:
        self.body, self.yields, self.types, self.known = body, yields, types, known
        self.whole = set(whole)
        self.defs = definitions(body)
        self.loops: list[Loop] = []
        self.loop_of: dict[str, int] = {}
        self._assign()

    def _assign(self) -> None:
        while within := self._within(self._streams()):
            self.whole |= within
        streamed = frozenset[str]().union(*self._streams())
        for name, op in self.defs.items():
            if not isinstance(op, (Reduce, Contract)):
                continue
            if not self.streamed(name) or not streamed.issuperset(self.streamed(name)):
                continue
            if streamed & set(self.types[name].axes):
                continue  # it belongs to the body of another loop
            self._place(name, op)

    def _streams(self) -> set[frozenset[str]]:
        """The axes of each loop that the group must have."""
        return {
            frozenset(self.streamed(r)) for y in names_in(self.yields) for r in self._outermost(y)
        }

    def _within(self, streams: set[frozenset[str]]) -> set[str]:
        """The axes of loops over several that reductions inside them are over: those cannot have windows."""
        return {
            a
            for op in self.defs.values()
            if isinstance(op, (Reduce, Contract))
            for s in streams
            if s & set(op.result.type.axes)
            for a in s & set(op.over)
        }

    def reduction(self, name: str) -> Reduction:
        """The reduction that gives a value."""
        op = self.defs[name]
        assert isinstance(op, (Reduce, Contract))
        return op

    def streamed(self, name: str) -> tuple[str, ...]:
        """The axes that a reduction streams."""
        return tuple(a for a in self.reduction(name).over if a not in self.whole)

    def _outermost(self, x: str) -> list[str]:
        op = self.defs.get(x)
        if op is None:
            return []
        if isinstance(op, (Reduce, Contract)) and self.streamed(x):
            return [x]
        return [r for y in names_in(operands(op)) for r in self._outermost(y)]

    def _states(self, name: str) -> set[str]:
        """The loops' reductions that a value depends on."""
        found: set[str] = set()
        todo = list(names_in(operands(self.defs[name])))
        seen: set[str] = set()
        while todo:
            x = todo.pop()
            if x in seen or x not in self.defs:
                continue
            seen.add(x)
            if x in self.loop_of:
                found.add(x)
            todo.extend(names_in(operands(self.defs[x])))
        return found

    def _place(self, name: str, op: Reduction) -> None:
        states = self._states(name)
        first = max((self.loop_of[s] for s in states), default=-1)
        note = None
        for k in range(max(first, 0), len(self.loops)):
            loop = self.loops[k]
            if frozenset(loop.axes) != frozenset(self.streamed(name)):
                continue
            own = {s for s in states if self.loop_of[s] == k}
            try:
                loop.reductions[name] = self._terms(op, own)
            except NotFactored as e:
                note = f"{name} does not factor: {e}"
                continue
            self.loop_of[name] = k
            return
        loop = Loop(self.streamed(name), note=note)
        loop.reductions[name] = self._terms(op, set())
        self.loops.append(loop)
        self.loop_of[name] = len(self.loops) - 1

    def _terms(self, op: Reduction, states: set[str]) -> list[Term] | None:
        context = Context(
            self.defs,
            self.types,
            frozenset(op.over),
            forward(self.body, states) if states else set(),
            self.known,
        )
        if isinstance(op, Reduce) and op.fn != "sum":
            if op.args[0] in context.moving:
                raise NotFactored(f"it is a {op.fn} of values that change as the loop goes on")
            return None
        return factor(op, context)
