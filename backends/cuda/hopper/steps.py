"""The steps of a computing warpgroup: what it does for a tile, in which order, with which waits.

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
from dataclasses import dataclass
from typing import TypeAlias, Union

from tilec.backends.cuda.hopper.asked import asked
from tilec.backends.cuda.hopper.early import early
from tilec.backends.cuda.hopper.labels import RING
from tilec.backends.cuda.hopper.schedule import Schedule
from tilec.backends.cuda.hopper.structure import Block, Structure
from tilec.backends.cuda.hopper.tiles import Tile
from tilec.ir import If, Map, Op, Yield


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
class Share:
    """Adds up the heads of which the slices' groups have computed a part each."""


@dataclass(frozen=True)
class Turn:
    """Waits for this warpgroup's turn at the tensor unit (`begin`), or passes it on."""

    begin: bool


@dataclass(frozen=True)
class Fetch:
    """Asks for the elements of tensors that a block's window needs, by row and position."""

    block: int


@dataclass(frozen=True)
class Mask:
    """Makes the masks of a block's window that no product decides about."""

    block: int


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
    """The other windows of a tile in the order in which they are announced, up to the one that is announced as the last:
    each with steps that all have, which do not wait for what is heard, and those of its block."""

    hear: Hear
    shared: tuple[Step, ...]
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
    Share,
    Turn,
    Fetch,
    Mask,
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


def program(
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
    share: list[Step] = [Share()] if schedule.share else []
    if s.chosen:
        heads = heads[1:]  # the one that is heard of
    acquire, release = (Acquire(RING),), (Release(RING),)
    issued = (*heads, *turn, Issue("heads"), *values, Issue("tails"), *pass_on)
    windows = tuple(
        (
            *((Mask(k),) if early(s, b) else ()),
            Settle(1, ("heads",)),
            *free_heads,
            *share,
            *(acquire if k in with_labels else ()),
            Compute(k, "before"),
            Settle(0, ("tails",)),
            *free_tails,
            Compute(k, "after"),
            *(release if k in with_labels else ()),
        )
        for k, b in enumerate(s.blocks)
    )
    if s.chosen:
        hear = Hear(ahead[0])
        heads = [hear, *heads]
        rest: tuple[Step, ...] = (Stream(hear, issued, windows),)
    else:
        fetch = [(Fetch(k),) if asked(s, b) else () for k, b in enumerate(s.blocks)]
        rest = tuple(Loop(k, (*fetch[k], *issued, *windows[k])) for k in s.order)
    began = (Query(True), *heads, Issue("heads"))
    settled = (Settle(0, ("heads",)), *free_heads, *share)
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
