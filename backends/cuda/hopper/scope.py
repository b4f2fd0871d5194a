"""What generated code can name, and the scalars and row values that it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.expression import (
    POSITION,
    Expression,
    cast,
    literal,
    loaded,
)
from tilec.backends.cuda.hopper.labels import Label
from tilec.backends.cuda.hopper.once import Once
from tilec.backends.cuda.hopper.pointwise import pointwise
from tilec.backends.cuda.hopper.structure import Structure
from tilec.backends.cuda.hopper.writer import Lines, Names
from tilec.dtypes import DType
from tilec.ir import (
    Cast,
    Edge,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Type,
    operands,
)
from tilec.scalar import Scalar

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


class Scope:
    """What generated code can name at a place: scalars, row values, positions. Shared by all roles."""

    def __init__(self, structure: Structure, out: Lines, names: Names, held: int = 2) -> None:
        self.structure, self.kernel = structure, structure.kernel
        self.held = held  # the rows of which a thread has elements
        self.out, self.names = out, names
        self.values: dict[str, Expression] = {}
        self.used_pointers: dict[str, None] = {}
        self.paired: dict[str, tuple[int, int]] = {}
        self.labels: dict[object, tuple[Label, str]] = {}  # where this thread's labels are
        self.ends: Once | None = None  # what is computed once for all windows of a tile
        self.whole = False  # whether all positions of the present window are on the axis
        self.inside = False  # whether the present row is on its axis
        self.types: dict[str, Type] = {n: v.type for n, v in self.kernel.values.items()}
        for d in self.kernel.dims:
            self.values[d] = Expression(names.of(d), "int", POSITION)
        for a in self.kernel.arguments.values():
            self.values[a.name] = Expression(names.of(a.name), a.type)

    def once(self, text: str, made_of: tuple[Operand, ...]) -> str:
        """An integer of some operands, by its name where it is computed once for all windows of a tile."""
        return text if self.ends is None else self.ends.of(text, made_of)

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
            e = self.value(op)
            self.values[op.result.name] = Expression(name, e.kind, e.bits)
            self.out.add(f"const {e.ctype} {name} = {e.text};{self.comment(op)}")
            return
        if axes != (self.structure.row,):
            raise Refused(f"{op.result.name} is no row value")
        e = self.value(op)
        self.values[op.result.name] = Expression(name, e.kind, e.bits)
        self.out.add(f"{e.ctype} {name}[{self.held}]; ROWS {name}[r] = {e.text};{self.comment(op)}")

    def value(self, op: Op) -> Expression:
        """The expression of an op: of a scalar, or of a row value inside ROWS."""
        match op:
            case Map():
                return pointwise(op.fn, [self.operand(x) for x in op.args], op.result.type.dtype)
            case Cast():
                return cast(self.operand(op.x), op.to)
            case Load():
                return self.load(op, [self.operand(x) for x in op.index])
            case Edge():
                return self.edge(op)
            case _:
                raise Refused(f"a {op.word} is no pointwise op")

    def operand(self, x: Operand) -> Expression:
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
        self.inside = True
        element = self.at_row(op.args[0], defs)
        self.inside = False
        ctype = element.ctype
        if ctype not in OVER_ROWS[op.fn]:
            raise Refused(f"{op.result.name} is a {op.fn} of {ctype} over rows")
        both, identity = OVER_ROWS[op.fn][ctype]
        out.add(f"{ctype} {name} = {identity};{self.comment(op)}")
        rows, last = self.structure.rows, f"{self.extent(self.structure.row).text} - 1"
        # loads can be under way together; nothing else is worth the code
        out.add("#pragma unroll" if self.loads(op.args[0], defs) else "#pragma unroll 1")
        with out.block(f"for (int part = 0; part < {-(-rows // 32)}; part++)"):
            # the last row once more changes nothing, and no thread asks before it loads
            at = f"origin + least<int>(32 * part + (threadIdx.x & 31), {rows - 1})"
            out.add(f"const int row = least<int>({at}, {last});")
            out.add(f"{name} = {both.format(name, element.text)};")
        if ctype == "int":
            out.add(f"{name} = __reduce_{op.fn}_sync(FULL, {name});")
        else:
            with out.block("for (int other = 16; other; other /= 2)"):
                # a variable of its own: && and || must not keep a thread from the shuffle
                out.add(f"const {ctype} got = __shfl_xor_sync(FULL, {name}, other);")
                out.add(f"{name} = {both.format(name, 'got')};")
        self.values[op.result.name] = Expression(name, element.kind, element.bits)

    def loads(self, x: Operand, defs: Mapping[str, Op]) -> bool:
        """Whether a row value is computed from elements of tensors."""
        op = defs.get(x) if isinstance(x, str) else None
        if op is None or not op.result.type.axes:
            return False
        return isinstance(op, Load) or any(self.loads(y, defs) for y in operands(op))

    def at_row(self, x: Operand, defs: Mapping[str, Op]) -> Expression:
        """A row value at the row `row`, with what it is computed from."""
        if x == self.structure.row:
            return Expression("row", "int", POSITION)
        op = defs.get(x) if isinstance(x, str) else None
        if op is None or not op.result.type.axes:
            return self.operand(x)
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

    def load(
        self,
        op: Load,
        index: list[Expression],
        place: str | None = None,
        inside: Callable[[Expression, Expression], str | None] = lambda e, bound: None,
    ) -> Expression:
        """An element of a tensor; 0 out of range. `place`: the element where that is written down already. `inside`: a short
        test that an index is in range, where there is one."""
        dims = self.dims(op.tensor)
        name = self.names.of(op.tensor)
        self.used_pointers[op.tensor] = None
        checks: list[str] = []
        terms: list[str] = []
        for k, (x, e, dim) in enumerate(zip(op.index, index, dims, strict=True)):
            bound = self.scalar_expression(dim)
            axis = isinstance(x, str) and x in self.kernel.extents
            short = None if axis else inside(e, bound)
            e = e.whole()
            if short is not None:
                checks.append(short)
            elif not self.in_range(x, dim):
                checks.append(
                    f"{e.text} < {bound.text}"
                    if axis
                    else f"(u64)(i64)({e.text}) < (u64){bound.text}"
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
        if not isinstance(x, str) or x not in self.kernel.extents:
            return False
        if x == s.row:
            return self.inside and self.kernel.extents[x] == dim
        if x != s.stream and x not in dict(s.grid.axes):
            return False
        if x == s.stream and not self.whole:
            return False
        return self.kernel.extents[x] == dim

    def stride(self, tensor: str, k: int) -> str:
        """The stride of a dimension. Buffers lie in memory without gaps."""
        made = tensor not in self.kernel.tensors and tensor in self.types
        last = made and k == len(self.types[tensor].axes) - 1
        return "1" if last else f"{self.names.of(tensor)}_stride{k}"

    def dims(self, tensor: str) -> tuple[Scalar, ...]:
        """The dimensions of a parameter, output or buffer."""
        if tensor in self.kernel.tensors:
            return self.kernel.tensors[tensor].dims
        for o in self.kernel.outputs:
            if o.name == tensor:
                return tuple(self.kernel.extents[a] for a in o.axes)
        return tuple(self.kernel.extents[a] for a in self.types[tensor].axes)

    def dtype(self, tensor: str) -> DType:
        """The element type of a parameter, output or buffer."""
        if tensor in self.kernel.tensors:
            return self.kernel.tensors[tensor].dtype
        for o in self.kernel.outputs:
            if o.name == tensor:
                return o.dtype
        return self.types[tensor].dtype
