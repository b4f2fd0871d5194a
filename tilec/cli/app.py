"""The commands, gathered."""

from __future__ import annotations

from typing import Annotated

import typer

from tilec.cli.bench import bench
from tilec.cli.blocks import blocks
from tilec.cli.check import check
from tilec.cli.emit import emit
from tilec.cli.ir import ir, opt
from tilec.cli.later import grad
from tilec.cli.machine import cache, doctor
from tilec.cli.run import run
from tilec.cli.traffic import traffic
from tilec.cli.tune import tune

app = typer.Typer(
    name="tilec",
    help="A tile compiler for attention.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

for command in (check, run, ir, opt, emit, blocks, traffic, tune, bench, grad, doctor):
    app.command()(command)
app.add_typer(cache)


def _version(wanted: bool) -> None:
    if wanted:
        from tilec import __version__

        print(f"tilec {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A tile compiler for attention."""
