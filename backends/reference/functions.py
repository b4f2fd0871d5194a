"""The pointwise functions and reductions of the IR in NumPy, absent zeros included.

A value is a `Tile`: an array, and where one of its zeros is *absent*, a mark. An absent zero contributes nothing to
what it is multiplied into, NaN and infinity included. Which results are absent follows from the operands: `_MARKS`.

Arrays hold one of three element types here: bool, int64, and the float type that the caller computes in.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from tilec.functions import FUNCTIONS, VANISHING

Array = npt.NDArray[Any]
Mark = Array | None
INF = np.inf
INT_MIN, INT_MAX = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class Tile(NamedTuple):
    """An array, and where it is an absent zero (None: nowhere). The two broadcast against each other."""

    a: Array
    gone: Mark = None


def masked(a: Array, gone: Mark) -> Tile:
    """A tile that is zero where it is absent."""
    return Tile(a) if gone is None else Tile(np.where(gone, np.zeros((), a.dtype), a), gone)


def number(a: Array) -> Array:
    """A boolean as the integer that arithmetic takes it for."""
    return a.astype(np.int64) if a.dtype == np.bool_ else a


def is_float(a: Array) -> bool:
    """Whether an array holds floats."""
    return a.dtype.kind == "f"


# ---- arithmetic: IEEE, except that -inf absorbs all but NaN and that 0 / 0 is 0. Each exception can only change a
# result that IEEE arithmetic makes NaN, so it is looked for only there.


def add(x: Array, y: Array) -> Array:
    """x + y; -inf absorbs everything but NaN."""
    out = np.asarray(x + y)
    if not is_float(out) or not np.isnan(out).any():
        return out
    return np.where(((x == -INF) | (y == -INF)) & ~np.isnan(x) & ~np.isnan(y), -INF, out).astype(
        out.dtype
    )


def sub(x: Array, y: Array) -> Array:
    """x - y; a -inf on the left absorbs everything but NaN."""
    out = np.asarray(x - y)
    if not is_float(out) or not np.isnan(out).any():
        return out
    return np.where((x == -INF) & ~np.isnan(y), -INF, out).astype(out.dtype)


def div(x: Array, y: Array) -> Array:
    """x / y; 0 / 0 is 0."""
    out = np.asarray(np.true_divide(x, y))
    if not np.isnan(out).any():
        return out
    return np.where((x == 0) & (y == 0), np.zeros((), out.dtype), out)


def _whole(f: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    def g(x: Array, y: Array) -> Array:
        out = f(x, np.where(y == 0, y.dtype.type(1), y))
        return np.where(y == 0, out.dtype.type(0), out)

    return g


def shl(x: Array, y: Array) -> Array:
    """x << y; 0 for a shift below 0 or above 63."""
    inside = (y >= 0) & (y < 64)
    return np.where(inside, np.left_shift(x, np.where(inside, y, 0)), 0)


def shr(x: Array, y: Array) -> Array:
    """x >> y; the sign alone for a shift below 0 or above 63."""
    inside = (y >= 0) & (y < 64)
    return np.right_shift(x, np.where(inside, y, 63))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


_erf = np.vectorize(math.erf, otypes=[np.float64])

_ONE: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "isfinite": np.isfinite,
    "not": np.logical_not,
    "invert": np.invert,
}

_TWO: dict[str, Callable[[Array, Array], Array]] = {
    "add": add,
    "sub": sub,
    "mul": np.multiply,
    "div": div,
    "floordiv": _whole(np.floor_divide),
    "mod": _whole(np.mod),
    "min": np.minimum,
    "max": np.maximum,
    "pow": np.power,
    "ipow": np.power,
    "atan2": np.arctan2,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": shl,
    "shr": shr,
}


# ---- random numbers


def philox(
    key: tuple[Array, Array], counter: tuple[Array, Array, Array, Array]
) -> tuple[Array, ...]:
    """Philox 4x32-10 (Salmon et al., 2011): uint64 arrays below 2**32 in, four words out."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    (k0, k1), (c0, c1, c2, c3) = key, counter
    for step in range(10):
        if step:
            k0, k1 = (k0 + np.uint64(0x9E3779B9)) & low, (k1 + np.uint64(0xBB67AE85)) & low
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (p1 >> half) ^ c1 ^ k0, p1 & low, (p0 >> half) ^ c3 ^ k1, p0 & low
    return c0, c1, c2, c3


def uniform(seed: Array, *words: Array) -> Array:
    """A float in [0, 1) that is a function of the seed and up to four integers alone."""
    low, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    key = np.asarray(seed).astype(np.int64).view(np.uint64)
    zero = np.zeros((), np.uint64)
    counter = [np.asarray(w).astype(np.int64).view(np.uint64) & low for w in words] + [zero] * (
        4 - len(words)
    )
    out = philox((key & low, key >> half), cast(Any, tuple(counter)))[0]
    return (out >> np.uint64(8)).astype(np.float64) * 2.0**-24


# ---- pointwise functions


def either(*marks: Mark) -> Mark:
    """Absent where one of the operands is."""
    found = [m for m in marks if m is not None]
    return functools.reduce(np.logical_or, found) if found else None


def both(*marks: Mark) -> Mark:
    """Absent where all of the operands are."""
    found = [m for m in marks if m is not None]
    return functools.reduce(np.logical_and, found) if len(found) == len(marks) else None


def first(*marks: Mark) -> Mark:
    """Absent where the first operand is."""
    return marks[0]


_MARKS: dict[str, Callable[..., Mark]] = {
    **dict.fromkeys(("add", "sub"), both),
    "mul": either,
    **dict.fromkeys(("div", "neg", "abs", "sqrt", "tanh", "sin", "erf"), first),
    **dict.fromkeys(("floor", "ceil", "round", "relu", "silu"), first),
}


def pointwise(
    fn: str, args: list[Tile], real: type[np.floating[Any]], running: bool = False
) -> Tile:
    """A pointwise function of broadcast operands. `real` is the float type of a float result; `running`: it carries on a
    sum, in which -inf absorbs nothing."""
    if fn == "select":
        return _select(*args, real=real)
    arrays = [t.a for t in args]
    result = FUNCTIONS[fn].result
    if result != "bits" and fn not in ("and", "or", "not"):
        arrays = [number(a) for a in arrays]
    if result == "float" or (result == "number" and any(is_float(a) for a in arrays)):
        arrays = arrays if fn == "uniform" else [as_type(a, real) for a in arrays]
    if running:
        out = np.add(*arrays)
    elif fn == "uniform":
        out = uniform(*arrays)
    else:
        out = _ONE[fn](*arrays) if len(arrays) == 1 else _TWO[fn](*arrays)
    out = np.asarray(out)
    if result == "float":
        out = as_type(out, real)
    if fn not in _MARKS and fn not in VANISHING:
        return Tile(out)
    gone = _MARKS[fn](*(t.gone for t in args)) if fn in _MARKS else None
    if fn in VANISHING:
        empty = arrays[0] == -INF
        gone = either(gone, empty) if empty.any() else gone
    return masked(out, gone)


def _select(condition: Tile, x: Tile, y: Tile, *, real: type[np.floating[Any]]) -> Tile:
    c, (a, b) = condition.a != 0, (x.a, y.a)
    if not (a.dtype == b.dtype == np.bool_):
        a, b = number(a), number(b)
    if is_float(a) or is_float(b):
        a, b = as_type(a, real), as_type(b, real)
    out = np.where(c, a, b)
    if x.gone is None and y.gone is None:
        return Tile(out)
    gone = np.where(c, False if x.gone is None else x.gone, False if y.gone is None else y.gone)
    return masked(out, gone) if gone.any() else Tile(out)


def as_type(a: Array, dtype: Any) -> Array:
    """The array in another element type; itself if it has that type already."""
    return a if a.dtype == dtype else a.astype(dtype)


# ---- reductions: over dimensions `k`, which are kept with length 1


def reduce(fn: str, x: Array, k: tuple[int, ...], real: type[np.floating[Any]]) -> Array:
    """A reduction of one operand, softmax excepted."""
    if fn in ("any", "all"):
        return getattr(x != 0, fn)(axis=k, keepdims=True)
    x = number(x)
    if fn == "sum":
        return x.sum(axis=k, keepdims=True)
    if fn == "mean":
        count = real(math.prod(x.shape[t] for t in k))
        return as_type(x, real).sum(axis=k, keepdims=True) / count
    if fn == "logsumexp":
        return logsumexp(as_type(x, real), k)
    if fn in ("max", "maxnum"):
        worst, f = (-INF if is_float(x) else INT_MIN), np.fmax if fn == "maxnum" else np.maximum
    else:
        worst, f = (INF if is_float(x) else INT_MAX), np.minimum
    return f.reduce(x, axis=k, keepdims=True, initial=x.dtype.type(worst))


def logsumexp(x: Array, k: tuple[int, ...]) -> Array:
    """log Σ exp(x); -inf where all operands are."""
    top: Array = x.max(axis=k, keepdims=True, initial=-INF)
    safe: Array = np.where(np.isfinite(top), top, x.dtype.type(0))
    total: Array = np.exp(x - safe).sum(axis=k, keepdims=True)
    return np.where(top == -INF, x.dtype.type(-INF), safe + np.log(total))


def softmax(x: Array, more: list[Array], k: tuple[int, ...]) -> Tile:
    """exp(x) / Σ exp, absent where x is -inf. `more`: further logits, which carry weight but give no term."""
    gone = x == -INF
    if more:
        lse = functools.reduce(np.logaddexp, more, logsumexp(x, k))
        out = np.exp(x - np.where(lse == -INF, x.dtype.type(0), lse))
        return Tile(np.where(gone, x.dtype.type(0), out), gone & ~np.isnan(lse))
    top: Array = x.max(axis=k, keepdims=True, initial=-INF)
    safe: Array = np.where(top == -INF, x.dtype.type(0), top)
    p: Array = np.where(gone, x.dtype.type(0), np.exp(x - safe))
    total: Array = p.sum(axis=k, keepdims=True)
    return masked(p / np.where(total == 0, x.dtype.type(1), total), gone)
