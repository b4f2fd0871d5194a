"""The loading warpgroup: a warp per ring of tiles, and one for the rows."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace

from tilec.backends.cuda.hopper.computing import Computing
from tilec.backends.cuda.hopper.dealing import Dealing
from tilec.backends.cuda.hopper.expression import POSITION, Expression
from tilec.backends.cuda.hopper.labels import RING, Label, labelled
from tilec.backends.cuda.hopper.plan import Loader
from tilec.backends.cuda.hopper.runs import Run
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.source import CopyMap, Parameter
from tilec.backends.cuda.hopper.staging import STAGED
from tilec.backends.cuda.hopper.steps import announcing
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.dataflow import names_in


class Loading(Dealing):
    """Writes the loading warpgroup."""

    def load_role(self) -> None:
        out = self.out
        if self.schedule.traded:
            out.add(f"fewer_registers<{self.schedule.loader}>();")
        out.add("const int warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);")
        self.name_places()
        saved = dict(self.scope.values)
        if any(self.together(x) for x in self.plan.loaders):
            out.add("const int lane = threadIdx.x & 31;")
        for k, loader in enumerate(self.plan.loaders):
            with out.block(f"{'else ' if k else ''}if ({self.mine(loader)})"):
                if loader.computes:
                    out.add(f"const int crew = warp - {loader.first};")
                    self.scope.whole = False
                if any(t.rounded for t in loader.tiles):
                    out.add("u32 probe = 0;")
                for t in loader.tiles:
                    if t.axis == self.s.stream:
                        out.add(f"Cursor<{self.schedule.stages}> {t.name}_next(1);")
                if self.labels(loader):
                    out.add(f"Cursor<{self.schedule.stages}> {RING}_next(1);")
                if k == 0:
                    out.add("int tile = blockIdx.x;   // the first one of this block")
                with out.block("for (int turn = 0;; turn++)"):
                    if k == 0:
                        if not self.together(loader):
                            self.read_dims()
                        self.count()
                        self.announce()
                    else:
                        self.hear("const int ", alone=not self.together(loader))
                    out.add("if (origin < 0) break;")
                    self.load_tile(loader)
                    if k == 0:
                        self.tile_after()
                if any(t.rounded for t in loader.tiles):
                    out.add(
                        "if (probe & 0x7fff7fff) *redo = 1;   // an element that 16 bits do not hold"
                    )
            self.scope.values = dict(saved)

    def together(self, loader: Loader) -> bool:
        """Whether all threads of a loading warp do the same, and not one alone."""
        return self.plan.together or loader.computes

    def mine(self, loader: Loader) -> str:
        """The test whether a thread is one of a loader's."""
        one = "" if self.together(loader) else " && (threadIdx.x & 31) == 0"
        if loader.warps == 1:
            return f"warp == {loader.first}{one}"
        return f"warp >= {loader.first} && warp < {loader.first + loader.warps}{one}"

    def load_tile(self, loader: Loader) -> None:
        """All that a loader brings for a tile of the grid."""
        queries = [t for t in loader.tiles if t.axis == self.s.row]
        streamed = [t for t in loader.tiles if t.axis == self.s.stream]
        roots = {x for t in loader.tiles for x in t.scalars}
        roots |= {x for label in self.labels(loader) for x in names_in(label.index)}
        if streamed and self.s.chosen:
            roots |= self.bound_roots() | self.test_roots()
        self.scalars(roots)
        if queries:
            self.load_rows(loader, queries)
        if streamed and self.s.chosen:
            self.bounds()
            self.load_chosen(loader, streamed)
        elif streamed:
            self.load_windows(loader, streamed)

    def load_rows(self, loader: Loader, queries: list[Tile]) -> None:
        """The rows of the tile, those of each warpgroup by themselves."""
        out, rooms = self.out, self.plan.rooms
        lone = "if (lane == 0) " if self.together(loader) and not loader.computes else ""
        place, parity = self.queries("w")
        full = self.barrier("query_full", place)
        with out.block(f"{lone}for (int w = 0; w < {self.schedule.teams}; w++)"):
            out.add(f"wait({self.barrier('query_free', place)}, {parity} ^ 1);")
            for t in queries:
                if t.computed:
                    to = f"{self.address(t.name)} + {place} * {rooms[t.name].bytes}"
                    rows = Computing(self.scope, replace(t, rows=ROWS), loader.warps)
                    rows.look_up("(origin + w * 64)")
                    rows.write(to, "(origin + w * 64)", full)
            copied = [t for t in queries if not t.computed]
            with out.block("") if not loader.computes else self.written():
                if not copied:
                    out.add(f"arrive({full});")
                    return
                if loader.computes:
                    out.add(f"if (crew) {{ arrive({full}); continue; }}")
                rows = min(ROWS, self.s.rows)  # what is behind them stays as it is: zeros
                out.add(f"expect({full}, {sum(t.slabs for t in copied) * rows * 128});")
                for t in copied:
                    to = f"{self.address(t.name)} + {place} * {rooms[t.name].bytes}"
                    self.copy(t, to, full, "origin + w * 64", rows, ROWS)

    @contextmanager
    def written(self) -> Generator[None]:
        """What one thread of a warp does when all of them have written their part of a tile."""
        self.out.add("written_for_copies(); __syncwarp();")
        with self.out.block("if (lane == 0)"):
            yield

    def load_windows(self, loader: Loader, streamed: list[Tile]) -> None:
        """The windows of all loops, in order."""
        out = self.out
        if loader.computes and self.plan.staging:
            self.load_ahead(loader, streamed)
            return
        for k in self.s.order:
            out.add("#pragma unroll 1")
            with out.block(f"for (int n = 0; n < windows_{k}; n++)"):
                out.add(f"const int window = {self.s.at(k, 'n')};")
                self.windows_in(loader, streamed, k)

    def load_ahead(self, loader: Loader, streamed: list[Tile]) -> None:
        """The windows of all loops: the pieces of later ones are asked for, then those of this one have arrived."""
        out, s, room = self.out, self.s, self.plan.rooms[STAGED]
        ahead = room.count - 1
        out.add(f"const int windows = {' + '.join(f'windows_{k}' for k in s.order)};")
        with out.block("const auto at = [&](int n)", "};"):
            for k in s.order[:-1]:
                out.add(f"if (n < windows_{k}) return {s.at(k, 'n')};")
                out.add(f"n -= windows_{k};")
            out.add(f"return {s.at(s.order[-1], 'n')};")
        place = f"const u32 staged_place = {self.address(STAGED)} + {room.bytes} * "
        out.add("#pragma unroll 1")
        with out.block(f"for (int n = -{ahead}; n < windows; n++)"):
            with out.block(f"if (n + {ahead} < windows)"):
                out.add(f"const int window = at(n + {ahead});")
                out.add(f"{place}((n + {ahead}) % {room.count});")
                for t in streamed:
                    each = Computing(self.scope, t, loader.warps, self.plan.staging)
                    if each.staged:
                        each.ask("window")
            out.add("pieces_asked();")
            out.add("if (n < 0) continue;")
            out.add(f"pieces_here<{ahead}>();")
            out.add("const int window = at(n);")
            out.add(f"{place}(n % {room.count});")
            self.windows_in(loader, streamed, s.order[0])

    def load_chosen(self, loader: Loader, streamed: list[Tile]) -> None:
        """The windows that count. One is brought when it is known whether it is the last."""
        out, s = self.out, self.s
        out.add("int held = -1;")
        with out.block("const auto send = [&](u32 last)", "};"):
            out.add(f"const int window = held >> {self.bits};")
            self.windows_in(loader, streamed)
        for k in s.order:
            self.tested(k)
        nothing = "// nothing counts, which the block sees"
        out.add(f"if (held < 0) held = {len(s.blocks) - 1};   {nothing}")
        out.add("send(1);")

    def windows_in(self, loader: Loader, streamed: list[Tile], block: int | None = None) -> None:
        """A window of each ring into its next stage. `block`: which one takes it; if None, word is sent of that and of
        which window it is."""
        out = self.out
        labels, read = self.labels(loader), self.reading(block)
        if loader.computes and read is not None:
            read = " && ".join(["crew == 0", *([f"({read})"] if read else [])])
        if labels and read is not None:
            self.ask_for(labels, read)
        staging = self.plan.staging
        computing = {
            t.name: Computing(self.scope, t, loader.warps, staging) for t in streamed if t.computed
        }
        for each in computing.values():
            each.look_up("window")
        saved = dict(self.scope.values)
        runs = {t.name: self.look_up(t, t.run) for t in streamed if t.run}
        for t in streamed:
            heard = block is None and t.name == announcing(self.s).ring
            alone = self.together(loader) and not t.computed and not t.run
            with out.block("if (lane == 0)" if alone else ""):
                cursor = f"{t.name}_next"
                full = self.barrier(t.name + "_full", cursor + ".stage")
                to = f"{self.address(t.name)} + {cursor}.stage * {t.bytes}"
                out.add(
                    f"wait({self.barrier(t.name + '_free', cursor + '.stage')}, {cursor}.parity);"
                )
                if heard:
                    lone = "if (lane == 0) " if t.computed or t.run else ""
                    word = (
                        f"(u32)window << {self.bits + 1} | last << {self.bits} | {self.held_block}"
                    )
                    out.add(f"{lone}shared_put({self.word(cursor)}, (int)({word}));")
                if t.computed:
                    computing[t.name].write(to, "window", full)
                    with self.written():
                        out.add(f"arrive({full});")
                elif t.run:
                    out.add(f"if (lane == 0) expect({full}, {t.bytes});")
                    self.copy_runs(t, t.run, to, full, runs[t.name])
                else:
                    out.add(f"expect({full}, {t.bytes});")
                    self.copy(t, to, full, "window", t.rows, t.rows)
            out.add(f"{t.name}_next.step();")
        self.scope.values = saved
        if labels and read is not None:
            self.labels_in(labels, read)

    @property
    def held_block(self) -> str:
        """The block of the window that is sent next."""
        return f"(held & {(1 << self.bits) - 1})"

    def labels(self, loader: Loader) -> tuple[Label, ...]:
        """The labels that a loader brings: they come with the keys."""
        first = announcing(self.s).ring
        return self.plan.labels if any(t.name == first for t in loader.tiles) else ()

    def reading(self, block: int | None) -> str | None:
        """The test whether a window's block reads labels, empty where it does in any case; None where it does not."""
        readers = sorted(labelled(self.s))
        if block is not None:
            return "" if block in readers else None
        every = len(readers) == len(self.s.blocks)
        return "" if every else " || ".join(f"{self.held_block} == {k}" for k in readers)

    def ask_for(self, labels: tuple[Label, ...], read: str) -> None:
        """Loads the labels of a window: they are under way while it waits for a free stage."""
        out, count = self.out, -(-self.s.columns // 32)
        for x in labels:
            out.add(f"{x.ctype} {self.held_label(x)}[{count}];{self.scope.comment(x.load)}")
        saved = dict(self.scope.values)
        spot = Expression("(window + lane + 32 * m)", "int", POSITION)
        with out.block(f"if ({read})" if read else ""):
            for x in labels:
                at = [spot if y == self.s.stream else self.scope.operand(y) for y in x.index]
                out.add("#pragma unroll")
                element = self.scope.load(x.load, at).text
                out.add(f"for (int m = 0; m < {count}; m++) {self.held_label(x)}[m] = {element};")
        self.scope.values = saved

    def held_label(self, x: Label) -> str:
        """The variable with a thread's labels of a window."""
        return self.names.of(f"{x.tensor}_labels {x.offset}")

    def labels_in(self, labels: tuple[Label, ...], read: str) -> None:
        """The labels of a window into their next stage."""
        out, cursor = self.out, f"{RING}_next"
        each = f"for (int m = 0; m < {-(-self.s.columns // 32)}; m++)"
        inside = "" if self.s.columns % 32 == 0 else f"if (lane + 32 * m < {self.s.columns}) "
        free, full = (self.barrier(f"{RING}_{w}", f"{cursor}.stage") for w in ("free", "full"))
        with out.block(f"if ({read})" if read else ""):
            out.add(f"wait({free}, {cursor}.parity);")
            for x in labels:
                place = f"{self.labels_at(cursor)} + {x.offset} + {x.bytes} * (lane + 32 * m)"
                out.add("#pragma unroll")
                out.add(f"{each} {inside}shared_put({place}, {self.held_label(x)}[m]);")
            out.add(f"arrive({full});")
            out.add(f"{cursor}.step();")

    def tested(self, k: int) -> None:
        """The windows of a loop: each thread of the warp tests one of 32, then those that count are sent in order."""
        out, s = self.out, self.s
        loop = f"for (int first = 0; first < windows_{k}; first += 32)"
        next_one, taken = "__ffs(left) - 1", "left &= left - 1"
        if s.descending:
            loop = f"for (int first = (windows_{k} - 1) / 32 * 32; first >= 0; first -= 32)"
            next_one, taken = "31 - __clz(left)", "left ^= 1u << from"
        with out.block(loop):
            out.add("int block = -1;")
            saved = dict(self.scope.values)
            with out.block(f"if (first + lane < windows_{k})"):
                out.add(f"const int window = start_{k} + (first + lane) * {s.columns};")
                for op in s.tests[k]:
                    self.scope.declare(op)
                for n, test in self.ways(k):
                    out.add(f"if ({test}) block = {n};")
            self.scope.values = saved
            with out.block("for (u32 left = __ballot_sync(FULL, block >= 0); left;)"):
                out.add(f"const int from = {next_one}, chosen = __shfl_sync(FULL, block, from);")
                out.add(f"{taken};")
                out.add("if (held >= 0) send(0);")
                out.add(
                    f"held = (start_{k} + (first + from) * {s.columns}) << {self.bits} | chosen;"
                )

    def look_up(self, t: Tile, run: Run) -> list[str]:
        """Where a run of a window is, for each thread one: its place along each dimension but the columns. A run beyond the
        end of the axis is beyond that of the tensor, too."""
        out, spot = self.out, self.names.fresh(f"{t.name}_spot")
        out.add(f"const int {spot} = window + {run.length} * lane;   // {t.axis}")
        self.scope.values[t.axis] = Expression(spot, "int", POSITION)
        for op in run.finds:
            e, name = self.scope.value(op), self.names.fresh(self.names.of(op.result.name))
            self.scope.values[op.result.name] = Expression(name, e.kind, e.bits)
            out.add(f"const {e.ctype} {name} = {e.text};{self.scope.comment(op)}")
        places: list[str] = []
        for k in (t.row, *(k for k, x in enumerate(t.index) if k != t.row and x != t.feature)):
            name = self.names.fresh(f"{t.name}_at")
            here = f"coordinate({self.scope.operand(t.index[k]).whole().text})"
            if k == t.row:
                here = f"{spot} < {self.scope.extent(t.axis).text} ? {here} : -BEYOND"
            out.add(f"const int {name} = {here};")
            places.append(name)
        return places

    def copy_runs(self, t: Tile, run: Run, to: str, full: str, places: list[str]) -> None:
        """The copies that bring the runs of a tile: a thread brings one."""
        with self.out.block(f"if (lane < {t.rows // run.length})"):
            row, *others = places
            to = f"{to} + {run.length * 128} * lane"
            self.copies(t, to, full, [row, *others], run.length, t.rows)

    def copy(self, t: Tile, to: str, full: str, position: str, rows: int, room: int) -> None:
        """The copies that bring a tile. `room`: the rows that a slab has room for."""
        others = [self.scope.operand(x).text for x in t.index if x not in (t.axis, t.feature)]
        self.copies(t, to, full, [position, *(f"(int)({x})" for x in others)], rows, room)

    def copies(self, t: Tile, to: str, full: str, places: list[str], rows: int, room: int) -> None:
        """The copies of some rows: one with the slabs as a dimension, or one per slab."""
        m = self.map(t, rows, whole=rows == room)
        position, *others = places
        rest = "".join(f", {x}" for x in others)
        if m.map is not None and m.map.slabs:
            self.out.add(f"copy_in({to}, &{m.name}, {full}, 0, {position}, 0{rest});")
            return
        for k in range(t.slabs):
            self.out.add(
                f"copy_in({to} + {k * room * 128}, &{m.name}, {full}, {64 * k}, {position}{rest});"
            )

    def map(self, t: Tile, rows: int, whole: bool) -> Parameter:
        """The tensor map argument of a tile. `whole`: one copy fills its slabs."""
        slabs = whole and t.width % 64 == 0 and len(t.index) < 5
        even = t.run.even if t.run else ()
        m = CopyMap(t.tensor, t.index.index(t.feature), t.row, rows, t.width, slabs, even)
        if t.name not in self.maps:
            name = self.names.fresh(f"{t.name}_map")
            self.maps[t.name] = Parameter("map", name, "const __grid_constant__ TensorMap", m)
        return self.maps[t.name]
