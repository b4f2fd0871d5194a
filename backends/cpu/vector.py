"""`Emit`: LLVM IR of vector code, written as arithmetic.

A *kind* is the element type of a value in arithmetic: `f32`, `f64`, `i32`, `i64` or `i1`. A value is a scalar or a
vector of any number of lanes; every method works on both and finds out from the values' types. Operands may be Python
numbers, and scalars where another operand is a vector: they become constants and splats. Integer arithmetic on two
Python numbers is done here and emits nothing, so offsets can be written without thinking of what is known.

Arithmetic is in `backends.cpu.arithmetic`; conversions between storage types and kinds in `backends.cpu.storage`; the
language's functions in `backends.cpu.math`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.arithmetic import Arithmetic, Order
from tilec.backends.cpu.values import (
    BYTES,
    KINDS,
    POINTER,
    VOID,
    Kind,
    Value,
    constant,
    constants,
    is_value,
    kind_of,
    lanes_of,
    mangle,
    type_of,
    undefined,
)

__all__ = [
    "BYTES",
    "KINDS",
    "POINTER",
    "VOID",
    "Emit",
    "Kind",
    "Order",
    "Value",
    "constant",
    "constants",
    "function",
    "is_value",
    "kind_of",
    "lanes_of",
    "type_of",
    "undefined",
]

Bodies: TypeAlias = Callable[[Any, list[Any]], Sequence[Any] | None]


def function(
    module: Any, name: str, arguments: Sequence[Any], result: Any = VOID, internal: bool = False
) -> Any:
    """A new function of a module. `internal`: seen by nothing but the module, never inlined."""
    f = ir.Function(module, result, arguments, name)
    f.attributes.add("nounwind")
    if internal:
        f.linkage = "internal"
        f.attributes.add("noinline")
    return f


class Emit(Arithmetic):
    """Emits into one function; `builder` is the one beneath, `lanes` the f32 lanes of a register."""

    counted = False
    """Whether LLVM sees how loops count. It then keeps what follows from that, addresses above all, from one iteration to
    the next, which is a fifth of its time and seldom gains anything: where each element is used once or twice."""

    # ---- memory

    def at(self, base: Value, offset: Value, size: int) -> Value:
        """The address `offset` elements of `size` bytes after `base`."""
        if not is_value(offset) and offset == 0:
            return base
        element = {1: KINDS["i8"], 2: KINDS["i16"], 4: KINDS["i32"], 8: KINDS["i64"]}[size]
        return self.builder.gep(base, self.index(offset), element)

    def read(
        self, kind: Kind, base: Value, offset: Value = 0, lanes: int = 0, align: int | None = None
    ) -> Value:
        """`lanes` consecutive elements (0: one, as a scalar) at `offset` elements after `base`.

        `align`: bytes, that of one element unless given.
        """
        address = self.at(base, offset, BYTES[kind])
        return self.builder.load(address, type_of(kind, lanes), align or BYTES[kind])

    def write(self, x: Value, base: Value, offset: Value = 0, align: int | None = None) -> None:
        """Stores a scalar or a vector's lanes at `offset` elements after `base`."""
        size = BYTES[kind_of(x)]
        self.builder.store(x, self.at(base, offset, size), align or size)

    def prefetch(self, address: Value, near: bool) -> None:
        """Asks for a cache line, to be read soon. `near`: for the nearest cache, else for the second one."""
        hints = [constant("i32", x) for x in (0, 3 if near else 2, 1)]  # a read, how near, data
        self.call_function("llvm.prefetch.p0", VOID, address, *hints)

    def read_some(
        self, kind: Kind, base: Value, offset: Value, mask: Value, other: float = 0
    ) -> Value:
        """Like `read`, but the lanes where `mask` is false are `other` and their memory is not touched."""
        t = type_of(kind, lanes_of(mask))
        address = self.at(base, offset, BYTES[kind])
        fill = constant(kind, other, lanes_of(mask))
        name = f"llvm.masked.load.{mangle(t)}.p0"
        return self.call_function(name, t, address, constant("i32", BYTES[kind]), mask, fill)

    def write_some(self, x: Value, base: Value, offset: Value, mask: Value) -> None:
        """Like `write`, of the lanes where `mask` holds; the other lanes' memory is not touched."""
        size = BYTES[kind_of(x)]
        name = f"llvm.masked.store.{mangle(x.type)}.p0"
        self.call_function(name, VOID, x, self.at(base, offset, size), constant("i32", size), mask)

    def gather(self, kind: Kind, base: Value, offsets: Value, mask: Value | None = None) -> Value:
        """One element per lane, at i64 `offsets` (elements) from `base`; 0, untouched, where `mask` is false.

        Scalar loads: on most machines they are no slower than gather instructions, and they read every kind. A lane
        that is masked out reads a zero of the module's own instead, so there are no branches.
        """
        b, n = self.builder, lanes_of(offsets)
        out = undefined(type_of(kind, n))
        for lane in range(n):
            k = constant("i32", lane)
            address = self.at(base, b.extract_element(offsets, k), BYTES[kind])
            if mask is not None:
                address = b.select(b.extract_element(mask, k), address, self._zero())
            one = b.load(address, KINDS[kind], BYTES[kind])
            out = b.insert_element(out, one, k)
        return out

    def read_if(self, kind: Kind, base: Value, offset: Value, condition: Value) -> Value:
        """One element, or 0 without touching memory; no branch."""
        address = self.at(base, offset, BYTES[kind])
        address = self.builder.select(condition, address, self._zero())
        return self.builder.load(address, KINDS[kind], BYTES[kind])

    def scatter(self, x: Value, base: Value, offsets: Value) -> None:
        """Stores lane by lane, in order, at i64 `offsets` (elements) from `base`."""
        b, size = self.builder, BYTES[kind_of(x)]
        for lane in range(lanes_of(x)):
            k = constant("i32", lane)
            address = self.at(base, b.extract_element(offsets, k), size)
            b.store(b.extract_element(x, k), address, size)

    def _zero(self) -> Value:
        """Eight zero bytes that can be read."""
        found = self.module.globals.get("zero")
        if found is None:
            found = ir.Global(self.module, KINDS["i64"], "zero", "0", 8, fixed=True)
        return found

    def zeros(self, size: int) -> Value:
        """So many zero bytes that can be read."""
        name = f"zeros.{size}"
        found = self.module.globals.get(name)
        if found is None:
            t = ir.array(KINDS["i8"], size)
            found = ir.Global(self.module, t, name, "zeroinitializer", 8, fixed=True)
        return found

    def allocate(self, kind: Kind, count: int, align: int = 64) -> Value:
        """A pointer to `count` elements on the stack, once per call of the function."""
        with self.builder.goto_entry_block():
            return self.builder.alloca(KINDS[kind], count, align)

    # ---- calls

    def call_address(self, address: Value, *xs: Value, result: Any = VOID) -> Value:
        """Calls a function by its address; gives what it gives, of the LLVM type `result`."""
        return self.builder.call_at(address, xs, result)

    def external(self, name: str, *xs: Value) -> Value:
        """A C function of scalars of one type (`erff`), called lane by lane."""
        if not lanes_of(xs[0]):
            return self.call_function(name, xs[0].type, *xs)
        out = undefined(xs[0].type)
        for k in range(lanes_of(out)):
            one = self.call_function(name, out.type.element, *(self.lane(x, k) for x in xs))
            out = self.builder.insert_element(out, one, constant("i32", k))
        return out

    def outlined(
        self, name: str, body: Callable[..., Value], *xs: Value, result: Any = None
    ) -> Value:
        """`body(e, *xs)` as a function of the module's own, emitted once per operand types, and called here.

        `result`: its LLVM type, that of the first operand unless given.
        """
        types = [x.type for x in xs]
        full = ".".join([name, *(mangle(t) for t in types)])
        found = self.module.globals.get(full)
        if found is None:
            found = function(self.module, full, types, result or types[0], internal=True)
            inner = Emit(found, self.machine, self.lanes)
            inner.counted = True
            inner.builder.ret(body(inner, *found.args))
        return self.builder.call(found, xs)

    # ---- control flow

    @contextmanager
    def counting(self) -> Generator[None]:
        """LLVM sees how the loops in here count."""
        held, self.counted = self.counted, True
        yield
        self.counted = held

    def loop(
        self,
        start: Value,
        stop: Value,
        step: Value,
        carried: Sequence[Value],
        body: Bodies,
        *,
        some: bool = False,
        name: str = "loop",
    ) -> list[Value]:
        """`for i in range(start, stop, step): carried = body(i, carried)`, i an i64; gives the last values.

        `some`: at least one iteration is known to happen (also seen where the bounds are Python numbers).
        `body` may return None where nothing is carried.
        """
        if is_value(start) or is_value(stop):
            known = some
        elif start >= stop:
            return list(carried)
        else:
            known = True

        def run() -> list[Value]:
            return self._do_while(start, stop, step, carried, body, name)

        if known:
            return run()
        return self.branch(self.compare("<", self.index(start), stop), run, lambda: list(carried))

    def _do_while(
        self,
        start: Value,
        stop: Value,
        step: Value,
        carried: Sequence[Value],
        body: Bodies,
        name: str,
    ) -> list[Value]:
        b, before = self.builder, self.builder.block
        head = self.function.append_basic_block(name)
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(KINDS["i64"])
        i.add_incoming(self.index(start), before)
        phis = [b.phi(x.type) for x in carried]
        for phi, x in zip(phis, carried, strict=True):
            phi.add_incoming(x, before)
        at = i if self.counted else b.hidden(i)
        out = list(body(at, phis) or ())
        following = b.add(at, self.index(step), flags=["nsw"])
        for phi, x in zip([i, *phis], [following, *out], strict=True):
            phi.add_incoming(x, b.block)
        after = self.function.append_basic_block(f"{name}.end")
        b.cbranch(b.icmp_signed("<", following, self.index(stop)), head, after)
        b.position_at_end(after)
        return out

    def branch(
        self,
        condition: Value,
        then: Callable[[], Sequence[Value] | None],
        otherwise: Callable[[], Sequence[Value] | None] = lambda: None,
        name: str = "if",
    ) -> list[Value]:
        """Runs one of two pieces of code by a scalar condition, and gives the values that it gave. Where the condition is
        known, there is only one."""
        if isinstance(condition, bool):
            return list((then if condition else otherwise)() or ())
        b = self.builder
        blocks = [self.function.append_basic_block(f"{name}.{k}") for k in ("then", "else", "end")]
        b.cbranch(condition, blocks[0], blocks[1])
        ends: list[tuple[Any, list[Value]]] = []
        for block, emit in zip(blocks, (then, otherwise), strict=False):
            b.position_at_end(block)
            values = list(emit() or ())
            ends.append((b.block, values))
            b.branch(blocks[2])
        b.position_at_end(blocks[2])
        out: list[Value] = []
        for x, y in zip(ends[0][1], ends[1][1], strict=True):
            phi = b.phi(x.type)
            phi.add_incoming(x, ends[0][0])
            phi.add_incoming(y, ends[1][0])
            out.append(phi)
        return out
