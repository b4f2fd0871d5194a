"""Copies of tiles from global to shared memory, by all threads of a block."""

from __future__ import annotations

from tilec.backends.cuda.ampere.plan import Plan
from tilec.backends.cuda.hopper.roles import Places
from tilec.backends.cuda.hopper.structure import Tile
from tilec.ir import Operand


class Loading(Places):
    """Writes the copies. `wide`: the tensors that are copied 16 bytes at a time, and along which dimension."""

    def __init__(self, plan: Plan) -> None:
        super().__init__(plan.structure, plan.schedule, plan.schedule.held)
        self.plan, self.schedule = plan, plan.schedule
        self.wide: dict[str, int] = {}

    def address(self, room: str) -> str:
        """The address of a room in shared memory."""
        return f"shared + {self.plan.rooms[room].offset}"

    @property
    def narrow(self) -> bool:
        """Whether elements are copied one by one."""
        return self.schedule.access == "narrow"

    def copier(self, t: Tile) -> None:
        """The function that copies the rows from a position on into a tile's place, or a stage of it: eight threads to a
        row, 16 bytes each."""
        out, name = self.out, self.names.of(t.tensor)
        self.scope.used_pointers[t.tensor] = None
        feature, row = t.index.index(t.feature), t.index.index(t.axis)
        if not self.narrow:
            self.wide[t.tensor] = feature
        room = self.plan.rooms[t.name]
        rows = room.bytes // 128 // t.slabs
        whole = "" if self.narrow else "(int)"  # steps that are wide copies' are short
        others = [(k, x) for k, x in enumerate(t.index) if k not in (feature, row)]
        terms = [f"(i64)({self.again(x)}) * {whole}{name}_stride{k}" for k, x in others]
        terms.append(f"(i64)(position + row) * {whole}{name}_stride{row}")
        terms.append(f"8 * piece{f' * {name}_stride{feature}' if self.narrow else ''}")
        with out.block(f"const auto copy_{t.name} = [&](int position, int stage)", "};"):
            out.add(f"const int thread = {self.thread(t)}, row = thread >> 3, piece = thread & 7;")
            out.add(f"const u16* const from = {name} + {' + '.join(terms)};")
            stage = f" + stage * {room.bytes}" if room.count > 1 else ""
            out.add(
                f"const u32 to = {self.address(t.name)}{stage} + row * 128 + ((piece ^ (row & 7)) << 4);"
            )
            out.add(f"const int left = {self.rows_of(t, row, others)} - position;")
            shape = f"{rows}, {t.width}, {self.schedule.threads}"
            if self.narrow:
                steps = f"{name}_stride{row}, {name}_stride{feature}"
                out.add(f"put_rows<{shape}>(to, from, {steps}, left - row);")
            else:
                step = f"(int){name}_stride{row}"
                out.add(f"if (left >= {rows}) copy_rows<{shape}>(to, from, {step});")
                out.add(f"else copy_some_rows<{shape}>(to, from, {step}, left - row);")

    def thread(self, t: Tile) -> str:
        """This thread's number; where registers are dear, from elsewhere for late tiles: nothing is kept for them."""
        other = self.plan.tight and self.plan.split and t in self.plan.late
        return "warp * 32 + lane_number()" if other else "THREAD"

    def again(self, x: Operand) -> str:
        """An index; where registers are dear, what is computed of it is computed at each copy."""
        e = self.scope.operand(x, None)
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
        return f"(u64)(i64)({self.scope.operand(x, None).text}) < (u64){bound}"
