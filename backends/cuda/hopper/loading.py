"""The loading warpgroup: a warp per ring of tiles, and one for the rows."""

from __future__ import annotations

from tilec.backends.cuda.hopper.dealing import Dealing
from tilec.backends.cuda.hopper.plan import (
    announcing,
)
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.source import CopyMap, Parameter
from tilec.backends.cuda.hopper.structure import Tile
from tilec.dataflow import names_in


class Loading(Dealing):
    """Writes the loading warpgroup."""

    def load_role(self) -> None:
        out = self.out
        out.add(f"fewer_registers<{self.schedule.loader}>();")
        out.add("const int warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);")
        self.name_places()
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
                if k == 0:
                    out.add("int tile = blockIdx.x;")
                with out.block("for (int turn = 0;; turn++)"):
                    if k == 0:
                        self.announce()
                    else:
                        self.hear("const int ", alone=not together)
                    out.add("if (origin < 0) break;")
                    self.load_tile(tiles)
                    if k == 0:
                        self.tile_after()
            self.scope.values = dict(saved)

    def load_tile(self, tiles: tuple[Tile, ...]) -> None:
        streamed = [t for t in tiles if t.axis == self.s.stream]
        coordinates = {x for t in tiles for x in names_in(t.index)}
        if not streamed:
            self.scalars(coordinates)
            self.load_rows(tiles)
        elif self.s.chosen:
            self.scalars(coordinates | self.bound_roots() | self.test_roots())
            self.bounds()
            self.load_chosen(streamed)
        else:
            self.scalars(coordinates)
            self.load_windows(streamed)

    def load_rows(self, tiles: tuple[Tile, ...]) -> None:
        """The tile's rows, for each warpgroup its own."""
        out, groups = self.out, self.schedule.warpgroups
        lone = "if (lane == 0) " if self.s.together else ""
        with out.block(f"{lone}for (int w = 0; w < {groups}; w++)"):
            place, parity = self.queries("w")
            out.add(f"wait({self.barrier('query_free', place)}, {parity} ^ 1);")
            total = sum(self.plan.rooms[t.name].bytes for t in tiles)
            out.add(f"expect({self.barrier('query_full', place)}, {total});")
            for t in tiles:
                self.copy(
                    t,
                    f"{self.address(t.name)} + {place} * {self.plan.rooms[t.name].bytes}",
                    self.barrier("query_full", place),
                    "origin + w * 64",
                    ROWS,
                )

    def load_windows(self, streamed: list[Tile]) -> None:
        """The windows of all loops."""
        out = self.out
        for k in self.s.order:
            out.add("#pragma unroll 1")
            with out.block(f"for (int n = 0; n < windows_{k}; n++)"):
                out.add(f"const int window = {self.s.at(k, 'n')};")
                for t in streamed:
                    with out.block("if (lane == 0)" if self.s.together else ""):
                        self.window_in(t, None)
                    out.add(f"{t.name}_next.step();")

    def load_chosen(self, streamed: list[Tile]) -> None:
        """The windows that count. One is copied when it is known whether it is the last."""
        out, s = self.out, self.s
        out.add("int held = -1;")
        with out.block("const auto send = [&](u32 last)", "};"):
            out.add(f"const int window = held >> {self.bits};")
            with out.block("if (lane == 0)"):
                for t in streamed:
                    heard = t.name == announcing(s).ring
                    mask = (1 << self.bits) - 1
                    word = f"(u32)window << {self.bits + 1} | last << {self.bits} | (held & {mask})"
                    self.window_in(t, f"(int)({word})" if heard else None)
            for t in streamed:
                out.add(f"{t.name}_next.step();")
        for k in s.order:
            self.tested(k)
        out.add(
            f"if (held < 0) held = {len(s.blocks) - 1};   // nothing counts, which the block sees"
        )
        out.add("send(1);")

    def window_in(self, t: Tile, word: str | None) -> None:
        """The copy of a window into the next stage, with word of what it is."""
        cursor = f"{t.name}_next"
        self.out.add(f"wait({self.barrier(t.name + '_free', cursor + '.stage')}, {cursor}.parity);")
        full = self.barrier(t.name + "_full", cursor + ".stage")
        if word is not None:
            self.out.add(f"shared_put({self.word(cursor)}, {word});")
        self.out.add(f"expect({full}, {t.bytes});")
        self.copy(t, f"{self.address(t.name)} + {cursor}.stage * {t.bytes}", full, "window", t.rows)

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
                for n, b in enumerate(s.blocks):
                    if b.number == k:
                        parts = [
                            f"{'' if yes else '!'}{self.scope.operand(c, None).text}"
                            for c, yes in b.choice
                        ]
                        out.add(f"if ({' && '.join(parts) or 'true'}) block = {n};")
            self.scope.values = saved
            with out.block("for (u32 left = __ballot_sync(FULL, block >= 0); left;)"):
                out.add(f"const int from = {next_one}, chosen = __shfl_sync(FULL, block, from);")
                out.add(f"{taken};")
                out.add("if (held >= 0) send(0);")
                out.add(
                    f"held = (start_{k} + (first + from) * {s.columns}) << {self.bits} | chosen;"
                )

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
        m = CopyMap(t.tensor, t.index.index(t.feature), t.index.index(t.axis), rows, t.width, slabs)
        if t.name not in self.maps:
            name = self.names.fresh(f"{t.name}_map")
            self.maps[t.name] = Parameter("map", name, "const __grid_constant__ TensorMap", m)
        return self.maps[t.name]
