"""`tilec blocks`: which blocks of scores a program looks at."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilec import binding, scalar
from tilec.blocks import SIGNS, Blocks, maps
from tilec.cli import options
from tilec.cli.arguments import from_file
from tilec.errors import ArgumentError

if TYPE_CHECKING:
    from tilec.ir import Kernel as IR
    from tilec.kernel import Kernel

WIDTH, HEIGHT = 96, 32
"""Signs of a picture, at most."""
PLAIN = "#+."
"""The signs for terminals that have no others, and in JSON."""


At = Annotated[
    options.Strings,
    typer.Option("--at", metavar="b=0,h=3", help="Where on the other axes (default: 0)."),
]


def blocks(
    file: options.File,
    at: At = None,
    input_: options.Input = None,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    seed: options.Seed = 0,
    json: options.Json = False,
) -> None:
    """Draw which blocks a program looks at, and where it asks a mask.

    Where data decides, it is sample data, or that of `--input`, which need not hold every argument.
    """
    kernel = options.load(file, target, tile, schedule)
    element = options.element_type(dtype, kernel.target)
    given = {} if input_ is None else from_file(kernel, input_, dtype)
    read = _sizes(kernel, given, options.integers("--size", size, 0))
    sizes, scalars = kernel.environment(read, options.scalars(set_))
    for name, a in given.items():
        binding.check_expressions(kernel.signature.tensors[name], a.shape, sizes)
    *_, (_, ir) = kernel.stages(dtype=element, sizes=sizes)
    arrays = {**kernel.deciding([ir], element, sizes, seed), **given}
    positions = _positions(ir, at)
    found = maps(ir, sizes, scalars, arrays, positions)
    _check_places(kernel.name, found, positions)
    if json:
        options.print_json([_facts(b) for b in found])
        return
    print(f"{kernel.name}({scalar.assigned({**sizes, **scalars})})")
    for b in found:
        print("\n".join(_lines(b)))
    if not found:
        print("no axis is streamed in tiles of which something is contracted: there are no blocks")


def _sizes(kernel: Kernel, arrays: Mapping[str, Any], asked: Mapping[str, int]) -> dict[str, int]:
    """The sizes that are asked for, and those that some of a kernel's tensors have."""
    tensors = kernel.signature.tensors
    out = dict(asked)
    for name, a in arrays.items():
        if name not in tensors:
            raise ArgumentError(
                f"--input: {kernel.name} has no tensor {name!r}{options.nearest(name, list(tensors))}"
            )
        dims = tensors[name].dims
        if a.ndim != len(dims) or any(
            out.setdefault(d, n) != n
            for d, n in zip(dims, a.shape, strict=True)
            if isinstance(d, str)
        ):
            declared = binding.show_parameter(tensors[name])
            known = ", ".join(f"{d}={out[d]}" for d in dims if isinstance(d, str) and d in out)
            raise ArgumentError(f"--input: {declared} has shape {a.shape}, and {known}")
    return out


def _positions(ir: IR, at: options.Strings) -> dict[str, int]:
    positions = options.integers("--at", at, 0)
    for axis in positions:
        if axis not in ir.extents:
            near = options.nearest(axis, list(ir.extents))
            raise ArgumentError(f"--at: {ir.name} has no axis {axis!r}{near}")
    return positions


def _check_places(name: str, found: list[Blocks], positions: Mapping[str, int]) -> None:
    """Raises ArgumentError for a position on an axis that no map has a place on: it would change nothing."""
    if not found:
        return
    places = list(dict.fromkeys(a for b in found for a in b.at))
    for axis in positions:
        if axis in places:
            continue
        drawn = any(axis in (b.rows[0], b.columns[0]) for b in found)
        why = "is drawn whole" if drawn else "does not choose among blocks"
        raise ArgumentError(
            f"--at: the axis {axis!r} of {name} {why}; those to choose on are {', '.join(places) or 'none'}"
        )


def _lines(b: Blocks) -> Iterator[str]:
    """A map as text: its tiles, the picture, and how many blocks are looked at."""
    (down, _, tall), (across, _, wide) = b.rows, b.columns
    at = "".join(f", {a} = {n}" for a, n in b.at.items())
    r, c = b.scale(WIDTH, HEIGHT)
    each = "" if r == c == 1 else f", {r} x {c} blocks per sign"
    yield f"{down} downwards in tiles of {tall}, {across} across in tiles of {wide}{at}{each}"
    signs = _signs()
    for k, line in enumerate(b.picture(WIDTH, HEIGHT, signs)):
        yield f"{k * r * tall:>8} {line}"
    count, looked = b.shape[0] * b.shape[1], len(b.masked)
    part = f" ({looked / count:.1%})" if count else ""
    yield f"{looked:,} of {count:,} blocks are looked at{part}, {sum(b.masked.values()):,} of them with a mask"
    yield f"{signs[0]} without a mask   {signs[1]} with one   {signs[2]} skipped"


def _signs() -> str:
    try:
        SIGNS.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return PLAIN
    return SIGNS


def _facts(b: Blocks) -> dict[str, Any]:
    down, across = b.shape
    return {
        "rows": dict(zip(("axis", "length", "tile"), b.rows, strict=True)),
        "columns": dict(zip(("axis", "length", "tile"), b.columns, strict=True)),
        "at": dict(b.at),
        "looked_at": len(b.masked),
        "masked": sum(b.masked.values()),
        "map": b.picture(across, down, PLAIN),
    }
