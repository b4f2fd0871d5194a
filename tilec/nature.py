"""What a value is made of: the windows it depends on, one name for all that is computed alike, how to compute it again."""

from __future__ import annotations

from collections.abc import Callable, Container, Hashable, Mapping
from dataclasses import dataclass

from tilec.folding import FoldingBuilder
from tilec.ir import Cast, Load, Map, Op, Operand, Reduce, Type, operands

STRIDE = 16
"""A value that moves in steps of at least so many positions is known from samples so far apart."""


@dataclass(frozen=True, slots=True)
class Nature:
    """What a value depends on: the axes with windows; whether it looks data up along them (loads, inner reductions);
    whether it jumps along them (`%` and bit operations); whether it can be computed again elsewhere."""

    axes: frozenset[str] = frozenset()
    looks: bool = False
    jumps: bool = False
    again: bool = True


class Values:
    """The values in sight of a place where new ops will stand.

    `definitions` are the ops of the values, `available` the names that may be used there; everything else is computed
    again. `windows` are the axes with a window.
    """

    def __init__(
        self,
        emit: FoldingBuilder,
        definitions: Mapping[str, Op],
        available: Container[str],
        windows: Container[str],
    ) -> None:
        self.emit, self.definitions, self.available, self.windows = (
            emit,
            definitions,
            available,
            windows,
        )
        self._natures: dict[str, Nature] = {}
        self._numbers: dict[Hashable, str] = {}
        self._canonical: dict[str, str] = {}
        self._copies: dict[str, Operand] = {}

    def nature(self, x: Operand) -> Nature:
        """What an operand depends on."""
        if not isinstance(x, str):
            return Nature()
        if x not in self._natures:
            self._natures[x] = self._nature(x)
        return self._natures[x]

    def _nature(self, x: str) -> Nature:
        op = self.definitions.get(x)
        if op is None or not isinstance(op, (Load, Map, Cast, Reduce)):
            axes = frozenset(a for a in self.type_of(x).axes if a in self.windows)
            is_value = x in self.emit.types
            return Nature(
                axes, is_value, is_value, not is_value or x in self.available or x in self.emit.own
            )
        parts = [self.nature(y) for y in operands(op)]
        axes = frozenset(a for p in parts for a in p.axes)
        again = all(p.again for p in parts)
        if isinstance(op, Reduce) and any(a in self.windows for a in op.over):
            return Nature(axes, True, True, x in self.available)
        looks = any(p.looks for p in parts) or (bool(axes) and isinstance(op, (Load, Reduce)))
        jumps = any(p.jumps for p in parts) or (
            bool(axes) and isinstance(op, Map) and op.fn in ("mod", "bitand", "bitor", "bitxor")
        )
        return Nature(axes, looks, jumps, again or x in self.available)

    def type_of(self, x: Operand) -> Type:
        """The type of an operand."""
        return self.emit.type_of(x)

    def canonical(self, x: str) -> str:
        """One name for all values that are computed alike."""
        if x not in self._canonical:
            op = self.definitions.get(x)
            key: Hashable = x
            if isinstance(op, (Load, Map, Cast)):
                parts = tuple(
                    self.canonical(y) if isinstance(y, str) else (type(y).__name__, y)
                    for y in operands(op)
                )
                what = (
                    op.tensor if isinstance(op, Load) else op.fn if isinstance(op, Map) else op.to
                )
                key = (op.word, what, parts)
            self._canonical[x] = self._numbers.setdefault(key, x)
        return self._canonical[x]

    def copy(self, x: Operand) -> Operand:
        """An operand, computed again where its name is not available."""
        if not isinstance(x, str) or x in self.available or x not in self.definitions:
            return x
        if x not in self._copies:
            op = self.definitions[x]
            mapping = {y: self.copy(y) for y in operands(op) if isinstance(y, str)}
            args = tuple(mapping[y] if isinstance(y, str) else y for y in operands(op))
            self._copies[x] = (
                self.emit.same(op.fn, *args)
                if isinstance(op, Map)
                else self.emit.again(op, mapping)
            )
        return self._copies[x]


def computed(
    emit: FoldingBuilder,
    x: Operand,
    definitions: Mapping[str, Op],
    kept: Callable[[str], bool],
    positions: Mapping[str, Operand],
) -> Operand:
    """A value computed again at other positions of axes; names that are `kept` stay."""
    if not isinstance(x, str):
        return x
    if x in positions:
        return positions[x]
    if x not in definitions or kept(x):
        return x
    op = definitions[x]

    def make() -> Operand:
        names = [y for y in operands(op) if isinstance(y, str)]
        mapping = {y: computed(emit, y, definitions, kept, positions) for y in names}
        if isinstance(op, Map):
            return emit.same(op.fn, *(mapping[y] if isinstance(y, str) else y for y in op.args))
        return emit.again(op, mapping)

    return emit.once(("computed", x, tuple(positions.items())), make)
