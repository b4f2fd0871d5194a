"""Sums of products in NumPy: matrix products, with the care that NaN, infinities and absent zeros need."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilec.backends.reference.functions import (
    Array,
    Tile,
    as_type,
    either,
    is_float,
    masked,
    number,
)


def contract(x: Tile, y: Tile, over: tuple[int, ...], real: type[np.floating[Any]]) -> Array:
    """Σ x · y over dimensions of two arrays of equal rank that broadcast; these dimensions are kept with length 1.

    Both arrays have their full length along `over`.
    """
    x, y = Tile(number(x.a), x.gone), Tile(number(y.a), y.gone)
    if is_float(x.a) or is_float(y.a):
        x, y = Tile(as_type(x.a, real), x.gone), Tile(as_type(y.a, real), y.gone)
    if not is_float(x.a) or (np.isfinite(x.a).all() and np.isfinite(y.a).all()):
        return _matmul(x.a, y.a, over)
    if len(over) != 1:
        return _explicit(x, y, over)
    return _in_two_parts(x, y, over[0])


def in_order(x: Tile, y: Tile, over: tuple[int, ...], real: type[np.floating[Any]]) -> Array:
    """The same, one term after the other, as a thread with a single sum computes it: rounding errors grow with the number of
    terms, where those of a matrix product grow with its root."""
    a, b = (as_type(number(t.a), real) for t in (x, y))
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return contract(x, y, over, real)
    a, b = (np.moveaxis(t, over, range(len(over))) for t in (a, b))
    places = [n for n in range(x.a.ndim) if n not in over]
    sums = np.zeros(np.broadcast_shapes(a.shape[len(over) :], b.shape[len(over) :]), real)
    for term in np.ndindex(a.shape[: len(over)]):
        sums += a[term] * b[term]
    shape = [1] * x.a.ndim
    for n, length in zip(places, sums.shape, strict=True):
        shape[n] = length
    return sums.reshape(shape)


def _explicit(x: Tile, y: Tile, over: tuple[int, ...]) -> Array:
    gone = either(x.gone, y.gone)
    return masked(np.multiply(x.a, y.a), gone).a.sum(axis=over, keepdims=True)


def _in_two_parts(x: Tile, y: Tile, k: int) -> Array:
    """A matrix product where all is finite, term by term elsewhere: an absent zero hides the NaN that it meets."""
    others = tuple(n for n in range(x.a.ndim) if n != k)
    clean = np.isfinite(x.a).all(axis=others) & np.isfinite(y.a).all(axis=others)
    dirty = np.flatnonzero(~clean)
    fine = np.flatnonzero(clean)
    part = _explicit(_take(x, dirty, k), _take(y, dirty, k), (k,))
    return part + _matmul(np.take(x.a, fine, axis=k), np.take(y.a, fine, axis=k), (k,))


def _take(t: Tile, at: Array, k: int) -> Tile:
    if t.gone is None:
        return Tile(np.take(t.a, at, axis=k))
    gone = np.broadcast_to(t.gone, t.a.shape)
    return Tile(np.take(t.a, at, axis=k), np.take(gone, at, axis=k))


def _matmul(x: Array, y: Array, over: tuple[int, ...]) -> Array:
    rank = x.ndim
    kept = [n for n in range(rank) if n not in over]
    left = [n for n in kept if y.shape[n] == 1]
    right = [n for n in kept if y.shape[n] != 1 and x.shape[n] == 1]
    batch = [n for n in kept if n not in left and n not in right]

    def size(a: Array, dims: list[int] | tuple[int, ...]) -> int:
        return math.prod(a.shape[n] for n in dims)

    a = x.transpose(*batch, *left, *over, *right).reshape(
        size(x, batch), size(x, left), size(x, over)
    )
    b = y.transpose(*batch, *over, *right, *left).reshape(
        size(y, batch), size(y, over), size(y, right)
    )
    order = [*batch, *left, *right, *over]
    shape = [x.shape[n] for n in (*batch, *left)] + [y.shape[n] for n in right] + [1] * len(over)
    return np.matmul(a, b).reshape(shape).transpose(np.argsort(order))
