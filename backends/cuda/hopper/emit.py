"""Writes the CUDA kernel of a plan.

The text reads like the tile IR: the user's axis names are its variables, and each line says which op it is and where in
the program it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from types import MappingProxyType

from tilec.backends.cuda.hopper.alike import Alike, alike, counting
from tilec.backends.cuda.hopper.bulk import BulkEpilogue
from tilec.backends.cuda.hopper.early import early
from tilec.backends.cuda.hopper.fragments import BlockEmitter
from tilec.backends.cuda.hopper.labels import RING
from tilec.backends.cuda.hopper.loop import FragmentLoop
from tilec.backends.cuda.hopper.once import Once
from tilec.backends.cuda.hopper.pairs import fetched, pairs
from tilec.backends.cuda.hopper.plan import RESERVE, Plan
from tilec.backends.cuda.hopper.products import Products
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.slices import Slice, named
from tilec.backends.cuda.hopper.source import REDO, Parameter, Source
from tilec.backends.cuda.hopper.steps import (
    Acquire,
    Advance,
    Compute,
    Fetch,
    First,
    Hear,
    Issue,
    Leave,
    Loop,
    Mask,
    More,
    Next,
    Query,
    Release,
    Settle,
    Share,
    Step,
    Stream,
    Turn,
    split,
)
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.backends.cuda.hopper.wgmma import instructions
from tilec.backends.cuda.hopper.writer import Lines
from tilec.dataflow import names_in
from tilec.ir import operands, walk


def emit(plan: Plan) -> Source:
    """The CUDA source of a plan. Raises Refused for an op that has no fast form."""
    return _Kernel(plan).source()


class _Kernel(Products):
    """Writes the whole text, and the computing warpgroups."""

    def source(self) -> Source:
        self.asked: dict[int, dict[str, str]] = {}
        self.made: dict[int, dict[object, str]] = {}
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
        out, c, s = self.out, self.schedule, self.s
        _, high = c.registers
        if c.traded:
            out.add(f"more_registers<{high}>();")
        out.add("const int w = group - 1;")
        if c.slices > 1:
            out.add(named("w", c.warpgroups, c.slices))
        out.add("const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;")
        for t in s.queries:
            place = f"{self.address(t.name)} + {self.team} * {self.plan.rooms[t.name].bytes}"
            out.add(f"const u64 {t.name}_rows = rows_descriptor({place});")
        ahead, late = self.rings()
        for t in s.rings:
            if t.name in ahead:
                out.add(f"const u64 {t.name}_rows = rows_descriptor({self.address(t.name)});")
                out.add(f"Cursor<{c.stages}> {t.name}_ahead(0);")
            if t.name in late:
                place = f"columns_descriptor({self.slice_of(t)}, {t.rows * 128})"
                out.add(f"const u64 {t.name}_columns = {place};")
                out.add(f"Cursor<{c.stages}> {t.name}_late(0);")
        if self.plan.labels:
            out.add(f"Cursor<{c.stages}> {RING}_ahead(0);")
        for name in self.registers.heads:
            out.add(f"float {name}[{s.columns // 2}];")
        for name in self.registers.weights:
            out.add(f"u32 {name}[{s.columns // 4}];")
        for x, name in zip(s.slots, self.registers.slots, strict=True):
            if x.width:
                out.add(f"float {name}[{Slice(x.width, c.slices).columns // 2}];")
        if c.turns:
            out.add(
                f"if (w == {c.warpgroups - 1}) named_arrive(1, 256);   // the first turn is that of warpgroup 0"
            )
        out.add("int turn = 0;")
        if s.chosen:
            out.add("int word;")
        self.name_places()
        self.hear("int ", alone=False)
        for step in self.plan.begin:
            self.step(step)
        with out.block("while (origin >= 0)"):
            self.compute_tile()
            out.add("origin = next_origin;")
            self.take_tile(self.told[1:], "", alone=False)
        if self.plan.chained:
            self.step(Settle(0, ("heads",)))
        if c.store == "tma":
            out.add("if ((threadIdx.x & 127) == 0) copy_finish();")

    @property
    def team(self) -> str:
        """Which of the block's rows a warpgroup has."""
        return "team" if self.schedule.slices > 1 else "w"

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
        for step in self.plan.steps:
            self.step(step)
        if self.scope.ends is not None:
            self.scope.ends.write()

    def step(self, step: Step) -> None:
        """One step of the plan."""
        out = self.out
        match step:
            case Query(begin=True):
                place, parity = self.queries(self.team)
                out.add(f"wait({self.barrier('query_full', place)}, {parity});")
                self.visible(*self.s.queries)
            case Query():
                place, _ = self.queries(self.team)
                out.add(f"if (lane == 0) arrive({self.barrier('query_free', place)});")
            case Next():
                out.add("turn++;")
                self.await_tile()
                out.add(f"const int next_origin = {self.heard('origin', alone=False)};")
            case Acquire():
                cursor = f"{step.ring}_{'late' if step.late else 'ahead'}"
                out.add(
                    f"wait({self.barrier(step.ring + '_full', cursor + '.stage')}, {cursor}.parity);"
                )
                self.visible(*(t for t in self.s.rings if t.name == step.ring))
            case Release():
                cursor = f"{step.ring}_{'late' if step.late else 'ahead'}"
                lone = (
                    "" if step.ring == RING else "if (lane == 0) "
                )  # of labels each has read its own
                free = self.barrier(step.ring + "_free", cursor + ".stage")
                out.add(f"{lone}arrive({free});")
                out.add(f"{cursor}.step();")
            case Advance():
                out.add(f"{step.ring}_ahead.step();")
            case Issue(what="heads"):
                self.issue_heads()
            case Issue():
                self.issue_tails()
            case Settle():
                self.settle(step)
            case Share():
                self.share()
            case Turn(begin=True):
                out.add("named_sync(1 + w, 256);")
            case Turn():
                out.add(
                    f"named_arrive(1 + (w + 1 == {self.schedule.warpgroups} ? 0 : w + 1), 256);"
                )
            case Fetch():
                self.asked[step.block] = self.fetch(step.block)
            case Mask():
                self.made[step.block] = self.early_masks(step.block)
            case Compute():
                self.compute(step)
            case First():
                self.first(step)
            case Hear():
                cursor = f"{step.ring}_ahead"
                out.add(
                    f"wait({self.barrier(step.ring + '_full', cursor + '.stage')}, {cursor}.parity);"
                )
                self.visible(*(t for t in self.s.rings if t.name == step.ring))
                out.add(f"word = shared_told({self.word(cursor)}, lane);")
            case Stream():
                self.stream(step)
            case More():
                with out.block("if (next_origin >= 0)"):
                    for inner in step.steps:
                        self.step(inner)
            case Leave():
                BulkEpilogue(self.scope, self.plan, self.registers, self.maps).write()
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
        together = self.first_together(step)
        for k in self.either_first() if not together else ():
            for inner in step.blocks[k]:
                self.step(inner)

    def either_first(self) -> Iterator[int]:
        """The blocks that a first window may take, in a branch for each."""
        order = range(len(self.s.blocks)) if self.s.chosen else self.s.order
        for place, k in enumerate(order):
            head = "if" if place == 0 else "else if"
            test = self.is_block(k) if self.s.chosen else f"windows_{k} > 0"
            last = place and place == len(order) - 1
            with self.out.block("else" if last else f"{head} ({test})"):
                if not self.s.chosen:
                    self.out.add(f"begin_{k} = 1;")
                self.window(k, "0")
                yield k

    def first_together(self, step: First) -> bool:
        """The first windows as one program, where their blocks differ in masks alone, and these are words."""
        found = alike(self.s)
        if found is None:
            return False
        general, before = step.blocks[found.general], list(self.out.lines)
        others = [tuple(x for x in steps if not isinstance(x, Compute)) for steps in step.blocks]
        if len(set(others)) > 1:
            return False
        for inner in general:
            if not isinstance(inner, Compute):
                self.step(inner)
            elif not self.compute_together(inner, found):
                self.out.lines[:] = before
                return False
        return True

    def compute_together(self, step: Compute, found: Alike) -> bool:
        """Computes a first window with masks as words; False where these are no words."""
        given = {x: self.names.fresh("counting") for x in found.masked[found.general]}
        every = {x: self.names.fresh("every") for x in given}
        self.out.add(f"int at_first; u32 {', '.join(every.values())};")
        for k in self.either_first():
            self.out.add("at_first = window;")
            for x, name in every.items():
                self.out.add(f"{name} = {'0' if found.masked[k][x] else 'FULL'};")
        self.placed("at_first", True)
        saved, block = dict(self.scope.values), self.emitting(step.block, True)
        bits = {name: counting(block, x, every[x]) for x, name in given.items()}
        self.scope.values = saved
        for name, words in bits.items():
            if words is None:
                return False
            self.out.add(f"u32 {name}[{len(words) * self.scope.held}];")
            for n, text in enumerate(words):
                self.out.add(f"ROWS {name}[{n * self.scope.held} + r] = {text};")
        self.compute(step, given)
        return True

    def is_block(self, k: int) -> str:
        """The test whether the word is of a block."""
        return f"(word & {(1 << self.bits) - 1}) == {k}"

    def stream(self, step: Stream) -> None:
        """The windows after the first one, until one that is the last."""
        self.out.add("#pragma unroll 1")
        with self.out.block(f"while (!(word & {1 << self.bits}))"):
            for inner in (step.hear, *step.shared):
                self.step(inner)
            last = len(step.blocks) - 1
            for k, steps in enumerate(step.blocks):
                head = "if" if k == 0 else "else if"
                with self.out.block("else" if k == last and k else f"{head} ({self.is_block(k)})"):
                    self.window(k, "")
                    for inner in steps:
                        self.step(inner)

    def window(self, block: int, n: str) -> None:
        """Where the window is, and where this thread's columns in it are."""
        at = f"(int)((u32)word >> {self.bits + 1})" if self.s.chosen else self.s.at(block, n)
        self.placed(at, self.s.blocks[block].loop.ragged)

    def placed(self, at: str, ragged: bool) -> None:
        """The variables that say where a window is."""
        stream = self.s.stream
        self.out.add(
            f"const int window = {at}, stream_lane = window + 2 * (lane & 3);   // {stream}"
        )
        if ragged:
            self.out.add(f"const int rest = {self.scope.extent(stream).text} - stream_lane;")

    def emitting(self, k: int, first: bool) -> BlockEmitter:
        """What emits a block."""
        block = self.s.blocks[k]
        ragged = block.loop.ragged
        return BlockEmitter(self.scope, block, self.registers, ragged, first, self.schedule.guess)

    def fetch(self, k: int) -> dict[str, str]:
        """Asks for what the present window needs of rows and positions; gives the arrays that it comes to."""
        block = self.s.blocks[k]
        ragged = block.loop.ragged
        self.scope.whole = not ragged
        return {op.result.name: fetched(self.scope, op, ragged) for op in pairs(self.s, block)}

    def early_masks(self, k: int) -> dict[object, str]:
        """Makes the masks of the present window that no product decides about; gives the names of their words."""
        saved, block = dict(self.scope.values), self.emitting(k, False)
        for x in early(self.s, self.s.blocks[k]):
            FragmentLoop(block, []).test(x)
        self.scope.values = saved
        return block.words

    def compute(self, step: Compute, given: Mapping[str, str] = MappingProxyType({})) -> None:
        """The ops between heads and tails. `given`: the words of masks."""
        before, after = split(self.s.blocks[step.block])
        if step.part != "after":
            self.saved = dict(self.scope.values)
            self.emitter = self.emitting(step.block, step.first)
            self.emitter.given.update(given)
            asked = self.asked.pop(step.block, None)
            self.emitter.words.update(self.made.pop(step.block, {}))
            self.emitter.fetched.update(self.fetch(step.block) if asked is None else asked)
        if step.part in ("before", "all"):
            for x in self.plan.labels:
                stage = f"{self.labels_at(f'{RING}_ahead')} + {x.offset}"
                self.scope.labels[x.key] = x, f"{stage} + {2 * x.bytes} * (lane & 3)"
            self.emitter.begin()
            self.emitter.emit(before)
        if step.part in ("after", "all"):
            self.emitter.emit(after)
            self.emitter.finish()
            self.scope.values = self.saved
