"""Which tiles of a grid have more windows than others, as far as the bounds of its loops tell."""

from __future__ import annotations

from collections.abc import Mapping

from tilec.backends.cuda.hopper.structure import Structure
from tilec.dataflow import backward, definitions, names_in
from tilec.ir import Cast, Edge, Load, Map, Op, Operand, operands

LATE = 264
"""The tiles that are dealt out last, where they are the shortest: two for each of 132 multiprocessors."""
LONG = 1024
"""The longest streamed axis whose tiles are so short that it costs more to come back to a head than it evens out."""


def uneven(s: Structure) -> bool:
    """Whether how many windows a tile has depends on where its rows are."""
    return s.chosen or any(isinstance(op, Edge) for op in _deciding(s))


def by_data(s: Structure) -> bool:
    """Whether data bounds the loops."""
    return any(isinstance(op, Load) for op in _deciding(s))


def by_division(s: Structure) -> bool:
    """Whether a division by what only a call knows bounds the loops, as for chunks of a length that is an argument."""
    divisions = (op for op in _deciding(s) if isinstance(op, Map) and op.fn in ("floordiv", "mod"))
    return any(isinstance(op.args[1], str) for op in divisions)


def growing(s: Structure) -> bool:
    """Whether no tile ends before one of earlier rows does, and some end later, as under a causal mask."""
    defs = definitions([*s.top, *s.prologue])
    stops = [f.stop is not None and _grows(f.stop, s.row, defs) for f in s.loops]
    return None not in stops and stops[-1:] == [True]


def _deciding(s: Structure) -> list[Op]:
    """What the bounds of the loops are made of."""
    defs = definitions([*s.top, *s.prologue])
    roots = names_in(x for f in s.loops for x in (f.start, f.stop) if x is not None)
    return [defs[x] for x in backward(set(roots), defs) if x in defs]


def _grows(x: Operand, row: str, defs: Mapping[str, Op]) -> bool | None:
    """Whether a number becomes larger with the rows of a tile; None where it may also become smaller."""
    if x == row:
        return None
    op = defs.get(x) if isinstance(x, str) else None
    parts = [] if op is None else [_grows(y, row, defs) for y in operands(op)]
    match op, parts:
        case Edge(axis=axis), _ if axis == row:
            return True
        case _, _ if not any(p is not False for p in parts):
            return False
        case Map(fn="add" | "min" | "max") | Cast(), _ if None not in parts:
            return True
        case Map(fn="sub"), [True, False]:
            return True
        case Map(fn="mul" | "floordiv", args=(_, int(n))), [True, _] if n > 0:
            return True
        case Map(fn="mul", args=(int(n), _)), [_, True] if n > 0:
            return True
        case _:
            return None
