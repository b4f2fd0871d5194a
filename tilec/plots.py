"""Drawings: the roofline of a program, the times of a comparison, the candidates of a search. They need matplotlib."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false, reportMissingImports=false, reportUnknownParameterType=false

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilec.errors import ArgumentError, UnsupportedError

if TYPE_CHECKING:
    from tilec.ceilings import Ceilings
    from tilec.roofline import Stage

FORMATS = ("svg", "png", "pdf")
COLOURS = ("#4477aa", "#cc6633", "#228833", "#aa3377")
POWERS = ("", "k", "M", "G", "T", "P", "E")


def check(file: str) -> None:
    """Raises what drawing to a file of this name would, before the work that is to be drawn."""
    _format(file)
    _figure_type()


def _figure_type() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UnsupportedError(
            "plot: drawing needs matplotlib, which is not installed; pip install 'tilec[plot]', or use --json"
        ) from None
    return Figure


def _format(file: str) -> str:
    ending = os.path.splitext(file)[1].lstrip(".").lower()
    if ending not in FORMATS:
        raise ArgumentError(
            f"--plot: cannot draw {file!r}; the name must end in .{', .'.join(FORMATS)}"
        )
    return ending


def _axes(title: str, across: str, up: str) -> tuple[Any, Any]:
    figure = _figure_type()(figsize=(8, 5), layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(title, fontsize=9)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    return figure, axes


def drawn(figure: Any, file: str) -> bytes:
    """What a file with a figure holds; the format is that of the file's ending. Raises ArgumentError for another one."""
    held = io.BytesIO()
    figure.savefig(held, format=_format(file))
    return held.getvalue()


def roofline(title: str, stages: Mapping[str, Stage], roof: Ceilings) -> Any:
    """The roofs over operations per byte, and where a program stands: `stages` are its forms, each with what it is called.

    A form stands as high as its bound lets it come: on a roof, or below where other operations than products take time.
    """
    figure, axes = _axes(
        f"{title}\non {roof.machine}", "operations per byte moved", "operations per second, at most"
    )
    # a program may do nothing or move nothing, and has its place on logarithmic axes all the same
    points = {n: (max(s.operations, 1) / max(s.moved, 1), s) for n, s in stages.items()}
    low = min([p for p, _ in points.values()] + [roof.matrix / roof.cache]) / 4
    high = max([p for p, _ in points.values()] + [roof.ridge]) * 4
    across = [low * (high / low) ** (n / 200) for n in range(201)]
    for rate, line, name in ((roof.memory, "-", "memory"), (roof.cache, ":", "last cache")):
        up = [min(x * rate, roof.matrix) for x in across]
        axes.loglog(across, up, line, color="k", label=f"{name}, {short(rate)}B/s")
    for n, (name, (x, s)) in enumerate(points.items()):
        label = f"{name}: {s.bound.holds}"
        axes.plot(
            [x], [max(s.reached, 1.0)], "os^D"[n % 4], color=COLOURS[n % 4], ms=8, label=label
        )
    axes.axhline(roof.matrix, color="#999999", lw=0.8, zorder=1)
    axes.text(low, 1.06 * roof.matrix, f"products, {short(roof.matrix)}op/s", fontsize=8)
    axes.set_ylim(min(low * roof.memory, roof.matrix / 100), roof.matrix * 2)
    _logarithmic(axes.xaxis, lambda x: f"{x:g}")
    _logarithmic(axes.yaxis, short)
    axes.legend(fontsize=8, loc="lower right")
    return figure


def _logarithmic(axis: Any, text: Callable[[float], str]) -> None:
    """Numbers along a logarithmic axis as one writes them: in between the powers of ten where there are few of these."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    decades = math.log10(high / low)
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if decades < 3 else (1,)))

    def shown(x: float, _: int) -> str:
        return text(x)

    axis.set_major_formatter(FuncFormatter(shown))
    axis.set_minor_formatter(NullFormatter())
    axis.grid(True, which="both", alpha=0.2)


def short(x: float) -> str:
    """A number in thousands, millions, …: `4.5 T`."""
    n = min(max(0, int(math.log10(max(x, 1)) + 1e-9) // 3), len(POWERS) - 1)
    return f"{x / 1000**n:.3g} {POWERS[n]}"


FAR = 8
"""How many times longer than the shortest a bar may be."""


def bars(title: str, names: Sequence[str], seconds: Sequence[float]) -> Any:
    """Times side by side, in milliseconds, the first one beside those it is compared with. The bars of those that take far
    longer end at an arrow: they would leave the others no room."""
    figure, axes = _axes(title, "ms", "")
    figure.set_figheight(1.3 + 0.45 * len(names))
    colours = [COLOURS[1], *[COLOURS[0]] * (len(names) - 1)]
    end = max((s for s in seconds if s <= FAR * min(seconds)), default=1.0)
    shown = [s if s <= end else 1.2 * end for s in seconds]
    axes.barh(range(len(names)), [1e3 * s for s in shown], color=colours[: len(names)])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    for n, s in enumerate(seconds):
        ratio = f"  ({s / seconds[0]:.2f} ×)" if n else ""
        arrow = " →" if s > end else ""
        axes.text(1e3 * shown[n], n, f"{arrow} {1e3 * s:.3g}{ratio}", va="center", fontsize=8)
    axes.set_xlim(0, 1.3e3 * max(shown, default=1.0))
    return figure


def search(
    title: str, predicted: Sequence[float], measured: Sequence[float], default: int, least: float
) -> Any:
    """Each candidate of a search: what the cost model said, and what was measured, in milliseconds.

    `default`: which of them is the default; `least`: the bound of the machine.
    """
    figure, axes = _axes(title, "predicted ms", "measured ms")
    told, took = [1e3 * p for p in predicted], [1e3 * m for m in measured]
    best = min(range(len(took)), key=lambda n: took[n])
    ends = min(told + took), max(told + took)
    axes.plot(ends, ends, "--", color="#999999", lw=1, label="as predicted")
    axes.plot(told, took, "o", color=COLOURS[0], label="candidates")
    axes.plot(told[default], took[default], "s", ms=9, color=COLOURS[2], label="the default")
    axes.plot(told[best], took[best], "*", ms=13, color=COLOURS[1], label="the fastest")
    axes.axhline(1e3 * least, color="k", linestyle=":", label="bound of the machine")
    axes.grid(True, alpha=0.2)
    axes.legend(fontsize=8)
    return figure
