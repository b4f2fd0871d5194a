"""From a kernel over whole tensors (after `online`) to Hopper sources: the passes, the schedule, the plan."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper import plan as plans
from tilec.backends.cuda.hopper.emit import emit
from tilec.backends.cuda.hopper.labels import labels
from tilec.backends.cuda.hopper.lists import lists
from tilec.backends.cuda.hopper.recognise import recognise
from tilec.backends.cuda.hopper.schedule import ROWS, Schedule, default, narrow
from tilec.backends.cuda.hopper.sections import shared_along
from tilec.backends.cuda.hopper.slices import Slice
from tilec.backends.cuda.hopper.source import Source
from tilec.backends.cuda.hopper.structure import Structure
from tilec.backends.cuda.hopper.uneven import LATE, LONG, by_data, by_division, growing, uneven
from tilec.ir import Grid, Kernel, Load, walk
from tilec.pipeline import Pipeline, Step, module, step
from tilec.rows import Rows
from tilec.scalar import evaluate
from tilec.target import Target

if TYPE_CHECKING:
    from tilec.passes.fold import Options as Fold
    from tilec.passes.split import Options

MOST_COLUMNS = {2: 256, 3: 192}
"""The columns of accumulators that warpgroups have registers for, by how many there are."""
LONG_ROWS = 512
"""Rows from this width on are worth sharing their products: to exchange parts of scores takes time, too."""
FEW_FOUND = 512
"""Up to so many positions that are found in runs, a short tile has a few windows, one after the other. Two blocks share a
multiprocessor then: while one waits, the other computes."""
SHORT = 64
"""The columns of a window where a table says which windows count: blocks of fewer columns are spread over many."""
RARE = 2
"""Of so many windows the lists of a tile name one at most where tiles of 64 rows are worth it, which use keys less often."""
KEPT = 64
"""How many tilings are kept, for the next schedule of the same kernel."""


def tiles(
    kernel: Kernel,
    sizes: Mapping[str, int],
    schedule: Schedule | None = None,
    packed: Rows | None = None,
    workers: int | None = None,
) -> tuple[Kernel, Schedule]:
    """The placed tile IR of a kernel under a schedule, the default one of its shape if None.

    `kernel` is what `online` gives; `sizes` are all dimensions: those that must be known are fixed, the others choose the
    default. `packed`: another axis in the rows of a tile. `workers`: the streamed axis is cut in pieces for so many.
    Raises Refused where no grid fits.
    """
    schedule = schedule or suggested(kernel, sizes, packed)
    return tiled(specialised(kernel, sizes, packed), schedule, packed, workers), schedule


def suggested(
    kernel: Kernel,
    sizes: Mapping[str, int],
    packed: Rows | None = None,
    scattered: Collection[str] = (),
) -> Schedule:
    """The default schedule for a kernel's shape. Raises Refused where no grid fits. `scattered`: see `sources`."""
    found = _probed(kernel, sizes, packed, scattered, Schedule(2, 128, relax=False))
    if int(evaluate(found.kernel.extents[found.row], sizes)) <= ROWS:
        found = _probed(kernel, sizes, packed, scattered, Schedule(1, 128, relax=False))
    return _default(found, sizes)


def _probed(
    kernel: Kernel,
    sizes: Mapping[str, int],
    packed: Rows | None,
    scattered: Collection[str],
    schedule: Schedule,
) -> Structure:
    """The structure of a kernel under some schedule."""
    probe = tiled(specialised(kernel, sizes, packed), schedule, packed)
    return _fitting(probe, frozenset(scattered), runs=True)


def cutting(workers: int, schedule: Tiling) -> Options:
    """How a streamed axis is cut for so many multiprocessors: a piece takes no less time than it costs to merge it."""
    from tilec.passes.split import Options

    merging = Options(window=32, rows=4, products=True) if schedule.slices > 1 else Options(rows=4)
    if schedule.pieces:
        return replace(merging, pieces=schedule.pieces)
    positions = 512 if schedule.rows <= ROWS else 1024
    busy = workers * schedule.at_once
    return replace(merging, workers=busy, least=1, positions=positions, rounds=4)


def candidates(schedule: Schedule, named: Collection[str] = ()) -> Iterator[Schedule]:
    """A schedule, and those to try where its kernel does not fit the registers: with more of them for the loading warps,
    then with fewer columns. Fields that are `named` stay as they are."""
    if "loader" not in named:
        more = replace(schedule, loader=32)
        if schedule.loader < 32 and more.registers[1] == schedule.registers[1]:
            schedule = more  # which costs the others nothing
    yield schedule
    for loader in () if "loader" in named else (40, 56) if schedule.warpgroups == 2 else (32,):
        if loader > schedule.loader and schedule.traded:
            yield replace(schedule, loader=loader)
    loader = schedule.loader if "loader" in named else max(40, schedule.loader)
    for part in () if "columns" in named else (3 / 4, 1 / 2, 1 / 4):
        columns = int(schedule.columns * part) // 16 * 16
        if columns >= 16:
            yield replace(schedule, columns=columns, loader=loader)


def specialised(kernel: Kernel, sizes: Mapping[str, int], packed: Rows | None = None) -> Kernel:
    """The kernel with numbers for the dimensions that must be known."""
    return _specialised(kernel, tuple((d, sizes[d]) for d in _known(kernel, packed)))


@functools.lru_cache(KEPT)
def _specialised(kernel: Kernel, fixed: tuple[tuple[str, int], ...]) -> Kernel:
    specialise = module("specialise")
    return module("unroll").unroll(
        specialise.specialise(kernel, specialise.Options(sizes=dict(fixed)))
    )


def steps(
    kernel: Kernel,
    sizes: Mapping[str, int],
    schedule: Tiling,
    packed: Rows | None = None,
    workers: int | None = None,
) -> Pipeline:
    """The passes that `tiles` runs."""
    fixed = {d: sizes[d] for d in _known(kernel, packed)}
    names = ["relax"] if schedule.relax else []
    cut = (Step("split", cutting(workers, schedule)),) if workers else ()
    folded = (Step("fold", packed.fold),) if packed and packed.fold else ()
    return (
        step("specialise", sizes=fixed),
        step("unroll"),
        *folded,
        step("tile", extents=packed.extents if packed else {}, target=_target(schedule)),
        step("steady"),
        step("prune", apart=schedule.apart),
        step("phases"),
        step("stage", all=schedule.high),
        step("survey"),
        step("lookup"),
        *(step(name) for name in names),
        *cut,
        step("place", target=_target(schedule)),
    )


def _known(kernel: Kernel, packed: Rows | None) -> tuple[str, ...]:
    """The dimensions whose numbers must be known."""
    return (*module("specialise").static_dims(kernel), *(packed.dims if packed else ()))


def sources(
    kernel: Kernel, schedule: Schedule, scattered: Collection[str] = ()
) -> dict[int, Source | str]:
    """For each grid of a placed kernel, by its place among the grids: its source, or why it has none.

    `scattered`: tensors that no bulk copy can bring; the loading warps take their elements one by one or eight at a time.
    """
    out: dict[int, Source | str] = {}
    for n, op in enumerate(op for op in kernel.body if isinstance(op, Grid)):
        try:
            out[n] = emit(plans.make(recognise(kernel, op, scattered, runs=True), schedule))
        except Refused as e:
            out[n] = str(e)
    return out


class Tiling(Protocol):
    """What a schedule says about the tiles."""

    @property
    def rows(self) -> int: ...
    @property
    def high(self) -> bool: ...
    @property
    def columns(self) -> int: ...
    @property
    def relax(self) -> bool: ...
    @property
    def apart(self) -> bool: ...
    @property
    def pieces(self) -> int: ...
    @property
    def slices(self) -> int: ...
    @property
    def at_once(self) -> int: ...


def tiled(
    kernel: Kernel, schedule: Tiling, packed: Rows | None = None, workers: int | None = None
) -> Kernel:
    """The placed tile IR of a specialised kernel."""
    extents = tuple(packed.extents.items()) if packed else ()
    cut = cutting(workers, schedule) if workers else None
    kernel = _folded(kernel, packed.fold) if packed and packed.fold else kernel
    named = schedule.high, schedule.relax, schedule.apart
    return _tiled(kernel, _target(schedule), *named, extents, cut)


@functools.lru_cache(KEPT)
def _folded(kernel: Kernel, by: Fold) -> Kernel:
    return module("fold").fold(kernel, by)


@functools.lru_cache(KEPT)
def _tiled(
    kernel: Kernel,
    target: Target,
    high: bool,
    stale: bool,
    apart: bool,
    extents: tuple[tuple[str, int], ...],
    cut: Options | None,
) -> Kernel:
    """What `tiled` gives: a search asks for it again and again, as most fields of a schedule do not change the tiles."""
    from tilec.passes import prune, stage
    from tilec.passes.lookup import lookup
    from tilec.passes.phases import phases
    from tilec.passes.place import Options as Placing
    from tilec.passes.place import place
    from tilec.passes.relax import relax
    from tilec.passes.split import split
    from tilec.passes.steady import steady
    from tilec.passes.survey import survey
    from tilec.passes.tile import Options, tile

    kernel = steady(tile(kernel, Options(dict(extents), target)))
    kernel = phases(prune.prune(kernel, prune.Options(apart)))
    kernel = lookup(survey(stage.stage(kernel, stage.Options(high))))
    kernel = relax(kernel) if stale else kernel
    return place(split(kernel, cut) if cut else kernel, Placing(target))


def _target(schedule: Tiling) -> Target:
    return Target(
        "cuda:sm_90a",
        lanes=32,
        rows=schedule.rows,
        columns=schedule.columns,
        elements=1024,
        once=True,
    )


def fitting(kernel: Kernel, scattered: Collection[str] = (), runs: bool = False) -> Structure:
    """The first grid of a placed kernel that fits. Raises Refused where none does. `runs`: see `recognise`."""
    reason = "it has no grid"
    for op in kernel.body:
        if isinstance(op, Grid):
            try:
                return recognise(kernel, op, scattered, runs)
            except Refused as e:
                reason = str(e)
    raise Refused(reason)


_fitting = functools.lru_cache(KEPT)(fitting)


def _default(s: Structure, sizes: Mapping[str, int]) -> Schedule:
    width = max([t.width for t in (*s.queries, *s.rings)] + [x.width for x in s.slots])
    length = int(evaluate(s.kernel.extents[s.stream], sizes))
    rows = min(s.rows, int(evaluate(s.kernel.extents[s.row], sizes)))
    few = rows <= ROWS
    values = sum(x.width for x in s.slots)
    schedule = default(width, values, length, rows, uneven(s))
    schedule = replace(schedule, loader=loading(s, schedule.loader))
    whole = s.loops[0].tile is None
    if whole:
        schedule = replace(schedule, columns=s.columns)
    elif s.surveyed:
        schedule = replace(schedule, columns=min(SHORT, schedule.columns))
    computed = _computed(s)
    if few and length <= FEW_FOUND and any(t.run for t in s.rings):
        schedule = replace(schedule, columns=min(64, schedule.columns), stages=3, blocks=2)
    if not few and not computed:
        schedule = picking(s, schedule, sizes)
    if schedule.blocks > 1 and (computed or not _fits(s, schedule)):
        schedule = narrow(width, length, uneven(s))
    if computed:
        groups, columns = 1 if few else 2, min(128, schedule.columns)
        schedule = replace(schedule, warpgroups=groups, columns=columns, loader=104)
    if whole:
        schedule = replace(schedule, warpgroups=min(2, schedule.warpgroups), columns=s.columns)
    if values > plans.WIDEST:
        schedule = sliced(s, schedule, few)
    while schedule.columns > 16 and not _fits(s, schedule):
        if few and schedule.stages > 2 and _registers_fit(s, schedule):
            schedule = replace(schedule, stages=schedule.stages - 1)
        elif whole:
            break
        else:
            schedule = replace(schedule, columns=max(16, schedule.columns // 32 * 16))
    return ordered(s, schedule, length)


def picking(s: Structure, schedule: Schedule, sizes: Mapping[str, int]) -> Schedule:
    """A schedule for rows that list what they see: of a window, a row has one short run, and so has each other list in its
    tile. So both are small; two blocks, as a tile has few windows, which it finds one after the other."""
    found = lists(s, sizes)
    small = replace(schedule, warpgroups=1, columns=32, stages=4, blocks=2, store="direct")
    if found is None or found.run >= SHORT or not _fits(s, small):
        return schedule
    windows = -(-int(evaluate(s.kernel.extents[s.stream], sizes)) // small.columns)
    return small if RARE * found.named <= windows else schedule


def sliced(s: Structure, schedule: Schedule, few: bool) -> Schedule:
    """A schedule for values that are wider than a thread has registers for: a tile of 64 rows by several warpgroups. Keys
    that come from memory are under way for longer than a window takes: where rows are few, windows are short and many."""
    held = {n: sum(Slice(x.width, n).columns for x in s.slots) for n in MOST_COLUMNS}
    slices = next((n for n, most in MOST_COLUMNS.items() if held[n] <= most), max(MOST_COLUMNS))
    share = (
        slices == 2
        and plans.sharing(s)
        and max(h.key.width for h in s.blocks[0].heads) >= LONG_ROWS
    )
    short = few or share
    columns = s.columns if s.loops[0].tile is None else min(32 if short else 64, schedule.columns)
    schedule = replace(schedule, warpgroups=slices, slices=slices, columns=columns, stages=2)
    schedule = replace(schedule, share=share, pingpong=not share, store="direct")
    tried = (replace(schedule, stages=n) for n in (4, 3) if short)
    return next((x for x in tried if _fits(s, x)), schedule)


def ordered(s: Structure, schedule: Schedule, length: int) -> Schedule:
    """A schedule with the order that the lengths of tiles ask for. Where data alone decides about these, heads come one
    after the other, but whoever is free takes a tile; where tiles share what they read for each row, heads take turns.
    `length`: of the streamed axis."""
    if growing(s):
        return replace(schedule, late=LATE if length > LONG else 0)
    if by_data(s) and not uneven(s):
        return replace(schedule, order="longest", section=1)
    if schedule.high and shared_along(s):
        return replace(schedule, order="longest")
    return schedule


def loading(s: Structure, usual: int) -> int:
    """The registers of a loading thread, which keeps what it tells the others and what chooses windows."""
    if labels(s) and s.chosen:
        return 56
    if s.together or labels(s) or (usual < 32 and by_division(s)):
        return 40
    wide = any(isinstance(op, Load) and len(op.result.type.axes) > 1 for op in s.epilogue)
    return 24 if wide else usual  # those with the accumulators load as well


def _computed(s: Structure) -> bool:
    """Whether a tile of the first product is computed from what is loaded."""
    return any(t.computed for t in (*s.queries, *s.rings))


def _fits(s: Structure, schedule: Schedule) -> bool:
    """Whether there is room for what a schedule holds."""
    return _registers_fit(s, schedule) and plans.memory_bytes(s, schedule) <= schedule.shared


def _registers_fit(s: Structure, schedule: Schedule) -> bool:
    """Whether a thread has the registers that its accumulators take, and what it loads for each of its columns."""
    fragments = plans.fragment_registers(replace(s, columns=schedule.columns), schedule.slices)
    loaded = schedule.columns // 4 * _column_loads(s)
    there = plans.product_registers(s, schedule) <= schedule.entry
    return there and fragments + loaded + plans.RESERVE <= schedule.registers[1]


def _column_loads(s: Structure) -> int:
    """How many values a thread loads for each column of a window."""
    if labels(s):
        return 0  # they come with the keys
    ops = walk(s.blocks[0].middle)
    return sum(isinstance(op, Load) and op.result.type.axes == (s.stream,) for op in ops)
