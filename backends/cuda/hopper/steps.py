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
class AtStage:
    """A step at a stage of a ring. `late`: that of the window before."""

    ring: str
    late: bool = False

    @property
    def cursor(self) -> str:
        """What says in generated code which stage it is."""
        return f"{self.ring}_{'late' if self.late else 'ahead'}"


@dataclass(frozen=True)
class Acquire(AtStage):
    """Waits until a ring's stage has arrived."""


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
class Release(AtStage):
    """Gives a stage back to the loading warp."""


@dataclass(frozen=True)
class Advance(AtStage):
    """Goes on to a ring's next stage; the stage stays in use for the tails."""


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
class Hear(AtStage):
    """Waits for a ring's stage, and hears from the loading warp which window it is and which block it takes."""


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


Single: TypeAlias = Union[
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
    Hear,
    Query,
    Next,
    Leave,
]
"""The steps that have no others inside."""
Step: TypeAlias = Union[Single, First, Stream, Loop, More]


def program(
    s: Structure, schedule: Schedule, chained: bool, with_labels: frozenset[int]
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """What is done before the first tile, and for each tile. `with_labels`: the blocks that look at labels."""
    p = _Program(s, schedule, with_labels)
    return p.chained() if chained else p.alone()


class _Program:
    """The parts of a program."""

    def __init__(self, s: Structure, schedule: Schedule, with_labels: frozenset[int]) -> None:
        self.s, self.with_labels = s, with_labels
        ahead = _rings(h.key for h in s.blocks[0].heads)
        behind = _rings(t.value for t in s.blocks[0].tails)
        both = [r for r in ahead if r in behind]
        # where windows are chosen, the first ring's stage comes with word of its window
        self.hear = (Hear(ahead[0]),) if s.chosen else ()
        self.heads = tuple(Acquire(r) for r in ahead[len(self.hear) :])
        self.free_heads = tuple(Advance(r) if r in both else Release(r) for r in ahead)
        self.values = tuple(Acquire(r, late=True) for r in behind if r not in both)
        self.free_tails = tuple(Release(r, late=True) for r in behind)
        self.turn = (Turn(True),) if schedule.turns else ()
        self.pass_on = (Turn(False),) if schedule.turns else ()
        self.share = (Share(),) if schedule.share else ()
        self.begun = (Query(True), *self.hear, *self.heads, Issue("heads"))
        self.settled = (Settle(0, ("heads",)), *self.free_heads, *self.share)

    def alone(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Each tile from its rows to its outputs."""
        first = First((*self.begun, *self.settled), self.firsts())
        left = (Query(False), *self.values, Issue("tails"), Next(), Settle(0, ("tails",)))
        return (), (first, *self.others(), *left, *self.free_tails, Leave())

    def chained(self) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """The first heads of a tile with the last tails of the one before it."""
        more = More((Query(True), *self.hear, *self.heads))
        issue = (*self.values, more, *self.turn, Issue("tails"), Issue("heads"), *self.pass_on)
        left = (Query(False), Next(), *issue, Settle(1, ("tails",)), *self.free_tails, Leave())
        return self.begun, (First(self.settled, self.firsts()), *self.others(), *left)

    def firsts(self) -> tuple[tuple[Step, ...], ...]:
        """What is computed in a tile's first window, for each block that this may be of."""
        blocks = range(len(self.s.blocks))
        return tuple(self.labelled(k, Compute(k, "all", True)) for k in blocks)

    def others(self) -> tuple[Step, ...]:
        """The windows after the first one."""
        windows = tuple(self.window(k, b) for k, b in enumerate(self.s.blocks))
        heads = (*self.heads, *self.turn, Issue("heads"))
        issued = (*heads, *self.values, Issue("tails"), *self.pass_on)
        if self.hear:
            return (Stream(self.hear[0], issued, windows),)
        return tuple(Loop(k, (*self.fetch(k), *issued, *windows[k])) for k in self.s.order)

    def fetch(self, k: int) -> tuple[Step, ...]:
        return (Fetch(k),) if asked(self.s, self.s.blocks[k]) else ()

    def window(self, k: int, b: Block) -> tuple[Step, ...]:
        """A window once its products are under way."""
        return (
            *((Mask(k),) if early(self.s, b) else ()),
            Settle(1, ("heads",)),
            *self.free_heads,
            *self.share,
            *self.labelled(
                k,
                Compute(k, "before"),
                Settle(0, ("tails",)),
                *self.free_tails,
                Compute(k, "after"),
            ),
        )

    def labelled(self, k: int, *steps: Step) -> tuple[Step, ...]:
        """Steps that have the labels of the window, if the block looks at any."""
        return (Acquire(RING), *steps, Release(RING)) if k in self.with_labels else steps


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
