"""How the tiles of a kernel leave: through shared memory, 16 bytes at a time, or element by element."""

from __future__ import annotations

from tilec.backends.cuda.ampere.plan import Plan
from tilec.backends.cuda.hopper.analysis import Registers
from tilec.backends.cuda.hopper.epilogue import Epilogue, Outgoing
from tilec.backends.cuda.hopper.scope import Scope


class Leaving(Epilogue):
    """Each warp writes its own rows. `wide` takes the outputs that are written 16 bytes at a time."""

    def __init__(
        self, scope: Scope, plan: Plan, registers: Registers, wide: dict[str, int]
    ) -> None:
        super().__init__(scope, registers, plan.schedule.slices)
        self.plan, self.wide = plan, wide

    @property
    def team(self) -> str:
        """Which of the block's rows a warp has."""
        return "team" if self.slices > 1 else "warp"

    def limit(self) -> str:
        """The first row that is not of this tile, which may have fewer than the block, or not there at all."""
        extent, rows = super().limit(), self.s.rows
        if rows == self.plan.schedule.rows:
            return extent
        return f"least<int>({extent}, origin + {rows})"

    def through(self, t: Outgoing) -> bool:
        """Whether a tile leaves through shared memory."""
        return t.width % 8 == 0 and t.dtype != "f32"

    def begin_copy(self, t: Outgoing) -> None:
        """Where this thread's elements go."""
        height = self.plan.schedule.height
        self.out.add("__syncwarp();   // what was there has left")
        place = f"shared + {self.team} * {height * 128}"
        if self.slices > 1:
            place += f" + slice * {self.slice(t.width).slabs * self.plan.schedule.rows * 128}"
        self.out.add(f"const u32 out_place = {place};")
        self.out.add("const u32 out_lane = out_place + (lane >> 2) * 144 + (lane & 3) * 4;")

    def matrices(self, dtype: str) -> None:
        """16 columns into the tile, two elements at a time."""
        slab = self.plan.schedule.rows * 128
        for half in (0, 1):
            self.out.add(
                f"const u32 out_{half} = (out_lane ^ ((2 * (b16 & 3) + {half}) << 4)) + (b16 >> 2) * {slab};"
            )
            for r in range(self.held):
                pair = f"four[{half}][{2 * r}], four[{half}][{2 * r + 1}]"
                self.out.add(f"shared_word(out_{half} + {r * 1024}, pack_{dtype}({pair}));")

    def end_copy(self, t: Outgoing) -> None:
        """Eight threads take a row of a slab."""
        out, c, op = self.out, self.plan.schedule, t.op
        self.wide[op.tensor] = op.index.index(t.feature)
        out.add("__syncwarp();")
        out.add("#pragma unroll")
        with out.block(f"for (int start = 0; start < {c.height}; start += 4)"):
            out.add(
                f"const int row = start + (lane >> 3), taken = origin + {self.team} * {c.height} + row;"
            )
            out.add("#pragma unroll")
            with out.block(f"for (int slab = 0; slab < {self.slice(t.width).slabs}; slab++)"):
                out.add(f"const int column = {self.first}64 * slab + 8 * (lane & 7);")
                place = f"out_place + slab * {c.rows * 128} + row * 128 + (((lane & 7) ^ (row & 7)) << 4)"
                limit = self.limit()
                test = f"taken < {limit}" + ("" if t.width % 64 == 0 else f" && column < {t.width}")
                offset = self.offset(op, {t.feature: "column", self.s.row: "taken"})
                name = self.names.of(op.tensor)
                out.add(
                    f"if ({test}) *(uint4*)(&{name}[{offset}]) = get_shared({place});{self.scope.comment(op)}"
                )

    def direct_pairs(self, t: Outgoing) -> None:
        """Element by element, for rows that begin anywhere."""
        out, op, name = self.out, t.op, self.names.of(t.op.tensor)
        limit = self.limit()
        out.add("#pragma unroll")
        with out.block("for (int b8 = 0; b8 < 2; b8++) EACH"):
            out.add(f"const int r = x >> 1, column = {self.column};")
            offset = self.offset(op, {t.feature: "column", self.s.row: "row_i[r]"})
            out.add(
                f"if (row_i[r] < {limit} && column < {t.width}) {name}[{offset}] = "
                f"(u16)pack_{t.dtype}(four[b8][x], 0.f);{self.scope.comment(op)}"
            )
