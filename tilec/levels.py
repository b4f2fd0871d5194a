"""The level at which each pass takes a kernel: whole tensors, groups, grids.

The default pipeline keeps to it by its order. A pipeline that a user writes, and IR text that a user brings, may not: then
it is said which pass must come first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilec.errors import ArgumentError
from tilec.ir import Buffer, Grid, Group, Kernel, Op, Reduce, Store, regions, walk


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a pass needs of a kernel: in words, whether it holds, and what to do where it does not."""

    words: str
    holds: Callable[[Kernel], bool]
    remedy: str


def _whole(kernel: Kernel) -> bool:
    return not any(regions(op) for op in kernel.body)


def _expanded(kernel: Kernel) -> bool:
    composed = ("softmax", "logsumexp", "mean")
    return not any(isinstance(op, Reduce) and op.fn in composed for op in walk(kernel.body))


def _grouped(kernel: Kernel) -> bool:
    return _made_of(kernel, Group)


def _tiled(kernel: Kernel) -> bool:
    return _made_of(kernel, Grid)


def _made_of(kernel: Kernel, region: type[Op]) -> bool:
    """Whether all but scalar ops, buffers and stores is in regions of one kind."""
    return all(
        isinstance(op, region | Buffer | Store)
        or not (regions(op) or any(r.type.axes for r in op.results))
        for op in kernel.body
    )


def _untiled(kernel: Kernel) -> bool:
    return not any(isinstance(op, Grid) for op in kernel.body)


WHOLE = Need("whole tensors", _whole, "this kernel has groups or grids already: leave it out")
EXPANDED = Need("softmax, logsumexp and mean in primitives", _expanded, "run expand before it")
UNTILED = Need("groups", _untiled, "this kernel has grids already: leave it out")
GROUPED = Need("groups", _grouped, "run fuse before it")
TILED = Need("grids", _tiled, "run fuse and tile before it")

NEEDS: dict[str, tuple[Need, ...]] = {
    "expand": (WHOLE,),
    "exp2": (WHOLE, EXPANDED),
    "contract": (WHOLE,),
    "flatten": (WHOLE, EXPANDED),
    "fuse": (WHOLE, EXPANDED),
    "online": (UNTILED, GROUPED),
    "unroll": (UNTILED,),
    "fold": (UNTILED, GROUPED),
    "tile": (UNTILED, GROUPED),
    "steady": (TILED,),
    "prune": (TILED,),
    "phases": (TILED,),
    "stage": (TILED,),
    "survey": (TILED,),
    "lookup": (TILED,),
    "relax": (TILED,),
    "split": (TILED,),
    "place": (TILED,),
}
"""What each pass needs, in the order in which it is looked at; a pass that is not here takes any kernel."""


def require(name: str, kernel: Kernel) -> None:
    """Raises ArgumentError where a pass cannot take a kernel."""
    for need in NEEDS.get(name, ()):
        if not need.holds(kernel):
            raise ArgumentError(f"pass {name} needs {need.words}; {need.remedy}")
