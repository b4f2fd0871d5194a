"""The value of an operand at a point of a loop nest, as LLVM values.

A point fixes the local position on each axis of the nest; along one axis, the *vector* axis, it stands for a few
vectors of consecutive positions. Positions past the end of a window are those of its last one, so that every lane computes
something that is right, unless it comes from a tile in scratch that was written element by element: there such lanes hold
what earlier work left, and may be NaN. A value that does not vary along the vector axis is a scalar.

Exact code carries with a value the mark of the absent zeros (`marks`); in scratch memory an absent zero is a NaN with a
payload that arithmetic does not make.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from tilec.backends.cpu import storage
from tilec.backends.cpu.context import Key
from tilec.backends.cpu.facts import Facts
from tilec.backends.cpu.functions import ORDERS, Rule, apply, kind_for
from tilec.backends.cpu.math import exp2_weight, exp_weight
from tilec.backends.cpu.memo import Memo
from tilec.backends.cpu.memory import Index, Memory, scatter_back
from tilec.backends.cpu.plan import CHEAP
from tilec.backends.cpu.points import Point, Val, Window
from tilec.backends.cpu.tiles import Tile
from tilec.backends.cpu.vector import BYTES, Emit, Kind, constant, is_value, lanes_of
from tilec.backends.windows import Windows
from tilec.dtypes import DType, kind
from tilec.functions import DECAYING
from tilec.ir import Absent, Cast, Contract, Edge, Load, Map, Op, Operand, Store

ABSENT_BITS: dict[str, tuple[Kind, int]] = {
    "f32": ("i32", 0x7FA5C3A5),
    "f64": ("i64", 0x7FF4A5C3A5C3A5C3),
}
"""How an absent zero is kept in scratch: as the bits of a signalling NaN."""


class Evaluator(Windows[Window]):
    """Evaluates operands. `held` are values that exist already: scalars (Val) and tiles in scratch.

    `relaxed`: values that are computed by rules of their own; `degree`: of the polynomial for weights among them;
    `small`: whether all sizes are small, and NaN among the results is looked for; `lossy`: values of which a NaN may not
    reach the results.
    """

    def __init__(
        self,
        e: Emit,
        facts: Facts,
        exact: bool,
        relaxed: Iterable[str] = (),
        degree: int = 5,
        small: bool = False,
        lossy: Iterable[str] = (),
    ) -> None:
        super().__init__(kernel := facts.kernel)
        self.e, self.facts = e, facts
        self.absent = facts.absent if exact else set[str]()
        self.relaxed = frozenset(relaxed)
        self.degree, self.small, self.lossy = degree, small, frozenset(lossy)
        self.float: Kind = "f64" if kernel.compute == "f64" else "f32"
        self.defs: dict[str, Op] = facts.defs
        self.held: dict[str, Val | Tile] = {}
        self.slots: dict[Key, Any] = {}
        self.memory = Memory(e, kernel, self.float, self.slots)
        self.computing: frozenset[str] = frozenset()
        self.consecutive: frozenset[str] = frozenset()
        """Loads whose elements are known to be consecutive along the vector axis."""
        self.memo = Memo()
        self.scope = self.memo.scope

    # ---- what a name is

    def whole(self, axis: str) -> Window:
        """An axis that no loop moves a window of."""
        extent = self.kernel.extents[axis]
        if isinstance(extent, int):
            return Window(0, extent, extent)
        count = self.slots["extent", axis]
        return Window(0, count, 0)

    def kind(self, x: str) -> Kind:
        """The kind in which a value is computed: integers of tiles in 32 bits where they fit."""
        if self.small and self.axes(x) and self.facts.narrow.fits(x):
            return "i32"
        return kind_for(self.facts.dtype(x), self.float)

    def free(self, x: Operand) -> bool:
        """Whether an operand is made of positions and scalars alone, by arithmetic that costs nothing."""
        if not isinstance(x, str) or x not in self.kernel.values:
            return True
        op = self.defs[x]
        if not self.kernel.values[x].type.axes:
            return not isinstance(self.held.get(x), Tile)
        if not isinstance(op, Map) or kind(op.result.type.dtype) == "float":
            return False
        return op.fn in CHEAP and all(self.free(y) for y in op.args)

    # ---- values

    def value(self, x: Operand, p: Point) -> Val:
        """The value of an operand at a point."""
        if not isinstance(x, str):
            return self.literal(x)
        key = self.key(x, p)
        found = self.memo.find(key)
        return self.memo.keep(key, self.fresh(x, p), p) if found is None else found

    def define(self, x: str, p: Point, value: Val) -> None:
        """Sets the value of a name at a point."""
        self.memo.keep(self.key(x, p), value, p)

    def key(self, x: Operand, p: Point) -> tuple[Any, ...]:
        """What tells the values of an operand apart: the positions along its axes."""
        return (x, p.parts, *(_identity(p.at.get(a)) for a in self.axes(x)))

    def literal(self, x: int | float | bool | Absent) -> Val:
        """A literal, typed by its Python type."""
        if isinstance(x, Absent):
            return Val((constant(self.float, 0.0),), (constant("i1", 1),))
        if isinstance(x, bool):
            return Val((constant("i1", int(x)),))
        return Val((constant(self.float if isinstance(x, float) else "i64", x),))

    def fresh(self, x: str, p: Point) -> Val:
        """The value of a name at a point, which the memo does not hold."""
        held = None if x in self.computing else self.held.get(x)
        if isinstance(held, Val):
            return held
        if held is not None:
            return self.read_tile(held, p)
        if x in self.kernel.extents:
            positions = tuple(map(self.e.index, self.position(x, p)))
            if lanes_of(positions[0]) and self.small:
                positions = tuple(self.e.convert(x, "i32") for x in positions)
            return Val(positions)
        if x in self.kernel.arguments:
            return self.argument(x)
        if x in self.kernel.dims:
            return Val((self.slots["dim", x],))
        with self.e.of(self.defs[x]):
            return self.made(x, self.defs[x], p)

    def made(self, x: str, op: Op, p: Point) -> Val:
        """The value of an op at a point."""
        match op:
            case Edge():
                w = self.window(op.axis)
                at = (
                    w.first if op.which == "first" else self.e.add(w.first, self.e.add(w.count, -1))
                )
                return Val((self.e.index(at),))
            case Load():
                return self.load(op, p)
            case Map():
                return self.map(op, p)
            case Cast():
                return self.cast(op, p)
            case _:
                raise AssertionError(f"{x} is not at hand")

    def argument(self, x: str) -> Val:
        """A scalar argument: an i64, an i1, or a float of the kind in which this kernel computes."""
        word, e = self.slots["scalar", x], self.e
        match self.kernel.arguments[x].type:
            case "int":
                return Val((word,))
            case "bool":
                return Val((e.compare("!=", word, 0),))
            case "float":
                return Val((e.convert(e.bits(word, "f64"), self.float),))

    def map(self, op: Map, p: Point) -> Val:
        """A pointwise function of operands at a point."""
        name = op.result.name
        if op.fn in ("exp", "exp2") and name in self.relaxed:
            weight = exp2_weight if op.fn == "exp2" else exp_weight
            x = self.value(op.args[0], p)
            return Val(tuple(weight(self.e, part, self.degree) for part in x.parts))
        if op.fn == "add" and name in self.relaxed and (factors := self.product(op)):
            a, b, c = (self.value(x, p) for x in factors)
            n = max(len(x.parts) for x in (a, b, c))
            return Val(tuple(self.e.fma(a.part(i), b.part(i), c.part(i)) for i in range(n)))
        if op.fn == "div" and name in self.relaxed:
            return self.share(op, p)
        args = [self.value(x, p) for x in op.args]
        n = max(len(a.parts) for a in args)
        if self.small and op.fn in ORDERS and all(map(self.facts.narrow.fits, op.args)):
            args = [Val(tuple(self.e.convert(x, "i32") for x in a.parts)) for a in args]
        rule = Rule(
            self.kind(name),
            self.float,
            marked=name in self.absent,
            plain=op.fn in ("add", "sub") and (name in self.relaxed or self.facts.plain(op)),
            literals=tuple(x if isinstance(x, (int, float)) else None for x in op.args),
        )
        out = [apply(self.e, op.fn, rule, [(a.part(i), a.mark(i)) for a in args]) for i in range(n)]
        values = tuple(x for x, _ in out)
        if not rule.marked or all(m is None for _, m in out):
            return Val(values)
        marks = tuple(constant("i1", 0) if m is None else m for _, m in out)
        return Val(values, self.vanished(op, p, marks) if op.fn in DECAYING else marks)

    def vanished(self, op: Map, p: Point, marks: tuple[Any, ...]) -> tuple[Any, ...]:
        """Where an exponential is absent, of the places where its argument is -inf: not where that has overflowed."""
        tiles = {x for x, v in self.held.items() if isinstance(v, Tile)}
        origin = self.facts.origin(op.args[0], tiles - self.computing)
        if origin == op.args[0]:
            return marks
        if origin is None:
            return tuple(constant("i1", 0) for _ in marks)
        low = self.value(origin, p)
        return tuple(
            self.e.and_(m, self.e.compare("==", low.part(n), -math.inf))
            for n, m in enumerate(marks)
        )

    def share(self, op: Map, p: Point) -> Val:
        """A quotient in relaxed code: a product with the reciprocal. 0 / 0 is 0 where rows decide; by a scalar it is NaN."""
        e = self.e
        x, y = (self.value(a, p) for a in op.args)
        factor, divided = self.reciprocal(op.args[1], p), bool(self.axes(op.args[1]))

        def part(n: int) -> Any:
            above, below = (e.convert(v.part(n), self.float) for v in (x, y))
            out = e.mul(above, factor.part(n))
            if not divided:
                return out
            both = e.and_(e.compare("==", above, 0.0), e.compare("==", below, 0.0))
            return e.select(both, 0.0, out)

        return Val(tuple(part(n) for n in range(max(len(v.parts) for v in (x, factor)))))

    def reciprocal(self, x: Operand, p: Point) -> Val:
        """The reciprocal of an operand, for relaxed code; NaN where a product with it would be no quotient."""
        e, key = self.e, ("reciprocal", self.key(x, p))
        if (found := self.memo.find(key)) is not None:
            return found

        def part(y: Any) -> Any:
            size = e.abs(y)
            fits = e.and_(e.compare(">", size, 2.0**-100), e.compare("<", size, 2.0**100))
            return e.select(e.or_(fits, e.compare("==", y, 0.0)), e.div(1.0, y), math.nan)

        parts = self.value(x, p).parts
        return self.memo.keep(key, Val(tuple(part(e.convert(y, self.float)) for y in parts)), p)

    def product(self, op: Map) -> tuple[Operand, Operand, Operand] | None:
        """The factors of a product in a sum, and the other summand; None where no such product is to be computed."""
        for x, other in (op.args, op.args[::-1]):
            d = self.defs.get(x) if isinstance(x, str) else None
            if not isinstance(d, Map) or d.fn != "mul":
                continue
            alike = all(self.facts.dtype(y) == op.result.type.dtype for y in (*d.args, other))
            if alike and (x in self.computing or x not in self.held):
                return (d.args[0], d.args[1], other)
        return None

    def cast(self, op: Cast, p: Point) -> Val:
        """An operand at a point, as the element type of the cast."""
        x = self.value(op.x, p)
        parts = tuple(self.converted(a, op.to) for a in x.parts)
        return Val(parts, x.marks if op.result.name in self.absent else None)

    def converted(self, a: Any, to: DType) -> Any:
        """A value after a conversion that the program asks for, in its kind for arithmetic."""
        e = self.e
        if kind(to) == "bool":
            return e.convert(a, "i1")
        if kind(to) == "int":
            return e.convert(a, "i64")
        a = e.convert(a, self.float)
        return storage.rounded(e, a, to)

    def late(self, op: Contract) -> bool:
        """Whether a contraction's sum is made before it is added to what it starts from: -inf absorbs an infinite sum."""
        if op.init is None or not isinstance(op.init, str) or op.result.type.dtype == "i64":
            return False
        if self.facts.finite(op.init, -1) and self.facts.finite(op.init, 1):
            return False
        return not self.small or op.result.name in self.lossy

    # ---- positions

    def clamped(self, axis: str, p: Point) -> tuple[Any, ...]:
        """Local positions along the vector axis, none past the window's end, one i64 vector per part."""
        e, base = self.e, p.at[axis]
        key = ("clamped", axis, p.parts, _identity(base))
        if (found := self.memo.find(key)) is not None:
            return found
        last = e.add(self.window(axis).count, -1)
        out = tuple(e.min(e.ramp(e.add(base, v * e.lanes)), last) for v in range(p.parts))
        return self.memo.keep(key, out, p)

    def inside(self, p: Point) -> tuple[Any, ...] | None:
        """Which lanes are not past the end of the vector axis' window, one condition per part; None where none is."""
        if p.vector is None:
            return None
        e, base, count = self.e, p.at[p.vector], self.window(p.vector).count
        if isinstance(count, int) and count % (e.lanes * p.parts) == 0:
            return None
        ramps = (e.ramp(e.add(base, v * e.lanes)) for v in range(p.parts))
        return tuple(e.compare("<", x, count) for x in ramps)

    def position(self, axis: str, p: Point) -> tuple[Any, ...]:
        """The positions on an axis: one i64, or a vector per part."""
        w = self.window(axis)
        if w.scalar:
            return (w.first,)
        if axis == p.vector:
            return tuple(self.e.add(x, w.first) for x in self.clamped(axis, p))
        return (self.e.add(w.first, p.at[axis]),)

    # ---- tiles in scratch

    def lay(self, tile: Tile, p: Point) -> tuple[Any, ...] | None:
        """Offsets (i64 vectors) of a point's parts in a tile; None where each part is consecutive or one element."""
        v = p.vector
        if v is None or v not in tile.axes or v == tile.lane or tile.strides[v] == 1:
            return None
        return tuple(tile.offset(self.e, {**p.at, v: x}) for x in self.clamped(v, p))

    def read_tile(self, tile: Tile, p: Point) -> Val:
        """The elements of a tile at a point."""
        e = self.e
        raw: Kind = "i8" if tile.kind == "i1" else tile.kind
        spread = self.lay(tile, p)
        if spread is not None:
            parts = [e.gather(raw, tile.base, x) for x in spread]
        else:
            base = e.at(tile.base, tile.start(e, p), BYTES[raw])
            if p.vector in tile.axes:
                parts = [e.read(raw, base, v * e.lanes, e.lanes) for v in range(p.parts)]
            else:
                parts = [e.read(raw, base)]
        if tile.kind == "i1":
            parts = [e.compare("!=", x, 0) for x in parts]
        if not tile.marked:
            return Val(tuple(parts))
        bits, pattern = ABSENT_BITS[tile.kind]
        marks = [e.compare("==", e.bits(x, bits), pattern) for x in parts]
        zeros = [
            e.select(m, constant(tile.kind, 0.0), x) for m, x in zip(marks, parts, strict=True)
        ]
        return Val(tuple(zeros), tuple(marks))

    def write_tile(self, tile: Tile, p: Point, value: Val) -> None:
        """Sets the elements of a tile at a point."""
        e = self.e
        vector = p.vector in tile.axes
        spread = self.lay(tile, p)
        base = None if spread else e.at(tile.base, tile.start(e, p), BYTES[tile.kind])
        for n in reversed(range(p.parts if vector else 1)):
            x = self.encoded(tile, value.part(n), value.mark(n))
            if vector and not lanes_of(x):
                x = e.splat(x)
            if spread:
                scatter_back(e, x, tile.base, spread[n])
            else:
                e.write(x, base, n * e.lanes)

    def encoded(self, tile: Tile, x: Any, mark: Any | None) -> Any:
        """A part of a value as a tile in scratch keeps it: its kind, bytes for i1, absent zeros as their pattern of bits."""
        e = self.e
        x = e.convert(x, tile.kind)
        if tile.kind == "i1":
            return e.convert(x, "i8")
        if not tile.marked or mark is None:
            return x
        bits, pattern = ABSENT_BITS[tile.kind]
        return e.bits(e.select(mark, constant(bits, pattern), e.bits(x, bits)), tile.kind)

    # ---- tensors in memory

    def load(self, op: Load, p: Point) -> Val:
        """Elements of a tensor."""
        if op.result.name in self.consecutive and p.vector and p.vector == op.index[-1]:
            window = self.window(p.vector)
            out = self.memory.along(op.tensor, self.row(op, p), p.at[p.vector], window.count)
        else:
            out = self.memory.read(op.tensor, self.index(op, p), self.near(op, p))
        if self.kind(op.result.name) != "i32":
            return out
        return Val(tuple(self.e.convert(x, "i32") for x in out.parts))

    def row(self, op: Load, p: Point) -> Any:
        """Where the row of a load begins whose elements are consecutive along its last index, an axis of known length."""
        *others, last = op.index
        assert isinstance(last, str)
        at = {a: p.at.get(a) for y in others for a in self.axes(y)}
        key = ("row", op.result.name, *(_identity(x) for x in at.values()))
        if (found := self.memo.find(key)) is not None:
            return found
        index = [(self.value(x, p).parts[0], x in self.kernel.extents) for x in others]
        window = self.window(last)
        out = self.memory.row(op.tensor, [*index, (self.e.index(window.first), True)], window.count)
        return self.memo.keep(key, out, p)

    def store(self, op: Store, p: Point) -> None:
        """Writes a value to a tensor."""
        value = self.value(op.value, p)
        with self.e.of(op):
            self.write(op, p, value)

    def write(self, op: Store, p: Point, value: Val) -> None:
        """Stores a value to its tensor; positions past the end of a window are left out."""
        self.memory.write(op.tensor, self.index(op, p), value, self.near(op, p), self.inside(p))

    def index(self, op: Load | Store, p: Point) -> list[Index]:
        """The indices of a load or a store at a point. An axis is in range: that is checked at the call."""
        out: list[Index] = []
        for x in op.index:
            start = None
            if isinstance(x, str) and x == p.vector:
                start = self.e.add(self.window(x).first, p.at[x])
            out.append(Index(self.value(x, p), x in self.kernel.extents, start))
        return out

    def near(self, op: Load | Store, p: Point) -> Any | None:
        """The condition under which a point's vectors are consecutive in memory; None where they never are."""
        e, axis = self.e, p.vector
        varying = [k for k, x in enumerate(op.index) if axis is not None and axis in self.axes(x)]
        if axis is None or len(varying) != 1 or op.index[varying[0]] != axis:
            return None
        unit = e.compare("==", self.memory.stride(op.tensor, varying[0]), 1)
        count, step = self.window(axis).count, e.lanes * p.parts
        if isinstance(count, int) and count % step == 0:
            return unit
        return e.and_(unit, e.compare("<=", e.add(e.index(p.at[axis]), step), count))


def _identity(x: Any) -> object:
    return ("v", id(x)) if is_value(x) else x
