"""Scalar expressions as ops."""

from __future__ import annotations

from tilec.builder import Builder
from tilec.ir import Operand
from tilec.scalar import Scalar


def lower_scalar(b: Builder, e: Scalar) -> Operand:
    """A scalar expression as an operand; its operations are appended as scalar ops."""
    if not isinstance(e, tuple):
        return e
    function, *parts = e
    assert isinstance(function, str)
    return b.map(function, *(lower_scalar(b, p) for p in parts))
