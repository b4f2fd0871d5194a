"""The windows of a tile: when they are copied, and which program each takes.

Where data decides which windows count, and which of several blocks they take, each warp tests 32 of them at a time, a thread
each, and goes through those that count. All warps find the same.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilec.backends.cuda.ampere.loading import Loading
from tilec.backends.cuda.ampere.middle import Middle
from tilec.backends.cuda.ampere.plan import kept, padded
from tilec.backends.cuda.hopper.slices import Slice
from tilec.backends.cuda.hopper.structure import Block, Head, Tail
from tilec.backends.cuda.hopper.tiles import PARTS, Tile
from tilec.dataflow import backward, definitions, names_in
from tilec.ir import Map, Op, operands, walk


class Streaming(Loading):
    """Writes the loops over windows."""

    def windows(self) -> None:
        """All of them."""
        if self.s.chosen:
            self.tests()
            self.out.add("int word = next_window();")
            some, first = "word >= 0", f"word >> {self.bits}"
        else:
            total = " + ".join(f"windows_{k}" for k in range(len(self.s.loops)))
            self.out.add(f"const int windows = {total};")
            self.window_at()
            some, first = "windows > 0", "window_at(0)"
        for t in (*self.s.queries, *self.s.rings):
            self.copier(t)
        with self.out.block(f"if ({some})"):
            self.begin(first)
            self.out.add("int n = 0;" if self.plan.split else "int n = 0, stage = 0;")
            if self.s.chosen:
                self.chosen()
            else:
                self.loops()

    def window_at(self) -> None:
        """Where the windows of all loops are, in the order in which they are taken."""
        s = self.s
        with self.out.block("const auto window_at = [&](int n)", "};"):
            for k in s.order[:-1]:
                self.out.add(f"if (n < windows_{k}) return {s.at(k, 'n')};")
                self.out.add(f"n -= windows_{k};")
            self.out.add(f"return {s.at(s.order[-1], 'n')};")

    def begin(self, window: str) -> None:
        """The copies of the rows and of the first windows."""
        out, c = self.out, self.schedule
        for q in self.s.queries:
            out.add(f"copy_{q.name}(origin, 0);")
        self.copies(self.plan.early if self.plan.split else self.s.rings, window, "0")
        out.add("copies_commit();")
        for n in range(1, c.stages - 1):
            with out.block(f"if (windows > {n})"):
                self.copies(self.s.rings, f"window_at({n})", str(n))
            out.add("copies_commit();")
        if c.query != "shared":
            out.add(f"copies_wait<{max(0, c.stages - 2)}>();")
            out.add("__syncthreads();")
        for q in self.s.queries:
            self.rows(q)

    def copies(self, tiles: tuple[Tile, ...], window: str, stage: str) -> None:
        """The copies of a window's tiles."""
        for t in tiles:
            self.out.add(f"copy_{t.name}({window}, {stage});")

    def rows(self, q: Tile) -> None:
        """Where a warp finds its rows of the first products, and what it keeps of them."""
        c, steps = self.schedule, kept(q, self.schedule) // 16
        address = f"{self.address(q.name)} + {self.team} * {c.height * 128}"
        if steps < padded(q.width) // 16:
            self.out.add(f"const u32 {q.name}_place = {address};")
        if not steps:
            return
        self.out.add(f"u32 {q.name}_held[{steps}][{c.held // 2}][4];")
        self.out.add("#pragma unroll")
        call = f"rows_of<{c.held}>({q.name}_held[k], {address}, corner, {c.rows}, k)"
        self.out.add(f"for (int k = 0; k < {steps}; k++) {call};")

    # ---- windows that are known beforehand

    def loops(self) -> None:
        """One loop after the other."""
        ends: list[str] = []
        for k in self.s.order:
            ends.append(f"windows_{k}")
            self.out.add("#pragma unroll 1")
            with self.out.block(f"for (const int end = {' + '.join(ends)}; n < end; n++)"):
                self.out.add("const int window = window_at(n);")
                self.arrive()
                self.block(k)
                self.leave(k)

    # ---- windows that data chooses

    def tests(self) -> None:
        """The function that gives the next window that counts, and its block; -1 at the end."""
        out, s = self.out, self.s
        out.add("int tried = 0, kind = -1;")
        out.add("u32 left = 0;")
        total = " + ".join(f"windows_{k}" for k in range(len(s.loops)))
        with out.block("const auto next_window = [&]", "};"):
            with out.block(f"while (left == 0 && tried < {total})"):
                out.add("kind = -1;")
                out.add("int at = tried + lane;")
                for k in range(len(s.loops)):
                    self.tested(k)
                out.add("left = __ballot_sync(FULL, kind >= 0);")
                out.add("tried += 32;")
            out.add("if (left == 0) return -1;")
            out.add("const int first = __ffs(left) - 1, chosen = __shfl_sync(FULL, kind, first);")
            out.add("left &= left - 1;")
            out.add("int at = tried - 32 + first;")
            for k in range(len(s.loops)):
                place = f"start_{k} + at * {s.columns}"
                test = f"if (at < windows_{k}) " if k < len(s.loops) - 1 else ""
                out.add(f"{test}return ({place}) << {self.bits} | chosen;")
                if test:
                    out.add(f"at -= windows_{k};")

    def tested(self, k: int) -> None:
        """This thread's window, if it is one of a loop: which block it takes."""
        out, s = self.out, self.s
        saved = dict(self.scope.values)
        with out.block(f"if (at >= 0 && at < windows_{k})"):
            out.add(f"const int window = start_{k} + at * {s.columns};")
            for op in s.tests[k]:
                self.scope.declare(op)
            for n, test in self.ways(k):
                out.add(f"if ({test}) kind = {n};")
        self.scope.values = saved
        if k < len(s.loops) - 1:
            out.add(f"at -= windows_{k};")

    def chosen(self) -> None:
        """One window after the other, each with its block."""
        out, s = self.out, self.s
        out.add("#pragma unroll 1")
        with out.block("for (; word >= 0; n++)"):
            out.add(f"const int window = word >> {self.bits};")
            self.arrive()
            last = len(s.blocks) - 1
            for k in range(len(s.blocks)):
                test = f"if ((word & {(1 << self.bits) - 1}) == {k})"
                head = test if k == 0 else f"else {test}"
                with out.block("else" if 0 < k == last else head if last else ""):
                    self.block(k)
            self.leave(0)
            out.add("word = coming;")

    # ---- the steps of a window

    def arrive(self) -> None:
        """Waits for what the first products read, and starts the next copies."""
        out, c = self.out, self.schedule
        out.add(f"copies_wait<{max(0, c.stages - 2)}>();")
        out.add("__syncthreads();")
        if self.plan.split:
            self.copies(self.plan.late, "window", "0")
        else:
            self.ahead(self.s.rings, c.stages - 1)
        out.add("copies_commit();")

    def ahead(self, tiles: tuple[Tile, ...], distance: int) -> None:
        """Copies of a later window."""
        out = self.out
        free = "0" if self.plan.split else f"stage == 0 ? {distance} : stage - 1"
        if self.s.chosen:
            out.add("const int coming = next_window();")
            test, next = "coming >= 0", f"coming >> {self.bits}"
        else:
            test, next = f"n + {distance} < windows", f"window_at(n + {distance})"
        with out.block(f"if ({test})"):
            out.add(f"const int next = {next}, free = {free};")
            self.copies(tiles, "next", "free")

    def block(self, k: int) -> None:
        """The first products and what is computed of them."""
        out, s = self.out, self.s
        block = s.blocks[k]
        out.add(f"const int stream_lane = window + 2 * (lane & 3);   // {s.stream}")
        if block.loop.ragged:
            out.add(f"const int rest = {self.scope.extent(s.stream).text} - stream_lane;")

        def heads(arrays: tuple[str, ...], rolled: bool) -> None:
            self.heads(k, arrays, rolled)
            self.rows_again(block, "lane_number()" if rolled else "again(lane)")

        with self.working():
            Middle(self.scope, block, self.registers, heads).write()

    @contextmanager
    def working(self) -> Generator[None]:
        """What only warps that have rows do."""
        if self.plan.busy >= self.schedule.warps:
            yield
            return
        with self.out.block(f"if (warp < {self.plan.busy})"):
            yield

    def rows_again(self, block: Block, lane: str) -> None:
        """The row values of a block that are easily computed: so they take no registers before, and no masks are made of
        them, which would take many."""
        row = self.s.row
        defs = definitions([*self.s.top, *self.s.prologue])
        used = {x for op in walk(block.middle) for x in names_in(operands(op))}
        plain: list[Op] = []
        for op in self.s.prologue:
            parts = [
                x for x in names_in(operands(op)) if x in defs and self.scope.axes(x) == (row,)
            ]
            known = {p.result.name for p in plain}
            if isinstance(op, Map) and op.result.type.axes == (row,) and known.issuperset(parts):
                plain.append(op)
        needed = backward(used, {p.result.name: p for p in plain}) | used
        wanted = [op for op in plain if op.result.name in needed]
        if row in needed or any(row in operands(op) for op in wanted):
            self.row_numbers(lane)
        for op in wanted:
            self.scope.declare(op)

    def row_numbers(self, lane: str) -> None:
        """The rows of which a thread has elements."""
        held, height = self.schedule.held, self.schedule.height
        first = f"origin + {self.team} * {height} + (({lane}) >> 2)"
        self.out.add(f"int row_i[{held}]; ROWS row_i[r] = {first} + 8 * r;   // {self.s.row}")

    def leave(self, k: int) -> None:
        """The second products."""
        out, c = self.out, self.schedule
        if self.plan.split:
            out.add("copies_wait<0>();")
            out.add("__syncthreads();")
            self.ahead(self.plan.early, 1)
            out.add("copies_commit();")
        with self.working():
            self.tails(k)
        if not self.plan.split:
            out.add(f"stage = stage == {c.stages - 1} ? 0 : stage + 1;")

    # ---- products

    def stage_of(self, t: Tile) -> str:
        """The address of a streamed tile, as `matrices` takes it."""
        stage = "" if self.plan.split else f" + stage * {self.plan.rooms[t.name].bytes}"
        return f"{self.address(t.name)}{stage}"

    def heads(self, k: int, arrays: tuple[str, ...], rolled: bool) -> None:
        """S = Q Kᵀ, or several such; what adds to a head goes on in its registers."""
        b = self.s.blocks[k]
        ends = [h for h in b.heads if h.name not in {x.init for x in b.heads}]
        for h, array in zip(ends, arrays, strict=True):
            chain = [h]
            while chain[0].init is not None:
                chain.insert(0, next(x for x in b.heads if x.name == chain[0].init))
            for n, x in enumerate(chain):
                self.head(x, array, n > 0, rolled)

    def head(self, h: Head, array: str, adds: bool, rolled: bool) -> None:
        """One product of rows with rows: first of what is in registers."""
        c, columns, out = self.schedule, self.s.columns, self.out
        q, k, held, key = h.query, h.key, kept(h.query, c), self.stage_of(h.key)
        what = f"// {h.name} = contract({q.name}, {k.name}, over={k.feature})"
        if held:
            call = f"held_by_rows<{k.dtype}, {columns}, {c.held}, {str(adds).lower()}>"
            out.add(f"{call}({array}, {q.name}_held, {key}, turned);   {what}")
        if held == padded(k.width):
            return
        add = str(adds or held > 0).lower()
        shape = f"{(padded(k.width) - held) // 16}, {c.rows}, {columns}, {c.held}"
        query = f"{q.name}_place, corner"
        if held:
            query = f"{q.name}_place + {held * c.rows * 2}, corner"
            key += f" + {held * columns * 2}"
        if q.parts > 1 or k.parts > 1:
            if not adds:
                out.add(f"clear({array});")
            sides = f"{q.parts}, {q.slabs * c.rows * 128}, {k.parts}, {k.slabs * columns * 128}"
            call = f"parts_by_rows<{k.dtype}, {shape}, {sides}, {PARTS}>"
        else:
            call = f"rows_by_rows<{k.dtype}, {shape}, {add}, {str(rolled).lower()}>"
        out.add(f"{call}({array}, {query}, {key}, turned);   {what}")

    def tails(self, k: int) -> None:
        """O += P V."""
        b, n = self.s.blocks[k], self.s.weight_parts
        arrays = {
            x: self.registers.weights[n * at : n * at + n]
            for at, x in enumerate(dict.fromkeys(t.x for t in b.tails))
        }
        for t in b.tails:
            for part in reversed(range(n)):
                self.tail(t, arrays[t.x][part], min(t.value.parts, PARTS - part) if n > 1 else 1)

    def tail(self, t: Tail, weights: str, parts: int) -> None:
        """One product of weights with the first parts of values."""
        v, held = t.value, self.schedule.held
        name, more = "weights_by_columns", ""
        if v.parts > 1:
            name, more = "weights_by_parts", f", {parts}, {v.slabs * self.s.columns * 128}"
        what = f"contract({t.x}, {v.name}, over={self.s.stream})"
        place, first = self.stage_of(v), Slice(v.width, self.schedule.slices).first_slab
        place += f" + {first} * {self.s.columns * 128}" if first else ""
        args = f"{self.registers.slots[t.slot]}, {weights}, {place}, corner{more}"
        self.out.add(
            f"{name}<{v.dtype}, {self.s.columns}, {held}>({args});   // {self.s.slots[t.slot].name} += {what}"
        )
