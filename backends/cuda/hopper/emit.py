"""Writes the CUDA kernel of a plan.

The text reads like the tile IR: the user's axis names are its variables, and each line says which op it is and where in
the program it comes from.
"""

from __future__ import annotations

from importlib.resources import files

from tilec.backends.cuda.hopper.labels import RING
from tilec.backends.cuda.hopper.once import Once
from tilec.backends.cuda.hopper.plan import RESERVE, Plan
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.slices import Slice, named
from tilec.backends.cuda.hopper.source import REDO, Parameter, Source
from tilec.backends.cuda.hopper.steps import Settle
from tilec.backends.cuda.hopper.streaming import Streaming
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.backends.cuda.hopper.wgmma import instructions
from tilec.backends.cuda.hopper.writer import Lines
from tilec.dataflow import names_in
from tilec.ir import operands, walk


def emit(plan: Plan) -> Source:
    """The CUDA source of a plan. Raises Refused for an op that has no fast form."""
    return _Kernel(plan).source()


class _Kernel(Streaming):
    """Writes the whole text."""

    def source(self) -> Source:
        body = self.out
        body.depth = 1
        self.set_up()
        with body.block("if (group == 0)"):
            self.load_role()
        with body.block("else"):
            self.compute_role()
        self.fetch_maps()
        parameters = self.parameters()
        name = self.names.of(self.s.name)
        head = Lines()
        head.add(f"// {self.kernel.name}: schedule {self.schedule}")
        head.add(files("tilec.backends.cuda.hopper").joinpath("hopper.cuh").read_text("utf-8"))
        head.add(instructions(self.s, self.schedule.slices, self.schedule.share))
        args = ",\n    ".join(f"{p.ctype} {self.argument(p)}" for p in parameters)
        bounds = f"__launch_bounds__({self.schedule.threads}, {self.schedule.blocks})"
        head.add(f'extern "C" __global__ void {bounds} {name}(\n    {args}) {{')
        text = str(head) + str(body) + "}\n"
        return Source(
            name,
            text,
            self.schedule.threads,
            self.plan.shared,
            parameters,
            dict(self.names.known),
            self.s,
            dict(self.scope.paired),
            self.plan,
        )

    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's arguments, in order."""
        out = [*self.maps.values(), *self.plain_parameters()]
        if self.schedule.order == "longest":
            out += self.dealing_parameters()
            out.append(Parameter("counter", "counter", "u32* __restrict__"))
        if self.s.watched:
            out.append(REDO)
        return tuple(out)

    def fetch_maps(self) -> None:
        """Asks for the tensor maps at once, while another warp sets up the barriers."""
        lines = [f"  if (threadIdx.x == 32) fetch_map(&{p.name});" for p in self.maps.values()]
        self.out.lines[:0] = lines

    def set_up(self) -> None:
        """Barriers."""
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
        self.clear_queries()
        out.add("__syncthreads();")
        out.add("in_turn();")

    def clear_queries(self) -> None:
        """Zeros for the rows of products that a short tile does not have: no copy brings them."""
        tiles = self.s.queries
        if self.s.rows >= ROWS or any(t.computed for t in tiles):
            return
        rooms = [self.plan.rooms[t.name] for t in tiles]
        size = sum(x.bytes * x.count for x in rooms)
        self.out.add(f"clear_shared(shared + {rooms[0].offset}, {size});")

    def compute_role(self) -> None:
        """What each computing warpgroup does, tile after tile."""
        out = self.out
        self.prepare_to_compute()
        self.name_places()
        self.hear("int ", alone=False)
        self.steps(self.plan.begin)
        with out.block("while (origin >= 0)"):
            self.compute_tile()
            out.add("origin = next_origin;")
            self.take_tile(self.told[1:], "", alone=False)
        if self.plan.chained:
            self.step(Settle(0, ("heads",)))
        if self.schedule.store == "tma":
            out.add("if ((threadIdx.x & 127) == 0) copy_finish();")

    def prepare_to_compute(self) -> None:
        """Who this thread is, and what it keeps from tile to tile."""
        out, c = self.out, self.schedule
        if c.traded:
            out.add(f"more_registers<{c.registers[1]}>();")
        out.add("const int w = group - 1;")
        if c.slices > 1:
            out.add(named("w", c.warpgroups, c.slices))
        out.add("const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;")
        self.describe_tiles()
        self.declare_registers()
        if c.turns:
            out.add(
                f"if (w == {c.warpgroups - 1}) named_arrive(1, 256);   // the first turn is that of warpgroup 0"
            )
        out.add("int turn = 0;")
        if self.s.chosen:
            out.add("int word;")

    def describe_tiles(self) -> None:
        """The descriptors of tiles in shared memory, and where a thread is in each ring."""
        out, stages = self.out, self.schedule.stages
        for t in self.s.queries:
            place = f"{self.address(t.name)} + {self.team} * {self.plan.rooms[t.name].bytes}"
            out.add(f"const u64 {t.name}_rows = rows_descriptor({place});")
        ahead, late = self.rings()
        for t in self.s.rings:
            if t.name in ahead:
                out.add(f"const u64 {t.name}_rows = rows_descriptor({self.address(t.name)});")
                out.add(f"Cursor<{stages}> {t.name}_ahead(0);")
            if t.name in late:
                place = f"columns_descriptor({self.slice_of(t)}, {t.rows * 128})"
                out.add(f"const u64 {t.name}_columns = {place};")
                out.add(f"Cursor<{stages}> {t.name}_late(0);")
        if self.plan.labels:
            out.add(f"Cursor<{stages}> {RING}_ahead(0);")

    def declare_registers(self) -> None:
        """The arrays of a thread: scores, weights, accumulators."""
        out, s = self.out, self.s
        for name in self.registers.heads:
            out.add(f"float {name}[{s.columns // 2}];")
        for name in self.registers.weights:
            out.add(f"u32 {name}[{s.columns // 4}];")
        for x, name in zip(s.slots, self.registers.slots, strict=True):
            if x.width:
                out.add(f"float {name}[{Slice(x.width, self.schedule.slices).columns // 2}];")

    def slice_of(self, t: Tile) -> str:
        """Where the values are that a warpgroup multiplies: those of its columns."""
        first = Slice(t.width, self.schedule.slices).first_slab
        return (
            f"{self.address(t.name)} + {first} * {t.rows * 128}" if first else self.address(t.name)
        )

    def rings(self) -> tuple[set[str], set[str]]:
        """The rings that heads and that tails read."""
        b = self.s.blocks[0]
        return {h.key.name for h in b.heads}, {t.value.name for t in b.tails}

    def compute_tile(self) -> None:
        out, s, c = self.out, self.s, self.schedule
        out.add(
            f"int row_i[2]; ROWS row_i[r] = origin + {self.team} * 64 + warp * 16 + (lane >> 2) + 8 * r;   // {s.row}"
        )
        needed = set[str]()
        for b in s.blocks:
            needed |= {x for op in walk(b.middle) for x in names_in(operands(op))}
        needed |= {x for op in s.epilogue for x in names_in(operands(op))}
        self.scalars(needed)
        if s.periodic:
            room = c.registers[1] - self.plan.fragments - RESERVE
            known = {*self.scope.values, s.row}
            self.scope.ends = Once(out, self.names, known, room, self.scope.held)
        for x, name in zip(s.slots, self.registers.slots, strict=True):
            if x.width and self.cleared:
                out.add(f"clear({name});")
            elif not x.width:
                init = self.scope.operand(x.init).real().text
                out.add(f"float {name}[2]; ROWS {name}[r] = {init};")
        if not self.cleared:
            out.add("int adding = 0;   // a tile's first tails replace what is in the accumulators")
        if not s.chosen:
            out.add("int " + ", ".join(f"begin_{k} = 0" for k in range(len(s.blocks))) + ";")
        self.steps(self.plan.steps)
        if self.scope.ends is not None:
            self.scope.ends.write()
