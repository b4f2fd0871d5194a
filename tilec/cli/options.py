"""What the commands share: their options, and the programs and arguments that these name."""

from __future__ import annotations

import difflib
import functools
import json
import sys
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TypeAlias, cast

import typer

from tilec.dtypes import SIZES, DType, kind
from tilec.errors import ArgumentError
from tilec.scalar import Number

if TYPE_CHECKING:
    from tilec.kernel import Kernel
    from tilec.source import Source

Strings: TypeAlias = list[str] | None

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE",
        help="A .tile file (its first kernel), or FILE:KERNEL; - for standard input.",
    ),
]
Size = Annotated[
    Strings,
    typer.Option("--size", metavar="M=4096,…", help="Dimension sizes, over those of the file."),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="TYPE",
        help="Element type of the untyped tensors (default: f32, on a GPU f16).",
    ),
]
Set = Annotated[
    Strings, typer.Option("--set", metavar="window=512,…", help="Values of scalar arguments.")
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="TARGET",
        help="cpu, reference, cuda, cuda:sm_90a, cuda:sm_80, … (default: cuda where a GPU answers, else cpu).",
    ),
]
Tile = Annotated[
    Strings, typer.Option("--tile", metavar="i=128,j=64", help="Tile extents by axis.")
]
Schedule = Annotated[
    Strings, typer.Option("--schedule", metavar="stages=2,…", help="Other schedule fields.")
]
Input = Annotated[
    str | None, typer.Option("--input", metavar="FILE.npz", help="The arguments, by name.")
]
Seed = Annotated[int, typer.Option("--seed", help="Seed of the sample data.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def pairs(option: str, texts: Strings) -> dict[str, str]:
    """The pairs of `A=1,B=2` texts. Raises a usage error for what is no pair, and for a name given twice."""
    out: dict[str, str] = {}
    for part in (p.strip() for t in texts or [] for p in t.split(",") if p.strip()):
        name, equals, value = (x.strip() for x in part.partition("="))
        if not equals or not name or not value:
            raise typer.BadParameter(f"{part!r} is not NAME=VALUE", param_hint=option)
        if name in out:
            raise typer.BadParameter(f"{name} is given twice", param_hint=option)
        out[name] = value
    return out


def integers(option: str, texts: Strings, least: int) -> dict[str, int]:
    """Pairs whose values are integers of at least `least`."""
    out: dict[str, int] = {}
    for name, value in pairs(option, texts).items():
        n = _integer(value)
        if n is None or not least <= n < 1 << 63:
            most = "" if n is None or n < 1 << 63 else ", below 2^63"
            raise typer.BadParameter(
                f"{name}={value}: expected an integer of {least} or more{most}", param_hint=option
            )
        out[name] = n
    return out


def scalars(texts: Strings) -> dict[str, Number]:
    """The values of `--set`: integers, floats, true and false."""
    return {name: _number(name, value) for name, value in pairs("--set", texts).items()}


def fields(texts: Strings) -> dict[str, object]:
    """The fields of `--schedule`: integers and words."""
    read = {name: (_integer(text), text) for name, text in pairs("--schedule", texts).items()}
    return {name: text if n is None else n for name, (n, text) in read.items()}


def _integer(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _number(name: str, text: str) -> Number:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    n = _integer(text)
    if n is not None:
        return n
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{name}={text}: expected a number", param_hint="--set") from None


def element_type(text: str | None, target: str | None = None) -> DType:
    """The element type of `--dtype`: a float type; where it is not given f16 for a GPU, else f32."""
    from tilec.backend import on_gpu

    if text is None:
        return "f16" if target is not None and on_gpu(target) else "f32"
    floats = [d for d in SIZES if kind(d) == "float"]
    if text not in floats:
        near = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
        hint = f"; did you mean {near[text]}?" if text in near else ""
        raise typer.BadParameter(
            f"{text!r} is none of {', '.join(floats)}{hint}", param_hint="--dtype"
        )
    return cast(DType, text)


def load(
    file: str, target: str | None = None, tile: Strings = None, schedule: Strings = None
) -> Kernel:
    """The kernel that `FILE` or `FILE:KERNEL` names; without a target, for the GPU that answers, else for the processors."""
    from tilec import backend
    from tilec.kernel import Kernel

    return Kernel(
        source(file),
        target=target or backend.default_target(),
        tile=integers("--tile", tile, 1),
        schedule=fields(schedule),
    )


def source(file: str) -> Source:
    """The program that `FILE`, `FILE:KERNEL`, `-` or `-:KERNEL` names."""
    from tilec.source import Source, read

    path, name = split(file)
    if path == "-":
        return Source(standard_input(), "<stdin>", name)
    return Source(read(path), path, name)


def standard_input() -> str:
    """What standard input holds; a command may ask for it more than once."""
    from tilec.source import decode

    if not sys.stdin:  # closed by the caller
        raise ArgumentError("cannot read <stdin>: it is closed")
    return decode(_all_of(sys.stdin.buffer), "<stdin>")


@functools.lru_cache(maxsize=1)
def _all_of(stream: BinaryIO) -> bytes:
    return stream.read()


def split(file: str) -> tuple[str, str | None]:
    """The path and the kernel's name of `FILE:KERNEL`; a file whose name holds the colon comes first."""
    import os

    path, colon, name = file.rpartition(":")
    if not colon or os.path.exists(file) or not name.isidentifier():
        return file, None
    return path, name


def nearest(name: str, names: list[str]) -> str:
    """`; did you mean X?`, or the names there are."""
    near = difflib.get_close_matches(name, names, 1)
    return f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names) or 'none'}"


def sizes(kernel: Kernel, texts: Strings) -> dict[str, int]:
    """The sizes of `--size`. Raises ArgumentError for one of a dimension that the kernel lacks."""
    found, dims = integers("--size", texts, 0), list(kernel.dims)
    for name in found:
        if name not in dims:
            raise ArgumentError(
                f"--size: {kernel.name} has no dimension {name!r}{nearest(name, dims)}"
            )
    return found


def check_scalars(kernel: Kernel, given: dict[str, Number]) -> None:
    """Raises ArgumentError for a scalar argument that the kernel lacks, or of another type."""
    from tilec import binding

    known = kernel.signature.arguments
    for name in given:
        if name not in known:
            raise ArgumentError(
                f"--set: {kernel.name} has no scalar argument {name!r}{nearest(name, list(known))}"
            )
    binding.numbers(kernel.signature, given)


def schedule(chosen: str, shipped: bool) -> str:
    """A stored schedule, and where it is from."""
    if chosen == "default":
        return "default (tuned: no other was faster; --tile overrides it)"
    return f"{chosen} ({'shipped' if shipped else 'tuned'}; --tile overrides it)"


def say(message: str) -> None:
    """A line to standard error."""
    print(message, file=sys.stderr)


def print_json(x: Any) -> None:
    """A value as JSON on standard output."""
    print(json.dumps(x, indent=2, default=str))
