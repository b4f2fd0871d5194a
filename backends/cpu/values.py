"""LLVM's types and constants, as short text.

A *kind* is the element type of a value in arithmetic: `f32`, `f64`, `i32`, `i64` or `i1`; `i8` and `i16` occur in
memory.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, TypeGuard

from tilec.backends.cpu import llvmir as ir

Kind = Literal["i1", "i8", "i16", "i32", "i64", "f32", "f64"]
Value: TypeAlias = Any
"""An LLVM value, or a Python number where a method takes operands."""

KINDS: dict[Kind, ir.Type] = {
    "i1": ir.integer(1),
    "i8": ir.integer(8),
    "i16": ir.integer(16),
    "i32": ir.integer(32),
    "i64": ir.integer(64),
    "f32": ir.FLOAT,
    "f64": ir.DOUBLE,
}
BYTES: dict[str, int] = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "f32": 4, "f64": 8}
POINTER, VOID = ir.POINTER, ir.VOID
_NAMES: dict[ir.Type, Kind] = {t: k for k, t in KINDS.items()}


def is_value(x: object) -> TypeGuard[ir.Value]:
    """Whether an operand is an LLVM value and not a Python number."""
    return isinstance(x, ir.Value)


def lanes_of(x: Value) -> int:
    """Lanes of a vector, 0 for a scalar."""
    return x.type.count


def kind_of(x: Value) -> Kind:
    """The kind of a value."""
    return _NAMES[x.type.element]


def type_of(kind: Kind, lanes: int = 0) -> Any:
    """The LLVM type of a scalar (`lanes` 0) or a vector."""
    return ir.vector(KINDS[kind], lanes) if lanes else KINDS[kind]


def constant(kind: Kind, x: float, lanes: int = 0) -> Value:
    """A literal, in all lanes alike. A float is rounded to the kind, an integer is wrapped."""
    return _constant(kind, x, lanes, math.copysign(1.0, x) if x == 0.0 else 0.0)


@functools.lru_cache(4096)
def _constant(kind: Kind, x: float, lanes: int, sign: float) -> Value:
    """The same; `sign` tells the zeros apart."""
    text = _literal(kind, x)
    if not lanes:
        return ir.Value(KINDS[kind], text)
    return ir.Value(ir.vector(KINDS[kind], lanes), f"splat ({KINDS[kind]} {text})")


def _literal(kind: Kind, x: float) -> str:
    if kind[0] == "f":
        x = ctypes.c_float(x).value if kind == "f32" else float(x)
        return "0x" + struct.pack(">d", x).hex().upper()
    bits = int(kind[1:])
    n = int(x) & ((1 << bits) - 1)
    return str(n - (1 << bits) if bits > 1 and n >> (bits - 1) else n)


def constants(kind: Kind, xs: Sequence[float]) -> Value:
    """A literal vector."""
    parts = ", ".join(f"{KINDS[kind]} {_literal(kind, x)}" for x in xs)
    return ir.Value(ir.vector(KINDS[kind], len(xs)), f"<{parts}>")


@functools.cache
def places(order: tuple[int, ...]) -> Value:
    """The lanes that a shuffle takes, by number."""
    return constants("i32", order)


def undefined(t: Any) -> Value:
    """A value of no matter what."""
    return ir.Value(t, "poison")


def mangle(t: Any) -> str:
    """The suffix of an intrinsic's name for a type."""
    if t.count:
        return f"v{t.count}{_NAMES[t.element]}"
    return _NAMES[t] if t in _NAMES else str(t)
