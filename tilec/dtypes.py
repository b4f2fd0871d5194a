"""Element types: their names, sizes and kinds.

A *storage* type is what a tensor in memory holds. Arithmetic knows four types only: `bool`, `i64` and one of
`f32` and `f64` (`f64` for the whole kernel as soon as one tensor parameter is `f64`). A value of a narrower
storage type is widened, exactly, wherever it is used in arithmetic.
"""

from __future__ import annotations

from typing import Literal

DType = Literal[
    "f64", "f32", "f16", "bf16", "f8e4m3", "f8e5m2", "i64", "i32", "i16", "i8", "u8", "bool"
]
Kind = Literal["float", "int", "bool"]

SIZES: dict[DType, int] = {
    "f64": 8,
    "f32": 4,
    "f16": 2,
    "bf16": 2,
    "f8e4m3": 1,
    "f8e5m2": 1,
    "i64": 8,
    "i32": 4,
    "i16": 2,
    "i8": 1,
    "u8": 1,
    "bool": 1,
}
"""Bytes per element."""

NUMPY_NAMES: dict[DType, str] = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "i64": "int64",
    "i32": "int32",
    "i16": "int16",
    "i8": "int8",
    "u8": "uint8",
    "bool": "bool",
}
"""The name NumPy (with ml_dtypes registered) gives each element type."""


def kind(dtype: DType) -> Kind:
    """Whether an element type is a float, an integer or a boolean."""
    if dtype == "bool":
        return "bool"
    return "int" if dtype[0] in "iu" else "float"
