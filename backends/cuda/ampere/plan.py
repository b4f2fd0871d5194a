"""The plan of a grid: what lies where in shared memory, how many registers tiles take, in which order copies are made.

With one stage per streamed tensor, a block of threads does, for a window n,

    wait for all copies; sync      everyone is done with the values of n - 1
    copy the values of n           s = q · k(n); compute
    wait for all copies; sync      everyone is done with the keys of n
    copy the keys of n + 1         o += p · v(n)

and with more stages

    wait for the copies of n; sync
    copy the window n + stages - 1
    s = q · k(n); compute; o += p · v(n)
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.slices import Slice
from tilec.backends.cuda.hopper.structure import Structure
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.ir import Load, walk

RESERVE = 20
"""Registers for addresses, row values and what is under way, at least."""

COMFORT = 84
"""Registers beside those for tiles with which nothing needs to be saved."""


@dataclass(frozen=True)
class Room:
    """A place in shared memory: `count` buffers of `bytes`."""

    name: str
    offset: int
    bytes: int
    count: int


@dataclass(frozen=True)
class Plan:
    """A grid on its way to CUDA. `early`: the streamed tiles that the first products read; `late`: the others."""

    structure: Structure
    schedule: Schedule
    rooms: dict[str, Room]
    shared: int
    early: tuple[Tile, ...]
    late: tuple[Tile, ...]

    @property
    def split(self) -> bool:
        """Whether the late tiles of a window are copied after its early ones: with a single stage."""
        return self.schedule.stages == 1

    @property
    def busy(self) -> int:
        """The warps that have rows: a tile may have fewer than a block."""
        return -(-self.structure.rows // self.schedule.height) * self.schedule.slices

    @property
    def tight(self) -> bool:
        """Whether what is easily computed again is not kept in registers."""
        need = fragment_registers(self.structure, self.schedule)
        if any(op.result.type.dtype != "bool" for op in elements(self.structure)):
            need += 2 * scores(self.schedule)  # as they are loaded, and as they are used
        return need + COMFORT > self.schedule.registers


def make(s: Structure, schedule: Schedule, limit: int) -> Plan:
    """The plan of a grid under a schedule, with at most `limit` bytes of shared memory. Raises Refused where none fits."""
    schedule.check()
    if s.rows > schedule.rows:
        raise Refused(f"its tiles have {s.rows} rows; the schedule has {schedule.rows}")
    if s.columns != schedule.columns:
        raise Refused(f"its windows have {s.columns} columns; the schedule has {schedule.columns}")
    if schedule.query != "shared" and any(q.parts > 1 for q in s.queries):
        raise Refused("its rows are in parts, which do not stay in registers")
    need = fragment_registers(s, schedule)
    if need + RESERVE > schedule.registers:
        raise Refused(
            f"its fragments take {need} registers per thread, beside {RESERVE} others; there are {schedule.registers}"
        )
    early, late = _rings(s)
    if schedule.stages == 1 and len(early) + len(late) > len(s.rings):
        raise Refused("a tile is used in both products: that needs two stages")
    if s.chosen and schedule.stages > 2:
        raise Refused("data decides which windows count: that takes one or two stages")
    rooms = _memory(s, schedule)
    shared = max(r.offset + r.bytes * r.count for r in rooms.values())
    if shared > limit:
        raise Refused(f"it needs {shared:,} bytes of shared memory; there are {limit:,}")
    return Plan(s, schedule, rooms, shared, early, late)


def padded(width: int) -> int:
    """The columns of a fragment for `width` of them."""
    return -(-width // 16) * 16


def kept(q: Tile, schedule: Schedule) -> int:
    """The columns of a row that stay in registers: half of them is whole slabs."""
    match schedule.query:
        case "shared":
            return 0
        case "half":
            return q.slabs // 2 * 64
        case "registers":
            return padded(q.width)


def fragment_registers(s: Structure, schedule: Schedule) -> int:
    """Registers per thread for tiles: scores, which become weights, accumulators, and rows that stay in registers."""
    b, height = s.blocks[0], schedule.height
    scores = sum(h.init is None for h in b.heads) * schedule.columns
    weights = len({t.x for t in b.tails}) * s.weight_parts * schedule.columns // 2
    sums = sum(Slice(x.width, schedule.slices).columns for x in s.slots)
    rows = sum(kept(q, schedule) for q in s.queries) // 2
    both = max(scores, weights) if s.weight_parts == 1 else scores + weights
    return (both + sums + rows) * height // 32


def scores(schedule: Schedule) -> int:
    """The scores of a window that a thread has."""
    return schedule.columns * schedule.height // 32


def loads(s: Structure) -> list[Load]:
    """What blocks load between their products."""
    return [op for b in s.blocks for op in walk(b.middle) if isinstance(op, Load)]


def elements(s: Structure) -> list[Load]:
    """Those loads that each score has its own of."""
    return [op for op in loads(s) if set(op.result.type.axes) == {s.row, s.stream}]


def _rings(s: Structure) -> tuple[tuple[Tile, ...], tuple[Tile, ...]]:
    """The streamed tiles that the first and that the second products read."""
    heads = {h.key.name for h in s.blocks[0].heads}
    tails = {t.value.name for t in s.blocks[0].tails}
    return (
        tuple(t for t in s.rings if t.name in heads),
        tuple(t for t in s.rings if t.name in tails),
    )


def _memory(s: Structure, schedule: Schedule) -> dict[str, Room]:
    """The rows of the first products come first: outputs leave through the same place, and through what follows it."""
    rooms: dict[str, Room] = {}
    at = 0
    for q in s.queries:
        rooms[q.name] = Room(q.name, at, q.parts * q.slabs * schedule.rows * 128, 1)
        at += rooms[q.name].bytes
    for t in s.rings:
        rooms[t.name] = Room(
            t.name, at, t.parts * t.slabs * schedule.columns * 128, schedule.stages
        )
        at += rooms[t.name].bytes * schedule.stages
    widest = max((Slice(x.width, schedule.slices).slabs for x in s.slots), default=0)
    rooms["out"] = Room("out", 0, widest * schedule.slices * schedule.rows * 128, 1)
    return rooms


def show(plan: Plan) -> str:
    """The plan as text."""
    c = plan.schedule
    tiles = fragment_registers(plan.structure, c)
    lines = [
        f"plan {plan.structure.kernel.name}   {c.threads} threads, shared {plan.shared} bytes, schedule {c}",
        *(f"  {r.name}: {r.count} × {r.bytes} bytes at {r.offset}" for r in plan.rooms.values()),
        f"  {c.registers} registers per thread, {tiles} hold tiles",
        f"  copied first: {', '.join(t.name for t in plan.early)}",
        f"  copied {'while the first products run' if plan.split else 'with them'}: "
        f"{', '.join(t.name for t in plan.late)}",
    ]
    return "\n".join(lines) + "\n"
