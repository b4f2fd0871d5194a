"""The language's functions as emitters: `exp(e, x)` emits the code for a scalar or a vector and gives the result.

Exponentials are in `exponential`, integers and random numbers in `integers`; the names of both are here too. The rest
runs in f64 lanes for f32 arguments, which costs twice the work and leaves one rounding: errors in units of the last
place are 0.501 for log, log2, pow, erf and atan2; sin and cos, which end in f32, stay below 1.5. No vector math library
is called. Polynomials are minimax fits. For f64 arguments these functions are libm's, lane by lane. A NaN gives NaN.
"""

from __future__ import annotations

import math

from tilec.backends.cpu.exponential import (
    exp,
    exp2,
    exp2_weight,
    exp_weight,
    relu,
    sigmoid,
    silu,
    tanh,
)
from tilec.backends.cpu.integers import floordiv, ipow, mod, shl, shr, uniform
from tilec.backends.cpu.vector import Emit, Value, kind_of

__all__ = [
    "atan2",
    "cos",
    "erf",
    "exp",
    "exp2",
    "exp2_weight",
    "exp_weight",
    "floordiv",
    "ipow",
    "isfinite",
    "log",
    "log2",
    "mod",
    "pow",
    "relu",
    "rsqrt",
    "shl",
    "shr",
    "sigmoid",
    "silu",
    "sin",
    "tanh",
    "uniform",
]

# ---- logarithms and powers, in f64 lanes

LOG2_F64 = (
    2.885390081777927,
    0.9617966939248188,
    0.5770780170962861,
    0.41219841966351706,
    0.32061542277563015,
    0.2614691460328274,
    0.24267230333958656,
)
"""log2((1 + s) / (1 - s)) / s in s² for s up to 0.1717. Relative error: 4e-16."""

EXP2_F64 = (
    1.0,
    0.6931471805598851,
    0.24022650695722744,
    0.05550410866841493,
    0.009618129181181857,
    0.0013333557625570328,
    0.00015403440871678605,
    1.5252989986478532e-05,
    1.3258338174356073e-06,
    1.0148341596325633e-07,
)
"""2^x on [-1/2, 1/2]. Relative error: 1.5e-14."""


def _wide_log2(e: Emit, x: Value) -> Value:
    """log2 of f64 lanes that are positive, finite and not subnormal."""
    root_half, one, mantissa = 0x3FE6A09E667F3BCD, 0x3FF0000000000000, 0x000FFFFFFFFFFFFF
    # m in [sqrt(1/2), sqrt(2)): its exponent field is 0 once the distance from sqrt(1/2) to 1 is added.
    u = e.add(e.bits(x, "i64"), one - root_half)
    m = e.bits(e.add(e.and_(u, mantissa), root_half), "f64")
    # The exponent as the last bits of 2^52 is that integer as a float.
    k = e.sub(e.bits(e.or_(e.lshr(u, 52), 0x4330000000000000), "f64"), 2.0**52 + 1023.0)
    s = e.div(e.sub(m, 1.0), e.add(m, 1.0))
    return e.fma(e.polynomial(e.mul(s, s), LOG2_F64), s, k)


def _wide_exp2(e: Emit, x: Value) -> Value:
    """2^x of f64 lanes, to f32's precision and range: 2^±300 beyond."""
    x = e.lesser(300.0, e.greater(-300.0, x))
    shift = 1.5 * 2.0**52 + 1023.0
    t = e.add(x, shift)
    p = e.polynomial(e.sub(x, e.sub(t, shift)), EXP2_F64)
    return e.mul(p, e.bits(e.shl(e.bits(t, "i64"), 52), "f64"))


def _log(e: Emit, x: Value, scale: float) -> Value:
    wide = e.mul(_wide_log2(e, e.convert(x, "f64")), scale)
    out = e.select(e.compare("==", x, math.inf), math.inf, e.convert(wide, "f32"))
    other = e.select(e.compare("==", x, 0.0), -math.inf, e.like(math.nan, x))
    return e.select(e.compare(">", x, 0.0), out, other)


def _log2(e: Emit, x: Value) -> Value:
    return _log(e, x, 1.0)


def _ln(e: Emit, x: Value) -> Value:
    return _log(e, x, math.log(2.0))


def log2(e: Emit, x: Value) -> Value:
    """The logarithm to base 2; -inf at 0, NaN below."""
    if kind_of(x) == "f64":
        return e.external("log2", x)
    return e.outlined("log2", _log2, x)


def log(e: Emit, x: Value) -> Value:
    """The natural logarithm; -inf at 0, NaN below."""
    if kind_of(x) == "f64":
        return e.external("log", x)
    return e.outlined("log", _ln, x)


def pow(e: Emit, x: Value, y: Value) -> Value:
    """x to the power y with the special cases of C's `pow`."""
    x, y = e.match(x, y)
    if kind_of(x) == "f64":
        return e.external("pow", x, y)
    return e.outlined("pow", _pow, x, y)


def _pow(e: Emit, x: Value, y: Value) -> Value:
    magnitude = e.abs(x)
    logarithm = _wide_log2(e, e.convert(magnitude, "f64"))
    logarithm = e.select(e.compare("==", magnitude, 0.0), -math.inf, logarithm)
    finite = e.compare("!=", magnitude, math.inf)
    logarithm = e.select(finite, logarithm, math.inf)
    logarithm = e.select(e.is_nan(x), math.nan, logarithm)
    out = e.convert(_wide_exp2(e, e.mul(logarithm, e.convert(y, "f64"))), "f32")
    # From 2^24 on every f32 is even. A NaN is not equal to its rounding.
    whole = e.compare("==", e.round(y), y)
    last = e.and_(e.convert(e.lesser(e.abs(y), 2.0**24), "i32"), 1)
    odd = e.and_(whole, e.compare("!=", last, 0))
    negative = e.compare("<", e.bits(x, "i32"), 0)
    out = e.select(e.and_(odd, negative), e.neg(out), out)
    below = e.and_(e.compare("<", x, 0.0), finite)
    out = e.select(e.and_(below, e.not_(whole)), math.nan, out)
    endless = e.compare("==", e.abs(y), math.inf)
    one = e.or_(e.compare("==", x, 1.0), e.and_(e.compare("==", x, -1.0), endless))
    return e.select(e.or_(one, e.compare("==", y, 0.0)), 1.0, out)


# ---- erf, sin, cos, atan2

ERF = (
    1.1283791670945862,
    -0.37612638888508504,
    0.11283791285443931,
    -0.026866131413897792,
    0.00522377642254053,
    -0.0008542489249949159,
    0.00011954821938663096,
    -1.3898718630195317e-05,
    1.0563020621939812e-06,
)
"""erf x / x in x² for x up to 1. Relative error: 8e-13."""

LOG2_ERFC = (
    0.00027128013134965104,
    -1.629637170747356,
    -0.9135432372455825,
    -0.15641490554840493,
    0.03636780405875639,
    -0.006065892490436764,
    0.0006367122538181169,
    -3.1287386097034187e-05,
)
"""log2(1 - erf x) for x from 1 to 4. Error of erf: 2e-11."""


def erf(e: Emit, x: Value) -> Value:
    """The error function."""
    return e.external("erf", x) if kind_of(x) == "f64" else e.outlined("erf", _erf, x)


def _erf(e: Emit, x: Value) -> Value:
    wide = e.convert(x, "f64")
    magnitude = e.lesser(4.0, e.abs(wide))
    small = e.mul(e.polynomial(e.mul(wide, wide), ERF), wide)
    tail = _wide_exp2(e, e.polynomial(magnitude, LOG2_ERFC))
    large = e.copysign(e.sub(1.0, tail), wide)
    return e.convert(e.select(e.compare("<", magnitude, 1.0), small, large), "f32")


SIN = (
    1.0,
    -0.1666666716337204,
    0.008333379402756691,
    -0.00019853068806696683,
    2.832629434124101e-06,
)
COS = (1.0, -0.5, 0.04166664555668831, -0.0013887309469282627, 2.4432336431345902e-05)
"""sin x / x and cos x in x² for x up to pi / 4. Relative errors: 1.6e-10, 1.2e-10."""

PI_2_HIGH, PI_2_LOW = 1.5707963109016418, 1.5893254773528196e-08
"""pi / 2 in two parts; the first has 25 bits, so that an integer below 2^28 times it is exact in f64."""

SIN_LIMIT = 2.0**28
"""Up to here the reduction is right; beyond it libm is called."""


def sin(e: Emit, x: Value) -> Value:
    """The sine."""
    return _circular(e, "sin", x, 0)


def cos(e: Emit, x: Value) -> Value:
    """The cosine."""
    return _circular(e, "cos", x, 1)


def _circular(e: Emit, name: str, x: Value, quarters: int) -> Value:
    if kind_of(x) == "f64":
        return e.external(name, x)

    def body(e: Emit, x: Value) -> Value:
        large = e.not_(e.compare("<", e.abs(x), SIN_LIMIT))
        (out,) = e.branch(
            e.any(large),
            lambda: [e.external(f"{name}f", x)],
            lambda: [_reduced_sine(e, x, quarters)],
        )
        return out

    return e.outlined(name, body, x)


def _reduced_sine(e: Emit, x: Value, quarters: int) -> Value:
    """sin(x + quarters · pi / 2) for |x| below SIN_LIMIT."""
    wide, shift = e.convert(x, "f64"), 1.5 * 2.0**52
    t = e.fma(wide, 2.0 / math.pi, shift)
    n = e.sub(t, shift)
    r = e.convert(e.fma(n, -PI_2_LOW, e.fma(n, -PI_2_HIGH, wide)), "f32")
    quadrant = e.add(e.convert(e.bits(t, "i64"), "i32"), quarters)
    square = e.mul(r, r)
    sine = e.fma(e.mul(e.polynomial(square, SIN[1:]), square), r, r)
    cosine = e.polynomial(square, COS)
    out = e.select(e.compare("!=", e.and_(quadrant, 1), 0), cosine, sine)
    sign = e.shl(e.and_(quadrant, 2), 30)
    return e.bits(e.xor(e.bits(out, "i32"), sign), "f32")


ATAN = (
    0.9999999999412755,
    -0.3333333157156182,
    0.1999991206081611,
    -0.14283980876613775,
    0.11093242071588329,
    -0.08980242512976574,
    0.07245727443749592,
    -0.05427926641629065,
    0.034209787551114715,
    -0.01611180682491436,
    0.0048509841729738185,
    -0.0006848012228849523,
)
"""atan x / x in x² for x up to 1. Relative error: 6e-11."""


def atan2(e: Emit, y: Value, x: Value) -> Value:
    """The angle of the point (x, y), with the special cases of C's `atan2`."""
    y, x = e.match(y, x)
    if kind_of(x) == "f64":
        return e.external("atan2", y, x)
    return e.outlined("atan2", _atan2, y, x)


def _atan2(e: Emit, y: Value, x: Value) -> Value:
    wide_y, wide_x = e.convert(y, "f64"), e.convert(x, "f64")
    up, along = e.abs(wide_y), e.abs(wide_x)
    short, long = e.min(up, along), e.max(up, along)
    q = e.select(e.compare("==", long, 0.0), 0.0, e.div(short, long))
    q = e.select(e.compare("==", short, math.inf), 1.0, q)
    angle = e.mul(e.polynomial(e.mul(q, q), ATAN), q)
    angle = e.select(e.compare(">", up, along), e.sub(math.pi / 2, angle), angle)
    left = e.compare("<", e.bits(wide_x, "i64"), 0)
    angle = e.select(left, e.sub(math.pi, angle), angle)
    return e.convert(e.copysign(angle, wide_y), "f32")


def rsqrt(e: Emit, x: Value) -> Value:
    """1 / sqrt(x), by an exact root and an exact division."""
    return e.div(1.0, e.sqrt(x))


def isfinite(e: Emit, x: Value) -> Value:
    """Neither infinite nor NaN."""
    return e.compare("<", e.abs(x), math.inf)
