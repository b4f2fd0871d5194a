"""Drawings: the roofline of a program, the times of a comparison, the candidates of a search. They need matplotlib."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilec.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from tilec.ceilings import Ceilings
    from tilec.roofline import Stage

FORMATS = ("svg", "png", "pdf")


def _axes(title: str, across: str, up: str) -> tuple[Any, Any]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "plot: drawing needs matplotlib, which is not installed; pip install 'tilec[plot]', or use --json"
        ) from None
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes


def save(figure: Any, file: str) -> None:
    """Writes a figure; the format is that of the file's ending. Raises ArgumentError where it cannot be written."""
    ending = os.path.splitext(file)[1].lstrip(".").lower()
    if ending not in FORMATS:
        raise ArgumentError(
            f"--plot: cannot draw {file!r}; the name must end in .{', .'.join(FORMATS)}"
        )
    try:
        figure.savefig(file, format=ending)
    except OSError as e:
        raise ArgumentError(f"cannot write {file}: {e.strerror or e}") from e


def roofline(title: str, stages: Sequence[Stage], roof: Ceilings) -> Any:
    """The roofs over operations per byte, and where the program stands as its passes go by."""
    figure, axes = _axes(title, "operations per byte moved", "operations per second")
    points = [(s.operations / max(s.moved, 1), s) for s in stages]
    low = min([p for p, _ in points] + [roof.ridge]) / 4
    high = max([p for p, _ in points] + [roof.ridge]) * 4
    across = [low * (high / low) ** (n / 200) for n in range(201)]
    axes.loglog(
        across, [min(x * roof.memory, roof.matrix) for x in across], "k-", label="memory, matrix"
    )
    axes.loglog(
        across, [min(x * roof.cache, roof.matrix) for x in across], "k:", label="last cache"
    )
    for x, s in points:
        reached = s.operations / s.bound.least if s.bound.least > 0 else 0.0
        axes.plot([x], [max(reached, 1.0)], "o", label=f"after {s.name}: {s.bound.holds}")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=8)
    return figure


def bars(title: str, names: Sequence[str], seconds: Sequence[float]) -> Any:
    """Times side by side, in milliseconds."""
    figure, axes = _axes(title, "ms", "")
    axes.barh(range(len(names)), [1e3 * s for s in seconds], color="#4477aa")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    for n, s in enumerate(seconds):
        axes.text(1e3 * s, n, f" {1e3 * s:.3g}", va="center", fontsize=8)
    return figure


def search(title: str, predicted: Sequence[float], measured: Sequence[float], least: float) -> Any:
    """Each candidate of a search: what the cost model said, and what was measured, in milliseconds."""
    figure, axes = _axes(title, "predicted ms", "measured ms")
    axes.loglog([1e3 * p for p in predicted], [1e3 * m for m in measured], "o", color="#4477aa")
    axes.axhline(1e3 * least, color="k", linestyle=":", label="bound of the machine")
    axes.grid(True, which="both", alpha=0.2)
    axes.legend(fontsize=8)
    return figure
