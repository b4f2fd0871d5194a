"""Examples with data, what the interpreter gives for them, and how far off another answer is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tilec

EXAMPLES = Path(__file__).parents[3] / "examples"
LIMIT = {"bf16": 5e-3, "f16": 7e-4, "f32": 1e-6}
"""How far off the outputs of fast kernels may be, by the type of their operands."""


def prepared(
    name: str, dtype: str, sizes: Mapping[str, int]
) -> tuple[tilec.Kernel, dict[str, Any]]:
    """An example and data for it."""
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    return kernel, kernel.sample(3, dtype=dtype, **{d: sizes[d] for d in kernel.dims})


def expected(kernel: tilec.Kernel, arrays: Mapping[str, Any]) -> tuple[np.ndarray, ...]:
    """What the interpreter gives."""
    out = kernel.reference(*arrays.values())
    return out if isinstance(out, tuple) else (out,)


def off(got: Mapping[str, np.ndarray], kernel: tilec.Kernel, arrays: Mapping[str, Any]) -> float:
    """The relative error of that output which is furthest from what the interpreter gives."""
    wanted = expected(kernel, arrays)
    return max(error(g, w) for g, w in zip(got.values(), wanted, strict=True))


def error(got: np.ndarray, expected: np.ndarray) -> float:
    """The relative error of an array, infinite where NaN or infinities differ."""
    x, y = (a.astype(np.float64) for a in (got, expected))
    special = ~np.isfinite(y)
    if not np.array_equal(np.nan_to_num(x[special], nan=7.0), np.nan_to_num(y[special], nan=7.0)):
        return np.inf
    if not np.isfinite(x[~special]).all():
        return np.inf
    x, y = x[~special], y[~special]
    return float(np.linalg.norm(x - y) / max(np.linalg.norm(y), 1e-30)) if y.size else 0.0
