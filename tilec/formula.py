"""The standard variants of attention, and which of them a program is: found by evaluating both on small data.

A formula is softmax(cap · tanh(scale · q·k / cap) + bias, masked) · v, with grouped heads. A program that gives the same
numbers as one of them, for random data and for scalars that were chosen to tell the candidates apart, is that formula;
whatever its text looks like.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilec.errors import TilecError
from tilec.ir import Argument, Kernel, Map, Tensor, walk
from tilec.scalar import Number

if TYPE_CHECKING:
    from tilec.kernel import Kernel as Program

Value = float | str
"""A number, or the name of the scalar argument that holds it."""


@dataclass(frozen=True)
class Formula:
    """A standard variant. `scale` None: 1 / √D. `mask`: a name of `MASKS`, `window`: its width. `slopes`: a tensor [H].

    `aligned`: positions are counted from the end: query i stands at i + N - M. `distance`: what the slopes multiply.
    """

    scale: Value | None = None
    cap: Value | None = None
    mask: str = "full"
    window: Value | None = None
    aligned: bool = False
    slopes: str | None = None
    distance: str = "signed"

    def __str__(self) -> str:
        parts = [self.mask if self.window is None else f"{self.mask} {self.window}"]
        parts += ["aligned at the end"] if self.aligned else []
        parts += [f"soft cap {self.cap}"] if self.cap is not None else []
        parts += ["ALiBi"] if self.slopes is not None else []
        parts += [f"scale {self.scale}"] if self.scale is not None else []
        return ", ".join(parts)

    def fixed(self, scalars: Mapping[str, Number]) -> Formula:
        """With the values of the scalars in place of their names."""

        def number(x: Value | None) -> Value | None:
            return float(scalars[x]) if isinstance(x, str) else x

        return replace(
            self, scale=number(self.scale), cap=number(self.cap), window=number(self.window)
        )


MASKS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "full": lambda p, j, w: j >= 0,
    "causal": lambda p, j, w: j <= p,
    "causal window": lambda p, j, w: (j <= p) & (j > p - w),
    "causal window and itself": lambda p, j, w: (j <= p) & (j >= p - w),
    "window": lambda p, j, w: (j - p <= w) & (p - j <= w),
    "chunked causal": lambda p, j, w: (j <= p) & (j // w == p // w),
}
"""Whether position p sees position j; w is the width."""


def seen(f: Formula, p: Any, j: Any) -> Any:
    """The mask of a formula whose values are fixed, for arrays (or scalars) of positions."""
    return MASKS[f.mask](p, j, None if f.window is None else int(f.window))


def evaluate(f: Formula, tensors: Mapping[str, Any], names: tuple[str, str, str]) -> Any:
    """The formula in float64 by NumPy, its values being fixed. `names`: of q, k and v among the tensors."""
    import numpy

    np: Any = numpy
    q, k, v = (np.asarray(tensors[n]).astype(np.float64) for n in names)
    groups = q.shape[1] // max(k.shape[1], 1)
    k, v = np.repeat(k, groups, 1), np.repeat(v, groups, 1)
    m, n = q.shape[2], k.shape[2]
    i, j = np.arange(m)[:, None], np.arange(n)[None, :]
    p = i + (n - m) if f.aligned else i
    # where heads have no elements, 0 / sqrt(0) is 0
    scale = max(q.shape[3], 1) ** -0.5 if f.scale is None else f.scale
    with np.errstate(invalid="ignore"):  # and a scale of 1 / sqrt(0) makes NaN of it
        s = q @ k.swapaxes(2, 3) * scale
    if f.cap is not None:
        s = f.cap * np.tanh(s / f.cap)
    if f.slopes is not None:
        far = np.abs(p - j) if f.distance == "absolute" else p - j
        s = s - np.asarray(tensors[f.slopes]).astype(np.float64)[:, None, None] * far
    s = np.where(seen(f, p, j), s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.finfo(np.float64).max)
    e = np.exp(s - top)
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total != 0) @ v


# ---- recognising


@dataclass(frozen=True)
class Roles:
    """The names of q, k and v, and of a tensor with a number per head."""

    names: tuple[str, str, str]
    slopes: str | None


def roles(kernel: Kernel) -> Roles | None:
    """The roles of a kernel's tensors by their shapes: [B, H, M, D], [B, HK, N, D], [B, HK, N, E], and perhaps [H]."""
    four = [t for t in kernel.tensors.values() if len(t.dims) == 4]
    others = [t for t in kernel.tensors.values() if len(t.dims) != 4]
    if len(four) != 3 or len(others) > 1 or not kernel.outputs or len(kernel.outputs[0].axes) != 4:
        return None
    q, k, v = four
    if not all(isinstance(d, str) for t in four for d in t.dims):
        return None
    fits = q.dims[0] == k.dims[0] == v.dims[0] and q.dims[3] == k.dims[3]
    if not fits or k.dims[1:3] != v.dims[1:3] or any(t.dims != (q.dims[1],) for t in others):
        return None
    return Roles((q.name, k.name, v.name), others[0].name if others else None)


def recognise(program: Program, sizes: Mapping[str, int]) -> tuple[Formula, Roles] | None:
    """The formula that a program is, and the roles of its tensors; None where it is none of them."""
    import numpy

    np: Any = numpy
    signature = program.signature
    found = roles(signature)
    if found is None:
        return None
    small = _small(signature, found, sizes)
    scalars = _scalars(signature.params)
    try:
        arrays: dict[str, Any] = program.sample(11, dtype="f64", **small)
        random = np.random.default_rng(5)
        if found.slopes is not None:
            arrays[found.slopes] = (0.1 + random.random(arrays[found.slopes].shape)).astype("f4")
        result: Any = program.reference(**arrays, **scalars)
        want: Any = result[0] if len(program.outputs) > 1 else result
        _, known = program.environment(small, scalars)
    except TilecError:
        return None  # the program has conditions of its own on sizes or scalars
    for f in _formulas(signature, found.slopes):
        got = evaluate(f.fixed(known), arrays, found.names)
        if got.shape == want.shape and np.allclose(got, want, rtol=1e-9, atol=1e-9):
            return f, found
    return None


def _small(kernel: Kernel, r: Roles, sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes that tell the formulas apart: more keys than queries, and the program's number of heads per group."""
    q, k, v = (tuple(str(d) for d in kernel.tensors[n].dims) for n in r.names)
    small = {q[0]: 1, q[2]: 19, q[3]: 8, v[3]: 8}
    if k[2] != q[2]:
        small[k[2]] = 26
    if k[1] != q[1]:
        groups = max(1, sizes[q[1]] // max(1, sizes[k[1]]))
        small[k[1]] = 2
        small[q[1]] = 2 * groups
    else:
        small[q[1]] = 2
    return small


def _scalars(params: tuple[Tensor | Argument, ...]) -> dict[str, Number]:
    """Values for the scalars by which a formula can tell them from each other and from numbers in the text."""
    whole, real = itertools.count(5, 2), itertools.count(3)
    out: dict[str, Number] = {}
    for p in params:
        if isinstance(p, Argument) and p.type == "int":
            out[p.name] = next(whole)
        elif isinstance(p, Argument) and p.type == "float":
            out[p.name] = 1 / next(real) + 0.61
    return out


def _formulas(kernel: Kernel, slopes: str | None) -> Iterator[Formula]:
    reals = [p.name for p in kernel.arguments.values() if p.type == "float"]
    wholes: list[Value] = [p.name for p in kernel.arguments.values() if p.type == "int"]
    literals = _literals(kernel)
    scales: list[Value | None] = [None, 1.0, *reals, *(x for x in literals if x < 1)]
    caps: list[Value | None] = [None, *reals, *(x for x in literals if x > 1)]
    windows = [*wholes, *(x for x in literals if x > 1 and x == int(x))]
    masks = [(m, w) for m in MASKS for w in ([None] if m in ("full", "causal") else windows)]
    biases = [(slopes, "signed"), (slopes, "absolute")] if slopes else [(None, "signed")]
    for scale, cap, (mask, window), aligned, (bias, distance) in itertools.product(
        scales, caps, masks, (False, True), biases
    ):
        yield Formula(scale, cap, mask, window, aligned, bias, distance)


def _literals(kernel: Kernel) -> list[float]:
    """The numbers in a program."""
    found = (x for op in walk(kernel.body) if isinstance(op, Map) for x in op.args)
    numbers = {
        abs(float(x)) for x in found if isinstance(x, (int, float)) and not isinstance(x, bool)
    }
    return sorted(x for x in numbers if 0 < x < 1e6)
