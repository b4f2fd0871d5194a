"""`tilec check`: reads programs and says what they declare, or what is wrong with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tilec import scalar
from tilec.cli import options
from tilec.errors import ArgumentError, SourceError

if TYPE_CHECKING:
    from tilec.kernel import Kernel


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE",
            help=".tile files (all their kernels), or FILE:KERNEL; - for standard input.",
        ),
    ],
    json: options.Json = False,
) -> None:
    """Check programs; print each kernel's signature and axes."""
    found: list[dict[str, Any]] = []
    failed = False
    for file in files:
        try:
            found.extend(_facts(file, k) for k in _kernels(file))
        except SourceError as e:
            failed = True
            options.say(str(e))
            found.extend(_mistake(e))
        except ArgumentError as e:
            failed = True
            options.say(f"error: {e}")
            found.append({"file": file, "error": str(e)})
    if json:
        options.print_json(found)
    else:
        for facts in found:
            if "error" not in facts:
                print(_shown(facts))
    if failed:
        raise typer.Exit(1)


def _kernels(file: str) -> list[Kernel]:
    """The kernel that FILE:KERNEL names, or all of a file."""
    from tilec.kernel import Kernel

    first = Kernel(options.source(file))
    if options.split(file)[1] is not None:
        return [first]
    return [first.sibling(n) for n in first.siblings]


def _facts(file: str, k: Kernel) -> dict[str, Any]:
    return {
        "file": options.split(file)[0],
        "kernel": k.name,
        "parameters": [str(p) for p in k.parameters],
        "outputs": [str(o) for o in k.outputs],
        "axes": {a: scalar.show(n) for a, n in k.axes.items()},
    }


def _mistake(e: SourceError) -> list[dict[str, Any]]:
    return [
        {
            "file": d.span.file,
            "line": d.span.line,
            "column": d.span.column,
            "error": d.message,
            "hint": d.hint,
        }
        for d in e.diagnostics
    ]


def _shown(facts: dict[str, Any]) -> str:
    axes = ", ".join(f"{a} < {n}" for a, n in facts["axes"].items())
    head = f"{facts['kernel']}({', '.join(facts['parameters'])}) -> {', '.join(facts['outputs'])}"
    return f"{facts['file']}: {head}\n  axes {axes}" if axes else f"{facts['file']}: {head}"
