"""Writes the CUDA kernel of a plan: a block of threads per tile.

The text reads like the tile IR: the user's axis names are its variables, and each line says which op it is and where in
the program it comes from.
"""

from __future__ import annotations

from importlib.resources import files

from tilec.backends.cuda.ampere.epilogue import Leaving
from tilec.backends.cuda.ampere.loading import Loading
from tilec.backends.cuda.ampere.middle import Middle
from tilec.backends.cuda.ampere.plan import Plan, padded
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.hopper.expression import ELEMENT
from tilec.backends.cuda.hopper.source import Parameter
from tilec.backends.cuda.hopper.structure import Head, Tile
from tilec.backends.cuda.hopper.text import Lines
from tilec.dataflow import names_in
from tilec.ir import Store, operands, walk

SHARED_PARTS = ("numbers", "the four threads", "accumulators")
"""The parts of the Hopper kernels' header that are used here."""


def emit(plan: Plan) -> Source:
    """The CUDA source of a plan. Raises Refused for an op that has no fast form."""
    return _Kernel(plan).source()


def header(held: int) -> str:
    """The device functions. `held`: the rows of which a thread has elements."""
    common = files("tilec.backends.cuda.hopper").joinpath("hopper.cuh").read_text("utf-8")
    first, *parts = common.split("\n// ---- ")
    kept = [p for p in parts if p.startswith(SHARED_PARTS)]
    own = files("tilec.backends.cuda.ampere")
    texts = [own.joinpath(f).read_text("utf-8") for f in ("primitives.cuh", "fragments.cuh")]
    preamble = first[first.index("#pragma") : first.index("struct alignas")]
    return "\n".join(
        [f"#define HELD_ROWS {held}", preamble, *(f"// ---- {p}" for p in kept), *texts]
    )


class _Kernel(Loading):
    """Writes the whole text."""

    def source(self) -> Source:
        c, body = self.schedule, self.out
        body.depth = 1
        self.set_up()
        self.tile()
        parameters = self.parameters()
        name = self.names.of(self.s.name)
        head = Lines()
        head.add(f"// {self.kernel.name}: schedule {c}")
        head.add(header(c.held))
        args = ",\n    ".join(f"{p.ctype} {self.argument(p)}" for p in parameters)
        bounds = f"__launch_bounds__({c.threads}, {c.blocks})"
        head.add(f'extern "C" __global__ void {bounds} {name}(\n    {args}) {{')
        return Source(
            name,
            str(head) + str(body) + "}\n",
            c.threads,
            self.plan.shared,
            parameters,
            dict(self.names.known),
            self.s,
            {},
            self.plan,
            dict(self.wide),
        )

    def argument(self, p: Parameter) -> str:
        """The name of an argument in the text: a tensor is a parameter by its own name, which may be taken there."""
        return self.names.of(p.name) if p.kind == "pointer" else p.name

    def parameters(self) -> tuple[Parameter, ...]:
        """The kernel's arguments, in order."""
        out: list[Parameter] = []
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
        if self.s.watched:
            out.append(Parameter("redo", "redo", "u32* __restrict__"))
        return tuple(out)

    # ---- the tile of a block

    def set_up(self) -> None:
        """Who this thread is, and which tile its block has."""
        out, size = self.out, self.s.rows
        out.add("extern __shared__ __align__(1024) unsigned char memory[];")
        out.add("const u32 shared = shared_address(memory);")
        out.add("const int lane = threadIdx.x & 31, warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);")
        out.add(
            "const u32 corner = (lane & 15) * 128 + (((lane >> 4) ^ (lane & 7)) << 4);   // in 16 rows, for `matrices`"
        )
        out.add(
            "const u32 turned = ((lane & 7) + (lane >> 4) * 8) * 128 + (((lane >> 3 & 1) ^ (lane & 7)) << 4);"
        )
        out.add(
            "const u32 copied = (threadIdx.x >> 3) * 128 + (((threadIdx.x & 7) ^ ((threadIdx.x >> 3) & 7)) << 4);"
        )
        out.add(
            f"const int row_tiles = ({self.scope.extent(self.s.row).text} + {size - 1}) / {size};"
        )
        heads = " * ".join(f"({self.scope.extent(a).text})" for a, _ in self.others) or "1"
        out.add(f"const int heads = {heads};")
        out.add("const int tile = blockIdx.x;")
        out.add(f"int {', '.join(self.places)};")
        self.locate()
        self.name_places()
        first = f"origin + warp * {self.schedule.height} + (lane >> 2)"
        out.add(
            f"int row_i[{self.schedule.held}]; ROWS row_i[r] = {first} + 8 * r;   // {self.s.row}"
        )

    def tile(self) -> None:
        """The whole of a tile."""
        out, s, c = self.out, self.s, self.schedule
        needed = self.bound_roots()
        for b in s.blocks:
            needed |= {x for op in walk(b.middle) for x in names_in(operands(op))}
        needed |= {x for op in s.epilogue for x in names_in(operands(op))}
        needed |= {x for t in (*s.queries, *s.rings) for x in names_in(t.index)}
        self.scalars(needed)
        self.bounds()
        self.declare()
        total = " + ".join(f"windows_{k}" for k in range(len(s.blocks)))
        out.add(f"const int windows = {total};")
        self.window_at()
        for t in (*s.queries, *s.rings):
            self.origin_of(t)
        with out.block("if (windows > 0)"):
            self.begin()
            out.add("int n = 0;" if c.stages == 1 else "int n = 0, stage = 0;")
            self.first()
            for k in s.order:
                out.add("#pragma unroll 1")
                with out.block(f"for (; n < end_{k}; n++)"):
                    self.window(k, False)
        own = sum(self.plan.rooms[q.name].bytes for q in s.queries)
        if self.plan.rooms["out"].bytes > own:
            out.add("__syncthreads();   // the output takes the place of streamed tiles, too")
        Leaving(self.scope, self.plan, self.registers, self.wide).write()

    def declare(self) -> None:
        """What a thread holds of tiles, and the carried row values."""
        out, s, held = self.out, self.s, self.schedule.held
        size = s.columns * held
        for name in self.registers.heads:
            out.add(f"float {name}[{size // 4}];")
        for name in self.registers.weights:
            out.add(f"u32 {name}[{size // 8}];")
        for x, name in zip(s.slots, self.registers.slots, strict=True):
            if x.width:
                out.add(f"float {name}[{padded(x.width) * held // 4}];")
                out.add(f"clear({name});")
            else:
                init = self.scope.operand(x.init, "row").real().text
                out.add(f"float {name}[{held}]; ROWS {name}[r] = {init};")

    def window_at(self) -> None:
        """Where the windows of all loops are, in the order in which they are taken."""
        s = self.s
        with self.out.block("const auto window_at = [&](int n)", "};"):
            for k in s.order[:-1]:
                self.out.add(f"if (n < windows_{k}) return {s.at(k, 'n')};")
                self.out.add(f"n -= windows_{k};")
            self.out.add(f"return {s.at(s.order[-1], 'n')};")

    def begin(self) -> None:
        """The copies of the rows and of the first windows."""
        out, s, c = self.out, self.s, self.schedule
        for q in s.queries:
            self.copy(q, "origin")
        if self.plan.split:
            for t in self.plan.early:
                self.copy(t, "window_at(0)")
            out.add("copies_commit();")
        else:
            for n in range(c.stages - 1):
                with out.block(f"if (windows > {n})" if n else ""):
                    for t in s.rings:
                        self.copy(t, f"window_at({n})", str(n))
                out.add("copies_commit();")
        if c.query == "registers":
            out.add(f"copies_wait<{max(0, c.stages - 2)}>();")
            out.add("__syncthreads();")
        for q in s.queries:
            steps = padded(q.width) // 16
            address = f"{self.address(q.name)} + warp * {c.height * 128}"
            if c.query == "registers":
                out.add(f"u32 {q.name}_held[{steps}][{c.held // 2}][4];")
                out.add("#pragma unroll")
                out.add(
                    f"for (int k = 0; k < {steps}; k++) rows_of<{c.held}>({q.name}_held[k], {address}, corner, {c.rows}, k);"
                )
            else:
                out.add(f"const u32 {q.name}_place = {address};")

    # ---- a window

    def first(self) -> None:
        """The first window, in whichever loop has it, and where the loops end."""
        before = ""
        for place, k in enumerate(self.s.order):
            before += f"{' + ' if place else ''}windows_{k}"
            self.out.add(f"const int end_{k} = {before};")
        for place, k in enumerate(self.s.order):
            head = f"{'else ' if place else ''}if (end_{k} > 0)"
            with self.out.block("else" if 0 < place == len(self.s.order) - 1 else head):
                self.window(k, True)
        self.out.add("n++;")

    def window(self, k: int, first: bool) -> None:
        """The steps of a window of a loop. `first`: the carried values are what they begin with."""
        out, s, c = self.out, self.s, self.schedule
        block = s.blocks[k]
        out.add(
            "const int window = window_at(n), stream_lane = window + 2 * (lane & 3);"
            f"   // {s.stream}"
        )
        if block.loop.ragged:
            out.add(f"const int rest = {self.scope.extent(s.stream).text} - stream_lane;")
        out.add(f"copies_wait<{max(0, c.stages - 2)}>();")
        out.add("__syncthreads();")
        if self.plan.split:
            for t in self.plan.late:
                self.copy(t, "window")
            out.add("copies_commit();")
        else:
            ahead = c.stages - 1
            with out.block(f"if (n + {ahead} < windows)"):
                out.add(
                    f"const int next = window_at(n + {ahead}), free = stage == 0 ? {ahead} : stage - 1;"
                )
                for t in s.rings:
                    self.copy(t, "next", "free")
            out.add("copies_commit();")
        saved = dict(self.scope.values)
        Middle(self.scope, block, self.registers, first, lambda: self.heads(k)).write()
        self.scope.values = saved
        if self.plan.split:
            out.add("copies_wait<0>();")
            out.add("__syncthreads();")
            with out.block("if (n + 1 < windows)"):
                out.add("const int next = window_at(n + 1);")
                for t in self.plan.early:
                    self.copy(t, "next")
            out.add("copies_commit();")
        self.tails(k)
        if not self.plan.split:
            out.add(f"stage = stage == {c.stages - 1} ? 0 : stage + 1;")

    def stage_of(self, t: Tile) -> str:
        """The address of a streamed tile, as `matrices` takes it."""
        stage = "" if self.plan.split else f" + stage * {self.plan.rooms[t.name].bytes}"
        return f"{self.address(t.name)}{stage}"

    def heads(self, k: int) -> None:
        """S = Q Kᵀ, or several such; what adds to a head goes on in its registers."""
        b = self.s.blocks[k]
        ends = [h for h in b.heads if h.name not in {x.init for x in b.heads}]
        for h, array in zip(ends, self.registers.heads, strict=True):
            chain = [h]
            while chain[0].init is not None:
                chain.insert(0, next(x for x in b.heads if x.name == chain[0].init))
            for n, x in enumerate(chain):
                self.head(x, array, n > 0)

    def head(self, h: Head, array: str, adds: bool) -> None:
        """One product of rows with rows."""
        c, columns = self.schedule, self.s.columns
        add = str(adds).lower()
        if c.query == "registers":
            call = f"held_by_rows<{h.key.dtype}, {columns}, {c.held}, {add}>"
            query = f"{h.query.name}_held"
        else:
            steps = padded(h.key.width) // 16
            call = f"rows_by_rows<{h.key.dtype}, {steps}, {c.rows}, {columns}, {c.held}, {add}>"
            query = f"{h.query.name}_place, corner"
        what = f"contract({h.query.name}, {h.key.name}, over={h.key.feature})"
        self.out.add(
            f"{call}({array}, {query}, {self.stage_of(h.key)}, turned);   // {h.name} = {what}"
        )

    def tails(self, k: int) -> None:
        """O += P V."""
        b, c = self.s.blocks[k], self.schedule
        weights = dict(
            zip(dict.fromkeys(t.x for t in b.tails), self.registers.weights, strict=True)
        )
        for t in b.tails:
            call = f"weights_by_columns<{t.value.dtype}, {self.s.columns}, {c.held}>"
            what = f"contract({t.x}, {t.value.name}, over={self.s.stream})"
            args = (
                f"{self.registers.slots[t.slot]}, {weights[t.x]}, {self.stage_of(t.value)}, corner"
            )
            self.out.add(f"{call}({args});   // {self.s.slots[t.slot].name} += {what}")
