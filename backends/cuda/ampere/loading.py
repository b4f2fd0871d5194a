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

    def origin_of(self, t: Tile) -> None:
        """Where this thread's piece of a tile's first row is, if the tile began at the start of its axis."""
        out, name = self.out, self.names.of(t.tensor)
        self.scope.used_pointers[t.tensor] = None
        feature, row = t.index.index(t.feature), t.index.index(t.axis)
        if not self.narrow:
            self.wide[t.tensor] = feature
        others = [(k, x) for k, x in enumerate(t.index) if k not in (feature, row)]
        terms = [f"(i64)({self.scope.operand(x, None).text}) * {name}_stride{k}" for k, x in others]
        terms.append(f"(threadIdx.x >> 3) * {name}_stride{row}")
        step = f" * {name}_stride{feature}" if self.narrow else ""
        terms.append(f"8 * (threadIdx.x & 7){step}")
        out.add(f"const u16* const {t.name}_from = {name} + {' + '.join(terms)};")
        extent = self.scope.scalar_expression(self.scope.dims(t.tensor)[row]).text
        tests = [self.in_range(t, k, x) for k, x in others]
        inside = " && ".join(x for x in tests if x)
        rows = f"({inside} ? {extent} : 0)" if inside else extent
        out.add(f"const int {t.name}_rows = {rows};")

    def in_range(self, t: Tile, k: int, x: Operand) -> str:
        """The test whether an index is in range, empty where it is known to be."""
        dim = self.scope.dims(t.tensor)[k]
        if self.scope.in_range(x, dim):
            return ""
        bound = self.scope.scalar_expression(dim).text
        return f"(u64)(i64)({self.scope.operand(x, None).text}) < (u64){bound}"

    def copy(self, t: Tile, position: str, stage: str = "") -> None:
        """The copy of the rows from a position on into a tile's place, or a stage of it."""
        name = self.names.of(t.tensor)
        row, feature = t.index.index(t.axis), t.index.index(t.feature)
        rows = self.plan.rooms[t.name].bytes // 128 // t.slabs
        place = f"{self.address(t.name)} + copied"
        if stage:
            place += f" + {stage} * {self.plan.rooms[t.name].bytes}"
        along = "" if self.narrow else "(int)"
        source = f"{t.name}_from + (i64)({position}) * {along}{name}_stride{row}"
        left = f"{t.name}_rows - ({position}) - (int)(threadIdx.x >> 3)"
        shape = f"{rows}, {t.width}, {self.schedule.threads}"
        if self.narrow:
            steps = f"{name}_stride{row}, {name}_stride{feature}"
            self.out.add(f"put_rows<{shape}>({place}, {source}, {steps}, {left});")
            return
        args = f"{place}, {source}, (int){name}_stride{row}, {left}"
        whole = f"({position}) + {rows} <= {t.name}_rows"
        self.out.add(f"if ({whole}) copy_rows<{shape}, true>({args});")
        self.out.add(f"else copy_rows<{shape}, false>({args});")
