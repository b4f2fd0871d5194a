"""Arithmetic on LLVM values: what `Emit` does without memory, calls or control flow."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Sequence
from typing import Any

from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.jit import Machine
from tilec.backends.cpu.values import (
    BYTES,
    Kind,
    Value,
    constant,
    constants,
    is_value,
    kind_of,
    lanes_of,
    mangle,
    places,
    type_of,
    undefined,
)
from tilec.ir import Op

Order = ir.Order
NOTHING = contextlib.nullcontext()
KNOWN: dict[Order, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Arithmetic:
    """Operators on scalars and vectors, in one function; see `backends.cpu.vector`."""

    def __init__(self, function: Any, machine: Machine, lanes: int | None = None) -> None:
        self.function = function
        self.module = function.module
        self.machine = machine
        self.lanes = lanes or machine.lanes
        block = function.blocks[-1] if function.blocks else function.append_basic_block("entry")
        self.builder = ir.Builder(block)

    def of(self, op: Op | None) -> contextlib.AbstractContextManager[None]:
        """Instructions in here are made for an op: where a module is to name places, they carry that of the op."""
        if op is None or op.span is None or not self.module.placed:
            return NOTHING
        return self.builder.of(f"{op.span.file}:{op.span.line}")

    # ---- operands

    def like(self, x: Value, reference: Value) -> Value:
        """An operand as a value of the type of `reference`: a number becomes a constant, a scalar a splat."""
        n = lanes_of(reference)
        if not is_value(x):
            return constant(kind_of(reference), x, n)
        return self.splat(x, n) if n and not lanes_of(x) else x

    def match(self, *xs: Value) -> list[Value]:
        """Operands of one type: that of the first vector among them, else of the first value."""
        reference: ir.Value | None = None
        for x in xs:
            if is_value(x) and (reference is None or (x.type.count and not reference.type.count)):
                reference = x
        if reference is None:
            raise TypeError(f"no LLVM value among {xs}")
        t = reference.type
        return [x if is_value(x) and x.type is t else self.like(x, reference) for x in xs]

    def index(self, x: Value) -> Value:
        """An i64 scalar from an i64 value or an int."""
        return x if is_value(x) else constant("i64", x)

    def splat(self, x: Value, lanes: int | None = None) -> Value:
        """A scalar in every lane."""
        n = lanes or self.lanes
        t = ir.vector(x.type, n)
        if x.fixed:
            return ir.Value(t, f"splat ({x})")
        one = self.builder.insert_element(undefined(t), x, constant("i32", 0))
        return self.shuffle(one, undefined(t), [0] * n)

    def ramp(self, start: Value = 0, kind: Kind = "i64", lanes: int | None = None) -> Value:
        """The vector `start`, `start + 1`, …"""
        steps = constants(kind, range(lanes or self.lanes))
        return self.add(steps, start)

    # ---- arithmetic

    def _binary(self, integer: str, real: str, a: Value, b: Value) -> Value:
        if not (is_value(a) and is_value(b) and a.type is b.type):
            a, b = self.match(a, b)
        return getattr(self.builder, real if kind_of(a)[0] == "f" else integer)(a, b)

    def add(self, a: Value, b: Value) -> Value:
        """a + b."""
        if not is_value(a) and not is_value(b):
            return a + b
        if _neutral(a, 0, b):
            return b
        return a if _neutral(b, 0, a) else self._binary("add", "fadd", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """a - b."""
        if not is_value(a) and not is_value(b):
            return a - b
        return a if _neutral(b, 0, a) else self._binary("sub", "fsub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """a · b."""
        if not is_value(a) and not is_value(b):
            return a * b
        if _neutral(a, 1, b):
            return b
        for x, other in ((a, b), (b, a)):
            if _neutral(x, 0, other):
                return self.like(x, other)
        return a if _neutral(b, 1, a) else self._binary("mul", "fmul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        """a / b of floats, as IEEE has it."""
        return self.builder.fdiv(*self.match(a, b))

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        """a · b + c, rounded once where the machine can do that in one instruction."""
        a, b, c = self.match(a, b, c)
        return self.intrinsic("llvm.fma" if self.machine.fma else "llvm.fmuladd", a, b, c)

    def neg(self, a: Value) -> Value:
        """-a."""
        return self.builder.fneg(a) if kind_of(a)[0] == "f" else self.sub(0, a)

    def abs(self, a: Value) -> Value:
        """|a|; the smallest integer stays as it is."""
        if kind_of(a)[0] == "f":
            return self.intrinsic("llvm.fabs", a)
        return self.select(self.compare("<", a, 0), self.neg(a), a)

    def sqrt(self, a: Value) -> Value:
        """The square root, correctly rounded."""
        return self.intrinsic("llvm.sqrt", a)

    def floor(self, a: Value) -> Value:
        """The largest integral float that is not larger."""
        return self.intrinsic("llvm.floor", a)

    def ceil(self, a: Value) -> Value:
        """The smallest integral float that is not smaller."""
        return self.intrinsic("llvm.ceil", a)

    def round(self, a: Value) -> Value:
        """The nearest integral float, the even one of two."""
        return self.intrinsic("llvm.rint", a)

    def greater(self, a: Value, b: Value) -> Value:
        """a if a > b else b, one instruction: a NaN in `b` stays, a NaN in `a` is dropped for `b`."""
        a, b = self.match(a, b)
        return self.select(self.compare(">", a, b), a, b)

    def lesser(self, a: Value, b: Value) -> Value:
        """a if a < b else b, one instruction: a NaN in `b` stays, a NaN in `a` is dropped for `b`."""
        a, b = self.match(a, b)
        return self.select(self.compare("<", a, b), a, b)

    def max(self, a: Value, b: Value) -> Value:
        """The larger; NaN if either is."""
        if not is_value(a) and not is_value(b):
            return max(a, b)
        return self._keep_nan(a, b, self.greater)

    def min(self, a: Value, b: Value) -> Value:
        """The smaller; NaN if either is."""
        if not is_value(a) and not is_value(b):
            return min(a, b)
        return self._keep_nan(a, b, self.lesser)

    def _keep_nan(self, a: Value, b: Value, pick: Callable[[Value, Value], Value]) -> Value:
        for number, other in ((a, b), (b, a)):
            if not is_value(number) and number == number:
                return pick(number, other)
        a, b = self.match(a, b)
        return pick(a, b) if kind_of(a)[0] == "i" else self.select(self.is_nan(a), a, pick(a, b))

    def copysign(self, a: Value, b: Value) -> Value:
        """|a| with the sign of b."""
        return self.intrinsic("llvm.copysign", *self.match(a, b))

    def polynomial(self, x: Value, coefficients: Sequence[float]) -> Value:
        """c[0] + c[1] x + c[2] x² + …, by Horner's rule."""
        out = self.like(coefficients[-1], x)
        for c in reversed(coefficients[:-1]):
            out = self.fma(out, x, c)
        return out

    # ---- bits and conditions

    def and_(self, a: Value, b: Value) -> Value:
        """a & b, of integers or conditions; one that is known is none."""
        if isinstance(a, bool) or isinstance(b, bool):
            known, other = (a, b) if isinstance(a, bool) else (b, a)
            return other if known else False
        return self.builder.and_(*self.match(a, b))

    def or_(self, a: Value, b: Value) -> Value:
        """a | b."""
        return self.builder.or_(*self.match(a, b))

    def xor(self, a: Value, b: Value) -> Value:
        """a ^ b."""
        return self.builder.xor(*self.match(a, b))

    def not_(self, a: Value) -> Value:
        """~a."""
        return self.xor(a, -1)

    def shl(self, a: Value, b: Value) -> Value:
        """a << b for 0 <= b < bits of the kind."""
        return self.builder.shl(*self.match(a, b))

    def ashr(self, a: Value, b: Value) -> Value:
        """a >> b with copies of the sign, for 0 <= b < bits of the kind."""
        return self.builder.ashr(*self.match(a, b))

    def lshr(self, a: Value, b: Value) -> Value:
        """a >> b with zeros, for 0 <= b < bits of the kind."""
        return self.builder.lshr(*self.match(a, b))

    def compare(self, order: Order, a: Value, b: Value) -> Value:
        """A condition (i1): signed for integers; with a NaN all are false but `!=`. Of two Python numbers a truth value."""
        if not is_value(a) and not is_value(b):
            return KNOWN[order](a, b)
        a, b = self.match(a, b)
        if kind_of(a)[0] == "f":
            ordered = self.builder.fcmp_unordered if order == "!=" else self.builder.fcmp_ordered
            return ordered(order, a, b)
        return (self.builder.icmp_unsigned if kind_of(a) == "i1" else self.builder.icmp_signed)(
            order, a, b
        )

    def below(self, a: Value, b: Value) -> Value:
        """0 <= a < b, of integers, where b >= 0: one unsigned comparison."""
        return self.builder.icmp_unsigned("<", *self.match(a, b))

    def is_nan(self, a: Value) -> Value:
        """Whether it is NaN."""
        return self.builder.fcmp_unordered("uno", a, a)

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """a where the condition holds, else b; the condition may be a scalar for vectors."""
        if not is_value(condition):
            return a if condition else b
        if not is_value(a) and not is_value(b):
            raise TypeError("select of two Python numbers: give one as a constant of its kind")
        a, b = self.match(a, b)
        if lanes_of(condition) and not lanes_of(a):
            a, b = self.splat(a, lanes_of(condition)), self.splat(b, lanes_of(condition))
        return self.builder.select(condition, a, b)

    # ---- kinds

    def bits(self, a: Value, kind: Kind) -> Value:
        """The same bits as a value of another kind of the same size."""
        return self.builder.bitcast(a, type_of(kind, lanes_of(a)))

    def convert(self, a: Value, kind: Kind) -> Value:
        """A value in another kind. A float truncates toward zero to an integer, NaN and what does not fit to the
        smallest one; an integer wraps to a narrower one; a condition is 0 or 1; and != 0 makes a condition.
        """
        if not is_value(a):
            return constant(kind, a)
        source, t, b = kind_of(a), type_of(kind, lanes_of(a)), self.builder
        if source == kind:
            return a
        if kind == "i1":
            return self.compare("!=", a, 0)
        if source == "i1":
            return b.zext(a, t) if kind[0] == "i" else b.uitofp(a, t)
        if source[0] == "i":
            widen = b.sext if BYTES[kind] > BYTES[source] else b.trunc
            return widen(a, t) if kind[0] == "i" else b.sitofp(a, t)
        if kind[0] == "f":
            return b.fpext(a, t) if kind == "f64" else b.fptrunc(a, t)
        limit = 2.0 ** (8 * BYTES[kind] - 1)
        fits = self.compare("<", self.abs(a), limit)
        return self.select(fits, b.fptosi(a, t), constant(kind, -int(limit), lanes_of(a)))

    def widen_unsigned(self, a: Value, kind: Kind) -> Value:
        """A narrow unsigned integer in a wider kind."""
        return self.builder.zext(a, type_of(kind, lanes_of(a)))

    # ---- across lanes

    def lane(self, x: Value, k: int | Value) -> Value:
        """One lane as a scalar."""
        return self.builder.extract_element(x, k if is_value(k) else constant("i32", k))

    def shuffle(self, a: Value, b: Value, order: Sequence[int]) -> Value:
        """Lanes of a, then of b, by number."""
        return self.builder.shuffle_vector(a, b, places(tuple(order)))

    def across(self, combine: Callable[[Value, Value], Value], x: Value) -> Value:
        """The lanes of a vector (a power of two) combined in a tree: `e.across(e.add, x)`."""
        n = lanes_of(x)
        while n > 1:
            n //= 2
            x = combine(self.shuffle(x, x, range(n)), self.shuffle(x, x, range(n, 2 * n)))
        return self.lane(x, 0)

    def any(self, condition: Value) -> Value:
        """Whether a condition holds in any lane."""
        n = lanes_of(condition)
        if not n:
            return condition
        packed = self.builder.bitcast(condition, ir.integer(n))
        return self.builder.icmp_unsigned("!=", packed, ir.Value(packed.type, "0"))

    def transpose(self, rows: Sequence[Value]) -> list[Value]:
        """n vectors of n lanes (a power of two): lane i of vector j becomes lane j of vector i."""
        n, half = len(rows), len(rows) // 2
        low = [x for i in range(half) for x in (i, n + i)]
        high = [x + half for x in low]
        out = list(rows)
        # Interleaving the first half of the vectors with the second rotates an index bit from the vectors' numbers
        # into the lanes' numbers; after log2(n) times all bits have changed sides.
        for _ in range(n.bit_length() - 1):
            pairs = [(out[i], out[i + half]) for i in range(half)]
            out = [self.shuffle(a, b, order) for a, b in pairs for order in (low, high)]
        return out

    def sums(self, rows: Sequence[Value]) -> Value:
        """The sum of the lanes of each of n vectors of n lanes (a power of two), as one vector."""
        n, out = len(rows), list(rows)
        width = n // 2
        # Each step adds the halves of groups of lanes, of two vectors at once; which vector a lane is of is a bit of
        # its number from then on, the most significant one first.
        while width:
            low = [k if k // width % 2 == 0 else n + k - width for k in range(n)]
            high = [k + width if k // width % 2 == 0 else n + k for k in range(n)]
            half = len(out) // 2
            pairs = zip(out[:half], out[half:], strict=True)
            out = [self.add(self.shuffle(a, b, low), self.shuffle(a, b, high)) for a, b in pairs]
            width //= 2
        return out[0]

    # ---- intrinsics

    def intrinsic(self, name: str, *xs: Value, result: Any = None) -> Value:
        """A call of an overloaded LLVM intrinsic, named without its type suffix."""
        t = result or xs[0].type
        suffix = mangle(t) if result is None else f"{mangle(t)}.{mangle(xs[0].type)}"
        return self.call_function(f"{name}.{suffix}", t, *xs)

    def call_function(self, name: str, result: Any, *xs: Value) -> Value:
        """A call of a function of another library, declared in the module at its first call."""
        found = self.module.globals.get(name)
        if found is None:
            found = ir.Function(self.module, result, [x.type for x in xs], name)
        return self.builder.call(found, xs)


def _neutral(x: Value, n: int, other: Value) -> bool:
    """Whether `x` is the number n that changes nothing: of integers only, as -0.0 + 0 is 0.0."""
    same = x.ref == str(n) if is_value(x) else x == n
    return same and is_value(other) and kind_of(other)[0] == "i"
