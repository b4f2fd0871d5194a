"""The byte budget: what a kernel moves between HBM and on-chip memory, stated without running it.

The walk goes through the IR with the extents of the axes, and evaluates only what decides which ops run: bounds of
loops and conditions. Windows that differ in nothing that matters are counted together, so that the time depends little
on the sizes. Where a running reference may be stale (`relax`), it counts as if it always were good enough. The reference
interpreter counts the same bytes by running everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tilec.control import Control
from tilec.errors import ArgumentError
from tilec.ir import Body, Buffer, For, Grid, Group, If, Kernel, Op, Store, Yield, operands, walk
from tilec.meter import Traffic, keys, window
from tilec.scalar import Number
from tilec.work import UNITS, Unit, Work

if TYPE_CHECKING:
    from tilec.backends.reference.machine import Machine


@dataclass(frozen=True)
class Alike:
    """Tiles of a grid that are alike: how many there are, and what each of them does and moves. `grid`: its number;
    `windows`: how many windows of streamed axes something is contracted in; `reach`: from which position to
    which these are."""

    grid: int
    count: int
    moved: int
    work: Mapping[Unit, int]
    windows: int
    reach: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Budget:
    """The bytes that a kernel moves for given sizes of its dimensions.

    `known`: these and its scalars, those that passes added as well.
    """

    kernel: str
    sizes: Mapping[str, int]
    known: Mapping[str, Number]
    ops: tuple[str, ...]
    """Every op that may move bytes, in the kernel's order; the keys of `traffic`."""
    traffic: Traffic
    work: Work
    """The operations of each op, by unit."""
    tiles: tuple[Alike, ...] = ()
    """The tiles of the grids, in order."""

    @property
    def total(self) -> int:
        """Bytes read and written."""
        return self.traffic.total


def budget(
    kernel: Kernel,
    sizes: Mapping[str, int],
    scalars: Mapping[str, Number] | None = None,
    arrays: Mapping[str, Any] | None = None,
) -> Budget:
    """What a kernel moves. Where that depends on data, `arrays` must hold the tensors that decide it.

    Raises ArgumentError if a dimension, a scalar or such a tensor is missing.
    """
    import numpy as np  # not needed by those who only read IR

    from tilec.backends.reference.machine import Machine

    control = Control(kernel, usual=True)
    known = environment(kernel, control, sizes, scalars or {}, arrays or {})
    machine = Machine(kernel, known, arrays or {})
    with np.errstate(all="ignore"):
        walked = Walk(machine, control)
        walked.body(kernel.body, 1)
    ops = tuple(dict.fromkeys(name for op in walk(kernel.body) for name in keys(op)))
    own = {d: sizes[d] for d in kernel.dims}
    meter = machine.meter
    return Budget(kernel.name, own, known, ops, meter.traffic, meter.work, tuple(walked.alike))


def rows(b: Budget) -> list[tuple[str, int, int]]:
    """The bytes read and written by each op that moves any, and of all."""
    reads, writes = b.traffic.reads, b.traffic.writes
    out = [(name, reads[name], writes[name]) for name in b.ops if reads[name] + writes[name]]
    return [*out, ("total", b.traffic.read, b.traffic.written)]


def facts(b: Budget) -> dict[str, object]:
    """The bytes that each op moves, for JSON."""
    *ops, total = [{"op": n, "read": r, "written": w} for n, r, w in rows(b)]
    return {"kernel": b.kernel, "sizes": dict(b.sizes), "ops": ops, "total": total}


def show(b: Budget) -> str:
    """A table of the bytes that each op moves."""
    wide = max(len(name) for name, _, _ in rows(b))
    lines = [f"{b.kernel}({', '.join(f'{d}={n}' for d, n in b.sizes.items())})"]
    lines.append(f"{'op':{wide}} {'bytes read':>20} {'bytes written':>20}")
    lines += [f"{name:{wide}} {read:>20,} {written:>20,}" for name, read, written in rows(b)]
    return "\n".join([*lines, ""])


def environment(
    kernel: Kernel,
    control: Control,
    sizes: Mapping[str, int],
    scalars: Mapping[str, Number],
    arrays: Mapping[str, Any],
) -> Mapping[str, Number]:
    """The sizes and scalars of a kernel, those that passes added as well. Raises ArgumentError if something is missing."""
    from tilec.backends.reference.interpreter import with_scalars

    for d in kernel.dims:
        if d not in sizes:
            raise ArgumentError(f"the size of dimension {d} is missing")
    for name, argument in kernel.arguments.items():
        if argument.default is None and name not in scalars:
            raise ArgumentError(f"the scalar {name} is missing, and has no default")
    for tensor in control.tensors:
        if tensor not in arrays:
            raise ArgumentError(
                f"how many bytes {kernel.name} moves depends on what {tensor} holds: give it as an array"
            )
    return with_scalars(kernel, sizes, scalars)


NOWHERE = (1 << 62, 0)


class Walk:
    """Goes through a kernel, and counts. Windows that are alike are gone through once."""

    def __init__(self, machine: Machine, control: Control) -> None:
        self.machine, self.control = machine, control
        self.alike: list[Alike] = []
        self.grids = 0
        self.windows = 0
        self.reach = NOWHERE

    def body(self, body: Body, times: int) -> None:
        """Counts the ops of a body that runs `times` times in the present windows."""
        for op in body:
            self.op(op, times)

    def op(self, op: Op, times: int) -> None:
        """Counts one op, and runs it where it decides on others."""
        machine = self.machine
        machine.meter.count(op, times)
        if isinstance(op, Grid):
            machine.meter.enter(op)
            held = dict(machine.windows)
            self.tiles(op.axes, op.body, times)
            self.grids += 1
            machine.windows = held
            machine.meter.leave()
        elif isinstance(op, Group):
            machine.meter.enter(op)
            self.region(op, op.body, times)
            machine.meter.leave()
        elif isinstance(op, For):
            self.loop(op, times)
        elif isinstance(op, If):
            good = op.relaxed or machine.read(op.cond).a.reshape(())
            taken = op.then if good else op.orelse
            self.region(op, taken, times)
        elif op not in self.control or isinstance(op, Yield):
            return
        elif isinstance(op, Buffer):
            machine.allocate(op.result.name, op.result.type)
        elif isinstance(op, Store):
            machine.store(op)
        else:  # an op without regions
            machine.values[op.result.name] = machine.evaluate(cast(Any, op))

    def region(self, op: Group | If, body: Body, times: int) -> None:
        """A region that runs once; its results are defined if they decide on something."""
        self.body(body, times)
        if op in self.control:
            self.machine.define(op.results, self.yielded(body))

    def yielded(self, body: Body) -> list[Any]:
        """What the yield at the end of a body gives."""
        return [self.machine.read(x) for x in operands(body[-1])]

    def tiles(self, axes: tuple[tuple[str, int], ...], body: Body, times: int) -> None:
        """The tiles of a grid; those that differ only along an axis that decides nothing are counted together."""
        if not axes:
            self.tile(body, times)
            return
        (axis, tile), *rest = axes
        starts = range(0, self.machine.extents[axis], tile)
        for here, count in self.classes(starts, tile, axis, axis in self.control.names):
            self.machine.windows[axis] = here
            self.tiles(tuple(rest), body, times * count)

    def tile(self, body: Body, times: int) -> None:
        """Tiles that are alike."""
        before, self.reach = self.totals(), NOWHERE
        self.body(body, times)
        if times:
            moved, windows, *work = (
                (b - a) // times for a, b in zip(before, self.totals(), strict=True)
            )
            each = dict(zip(UNITS, work, strict=True))
            reach = self.reach if windows else (0, 0)
            self.alike.append(Alike(self.grids, times, moved, each, windows, reach))

    def totals(self) -> tuple[int, ...]:
        """The bytes moved, the windows visited and the operations so far."""
        meter = self.machine.meter
        return meter.traffic.total, self.windows, *(meter.work.total(u) for u in UNITS)

    def loop(self, op: For, times: int) -> None:
        """The windows of a loop, likewise."""
        machine = self.machine
        decides = op in self.control
        carried = [machine.read(x) for x in op.init] if decides else []
        held = machine.windows[op.axis]
        one_by_one = decides or self.control.inside(op.body)
        starts = machine.starts(op)
        for here, count in self.classes(starts, op.tile, op.axis, one_by_one):
            machine.windows[op.axis] = here
            if decides:
                machine.define(op.args, carried)
            before = machine.meter.work.total("matrix")
            self.body(op.body, times * count)
            if machine.meter.work.total("matrix") > before:
                self.visit(
                    op, range(here[0], sum(here) + starts.step * (count - 1), starts.step), times
                )
            if decides:
                carried = self.yielded(op.body)
        machine.windows[op.axis] = held
        if decides:
            machine.define(op.results, carried)

    def visit(self, op: For, windows: range, times: int) -> None:
        """Notes windows of a loop in which something is contracted, by where they start and where the last one ends."""
        self.windows += times * len(windows)
        self.reach = min(self.reach[0], windows.start), max(self.reach[1], windows.stop)

    def classes(
        self, starts: range, tile: int | None, axis: str, one_by_one: bool
    ) -> Iterator[tuple[tuple[int, int], int]]:
        """Windows, and how many are like each: all but the last are full."""
        extent = self.machine.extents[axis]
        if one_by_one or not starts:
            yield from ((window(s, tile, extent), 1) for s in starts)
            return
        first, last = window(starts[0], tile, extent), window(starts[-1], tile, extent)
        ragged = int(last[1] < first[1])
        yield first, len(starts) - ragged
        if ragged:
            yield last, 1
