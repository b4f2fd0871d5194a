"""Writes the CUDA kernel of a plan: a block of threads per tile.

The text reads like the tile IR: the user's axis names are its variables, and each line says which op it is and where in
the program it comes from.
"""

from __future__ import annotations

from importlib.resources import files

from tilec.backends.cuda.ampere.epilogue import Leaving
from tilec.backends.cuda.ampere.plan import Plan
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.ampere.streaming import Streaming
from tilec.backends.cuda.hopper.slices import Slice, named
from tilec.backends.cuda.hopper.source import REDO, Parameter
from tilec.backends.cuda.hopper.writer import Lines
from tilec.dataflow import names_in
from tilec.ir import operands, walk

SHARED_PARTS = (
    "numbers",
    "pieces of tiles",
    "the four threads",
    "rows of an output",
    "accumulators",
)
"""The parts of the Hopper kernels' header that are used here."""
THREAD = ("(int)threadIdx.x", "again((int)threadIdx.x)")
"""A thread's number: known for good, or read again where registers are dear."""


def emit(plan: Plan) -> Source:
    """The CUDA source of a plan. Raises Refused for an op that has no fast form."""
    return _Kernel(plan).source()


def header(plan: Plan) -> str:
    """The device functions."""
    common = files("tilec.backends.cuda.hopper").joinpath("hopper.cuh").read_text("utf-8")
    first, *parts = common.split("\n// ---- ")
    kept = [p for p in parts if p.startswith(SHARED_PARTS)]
    own = files("tilec.backends.cuda.ampere")
    texts = [own.joinpath(f).read_text("utf-8") for f in ("primitives.cuh", "fragments.cuh")]
    preamble = first[first.index("#pragma") : first.index("struct alignas")]
    return "\n".join(
        [
            f"#define HELD_ROWS {plan.schedule.held}",
            f"#define THREAD {THREAD[plan.tight]}",
            preamble,
            *(f"// ---- {p}" for p in kept),
            *texts,
        ]
    )


class _Kernel(Streaming):
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
        head.add(header(self.plan))
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
        out = self.plain_parameters()
        if self.schedule.order == "longest":
            out += self.dealing_parameters()
        if self.s.watched:
            out.append(REDO)
        return tuple(out)

    # ---- the tile of a block

    def set_up(self) -> None:
        """Who this thread is, and which tile its block has."""
        out = self.out
        out.add("extern __shared__ __align__(1024) unsigned char memory[];")
        out.add("const u32 shared = shared_address(memory);")
        out.add("const int lane = threadIdx.x & 31, warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);")
        self.name_team()
        out.add(
            "const u32 corner = (lane & 15) * 128 + (((lane >> 4) ^ (lane & 7)) << 4);   // in 16 rows, for `matrices`"
        )
        out.add(
            "const u32 turned = ((lane & 7) + (lane >> 4) * 8) * 128 + (((lane >> 3 & 1) ^ (lane & 7)) << 4);"
        )
        out.add("in_turn();")
        self.here("blockIdx.x", "{}")

    def name_team(self) -> None:
        """Which rows and columns this thread's warp has, where several have the same rows."""
        if self.schedule.slices > 1:
            self.out.add(named("warp", self.schedule.warps, self.schedule.slices))

    def here(self, block: str, again: str) -> None:
        """Where the tile of a block is. `again`: how what that depends on is written."""
        out, size = self.out, self.s.rows
        rows = again.format(self.scope.extent(self.s.row).text)
        out.add(f"const int row_tiles = ({rows} + {size - 1}) / {size};")
        heads = " * ".join(f"({self.scope.extent(a).text})" for a, _ in self.others) or "1"
        out.add(f"const int heads = {again.format(heads)};")
        out.add(f"const int tile = {block};")
        out.add(f"int {', '.join(self.places)};")
        self.locate()
        self.name_places()
        self.row_numbers("lane")

    def tile(self) -> None:
        """The whole of a tile."""
        s = self.s
        needed = self.bound_roots() | self.test_roots()
        for b in s.blocks:
            needed |= {x for op in walk(b.middle) for x in names_in(operands(op))}
        needed |= {x for t in (*s.queries, *s.rings) for x in t.scalars}
        needed |= {x for slot in s.slots for x in names_in((slot.init,))}
        last = {x for op in s.epilogue for x in names_in(operands(op))}
        self.scalars(needed if self.plan.tight else needed | last)
        self.bounds()
        self.declare()
        self.windows()
        own = sum(self.plan.rooms[q.name].bytes for q in s.queries)
        if self.plan.rooms["out"].bytes > own or self.schedule.slices > 1:
            self.out.add(
                "__syncthreads();   // the output takes the place of what others still read"
            )
        with self.out.block(""):
            if self.plan.tight:
                self.out.add(
                    "const int lane = THREAD & 31, warp = __shfl_sync(FULL, THREAD >> 5, 0);"
                )
                self.name_team()
                self.here("again((int)blockIdx.x)", "again((int)({}))")
                self.scalars(last)
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
                out.add(
                    f"float {name}[{Slice(x.width, self.schedule.slices).columns * held // 4}];"
                )
                out.add(f"clear({name});")
            else:
                init = self.scope.operand(x.init).real().text
                out.add(f"float {name}[{held}]; ROWS {name}[r] = {init};")
