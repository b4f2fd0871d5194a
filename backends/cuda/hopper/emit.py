"""Writes the CUDA kernel of a plan.

The text reads like the tile IR: the user's axis names are its variables, and each line says which op it is and where in
the program it comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files

from tilec.backends.cuda.hopper.epilogue import Epilogue
from tilec.backends.cuda.hopper.expression import ELEMENT
from tilec.backends.cuda.hopper.fragments import BlockEmitter, Registers, Scope
from tilec.backends.cuda.hopper.plan import (
    Acquire,
    Advance,
    Compute,
    End,
    First,
    Hear,
    Issue,
    Loop,
    Plan,
    Query,
    Release,
    Settle,
    Step,
    Stream,
    Turn,
    announcing,
    ending,
    padded,
    split,
)
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.structure import Block, Structure, Tile
from tilec.backends.cuda.hopper.text import Lines, Names
from tilec.dataflow import backward, definitions, names_in
from tilec.ir import If, Load, Map, Op, Operand, Reduce, Store, Yield, operands


@dataclass(frozen=True)
class Map_:
    """A tensor map argument: which dimension runs along the 64 columns, which along the rows of a box.

    `slabs`: the columns are cut into slabs of 64, as a dimension of their own, `box_slabs` of them per copy.
    """

    tensor: str
    feature: int
    row: int
    rows: int
    width: int
    slabs: bool


@dataclass(frozen=True)
class Parameter:
    """An argument of the kernel. `kind`: map, pointer, stride, dim, scalar, counter, redo."""

    kind: str
    name: str
    ctype: str
    map: Map_ | None = None
    dim: int = 0


@dataclass(frozen=True)
class Source:
    """A kernel's text, and how it is launched."""

    name: str
    text: str
    threads: int
    shared: int
    parameters: tuple[Parameter, ...]
    names: dict[str, str]
    plan: Plan

    @property
    def watched(self) -> bool:
        """Whether the kernel may ask for another one that is exact about what is absent."""
        return self.plan.structure.watched


def emit(plan: Plan) -> Source:
    """The CUDA source of a plan. Raises Refused for an op that has no fast form."""
    return _Kernel(plan).source()


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


class _Kernel:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.s, self.schedule = plan, plan.structure, plan.schedule
        self.kernel = self.s.kernel
        self.out, self.names = Lines(), Names()
        for p in (*self.kernel.tensors, *(o.name for o in self.kernel.outputs), *self.kernel.dims):
            self.names.of(p)
        for a in self.kernel.axes:
            self.names.of(a.name)
        self.scope = Scope(self.s, self.out, self.names)
        self.maps: dict[str, Parameter] = {}
        last = self.s.blocks[-1]
        inits = {h.init for h in last.heads}
        self.registers = Registers(
            tuple(self.names.of(h.name) for h in last.heads if h.name not in inits),
            tuple(
                self.names.fresh(self.names.of(x) + "_packed")
                for x in dict.fromkeys(t.x for t in last.tails)
            ),
            tuple(self.names.of(x.name) for x in self.s.slots),
            partial_slots(self.s),
        )
        self.others = [(a, n) for a, n in self.s.grid.axes if a != self.s.row]

    # ---- the whole text

    def source(self) -> Source:
        body = self.out
        body.depth = 1
        self.set_up()
        with body.block("if (group == 0)"):
            self.load_role()
        with body.block("else"):
            self.compute_role()
        parameters = self.parameters()
        name = self.names.of(self.kernel.name)
        head = Lines()
        head.add(f"// {self.kernel.name}: schedule {self.schedule}")
        head.add(files("tilec.backends.cuda.hopper").joinpath("hopper.cuh").read_text("utf-8"))
        head.add(self.instructions())
        args = ",\n    ".join(f"{p.ctype} {p.name}" for p in parameters)
        head.add(
            f'extern "C" __global__ void __launch_bounds__({self.schedule.threads}, 1) {name}(\n    {args}) {{'
        )
        text = str(head) + str(body) + "}\n"
        return Source(
            name,
            text,
            self.schedule.threads,
            self.plan.shared,
            parameters,
            dict(self.names.known),
            self.plan,
        )

    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's arguments, in order."""
        out = list(self.maps.values())
        stored = {op.tensor for op in self.s.epilogue if isinstance(op, Store)}
        for t in self.scope.used_pointers:
            name = self.names.of(t)
            const = "" if t in stored else "const "
            out.append(
                Parameter("pointer", t, f"{const}{ELEMENT[self.scope.dtype(t)]}* __restrict__")
            )
            for k in range(len(self.scope.dims(t))):
                out.append(Parameter("stride", f"{name}_stride{k}", "const i64", dim=k))
        out += [Parameter("dim", self.names.of(d), "const int") for d in self.kernel.dims]
        types = {"int": "const i64", "float": "const float", "bool": "const bool"}
        out += [
            Parameter("scalar", self.names.of(a.name), types[a.type])
            for a in self.kernel.arguments.values()
        ]
        if self.schedule.order == "longest":
            out.append(Parameter("counter", "counter", "u32* __restrict__"))
        if self.s.watched:
            out.append(Parameter("redo", "redo", "u32* __restrict__"))
        return tuple(out)

    def instructions(self) -> str:
        """The wgmma instructions and the loops over the contracted axis that the kernel needs."""
        out: list[str] = []
        types = {h.key.dtype for h in self.s.blocks[0].heads}
        for t in sorted(types):
            out.append(_wgmma_shared(self.s.columns, t))
        widths = {
            (padded(self.s.slots[t.slot].width), t.value.dtype) for t in self.s.blocks[0].tails
        }
        for n, t in sorted(widths):
            out.append(_wgmma_registers(n, t))
        for t in sorted(types | {t for _, t in widths}):
            out.append(
                _LOOPS.replace("TYPE", t)
                if t in types and t in {x for _, x in widths}
                else (_LOOP_ROWS if t in types else _LOOP_COLUMNS).replace("TYPE", t)
            )
        return "\n".join(out)

    # ---- shared by the roles

    def address(self, room: str) -> str:
        """The address of a room in shared memory."""
        return f"shared + {self.plan.rooms[room].offset}"

    def barrier(self, name: str, index: str) -> str:
        """The address of a barrier."""
        return f"shared + {self.plan.barriers[name][0]} + 8 * {index}"

    def set_up(self) -> None:
        """Barriers, and the grid's tiles."""
        out = self.out
        out.add("extern __shared__ __align__(1024) unsigned char memory[];")
        out.add("const u32 shared = shared_address(memory);")
        out.add("const int group = __shfl_sync(FULL, threadIdx.x >> 7, 0);")
        with out.block("if (threadIdx.x == 0)"):
            for name, (offset, count, copies) in self.plan.barriers.items():
                out.add(
                    f"for (int n = 0; n < {copies}; n++) barrier_init(shared + {offset} + 8 * n, {count});   // {name}"
                )
            out.add("barriers_ready();")
        out.add("__syncthreads();")
        size = self.s.rows
        out.add(
            f"const int row_tiles = ({self.scope.extent(self.s.row).text} + {size - 1}) / {size};"
        )
        heads = " * ".join(f"({self.scope.extent(a).text})" for a, _ in self.others) or "1"
        out.add(f"const int heads = {heads};")
        out.add("const int tiles = row_tiles * heads;")

    def locate(self) -> None:
        """From the number of a tile to positions on the grid's axes."""
        out, c = self.out, self.schedule
        if c.order == "longest":
            out.add(
                f"const int section = tile / (row_tiles * {c.section}), place = tile - section * row_tiles * {c.section};"
            )
            out.add(f"const int width = least<int>({c.section}, heads - section * {c.section});")
            out.add(f"int head = section * {c.section} + place % width;")
            out.add(f"const int origin = (row_tiles - 1 - place / width) * {self.s.rows};")
        else:
            out.add("int head = tile / row_tiles;")
            out.add(f"const int origin = (tile - head * row_tiles) * {self.s.rows};")
        for k, (a, _) in reversed(list(enumerate(self.others))):
            name = self.names.of(a)
            self.scope.values[a] = _position(name)
            if k == 0:
                out.add(f"const int {name} = head;")
            else:
                extent = self.scope.extent(a).text
                out.add(f"const int {name} = head % ({extent}); head /= {extent};")

    def scalars(self, roots: set[str]) -> None:
        """The scalars of the prologue that some operands need."""
        prologue = [*self.s.top, *self.s.prologue]
        defs = definitions(prologue)
        cut = {n: op for n, op in defs.items() if isinstance(op, Reduce)}
        plain = {n: op for n, op in defs.items() if n not in cut}
        needed = set(roots)
        while (more := backward(needed, plain) | self.inside(needed, cut, defs)) - needed:
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

    def bounds(self) -> None:
        """For each loop its first position and its number of windows."""
        n = self.s.columns
        for k, loop in enumerate(self.s.loops):
            start = self.scope.operand(0 if loop.start is None else loop.start, None)
            stop = self.scope.extent(self.s.stream)
            if loop.stop is not None:
                stop = self.scope.operand(loop.stop, None)
            self.out.add(f"const int start_{k} = (int)({start.text});")
            self.out.add(
                f"const int windows_{k} = ((int)greatest<i64>(0, {stop.text} - start_{k}) + {n - 1}) / {n};"
            )

    def bound_roots(self) -> set[str]:
        """What the bounds of the loops depend on."""
        return set(names_in(x for f in self.s.loops for x in (f.start, f.stop) if x is not None))

    def test_roots(self) -> set[str]:
        """What the tests of windows depend on."""
        return {x for ops in self.s.tests for op in ops for x in names_in(operands(op))}

    def next_tile(self) -> None:
        """Goes on to the next tile of a computing warpgroup."""
        if self.schedule.order == "static":
            self.out.add("tile += gridDim.x; turn++;")
            return
        room = self.plan.rooms["tile"]
        out = self.out
        out.add(f"wait({self.barrier('tile_full', '(turn & 1)')}, (turn >> 1) & 1);")
        out.add(
            f"tile = __shfl_sync(FULL, shared_get(shared + {room.offset} + 4 * (turn & 1)), 0);"
        )
        out.add(f"if (lane == 0) arrive({self.barrier('tile_free', '(turn & 1)')});")
        out.add("turn++;")

    # ---- the loading warpgroup

    def load_role(self) -> None:
        out = self.out
        out.add(f"fewer_registers<{self.schedule.loader}>();")
        out.add("const int warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);")
        saved = dict(self.scope.values)
        together = self.s.together
        if together:
            out.add("const int lane = threadIdx.x & 31;")
        one = "" if together else " && (threadIdx.x & 31) == 0"
        for k, tiles in enumerate(self.plan.loaders):
            with out.block(f"{'else ' if k else ''}if (warp == {k}{one})"):
                for t in tiles:
                    if t.axis == self.s.stream:
                        out.add(f"Cursor<{self.schedule.stages}> {t.name}_next(1);")
                out.add("int tile = blockIdx.x;")
                out.add("int turn = 0;")
                with out.block("while (tile < tiles)"):
                    self.load_tile(tiles)
                    self.load_next(k)
            self.scope.values = dict(saved)

    def load_tile(self, tiles: tuple[Tile, ...]) -> None:
        out = self.out
        self.locate()
        streamed = [t for t in tiles if t.axis == self.s.stream]
        coordinates = {x for t in tiles for x in names_in(t.index)}
        if not streamed:
            self.scalars(coordinates)
            lone = "if (lane == 0) " if self.s.together else ""
            with out.block(f"{lone}for (int w = 0; w < {self.schedule.warpgroups}; w++)"):
                out.add(f"wait({self.barrier('query_free', 'w')}, (turn & 1) ^ 1);")
                total = sum(self.plan.rooms[t.name].bytes for t in tiles)
                out.add(f"expect({self.barrier('query_full', 'w')}, {total});")
                for t in tiles:
                    self.copy(
                        t,
                        f"{self.address(t.name)} + w * {self.plan.rooms[t.name].bytes}",
                        self.barrier("query_full", "w"),
                        "origin + w * 64",
                        ROWS,
                    )
            return
        self.scalars(coordinates | self.bound_roots() | self.test_roots())
        self.bounds()
        for k in range(len(self.s.loops)):
            if self.s.chosen:
                self.tested(k, streamed)
                continue
            out.add("#pragma unroll 1")
            with out.block(f"for (int n = 0; n < windows_{k}; n++)"):
                out.add(f"const int window = start_{k} + n * {self.s.columns};")
                for t in streamed:
                    with out.block("if (lane == 0)" if self.s.together else ""):
                        self.window_in(t, None)
                    out.add(f"{t.name}_next.step();")
        if self.s.chosen and any(t.name == announcing(self.s).ring for t in streamed):
            self.last_word(announcing(self.s).ring)

    def window_in(self, t: Tile, word: str | None) -> None:
        """The copy of a window into the next stage, with word of what it is."""
        cursor = f"{t.name}_next"
        self.out.add(f"wait({self.barrier(t.name + '_free', cursor + '.stage')}, {cursor}.parity);")
        full = self.barrier(t.name + "_full", cursor + ".stage")
        if word is not None:
            self.out.add(f"shared_put({self.word(cursor)}, {word});")
        self.out.add(f"expect({full}, {t.bytes});")
        self.copy(t, f"{self.address(t.name)} + {cursor}.stage * {t.bytes}", full, "window", t.rows)

    def word(self, cursor: str) -> str:
        """Where the word of a stage is."""
        return f"shared + {self.plan.rooms['word'].offset} + 4 * {cursor}.stage"

    def tested(self, k: int, streamed: list[Tile]) -> None:
        """The windows of a loop that count: each thread of the warp tests one of 32, then they are copied in order."""
        out, s = self.out, self.s
        with out.block(f"for (int first = 0; first < windows_{k}; first += 32)"):
            out.add("int block = -1;")
            saved = dict(self.scope.values)
            with out.block(f"if (first + lane < windows_{k})"):
                out.add(f"const int window = start_{k} + (first + lane) * {s.columns};")
                for op in s.tests[k]:
                    self.scope.declare(op)
                for n, b in enumerate(s.blocks):
                    if b.number == k:
                        parts = [
                            f"{'' if yes else '!'}{self.scope.operand(c, None).text}"
                            for c, yes in b.choice
                        ]
                        out.add(f"if ({' && '.join(parts) or 'true'}) block = {n};")
            self.scope.values = saved
            with out.block(
                "for (u32 left = __ballot_sync(FULL, block >= 0); left; left &= left - 1)"
            ):
                out.add(
                    "const int from = __ffs(left) - 1, chosen = __shfl_sync(FULL, block, from);"
                )
                out.add(f"const int window = start_{k} + (first + from) * {s.columns};")
                with out.block("if (lane == 0)"):
                    for t in streamed:
                        heard = t.name == announcing(s).ring
                        self.window_in(t, f"window << {self.bits} | chosen" if heard else None)
                for t in streamed:
                    out.add(f"{t.name}_next.step();")

    @property
    def bits(self) -> int:
        """The bits of a word that say which block it is."""
        return 2 if len(self.s.blocks) <= 4 else 3

    def last_word(self, ring: str) -> None:
        """A stage without a copy, which says that the tile is at its end."""
        cursor = f"{ring}_next"
        with self.out.block("if (lane == 0)"):
            self.out.add(
                f"wait({self.barrier(ring + '_free', cursor + '.stage')}, {cursor}.parity);"
            )
            self.out.add(f"shared_put({self.word(cursor)}, -1);")
            self.out.add(f"arrive({self.barrier(ring + '_full', cursor + '.stage')});")
        self.out.add(f"{cursor}.step();")

    def load_next(self, warp: int) -> None:
        """The next tile: warp 0 takes it from the counter and tells the others."""
        out = self.out
        if self.schedule.order == "static":
            out.add("tile += gridDim.x; turn++;")
            return
        slot = f"shared + {self.plan.rooms['tile'].offset} + 4 * (turn & 1)"
        full, free = (
            self.barrier("tile_full", "(turn & 1)"),
            self.barrier("tile_free", "(turn & 1)"),
        )
        together = self.s.together
        if warp == 0:
            with out.block("if (lane == 0)" if together else ""):
                out.add("const u32 taken = atomicAdd(counter, 1u);")
                out.add(
                    "if (taken == (u32)tiles - 1) *counter = 0;   // the last one of this launch leaves it ready for the next"
                )
                out.add("tile = taken + gridDim.x;")
                out.add(f"wait({free}, ((turn >> 1) & 1) ^ 1);")
                out.add(f"shared_put({slot}, tile);")
                out.add(f"arrive({full});")
            if together:
                out.add("tile = __shfl_sync(FULL, tile, 0);")
        else:
            out.add(f"wait({full}, (turn >> 1) & 1);")
            out.add(f"tile = shared_get({slot});")
            if together:
                out.add("__syncwarp();   // all have read it")
            out.add(f"{'if (lane == 0) ' if together else ''}arrive({free});")
        out.add("turn++;")

    def copy(self, t: Tile, to: str, full: str, position: str, rows: int) -> None:
        """The copies that bring a tile: one with the slabs as a dimension, or one per slab."""
        m = self.map(t, rows)
        others = [self.scope.operand(x, None) for x in t.index if x not in (t.axis, t.feature)]
        rest = "".join(f", (int)({e.text})" for e in others)
        if m.map is not None and m.map.slabs:
            self.out.add(f"copy_in({to}, &{m.name}, {full}, 0, {position}, 0{rest});")
            return
        for k in range(t.slabs):
            self.out.add(
                f"copy_in({to} + {k * rows * 128}, &{m.name}, {full}, {64 * k}, {position}{rest});"
            )

    def map(self, t: Tile, rows: int) -> Parameter:
        """The tensor map argument of a tile."""
        slabs = t.width % 64 == 0 and len(t.index) < 5
        m = Map_(t.tensor, t.index.index(t.feature), t.index.index(t.axis), rows, t.width, slabs)
        if t.name not in self.maps:
            name = self.names.fresh(f"{t.name}_map")
            self.maps[t.name] = Parameter("map", name, "const __grid_constant__ TensorMap", m)
        return self.maps[t.name]

    # ---- a computing warpgroup

    def compute_role(self) -> None:
        out, c, s = self.out, self.schedule, self.s
        _, high = c.registers
        out.add(f"more_registers<{high}>();")
        out.add("const int w = group - 1;")
        out.add("const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;")
        for t in s.queries:
            out.add(
                f"const u64 {t.name}_rows = rows_descriptor({self.address(t.name)} + w * {self.plan.rooms[t.name].bytes});"
            )
        ahead, late = self.rings()
        for t in s.rings:
            if t.name in ahead:
                out.add(
                    f"const u64 {t.name}_rows = rows_descriptor({self.address(t.name)}); Cursor<{c.stages}> {t.name}_ahead(0);"
                )
            if t.name in late:
                slab = t.rows * 128
                out.add(
                    f"const u64 {t.name}_columns = columns_descriptor({self.address(t.name)}, {slab}); Cursor<{c.stages}> {t.name}_late(0);"
                )
        for name in self.registers.heads:
            out.add(f"float {name}[{s.columns // 2}];")
        for name in self.registers.weights:
            out.add(f"u32 {name}[{s.columns // 4}];")
        for x, name in zip(s.slots, self.registers.slots, strict=True):
            if x.width:
                out.add(f"float {name}[{padded(x.width) // 2}];")
        if c.pingpong:
            out.add(
                f"if (w == {c.warpgroups - 1}) named_arrive(1, 256);   // the first turn is that of warpgroup 0"
            )
        out.add("int tile = blockIdx.x;")
        out.add("int turn = 0;")
        with out.block("while (tile < tiles)"):
            self.compute_tile()
            self.next_tile()
        if c.store == "tma":
            out.add("if ((threadIdx.x & 127) == 0) copy_finish();")

    def rings(self) -> tuple[set[str], set[str]]:
        """The rings that heads and that tails read."""
        b = self.s.blocks[0]
        return {h.key.name for h in b.heads}, {t.value.name for t in b.tails}

    def compute_tile(self) -> None:
        out, s = self.out, self.s
        self.locate()
        out.add(
            f"int row_i[2]; ROWS row_i[r] = origin + w * 64 + warp * 16 + (lane >> 2) + 8 * r;   // {s.row}"
        )
        needed = set() if s.chosen else self.bound_roots()
        for b in s.blocks:
            needed |= {x for op in _all(b.middle) for x in names_in(operands(op))}
        needed |= {x for op in s.epilogue for x in names_in(operands(op))}
        self.scalars(needed)
        if not s.chosen:
            self.bounds()
        for x, name in zip(s.slots, self.registers.slots, strict=True):
            if x.width:
                out.add(f"clear({name});")
            else:
                init = self.scope.operand(x.init, "row").real().text
                out.add(f"float {name}[2]; ROWS {name}[r] = {init};")
        if s.chosen:
            out.add("int word;")
            self.step(announcing(s))
            some = "word >= 0"
        else:
            some = " + ".join(f"windows_{k}" for k in range(len(s.blocks))) + " > 0"
            out.add("int " + ", ".join(f"begin_{k} = 0" for k in range(len(s.blocks))) + ";")
        with out.block(f"if ({some})"):
            for step in self.plan.steps:
                self.step(step)
        with out.block("else"):
            self.step(Query(True))
            self.step(Query(False))
        if s.chosen:
            self.step(ending(s))
        Epilogue(self.scope, self.plan, self.registers, self.maps).write()

    # ---- steps

    def step(self, step: Step) -> None:
        """One step of the plan."""
        out = self.out
        match step:
            case Query(begin=True):
                out.add(f"wait({self.barrier('query_full', 'w')}, turn & 1);")
            case Query():
                out.add(f"if (lane == 0) arrive({self.barrier('query_free', 'w')});")
            case Acquire():
                cursor = f"{step.ring}_{'late' if step.late else 'ahead'}"
                out.add(
                    f"wait({self.barrier(step.ring + '_full', cursor + '.stage')}, {cursor}.parity);"
                )
            case Release():
                cursor = f"{step.ring}_{'late' if step.late else 'ahead'}"
                out.add(
                    f"if (lane == 0) arrive({self.barrier(step.ring + '_free', cursor + '.stage')});"
                )
                out.add(f"{cursor}.step();")
            case Advance():
                out.add(f"{step.ring}_ahead.step();")
            case Issue(what="heads"):
                self.issue_heads()
            case Issue():
                self.issue_tails()
            case Settle():
                self.settle(step)
            case Turn(begin=True):
                out.add("named_sync(1 + w, 256);")
            case Turn():
                out.add(
                    f"named_arrive(1 + (w + 1 == {self.schedule.warpgroups} ? 0 : w + 1), 256);"
                )
            case Compute():
                self.compute(step)
            case First():
                self.first(step)
            case Hear():
                cursor = f"{step.ring}_ahead"
                out.add(
                    f"wait({self.barrier(step.ring + '_full', cursor + '.stage')}, {cursor}.parity);"
                )
                out.add(f"word = __shfl_sync(FULL, shared_get({self.word(cursor)}), 0);")
            case Stream():
                self.stream(step)
            case End():
                cursor = f"{step.ring}_{'late' if step.late else 'ahead'}"
                out.add(
                    f"if (lane == 0) arrive({self.barrier(step.ring + '_free', cursor + '.stage')});"
                )
                out.add(f"{step.ring}_ahead.step();" + (f" {cursor}.step();" if step.late else ""))
            case Loop():
                out.add("#pragma unroll 1")
                with out.block(f"for (int n = begin_{step.block}; n < windows_{step.block}; n++)"):
                    self.window(step.block, "n")
                    for inner in step.steps:
                        self.step(inner)

    def first(self, step: First) -> None:
        """The first window of a tile, in whichever loop has it."""
        for inner in step.shared:
            self.step(inner)
        last = len(step.blocks) - 1
        for k, steps in enumerate(step.blocks):
            head = "if" if k == 0 else "else if"
            test = self.is_block(k) if self.s.chosen else f"windows_{k} > 0"
            with self.out.block("else" if k == last and k else f"{head} ({test})"):
                if not self.s.chosen:
                    self.out.add(f"begin_{k} = 1;")
                self.window(k, "0")
                for inner in steps:
                    self.step(inner)

    def is_block(self, k: int) -> str:
        """The test whether the word is of a block."""
        return f"(word & {(1 << self.bits) - 1}) == {k}"

    def stream(self, step: Stream) -> None:
        """The windows after the first one, until the word that there are no more."""
        self.out.add("#pragma unroll 1")
        with self.out.block("while (true)"):
            self.step(step.hear)
            self.out.add("if (word < 0) break;")
            last = len(step.blocks) - 1
            for k, steps in enumerate(step.blocks):
                head = "if" if k == 0 else "else if"
                with self.out.block("else" if k == last and k else f"{head} ({self.is_block(k)})"):
                    self.window(k, "")
                    for inner in steps:
                        self.step(inner)

    def window(self, block: int, n: str) -> None:
        """Where the window is, and where this thread's columns in it are."""
        s = self.s
        at = f"word >> {self.bits}" if s.chosen else f"start_{block} + {n} * {s.columns}"
        self.out.add(
            f"const int window = {at}, stream_lane = window + 2 * (lane & 3);   // {s.stream}"
        )
        if s.blocks[block].loop.ragged:
            self.out.add(f"const int rest = {self.scope.extent(s.stream).text} - stream_lane;")

    def compute(self, step: Compute) -> None:
        """The ops between heads and tails."""
        block = self.s.blocks[step.block]
        before, after = split(block)
        if step.part != "after":
            self.saved = dict(self.scope.values)
            self.emitter = BlockEmitter(
                self.scope, block, self.registers, block.loop.ragged, step.first
            )
        if step.part in ("before", "all"):
            self.emitter.begin()
            self.emitter.emit(before)
        if step.part in ("after", "all"):
            self.emitter.emit(after)
            self.emitter.finish()
            self.scope.values = self.saved

    def issue_heads(self) -> None:
        """S = Q Kᵀ, or several such; what adds to a head goes on in its registers."""
        out, b = self.out, self.s.blocks[0]
        out.add("group_fence();")
        for name in (*self.registers.heads,):
            out.add(f"pin({name});")
        arrays: dict[str, str] = {}
        free = iter(self.registers.heads)
        ends = [h for h in b.heads if h.name not in {x.init for x in b.heads}]
        for h in ends:
            chain = [h]
            while chain[0].init is not None:
                chain.insert(0, next(x for x in b.heads if x.name == chain[0].init))
            array = next(free)
            for n, x in enumerate(chain):
                arrays[x.name] = array
                steps = -(-x.key.width // 16)
                stage = f"(u64)({x.key.name}_ahead.stage * {x.key.bytes >> 4})"
                out.add(
                    f"rows_by_rows_{x.key.dtype}<{steps}, {ROWS * 128}, {x.key.rows * 128}, {str(n > 0).lower()}>"
                    f"({array}, {x.query.name}_rows, {x.key.name}_rows + {stage});"
                    f"   // {x.name} = contract({x.query.name}, {x.key.name}, over={x.key.feature})"
                )
        out.add("group_commit();")

    def issue_tails(self) -> None:
        """O += P V."""
        out, b = self.out, self.s.blocks[0]
        out.add("group_fence();")
        weights = dict(
            zip(dict.fromkeys(t.x for t in b.tails), self.registers.weights, strict=True)
        )
        for t in b.tails:
            out.add(f"pin({self.registers.slots[t.slot]});")
        for name in self.registers.weights:
            out.add(f"pin({name});")
        for t in b.tails:
            stage = f"(u64)({t.value.name}_late.stage * {t.value.bytes >> 4})"
            out.add(
                f"weights_by_columns_{t.value.dtype}<{self.s.columns // 16}>({self.registers.slots[t.slot]}, {weights[t.x]}, "
                f"{t.value.name}_columns + {stage});   // {self.s.slots[t.slot].name} += contract({t.x}, {t.value.name}, over={self.s.stream})"
            )
        out.add("group_commit();")

    def settle(self, step: Settle) -> None:
        """Waits for groups; what they wrote or read may be used from here on."""
        out = self.out
        out.add(f"group_wait<{step.pending}>();")
        if "heads" in step.done:
            for name in self.registers.heads:
                out.add(f"pin({name});")
        if "tails" in step.done:
            for t in {t.slot: t for t in self.s.blocks[0].tails}.values():
                out.add(f"pin({self.registers.slots[t.slot]});")
            for name in self.registers.weights:
                out.add(f"pin({name});")


def _all(ops: tuple[Op, ...]) -> list[Op]:
    out: list[Op] = []
    for op in ops:
        out.append(op)
        if isinstance(op, If):
            out += [*_all(op.then), *_all(op.orelse)]
    return out


def _position(name: str) -> object:
    from tilec.backends.cuda.hopper.expression import POSITION, Expression

    return Expression(name, "int", POSITION)


# ---- instructions


def _registers(n: int, start: int = 0) -> str:
    return ", ".join(f"%{i + start}" for i in range(n))


def _wgmma_shared(n: int, dtype: str) -> str:
    count = n // 2
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""template<int ADD> DEVICE void wgmma_{dtype}(float (&d)[{count}], u64 a, u64 b) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{{_registers(count)}}}, %{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}\\n"
    : {outs} : "l"(a), "l"(b), "n"(ADD));
}}
"""


def _wgmma_registers(n: int, dtype: str) -> str:
    count = n // 2
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""DEVICE void wgmma_{dtype}(float (&d)[{count}], u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{{_registers(count)}}}, {{%{count}, %{count + 1}, %{count + 2}, %{count + 3}}}, %{count + 4}, 1, 1, 1, 1;\\n"
    : {outs} : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b));
}}
"""


_LOOP_ROWS = """// d += a · bᵀ over STEPS times 16 of the contracted axis; slabs of 64 are SLAB_A and SLAB_B bytes apart
template<int STEPS, int SLAB_A, int SLAB_B, bool ADD, int N> DEVICE void rows_by_rows_TYPE(float (&d)[N], u64 a, u64 b) {
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    const u64 x = a + (u64)(((k / 4) * SLAB_A + (k % 4) * 32) >> 4), y = b + (u64)(((k / 4) * SLAB_B + (k % 4) * 32) >> 4);
    if (k == 0 && !ADD) wgmma_TYPE<0>(d, x, y); else wgmma_TYPE<1>(d, x, y);
  }
}
"""
_LOOP_COLUMNS = """// d += p · v over STEPS times 16 rows of v
template<int STEPS, int N, int M> DEVICE void weights_by_columns_TYPE(float (&d)[N], u32 (&p)[M], u64 v) {
#pragma unroll
  for (int k = 0; k < STEPS; k++) wgmma_TYPE(d, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], v + (u64)((k * 2048) >> 4));
}
"""
_LOOPS = _LOOP_ROWS + _LOOP_COLUMNS


__all__ = ["Load", "Parameter", "Source", "emit"]
