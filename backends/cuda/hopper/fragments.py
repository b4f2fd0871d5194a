"""Emits the ops of a block on a thread's part of the tiles.

A value has a layout by its axes: a scalar is one variable; a value per row is two (rows g and g + 8 of the warp's 16); a tile
of rows and columns is a fragment, four elements in each block of 8 columns. Fragments are not stored: an element is
computed where it is used, in a loop over the blocks of columns, except contractions and what is dear and used
twice. A loop is written as late as possible, so that all that is made of an element is made in one loop: the *roots* are
reductions, weights packed for the next contraction, and stored fragments.

A sum along a row may stay in parts, one per thread of the four that share the row: it is *partial* until something
needs the total.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tilec.backends.cuda.hopper.expression import (
    COLUMN,
    ELEMENT,
    POSITION,
    Expression,
    cast,
    literal,
    loaded,
    pointwise,
)
from tilec.backends.cuda.hopper.structure import Block, Refused, Structure
from tilec.backends.cuda.hopper.text import Lines, Names
from tilec.dataflow import names_in
from tilec.ir import (
    ABSENT,
    Body,
    Cast,
    Edge,
    If,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Type,
    Value,
    Yield,
    operands,
    walk,
)
from tilec.scalar import Scalar

COMBINE = {
    "sum": "{0} + {1}",
    "max": "max_nan({0}, {1})",
    "min": "min_nan({0}, {1})",
    "maxnum": "fmaxf({0}, {1})",
}
IDENTITY = {"sum": "0.f", "max": "NEG_INF", "min": "POS_INF", "maxnum": "NEG_INF"}
OVER_ROWS: dict[str, dict[str, tuple[str, str]]] = {
    "min": {
        "int": ("least<int>({0}, {1})", "MOST"),
        "i64": ("least<i64>({0}, {1})", "MOST_WIDE"),
        "float": ("min_nan({0}, {1})", "POS_INF"),
    },
    "max": {
        "int": ("greatest<int>({0}, {1})", "-MOST"),
        "i64": ("greatest<i64>({0}, {1})", "-MOST_WIDE"),
        "float": ("max_nan({0}, {1})", "NEG_INF"),
    },
    "any": {"bool": ("{0} || {1}", "false")},
    "all": {"bool": ("{0} && {1}", "true")},
}
"""How reductions over rows combine, and what they begin with, by C type."""
QUAD = {"sum": "quad_sum", "max": "quad_max_nan", "min": "quad_min_nan", "maxnum": "quad_max"}


class Scope:
    """What generated code can name at a place: scalars, row values, positions. Shared by all roles."""

    def __init__(self, structure: Structure, out: Lines, names: Names) -> None:
        self.structure, self.kernel = structure, structure.kernel
        self.out, self.names = out, names
        self.values: dict[str, Expression] = {}
        self.used_pointers: dict[str, None] = {}
        self.whole = False  # whether all positions of the present window are on the axis
        self.types: dict[str, Type] = {n: v.type for n, v in self.kernel.values.items()}
        for d in self.kernel.dims:
            self.values[d] = Expression(names.of(d), "int", POSITION)
        for a in self.kernel.arguments.values():
            kind = {"int": "int", "float": "float", "bool": "bool"}[a.type]
            self.values[a.name] = Expression(names.of(a.name), kind)  # type: ignore[arg-type]

    def axes(self, x: Operand) -> tuple[str, ...]:
        """The axes of an operand here."""
        if not isinstance(x, str):
            return ()
        if x in self.types:
            return self.types[x].axes
        if x in (self.structure.row, self.structure.stream):
            return (x,)
        return () if x in self.values or x not in self.kernel.extents else (x,)

    def extent(self, axis: str) -> Expression:
        """The length of an axis."""
        return self.scalar_expression(self.kernel.extents[axis])

    def scalar_expression(self, e: Scalar) -> Expression:
        """An expression of dimensions and scalar arguments."""
        if isinstance(e, str):
            return self.values[e]
        if not isinstance(e, tuple):
            return literal(e)
        fn, *parts = e
        assert isinstance(fn, str)
        args = [self.scalar_expression(p) for p in parts]
        return pointwise(fn, args, "i64" if all(a.kind == "int" for a in args) else "f32")

    def comment(self, op: Op) -> str:
        """What an op is in the IR, and the line of the program it came from."""
        from tilec.text import show_operand

        word = op.fn if isinstance(op, (Map, Reduce)) else op.word
        text = f"{word}({', '.join(show_operand(x) for x in operands(op))})"
        where = f"   {op.span.file}:{op.span.line}" if op.span is not None else ""
        return f"  // {text}{where}"

    # ---- scalars and rows

    def declare(self, op: Op) -> None:
        """A scalar or a row value, as a variable."""
        axes = op.result.type.axes
        name = self.names.of(op.result.name)
        if axes == ():
            e = self.value(op, None)
            self.values[op.result.name] = Expression(name, e.kind, e.bits)
            self.out.add(f"const {e.ctype} {name} = {e.text};{self.comment(op)}")
            return
        if axes != (self.structure.row,):
            raise Refused(f"{op.result.name} is no row value")
        e = self.value(op, "row")
        self.values[op.result.name] = Expression(name, e.kind, e.bits)
        self.out.add(f"{e.ctype} {name}[2]; ROWS {name}[r] = {e.text};{self.comment(op)}")

    def value(self, op: Op, where: str | None) -> Expression:
        """The expression of an op. `where`: None for a scalar, `row` inside ROWS."""
        match op:
            case Map():
                return pointwise(
                    op.fn, [self.operand(x, where) for x in op.args], op.result.type.dtype
                )
            case Cast():
                return cast(self.operand(op.x, where), op.to)
            case Load():
                return self.load(op, [self.operand(x, where) for x in op.index])
            case Edge():
                return self.edge(op)
            case _:
                raise Refused(f"a {op.word} is no pointwise op")

    def operand(self, x: Operand, where: str | None) -> Expression:
        """An operand of a scalar or a row value."""
        if not isinstance(x, str):
            return literal(x)
        if x == self.structure.row:
            return Expression("row_i[r]", "int", POSITION)
        e = self.values.get(x)
        if e is None:
            raise Refused(f"{x} cannot be used here")
        if self.axes(x) == (self.structure.row,):
            return Expression(f"{e.text}[r]", e.kind, e.bits)
        return e

    def over_rows(self, op: Reduce, defs: Mapping[str, Op]) -> None:
        """A reduction over the rows of the tile, by the threads of each warp together."""
        out, name = self.out, self.names.of(op.result.name)
        element = self.at_row(op.args[0], defs)
        ctype = element.ctype
        if ctype not in OVER_ROWS[op.fn]:
            raise Refused(f"{op.result.name} is a {op.fn} of {ctype} over rows")
        both, identity = OVER_ROWS[op.fn][ctype]
        out.add(f"{ctype} {name} = {identity};{self.comment(op)}")
        with out.block("for (int at = threadIdx.x & 31; at < %d; at += 32)" % self.structure.rows):
            out.add("const int row = origin + at;")
            combined = both.format(name, element.text)
            out.add(f"if (row < {self.extent(self.structure.row).text}) {name} = {combined};")
        with out.block("for (int other = 16; other; other /= 2)"):
            shuffled = f"__shfl_xor_sync(FULL, {name}, other)"
            out.add(f"{name} = {both.format(name, shuffled)};")
        self.values[op.result.name] = Expression(name, element.kind, element.bits)

    def at_row(self, x: Operand, defs: Mapping[str, Op]) -> Expression:
        """A row value at the row `row`, with what it is computed from."""
        if x == self.structure.row:
            return Expression("row", "int", POSITION)
        op = defs.get(x) if isinstance(x, str) else None
        if op is None or not op.result.type.axes:
            return self.operand(x, None)
        args = [self.at_row(y, defs) for y in operands(op)]
        match op:
            case Map():
                return pointwise(op.fn, args, op.result.type.dtype)
            case Cast():
                return cast(args[0], op.to)
            case Load():
                return self.load(op, args)
            case _:
                raise Refused(f"{op.result.name} is no row value")

    def edge(self, op: Edge) -> Expression:
        """An end of a window."""
        s = self.structure
        origin = "origin" if op.axis == s.row else "window"
        if op.axis not in (s.row, s.stream):
            raise Refused(f"the window of {op.axis} has no edge here")
        if op.which == "first":
            return Expression(origin, "int", POSITION)
        size = s.rows if op.axis == s.row else s.columns
        return Expression(
            f"least<int>({origin} + {size}, {self.extent(op.axis).text}) - 1", "int", POSITION
        )

    def load(self, op: Load, index: list[Expression], place: str | None = None) -> Expression:
        """An element of a tensor; 0 out of range. `place`: the element where that is written down already."""
        dims = self.dims(op.tensor)
        name = self.names.of(op.tensor)
        self.used_pointers[op.tensor] = None
        checks: list[str] = []
        terms: list[str] = []
        for k, (x, e, dim) in enumerate(zip(op.index, index, dims, strict=True)):
            e = e.whole()
            if not self.in_range(x, dim):
                bound = self.scalar_expression(dim).text
                axis = isinstance(x, str) and x in self.kernel.extents
                checks.append(
                    f"{e.text} < {bound}" if axis else f"(u64)(i64)({e.text}) < (u64){bound}"
                )
            terms.append(f"(i64){e.text} * {name}_stride{k}")
        place = place or f"{name}[{' + '.join(terms) or '0'}]"
        element = loaded(place, self.dtype(op.tensor))
        if not checks:
            return element
        zero = {"float": "0.f", "int": "0", "bool": "false"}[element.kind]
        return Expression(
            f"({' && '.join(checks)} ? {element.text} : {zero})", element.kind, element.bits
        )

    def in_range(self, x: Operand, dim: Scalar) -> bool:
        """Whether an index is the position on a grid axis of just that length, whose tile is 1."""
        s = self.structure
        if not isinstance(x, str) or x not in self.kernel.extents or x == s.row:
            return False
        if x != s.stream and x not in dict(s.grid.axes):
            return False
        if x == s.stream and not self.whole:
            return False
        return self.kernel.extents[x] == dim

    def dims(self, tensor: str) -> tuple[Scalar, ...]:
        """The dimensions of a parameter, output or buffer."""
        if tensor in self.kernel.tensors:
            return self.kernel.tensors[tensor].dims
        for o in self.kernel.outputs:
            if o.name == tensor:
                return tuple(self.kernel.extents[a] for a in o.axes)
        return tuple(self.kernel.extents[a] for a in self.types[tensor].axes)

    def dtype(self, tensor: str) -> str:
        if tensor in self.kernel.tensors:
            return self.kernel.tensors[tensor].dtype
        for o in self.kernel.outputs:
            if o.name == tensor:
                return o.dtype
        return self.types[tensor].dtype


@dataclass
class Root:
    """Something made of each element: a reduction (`op`), packed weights or a stored fragment (`array`).

    `factor`: what the reduction of `value` is multiplied by.
    """

    what: str
    value: str
    op: Reduce | None = None
    array: str = ""
    dtype: str = ""
    factor: float | None = None


@dataclass
class Registers:
    """The arrays of a thread that outlive a block: heads, weights, accumulators, carried row values."""

    heads: tuple[str, ...]
    weights: tuple[str, ...]
    slots: tuple[str, ...]
    partial: set[int] = field(default_factory=set)


class BlockEmitter:
    """Emits the middle of one block."""

    def __init__(
        self, scope: Scope, block: Block, registers: Registers, ragged: bool, first: bool
    ) -> None:
        self.scope, self.block, self.registers = scope, block, registers
        self.ragged, self.first = ragged, first
        scope.whole = not ragged
        self.out, self.names, self.structure = scope.out, scope.names, scope.structure
        s = self.structure
        self.defs: dict[str, Op] = {v.name: op for op in walk(block.middle) for v in op.results}
        self.arrays: dict[str, str] = {}
        heads = [h for h in block.heads]
        used_as_init = {h.init for h in heads}
        for h, array in zip(
            [h for h in heads if h.name not in used_as_init], registers.heads, strict=True
        ):
            self.arrays[h.name] = array
        self.slot_of: dict[str, int] = {a: k for k, a in enumerate(block.args)}
        for k, a in enumerate(block.args):
            if not s.slots[k].width:
                scope.values[a] = Expression(registers.slots[k], "float")
        self.packs = self._packs()
        self.partial: set[str] = {block.args[k] for k in registers.partial}
        self.totals: dict[str, str] = {}
        self.pending: list[Root] = []
        self.factors: dict[str, float] = {}
        self.rough = not first and any(isinstance(op, If) for op in block.middle)
        self.reaches: list[str] = []
        self.keep = self._kept()
        self.late = [n for n in self.keep if self.rough and self._bends(n)]
        self.needed = self._needed()
        self.cut = self._cut() if ragged else frozenset[str]()

    # ---- analysis

    def _packs(self) -> dict[str, list[tuple[str, str]]]:
        """The arrays that each fragment value is packed into."""
        out: dict[str, list[tuple[str, str]]] = {}
        arrays = iter(self.registers.weights)
        by_name: dict[str, str] = {}
        for t in self.block.tails:
            if t.x not in by_name:
                by_name[t.x] = next(arrays)
                self._pack(t.x, by_name[t.x], t.value.dtype, out)
        return out

    def _pack(self, x: str, array: str, dtype: str, out: dict[str, list[tuple[str, str]]]) -> None:
        op = self.defs.get(x)
        if isinstance(op, If):
            k = [v.name for v in op.results].index(x)
            for region in (op.then, op.orelse):
                end = region[-1]
                assert isinstance(end, Yield)
                y = end.values[k]
                if not isinstance(y, str):
                    raise Refused("it weighs by a literal")
                self._pack(y, array, dtype, out)
            return
        out.setdefault(x, []).append((array, dtype))

    def _kept(self) -> dict[str, str]:
        """Fragment values that are stored: dear, and used in both arms of the computation."""
        out: dict[str, str] = {}
        regions = self._regions()
        for op in self.block.middle:
            if not isinstance(op, (Map, Cast, Load)) or not self.is_fragment(op):
                continue
            name = op.result.name
            users = sum(
                name in operands(o) and not isinstance(o, Yield) for body in regions for o in body
            )
            if users < 2 or self.cost(name, out) < 2:
                continue
            factor = self._factor(op)
            if factor is not None:
                self.factors[name] = factor
            source = self.reusable(name)
            out[name] = (
                source if source is not None else self.names.fresh(self.names.of(name) + "_kept")
            )
        return out

    def _bends(self, name: str) -> bool:
        """Whether a value is computed with a tanh of elements, which is short for small arguments."""
        ops = (self.defs.get(x) for x in self._inputs(name))
        return any(isinstance(op, Map) and op.fn == "tanh" and self.is_fragment(op) for op in ops)

    def _factor(self, op: Op) -> float | None:
        """The positive factor of a masked value, which need not be applied before it is stored: c · -inf is -inf."""
        if not isinstance(op, Map) or not _masked(op) or len(set(op.args[1:])) != 2:
            return None
        (x,) = (y for y in op.args[1:] if y != -math.inf)
        inner = self.defs.get(str(x))
        if not isinstance(inner, Map) or inner.fn != "mul" or not self.is_fragment(inner):
            return None
        c = next((c for c in inner.args if isinstance(c, float) and 0.0 < c < math.inf), None)
        return c

    def _regions(self) -> list[Body]:
        out: list[Body] = [self.block.middle]
        for op in self.block.middle:
            if isinstance(op, If):
                out += [op.then, op.orelse]
        return out

    def cost(self, name: str, kept: dict[str, str]) -> int:
        """How many operations an element takes, beyond stored ones; one that folds into its user is free."""
        op = self.defs.get(name)
        if name in self.arrays or name in kept or op is None or not self.is_fragment(op):
            return 0
        return 1 + sum(self.cost(x, kept) for x in names_in(operands(op)))

    def reusable(self, name: str) -> str | None:
        """The array of a head that is not looked at but to compute this value."""
        feeds = self._inputs(name)
        for h, array in self.arrays.items():
            users = [
                o.result.name for o in walk(self.block.middle) if h in operands(o) and o.results
            ]
            if h in feeds and all(self._leads_only(u, name) for u in users):
                return array
        return None

    def _inputs(self, name: str) -> set[str]:
        op = self.defs.get(name)
        return {name} | (
            set().union(*(self._inputs(x) for x in names_in(operands(op)))) if op else set()
        )

    def _leads_only(self, user: str, name: str) -> bool:
        if user == name:
            return True
        op = self.defs.get(user)
        if op is None or not isinstance(op, (Map, Cast, Load)) or not self.is_fragment(op):
            return False
        users = [o for o in walk(self.block.middle) if user in operands(o)]
        return bool(users) and all(
            o.results and self._leads_only(o.results[0].name, name) for o in users
        )

    def _needed(self) -> set[str]:
        """The values that the yields and tails depend on; in the first window by way of exact arms alone."""
        seen: set[str] = set()
        todo = [*names_in(self.block.yields), *(t.x for t in self.block.tails)]
        todo += [x for x in self.block.bases.values() if isinstance(x, str)]
        while todo:
            x = todo.pop()
            op = self.defs.get(x)
            if x in seen or op is None:
                continue
            seen.add(x)
            if isinstance(op, If):
                end = op.orelse[-1]
                assert isinstance(end, Yield)
                todo += names_in(end.values)
                seen.update(v.name for v in op.results)
                if not self.first:
                    last = op.then[-1]
                    assert isinstance(last, Yield)
                    todo += [*names_in(last.values), *names_in((op.cond,))]
            else:
                todo += names_in(operands(op))
        return seen

    def _cut(self) -> frozenset[str]:
        """The values that are made -inf beyond the axis's end, where that leaves every reduction as it is.

        These are stored values with a mask of their own, or else the heads. Empty: each reduction guards itself.
        """
        masked = [n for n in self.keep if _masked(self.defs[n])]
        heads = [h for h, array in self.arrays.items() if array not in self.keep.values()]
        for cut in (frozenset(masked), frozenset([*masked, *heads])):
            if cut and all(self._harmless(r, cut) for r in self._sinks()):
                return cut
        return frozenset()

    def _sinks(self) -> list[tuple[str, str]]:
        """What is reduced along the stream: values, and whether -inf or 0 leaves the reduction as it is."""
        out = [
            (str(op.args[0]), op.fn)
            for op in walk(self.block.middle)
            if isinstance(op, Reduce) and op.fn != "all"
        ]
        return out + [(x, "sum") for x in self.packs]

    def _harmless(self, sink: tuple[str, str], cut: frozenset[str]) -> bool:
        x, fn = sink
        if fn == "sum":
            return self._zero(x, cut)
        return fn in ("max", "maxnum") and self._lowest(x, cut)

    def _lowest(self, x: Operand, cut: frozenset[str]) -> bool:
        """Whether a value is -inf where the cut ones are."""
        if x in cut or x == -math.inf:
            return True
        op = self.defs.get(str(x))
        match op:
            case Map(fn="mul", args=args):
                return any(
                    isinstance(c, float) and c > 0.0 and self._lowest(y, cut)
                    for y, c in (args, args[::-1])
                )
            case Map(fn="div", args=(y, c)):
                return isinstance(c, float) and c > 0.0 and self._lowest(y, cut)
            case Map(fn="sub", args=(y, z)):
                return self._lowest(y, cut) and not self._lowest(z, cut)
            case Map(fn="add", args=args):
                return any(self._lowest(y, cut) for y in args)
            case Map(fn="select", args=(_, a, b)):
                return self._lowest(a, cut) and self._lowest(b, cut)
            case _:
                return False

    def _zero(self, x: Operand, cut: frozenset[str]) -> bool:
        """Whether a value is 0 where the cut ones are -inf."""
        op = self.defs.get(str(x))
        match op:
            case Map(fn="exp" | "exp2" | "sigmoid", args=(y,)):
                return self._lowest(y, cut)
            case Map(fn="select", args=(_, a, b)):
                return all(y == 0 or y == ABSENT or self._zero(y, cut) for y in (a, b))
            case Cast(x=y):
                return self._zero(y, cut)
            case _:
                return False

    def begin(self) -> None:
        """Cuts the heads off at the axis's end."""
        columns = self.structure.columns
        for h in self.cut - set(self.keep):
            array = self.arrays[h]
            self.out.add("#pragma unroll")
            with self.out.block(f"for (int c = 0; c < {columns // 8}; c++) EACH"):
                self.out.add(f"if (8 * c + (x & 1) >= rest) {array}[4 * c + x] = NEG_INF;")

    def is_fragment(self, op: Op) -> bool:
        """Whether an op's result has rows and columns."""
        return set(op.result.type.axes) == {self.structure.row, self.structure.stream}

    # ---- regions

    def emit(self, ops: Sequence[Op]) -> None:
        """Emits straight ops, and what they need."""
        for op in ops:
            if isinstance(op, Yield) or not any(v.name in self.needed for v in op.results):
                continue
            self.op(op)
        self.flush()

    def op(self, op: Op) -> None:
        """One op: at once where it is scalar or per row, later where it is a fragment."""
        s = self.structure
        if isinstance(op, If):
            self.flush()
            self.branch(op)
            return
        axes = op.result.type.axes
        if isinstance(op, Reduce):
            if op.fn != "all":
                self.pending.append(self.reduction(op))
                if op.fn == "sum":
                    self.partial.add(op.result.name)
            return
        name = op.result.name
        if s.stream in axes:
            for array, dtype in self.packs.get(name, []):
                self.pending.append(Root("pack", name, array=array, dtype=dtype))
            if name in self.keep and name not in self.late:
                self.pending.append(Root("keep", name, array=self.keep[name]))
            return
        if len(axes) == 2:
            self.scale(op)
            return
        if op.result.type.dtype == "bool" and axes == (s.row,) and self._only_tested(name):
            return
        waiting = {r.op.result.name for r in self.pending if r.op is not None}
        if waiting & self._inputs_of_row(op):
            self.flush()
        self.row(op)

    def reduction(self, op: Reduce) -> Root:
        """The root of a reduction; a maximum of scaled values is the scaled maximum."""
        x = str(op.args[0])
        inner = self.defs.get(x)
        if op.fn != "sum" and x in self.factors:
            return Root("reduce", x, op=op, factor=self.factors[x])
        if op.fn != "sum" and isinstance(inner, Map) and inner.fn == "mul" and x not in self.keep:
            for y, c in (inner.args, inner.args[::-1]):
                if (
                    isinstance(c, float)
                    and 0.0 < c < math.inf
                    and isinstance(y, str)
                    and self.scope.axes(y) == self.scope.axes(x)
                ):
                    return Root("reduce", y, op=op, factor=c)
        return Root("reduce", x, op=op)

    def _inputs_of_row(self, op: Op) -> set[str]:
        return set(names_in(operands(op)))

    def _only_tested(self, name: str) -> bool:
        users = [o for o in walk(self.block.middle) if name in operands(o)]
        return all(isinstance(o, Reduce) and o.fn == "all" for o in users)

    def row(self, op: Op) -> None:
        """A scalar or row value; a sum of parts stays one."""
        if isinstance(op, Map) and op.result.type.axes == (self.structure.row,):
            parts = [x in self.partial for x in op.args]
            linear = (op.fn == "add" and all(parts)) or (op.fn == "mul" and sum(parts) == 1)
            if linear:
                self.partial.add(op.result.name)
                self.scope.declare(op)
                return
        for x in names_in(operands(op)):
            self.total(x)
        self.scope.declare(op)

    def total(self, x: str) -> None:
        """Adds up the parts of a sum, once."""
        if x not in self.partial:
            return
        self.partial.discard(x)
        part = self.scope.values[x].text
        name = self.names.fresh(f"{part}_total")
        self.out.add(f"float {name}[2]; ROWS {name}[r] = quad_sum({part}[r]);")
        self.scope.values[x] = Expression(name, "float")

    def scale(self, op: Op) -> None:
        """An accumulator times a row value, in place. In the first window it is 0."""
        assert isinstance(op, Map)
        for x, f in (op.args, op.args[::-1]):
            slot = self.slot_of.get(str(x))
            if slot is None or not self.structure.slots[slot].width:
                continue
            self.slot_of[op.result.name] = slot
            if self.first:
                return
            waiting = {r.op.result.name for r in self.pending if r.op is not None}
            if str(f) in waiting:
                self.flush()
            array = self.registers.slots[slot]
            if self.scope.axes(f) == (self.structure.row,):
                self.total(str(f))
                self.out.add(
                    f"scale({array}, {self.scope.values[str(f)].text});{self.scope.comment(op)}"
                )
                return
            factor = self.scope.operand(f, None).real().text
            name = self.names.fresh("factor")
            self.out.add(f"const float {name}[2] = {{{factor}, {factor}}}; scale({array}, {name});")
            return
        raise Refused(f"{op.result.name} scales no accumulator")

    # ---- loops over a fragment

    def flush(self) -> None:
        """Writes the loop over the fragment that makes all pending roots."""
        if not self.pending:
            return
        roots, self.pending = self.pending, []
        loop = FragmentLoop(self, roots)
        loop.write()

    # ---- branches

    def branch(self, op: If) -> None:
        """A relaxed `if`: each warp decides for its rows. In the first window the exact arm is taken."""
        rows = [
            (k, v)
            for k, v in enumerate(op.results)
            if v.type.axes == (self.structure.row,) and v.name in self.needed
        ]
        for _, v in rows:
            name = self.names.of(v.name)
            self.scope.values[v.name] = Expression(name, "float")
            self.out.add(f"float {name}[2];")
        if self.first:
            with self.out.block(""):
                self.arm(op.orelse, rows)
        else:
            test = " & ".join(
                [self.condition(op.cond), *(f"({r} <= TANH_REACH)" for r in self.reaches)]
            )
            with self.out.block(f"if (__builtin_expect(__all_sync(FULL, {test}), 1))", "} else {"):
                self.arm(op.then, rows)
            self.out.depth += 1
            self.exact(op.orelse, rows)
            self.out.depth -= 1
            self.out.add("}")
        end = op.orelse[-1]
        assert isinstance(end, Yield)
        for v, y in zip(op.results, end.values, strict=True):
            if str(y) in self.slot_of:
                self.slot_of[v.name] = self.slot_of[str(y)]

    def exact(self, body: Body, rows: list[tuple[int, Value]]) -> None:
        """The arm that is right for all values; it computes again what was computed for small ones only."""
        arrays, self.rough = dict(self.arrays), False
        self.pending += [Root("keep", n, array=self.keep[n]) for n in self.late if n in self.needed]
        self.flush()
        self.arm(body, rows)
        self.arrays, self.rough = arrays, True

    def arm(self, body: Body, rows: list[tuple[int, Value]]) -> None:
        """One arm: its ops, then its results."""
        values, partial = dict(self.scope.values), set(self.partial)
        self.emit(body)
        end = body[-1]
        assert isinstance(end, Yield)
        for k, v in rows:
            text = self.carried(end.values[k], self.wanted_partial(v.name))
            self.out.add(f"ROWS {self.names.of(v.name)}[r] = {text};")
        self.scope.values = values
        self.partial = partial | {v.name for _, v in rows if self.wanted_partial(v.name)}

    def carried(self, y: Operand, in_parts: bool) -> str:
        """A row value as it is carried on: the total, or in parts, of which one thread may have all."""
        if not in_parts:
            if isinstance(y, str):
                self.total(y)
            return self.scope.operand(y, "row").real().text
        text = self.scope.operand(y, "row").real().text
        return text if y in self.partial else f"((lane & 3) ? 0.f : {text})"

    def wanted_partial(self, name: str) -> bool:
        """Whether a result of a branch becomes a carried value that is kept in parts."""
        return any(
            y == name and k in self.registers.partial for k, y in enumerate(self.block.yields)
        )

    def condition(self, x: Operand) -> str:
        """A test of all rows, for this thread's part: parts of sums are tested against a quarter of the limit."""
        op = self.defs.get(str(x))
        if isinstance(op, Map) and op.fn == "and":
            return " & ".join(self.condition(y) for y in op.args)
        assert isinstance(op, Reduce)
        inner = self.defs[str(op.args[0])]
        assert isinstance(inner, Map) and inner.fn == "le"
        total, limit = inner.args
        assert isinstance(limit, float)
        name = self.scope.values[str(total)].text
        bound = literal(limit / 4 if total in self.partial else limit).text
        return f"({name}[0] <= {bound}) & ({name}[1] <= {bound})"

    # ---- the end of a block

    def finish(self) -> None:
        """The carried row values for the next window."""
        block = self.block
        for k, (arg, y) in enumerate(zip(block.args, block.yields, strict=True)):
            if self.structure.slots[k].width or y == arg:
                continue
            if isinstance(y, str) and y in block.args:
                raise Refused("its carried values change places")
            text = self.carried(y, k in self.registers.partial)
            self.out.add(f"ROWS {self.registers.slots[k]}[r] = {text};")
        for slot, base in block.bases.items():
            if self.slot_of.get(str(base)) != slot:
                raise Refused(
                    f"{base}, which {self.structure.slots[slot].name} begins from, is not its old value"
                )


def _masked(op: Op) -> bool:
    """Whether an op replaces elements by -inf."""
    return isinstance(op, Map) and op.fn == "select" and -math.inf in op.args[1:]


class FragmentLoop:
    """One loop over the blocks of 8 columns of a fragment."""

    def __init__(self, block: BlockEmitter, roots: list[Root]) -> None:
        self.block, self.roots = block, roots
        self.scope, self.out, self.names = block.scope, block.out, block.names
        self.locals: dict[str, Expression] = {}
        self.stored = {r.value: r.array for r in roots if r.what == "keep"}
        self.declared: set[str] = set()
        self.parts: dict[str, str] = {}
        self.reach = ""
        self.mark = 0, 0

    def write(self) -> None:
        """The loop and what follows it: the ends of its reductions."""
        out, s = self.out, self.block.structure
        for r in self.roots:
            self.settle(r.value)
        sums = [r for r in self.roots if r.op is not None]
        for r in sums:
            assert r.op is not None
            identity = IDENTITY[r.op.fn]
            out.add(
                f"float {self.part(r.op)}[4] = {{{', '.join([identity] * 4)}}};{self.scope.comment(r.op)}"
            )
        for r in self.roots:
            if r.what == "keep" and r.array not in self.block.registers.heads:
                out.add(f"float {r.array}[{s.columns // 2}];")
        packed = {
            r.value: self.names.fresh(self.names.of(r.value) + "_four")
            for r in self.roots
            if r.what == "pack"
        }
        self.mark = len(out.lines), out.depth
        out.add("#pragma unroll")
        with out.block(f"for (int c = 0; c < {s.columns // 8}; c++)"):
            for name in packed.values():
                out.add(f"float {name}[4];")
            with out.block("EACH"):
                out.add(f"const int r = x >> 1, {COLUMN} = 8 * c + (x & 1);")
                for root in self.roots:
                    self.element(root, packed)
                for value, array in self.stored.items():
                    e = self.locals[value]
                    bare = (
                        e.product[0] if value in self.block.factors and e.product else e.real().text
                    )
                    out.add(f"{array}[4 * c + x] = {bare};")
            for root in self.roots:
                if root.what == "pack":
                    p = packed[root.value]
                    out.add(
                        f"{root.array}[2 * c] = pack_{root.dtype}({p}[0], {p}[1]); {root.array}[2 * c + 1] = pack_{root.dtype}({p}[2], {p}[3]);"
                    )
        for r in sums:
            self.combine(r)
        for value, array in self.stored.items():
            self.block.arrays[value] = array

    def part(self, op: Reduce) -> str:
        """The name of a thread's four parts of a reduction."""
        name = op.result.name
        if name not in self.parts:
            self.parts[name] = self.names.fresh(f"{self.names.of(name)}_part")
        return self.parts[name]

    def settle(self, x: str) -> None:
        """Adds up the parts of the row sums that an element depends on."""
        op = self.block.defs.get(x)
        if op is None or x in self.block.arrays:
            return
        for y in names_in(operands(op)):
            if y in self.block.partial:
                self.block.total(y)
            elif self.block.structure.stream in self.scope.axes(y):
                self.settle(y)

    def element(self, root: Root, packed: dict[str, str]) -> None:
        """What a root does with an element."""
        if root.what == "keep":
            self.value(root.value)
            return
        fn = root.op.fn if root.op is not None else "sum"
        e = self.guarded(root.value, IDENTITY[fn], root.factor is not None)
        if root.what == "pack":
            self.out.add(f"{packed[root.value]}[x] = {e};")
            return
        assert root.op is not None
        part = f"{self.part(root.op)}[x]"
        self.out.add(f"{part} = {COMBINE[fn].format(part, e)};")

    def guarded(self, name: str, identity: str, bare: bool) -> str:
        """An element, or the identity beyond the axis's end. `bare`: without its factor."""
        value = self.value(name).real()
        e = (
            value.product[0]
            if bare and name in self.block.factors and value.product
            else value.text
        )
        if not self.block.ragged or self.block.cut:
            return e
        key = f"{name} or {identity}"
        if key not in self.locals:
            local = self.names.fresh(self.names.of(name) + "_in")
            self.out.add(f"const float {local} = {COLUMN} < rest ? {e} : {identity};")
            self.locals[key] = Expression(local, "float")
        return self.locals[key].text

    def combine(self, root: Root) -> None:
        """A thread's parts of a reduction into one value per row."""
        assert root.op is not None
        name, fn = self.names.of(root.op.result.name), root.op.fn
        both = COMBINE[fn].format(*(f"{self.part(root.op)}[2 * r{more}]" for more in ("", " + 1")))
        if root.op.result.name not in self.block.partial:
            both = f"{QUAD[fn]}({both})"
        if root.factor is not None:
            both = f"{both} * {literal(root.factor).text}"
        self.out.add(f"float {name}[2]; ROWS {name}[r] = {both};")
        self.scope.values[root.op.result.name] = Expression(name, "float")

    # ---- elements

    def value(self, x: Operand) -> Expression:
        """An element of an operand, computed once per loop."""
        s = self.block.structure
        if not isinstance(x, str):
            return literal(x)
        if x in self.locals:
            return self.locals[x]
        if x == s.stream:
            return Expression("stream_lane", "int", POSITION, 1)
        if x == s.row:
            return Expression("row_i[r]", "int", POSITION)
        array = self.block.arrays.get(x)
        if array is not None and x not in self.stored:
            return self.scaled(x, f"{array}[4 * c + x]")
        axes = self.scope.axes(x)
        if s.stream not in axes:
            return self.scope.operand(x, None)
        return self.computed(x)

    def computed(self, x: str) -> Expression:
        """The element of a value of columns, or of rows and columns, as a local constant."""
        op = self.block.defs.get(x)
        if op is None:
            raise Refused(f"{x} is not known here")
        match op:
            case Map(fn="div") if self.constant(op.args[1]):
                e = pointwise(
                    "div", [self.value(y) for y in op.args], op.result.type.dtype, self.inverse
                )
            case Map(fn="tanh") if self.block.rough and self.block.is_fragment(op):
                e = self.small_tanh(self.value(op.args[0]).real().text)
            case Map():
                args = [self.value(self.bare(x, y)) for y in op.args]
                if x in self.block.cut:
                    side = "&&" if op.args[2] == -math.inf else "||"
                    inside = f"{COLUMN} < rest" if side == "&&" else f"{COLUMN} >= rest"
                    args[0] = Expression(f"({args[0].text} {side} {inside})", "bool")
                e = pointwise(op.fn, args, op.result.type.dtype)
            case Cast():
                e = cast(self.value(op.x), op.to)
            case Load():
                index = [self.value(y) for y in op.index]
                e = self.scope.load(op, index, self.place(op, index))
            case _:
                raise Refused(f"{x} is no pointwise value")
        if e.step:
            self.locals[x] = e
            return e
        if x in self.block.factors:
            name = self.names.fresh(self.names.of(x) + "_x")
            self.declared.add(name)
            self.out.add(f"const float {name} = {e.text};{self.scope.comment(op)}")
            self.locals[x] = self.scaled(x, name)
            return self.locals[x]
        name = self.names.fresh(self.names.of(x) + "_x")
        self.declared.add(name)
        self.out.add(f"const {e.ctype} {name} = {e.text};{self.scope.comment(op)}")
        self.locals[x] = Expression(name, e.kind, e.bits, product=e.product)
        return self.locals[x]

    def small_tanh(self, x: str) -> Expression:
        """A tanh as a polynomial, with the greatest square that it was computed for."""
        if not self.reach:
            self.reach = self.names.fresh("reach")
            self.before(f"float {self.reach} = 0.f;")
            self.block.reaches.append(self.reach)
        square = self.names.fresh("square")
        self.declared.add(square)
        self.out.add(
            f"const float {square} = {x} * {x}; {self.reach} = fmaxf({self.reach}, {square});"
        )
        return Expression(f"tanh_small({x}, {square})", "float")

    def place(self, op: Load, index: list[Expression]) -> str | None:
        """An element by a pointer that is computed before the loop; None where its index is computed in it."""
        inside = {w for e in self.locals.values() for w in re.findall(r"[A-Za-z_]\w*", e.text)}
        inside &= self.declared
        words = [set(re.findall(r"[A-Za-z_]\w*", e.text)) for e in index]
        if any(w & inside for w in words) or not any(e.step for e in index):
            return None
        name = self.names.of(op.tensor)
        pointer = self.names.fresh(f"{name}_at")
        rows = any("r" in w for w in words)
        base = " + ".join(f"(i64)({e.text}) * {name}_stride{k}" for k, e in enumerate(index))
        steps = [f"{e.step} * {name}_stride{k}" for k, e in enumerate(index) if e.step]
        element = ELEMENT[self.scope.dtype(op.tensor)]
        if rows:
            self.before(f"const {element}* {pointer}[2]; ROWS {pointer}[r] = {name} + ({base});")
        else:
            self.before(f"const {element}* const {pointer} = {name} + ({base});")
        return f"{pointer}{'[r]' if rows else ''}[{COLUMN} * ({' + '.join(steps)})]"

    def before(self, line: str) -> None:
        """A line before the loop."""
        at, depth = self.mark
        self.out.lines.insert(at, "  " * depth + line)
        self.mark = at + 1, depth

    def bare(self, x: str, y: Operand) -> Operand:
        """The operand `y` of a masked value `x`; without the factor that is applied later."""
        inner = self.block.defs.get(str(y))
        if (
            x not in self.block.factors
            or y == -math.inf
            or not isinstance(inner, Map)
            or inner.fn != "mul"
        ):
            return y
        return next((z for z in inner.args if z != self.block.factors[x]), y)

    def scaled(self, x: str, text: str) -> Expression:
        """A stored element, times the factor it was stored without."""
        c = self.block.factors.get(x)
        if c is None:
            return Expression(text, "float")
        factor = literal(c).text
        return Expression(f"({text} * {factor})", "float", product=(text, factor))

    def constant(self, x: Operand) -> bool:
        """Whether an operand is a literal other than 0."""
        return isinstance(x, (int, float)) and x != 0

    def inverse(self, e: Expression) -> str:
        """1 / e, folded when it is compiled."""
        return f"(1.f / {e.text})"
