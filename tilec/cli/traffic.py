"""`tilec traffic`: what a program moves and does after each pass, and which ceiling of the machine holds it."""

from __future__ import annotations

from typing import Annotated

import typer

from tilec.cli import files, options, tables
from tilec.cli.report import Report
from tilec.errors import UnsupportedError

After = Annotated[
    str | None, typer.Option("--after", metavar="PASS", help="List the ops after this pass too.")
]
Ops = Annotated[bool, typer.Option("--ops", help="List the ops after the last pass too.")]
Measure = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Add what the interpreter counts when it runs it, and the hardware of a GPU.",
    ),
]
Plot = Annotated[
    str | None,
    typer.Option("--plot", metavar="FILE.svg", help="Draw the roofline (needs matplotlib)."),
]


def traffic(
    file: options.File,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    seed: options.Seed = 0,
    after: After = None,
    ops: Ops = False,
    measure: Measure = False,
    plot: Plot = None,
    json: options.Json = False,
) -> None:
    """Print bytes, operations and the bound, after each pass.

    Bytes per op are those moved between memory and tiles; `compulsory` are those of each input once and each output once.
    The ceilings of this machine are measured at the first use, or by `tilec doctor --measure`.
    """
    files.check_plot(plot)
    report = _report(file, size, dtype, set_, target, tile, schedule, seed)
    if measure:
        report.count()
        report.ask_hardware(file, options.integers("--tile", tile, 1), schedule)
    if plot is not None:
        from tilec import plots

        files.write_plot(plot, plots.roofline(report.title, report.forms, report.roof))
    if json:
        options.print_json(report.facts())
    else:
        print(tables.show(report, after, ops))


def _report(
    file: str,
    size: options.Strings,
    dtype: str | None,
    set_: options.Strings,
    target: str | None,
    tile: options.Strings,
    schedule: options.Strings,
    seed: int,
) -> Report:
    from tilec import backend, ceilings

    target = target or backend.default_target()
    if target == "reference":
        raise UnsupportedError(
            "traffic: the target reference has no ceilings; what works is cpu, cuda"
        )
    kernel = options.load(file, target, tile, schedule)
    given = options.integers("--size", size, 0)
    sizes, scalars = kernel.environment(given, options.scalars(set_))
    if ceilings.of(target) is None:
        options.say("measuring the ceilings of this machine, once (about two seconds)")
    roof = ceilings.measured(target)
    element = options.element_type(dtype, target)
    tuned = kernel.tuned(dtype=element, sizes=sizes)
    if tuned is not None:
        tile, schedule = (
            [f"{n}={x}" for n, x in chosen.items()]
            for chosen in (tuned.choice.tile, tuned.choice.schedule)
        )
        kernel = options.load(file, target, tile, schedule)
    fields = None if tile else options.pairs("--schedule", schedule)
    return Report(kernel, element, sizes, scalars, roof, fields, tuned, seed)
