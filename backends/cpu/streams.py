"""Contractions that read an operand once, row after row as it lies in memory: lanes are positions along a row.

Where a tile has fewer rows than a vector has lanes (decoding), an element that is read takes part in a few operations
only, and how memory is read decides. So the operand is not brought to scratch first: it is evaluated in registers, where
it is used, along the axis whose elements are consecutive. That axis is contracted, and sums are added up across lanes at
the end (`dots`), or it is kept, and products are added to a tile in the nearest cache (`sums`).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from tilec.backends.cpu.dots import Dots
from tilec.backends.cpu.expr import Evaluator
from tilec.backends.cpu.points import Point
from tilec.backends.cpu.streaming import Stream
from tilec.backends.cpu.sums import Sums
from tilec.dtypes import kind
from tilec.ir import Cast, Contract, Load, Map, Operand, operands


class Streams:
    """Finds and emits them. `few`: the axis of the tile's rows; None where there is one row."""

    def __init__(self, ev: Evaluator, few: str | None) -> None:
        self.ev, self.e, self.few = ev, ev.e, few
        self.found: dict[str, Stream] = {}

    # ---- which contractions

    def inline(self, op: Contract) -> list[Operand]:
        """The operands that a contraction evaluates where it uses them; none: it streams nothing."""
        s = self.find(op)
        if s is None:
            return []
        self.found[op.result.name] = s
        both = s.summed and s.rows in self.ev.axes(s.other)
        return [s.operand, *([s.other] if both else [])]

    def find(self, op: Contract) -> Stream | None:
        """How a contraction streams an operand; None where it does not."""
        known = kind(op.result.type.dtype) == "float" and op.result.name not in self.ev.absent
        if not known or len(op.over) != 1 or self.ev.late(op):
            return None
        pairs = sorted([(op.x, op.y), (op.y, op.x)], key=lambda p: not self.loads(p[0]))
        return next((s for x, y in pairs if (s := self.stream(op, x, y))), None)

    def stream(self, op: Contract, x: Operand, y: Operand) -> Stream | None:
        """A contraction as one that streams x."""
        ev, axes = self.ev, self.ev.axes(x)
        if not isinstance(x, str) or len(axes) < 2:
            return None
        loads = self.loads(x)
        lanes = loads[0].index[-1] if loads else axes[-1]
        if not isinstance(lanes, str) or lanes == self.few:
            return None
        if not isinstance(ev.window(lanes).count, int):
            return None
        summed = lanes in op.over
        others = [a for a in axes if a not in (lanes, self.few)]
        rows = [a for a in others if ev.window(a).extent != 1] if summed else [*op.over]
        fits = bool(rows) and rows[-1] in others and (lanes in ev.axes(y)) == summed
        if not fits or not summed and rows[-1] not in ev.axes(y):
            return None
        return Stream(x, y, lanes, rows[-1], summed)

    def loads(self, x: Operand) -> list[Load]:
        """The loads of rows that an operand is computed from on the way: the position along a row is an axis, and the last
        index."""
        ev, found, seen = self.ev, list[Load](), set[str]()
        todo = [x]
        while todo:
            x = todo.pop()
            op = ev.defs.get(x) if isinstance(x, str) else None
            if not isinstance(x, str) or x in seen or x in ev.held or op is None:
                continue
            seen.add(x)
            if isinstance(op, Load) and op.index:
                *others, last = op.index
                inner = {a for y in others for a in ev.axes(y)}
                if last in ev.kernel.extents and ev.axes(last) and last not in inner:
                    found.append(op)
            elif isinstance(op, (Map, Cast)):
                todo += operands(op)
        return found

    def consecutive(self, s: Stream) -> list[Load]:
        """The loads of a stream's operand whose rows lie along the lanes."""
        return [x for x in self.loads(s.operand) if x.index[-1] == s.lanes]

    # ---- code

    def emit(self, op: Contract) -> None:
        """The contraction, into the tile of its result."""
        e, ev, s = self.e, self.ev, self.found[op.result.name]
        loads = self.consecutive(s)
        if not loads:
            self.nest(op, s)
            return
        units = [e.compare("==", ev.memory.stride(x.tensor, len(x.index) - 1), 1) for x in loads]

        def fast() -> None:
            ev.consecutive = frozenset(x.result.name for x in loads)
            self.nest(op, s)
            ev.consecutive = frozenset()

        e.branch(functools.reduce(e.and_, units), fast, lambda: self.nest(op, s), name="stream")

    def nest(self, op: Contract, s: Stream) -> None:
        """The loops over axes that are neither rows in memory nor the tile's, and what is in them."""
        rest = [a for a in op.result.type.axes if a not in (s.lanes, s.rows, self.few)]
        form = (Dots if s.summed else Sums)(self.ev, self.few, op, s, self.consecutive(s))

        def around(axes: Sequence[str], p: Point) -> None:
            with self.ev.scope():
                form.hoist(p)
                if not axes:
                    form.all(p)
                    return
                axis, *inner = axes
                count = self.ev.window(axis).count
                self.e.loop(0, count, 1, [], lambda i, _: around(inner, p.on(axis, i)), name=axis)

        around(rest, Point({}))
