"""`tilec bench`: a program beside what else computes it, in one process, in turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from tilec.beside import Comparison, Runner, compared
from tilec.cli import files, options
from tilec.cli.arguments import Asked

Peer = Annotated[
    list[str] | None,
    typer.Option(
        "--peer",
        metavar="MODULE:FUNCTION",
        help="Time this too: it gets the tensors in order (PyTorch's, where that is installed) and --set by name.",
    ),
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="WORD", help="Only peers whose name holds this word."),
]
Seconds = Annotated[float, typer.Option("--seconds", min=0.0, help="How long to time each.")]
Plot = Annotated[str | None, typer.Option("--plot", metavar="FILE.svg", help="Draw the times.")]


def bench(
    file: options.File,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    input_: options.Input = None,
    peer: Peer = None,
    only: Only = None,
    seconds: Seconds = 1.0,
    seed: options.Seed = 0,
    plot: Plot = None,
    json: options.Json = False,
) -> None:
    """Time a program beside PyTorch's kernels and your own.

    Its peers are PyTorch's kernels, FlexAttention and the formula written out, as far as they compute the same: that is
    found by evaluating the program on small data. All run in one process, in turns, on the same data; errors are
    against float64.
    """
    files.check_plot(plot)
    kernel = options.load(file, target, tile, schedule)
    asked = Asked(input_, size, dtype, set_, seed)
    scalars = asked.scalars
    found = compared(kernel, asked.tensors(kernel), scalars, peer or [], only, seconds)
    if plot is not None:
        _plot(found, plot)
    if json:
        options.print_json(_facts(found))
    else:
        print("\n".join(_table(found)))
    ours = found.runners[0].error
    if ours is not None and not ours.ok:
        options.say("error: the result is not that of the float64 reference")
        raise typer.Exit(1)


def _plot(found: Comparison, file: str) -> None:
    from tilec import plots

    timed = [r for r in found.runners if r.times]
    title = f"{found.title}\n{found.formula or 'no standard variant'}"
    times = [r.time(found.by) for r in timed]
    files.write_plot(file, plots.bars(title, [r.name for r in timed], times))


def _facts(found: Comparison) -> dict[str, Any]:
    return {
        "title": found.title,
        "kernel": found.kernel,
        "sizes": found.sizes,
        "scalars": found.scalars,
        "formula": found.formula,
        "schedule": None if found.tuned is None else str(found.tuned.choice),
        "shipped": found.tuned is not None and found.tuned.shipped,
        "compared_by": found.by,
        "runs": [_fact(r) for r in found.runners],
    }


def _fact(r: Runner) -> dict[str, Any]:
    e = r.error
    return {
        "name": r.name,
        "seconds": r.seconds if r.times else None,
        "best_seconds": min(r.times, default=None),
        "runs": len(r.times),
        "largest_error": None if e is None else e.largest,
        "mean_error": None if e is None else e.mean,
        "refused": r.refused or None,
    }


def _table(found: Comparison) -> Iterator[str]:
    yield found.title
    if found.formula is None:
        yield "no standard variant: its peers are those of --peer"
    else:
        yield f"recognised as: {found.formula}"
    if found.tuned is not None:
        yield f"schedule {options.schedule(str(found.tuned.choice), found.tuned.shipped)}"
    yield from _rows(found)
    if all(r.error is None for r in found.runners):
        yield "no errors: the float64 reference would take too long; give smaller sizes"
    if uneven := [r.name for r in found.runners if r.uneven]:
        yield (
            f"uneven times (is the machine busy?), so the ratios are those of the best runs: {', '.join(uneven)}"
        )


def _rows(found: Comparison) -> Iterator[str]:
    """A heading, and a line for each that ran."""
    first, *others = found.runners
    wide, ours = max(len(r.name) for r in found.runners), first.time(found.by)
    yield f"{'':{wide}} {'median':>10} {'best':>10} {'runs':>5} {'tilec is':>12} {'largest':>9} {'mean error':>10}"
    yield _row(first, wide, "")
    for r in others:
        yield _row(r, wide, _against(r.time(found.by), ours) if r.times else "")


def _row(r: Runner, wide: int, faster: str) -> str:
    if not r.times:
        return f"{r.name:{wide}} refused: {r.refused}"
    e, best = r.error, min(r.times)
    errors = f"{e.largest:9.1e} {e.mean:10.1e}" if e is not None else f"{'-':>9} {'-':>10}"
    times = f"{r.seconds * 1e3:7.3f} ms {best * 1e3:7.3f} ms {len(r.times):5}"
    return f"{r.name:{wide}} {times} {faster:>12} {errors}"


def _against(theirs: float, ours: float) -> str:
    return f"{theirs / ours:.2f}x faster" if theirs >= ours else f"{ours / theirs:.2f}x slower"
