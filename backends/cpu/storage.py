"""Loads and stores of every storage type, as values of a kind.

A narrow float is widened exactly. Narrowing rounds to the nearest, to the even one of two, and does what `astype` of
NumPy with ml_dtypes does elsewhere: f16, bf16 and f8e5m2 overflow to infinity, f8e4m3 (which has none) to NaN, and
integers wrap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.vector import (
    Emit,
    Kind,
    Value,
    constant,
    is_value,
    kind_of,
    lanes_of,
)
from tilec.dtypes import SIZES, DType

MEMORY: dict[DType, Kind] = {
    "f64": "f64",
    "f32": "f32",
    "f16": "i16",
    "bf16": "i16",
    "f8e4m3": "i8",
    "f8e5m2": "i8",
    "i64": "i64",
    "i32": "i32",
    "i16": "i16",
    "i8": "i8",
    "u8": "i8",
    "bool": "i8",
}
"""What is read from and written to memory for each storage type."""

ARITHMETIC: dict[DType, Kind] = {
    "f64": "f64",
    "f32": "f32",
    "f16": "f32",
    "bf16": "f32",
    "f8e4m3": "f32",
    "f8e5m2": "f32",
    "i64": "i64",
    "i32": "i64",
    "i16": "i64",
    "i8": "i64",
    "u8": "i64",
    "bool": "i1",
}
"""The kind that a storage type is widened to unless another is asked for."""


@dataclass(frozen=True, slots=True)
class Format:
    """A float format narrower than f32: mantissa bits, exponent bias, its largest finite magnitude's bits, the bits of
    what lies beyond, and of NaN."""

    mantissa: int
    bias: int
    largest: int
    beyond: int
    nan: int


FORMATS: dict[DType, Format] = {
    "f16": Format(10, 15, 0x7BFF, 0x7C00, 0x7E00),
    "f8e4m3": Format(3, 7, 0x7E, 0x7F, 0x7F),
    "f8e5m2": Format(2, 15, 0x7B, 0x7C, 0x7E),
}


def load(
    e: Emit,
    dtype: DType,
    base: Value,
    offset: Value = 0,
    lanes: int = 0,
    *,
    to: Kind | None = None,
    mask: Value | None = None,
    align: int | None = None,
) -> Value:
    """`lanes` consecutive elements (0: a scalar) at `offset` elements after `base`, in the kind `to`.

    `mask`: a condition per lane (or a scalar one for a scalar); where it is false the element is 0 and its memory is
    not touched. `align`: bytes.
    """
    memory = MEMORY[dtype]
    if mask is None:
        raw = e.read(memory, base, offset, lanes, align)
    elif lanes:
        raw = e.read_some(memory, base, offset, mask)
    else:
        raw = e.read_if(memory, base, offset, mask)
    return widen(e, raw, dtype, to)


def gather(
    e: Emit,
    dtype: DType,
    base: Value,
    offsets: Value,
    *,
    to: Kind | None = None,
    mask: Value | None = None,
) -> Value:
    """One element per lane at i64 `offsets` (elements) from `base`; 0, untouched, where `mask` is false."""
    return widen(e, e.gather(MEMORY[dtype], base, offsets, mask), dtype, to)


def store(
    e: Emit,
    dtype: DType,
    x: Value,
    base: Value,
    offset: Value = 0,
    *,
    mask: Value | None = None,
    align: int | None = None,
) -> None:
    """Narrows a value and stores it at `offset` elements after `base`: a vector to consecutive elements.

    `mask`: the lanes of a vector to store.
    """
    raw = narrow(e, x, dtype)
    if mask is None:
        e.write(raw, base, offset, align)
    else:
        e.write_some(raw, base, offset, mask)


def scatter(e: Emit, dtype: DType, x: Value, base: Value, offsets: Value) -> None:
    """Narrows a vector and stores it lane by lane, in order, at i64 `offsets` (elements) from `base`."""
    e.scatter(narrow(e, x, dtype), base, offsets)


def rounded(e: Emit, x: Value, dtype: DType) -> Value:
    """The value that `x` has after it was stored as `dtype` and loaded again, in a float `x`'s own kind."""
    if SIZES[dtype] >= 4 and not (dtype == "f32" and kind_of(x) == "f64"):
        return x
    return widen(e, narrow(e, x, dtype), dtype, kind_of(x))


# ---- widening


def widen(e: Emit, raw: Value, dtype: DType, to: Kind | None = None) -> Value:
    """What was read from memory, as a value of kind `to` (`ARITHMETIC[dtype]` unless given)."""
    kind = to or ARITHMETIC[dtype]
    if dtype == "bool":
        return e.convert(e.compare("!=", raw, 0), kind)
    if dtype == "u8":
        raw = e.widen_unsigned(raw, "i32")
    elif dtype == "bf16":
        raw = e.bits(e.shl(e.widen_unsigned(raw, "i32"), 16), "f32")
    elif dtype == "f16" and e.machine.half:
        raw = e.builder.fpext(e.builder.bitcast(raw, _half(raw)), _like(raw, ir.FLOAT))
    elif dtype in FORMATS:
        raw = _widen_float(e, e.widen_unsigned(raw, "i32"), FORMATS[dtype], 8 * SIZES[dtype])
    return e.convert(raw, kind)


def _half(raw: Value) -> Any:
    return _like(raw, ir.HALF)


def _like(x: Value, element: Any) -> Any:
    return ir.vector(element, lanes_of(x)) if lanes_of(x) else element


def _widen_float(e: Emit, u: Value, f: Format, bits: int) -> Value:
    """The bits of a narrow float, in an i32, as an f32.

    Shifted to f32's place they are a float whose exponent has the wrong bias: one multiplication by a power of two
    corrects it, for subnormal numbers too.
    """
    magnitude = e.and_(u, (1 << (bits - 1)) - 1)
    shifted = e.bits(e.shl(magnitude, 23 - f.mantissa), "f32")
    value = e.bits(e.mul(shifted, 2.0 ** (127 - f.bias)), "i32")
    infinite = 0x7F800000 if f.beyond != f.nan else 0x7FC00000
    mantissa = e.shl(e.and_(magnitude, (1 << f.mantissa) - 1), 23 - f.mantissa)
    special = e.or_(mantissa, infinite)
    value = e.select(e.compare(">", magnitude, f.largest), special, value)
    sign = e.shl(e.and_(u, 1 << (bits - 1)), 32 - bits)
    return e.bits(e.or_(value, sign), "f32")


# ---- narrowing


def narrow(e: Emit, x: Value, dtype: DType) -> Value:
    """A value as `dtype` has it in memory: a value of kind `MEMORY[dtype]`."""
    if not is_value(x):
        return narrow(e, constant(ARITHMETIC[dtype], x), dtype)
    memory = MEMORY[dtype]
    if dtype == "bool":
        return e.convert(e.convert(x, "i1"), "i8")
    if memory == dtype or dtype == "u8":
        wide = e.convert(x, "i64") if memory[0] == "i" and kind_of(x)[0] == "f" else x
        return e.convert(wide, memory)
    if dtype == "f16":
        return _narrow_half(e, e.convert(x, "f64" if kind_of(x) == "f64" else "f32"))
    single = e.convert(x, "f32")
    if dtype == "bf16":
        return _narrow_bfloat(e, single)
    return e.convert(_narrow_float(e, single, FORMATS[dtype], 8 * SIZES[dtype]), memory)


def _narrow_half(e: Emit, x: Value) -> Value:
    if kind_of(x) == "f64":
        x = _to_odd(e, x)
    if e.machine.half:
        return e.builder.bitcast(e.builder.fptrunc(x, _half(x)), _like(x, ir.integer(16)))
    return e.convert(_narrow_float(e, x, FORMATS["f16"], 16), "i16")


def _to_odd(e: Emit, x: Value) -> Value:
    """An f64 as an f32, rounded toward zero with the last bit set where anything was lost.

    Rounding the result once more gives what rounding `x` directly would have given.
    """
    near = e.convert(x, "f32")
    back = e.convert(near, "f64")
    bits = e.bits(near, "i32")
    over = e.convert(e.compare(">", e.abs(back), e.abs(x)), "i32")
    inexact = e.convert(e.and_(e.compare("!=", back, x), e.compare("==", x, x)), "i32")
    return e.bits(e.or_(e.sub(bits, over), inexact), "f32")


def _narrow_bfloat(e: Emit, x: Value) -> Value:
    u = e.bits(x, "i32")
    odd = e.and_(e.lshr(u, 16), 1)
    near = e.lshr(e.add(u, e.add(odd, 0x7FFF)), 16)
    nan = e.or_(e.lshr(u, 16), 0x0040)
    return e.convert(e.select(e.is_nan(x), nan, near), "i16")


def _narrow_float(e: Emit, x: Value, f: Format, bits: int) -> Value:
    """An f32 as the bits of a narrow float, in an i32."""
    u = e.bits(x, "i32")
    magnitude = e.and_(u, 0x7FFFFFFF)
    shift = 23 - f.mantissa
    # Normal numbers: the exponent takes the new bias, and a carry out of the mantissa runs into it as it should.
    odd = e.and_(e.lshr(magnitude, shift), 1)
    carried = e.add(magnitude, e.add(odd, (1 << (shift - 1)) - 1))
    normal = e.sub(e.lshr(carried, shift), (127 - f.bias) << f.mantissa)
    # Subnormal ones: adding the float whose last bit is worth one unit leaves their bits at the end of its mantissa.
    unit = 2.0 ** (23 + 1 - f.bias - f.mantissa)
    lifted = e.add(e.bits(magnitude, "f32"), unit)
    subnormal = e.sub(e.bits(lifted, "i32"), e.bits(constant("f32", unit), "i32"))
    tiny = e.compare("<", magnitude, (127 + 1 - f.bias) << 23)
    value = e.select(tiny, subnormal, normal)
    value = e.select(e.compare(">", value, f.largest), f.beyond, value)
    value = e.select(e.is_nan(x), f.nan, value)
    return e.or_(value, e.and_(e.lshr(u, 32 - bits), 1 << (bits - 1)))
