"""Lists that rows have of their own: how long the runs of positions are that they name, and how many a tile's rows name.

A table of tiles and windows (see `survey`) is made of samples, some of each run of positions and of each stretch of rows.
Where an element of a list is compared with the quotients of sampled positions, it names one run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tilec.backends.cuda.hopper.structure import Structure
from tilec.dataflow import backward, definitions
from tilec.ir import Grid, Load, Map, Op, Value, walk
from tilec.scalar import evaluate


@dataclass(frozen=True)
class Lists:
    """`named`: the runs that a tile's rows name, at most; `run`: the positions of one."""

    named: int
    run: int


def lists(s: Structure, sizes: Mapping[str, int]) -> Lists | None:
    """The lists that decide which windows count, None where there are none."""
    if not s.surveyed:
        return None
    tables = [op for op in s.kernel.body if isinstance(op, Grid) and op is not s.grid]
    found = [x for table in tables for x in _compared(table)]
    if not found:
        return None
    named = sum(
        math.prod(int(evaluate(s.kernel.extents[a], sizes)) for a in element.type.axes)
        for element, _ in found
    )
    return Lists(named, max(run for _, run in found))


def _compared(table: Grid) -> Iterator[tuple[Value, int]]:
    """The elements of lists that a grid compares with quotients of the positions of its windows, and the divisors."""
    windows = table.axes[-1][0] if table.axes else ""
    ops = tuple(walk(table.body))
    defs = definitions(ops)
    values = {v.name: v for op in ops for v in op.results}
    for op in ops:
        if not isinstance(op, Map) or op.fn != "eq":
            continue
        pair = [values[x] for x in op.args if isinstance(x, str) and x in values]
        runs = [_divisor(v, defs) for v in pair if windows in v.type.axes]
        for v in pair:
            if windows not in v.type.axes and runs and runs[0] and _loaded(v, defs):
                yield v, runs[0]


def _divisor(v: Value, defs: Mapping[str, Op]) -> int:
    """The number by which positions are divided for a value; 0 where they are not."""
    made = [defs[x] for x in backward([v.name], defs)]
    by = [op.args[1] for op in made if isinstance(op, Map) and op.fn == "floordiv"]
    return max((x for x in by if isinstance(x, int)), default=0)


def _loaded(v: Value, defs: Mapping[str, Op]) -> bool:
    """Whether a value comes from a tensor."""
    return any(isinstance(defs[x], Load) for x in backward([v.name], defs))
