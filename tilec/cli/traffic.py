"""`tilec traffic`: the bytes that a program moves, before and after each pass."""

from __future__ import annotations

from typing import Annotated

import typer

from tilec.cli import options
from tilec.errors import UnsupportedError


def traffic(
    file: options.File,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    json: options.Json = False,
    measure: Annotated[bool, typer.Option("--measure", help="Not yet.")] = False,
    plot: Annotated[str | None, typer.Option("--plot", metavar="FILE", help="Not yet.")] = None,
) -> None:
    """Print the bytes that a program moves, as written and after each pass."""
    if measure or plot is not None:
        raise UnsupportedError(
            "traffic: nothing is measured or drawn yet; what works is the stated bytes, and `tilec ir --bytes` per op"
        )
    from tilec.traffic import budget

    kernel = options.load(file, target, tile)
    sizes, scalars = kernel.environment(options.integers("--size", size, 0), options.scalars(set_))
    element = options.element_type(dtype)
    arrays = kernel.sample(dtype=element, **sizes)
    stated = [
        (name, budget(ir, sizes, scalars, arrays).traffic)
        for name, ir in kernel.stages(dtype=element, sizes=sizes)
    ]
    if json:
        options.print_json([{"after": n, "read": t.read, "written": t.written} for n, t in stated])
        return
    print(f"{'after':12} {'read':>18} {'written':>18} {'total':>18}")
    for name, t in stated:
        print(f"{name:12} {t.read:18,} {t.written:18,} {t.total:18,}")
