"""Exponentials and what is made of them, in the lanes: range reduction to [-1/2, 1/2] and a polynomial.

Errors in f32, in units of the last place: exp, exp2 below 1.2, the weights of degree 5 below 2.4, tanh below 3.3,
sigmoid and silu below 2.5. In f64 about 1; tanh is libm's there. A NaN gives NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilec.backends.cpu.vector import Emit, Kind, Value, kind_of

EXP2_F32: dict[int, tuple[float, ...]] = {
    4: (1.0, 0.6931241750717163, 0.2402409166097641, 0.055906493216753006, 0.009583136066794395),
    5: (
        1.0,
        0.6931470036506653,
        0.24022246897220612,
        0.0555071085691452,
        0.009671292267739773,
        0.0013269537594169378,
    ),
    6: (
        1.0,
        0.6931471824645996,
        0.24022647738456726,
        0.05550359562039375,
        0.00961849931627512,
        0.0013390970416367054,
        0.0001532927853986621,
    ),
}
"""2^x on [-1/2, 1/2] by degree: minimax fits. Relative errors: 2.8e-6, 9.3e-8, 3.0e-9."""

EXP_F32: dict[int, tuple[float, ...]] = {
    4: (1.0, 0.9999666810035706, 0.5000301003456116, 0.16787731647491455, 0.04151486977934837),
    5: (
        1.0,
        1.0,
        0.4999922811985016,
        0.16667114198207855,
        0.041890617460012436,
        0.008312659338116646,
    ),
    6: (
        1.0,
        1.0,
        0.4999999403953552,
        0.1666652113199234,
        0.04166827350854874,
        0.008368685841560364,
        0.0013820136664435267,
    ),
}
"""e^x on [-ln 2 / 2, ln 2 / 2] by degree: minimax fits. Relative errors: 2.8e-6, 1.1e-7, 3.1e-9."""

EXP_F64 = tuple(1 / math.factorial(k) for k in range(14))
"""e^x there, Taylor's. Relative error: 5e-18."""


@dataclass(frozen=True, slots=True)
class _Binary:
    """A binary float format: its integer kind, mantissa bits and exponent bias; exponents past which 2^x is 0 or
    infinite; and ln 2 in two parts, the first with so few bits that its product with any such exponent is exact."""

    bits: Kind
    mantissa: int
    bias: int
    least: float
    most: float
    ln2_high: float
    ln2_low: float

    @property
    def shift(self) -> float:
        """Added to a small float, it leaves the nearest integer in the last bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def shift_bits(self) -> int:
        """The shift as an integer."""
        return ((self.bias + self.mantissa) << self.mantissa) + (1 << (self.mantissa - 1))


_FORMATS = {
    "f32": _Binary("i32", 23, 127, -151.0, 129.0, 0.693145751953125, 1.4286068203094172e-06),
    "f64": _Binary("i64", 52, 1023, -1076.0, 1025.0, 0.6931471803691238, 1.9082149292705877e-10),
}


def exp2(e: Emit, x: Value, degree: int = 6) -> Value:
    """2^x for any x, subnormal results included. `degree`: of the polynomial in f32, 4 to 6."""
    f = _FORMATS[kind_of(x)]
    x = e.lesser(f.most, e.greater(f.least, x))
    t = e.add(x, f.shift)
    return _scale(e, _power2(e, e.sub(x, e.sub(t, f.shift)), degree), t, f)


def exp(e: Emit, x: Value, degree: int = 6) -> Value:
    """e^x for any x, subnormal results included."""
    f = _FORMATS[kind_of(x)]
    x = e.lesser(f.most * math.log(2.0), e.greater(f.least * math.log(2.0), x))
    t = e.fma(x, math.log2(math.e), f.shift)
    return _scale(e, _power(e, _minus_ln2(e, x, e.sub(t, f.shift), f), degree), t, f)


def exp2_weight(e: Emit, x: Value, degree: int = 5) -> Value:
    """2^x for x <= 0 (and up to 127), in fewer instructions: what is below 2^-126 may be flushed to 0.

    Degree 4 has a relative error of 3e-6, enough for results that are rounded to 16 bits. -inf and -1e30 give 0.
    """
    f = _FORMATS[kind_of(x)]
    x = e.greater(-float(f.bias), x)
    t = e.add(x, f.shift + f.bias)
    r = e.sub(x, e.sub(t, f.shift + f.bias))
    if kind_of(x) == "f64":
        return _lifted(e, e.mul(r, math.log(2.0)), EXP_F64, _lifting(e, t, f))
    return _lifted(e, r, EXP2_F32[degree], _lifting(e, t, f))


def exp_weight(e: Emit, x: Value, degree: int = 5) -> Value:
    """e^x for x <= 0 (and up to 88), in fewer instructions: what is below 2^-126 may be flushed to 0."""
    f = _FORMATS[kind_of(x)]
    x = e.greater(-f.bias * math.log(2.0), x)
    t = e.fma(x, math.log2(math.e), f.shift + f.bias)
    r = _minus_ln2(e, x, e.sub(t, f.shift + f.bias), f)
    coefficients = EXP_F64 if kind_of(x) == "f64" else EXP_F32[degree]
    return _lifted(e, r, coefficients, _lifting(e, t, f))


def _power2(e: Emit, x: Value, degree: int) -> Value:
    """2^x on [-1/2, 1/2]."""
    if kind_of(x) == "f64":
        return e.polynomial(e.mul(x, math.log(2.0)), EXP_F64)
    return e.polynomial(x, EXP2_F32[degree])


def _power(e: Emit, x: Value, degree: int) -> Value:
    """e^x on [-ln 2 / 2, ln 2 / 2]."""
    return e.polynomial(x, EXP_F64 if kind_of(x) == "f64" else EXP_F32[degree])


def _minus_ln2(e: Emit, x: Value, n: Value, f: _Binary) -> Value:
    """x - n ln 2."""
    return e.fma(n, -f.ln2_low, e.fma(n, -f.ln2_high, x))


def _lifting(e: Emit, t: Value, f: _Binary) -> Value:
    """2^n, where n + bias is in the last bits of t: they become an exponent, -bias a zero."""
    return e.bits(e.shl(e.bits(t, f.bits), f.mantissa), kind_of(t))


def _lifted(e: Emit, x: Value, coefficients: Sequence[float], power: Value) -> Value:
    """A polynomial that is 1 at 0, times a power of 2: the product goes into the last step, which waits for less."""
    first, *rest = coefficients
    assert first == 1.0
    return e.fma(e.mul(power, x), e.polynomial(x, rest), power)


def _scale(e: Emit, x: Value, t: Value, f: _Binary) -> Value:
    """x · 2^n, where n is in the last bits of t: in two steps, of which only the last can round, so that a subnormal
    or infinite result is right."""
    # Both halves carry the bias of an exponent: no sign is left to care for.
    n = e.sub(e.bits(t, f.bits), f.shift_bits - 2 * f.bias)
    half = e.lshr(n, 1)
    for k in (half, e.sub(n, half)):
        x = e.mul(x, e.bits(e.shl(k, f.mantissa), kind_of(x)))
    return x


def sigmoid(e: Emit, x: Value) -> Value:
    """1 / (1 + e^-x)."""
    z = exp(e, e.neg(e.abs(x)))
    return e.div(e.select(e.compare(">", x, 0.0), 1.0, z), e.add(z, 1.0))


def silu(e: Emit, x: Value) -> Value:
    """x · sigmoid(x); 0 at -inf."""
    least = -3.4028234663852886e38 if kind_of(x) == "f32" else -1.7976931348623157e308
    return e.mul(e.greater(least, x), sigmoid(e, x))


def relu(e: Emit, x: Value) -> Value:
    """max(x, 0)."""
    return e.greater(0.0, x)


EXPM1 = (
    0.6931471824645996,
    0.24022649228572845,
    0.05550357326865196,
    0.009618237614631653,
    0.0013390735257416964,
    0.00015403512225020677,
)
"""(2^x - 1) / x on [-1/2, 1/2]: a minimax fit. Relative error: 1.1e-8."""


def tanh(e: Emit, x: Value) -> Value:
    """The hyperbolic tangent."""
    if kind_of(x) == "f64":
        return e.external("tanh", x)
    # -q / (2 + q) of q = e^(-2|x|) - 1, which is 2^n (2^r - 1) + (2^n - 1): small ones are not differences.
    f = _FORMATS["f32"]
    y = e.greater(-126.0, e.mul(e.abs(x), -2.0 * math.log2(math.e)))
    t = e.add(y, f.shift + f.bias)
    r = e.sub(y, e.sub(t, f.shift + f.bias))
    power = e.bits(e.shl(e.bits(t, f.bits), f.mantissa), "f32")
    q = e.fma(e.mul(r, e.polynomial(r, EXPM1)), power, e.sub(power, 1.0))
    return e.copysign(e.div(q, e.add(q, 2.0)), x)
