"""The tables of `tilec traffic`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilec.cli import options
from tilec.errors import ArgumentError

if TYPE_CHECKING:
    from tilec.ceilings import Ceilings
    from tilec.cli.report import Fact, Report
    from tilec.roofline import Stage
    from tilec.tuning.store import Winner

Line = tuple[str, ...] | str
HEADS = ("matrix", "other", "special")


def show(report: Report, after: str | None, ops: bool) -> str:
    """All of a report. `after`: a pass whose ops are listed, too; `ops`: those after the last one are."""
    names = list(report.steps)
    if after is not None and after not in names:
        raise ArgumentError(
            f"--after: {after!r} is not in this pipeline{options.nearest(after, names)}"
        )
    lines = [
        report.title,
        *_choice(report.tuned),
        *_roofs(report.roof),
        "",
        *_stages(report),
        "",
        *_comparison(report),
    ]
    if after is not None or ops:
        chosen = next(s for s in report.all if s.name == (after or names[-1]))
        lines += ["", f"by op, after {chosen.name}", *_ops(chosen)]
    return "\n".join(lines)


def _stages(report: Report) -> Iterator[str]:
    rows: list[Line] = [("after", "bytes read", "written", "total", *HEADS, "at least", "bound")]
    for s in report.all:
        sums = *_sums(s.read, s.written), *_operations(s.work)
        rows.append((s.name, *sums, duration(s.bound.least), s.bound.holds))
        if s.name in report.counted:
            rows.append(_count(report.counted[s.name]))
    yield from aligned(rows, last=True)
    must = report.all[0].compulsory
    yield f"compulsory  {must:,} bytes: each input once, each output once"
    yield (
        f"least       {report.kept['matrix']:,} matrix, {report.kept['fma']:,} other, {report.kept['special']:,} special "
        f"operations in any tiles: {duration(report.bound.least)} at least, held by {report.bound.holds}"
    )
    if report.memory is not None:
        yield (
            f"expected    {report.memory:,} bytes to and from memory, {report.memory / max(1, must):.3f} of the compulsory "
            "ones: the rest is in the last cache"
        )
    if report.hardware is not None:
        yield from _hardware(report.hardware, must, report.memory, report.all[-1].moved)


def _comparison(report: Report) -> Iterator[str]:
    found = report.compared()
    yield f"{'':18}" + "".join(f"{c:>28}" for c in report.forms)
    for name, cell in CELLS.items():
        yield f"{name:18}" + "".join(f"{cell(f):>28}" for f in found.values())


def _choice(tuned: Winner | None) -> Iterator[str]:
    if tuned is not None:
        yield f"schedule {options.schedule(str(tuned.choice), tuned.shipped)}"


def _roofs(roof: Ceilings) -> Iterator[str]:
    yield f"on {roof.machine} ({roof.origin})"
    yield (
        f"roofs: memory {rate(roof.memory)}B/s, last cache {rate(roof.cache)}B/s; per second {rate(roof.matrix)} matrix, "
        f"{rate(roof.fma)} other, {rate(roof.special)} special operations"
        + ("; one unit does all" if roof.shared else "")
    )


def _ops(s: Stage) -> Iterator[str]:
    rows: list[Line] = [("op", "compulsory", "read", "written", *HEADS)]
    for r in s.rows:
        moved = f"{r.compulsory:,}", f"{r.read:,}", f"{r.written:,}"
        rows.append((r.op, *moved, *_operations(r.work)))
    return aligned(rows)


def _count(counted: Mapping[str, Any]) -> Line:
    if "skipped" in counted:
        return f"  counted   not run: {counted['skipped']} is too much for the interpreter; give smaller sizes (--size)"
    verdict = "equal" if counted["operations_equal"] else "in bytes"
    verdict = verdict if counted["equal"] else "DIFFERENT"
    sums = *_sums(counted["read"], counted["written"]), *_operations(counted["work"])
    return ("  counted", *sums, verdict, "")


def _sums(read: int, written: int) -> tuple[str, str, str]:
    return f"{read:,}", f"{written:,}", f"{read + written:,}"


def _operations(work: Mapping[Any, int]) -> tuple[str, ...]:
    return tuple(f"{work[u]:,}" for u in ("matrix", "fma", "special"))


def aligned(rows: Sequence[Line], last: bool = False) -> Iterator[str]:
    """A table whose columns are as wide as what they hold: the first to the left, the others to the right, also the `last`
    unless it is text. A row that is one text stands as it is."""
    cells = [r for r in rows if not isinstance(r, str)]
    first, *wide = (max(map(len, column)) for column in zip(*cells, strict=True))
    if last:
        wide.pop()
    for r in rows:
        if isinstance(r, str):
            yield r
            continue
        numbers = "".join(f" {x:>{n}}" for x, n in zip(r[1:], wide, strict=False))
        yield f"{r[0]:{first}}{numbers}{'  ' + r[-1] if last else ''}".rstrip()


def rate(x: float) -> str:
    """A rate with its prefix: `8.7 G`."""
    power = min(4, max(0, int(math.log10(x) // 3))) if x > 0 else 0
    return f"{x / 1000**power:.3g} {('', 'k', 'M', 'G', 'T')[power]}"


def duration(t: float) -> str:
    """A time with its unit."""
    if t < 1e-3:
        return f"{t * 1e6:.3g} µs"
    return f"{t * 1e3:.3g} ms" if t < 1 else f"{t:.3g} s"


def _hardware(
    h: Mapping[str, Any], compulsory: int, expected: int | None, moved: int
) -> Iterator[str]:
    """What the hardware counted, beside what is stated."""
    if "refused" in h:
        yield str(h["refused"])
        return
    memory, cache = h["read"] + h["written"], h["cache_read"] + h["cache_written"]
    beside = f", {memory / expected:.3f} of the expected ones" if expected else ""
    yield (
        f"memory      {h['read']:,} bytes read, {h['written']:,} written, as the GPU counts: "
        f"{memory / max(1, compulsory):.3f} of the compulsory ones{beside}"
    )
    yield (
        f"L2 cache    {h['cache_read']:,} bytes read, {h['cache_written']:,} written: "
        f"{cache / max(1, moved):.3f} of those that the tiles load and store"
    )


def _largest(part: str) -> Callable[[Fact], str]:
    """What is known of the largest product."""

    def cell(f: Fact) -> str:
        if f["largest"] is None:
            return "-"
        x = f["largest"][part]
        return f"{x:,} bytes" if isinstance(x, int) else str(x)

    return cell


def _growth(f: Fact) -> str:
    return "-" if f["growth"] is None else f"N^{f['growth']:.2f}"


def _text(part: str) -> Callable[[Fact], str]:
    return lambda f: str(f[part])


CELLS: dict[str, Callable[[Fact], str]] = {
    "bytes": lambda f: f"{f['moved']:,}",
    "grow with length": _growth,
    "operations/byte": lambda f: f"{f['intensity']:.1f}",
    "largest product": _largest("value"),
    "  it takes": _largest("bytes"),
    "  it lives": _largest("place"),
    "bottleneck": _text("holds"),
    "at least": lambda f: duration(f["least_seconds"]),
}
"""The rows of the comparison."""
