"""The products of a computing warpgroup: issued, and waited for."""

from __future__ import annotations

from tilec.backends.cuda.hopper.analysis import HEAVY
from tilec.backends.cuda.hopper.loading import Loading
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.steps import Settle
from tilec.backends.cuda.hopper.tiles import PARTS, Tile
from tilec.backends.cuda.hopper.wgmma import UNROLLED, steps
from tilec.ir import Load, Map, walk


class Products(Loading):
    """Writes the products of heads and tails; their accumulators are registers that the compiler may not move."""

    @property
    def cleared(self) -> bool:
        """Whether a tile begins with zeros in its accumulators, or its first tails replace what is there. Zeros cost nothing
        that can be seen where a window takes long, and the compiler then finds registers for its values."""
        ops = [op for b in self.s.blocks for op in walk(b.middle) if isinstance(op, Map)]
        heavy = any(
            op.fn in HEAVY and op.result.type.dtype == "f32" and len(op.result.type.axes) == 2
            for op in ops
        )
        gated = any(
            isinstance(op, Load) and len(op.result.type.axes) == 2 for op in self.s.epilogue
        )
        return self.s.precise or heavy or gated

    def visible(self, *tiles: Tile) -> None:
        """Makes tiles that have arrived visible to wgmma: what threads have copied is not."""
        if any(t.copied for t in tiles):
            self.out.add("copied_for_products();")

    def issue_heads(self) -> None:
        """S = Q Kᵀ, or several such; what adds to a head goes on in its registers."""
        out, b = self.out, self.s.blocks[0]
        if self.s.precise:
            out.add(" ".join(f"clear({name});" for name in self.registers.heads))
        out.add("group_fence();")
        for name in self.registers.heads:
            out.add(f"pin({name});")
        free = iter(self.registers.heads)
        ends = [h for h in b.heads if h.name not in {x.init for x in b.heads}]
        for h in ends:
            chain = [h]
            while chain[0].init is not None:
                chain.insert(0, next(x for x in b.heads if x.name == chain[0].init))
            array = next(free)
            for n, x in enumerate(chain):
                count = steps(x.key.width)
                how, part = "long_" if count > UNROLLED and not self.s.precise else "", ""
                if self.schedule.share:
                    how, part, count = "half_", ", slice", count // 2
                more = str(n > 0).lower()
                if self.s.precise:
                    q, k = x.query, x.key
                    more = f"{q.parts}, {q.slabs * ROWS * 128}, {k.parts}, {k.part_bytes}"
                rows = f"{x.query.name}_rows{self.row_buffer(x.query)}"
                out.add(
                    f"{how}rows_by_rows_{x.key.dtype}<{count}, {ROWS * 128}, {x.key.rows * 128}, {more}>"
                    f"({array}, {rows}, {x.key.name}_rows + {self.stage(x.key, 'ahead')}{part});"
                    f"   // {x.name} = contract({x.query.name}, {x.key.name}, over={x.key.feature})"
                )
        out.add("group_commit();")

    def share(self) -> None:
        """Adds what the other slice's group has of each head."""
        room, team = self.plan.rooms["scores"], self.schedule.slices
        for name in self.registers.heads:
            places = (
                f"shared + {room.offset} + (team * {team} + {n}) * {room.bytes}"
                for n in ("slice", "1 - slice")
            )
            self.out.add(f"add_other({name}, {', '.join(places)}, 1 + team);")

    def row_buffer(self, t: Tile) -> str:
        """From a descriptor of rows to that of this turn."""
        if not self.plan.chained:
            return ""
        return f" + (u64)((turn & 1) * {self.plan.rooms[t.name].bytes * self.schedule.teams >> 4})"

    def issue_tails(self) -> None:
        """O += P V."""
        out, b = self.out, self.s.blocks[0]
        out.add("group_fence();")
        each = self.s.weight_parts
        weights = {
            x: self.registers.weights[k * each : k * each + each]
            for k, x in enumerate(dict.fromkeys(t.x for t in b.tails))
        }
        for t in b.tails:
            out.add(f"pin({self.registers.slots[t.slot]});")
        for name in self.registers.weights:
            out.add(f"pin({name});")
        begun = set[int]()
        for t in b.tails:
            call = f"weights_by_columns_{t.value.dtype}<{self.s.columns // 16}>"
            what = f"contract({t.x}, {t.value.name}, over={self.s.stream})"
            place = f"{t.value.name}_columns + {self.stage(t.value, 'late')}"
            slot = self.registers.slots[t.slot]
            for n, w in enumerate(weights[t.x]):
                more = "1" if self.cleared or t.slot in begun else "adding"
                if t.value.parts > 1:
                    more = f"{min(t.value.parts, PARTS - n)}, {t.value.part_bytes}"
                begun.add(t.slot)
                out.add(
                    f"{call}({slot}, {w}, {place}, {more});"
                    f"   // {self.s.slots[t.slot].name} += {what}"
                )
        out.add("group_commit();")
        if not self.cleared:
            out.add("adding = 1;")

    def stage(self, t: Tile, which: str) -> str:
        """Where a ring's stage is, as descriptors count."""
        return f"(u64)({t.name}_{which}.stage * {t.bytes >> 4})"

    def settle(self, step: Settle) -> None:
        """Waits for groups; what they wrote or read may be used from here on."""
        out = self.out
        out.add(f"group_wait<{step.pending}>();")
        if "heads" in step.done:
            for name in self.registers.heads:
                out.add(f"pin({name});")
        if "tails" in step.done:
            for t in {t.slot: t for t in self.s.blocks[0].tails}.values():
                out.add(f"pin({self.registers.slots[t.slot]});")
            for name in self.registers.weights:
                out.add(f"pin({name});")
