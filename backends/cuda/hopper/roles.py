"""What the roles of a kernel share: addresses in shared memory, and where a tile and its loops are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, Protocol

from tilec.backends.cuda.hopper.analysis import Registers
from tilec.backends.cuda.hopper.expression import ELEMENT, POSITION, Expression
from tilec.backends.cuda.hopper.labels import RING
from tilec.backends.cuda.hopper.plan import Plan
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.sections import shared_along
from tilec.backends.cuda.hopper.source import Parameter
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.backends.cuda.hopper.writer import Lines, Names
from tilec.dataflow import backward, definitions, names_in
from tilec.ir import If, Map, Op, Operand, Reduce, Store, Yield, operands


class Ordered(Protocol):
    """What a schedule says about the order of the tiles."""

    @property
    def order(self) -> Literal["static", "longest"]: ...
    @property
    def section(self) -> int: ...
    @property
    def late(self) -> int: ...


class Places:
    """Where a tile and its loops are, and the names of what a thread holds. `held`: see `Scope`."""

    def __init__(self, structure: Structure, ordered: Ordered, held: int = 2) -> None:
        self.s, self.ordered = structure, ordered
        self.kernel = self.s.kernel
        self.out, self.names = Lines(), Names()
        for p in (*self.kernel.tensors, *(o.name for o in self.kernel.outputs), *self.kernel.dims):
            self.names.of(p)
        for a in self.kernel.axes:
            self.names.of(a.name)
        self.scope = Scope(self.s, self.out, self.names, held)
        self.maps: dict[str, Parameter] = {}
        last = self.s.blocks[-1]
        inits = {h.init for h in last.heads}
        self.registers = Registers(
            tuple(self.names.of(h.name) for h in last.heads if h.name not in inits),
            tuple(
                self.names.fresh(self.names.of(x) + "_packed")
                for x in dict.fromkeys(t.x for t in last.tails)
                for _ in range(self.s.weight_parts)
            ),
            tuple(self.names.of(x.name) for x in self.s.slots),
            partial_slots(self.s),
        )
        shared = shared_along(self.s)
        others = [(a, n) for a, n in self.s.grid.axes if a != self.s.row]
        self.others = sorted(others, key=lambda x: x[0] in shared)  # the last one changes first

    @property
    def places(self) -> list[str]:
        """The variables that say where a tile is: its first row, and its place on each other axis of the grid."""
        return ["origin", *(self.names.of(a) for a, _ in self.others)]

    @property
    def most_heads(self) -> str:
        """The heads of a section."""
        return str(self.ordered.section)

    def argument(self, p: Parameter) -> str:
        """The name of an argument in the text: a tensor is a parameter by its own name, which may be taken there."""
        return self.names.of(p.name) if p.kind == "pointer" else p.name

    def plain_parameters(self) -> list[Parameter]:
        """The arguments that are tensors whose elements are named, with their strides, dimensions and scalars."""
        out: list[Parameter] = []
        stored = {op.tensor for op in self.s.epilogue if isinstance(op, Store)}
        for t in self.scope.used_pointers:
            const = "" if t in stored else "const "
            element = ELEMENT[self.scope.dtype(t)]
            out.append(Parameter("pointer", t, f"{const}{element}* __restrict__"))
            for k in range(len(self.scope.dims(t))):
                name = f"{self.names.of(t)}_stride{k}"
                out.append(Parameter("stride", name, "const i64", dim=k))
        out += [Parameter("dim", self.names.of(d), "const int") for d in self.kernel.dims]
        types = {"int": "const i64", "float": "const float", "bool": "const bool"}
        for a in self.kernel.arguments.values():
            out.append(Parameter("scalar", self.names.of(a.name), types[a.type]))
        return out

    def dealing_parameters(self) -> tuple[Parameter, ...]:
        """The arguments that say which tiles are dealt out together: a launch knows how long heads are."""
        return (
            Parameter("section", "most_heads", "const int", dim=self.ordered.section),
            Parameter("late", "late_rows", "const int", dim=self.ordered.late),
        )

    def name_places(self) -> None:
        """The program's names for the places of a tile."""
        for a, _ in self.others:
            self.scope.values[a] = Expression(self.names.of(a), "int", POSITION)

    def locate(self) -> None:
        """From the number of a tile to its places."""
        out = self.out
        if self.ordered.order == "longest":
            self.locate_in_section()
        else:
            out.add("int head = tile / row_tiles;")
            out.add(f"origin = (tile - head * row_tiles) * {self.s.rows};")
        for k, (a, _) in reversed(list(enumerate(self.others))):
            name = self.names.of(a)
            if k == 0:
                out.add(f"{name} = head;")
            else:
                extent = self.scope.extent(a).text
                out.add(f"{name} = head % ({extent}); head /= {extent};")

    def locate_in_section(self) -> None:
        """From the number of a tile to its head and its first row, where sections come first, and late rows behind them."""
        out, most = self.out, self.most_heads
        out.add("const int late = late_rows * heads;")
        out.add("int place = row_tiles * heads - 1 - tile;   // so that the last section is whole")
        out.add("int head = 0, width = heads, row = 0;")
        with out.block("if (place >= late)"):
            out.add(f"const int tall = row_tiles - late_rows, whole = tall * {most};")
            out.add("place -= late;")
            out.add(f"head = place / whole * {most};")
            out.add("place %= whole;")
            out.add(f"width = least<int>({most}, heads - head);")
            out.add("row = late_rows;")
        out.add("head += place % width;")
        out.add(f"origin = (row + place / width) * {self.s.rows};")

    def scalars(self, roots: set[str]) -> None:
        """The scalars of the prologue that some operands need."""
        prologue = [*self.s.top, *self.s.prologue]
        defs = definitions(prologue)
        cut: dict[str, Op] = {n: op for n, op in defs.items() if isinstance(op, Reduce)}
        plain = {n: op for n, op in defs.items() if n not in cut}
        needed = set(roots)
        while True:
            more = backward(needed, plain)
            more |= {x for n in more for x in names_in(operands(plain[n])) if x in cut}
            more |= self.inside(needed, cut, defs)
            if more <= needed:
                break
            needed |= more
        for op in prologue:
            if op.result.name not in needed:
                continue
            if isinstance(op, Reduce):
                self.scope.over_rows(op, defs)
            else:
                self.scope.declare(op)

    def inside(self, names: set[str], cut: dict[str, Op], defs: dict[str, Op]) -> set[str]:
        """The scalars that the reductions over rows among some names need."""
        below = backward(names & set(cut), defs)
        return {x for n in below for x in names_in(operands(defs[n])) if self.scope.axes(x) == ()}

    def bounds(self, declared: bool = False) -> None:
        """For each loop its first position and its number of windows."""
        n, const = self.s.columns, "" if declared else "const int "
        for k, loop in enumerate(self.s.loops):
            begin = "0" if loop.start is None else f"(int){self.within(loop.start)}"
            end = self.within(loop.stop)
            self.out.add(f"{const}start_{k} = {begin};")
            self.out.add(
                f"{const}windows_{k} = ((int)greatest<i64>(0, {end} - start_{k}) + {n - 1}) / {n};"
            )

    def within(self, x: Operand | None) -> str:
        """A position of the streamed axis, none beyond its end: data may say that a loop begins far behind it."""
        extent = self.scope.extent(self.s.stream).text
        return extent if x is None else f"least<i64>({self.scope.operand(x).text}, {extent})"

    def bound_roots(self) -> set[str]:
        """What the bounds of the loops depend on."""
        return set(names_in(x for f in self.s.loops for x in (f.start, f.stop) if x is not None))

    def test_roots(self) -> set[str]:
        """What the tests of windows depend on."""
        return {x for ops in self.s.tests for op in ops for x in names_in(operands(op))}

    def ways(self, k: int) -> Iterator[tuple[int, str]]:
        """The blocks that windows of a loop may take, by number, and the test that leads to each."""
        for n, b in enumerate(self.s.blocks):
            for choice in (c for number, c in b.choices if number == k):
                tests = [f"{'' if yes else '!'}{self.scope.operand(x).text}" for x, yes in choice]
                yield n, " && ".join(tests) or "true"

    @property
    def bits(self) -> int:
        """The bits of a word that say which block it is; the next one says whether it is the tile's last."""
        return 2 if len(self.s.blocks) <= 4 else 3


class Roles(Places):
    """What the loading and the computing warpgroups share."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.structure, plan.schedule)
        self.plan, self.schedule = plan, plan.schedule

    def address(self, room: str) -> str:
        """The address of a room in shared memory."""
        return f"shared + {self.plan.rooms[room].offset}"

    def barrier(self, name: str, index: str) -> str:
        """The address of a barrier."""
        return f"shared + {self.plan.barriers[name][0]} + 8 * {index}"

    @property
    def most_heads(self) -> str:
        """The heads of a section: a launch knows how long they are."""
        return "most_heads"

    def queries(self, group: str) -> tuple[str, str]:
        """Which buffer of rows a warpgroup has in this turn, and the parity of its barriers."""
        if not self.plan.chained:
            return group, "(turn & 1)"
        return f"((turn & 1) * {self.schedule.teams} + {group})", "((turn >> 1) & 1)"

    def labels_at(self, cursor: str) -> str:
        """Where a stage of labels is."""
        room = self.plan.rooms[RING]
        return f"shared + {room.offset} + {room.bytes} * {cursor}.stage"

    def word(self, cursor: str) -> str:
        """Where the word of a stage is."""
        return f"shared + {self.plan.rooms['word'].offset} + 4 * {cursor}.stage"


def partial_slots(s: Structure) -> set[int]:
    """The carried sums that may stay in parts: they grow by sums and are multiplied by row values only."""
    out: set[int] = set()
    for k, slot in enumerate(s.slots):
        if slot.width or slot.init != 0.0:
            continue
        if all(_linear(b.yields[k], b.args[k], definitions_of(b)) for b in s.blocks):
            out.add(k)
    return out


def definitions_of(b: Block) -> dict[str, Op]:
    """All ops of a block's middle by their results, branches included."""
    out = definitions(b.middle)
    for op in b.middle:
        if isinstance(op, If):
            out |= definitions(op.then) | definitions(op.orelse)
    return out


def _linear(x: Operand, arg: str, defs: dict[str, Op]) -> bool:
    if x == arg:
        return True
    op = defs.get(str(x))
    match op:
        case Reduce(fn="sum"):
            return True
        case Map(fn="add", args=args):
            return all(_linear(y, arg, defs) for y in args)
        case Map(fn="mul", args=(a, b)):
            return _linear(a, arg, defs) != _linear(b, arg, defs)
        case If(results=results):
            k = [v.name for v in results].index(str(x))
            ends = (op.then[-1], op.orelse[-1])
            return all(isinstance(e, Yield) and _linear(e.values[k], arg, defs) for e in ends)
        case _:
            return False
