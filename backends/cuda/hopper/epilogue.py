"""Emits what follows the loops: the ops on accumulators and row values, and the stores.

An output of rows and features leaves through shared memory, or straight from the registers; how, is for those who know where
there is room.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.analysis import Registers
from tilec.backends.cuda.hopper.expression import (
    COLUMN,
    ELEMENT,
    POSITION,
    Expression,
    cast,
    literal,
)
from tilec.backends.cuda.hopper.pointwise import pointwise
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.slices import Slice
from tilec.dataflow import definitions, names_in
from tilec.ir import Cast, Load, Map, Op, Operand, Store, operands

PLENTY = 64
"""The registers of an accumulator that leave enough for all that its elements are computed with."""


@dataclass(frozen=True)
class Outgoing:
    """A tile of an output: `width` columns along the axis `feature`."""

    op: Store
    feature: str
    width: int
    dtype: str


class Epilogue:
    """Emits the epilogue of a tile. `slices`: in how many the columns of its accumulators are divided."""

    def __init__(self, scope: Scope, registers: Registers, slices: int) -> None:
        self.slices = slices
        self.scope, self.registers = scope, registers
        self.s, self.out, self.names = scope.structure, scope.out, scope.names
        self.held = scope.held
        self.defs = definitions(self.s.epilogue)
        self.accumulators: dict[str, str] = {}
        self.first = ""  # where the columns of this group begin, as a term
        self.partial: set[str] = set()
        self.places: dict[str, str] = {}
        for k, (x, name) in enumerate(zip(self.s.slots, self.s.results, strict=True)):
            if x.width:
                self.accumulators[name] = registers.slots[k]
            else:
                scope.values[name] = Expression(registers.slots[k], "float")
                if k in registers.partial:
                    self.partial.add(name)

    def write(self) -> None:
        """All of it."""
        used = {x for op in self.s.epilogue for x in names_in(operands(op))}
        for name in sorted(self.partial & used):
            part = self.scope.values[name].text
            total = self.names.fresh(f"{part}_total")
            self.out.add(f"float {total}[{self.held}]; ROWS {total}[r] = quad_sum({part}[r]);")
            self.scope.values[name] = Expression(total, "float")
        for op in self.s.epilogue:
            if isinstance(op, Store):
                self.store(op)
            elif len(op.result.type.axes) < 2 and op.result.type.axes in ((), (self.s.row,)):
                self.scope.declare(op)

    # ---- stores

    def store(self, op: Store) -> None:
        axes = set(self.scope.axes(op.value))
        features = [a for a in op.index if a in self.scope.kernel.extents and isinstance(a, str)]
        wide = [a for a in features if a != self.s.row and self.scope.axes(a) == (a,)]
        if not wide:
            self.store_rows(op)
        elif len(wide) == 1 and self.s.row in op.index and (axes <= {self.s.row, wide[0]}):
            with self.out.block(""):
                self.store_tile(self.outgoing(op, wide[0]))
        else:
            raise Refused(f"output {op.tensor} has axes {', '.join(map(str, op.index))}")

    def is_own(self, tensor: str) -> bool:
        """Whether a tensor is an intermediate one, whose layout is known."""
        return tensor in self.scope.types and self.scope.types[tensor].space == "hbm"

    def limit(self) -> str:
        """The first row that is not of this tile, or not there at all."""
        return self.scope.extent(self.s.row).text

    def offset(self, op: Store, where: dict[str, str]) -> str:
        name = self.names.of(op.tensor)
        self.scope.used_pointers[op.tensor] = None
        terms: list[str] = []
        for k, x in enumerate(op.index):
            text = where.get(str(x)) or self.scope.operand(x).text
            terms.append(f"(i64){text} * {name}_stride{k}")
        return " + ".join(terms)

    def store_rows(self, op: Store) -> None:
        """A value per row: one of the four threads that share it writes."""
        dtype = self.scope.dtype(op.tensor)
        value = self.scope.operand(op.value).real()
        text = {
            "f32": value.text,
            "f16": f"(u16)pack_f16({value.text}, 0.f)",
            "bf16": f"(u16)pack_bf16({value.text}, 0.f)",
        }.get(dtype)
        if text is None:
            raise Refused(f"output {op.tensor} is {dtype}")
        if self.s.row not in op.index:
            raise Refused(f"output {op.tensor} has no rows")
        name, limit = self.names.of(op.tensor), self.limit()
        offset = self.offset(op, {})
        if self.inputs(op.value) & self.s.doubtful:
            self.out.add(
                f"ROWS if (row_i[r] < {limit} && !(fabsf({value.text}) < POS_INF)) *redo = 1;"
            )
        self.out.add(
            f"if ((lane & 3) == 0) ROWS if (row_i[r] < {limit}) {name}[{offset}] = {text};{self.scope.comment(op)}"
        )

    def store_tile(self, t: Outgoing) -> None:
        """A tile of rows and features."""
        first = self.slice(t.width).first_slab
        if first:
            self.out.add(f"const int first = 64 * {first};   // of this group's columns")
        self.first = "first + " if first else ""
        watched = self.s.watched and bool(self.inputs(t.op.value) & set(self.accumulators))
        probe = self.names.fresh("probe") if watched else ""
        if probe:
            self.out.add(f"u32 {probe} = 0;")
        divisors = self.divisors(t.op.value)
        self.invert(divisors)
        if self.through(t):
            self.begin_copy(t)
        elif t.dtype != "f32":
            self.begin_rows(t)
        if divisors:
            with self.out.block(f"if (__all_sync(FULL, {self.regular(divisors)}))"):
                self.tile_loop(t, True, probe)
            with self.out.block("else"):
                self.tile_loop(t, False, probe)
        else:
            self.tile_loop(t, True, probe)
        if probe:
            self.out.add(
                f"if ({probe} & 0x7fff7fff) *redo = 1;   // NaN or infinity: perhaps times a weight that is absent"
            )
        if self.through(t):
            self.end_copy(t)

    def outgoing(self, op: Store, feature: str) -> Outgoing:
        """The tile that a store writes. Raises Refused for one of another form than these have here."""
        width, dtype = self.scope.kernel.extents[feature], self.scope.dtype(op.tensor)
        if not isinstance(width, int):
            raise Refused(f"the length of axis {feature} is not known")
        if dtype not in ("f16", "bf16", "f32"):
            raise Refused(f"output {op.tensor} is {dtype}")
        return Outgoing(op, feature, width, dtype)

    def invert(self, divisors: list[str]) -> None:
        """The reciprocals of what elements are divided by."""
        for x in divisors:
            index = "[r]" if self.scope.axes(x) == (self.s.row,) else ""
            value, name = f"{self.scope.values[x].text}{index}", self.inverse(x)
            self.out.add(f"float {name}[{self.held}]; ROWS {name}[r] = reciprocal({value});")

    def slice(self, width: int) -> Slice:
        """This group's part of so many columns."""
        return Slice(width, self.slices)

    def beyond(self, width: int, wide: int) -> bool:
        """Whether some columns that are held are beyond an output, where `wide` of them leave at a time."""
        return width % (wide if self.slices == 1 else 64) != 0

    def regular(self, divisors: list[str]) -> str:
        """The test that none of a thread's divisors is 0 or extreme."""
        tests = [
            f"regular({self.scope.values[x].text}{f'[{k}]' if self.scope.axes(x) else ''})"
            for x in divisors
            for k in (range(self.held) if self.scope.axes(x) else (0,))
        ]
        return " & ".join(dict.fromkeys(tests))

    def inputs(self, x: Operand) -> set[str]:
        """What a value is computed from."""
        op = self.defs.get(str(x))
        return {str(x)} if op is None else {z for y in operands(op) for z in self.inputs(y)}

    def inverse(self, x: str) -> str:
        """The name of 1 / x."""
        return f"inverse_{self.scope.values[x].text}"

    def divisors(self, x: Operand) -> list[str]:
        """The row values and scalars that elements are divided by."""
        op = self.defs.get(str(x))
        if op is None or len(op.result.type.axes) < 2:
            return []
        out = [d for y in names_in(operands(op)) for d in self.divisors(y)]
        if (
            isinstance(op, Map)
            and op.fn == "div"
            and isinstance(op.args[1], str)
            and self.per_row(op.args[1])
        ):
            out.append(op.args[1])
        return list(dict.fromkeys(out))

    def per_row(self, x: str) -> bool:
        """Whether a value is one for a row, or for all of them."""
        return self.scope.axes(x) in ((), (self.s.row,))

    # ---- the loop over a tile

    def tile_loop(self, t: Outgoing, fast: bool, probe: str) -> None:
        """Element by element: the value, rounded, to its place. `probe` takes note of NaN and infinity."""
        out, op = self.out, t.op
        eights = 2 if self.through(t) or t.dtype == "f32" else self.gathered(t)
        name = f"b{8 * eights}"
        rows = {x.result.name: self.row_of(x, t.feature) for x in self.late(t)}
        self.places = {
            x: f"{at}[r][{at}_far + (8 * b8 + (x & 1)) * {step}]" for x, (at, step) in rows.items()
        }
        out.add("#pragma unroll")
        with out.block(
            f"for (int {name} = 0; {name} < {self.slice(t.width).columns // 8 // eights}; {name}++)"
        ):
            out.add(f"float four[{eights}][{2 * self.held}];")
            out.add("#pragma unroll")
            with out.block(f"for (int b8 = 0; b8 < {eights}; b8++) EACH"):
                out.add(
                    f"const int c = {eights} * {name} + b8, r = x >> 1, {COLUMN} = 8 * c + (x & 1);"
                )
                e = self.element(op.value, t.feature, {}, fast)
                out.add(f"four[b8][x] = {e.real().text};")
            for at, step in rows.values():
                out.add(f"{at}_far += {8 * eights} * {step};")
            for k in range(0, eights, 2) if probe else ():
                here = self.here(f"{8 * eights} * {name} + {8 * k}", t.width)
                out.add(f"{here}{probe} = watch({probe}, {self.pairs('bf16', k)});")
            self.leave(t)

    def leave(self, t: Outgoing) -> None:
        """The columns in `four`, to shared memory or out of the registers."""
        if self.through(t):
            self.matrices(t.dtype)
        elif t.dtype == "f32":
            self.direct_floats(t)
        else:
            self.direct_pairs(t)

    def here(self, column: str, width: int) -> str:
        """The test whether 16 columns are of a tile: what a slice has beyond it may be anything."""
        return f"if ({self.first}{column} < {width}) " if self.beyond(width, 1) else ""

    def late(self, t: Outgoing) -> list[Load]:
        """The loads along a row that wait for the stores before them: where accumulators leave few registers."""
        wide = self.slice(t.width).columns // 8 * 2 * self.held > PLENTY
        return self.loads(t.op.value, t.feature) if wide else []

    def loads(self, x: Operand, feature: str) -> list[Load]:
        """The loads of an element that lie along its row."""
        op = self.defs.get(str(x))
        if op is None or feature not in self.scope.axes(str(x)):
            return []
        if not isinstance(op, Load):
            return [load for y in operands(op) for load in self.loads(y, feature)]
        along = [y for y in op.index if feature in self.scope.axes(y)]
        return [op] if along == [feature] and self.scope.dtype(op.tensor) in ELEMENT else []

    def row_of(self, op: Load, feature: str) -> tuple[str, str]:
        """A pointer to the first columns of a row, and the step from one to the next. The compiler would load hundreds of
        elements at once and have registers for none, but does not move volatile ones beyond a store."""
        element, name = ELEMENT[self.scope.dtype(op.tensor)], self.names.of(op.tensor)
        pointer = self.names.fresh(f"{name}_at")
        index = [self.element(y, feature, {}, True) for y in op.index]
        terms = " + ".join(f"(i64)({e.text}) * {name}_stride{k}" for k, e in enumerate(index))
        self.out.add(
            f"const volatile {element}* {pointer}[{self.held}]; ROWS {pointer}[r] = {name} + ({terms});"
        )
        self.out.add(f"i64 {pointer}_far = 0;")
        return pointer, f"{name}_stride{list(op.index).index(feature)}"

    def element(
        self, x: Operand, feature: str, values: dict[str, Expression], fast: bool
    ) -> Expression:
        """An element of a value of rows and features."""
        if not isinstance(x, str):
            return literal(x)
        if x in self.accumulators:
            return Expression(f"{self.accumulators[x]}[{2 * self.held} * c + x]", "float")
        if x == feature:
            place = f"({self.first}2 * (lane & 3))" if self.first else "2 * (lane & 3)"
            return Expression(place, "int", POSITION, 1)
        if x not in self.defs or len(self.scope.axes(x)) < 2 and feature not in self.scope.axes(x):
            return self.scope.operand(x)
        if x in values:
            return values[x]
        op = self.defs[x]
        args = [self.element(y, feature, values, fast) for y in operands(op)]
        e = self.computed(op, args, fast)
        if e.step:
            return e
        name = self.names.fresh(self.names.of(x) + "_x")
        self.out.add(f"const {e.ctype} {name} = {e.text};{self.scope.comment(op)}")
        values[x] = Expression(name, e.kind, e.bits)
        return values[x]

    def computed(self, op: Op, args: list[Expression], fast: bool) -> Expression:
        if isinstance(op, Cast):
            return cast(args[0], op.to)
        if isinstance(op, Load):
            return self.scope.load(op, args, self.places.get(op.result.name))
        if not isinstance(op, Map):
            raise Refused(f"{op.result.name} is no pointwise value")
        if op.fn == "div" and fast:
            y = op.args[1]
            if isinstance(y, str) and self.per_row(y):
                return Expression(f"({args[0].real().text} * {self.inverse(y)}[r])", "float")
        return pointwise(op.fn, args, op.result.type.dtype)

    # ---- out through shared memory

    def through(self, t: Outgoing) -> bool:
        """Whether a tile leaves through shared memory."""
        return False

    def begin_copy(self, t: Outgoing) -> None:
        """Before the first element."""
        raise NotImplementedError

    def matrices(self, dtype: str) -> None:
        """16 columns of `four` into shared memory."""
        raise NotImplementedError

    def end_copy(self, t: Outgoing) -> None:
        """From shared memory to the output."""
        raise NotImplementedError

    def pairs(self, dtype: str, first: int = 0) -> str:
        """16 columns as 8 x 8 matrices of pairs: rows g and g + 8 of the left half, then of the right half, and so on."""
        left = (first, first + 1)
        halves = [(h, m + k) for m in range(0, 2 * self.held, 4) for h in left for k in (0, 2)]
        return ", ".join(f"pack_{dtype}(four[{h}][{k}], four[{h}][{k + 1}])" for h, k in halves)

    # ---- out of registers

    @property
    def column(self) -> str:
        """The column of an element of `four`."""
        return f"{self.first}16 * b16 + 8 * b8 + 2 * (lane & 3) + (x & 1)"

    def gathered(self, t: Outgoing) -> int:
        """How many times 8 columns are at hand when 16-bit elements leave the registers."""
        return 2

    def begin_rows(self, t: Outgoing) -> None:
        """Before the first 16-bit element that leaves the registers."""

    def direct_pairs(self, t: Outgoing) -> None:
        """16-bit elements of `four` to memory."""
        raise NotImplementedError

    def direct_floats(self, t: Outgoing) -> None:
        """16 columns of `four` to memory."""
        out, op, name = self.out, t.op, self.names.of(t.op.tensor)
        here = f"row_i[r] < {self.limit()} && column < {t.width}"
        if t.width % 2 == 0 and self.is_own(op.tensor) and op.index[-1] == t.feature:
            offset = self.offset(op, {t.feature: "column", self.s.row: "row_i[r]"})
            out.add("#pragma unroll")
            with out.block("for (int b8 = 0; b8 < 2; b8++) ROWS"):
                out.add(f"const int column = {self.first}16 * b16 + 8 * b8 + 2 * (lane & 3);")
                pair = "four[b8][2 * r], four[b8][2 * r + 1]"
                out.add(f"if ({here}) store_pair({name} + {offset}, {pair});")
            return
        out.add("#pragma unroll")
        with out.block("for (int b8 = 0; b8 < 2; b8++) EACH"):
            out.add(f"const int r = x >> 1, column = {self.column};")
            offset = self.offset(op, {t.feature: "column", self.s.row: "row_i[r]"})
            out.add(f"if ({here}) {name}[{offset}] = four[b8][x];")
