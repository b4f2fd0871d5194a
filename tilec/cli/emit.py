"""`tilec emit`: the generated code."""

from __future__ import annotations

from typing import Annotated

import typer

from tilec.cli import options
from tilec.errors import UnsupportedError

KINDS = ("llvm", "asm")
LATER = ("cuda", "cubin", "ptx", "sass")


def emit(
    file: options.File,
    to: Annotated[
        str,
        typer.Option("--to", metavar="KIND", help="llvm or asm (cuda, ptx, cubin, sass: not yet)."),
    ],
    size: options.Size = None,
    dtype: options.Dtype = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
) -> None:
    """Print the code that is generated for a program."""
    if to in LATER:
        raise UnsupportedError(
            f"emit: tilec has no CUDA backend yet, so no {to}; what works is --to llvm and --to asm"
        )
    if to not in KINDS:
        raise typer.BadParameter(f"{to!r} is none of {', '.join(KINDS + LATER)}", param_hint="--to")
    kernel = options.load(file, target, tile, schedule)
    sizes = options.integers("--size", size, 0)
    options.check_sizes(kernel, sizes)
    code = kernel.source(to, dtype=options.element_type(dtype), **sizes)
    print(code, end="" if code.endswith("\n") else "\n")
