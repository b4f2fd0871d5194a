"""`tilec tune`: searches tile extents and schedule fields, and keeps the winner."""

from __future__ import annotations

import contextlib
import math
import os
import re
import sys
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilec.cli import files, options
from tilec.cli.arguments import Asked
from tilec.dtypes import DType
from tilec.errors import ResourceError
from tilec.scalar import Number, evaluate

if TYPE_CHECKING:
    from tilec.kernel import Kernel
    from tilec.tuning.board import Entry, Leaderboard

Progress = Callable[[int, int, "Entry", "Entry"], None]
DRAWN = 50e6
"""Values of sample data in a second."""
UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0}


File = Annotated[str | None, typer.Argument(metavar="FILE", help="A .tile file, or FILE:KERNEL.")]
Budget = Annotated[
    str, typer.Option("--budget", metavar="60s", help="How long to search: 30s, 5m, 1h.")
]
Space = Annotated[
    list[str] | None,
    typer.Option(
        "--space",
        metavar='"i=64,128 j=32,64"',
        help="What to try: extents of any axis, and schedule fields of targets that have some.",
    ),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs", help="Processes that compile; 0: this one (default: half the processors)."
    ),
]
Resume = Annotated[bool, typer.Option("--resume", help="Keep what an earlier search measured.")]
Top = Annotated[int, typer.Option("--top", min=1, help="Lines of the leaderboard.")]
Plot = Annotated[
    str | None,
    typer.Option("--plot", metavar="FILE.svg", help="Draw predicted against measured times."),
]
Export = Annotated[
    str | None, typer.Option("--export", metavar="FILE.json", help="Write all stored schedules.")
]
Import = Annotated[
    str | None,
    typer.Option("--import", metavar="FILE.json", help="Store the schedules of such a file."),
]


def tune(
    file: File = None,
    budget: Budget = "60s",
    space: Space = None,
    jobs: Jobs = None,
    resume: Resume = False,
    top: Top = 10,
    input_: options.Input = None,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    seed: options.Seed = 0,
    plot: Plot = None,
    export: Export = None,
    import_: Import = None,
    json: options.Json = False,
) -> None:
    """Search tile extents on your sizes; later runs take the winner.

    Candidates that do not fit are left out, the others ranked by the cost model, compiled side by side, checked against the
    reference and timed in turn with the best so far. Ctrl-C ends the search and keeps what is known.
    """
    if file is None and export is None and import_ is None:
        raise typer.BadParameter("give a FILE, --export or --import", param_hint="FILE")
    files.check_plot(plot)
    files.check(export)
    if import_ is not None:
        _import(import_)
    if file is not None:
        asked = Asked(input_, size, dtype, set_, seed)
        board = _searched(file, target, asked, _seconds(budget), space, jobs, resume)
        if plot is not None:
            _plot(board, plot)
        if json:
            options.print_json(_facts(board))
        else:
            from tilec.tuning.board import show

            print(show(board, top))
    if export is not None:
        _export(export)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    if found is None or found[2] not in UNITS or float(found[1]) <= 0:
        raise typer.BadParameter(
            f"{text!r}: expected a time such as 30s, 5m", param_hint="--budget"
        )
    return float(found[1]) * UNITS[found[2]]


def _searched(
    file: str,
    target: str | None,
    asked: Asked,
    budget: float,
    space: list[str] | None,
    jobs: int | None,
    resume: bool,
) -> Leaderboard:
    """The leaderboard of a search; `budget`: the seconds for all of it, sample data included."""
    from tilec import backend, gpu

    until = time.monotonic() + budget
    kernel = options.load(file, target)
    if asked.file is None:
        _affordable(kernel, budget, asked)
    tensors = asked.tensors(kernel)
    if kernel.target is not None and backend.on_gpu(kernel.target):
        tensors = gpu.send(tensors)
    with _progress() as progress:
        return kernel.tune(
            **tensors,
            **asked.scalars,
            budget=max(until - time.monotonic(), 1e-3),
            space=None if space is None else " ".join(space),
            jobs=max(1, (os.cpu_count() or 2) // 2) if jobs is None else jobs,
            resume=resume,
            progress=progress,
            notice=options.say,
        )


def _affordable(kernel: Kernel, budget: float, asked: Asked) -> None:
    """Raises ResourceError where the budget would be over before anything is known; says what takes long."""
    from tilec.tuning.search import FEWEST, WORTH

    known, scalars = kernel.environment(options.sizes(kernel, asked.size), asked.scalars)
    shapes = ([int(evaluate(d, known)) for d in t.dims] for t in kernel.signature.tensors.values())
    many = sum(math.prod(shape) for shape in shapes)
    drawing = many / DRAWN
    call = call_seconds(kernel, options.element_type(asked.dtype, kernel.target), known, scalars)
    if drawing + FEWEST * call > budget:
        raise ResourceError(
            f"tune: drawing {many:,} values of sample data takes about {drawing:.0f} s, a call about {call:.2g} s, which is "
            f"too long for a budget of {budget:g} s; what works is --budget {math.ceil(2 * drawing + 2 * WORTH * call)}s, "
            "or smaller sizes (--size)"
        )
    if drawing > 1:
        options.say(f"drawing {many:,} values of sample data: about {drawing:.0f} s")


def call_seconds(
    kernel: Kernel, dtype: DType, sizes: Mapping[str, int], scalars: Mapping[str, Number]
) -> float:
    """The time of a call as the cost model sees it."""
    from tilec import backend, ceilings
    from tilec.traffic import budget
    from tilec.tuning.drafts import predicted

    target = kernel.target or "cpu"
    if target == "reference":
        return 0.0
    stages = dict(kernel.stages(dtype=dtype, sizes=sizes))
    draft = backend.draft(stages["place"], target, {}, (stages["online"], sizes))
    stated = budget(
        draft.kernel, sizes, scalars, kernel.deciding([draft.kernel], dtype, dict(sizes))
    )
    return predicted(draft, stated, ceilings.measured(target))


@contextlib.contextmanager
def _progress() -> Generator[Progress | None]:
    """A bar on a terminal; elsewhere nothing."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: list[Any] = [
        TextColumn("tuning"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    ]
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=None)

        def show(done: int, total: int, last: Entry, best: Entry) -> None:
            text = f"last {last.choice} · best {best.choice} {1 / best.relative:.2f}x"
            bar.update(task, completed=done, total=total, description=text)

        yield show


def _plot(board: Leaderboard, file: str) -> None:
    from tilec import plots

    measured = board.measured
    figure = plots.search(
        f"{board.kernel} for {board.key.sizes}\non {board.key.target}",
        [e.predicted for e in measured],
        [board.time(e) for e in measured],
        [e.choice for e in measured].index(board.default.choice),
        board.least,
    )
    files.write_plot(file, figure)


def _facts(board: Leaderboard) -> dict[str, Any]:
    return {
        "kernel": board.kernel,
        "sizes": board.key.sizes,
        "target": board.key.target,
        "bound_seconds": board.least,
        "compared_with": board.compared_with,
        "complete": board.complete,
        "candidates": [
            {
                "tile": dict(e.choice.tile),
                "schedule": dict(e.choice.schedule),
                "state": e.state,
                "seconds": e.seconds,
                "speed": 1 / e.relative if e.relative else None,
                "of_roof": board.least / board.time(e) if e.relative else None,
                "predicted_seconds": e.predicted,
                "error": None if math.isnan(e.error) else e.error,
                "note": e.note,
                "registers": e.room.registers if e.room else None,
                "shared_bytes": e.room.shared if e.room else None,
            }
            for e in board.entries
        ],
    }


# ---- files


def _export(file: str) -> None:
    from tilec.tuning import store

    with store.open_store() as s:
        winners = s.winners()
    files.write(file, store.exported(winners))
    options.say(f"wrote {len(winners)} schedules to {file}")


def _import(file: str) -> None:
    from tilec.source import read
    from tilec.tuning import store

    winners = store.imported(read(file), file)
    with store.open_store() as s:
        for w in winners:
            s.keep(w)
    options.say(f"stored {len(winners)} schedules of {file}")
