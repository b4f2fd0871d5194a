"""`tilec emit`: the generated code."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from tilec.cli import options
from tilec.errors import UnsupportedError

if TYPE_CHECKING:
    from tilec.backends.cuda.code import Code
    from tilec.backends.cuda.nvrtc import Compiled

CPU = ("llvm", "asm")
GPU = ("cuda", "ptx", "sass", "cubin")


To = Annotated[
    str, typer.Option("--to", metavar="KIND", help="llvm, asm, cuda, ptx, sass or cubin.")
]
Processor = Annotated[
    str | None,
    typer.Option(
        "--processor",
        metavar="WIDTH",
        help="llvm and asm for another one: sse, avx, avx2, avx512, neon.",
    ),
]


def emit(
    file: options.File,
    to: To,
    size: options.Size = None,
    dtype: options.Dtype = None,
    set_: options.Set = None,
    target: options.Target = None,
    tile: options.Tile = None,
    schedule: options.Schedule = None,
    processor: Processor = None,
) -> None:
    """Print the generated code.

    For a GPU, what the kernels use goes to standard error.
    """
    if to not in CPU + GPU:
        raise typer.BadParameter(f"{to!r} is none of {', '.join(CPU + GPU)}", param_hint="--to")
    _check_target(to, target)
    kernel = options.load(file, target or ("cpu" if to in CPU else "cuda"), tile, schedule)
    options.check_scalars(kernel, options.scalars(set_))
    sizes = options.sizes(kernel, size)
    element = None if dtype is None else options.element_type(dtype)
    if to in CPU:
        code = kernel.source(to, dtype=element, processor=processor, **sizes)
        print(code, end="" if code.endswith("\n") else "\n")
        return
    if processor is not None:
        raise typer.BadParameter(f"--to {to} is for a GPU", param_hint="--processor")
    _gpu(kernel.gpu_code(dtype=element, called=False, **sizes), to)


def _check_target(to: str, target: str | None) -> None:
    """Raises what a target calls for that makes no code of this kind; one that does not exist is no matter of this."""
    from tilec.backend import on_gpu

    if target == "reference":
        raise UnsupportedError(
            "emit: the reference target interprets the IR and makes no code; what works is --target cpu"
        )
    if target == "cpu" and to in GPU:
        raise typer.BadParameter(
            f"--to {to} is for a GPU: give cuda, or cuda:sm_80", param_hint="--target"
        )
    if target is not None and on_gpu(target) and to in CPU:
        raise typer.BadParameter(f"--to {to} is for processors: give cpu", param_hint="--target")


def _gpu(code: Code, to: str) -> None:
    from tilec.backends.cuda.code import compiled, source

    options.say(f"{code.arch}, emitter {code.emitter}\n{code.summary}")
    if to == "cuda":
        print(code.text)
        return
    if to == "ptx":
        print(source(code, to))
        return
    made = compiled(code)
    _say_usage(made)
    if to == "sass":
        print(source(code, to))
        return
    if len(made) > 1:
        raise UnsupportedError(
            f"emit: {code.kernel.name} is made of {len(made)} cubins; with --schedule emitter=simt it is one"
        )
    sys.stdout.buffer.write(made[0].cubin)


def _say_usage(made: Iterable[Compiled]) -> None:
    for name, use in ((n, u) for c in made for n, u in c.usage.items()):
        options.say(
            f"{name}: {use.registers} registers, {use.stack} bytes of stack, {use.spill_stores} bytes of spill stores, "
            f"{use.spill_loads} of spill loads"
        )
