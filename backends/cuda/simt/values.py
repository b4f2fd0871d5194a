"""The value of an operand at a point of a stage, as C expressions; what they need is written before them.

A value that may be an absent zero (`marked`) holds the negative zero where it is one, and no negative zero elsewhere. So
absent zeros cost no memory, and arithmetic that does not care takes them for zeros.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tilec.backends.cuda.simt.arguments import Arguments, storage, tensors
from tilec.backends.cuda.simt.functions import Val, apply, cast, convert, decayed, kind_for, literal
from tilec.backends.cuda.simt.memory import SIZES, Tile
from tilec.backends.cuda.simt.writer import Names, Writer
from tilec.backends.windows import Windows
from tilec.functions import DECAYING
from tilec.ieee import Facts
from tilec.ir import Cast, Edge, Kernel, Load, Map, Operand, Store


@dataclass(frozen=True)
class Window:
    """The stretch of an axis that the present tile covers: `count` positions from `first` on, at most `extent`.

    `scalar`: the tile holds one position, and the axis is in no type.
    """

    first: str
    count: str
    extent: int
    scalar: bool = False

    @property
    def full(self) -> bool:
        """Whether the count is known to be the extent."""
        return self.count == str(self.extent)


@dataclass(frozen=True)
class Point:
    """Local positions by axis, as C expressions."""

    at: Mapping[str, str]

    def on(self, axis: str, position: str) -> Point:
        """The point with the position on one axis set."""
        return Point({**self.at, axis: position})


class Evaluator(Windows[Window]):
    """Writes what operands need. `held` are values that exist already: tiles, and scalars as C expressions."""

    def __init__(
        self, kernel: Kernel, facts: Facts, arguments: Arguments, w: Writer, names: Names
    ) -> None:
        super().__init__(kernel)
        self.facts, self.arguments, self.w, self.names = facts, arguments, w, names
        self.defs = facts.defs
        self.real = "double" if kernel.compute == "f64" else "float"
        self.held: dict[str, Tile | Val] = {}
        self.computing: frozenset[str] = frozenset()
        self.memo: list[dict[object, Val]] = [{}]
        self.memory = tensors(kernel)
        self.clock = 0

    # ---- what a name is

    def whole(self, axis: str) -> Window:
        """An axis that no loop moves a window of."""
        extent = self.kernel.extents[axis]
        if isinstance(extent, int):
            return Window("0", str(extent), extent)
        return Window("0", self.arguments.get("extent", axis), 0)

    @contextmanager
    def scope(self, head: str = "", tail: str = "") -> Generator[None]:
        """A block of C; what is evaluated in here is not seen by the code after it."""
        self.memo.append({})
        with self.w.block(head, tail):
            yield
        self.memo.pop()

    def touch(self, tile: Tile) -> None:
        """Notes that a tile is in use."""
        tile.last = max(tile.last, self.clock)

    # ---- values

    def value(self, x: Operand, p: Point) -> Val:
        """The value of an operand at a point."""
        if not isinstance(x, str):
            return literal(x, self.real)
        key = (x, *(p.at.get(a) for a in self.axes(x)))
        for table in reversed(self.memo):
            if key in table:
                return table[key]
        out = self.fresh(x, p)
        self.memo[-1][key] = out
        return out

    def define(self, x: str, p: Point, value: Val) -> None:
        """Sets the value of a name at a point."""
        self.memo[-1][(x, *(p.at.get(a) for a in self.axes(x)))] = value

    def fresh(self, x: str, p: Point) -> Val:
        held = None if x in self.computing else self.held.get(x)
        if isinstance(held, Val):
            return held
        if held is not None:
            return self.read(held, p)
        if x in self.kernel.extents:
            return Val(self.position(x, p), "i64")
        if x in self.kernel.arguments:
            return self.argument(x)
        if x in self.kernel.dims:
            return Val(self.arguments.get("dim", x), "i64")
        op = self.defs[x]
        match op:
            case Edge():
                w = self.window(op.axis)
                last = w.first if w.count == "1" else f"({w.first} + ({w.count} - 1))"
                return Val(w.first if op.which == "first" else last, "i64")
            case Load():
                return self.named(x, self.load(op, p))
            case Map():
                args = [self.value(y, p) for y in op.args]
                plain = op.fn in ("add", "sub") and self.facts.plain(op)
                marked = x in self.facts.absent
                if marked and op.fn in DECAYING and (low := self.origin(op, p)) != args[0]:
                    return self.named(x, decayed(op, args, self.real, low))
                return self.named(x, apply(op, args, self.real, marked, plain))
            case Cast():
                return self.named(
                    x, cast(self.value(op.x, p), op.to, self.real, x in self.facts.absent)
                )
            case _:
                raise AssertionError(f"{x} is not at hand")

    def origin(self, op: Map, p: Point) -> Val | None:
        """What is -inf where an exponential is absent."""
        tiles = {x for x, v in self.held.items() if isinstance(v, Tile)}
        origin = self.facts.origin(op.args[0], tiles - self.computing)
        return None if origin is None else self.value(origin, p)

    def named(self, x: str, value: Val) -> Val:
        """The value under the name that the program gives it."""
        kept = x in self.computing or isinstance(self.held.get(x), Tile)
        ctype = self.real if value.kind == "real" else value.kind
        wanted = self.names.with_suffix(x, "_at") if kept else self.names.of(x)
        name = self.w.declare(ctype, wanted, value.text)
        return Val(name, value.kind, value.marked)

    def argument(self, x: str) -> Val:
        word = self.arguments.get("scalar", x)
        match self.kernel.arguments[x].type:
            case "int":
                return Val(word, "i64")
            case "bool":
                return Val(f"({word} != 0)", "bool")
            case "float":
                return Val(f"({self.real}){word}", "real")

    def position(self, axis: str, p: Point) -> str:
        """The position on an axis."""
        w = self.window(axis)
        if w.scalar:
            return w.first
        return f"(i64){p.at[axis]}" if w.first == "0" else f"({w.first} + {p.at[axis]})"

    # ---- tiles

    def element(self, tile: Tile, p: Point) -> str:
        """A tile's element at a point."""
        self.touch(tile)
        terms: list[str] = []
        for axis in tile.axes:
            step = tile.strides[axis]
            terms.append(p.at[axis] if step == 1 else f"({p.at[axis]}) * {step}")
        return f"{tile.name}[{' + '.join(terms) or '0'}]"

    def read(self, tile: Tile, p: Point) -> Val:
        """A tile's value at a point."""
        text = self.element(tile, p)
        if tile.ctype == self.real:
            return Val(text, "real", tile.marked)
        if tile.ctype in ("i64", "bool"):
            return Val(text, tile.ctype)
        return self.widened(text, tile.ctype, tile.marked)

    def widened(self, text: str, ctype: str, marked: bool = False) -> Val:
        """An element of a storage type in the kind it is computed in."""
        if ctype in ("i64", "i32", "i16", "i8", "u8"):
            return Val(f"tl::widen({text})", "i64")
        if ctype == "b8":
            return Val(f"tl::widen({text})", "bool")
        return Val(f"({self.real})tl::widen({text})", "real", marked)

    def write(self, tile: Tile, p: Point, value: Val) -> None:
        """Sets a tile's element at a point."""
        kind = {"double": "real", "float": "real", "i64": "i64", "bool": "bool"}.get(tile.ctype)
        at = self.element(tile, p)
        if kind is None:
            wide = kind_for_ctype(tile.ctype)
            marked = tile.marked and wide == "real"
            store = "tl::store_marked" if marked else "tl::store"
            text = convert(value, wide, self.real)
            text = f"tl::ordinary({text})" if marked and not value.marked else text
            self.w.line(f"{store}(&{at}, {text});")
            return
        text = convert(value, kind, self.real)
        if tile.marked and not value.marked and kind == "real":
            text = f"tl::ordinary({text})"
        self.w.line(f"{at} = {text};")

    # ---- memory

    def load(self, op: Load, p: Point) -> Val:
        """An element of a tensor; 0 where an index is out of range."""
        ctype = self.stored(op.tensor)
        offset, inside = self.address(op.tensor, op.index, p)
        value = self.widened(f"{self.arguments.get('pointer', op.tensor)}[{offset}]", ctype)
        if not inside:
            return value
        zero = {"real": f"{self.real}(0)", "i64": "i64(0)", "bool": "false"}[value.kind]
        return Val(f"{' && '.join(inside)} ? {value.text} : {zero}", value.kind)

    def address(self, tensor: str, index: tuple[Operand, ...], p: Point) -> tuple[str, list[str]]:
        """The offset of an element, and the conditions under which it exists."""
        terms: list[str] = []
        inside: list[str] = []
        for k, x in enumerate(index):
            at = convert(self.value(x, p), "i64", self.real)
            terms.append(f"{at} * {self.arguments.get('stride', tensor, str(k))}")
            if x not in self.kernel.extents:
                inside.append(f"tl::inside({at}, {self.arguments.get('shape', tensor, str(k))})")
        return " + ".join(terms) or "0", inside

    def along(self, op: Load, axis: str) -> int | None:
        """The dimension of a tensor along which a load has an axis, if it is there as it is, and nowhere else."""
        at = [k for k, x in enumerate(op.index) if axis in self.axes(x)]
        return at[0] if len(at) == 1 and op.index[at[0]] == axis else None

    def in_pieces(self, op: Load, axis: str) -> str:
        """The condition under which what is adjacent on an axis of a load can be read 16 bytes at a time."""
        strides = [self.arguments.get("stride", op.tensor, str(k)) for k in range(len(op.index))]
        dense = strides.pop(op.index.index(axis))
        size = str(SIZES[self.stored(op.tensor)])
        given = [self.arguments.get("pointer", op.tensor), size, dense, *strides]
        return f"tl::in_pieces({', '.join(given)})"

    def stored(self, tensor: str) -> str:
        """The C type of a tensor's elements in memory."""
        return storage(self.memory[tensor][0])

    def store(self, op: Store, p: Point) -> None:
        """Writes a value to a tensor."""
        dtype = self.memory[op.tensor][0]
        value = self.value(op.value, p)
        offset, _ = self.address(op.tensor, op.index, p)
        text = convert(value, kind_for(dtype), self.real)
        text = f"tl::ordinary({text})" if value.marked and kind_for(dtype) == "real" else text
        self.w.line(f"tl::store({self.arguments.get('pointer', op.tensor)} + ({offset}), {text});")


def kind_for_ctype(ctype: str) -> str:
    """The kind in which elements of a storage type are computed."""
    return "i64" if ctype in ("i32", "i16", "i8", "u8") else "bool" if ctype == "b8" else "real"
