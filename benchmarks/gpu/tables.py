"""The tables as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.gpu.cells import TABLES, Cell
from benchmarks.gpu.record import columns

Row = Mapping[str, Any]
MOST = 1.1
"""The largest error that tilec may have, in errors of cuDNN."""


def show(cells: Sequence[Cell], rows: Mapping[str, Row]) -> str:
    """The tables of the cells that have a row, one after the other, and what is missing in them."""
    parts: list[str] = []
    for table in TABLES:
        there = [c for c in cells if c.table == table and c.key in rows]
        if not there:
            continue
        lines = _SHAPES.get(table, _times)(there, [rows[c.key] for c in there])
        parts.append(f"== {table}: {TABLES[table]}\n{columns(lines)}")
        parts += [
            f"# {c.name}: no {name}: {why}"
            for c in there
            for name, why in rows[c.key].get("failed", {}).items()
        ]
    return "\n".join(parts)


def _names(rows: Sequence[Row]) -> list[str]:
    """The candidates in the order of their first appearance."""
    return list(dict.fromkeys(n for r in rows for n in r.get("ms", {})))


def _best(row: Row, wanted: Callable[[str], bool]) -> float:
    return min((t for n, t in row.get("ms", {}).items() if wanted(n)), default=math.nan)


def _ours(name: str) -> bool:
    return name.startswith("tilec")


def ahead(row: Row) -> float:
    """How many times faster the first candidate of tilec is than the best peer."""
    return _best(row, lambda n: not _ours(n)) / row.get("ms", {}).get("tilec", math.nan)


def _number(x: object, digits: int) -> str:
    return f"{x:.{digits}f}" if isinstance(x, (int, float)) and not math.isnan(x) else "-"


def _times(cells: Sequence[Cell], rows: Sequence[Row]) -> list[list[str]]:
    names = _names(rows)
    out = [[cells[0].unit, *names, "tilec ms", "x best peer", "error"]]
    for c, r in zip(cells, rows, strict=True):
        speed = [_number(r.get(n), 0) for n in names]
        took = _number(r.get("ms", {}).get("tilec"), 4)
        error = r.get("error", {}).get("tilec", math.nan)
        out.append([c.name, *speed, took, _number(ahead(r), 3), f"{error:.1e}"])
    return out


def _variants(cells: Sequence[Cell], rows: Sequence[Row]) -> list[list[str]]:
    """Times, and how they stand to the blocks kept: both against plain causal attention."""
    names = _names(rows)
    plain: Row = next((r for c, r in zip(cells, rows, strict=True) if c.kind == "causal"), {})
    head = ["ms", *names, "x fa4", "x flex", "kept", "kept/causal", "time/causal", "over"]
    out = [head]
    for c, r in zip(cells, rows, strict=True):
        ms = r.get("ms", {})
        own = ms.get("tilec", math.nan)
        blocks = r.get("kept", math.nan) / plain.get("kept", math.nan)
        took = own / plain.get("ms", {}).get("tilec", math.nan)
        against = [ms.get(n, math.nan) / own for n in ("fa4", "flex")]
        numbers = [*against, r.get("kept", math.nan), blocks, took, took / blocks]
        speed = [_number(ms.get(n), 3) for n in names]
        out.append([c.name, *speed, *(_number(x, 2) for x in numbers)])
    return out


def _errors(cells: Sequence[Cell], rows: Sequence[Row]) -> list[list[str]]:
    kinds = ("o max", "o rms", "l max", "l rms")
    out = [["tilec / cuDNN", *kinds, "ratios", "fits"]]
    for c, r in zip(cells, rows, strict=True):
        if kinds[0] not in r:
            continue
        for name in (n for n in r[kinds[0]] if n not in ("cudnn", "ratio")):
            pairs = [f"{r[k][name]:.2e}/{r[k]['cudnn']:.2e}" for k in kinds]
            ratios = [r[k][name] / r[k]["cudnn"] for k in kinds]
            fits = "yes" if all(x <= MOST for x in ratios) else "NO"
            label = " ".join(
                filter(None, (c.name, name.removeprefix("tilec,").removeprefix("tilec")))
            )
            out.append([label, *pairs, " ".join(f"{x:.2f}" for x in ratios), fits])
    return out


def _bits(cells: Sequence[Cell], rows: Sequence[Row]) -> list[list[str]]:
    out = [["", "launches", "differ", "error", "right"]]
    for c, r in zip(cells, rows, strict=True):
        if "launches" in r:
            said = [r["launches"], r["differ"], f"{r['error']:.1e}", "yes" if r["right"] else "NO"]
            out.append([c.name, *map(str, said)])
    return out


_SHAPES = {"variants": _variants, "errors": _errors, "bits": _bits}
