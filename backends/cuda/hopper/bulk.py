"""How a tile leaves: as a bulk copy out of shared memory, which clips what lies beyond the tensor, or from the registers."""

from __future__ import annotations

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.analysis import Registers
from tilec.backends.cuda.hopper.epilogue import Epilogue, Outgoing
from tilec.backends.cuda.hopper.plan import Plan
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.scope import Scope
from tilec.backends.cuda.hopper.source import CopyMap, Parameter


class BulkEpilogue(Epilogue):
    """Tiles leave as the schedule says. `maps` takes the maps of outputs."""

    def __init__(
        self, scope: Scope, plan: Plan, registers: Registers, maps: dict[str, Parameter]
    ) -> None:
        super().__init__(scope, registers, plan.schedule.slices)
        self.plan, self.maps = plan, maps

    def limit(self) -> str:
        """The first row that is not of this tile, which may be shorter than its fragments, or not there at all."""
        extent, rows = super().limit(), self.s.rows
        return extent if rows % ROWS == 0 else f"least<int>({extent}, origin + {rows})"

    def through(self, t: Outgoing) -> bool:
        """Whether a tile leaves through shared memory."""
        return self.plan.schedule.store == "tma" and t.dtype != "f32"

    def begin_copy(self, t: Outgoing) -> None:
        room = self.plan.rooms["out"]
        out = self.out
        out.add(
            "if ((threadIdx.x & 127) == 0) copy_read_out();   // the copy before this one has left shared memory"
        )
        out.add("named_sync(8 + w, 128);")
        out.add(
            f"const u32 out_place = shared + {room.offset} + w * {room.bytes}, out_row = warp * 16 + (lane & 15);"
        )
        out.add(
            "const u32 out_lane = out_place + out_row * 128 + ((((u32)lane >> 4) ^ (out_row & 7)) << 4);"
        )

    def matrices(self, dtype: str) -> None:
        """16 columns, as four 8 x 8 matrices, into the swizzled tile."""
        self.out.add(
            f"store_matrices((out_lane ^ ((b16 & 3) << 5)) + (b16 >> 2) * {ROWS * 128}, {self.pairs(dtype)});"
        )

    def end_copy(self, t: Outgoing) -> None:
        out, op, feature, width = self.out, t.op, t.feature, t.width
        slabs = width % 64 == 0 and len(op.index) < 5
        name = f"{self.names.of(op.tensor)}_map"
        if op.tensor not in self.maps:
            name = self.names.fresh(name)
            m = CopyMap(
                op.tensor, op.index.index(feature), op.index.index(self.s.row), ROWS, width, slabs
            )
            self.maps[op.tensor] = Parameter("map", name, "const __grid_constant__ TensorMap", m)
        rest = "".join(
            f", (int){self.scope.operand(x).text}"
            for x in op.index
            if x not in (feature, self.s.row)
        )
        out.add("written_for_copies();")
        out.add("named_sync(8 + w, 128);")
        with out.block("if ((threadIdx.x & 127) == 0)"):
            if slabs:
                out.add(
                    f"copy_out(&{name}, out_place, 0, origin + w * 64, 0{rest});{self.scope.comment(op)}"
                )
            else:
                for k in range(-(-width // 64)):
                    place = f"out_place + {k * ROWS * 128}, {64 * k}, origin + w * 64{rest}"
                    out.add(f"copy_out(&{name}, {place});{self.scope.comment(op)}")
            out.add("copy_commit();")

    # ---- out of registers

    def gathered(self, t: Outgoing) -> int:
        """How many times 8 columns are at hand: rows leave 16 bytes at a time where they can, else 8. What is loaded needs
        registers, too."""
        if self.late(t):
            return 2
        return 4 if t.width % 8 == 0 and self.slice(t.width).columns % 32 == 0 else 2

    def begin_rows(self, t: Outgoing) -> None:
        """Where this thread's rows are in memory."""
        out, op, name = self.out, t.op, self.names.of(t.op.tensor)
        if t.width % 4:
            raise Refused(f"output {op.tensor} has {t.width} columns, no multiple of 4")
        eights = self.gathered(t)
        self.scope.paired[op.tensor] = op.index.index(t.feature), 2 * eights
        offset = self.offset(op, {t.feature: "0", self.s.row: "row_i[r]"})
        lane = "8 * (lane & 3)" if eights == 4 else "8 * (lane & 1) + 2 * (lane & 2)"
        out.add(f"const int out_column = {self.first}{lane};")
        out.add(f"u16* out_row[{self.held}]; ROWS out_row[r] = {name} + ({offset}) + out_column;")
        limit = self.limit()
        out.add(f"bool out_here[{self.held}]; ROWS out_here[r] = row_i[r] < {limit};")

    def direct_pairs(self, t: Outgoing) -> None:
        """Of 16 or 32 columns a thread gathers 4 or 8 of a row first."""
        out, eights = self.out, self.gathered(t)
        wide = 8 * eights
        with out.block("ROWS"):
            words = ", ".join(
                f"pack_{t.dtype}(four[{k}][2 * r], four[{k}][2 * r + 1])" for k in range(eights)
            )
            out.add(f"u32 part[{eights}] = {{{words}}};")
            out.add("gather_row(part);")
            place = f"{wide} * b{wide}"
            here = "out_here[r]" + (
                f" && {place} + out_column < {t.width}" if self.beyond(t.width, wide) else ""
            )
            out.add(f"store_if({here}, out_row[r] + {place}, part);{self.scope.comment(t.op)}")
