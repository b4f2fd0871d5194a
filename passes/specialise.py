"""specialise: numbers for dimensions; those of axes that a kernel holds whole are fixed at compile time.

Requires: nothing. Changes: the chosen dimensions are literals everywhere, and what that decides is folded.

    axis d < D                           axis d < 64
    t: i64 = floordiv(D, 2)        ->
    u: i64[d] = add(d, t)                u: i64[d] = add(d, 32)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from tilec.errors import ArgumentError
from tilec.ir import Argument, Body, Contract, For, Group, Kernel, Reduce, Tensor, defined, regions
from tilec.passes.simplify import simplify
from tilec.renaming import substitute
from tilec.scalar import Scalar, evaluate, names


@dataclass(frozen=True)
class Options:
    """`sizes`: the number that each dimension to be replaced stands for."""

    sizes: Mapping[str, int] = field(default_factory=dict[str, int])


def static_dims(kernel: Kernel) -> tuple[str, ...]:
    """The dimensions that a compiled kernel must know: those of axes that its groups hold whole.

    Every other axis is a grid axis of a group or streamed by a `for` and may have any length at run time.
    """
    whole = {
        a
        for op in kernel.body
        if isinstance(op, Group)
        for a in _whole(op.body, frozenset(op.axes))
    }
    return tuple(
        dict.fromkeys(
            n for a in kernel.axes if a.name in whole for n in names(a.extent) if n in kernel.dims
        )
    )


def _whole(body: Body, windowed: frozenset[str]) -> Iterator[str]:
    """The axes of a region's values that have no window there, and those of what it sums of other groups' values."""
    for op in body:
        outside = op.results if isinstance(op, For) else defined(op)
        axes = [a for v in outside for a in v.type.axes]
        axes += op.over if isinstance(op, (Reduce, Contract)) else ()
        yield from (a for a in axes if a not in windowed)
        inside = windowed | {op.axis} if isinstance(op, For) else windowed
        for region in regions(op):
            yield from _whole(region, inside)


def specialise(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel for given sizes of some dimensions. Raises ArgumentError for a name that is no dimension."""
    sizes = options.sizes
    _check(kernel, sizes)
    if not sizes:
        return kernel
    fixed = replace(
        kernel,
        params=tuple(_parameter(p, sizes) for p in kernel.params),
        axes=tuple(replace(a, extent=fix(a.extent, sizes)) for a in kernel.axes),
        body=substitute(kernel.body, sizes),
        assertions=tuple(
            replace(a, condition=c)
            for a in kernel.assertions
            if (c := fix(a.condition, sizes)) is not True
        ),
    )
    return simplify(fixed)


def _check(kernel: Kernel, sizes: Mapping[str, int]) -> None:
    for name, size in sizes.items():
        if name not in kernel.dims:
            raise ArgumentError(
                f"{kernel.name} has no dimension {name!r}; its dimensions are {', '.join(kernel.dims)}"
            )
        if size < 0:
            raise ArgumentError(f"dimension {name} cannot be {size}; a size is 0 or more")


def _parameter(p: Tensor | Argument, sizes: Mapping[str, int]) -> Tensor | Argument:
    if isinstance(p, Tensor):
        return replace(p, dims=tuple(fix(d, sizes) for d in p.dims))
    return replace(p, default=None if p.default is None else fix(p.default, sizes))


def fix(e: Scalar, sizes: Mapping[str, int]) -> Scalar:
    """A scalar expression with names replaced by numbers, and evaluated where no name is left."""
    if isinstance(e, str):
        return sizes.get(e, e)
    if not isinstance(e, tuple):
        return e
    out: Scalar = (e[0], *(fix(x, sizes) for x in e[1:]))
    return out if any(True for _ in names(out)) else evaluate(out, {})
