"""Copies of tiles from global to shared memory, by all threads of a block."""

from __future__ import annotations

from dataclasses import replace

from tilec.backends.cuda.ampere.plan import Plan
from tilec.backends.cuda.hopper.computing import Computing
from tilec.backends.cuda.hopper.roles import Places
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.ir import Operand


class Loading(Places):
    """Writes the copies. `wide`: the tensors that are copied 16 bytes at a time, and along which dimension."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.structure, plan.schedule, plan.schedule.held)
        self.plan, self.schedule = plan, plan.schedule
        self.wide: dict[str, int] = {}

    @property
    def most_heads(self) -> str:
        """The heads of a section: a launch knows how long they are."""
        return "most_heads"

    @property
    def team(self) -> str:
        """Which of the block's rows a warp has."""
        return "team" if self.schedule.slices > 1 else "warp"

    def address(self, room: str) -> str:
        """The address of a room in shared memory."""
        return f"shared + {self.plan.rooms[room].offset}"

    def copier(self, t: Tile) -> None:
        """The function that brings the rows from a position on to a tile's place, or to a stage of it."""
        room = self.plan.rooms[t.name]
        stage = f" + stage * {room.bytes}" if room.count > 1 else ""
        with self.out.block(f"const auto copy_{t.name} = [&](int position, int stage)", "};"):
            if t.computed:
                self.computed(t, f"{self.address(t.name)}{stage}")
            else:
                self.copied(t, f"{self.address(t.name)}{stage}")

    def rows_in(self, t: Tile) -> int:
        """The rows of a tile."""
        return self.plan.rooms[t.name].bytes // 128 // t.slabs // t.parts

    def computed(self, t: Tile, to: str) -> None:
        """All warps compute the elements."""
        self.out.add("const int crew = warp;")
        if t.rounded:
            self.out.add("u32 probe = 0;")
        self.scope.whole = False
        rows = replace(t, rows=self.rows_in(t))
        computing = Computing(self.scope, rows, self.schedule.warps)
        computing.look_up("position")
        computing.write(to, "position")
        if t.rounded:
            self.out.add(
                "if (probe & 0x7fff7fff) *redo = 1;   // an element that 16 bits do not hold"
            )

    def copied(self, t: Tile, to: str) -> None:
        """Eight threads to a row, 16 bytes each."""
        out, name, rows = self.out, self.names.of(t.tensor), self.rows_in(t)
        self.scope.used_pointers[t.tensor] = None
        feature, row = t.index.index(t.feature), t.index.index(t.axis)
        self.wide[t.tensor] = feature
        others = [(k, x) for k, x in enumerate(t.index) if k not in (feature, row)]
        terms = [f"(i64)({self.again(x)}) * (int){name}_stride{k}" for k, x in others]
        terms.append(f"(i64)(position + row) * (int){name}_stride{row} + 8 * piece")
        out.add(f"const int thread = {self.thread(t)}, row = thread >> 3, piece = thread & 7;")
        out.add(f"const u16* const from = {name} + {' + '.join(terms)};")
        out.add(f"const u32 to = {to} + row * 128 + ((piece ^ (row & 7)) << 4);")
        out.add(f"const int left = {self.rows_of(t, row, others)} - position;")
        shape, step = f"{rows}, {t.width}, {self.schedule.threads}", f"(int){name}_stride{row}"
        out.add(f"if (left >= {rows}) copy_rows<{shape}>(to, from, {step});")
        out.add(f"else copy_some_rows<{shape}>(to, from, {step}, left - row);")

    def thread(self, t: Tile) -> str:
        """This thread's number; where registers are dear, from elsewhere for late tiles: nothing is kept for them."""
        other = self.plan.tight and self.plan.split and t in self.plan.late
        return "warp * 32 + lane_number()" if other else "THREAD"

    def again(self, x: Operand) -> str:
        """An index; where registers are dear, what is computed of it is computed at each copy."""
        e = self.scope.operand(x)
        return f"again({e.text})" if self.plan.tight and e.ctype == "int" else e.text

    def rows_of(self, t: Tile, row: int, others: list[tuple[int, Operand]]) -> str:
        """How many rows there are: none where another index is out of range."""
        extent = self.scope.scalar_expression(self.scope.dims(t.tensor)[row]).text
        inside = " && ".join(x for x in (self.in_range(t, k, x) for k, x in others) if x)
        return f"({inside} ? {extent} : 0)" if inside else extent

    def in_range(self, t: Tile, k: int, x: Operand) -> str:
        """The test whether an index is in range, empty where it is known to be."""
        dim = self.scope.dims(t.tensor)[k]
        if self.scope.in_range(x, dim):
            return ""
        bound = self.scope.scalar_expression(dim).text
        return f"(u64)(i64)({self.scope.operand(x).text}) < (u64){bound}"
