"""How far a result may be from the exact one, and whether it is."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tilec.dtypes import NUMPY_NAMES, DType

TOLERANCE: dict[DType, float] = {
    "f64": 1e-11,
    "f32": 2e-5,
    "f16": 4e-3,
    "bf16": 3e-2,
    "f8e4m3": 0.2,
    "f8e5m2": 0.4,
}
"""How far a result may be from the reference, relative to the reference's largest value, by the narrowest type."""


PLAIN = 4
"""How many times as far off as plain arithmetic a result may be, where that is more than the tolerance: with large products
as exponents, say, whose rounding errors are errors of the weights."""


@dataclass(frozen=True, slots=True)
class Error:
    """The largest and the mean difference, and what is allowed. `same`: what is not finite agrees."""

    largest: float
    mean: float
    allowed: float
    same: bool

    @property
    def ok(self) -> bool:
        """Whether the result is right. A NaN where there should be none is not."""
        return self.same and self.largest <= self.allowed


def tolerance(arrays: Iterable[Any]) -> float:
    """The tolerance for arrays (or whatever has a `dtype`) of several types: that of the narrowest."""
    names = {str(getattr(a, "dtype", "")).removeprefix("torch.") for a in arrays}
    return max((t for d, t in TOLERANCE.items() if names & {d, NUMPY_NAMES[d]}), default=0.0)


def error(got: Any, want: Any, tolerance: float, plain: float = 0.0) -> Error:
    """The difference of two arrays of one shape. `plain`: how far off plain arithmetic in the same types is."""
    import numpy

    got = numpy.asarray(got).astype(numpy.float64)
    want = numpy.asarray(want).astype(numpy.float64)
    finite = numpy.isfinite(want)
    same = numpy.array_equal(got[~finite], want[~finite], equal_nan=True)
    if not finite.any():
        return Error(0.0, 0.0, tolerance, same)
    off = numpy.abs(got[finite] - want[finite])
    allowed = tolerance * max(1.0, float(numpy.abs(want[finite]).max()))
    if math.isfinite(plain):
        allowed = max(allowed, PLAIN * plain)
    return Error(float(off.max()), float(off.mean()), allowed, same)
