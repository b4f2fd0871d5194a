"""Whole division and shifts of integers, whole division of floats, and random numbers."""

from __future__ import annotations

import math

from tilec.backends.cpu.vector import Emit, Kind, Value, constant, is_value, kind_of, lanes_of

# ---- division, powers and shifts


def floordiv(e: Emit, a: Value, b: Value) -> Value:
    """a // b rounded toward minus infinity, 0 where b is 0; of integers and of floats."""
    a, b, known = _division(e, a, b)
    if known == 0:
        return e.like(0, a)
    if kind_of(a)[0] == "f":
        return _floor_divide(e, a, b)[0]
    if known is not None and known > 0 and known & (known - 1) == 0:
        return e.ashr(a, known.bit_length() - 1)
    quotient, remainder = _divide(e, a, b, known)
    return e.sub(quotient, e.convert(_off_by_one(e, remainder, b), kind_of(a)))


def mod(e: Emit, a: Value, b: Value) -> Value:
    """a - b · (a // b), which has the sign of b, 0 where b is 0; of integers and of floats."""
    a, b, known = _division(e, a, b)
    if known == 0:
        return e.like(0, a)
    if kind_of(a)[0] == "f":
        return _floor_divide(e, a, b)[1]
    if known is not None and known > 0 and known & (known - 1) == 0:
        return e.and_(a, known - 1)
    _, remainder = _divide(e, a, b, known)
    out = e.add(remainder, e.select(_off_by_one(e, remainder, b), b, e.like(0, b)))
    return out if known is not None else e.select(e.compare("==", b, 0), 0, out)


def _division(e: Emit, a: Value, b: Value) -> tuple[Value, Value, int | None]:
    """The operands, and the divisor of integers where it is known here."""
    known = b if isinstance(b, int) and is_value(a) and kind_of(a)[0] == "i" else None
    a, b = e.match(a, b)
    return a, b, known


def _divide(e: Emit, a: Value, b: Value, known: int | None) -> tuple[Value, Value]:
    """Quotient toward zero and remainder; a quotient of 0 and some remainder where b is 0."""
    if known not in (None, -1):
        quotient = e.builder.sdiv(a, b)
        return quotient, e.sub(a, e.mul(quotient, b))
    # The processor traps at 0 and at the smallest integer over -1: neither reaches it.
    zero, minus = e.compare("==", b, 0), e.compare("==", b, -1)
    quotient = e.builder.sdiv(a, e.select(e.or_(zero, minus), 1, b))
    quotient = e.select(minus, e.neg(a), quotient)
    quotient = e.select(zero, 0, quotient)
    remainder = e.select(zero, 0, e.sub(a, e.mul(quotient, b)))
    return quotient, remainder


def _off_by_one(e: Emit, remainder: Value, b: Value) -> Value:
    """Whether rounding toward zero was not rounding down: the remainder has the other sign than b."""
    differ = e.compare("<", e.xor(remainder, b), 0)
    return e.and_(e.compare("!=", remainder, 0), differ)


def _floor_divide(e: Emit, a: Value, b: Value) -> tuple[Value, Value]:
    """Floored quotient and modulus of floats; both 0 where b is 0.

    The remainder of `fmod` is exact, so the quotient that it leaves is an integer up to rounding; that by an infinity
    of the other sign rounds down to -1.
    """
    remainder = e.external("fmodf" if kind_of(a) == "f32" else "fmod", a, b)
    unlike = e.compare("!=", e.compare("<", b, 0.0), e.compare("<", remainder, 0.0))
    shifted = e.and_(e.compare("!=", remainder, 0.0), unlike)
    modulus = e.select(shifted, e.add(remainder, b), remainder)
    quotient = e.round(e.div(e.sub(a, modulus), b))
    quotient = e.select(e.compare("==", e.abs(modulus), math.inf), -1.0, quotient)
    zero = e.compare("==", b, 0.0)
    return e.select(zero, 0.0, quotient), e.select(zero, 0.0, modulus)


def shl(e: Emit, a: Value, b: Value) -> Value:
    """a << b; 0 unless 0 <= b < 64."""
    a, b = e.match(a, b)
    fits = e.below(b, 64)
    return e.select(fits, e.shl(a, e.select(fits, b, 0)), 0)


def shr(e: Emit, a: Value, b: Value) -> Value:
    """a >> b; the sign alone for b < 0 or b > 63."""
    a, b = e.match(a, b)
    return e.ashr(a, e.select(e.below(b, 64), b, 63))


def ipow(e: Emit, x: Value, n: int) -> Value:
    """x to a known power n >= 0, by squaring; integers wrap."""
    out: Value | None = None
    while n:
        if n & 1:
            out = x if out is None else e.mul(out, x)
        n >>= 1
        x = e.mul(x, x) if n else x
    return e.like(1, x) if out is None else out


# ---- random numbers

PHILOX_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)
LOW = 0xFFFFFFFF


def uniform(e: Emit, seed: Value, *words: Value, kind: Kind = "f32") -> Value:
    """A float in [0, 1) from i64 integers: the top 24 bits of the first word of Philox 4x32-10.

    The key is the low and the high half of `seed`, the counter the low halves of up to four `words`. A value per lane
    where any of them is a vector.
    """
    values = [x if is_value(x) else constant("i64", x) for x in (seed, *words)]
    lanes = max(lanes_of(x) for x in values)
    if lanes and not any(lanes_of(x) for x in values[1:]):
        values[1:] = [e.splat(x, lanes) for x in values[1:]] or [constant("i64", 0, lanes)]
    word = e.like(constant("i64", 0), next((x for x in values if lanes_of(x)), values[0]))
    out = e.outlined("philox", _philox, *values, result=word.type)
    return e.mul(e.convert(e.convert(e.lshr(out, 8), "i32"), kind), 2.0**-24)


def _philox(e: Emit, seed: Value, *words: Value) -> Value:
    """The first word of Philox 4x32-10, every word in the low half of an i64: so products need no carries."""
    k0, k1 = e.and_(seed, LOW), e.lshr(seed, 32)
    given = [e.and_(x, LOW) for x in words]
    c0, c1, c2, c3 = given + [constant("i64", 0)] * (4 - len(given))
    for step in range(10):
        if step:
            k0 = e.and_(e.add(k0, PHILOX_WEYL[0]), LOW)
            k1 = e.and_(e.add(k1, PHILOX_WEYL[1]), LOW)
        p0, p1 = e.mul(c0, PHILOX_MULTIPLIERS[0]), e.mul(c2, PHILOX_MULTIPLIERS[1])
        c0, c1 = e.xor(e.xor(e.lshr(p1, 32), c1), k0), e.and_(p1, LOW)
        c2, c3 = e.xor(e.xor(e.lshr(p0, 32), c3), k1), e.and_(p0, LOW)
    return c0
