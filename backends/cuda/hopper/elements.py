"""Rows and elements of tiles that the loading warps compute: rows of pieces, a piece being 8 adjacent columns, 16 bytes of a
tile.

Each thread of a warp computes what one row needs: where it begins in memory, its factors. Values of columns alone are made
once, before the rows. Elements are expressions of both, in C; rounded, eight at a time, they go to their swizzled places.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.expression import (
    COLUMN,
    ELEMENT,
    POSITION,
    Expression,
    cast,
    literal,
    loaded,
)
from tilec.backends.cuda.hopper.pieces import PIECE, Pieces
from tilec.backends.cuda.hopper.pointwise import pointwise
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.staging import Staged, share
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.dataflow import definitions
from tilec.ir import Cast, Load, Map, Op, Operand, operands
from tilec.scalar import Scalar


class Elements:
    """Writes the rows and elements of a tile that `warps` warps compute together."""

    def __init__(
        self, scope: Scope, tile: Tile, warps: int, staging: Sequence[Staged] = ()
    ) -> None:
        """`staging`: what of all tiles is staged."""
        self.scope, self.out, self.names = scope, scope.out, scope.names
        self.staged = [x for x in staging if x.tile == tile.name]
        self.share = share(tile.rows, tile.width, warps)
        self.tile, self.rows, self.warps = tile, tile.rows, warps
        self.defs = definitions(tile.ops)
        self.pieces = -(-tile.width // 16) * 2
        self.lanes = self.share.lanes
        self.loaded = Pieces(scope.axes, tile)
        loads = [op for op in tile.ops if isinstance(op, Load)]
        self.adjacent = [op for op in loads if self.loaded.adjacent(op)]
        self.columns: dict[str, Expression] = {}
        self.own: dict[str, Expression] = {}
        self.given: dict[str, Expression] = {}
        self.elements: dict[str, Expression] = {}
        self.loads: dict[str, str] = {}
        self.whole = False
        self.first_column = ""
        self.places = ""
        self.asking = False

    def begin(self, whole: bool) -> None:
        """Nothing is known yet of the rows of a loop. `whole`: as there."""
        self.whole = whole
        self.columns, self.own, self.given, self.loads = {}, {}, {}, {}

    @property
    def is_single(self) -> bool:
        """Whether a thread has one piece of a row only."""
        return self.pieces <= self.lanes

    @property
    def is_copy(self) -> bool:
        """Whether pieces are those of a tensor as they stand."""
        return self.whole and self.tile.copied and self.tile.ops[-1] in self.adjacent

    @property
    def is_bytes(self) -> bool:
        """Whether pieces are bytes of a tensor, which become 16-bit numbers two at a time."""
        op = self.bytes_loaded
        signed = op is not None and op.result.type.dtype == "i8" and op in self.adjacent
        return self.whole and signed and self.tile.width % 16 == 0

    @property
    def bytes_loaded(self) -> Op | None:
        """The load that a tile is, but for a conversion."""
        op = self.tile.ops[-1]
        return self.defs.get(str(op.x)) if isinstance(op, Cast) else op

    def dense(self, op: Load) -> str:
        """The test whether the pieces of a load are 8 elements side by side, and aligned."""
        name = self.names.of(op.tensor)
        along = self.loaded.along(op)
        strides = [f"{name}_stride{k}" for k in range(len(op.index)) if k != along]
        return f"is_whole({', '.join([name, f'{name}_stride{along}', *strides])})"

    # ---- what is made once

    def is_column(self, op: Op) -> bool:
        """Whether an op's result changes along a row only."""
        return op.result.type.axes == (self.tile.feature,)

    def is_line(self, op: Op) -> bool:
        """Whether an op's result is the same along a row."""
        return self.tile.feature not in op.result.type.axes

    def uses(self) -> set[str]:
        """The values that elements are computed from; the places of pieces are computed with the row."""
        out = set[str]()
        for op in self.tile.ops:
            if not self.is_line(op) and (op not in self.adjacent or not self.whole):
                out |= {x for x in operands(op) if isinstance(x, str)}
        return out

    def make_columns(self) -> None:
        """The values of columns that elements are made of: 8 of each."""
        others = [op for op in self.tile.ops if not self.is_column(op) and op not in self.adjacent]
        wanted = {x for op in others for x in operands(op)} & set(self.defs)
        for op in self.tile.ops:
            name = op.result.name
            if name not in wanted or not self.is_column(op):
                continue
            self.elements, self.loads = {}, {}
            array = self.names.fresh(self.names.of(name) + "_eight")
            at = len(self.out.lines)
            with self.out.block(""):
                for x in self.adjacent:
                    if self.is_column(x) and x.result.name in self.below(name):
                        self.load_column(x)
                self.out.add("#pragma unroll")
                with self.out.block(f"for (int {COLUMN} = 0; {COLUMN} < {PIECE}; {COLUMN}++)"):
                    self.first_column = f"{PIECE} * piece"
                    e = self.element(name).whole()
                    self.out.add(f"{array}[{COLUMN}] = {e.text};")
            self.out.lines.insert(at, "  " * self.out.depth + f"{e.ctype} {array}[{PIECE}];")
            self.columns[name] = Expression(f"{array}[{COLUMN}]", e.kind, e.bits)

    def load_column(self, op: Load) -> None:
        """A piece of a tensor without rows."""
        name, along = self.names.of(op.tensor), self.loaded.along(op)
        checks, place = self.place(op, self.line)
        start = self.first(op.index[along]).text
        length = self.scope.scalar_expression(self.scope.dims(op.tensor)[along]).text
        test = " && ".join([*checks, f"{start} < {length}"])
        load = self.names.fresh(self.names.of(op.result.name) + "_load")
        element = ELEMENT[self.scope.dtype(op.tensor)]
        self.out.add(
            f"const Piece<{element}> {load} = whole_piece({test} ? {name} + ({place}) + {start} : nullptr);"
        )
        self.loads[op.result.name] = load

    def below(self, x: str) -> set[str]:
        """What a value is computed from here, itself included."""
        op = self.defs.get(x)
        if op is None:
            return set()
        return {x}.union(*(self.below(y) for y in operands(op) if isinstance(y, str)))

    def own_row(self, origin: str, batch: int) -> None:
        """The row of a batch that a thread looks at, and what it needs."""
        out, axis = self.out, self.tile.axis
        out.add(f"const int own_spot = {origin} + first_line + lane;   // {axis}")
        own = f"lane < {batch} && " if batch < 32 else ""
        out.add(f"const bool own_inside = {own}own_spot < {self.scope.extent(axis).text};")
        self.lines()

    def lines(self) -> None:
        """What this thread's row of the batch needs: its values, and where it begins in each tensor."""
        for op in self.tile.ops:
            if self.is_line(op):
                name = self.names.fresh(self.names.of(op.result.name) + "_own")
                e = self.computed(op, [self.line(x) for x in operands(op)])
                self.out.add(f"const {e.ctype} {name} = {e.text};{self.scope.comment(op)}")
                self.own[op.result.name] = Expression(name, e.kind, e.bits)
        for op in self.adjacent if self.whole else []:
            if not self.is_column(op):
                self.row_of(op)

    def line(self, x: Operand) -> Expression:
        """An operand that does not change along this thread's row."""
        if not isinstance(x, str):
            return literal(x)
        if x == self.tile.axis:
            return Expression("own_spot", "int", POSITION)
        return self.own[x] if x in self.own else self.scope.operand(x)

    def row_of(self, op: Load) -> None:
        """Where the row begins in a tensor; null where it is out of range."""
        name, element = self.names.of(op.tensor), ELEMENT[self.scope.dtype(op.tensor)]
        checks, place = self.place(op, self.line)
        row = self.names.fresh(self.names.of(op.result.name) + "_row")
        test = " && ".join(["own_inside", *checks])
        if self.is_copy or self.asking:
            at = f"{test} ? (u64)({name} + ({place})) : (u64){name} + NO_ROW"
            self.out.add(f"const u64 {row} = {at};")
        else:
            at = f"{test} ? {name} + ({place}) : nullptr"
            self.out.add(f"const {element}* const {row} = {at};{self.scope.comment(op)}")
        self.own[op.result.name] = Expression(row, "int")

    def place(self, op: Load, at: Callable[[Operand], Expression]) -> tuple[list[str], str]:
        """Where a row begins, and the tests whether it is there."""
        name, along = self.names.of(op.tensor), self.loaded.along(op)
        self.scope.used_pointers[op.tensor] = None
        checks, terms = list[str](), list[str]()
        for k, (x, dim) in enumerate(zip(op.index, self.scope.dims(op.tensor), strict=True)):
            if k == along:
                continue
            e = at(x).whole()
            if not self.is_sure(x, dim):
                checks.append(
                    f"(u64)(i64)({e.text}) < (u64){self.scope.scalar_expression(dim).text}"
                )
            terms.append(f"(i64)({e.text}) * {name}_stride{k}")
        return checks, " + ".join(terms) or "0"

    # ---- a piece

    def source(self) -> None:
        """The thread that knows the row of a piece, and which one it is."""
        each = 32 // self.lanes
        self.out.add(
            f"const int source = step * {each} + lane / {self.lanes}, line = first_line + source;"
        )

    def settle(self, origin: str) -> None:
        """Where the row is, and its values from the thread that computed them."""
        self.out.add(f"const int spot = {origin} + line;")
        self.out.add(f"const bool inside = spot < {self.scope.extent(self.tile.axis).text};")
        used = self.uses()
        for op in self.tile.ops:
            name = op.result.name
            if self.is_line(op) and name in used:
                e = self.own[name]
                here = self.names.fresh(self.names.of(name) + "_here")
                self.out.add(f"const {e.ctype} {here} = __shfl_sync(FULL, {e.text}, source);")
                self.given[name] = Expression(here, e.kind, e.bits)

    def some(self) -> str:
        """The test whether a thread's piece is one of the tile's."""
        lone = self.pieces % self.lanes == 0
        return f"{'' if lone else f'piece < {self.pieces} && '}line < {self.rows}"

    def piece_place(self, part: int) -> str:
        """Where a piece is in a part of the tile."""
        more = f" + {part * self.tile.slabs * self.rows * 128}" if part else ""
        return f"piece_place<{self.rows}>(tile_place{more}, line, piece)"

    def eight(self, origin: str) -> None:
        """The elements of a piece, to their place."""
        self.settle(origin)
        out, eight = self.out, self.names.fresh(self.names.of(self.root) + "_piece")
        out.add(f"float {eight}[{PIECE}];")
        out.add("#pragma unroll")
        with out.block(f"for (int {COLUMN} = 0; {COLUMN} < {PIECE}; {COLUMN}++)"):
            out.add(f"{eight}[{COLUMN}] = {self.rounded(f'{PIECE} * piece')};")
        self.words(eight)

    def widened(self) -> None:
        """A piece of bytes as words, to its place."""
        out, op = self.out, self.bytes_loaded
        assert op is not None
        load = self.loads[op.result.name]
        words = self.names.fresh("words")
        out.add(f"u32 {words}[4];")
        out.add(f"widen_{self.tile.dtype}({load}, {words});")
        four = ", ".join(f"{words}[{k}]" for k in range(4))
        out.add(f"if ({self.some()}) shared_piece({self.piece_place(0)}, {four});")

    def words(self, eight: str) -> None:
        """The 8 elements as 16-bit words, in one part or three, to their place."""
        out, t = self.out, self.tile
        names = [self.names.fresh(f"part_{n}") for n in range(t.parts)]
        out.add("u32 " + ", ".join(f"{n}[4]" for n in names) + ";")
        for k in range(4):
            self.packed(f"{eight}[{2 * k}]", f"{eight}[{2 * k + 1}]", [f"{n}[{k}]" for n in names])
        with out.block(f"if ({self.some()})"):
            if t.rounded:
                four = ", ".join(f"{names[0]}[{k}]" for k in range(4))
                out.add(f"probe = {self.watch}(probe, {four});")
            for n, name in enumerate(names):
                four = ", ".join(f"{name}[{k}]" for k in range(4))
                out.add(f"shared_piece({self.piece_place(n)}, {four});")

    def packed(self, a: str, b: str, words: list[str]) -> None:
        """Two elements as a word in each part."""
        if self.tile.parts == 1:
            self.out.add(f"{words[0]} = pack_{self.tile.dtype}({a}, {b});")
        else:
            self.out.add(f"split({a}, {b}, {', '.join(words)});")

    @property
    def watch(self) -> str:
        """The function that takes note of what is not finite."""
        return "watch_f16" if self.tile.dtype == "f16" else "watch"

    @property
    def root(self) -> str:
        """The name of the tile's elements."""
        return self.tile.ops[-1].result.name

    def rounded(self, first: str) -> str:
        """An element, 0 beyond the end of its row and of the rows. `first`: the column that `column` counts from."""
        self.elements, self.first_column = {}, first
        e = self.element(self.root).real().text
        inside = "inside"
        if self.tile.width % 16:
            inside = f"inside && {first} + {COLUMN} < {self.tile.width}"
        return f"{inside} ? {e} : 0.f"

    # ---- indices

    def is_sure(self, x: Operand, dim: Scalar) -> bool:
        """Whether an index is in range: the row's own, which is tested once, or that of a grid axis."""
        if x == self.tile.axis:
            return self.scope.kernel.extents[self.tile.axis] == dim
        return self.scope.in_range(x, dim)

    def first(self, x: Operand) -> Expression:
        """An index at the first column of a piece."""
        if not isinstance(x, str):
            return literal(x)
        if x == self.tile.feature:
            return Expression(f"({PIECE} * piece)", "int", POSITION)
        op = self.defs.get(x)
        if not isinstance(op, Map):
            raise Refused(f"{x} is no place in a row")
        return pointwise(op.fn, [self.first(y) for y in op.args], op.result.type.dtype).whole()

    # ---- elements

    def element(self, x: Operand) -> Expression:
        """An operand at a column of the piece."""
        if not isinstance(x, str):
            return literal(x)
        if x == self.tile.feature:
            return Expression(self.first_column, "int", POSITION, 1)
        if x == self.tile.axis:
            return Expression("spot", "int", POSITION)
        for known in (self.columns, self.given, self.elements):
            if x in known:
                return known[x]
        if x not in self.defs:
            return self.scope.operand(x)
        self.elements[x] = self.local(x)
        return self.elements[x]

    def local(self, x: str) -> Expression:
        """The element of a value that is computed here, as a local constant."""
        op = self.defs[x]
        if x in self.loads:
            return loaded(f"{self.loads[x]}.of[{COLUMN}]", op.result.type.dtype)
        e = self.computed(op, [self.element(y) for y in operands(op)])
        if e.step:
            return e
        name = self.names.fresh(self.names.of(x) + "_x")
        self.out.add(f"const {e.ctype} {name} = {e.text};{self.scope.comment(op)}")
        return Expression(name, e.kind, e.bits)

    def computed(self, op: Op, args: list[Expression]) -> Expression:
        match op:
            case Map():
                return pointwise(op.fn, args, op.result.type.dtype)
            case Cast():
                return cast(args[0], op.to)
            case Load():
                return self.scope.load(op, [a.whole() for a in args])
            case _:
                raise Refused(f"a {op.word} is no pointwise op")
