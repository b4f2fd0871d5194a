"""The kernel plan: which warpgroup does what (`steps`), and where every tile lives.

The emitter walks the steps and writes CUDA; what a plan states of shared memory is what the kernel takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper import asked
from tilec.backends.cuda.hopper.labels import RING, Label, labelled, labels
from tilec.backends.cuda.hopper.schedule import ROWS, THREADS, Schedule
from tilec.backends.cuda.hopper.slices import SLAB, Slice
from tilec.backends.cuda.hopper.staging import DEPTH, LEAST_DEPTH, STAGED, Staged, staged
from tilec.backends.cuda.hopper.steps import Step, program
from tilec.backends.cuda.hopper.structure import Structure
from tilec.backends.cuda.hopper.tiles import Tile


@dataclass(frozen=True)
class Room:
    """A place in shared memory: `count` buffers of `bytes`."""

    name: str
    offset: int
    bytes: int
    count: int


@dataclass(frozen=True)
class Loader:
    """Loading warps, from `first` on, that bring the same tiles together."""

    first: int
    warps: int
    tiles: tuple[Tile, ...]

    @property
    def computes(self) -> bool:
        """Whether its tiles are computed."""
        return any(t.computed for t in self.tiles)


@dataclass(frozen=True)
class Plan:
    """A grid on its way to CUDA. `steps` are those of a tile; `begin` is before the first one. `chained`: see `steps`.

    `labels`: those that the loading warps bring, and `staging`: what they stage, where there is room for them.
    """

    structure: Structure
    schedule: Schedule
    chained: bool
    labels: tuple[Label, ...]
    staging: tuple[Staged, ...]
    rooms: dict[str, Room]
    barriers: dict[str, tuple[int, int, int]]
    shared: int
    begin: tuple[Step, ...]
    steps: tuple[Step, ...]
    loaders: tuple[Loader, ...]

    @property
    def together(self) -> bool:
        """Whether a loading warp needs all its threads."""
        return self.structure.together or bool(self.labels)

    @property
    def fragments(self) -> int:
        """The registers per computing thread that hold tiles."""
        return fragment_registers(self.structure, self.schedule.slices)


WIDEST = 256
"""The columns of the widest product."""


def padded(width: int) -> int:
    """The columns of an accumulator for `width` of them."""
    return -(-width // 16) * 16


def fragment_registers(s: Structure, slices: int = 1) -> int:
    """Registers per thread for score, weight and accumulator tiles, and for what is asked for early."""
    b = s.blocks[0]
    scores = sum(h.init is None for h in b.heads) * s.columns // 2
    weights = len({t.x for t in b.tails}) * s.weight_parts * s.columns // 4
    sums = sum(Slice(x.width, slices).columns // 2 for x in s.slots)
    return scores + weights + sums + asked.registers(s)


def _widest(s: Structure, schedule: Schedule) -> int:
    """The columns of the widest accumulators."""
    return max((Slice(x.width, schedule.slices).columns for x in s.slots), default=0)


def product_registers(s: Structure, schedule: Schedule) -> int:
    """The registers that a thread must begin with, by the compiler's count, for its widest product."""
    return max(_widest(s, schedule), schedule.columns) // 2 + BESIDE


def sharing(s: Structure) -> bool:
    """Whether each of two groups can compute a half of each product of rows."""
    return not s.precise and all(h.key.width % SLAB == 0 for h in s.blocks[0].heads)


def make(s: Structure, schedule: Schedule) -> Plan:
    """The plan of a grid under a schedule. Raises Refused where it does not fit."""
    schedule.check()
    if not schedule.rows - ROWS < s.rows <= schedule.rows:
        raise Refused(f"its tiles have {s.rows} rows; the schedule has {schedule.rows}")
    if s.rows % ROWS and schedule.store == "tma":
        raise Refused(f"its tiles have {s.rows} rows, fewer than a copy has")
    if s.columns != schedule.columns:
        raise Refused(f"its windows have {s.columns} columns; the schedule has {schedule.columns}")
    widest = _widest(s, schedule)
    if widest > WIDEST:
        raise Refused(f"{widest} columns of values are more than a product has; there are {WIDEST}")
    if (product := product_registers(s, schedule)) > schedule.entry:
        raise Refused(
            f"its products take {product} registers per thread, which begins with {schedule.entry}"
        )
    if schedule.slices > 1 and schedule.store == "tma":
        raise Refused("slices of the columns leave straight from registers")
    if schedule.share and not sharing(s):
        raise Refused("its scores cannot be shared: its rows are in parts, or no whole slabs")
    need, have = fragment_registers(s, schedule.slices), schedule.registers[1]
    if need + RESERVE > have:
        raise Refused(
            f"its fragments take {need} registers per thread, beside {RESERVE} others; there are {have}"
        )
    most = schedule.shared
    brought = labels(s)
    ahead, window = ((), 0) if s.chosen else _staged(s)
    if ahead and len(labelled(s)) < len(s.blocks):
        brought = ()  # a window that is staged has none or all

    def fits(chained: bool, depth: int, brought: tuple[Label, ...]) -> bool:
        return _memory(s, schedule, chained, brought, window, depth)[2] <= most

    chains = [True, False] if schedule.chain else [False]
    depths = range(DEPTH, LEAST_DEPTH - 1, -1) if ahead else ()
    depth = next((n for n in depths if any(fits(c, n, brought) for c in chains)), 0)
    ahead = ahead if depth else ()
    chained = next((c for c in chains if fits(c, depth, brought if depth else ())), False)
    if not fits(chained, depth, brought):
        brought = ()
    rooms, barriers, shared = _memory(s, schedule, chained, brought, window, depth)
    if shared > most:
        raise Refused(f"it needs {shared:,} bytes of shared memory; there are {most:,}")
    begin, steps = program(s, schedule, chained, labelled(s) if brought else frozenset())
    return Plan(
        s, schedule, chained, brought, ahead, rooms, barriers, shared, begin, steps, _loaders(s)
    )


def memory_bytes(s: Structure, schedule: Schedule) -> int:
    """The shared memory that a schedule needs, in bytes."""
    rings = tuple(replace(t, rows=schedule.columns) for t in s.rings)
    s = replace(s, rings=rings)
    window = 0 if s.chosen else _staged(s)[1]
    return _memory(s, schedule, False, (), window, LEAST_DEPTH)[2]


BESIDE = 30
"""What the compiler asks for beside the accumulators of a product."""
RESERVE = 24
"""Registers for addresses, row values and what is under way, at least."""


def _staged(s: Structure) -> tuple[tuple[Staged, ...], int]:
    """What the loading warps stage, and the bytes of a window."""
    rings = set(s.rings)
    found = [x for x in _loaders(s) if x.computes]
    tiles = [t for x in found for t in x.tiles if t in rings]
    return staged(s.kernel, tiles, found[0].warps) if found else ((), 0)


def _memory(
    s: Structure,
    schedule: Schedule,
    chained: bool,
    brought: tuple[Label, ...] = (),
    window: int = 0,
    depth: int = 0,
) -> tuple[dict[str, Room], dict[str, tuple[int, int, int]], int]:
    rooms: dict[str, Room] = {}
    at = 0

    def room(name: str, bytes: int, count: int) -> None:
        nonlocal at
        rooms[name] = Room(name, at, bytes, count)
        at += bytes * count

    groups = schedule.warpgroups
    queries = schedule.teams * (2 if chained else 1)
    for q in s.queries:
        room(q.name, q.parts * q.slabs * ROWS * 128, queries)
    for t in s.rings:
        room(t.name, t.bytes, schedule.stages)
    if schedule.store == "tma":
        room("out", max((-(-x.width // 64) * ROWS * 128 for x in s.slots), default=0), groups)
    if schedule.share:
        room("scores", THREADS * schedule.columns * 2, groups)
    if window and depth:
        room(STAGED, window, depth)
    barriers: dict[str, tuple[int, int, int]] = {}

    def barrier(name: str, count: int, copies: int) -> None:
        nonlocal at
        barriers[name] = (at, count, copies)
        at += 8 * copies

    loaders = _loaders(s)
    crew = {t.name: x.warps for x in loaders for t in x.tiles if x.computes}
    each = {t.name: 32 * crew[t.name] for x in loaders for t in x.tiles if t.copied and x.computes}
    whole = max(crew.get(t.name, 1) for t in s.queries)
    barrier("query_full", whole + sum(each.get(t.name, 0) for t in s.queries), queries)
    barrier("query_free", 4 * schedule.slices, queries)
    for t in s.rings:
        barrier(f"{t.name}_full", crew.get(t.name, 1) + each.get(t.name, 0), schedule.stages)
        barrier(f"{t.name}_free", 4 * groups, schedule.stages)
    if brought:
        barrier(f"{RING}_full", 32, schedule.stages)  # each thread of the warp that brings them
        barrier(f"{RING}_free", THREADS * groups, schedule.stages)  # and each that reads them
        room(RING, sum(x.bytes for x in brought) * s.columns, schedule.stages)
    if s.chosen:
        room("word", 4, schedule.stages)
    at = -(-at // 8) * 8
    barrier("tile_full", 1, 2)
    barrier("tile_free", 4 * groups + sum(x.warps for x in loaders) - 1, 2)
    room("tile", 4 * (len(s.grid.axes) + (0 if s.chosen else 2 * len(s.loops))), 2)
    return rooms, barriers, at


def _loaders(s: Structure) -> tuple[Loader, ...]:
    """What each loading warp brings: a warp per ring, at most three, and one for the rows; tiles that are computed keep
    all warps busy that are left."""
    computed = tuple(t for t in s.rings if t.computed)
    if any(t.computed for t in s.queries):
        computed = (*s.queries, *computed)
    if not computed:
        count = min(3, len(s.rings))
        warps = [
            tuple(t for k, t in enumerate(s.rings) if k * count // len(s.rings) == n)
            for n in range(count)
        ]
        return tuple(Loader(n, 1, w) for n, w in enumerate((*warps, s.queries)))
    out = [Loader(0, 1, tuple(t for t in s.queries if t not in computed))]
    copied = tuple(t for t in s.rings if not t.computed)
    if copied:
        out.append(Loader(1, 1, copied))
    return (*out, Loader(len(out), 4 - len(out), computed))
