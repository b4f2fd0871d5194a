"""Writes the regions of a grid: straight-line ops as stages, loops, branches, and what each region gives to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tilec.backends.cuda.simt.frame import Frame, Place, Variable
from tilec.backends.cuda.simt.functions import Val, convert
from tilec.backends.cuda.simt.memory import Tile
from tilec.backends.cuda.simt.plan import Planner, Segment
from tilec.backends.cuda.simt.values import Point, Window
from tilec.dataflow import stretches, uses
from tilec.errors import UnsupportedError
from tilec.ir import Body, For, If, Op, Operand, Yield, operands, walk


class Regions(Frame):
    """Writes regions."""

    def body(self, body: Body, out: Sequence[Place]) -> None:
        """The ops of a region; what it yields goes to `out`."""
        ends: Sequence[Operand] = ()
        if body and isinstance(body[-1], Yield):
            ends, body = body[-1].values, body[:-1]
        parts = stretches(body, (For, If))
        for n, (run, control) in enumerate(parts):
            later: list[Op] = [] if control is None else [control]
            for ops, op in parts[n + 1 :]:
                later += ops if op is None else [*ops, op]
            targets = self.targets(ends, out) if control is None else {}
            self.segment(run, set(uses(later)), ends, targets)
            places = (
                self.control_targets(control, ends, out, later[1:]) if control is not None else {}
            )
            if isinstance(control, For):
                self.loop(control, places)
            elif isinstance(control, If):
                self.branch(control, places)
        self.deliver(ends, out)

    def targets(self, ends: Sequence[Operand], out: Sequence[Place]) -> dict[str, Tile]:
        """Where values may be computed in place: those yielded once whose tile no other yielded value is read from."""
        found: dict[str, Tile] = {}
        for n, (x, place) in enumerate(zip(ends, out, strict=True)):
            others = [y for k, y in enumerate(ends) if k != n]
            if not isinstance(x, str) or not isinstance(place, Tile) or x in others:
                continue
            if not any(self.reads(y, place) for y in others):
                found[x] = place
        return found

    def control_targets(
        self, op: Op, ends: Sequence[Operand], out: Sequence[Place], later: Sequence[Op]
    ) -> dict[str, Tile]:
        """Where the results of a control op may lie: in the tile they are yielded to, where it is read by no later op."""
        found: dict[str, Tile] = {}
        for name, tile in self.targets(ends, out).items():
            if name not in {v.name for v in op.results}:
                continue
            after = [x for other in later for y in walk([other]) for x in operands(y)]
            if any(self.reads(x, tile) for x in after):
                continue
            if isinstance(op, For):
                n = [v.name for v in op.results].index(name)
                inside = [x for y in walk(op.body) for x in operands(y)]
                rest = [x for k, x in enumerate(op.init) if k != n]
                if self.lies_in(op.init[n], tile) and not any(
                    self.reads(x, tile) for x in [*inside, *rest]
                ):
                    found[name] = tile
            else:
                found[name] = tile
        return found

    def segment(
        self,
        ops: Sequence[Op],
        later: set[str],
        ends: Sequence[Operand],
        targets: Mapping[str, Tile],
    ) -> None:
        """Straight-line ops, of which later parts of the program read the names `later`."""
        if not ops:
            return
        yielded = {x for x in ends if isinstance(x, str)}
        defined = {v.name for op in ops for v in op.results}
        plan = Planner(ops, defined & (later | yielded), defined & yielded, self.ev.axes).plan()
        self.scalars(plan, 0)
        for n, stage in enumerate(plan.stages):
            for name in [*stage.kept, *(r.result.name for r in stage.reduces)]:
                target = targets.get(name)
                if (
                    target is not None
                    and name in stage.kept
                    and self.in_place(plan, n, name, target)
                ):
                    self.ev.held[name] = target
                else:
                    alone = name in stage.kept and name in plan.factors
                    self.ev.held[name] = self.tile(
                        name, self.matrices.only(name) if alone else None
                    )
            self.stages.emit(stage)
            self.settle(plan, n)
            self.scalars(plan, n + 1)

    def scalars(self, plan: Segment, place: int) -> None:
        for op in plan.scalars.get(place, []):
            self.stages.comment(op)
            self.scalar(op)

    def settle(self, plan: Segment, n: int) -> None:
        """Results without axes become scalars that every thread holds."""
        stage = plan.stages[n]
        names = [*stage.kept, *(r.result.name for r in stage.reduces)]
        scalars = [x for x in names if not self.kernel.values[x].type.axes]
        for name in scalars:
            tile = self.ev.held[name]
            assert isinstance(tile, Tile)
            value = self.ev.read(tile, Point({}))
            ctype = self.ev.real if value.kind == "real" else value.kind
            local = self.w.declare(ctype, self.names.with_suffix(name, "_all"), value.text)
            self.ev.held[name] = Val(local, value.kind, value.marked)
        if scalars:
            self.stages.sync()

    def in_place(self, plan: Segment, at: int, name: str, tile: Tile) -> bool:
        """Whether a value may overwrite the tile it is to end in: whoever reads the old one has done so by then, or does
        at the same point."""
        if not self.alike(name, tile):
            return False
        kept = {x for stage in plan.stages for x in stage.kept}
        for n in range(at, len(plan.stages)):
            stage = plan.stages[n]
            summed = stage.root is not None and self.reads_any(
                (stage.root.x, stage.root.y), tile, kept
            )
            pointwise = [x for x in stage.roots() if x not in stage.kept]
            pointwise += [y for x in stage.kept for y in operands(self.ev.defs[x])]
            if not summed and not self.reads_any(pointwise, tile, kept - set(stage.kept)):
                continue
            if n != at or set(stage.domain) != set(tile.axes) or summed:
                return False
        late = [op for place, ops in plan.scalars.items() if place > at for op in ops]
        return not any(self.reads_any(operands(op), tile, kept) for op in late)

    # ---- what regions give

    def deliver(self, values: Sequence[Operand], out: Sequence[Place]) -> None:
        """Sets the places `out` to what a region yields, all at once."""
        moves = [
            (x, t)
            for x, t in zip(values, out, strict=True)
            if not self.lies_in(x, t) and not (isinstance(t, Variable) and self.is_variable(x, t))
        ]
        scalars = [(x, t) for x, t in moves if isinstance(t, Variable)]
        texts = [(t, self.scalar_text(x, t)) for x, t in scalars]
        held = [
            (t, self.w.declare(self.ctype(t), self.names.fresh(t.name + "_next"), s))
            for t, s in texts
        ]
        tiles = [(x, t) for x, t in moves if isinstance(t, Tile)]
        if any(
            self.reads(x, t)
            for n, (x, _) in enumerate(tiles)
            for k, (_, t) in enumerate(tiles)
            if k != n
        ):
            tiles = [(self.aside(x, t), t) for x, t in tiles]
        for x, tile in tiles:
            self.stages.fill(tile, x)
        for t, name in held:
            self.w.line(f"{t.name} = {name};")

    def is_variable(self, x: Operand, t: Variable) -> bool:
        held = self.ev.held.get(x) if isinstance(x, str) else None
        return isinstance(held, Val) and held.text == t.name

    def scalar_text(self, x: Operand, t: Variable) -> str:
        value = self.ev.value(x, Point({}))
        text = convert(value, t.kind, self.ev.real)
        return (
            f"tl::ordinary({text})" if t.marked and not value.marked and t.kind == "real" else text
        )

    def aside(self, x: Operand, like: Tile) -> Operand:
        """A copy of an operand's value, under a name of its own."""
        name = f"aside {len(self.ev.held)}"
        kind = "real" if like.ctype == self.ev.real else like.ctype
        tile = self.scratch(self.names.fresh("aside"), kind, like.extents, like.marked)
        self.stages.fill(tile, x)
        self.ev.held[name] = tile
        self.ev.aside[name] = like.axes
        return name

    # ---- control flow

    def loop(self, op: For, given: Mapping[str, Tile]) -> None:
        """A streamed axis: its window moves, the carried values stay where they are."""
        self.stages.comment(op)
        places: list[Place] = []
        moves: list[tuple[Operand, Tile]] = []
        for arg, result, x in zip(op.args, op.results, op.init, strict=True):
            place: Place = (
                given.get(result.name) or self.adopted(x, arg.name) or self.place(arg.name)
            )
            if isinstance(place, Variable):
                self.w.line(f"{self.ctype(place)} {place.name} = {self.scalar_text(x, place)};")
                self.w.declared[-1].add(place.name)
            elif not self.lies_in(x, place):
                moves.append((x, place))
            places.append(place)
        for x, tile in moves:
            self.stages.fill(tile, x)
        for arg, result, place in zip(op.args, op.results, places, strict=True):
            self.hold(arg.name, place)
            self.hold(result.name, place)
        self.stream(op, places)

    def adopted(self, x: Operand, arg: str) -> Tile | None:
        """The tile of an initial value that nothing else uses."""
        held = self.ev.held.get(x) if isinstance(x, str) else None
        if (
            isinstance(held, Tile)
            and isinstance(x, str)
            and self.uses.get(x) == 1
            and self.alike(arg, held)
        ):
            return (
                held
                if not isinstance(self.ev.defs[x], For)
                or x in {v.name for v in self.ev.defs[x].results}
                else None
            )
        return None

    def stream(self, op: For, places: Sequence[Place]) -> None:
        extent = self.arguments.get("extent", op.axis)
        whole = self.kernel.extents[op.axis]
        if op.tile is None and not isinstance(whole, int):
            raise UnsupportedError(
                f"target cuda: the window of axis {op.axis} must have an extent; tile it"
            )
        self.ev.clock += 1
        before, start = self.ev.windows.get(op.axis), self.ev.clock
        if op.tile is None:
            assert isinstance(whole, int)
            with self.ev.scope():
                self.ev.windows[op.axis] = Window("0", str(whole), whole)
                self.body(op.body, places)
        else:
            first = "i64(0)" if op.start is None else self.integer(op.start)
            stop = extent if op.stop is None else f"tl::least({self.integer(op.stop)}, {extent})"
            at = self.names.with_suffix(op.axis, "_at")
            end = self.w.declare("i64", self.names.with_suffix(op.axis, "_end"), stop)
            with self.ev.scope(f"for (i64 {at} = {first}; {at} < {end}; {at} += {op.tile})"):
                self.window(op.axis, op.tile, at, op.ragged)
                self.body(op.body, places)
        self.ev.clock += 1
        for t in self.tiles:
            if t.first < start <= t.last:
                t.last = self.ev.clock
        for p in places:
            if isinstance(p, Tile):
                p.last = self.ev.clock
        self.ev.clock += 1
        if before is None:
            del self.ev.windows[op.axis]
        else:
            self.ev.windows[op.axis] = before

    def integer(self, x: Operand) -> str:
        return convert(self.ev.value(x, Point({})), "i64", self.ev.real)

    def branch(self, op: If, given: Mapping[str, Tile]) -> None:
        """One of two regions."""
        self.stages.comment(op)
        places: list[Place] = [given.get(v.name) or self.place(v.name) for v in op.results]
        for place in places:
            if isinstance(place, Variable):
                self.w.line(f"{self.ctype(place)} {place.name};")
                self.w.declared[-1].add(place.name)
        condition = convert(self.ev.value(op.cond, Point({})), "bool", self.ev.real)
        for head, region in ((f"if ({condition})", op.then), ("else", op.orelse)):
            held = dict(self.ev.held)
            with self.ev.scope(head):
                self.body(region, places)
            self.ev.held = held
        for v, place in zip(op.results, places, strict=True):
            self.hold(v.name, place)
        for p in places:
            if isinstance(p, Tile):
                p.last = max(p.last, self.ev.clock)
