"""The kernel plan: which warpgroup does what, in which order, with which waits; where every tile lives.

A plan is a list of steps per role. The emitter walks it and writes CUDA; the interpreter walks it and checks that no step
reads what has not arrived, and that none overwrites what is still being read.

    loading warp                        computing warpgroup, for a window n of the streamed axis
      acquire a free stage of k           acquire k(n); issue s = q · k(n); commit
      copy k(n)                           acquire v(n-1); issue o += p · v(n-1); commit
                                          settle all but one; release k(n); compute on s …
                                          settle all; release v(n-1); compute on s and o; p is ready

Tiles are *chained* where there is room for the rows of two: a tile's last tails are issued with the first heads of the next
one, which are under way while the outputs leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, Union

from tilec.backends.cuda.hopper.labels import RING, Label, labelled, labels
from tilec.backends.cuda.hopper.schedule import ROWS, THREADS, Schedule
from tilec.backends.cuda.hopper.structure import Block, Refused, Structure, Tile
from tilec.ir import If, Map, Op, Yield

# ---- steps


@dataclass(frozen=True)
class Acquire:
    """Waits until a ring's next stage has arrived. `late`: that of the window before."""

    ring: str
    late: bool = False


@dataclass(frozen=True)
class Issue:
    """Starts the block's heads, or the tails of the window before, as one group."""

    what: str


@dataclass(frozen=True)
class Settle:
    """Waits until at most `pending` groups are under way; `done`: those known to be finished."""

    pending: int
    done: tuple[str, ...]


@dataclass(frozen=True)
class Release:
    """Gives a stage back to the loading warp."""

    ring: str
    late: bool = False


@dataclass(frozen=True)
class Advance:
    """Goes on to a ring's next stage; the stage stays in use for the tails."""

    ring: str


@dataclass(frozen=True)
class Turn:
    """Waits for this warpgroup's turn at the tensor unit (`begin`), or passes it on."""

    begin: bool


@dataclass(frozen=True)
class Compute:
    """The ops of a block between its heads and tails: the part before or after the tails of the window before it are done.

    `first`: the first window, where the carried values are what they begin with.
    """

    block: int
    part: str
    first: bool = False


@dataclass(frozen=True)
class First:
    """The tile's first window; the computing depends on which loop it belongs to: one program for each."""

    shared: tuple[Step, ...]
    blocks: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class Hear:
    """Waits for a ring's next stage, and hears from the loading warp which window it is and which block it takes."""

    ring: str


@dataclass(frozen=True)
class Stream:
    """The other windows of a tile in the order in which they are announced, each with the steps of its block, up to the one
    that is announced as the last."""

    hear: Hear
    blocks: tuple[tuple[Step, ...], ...]


@dataclass(frozen=True)
class Loop:
    """The other windows of a loop."""

    block: int
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Query:
    """Waits for the tile's rows (`begin`), or gives their buffers back."""

    begin: bool


@dataclass(frozen=True)
class Next:
    """Hears which tile comes next."""


@dataclass(frozen=True)
class More:
    """Steps that are taken where there is a next tile."""

    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Leave:
    """The epilogue: the outputs of the tile."""


Step: TypeAlias = Union[
    Acquire,
    Issue,
    Settle,
    Release,
    Advance,
    Turn,
    Compute,
    First,
    Hear,
    Stream,
    Loop,
    Query,
    Next,
    More,
    Leave,
]


# ---- memory


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
    """A grid on its way to CUDA. `steps` are those of a tile; `begin` is before the first one. `chained`: see above.

    `labels`: those that the loading warps bring, where there is room for them.
    """

    structure: Structure
    schedule: Schedule
    chained: bool
    labels: tuple[Label, ...]
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
        return fragment_registers(self.structure)


def padded(width: int) -> int:
    """The columns of an accumulator for `width` of them."""
    return -(-width // 16) * 16


def fragment_registers(s: Structure) -> int:
    """Registers per thread for score, weight and accumulator tiles."""
    b = s.blocks[0]
    scores = sum(h.init is None for h in b.heads) * s.columns // 2
    weights = len({t.x for t in b.tails}) * s.weight_parts * s.columns // 4
    return scores + weights + sum(padded(x.width) // 2 for x in s.slots if x.width)


def make(s: Structure, schedule: Schedule) -> Plan:
    """The plan of a grid under a schedule. Raises Refused where it does not fit."""
    schedule.check()
    if not schedule.rows - ROWS < s.rows <= schedule.rows:
        raise Refused(f"its tiles have {s.rows} rows; the schedule has {schedule.rows}")
    if s.rows % ROWS and schedule.store == "tma":
        raise Refused(f"its tiles have {s.rows} rows, fewer than a copy has")
    if s.columns != schedule.columns:
        raise Refused(f"its windows have {s.columns} columns; the schedule has {schedule.columns}")
    if any(t.width > 256 for t in (*s.queries, *s.rings)) or any(x.width > 256 for x in s.slots):
        raise Refused("a head is wider than 256")
    need, have = fragment_registers(s), schedule.registers[1]
    if need + RESERVE > have:
        raise Refused(
            f"its fragments take {need} registers per thread, beside {RESERVE} others; there are {have}"
        )
    most = schedule.shared
    chained = schedule.chain and _memory(s, schedule, True)[2] <= most
    brought = labels(s)
    if brought and _memory(s, schedule, chained, brought)[2] > most:
        brought = ()
    rooms, barriers, shared = _memory(s, schedule, chained, brought)
    if shared > most:
        raise Refused(f"it needs {shared:,} bytes of shared memory; there are {most:,}")
    begin, steps = _steps(s, schedule, chained, labelled(s) if brought else frozenset())
    return Plan(s, schedule, chained, brought, rooms, barriers, shared, begin, steps, _loaders(s))


def memory_bytes(s: Structure, schedule: Schedule) -> int:
    """The shared memory that a schedule needs, in bytes."""
    rings = tuple(replace(t, rows=schedule.columns) for t in s.rings)
    return _memory(replace(s, rings=rings), schedule, False)[2]


RESERVE = 24
"""Registers for addresses, row values and what is under way, at least."""


def _memory(
    s: Structure, schedule: Schedule, chained: bool, brought: tuple[Label, ...] = ()
) -> tuple[dict[str, Room], dict[str, tuple[int, int, int]], int]:
    rooms: dict[str, Room] = {}
    at = 0

    def room(name: str, bytes: int, count: int) -> None:
        nonlocal at
        rooms[name] = Room(name, at, bytes, count)
        at += bytes * count

    groups = schedule.warpgroups
    queries = groups * (2 if chained else 1)
    for q in s.queries:
        room(q.name, q.parts * q.slabs * ROWS * 128, queries)
    for t in s.rings:
        room(t.name, t.bytes, schedule.stages)
    if schedule.store == "tma":
        room("out", max((-(-x.width // 64) * ROWS * 128 for x in s.slots), default=0), groups)
    barriers: dict[str, tuple[int, int, int]] = {}

    def barrier(name: str, count: int, copies: int) -> None:
        nonlocal at
        barriers[name] = (at, count, copies)
        at += 8 * copies

    loaders = _loaders(s)
    crew = {t.name: x.warps for x in loaders for t in x.tiles if x.computes}
    barrier("query_full", max(crew.get(t.name, 1) for t in s.queries), queries)
    barrier("query_free", 4, queries)
    for t in s.rings:
        barrier(f"{t.name}_full", crew.get(t.name, 1), schedule.stages)
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


# ---- the program of a computing warpgroup


def _steps(
    s: Structure, schedule: Schedule, chained: bool, with_labels: frozenset[int]
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """What is done before the first tile, and for each tile."""
    block = s.blocks[0]
    ahead = _rings(h.key for h in block.heads)
    behind = _rings(t.value for t in block.tails)
    both = [r for r in ahead if r in behind]
    heads: list[Step] = [*(Acquire(r) for r in ahead)]
    free_heads: list[Step] = [Advance(r) if r in both else Release(r) for r in ahead]
    free_tails: list[Step] = [Release(r, late=True) for r in behind]
    values: list[Step] = [Acquire(r, late=True) for r in behind if r not in both]
    turn: list[Step] = [Turn(True)] if schedule.turns else []
    pass_on: list[Step] = [Turn(False)] if schedule.turns else []
    if s.chosen:
        heads = heads[1:]  # the one that is heard of
    acquire, release = (Acquire(RING),), (Release(RING),)
    windows = tuple(
        (
            *heads,
            *turn,
            Issue("heads"),
            *values,
            Issue("tails"),
            *pass_on,
            Settle(1, ("heads",)),
            *free_heads,
            *(acquire if k in with_labels else ()),
            Compute(k, "before"),
            Settle(0, ("tails",)),
            *free_tails,
            Compute(k, "after"),
            *(release if k in with_labels else ()),
        )
        for k in range(len(s.blocks))
    )
    if s.chosen:
        hear = Hear(ahead[0])
        heads = [hear, *heads]
        rest: tuple[Step, ...] = (Stream(hear, windows),)
    else:
        rest = tuple(Loop(k, windows[k]) for k in s.order)
    began = (Query(True), *heads, Issue("heads"))
    settled = (Settle(0, ("heads",)), *free_heads)
    first = tuple(
        (*acquire, compute, *release) if k in with_labels else (compute,)
        for k, compute in enumerate(Compute(k, "all", True) for k in range(len(s.blocks)))
    )
    if chained:
        more = More((Query(True), *heads))
        issue = (*values, more, *turn, Issue("tails"), Issue("heads"), *pass_on)
        left = (Query(False), Next(), *issue, Settle(1, ("tails",)), *free_tails, Leave())
        return began, (First(settled, first), *rest, *left)
    left = (Query(False), *values, Issue("tails"), Next(), Settle(0, ("tails",)), *free_tails)
    return (), (First((*began, *settled), first), *rest, *left, Leave())


def announcing(s: Structure) -> Hear:
    """The ring whose stages come with word of the window that they belong to."""
    return Hear(s.blocks[0].heads[0].key.name)


def _rings(tiles: Iterable[Tile]) -> list[str]:
    return list(dict.fromkeys(t.name for t in tiles))


def split(block: Block) -> tuple[tuple[Op, ...], tuple[Op, ...]]:
    """The ops of a block that may run while tails are under way, and the others: what feeds or scales accumulators."""
    weights = {t.x for t in block.tails}
    for k, op in enumerate(block.middle):
        scales = (
            isinstance(op, Map)
            and len(op.result.type.axes) == 2
            and block.loop.axis not in op.result.type.axes
        )
        feeds = any(v.name in weights for v in op.results) and not isinstance(op, If)
        yields = {
            y
            for x in block.middle
            if isinstance(x, If)
            for r in (x.then, x.orelse)
            for y in _yield(r)
        }
        if (
            scales
            or feeds
            or isinstance(op, If)
            or any(v.name in yields and _tile(v.type) for v in op.results)
        ):
            return block.middle[:k], block.middle[k:]
    return block.middle, ()


def _tile(t: object) -> bool:
    return len(getattr(t, "axes", ())) == 2


def _yield(body: tuple[Op, ...]) -> tuple[object, ...]:
    end = body[-1]
    return end.values if isinstance(end, Yield) else ()


# ---- text


def show(plan: Plan) -> str:
    """The plan as text."""
    s, c = plan.structure, plan.schedule
    low, high = c.registers
    lines = [
        f"plan {s.kernel.name}   {c.threads} threads, shared {plan.shared} bytes, schedule {c}",
        *(f"  {r.name}: {r.count} × {r.bytes} bytes at {r.offset}" for r in plan.rooms.values()),
        *(f"  barrier {n}[{k}]: {count} arrivals" for n, (_, count, k) in plan.barriers.items()),
        f"  role load (1 warpgroup, {low} registers)",
        *(f"    {_load(x)}" for x in plan.loaders),
        f"  role compute ({c.warpgroups} warpgroups, {high} registers, {plan.fragments} hold tiles)",
    ]
    lines += ["    " + line for step in plan.begin for line in _show(plan, step)]
    lines.append("    a tile")
    lines += ["      " + line for step in plan.steps for line in _show(plan, step)]
    return "\n".join(lines) + "\n"


def _load(x: Loader) -> str:
    warps = f"warp {x.first}" if x.warps == 1 else f"warps {x.first}-{x.first + x.warps - 1}"
    tiles = ", ".join(f"{'computes ' if t.computed else ''}{t.name}" for t in x.tiles)
    return f"{warps}: {tiles or 'deals tiles'}"


def _show(plan: Plan, step: Step) -> list[str]:
    match step:
        case First():
            inner = [x for y in step.shared for x in _show(plan, y)]
            for steps in step.blocks:
                inner += [x for y in steps for x in _show(plan, y)]
            return ["first window", *("  " + x for x in inner)]
        case Loop():
            inner = [x for y in step.steps for x in _show(plan, y)]
            return [f"loop {step.block}", *("  " + x for x in inner)]
        case Hear():
            return [f"acquire {step.ring}, hear which window it is"]
        case Stream():
            inner: list[str] = []
            for k, steps in enumerate(step.blocks):
                inner += [f"block {k}", *("  " + x for y in steps for x in _show(plan, y))]
            return [
                "windows as they are announced",
                *("  " + x for x in (*_show(plan, step.hear), *inner)),
            ]
        case More():
            inner = [x for y in step.steps for x in _show(plan, y)]
            return ["if there is a next tile", *("  " + x for x in inner)]
        case Leave():
            return ["the outputs leave"]
        case Compute():
            return [f"compute {step.part} of block {step.block}{' (first)' if step.first else ''}"]
        case Issue():
            b = plan.structure.blocks[0]
            names = [h.name for h in b.heads] if step.what == "heads" else [t.name for t in b.tails]
            return [f"issue {step.what}: {', '.join(names)}"]
        case Settle():
            return [f"settle all but {step.pending}: {', '.join(step.done)} done"]
        case Turn():
            return ["begin turn" if step.begin else "pass turn"]
        case Next():
            return ["hear which tile is next"]
        case Query():
            return ["acquire rows" if step.begin else "release rows"]
        case Acquire():
            return [f"acquire {step.ring}{' of the window before' if step.late else ''}"]
        case Advance():
            return [f"advance {step.ring}"]
        case Release():
            return [f"release {step.ring}{' of the window before' if step.late else ''}"]


__all__ = ["THREADS", "Plan", "make", "show", "split"]
