"""LLVM IR as text: types, values, and a builder that writes an instruction as soon as it is asked for.

llvmlite has such a builder, which keeps an object per operand and instruction and prints them all in the end. That took
longer than all that tilec itself does to make a kernel, so here an instruction is a line of text from the beginning. Method
names and what they mean are llvmlite's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

from tilec.errors import CompilerBug


class Type:
    """An LLVM type. There is one object for each, so types are compared by identity."""

    __slots__ = ("count", "element", "text")

    def __init__(self, text: str, element: Type | None = None, count: int = 0) -> None:
        self.text = text
        self.element: Type = element or self
        """Of a vector's lanes; of what is no vector, the type itself."""
        self.count = count
        """Lanes of a vector, 0 for all else."""

    def __str__(self) -> str:
        return self.text


@functools.cache
def plain(text: str) -> Type:
    """The type of this name: `i64`, `float`, `ptr`."""
    return Type(text)


@functools.cache
def vector(element: Type, count: int) -> Type:
    """`count` lanes of a type."""
    return Type(f"<{count} x {element}>", element, count)


@functools.cache
def array(element: Type, count: int) -> Type:
    """`count` elements, one after another in memory."""
    return plain(f"[{count} x {element}]")


FLOAT, HALF, DOUBLE = plain("float"), plain("half"), plain("double")
POINTER, VOID, CONDITION = plain("ptr"), plain("void"), plain("i1")


def integer(bits: int) -> Type:
    """A whole number of so many bits."""
    return plain(f"i{bits}")


class Value:
    """A value: its type, and how instructions refer to it."""

    __slots__ = ("ref", "type")

    def __init__(self, t: Type, ref: str) -> None:
        self.type = t
        self.ref = ref

    def __str__(self) -> str:
        return f"{self.type.text} {self.ref}"

    @property
    def fixed(self) -> bool:
        """Whether it is a literal."""
        return self.ref[0] not in "%@"


class Phi(Value):
    """A value that depends on where control came from; `add_incoming` says which it is then."""

    __slots__ = ("incoming", "suffix")

    def __init__(self, t: Type, ref: str, suffix: str) -> None:
        super().__init__(t, ref)
        self.suffix = suffix
        self.incoming: list[str] = []

    def add_incoming(self, x: Value, block: Block) -> None:
        """It is `x` where control comes from `block`."""
        self.incoming.append(f"[{x.ref}, %{block.name}]")

    def line(self) -> str:
        """The instruction."""
        return f"  {self.ref} = phi {self.type.text} {', '.join(self.incoming)}{self.suffix}"


class Block:
    """A basic block: its instructions, and what ends it."""

    __slots__ = ("end", "function", "known", "lines", "name", "word")

    def __init__(self, function: Function, name: str, word: str) -> None:
        self.function, self.name, self.word = function, name, word
        self.lines: list[str | Phi] = []
        self.end = ""
        self.known: dict[str, Value] = {}
        """The values of its instructions that depend on their operands alone."""

    def text(self) -> str:
        """Its instructions."""
        if not self.end:
            raise CompilerBug(f"a block of {self.function.name} does not end: {self.name}")
        lines = [x if isinstance(x, str) else x.line() for x in self.lines]
        return "\n".join([*lines, self.end])


class Function(Value):
    """A function; only declared as long as it has no blocks."""

    def __init__(self, module: Module, result: Type, arguments: Sequence[Type], name: str) -> None:
        super().__init__(POINTER, f'@"{name}"')
        self.module, self.name, self.result = module, name, result
        self.args = [Value(t, f"%a{n}") for n, t in enumerate(arguments)]
        self.attributes: set[str] = set()
        self.linkage = ""
        self.blocks: list[Block] = []
        self._names: dict[str, int] = {}
        self._types: list[Type] = []
        module.globals[name] = self

    def append_basic_block(self, name: str) -> Block:
        """A new last block; a name that is taken gets a number."""
        n = self._names[name] = self._names.get(name, -1) + 1
        block = Block(self, f"{name}.{n}" if n else name, name)
        self.blocks.append(block)
        return block

    def fresh(self, t: Type) -> str:
        """A reference for a new value."""
        self._types.append(t)
        return f"%v{len(self._types) - 1}"

    def argument(self, t: Type) -> str:
        """A reference for another argument."""
        self.args.append(Value(t, f"%a{len(self.args)}"))
        return self.args[-1].ref

    def type_of(self, ref: str) -> Type:
        """The type of an argument or a value."""
        n = int(ref[2:])
        return self.args[n].type if ref[1] == "a" else self._types[n]

    def text(self) -> str:
        """Its definition, or its declaration."""
        if not self.blocks:
            arguments = ", ".join(x.type.text for x in self.args)
            return f"declare {self.result} {self.ref}({arguments})"
        head = " ".join(x for x in ("define", self.linkage, self.result.text) if x)
        attributes = " ".join(sorted(self.attributes))
        return f"{head} {self.ref}{self.body(attributes)}"

    def body(self, attributes: str = "") -> str:
        """All of its definition but its name and what it gives."""
        arguments = ", ".join(map(str, self.args))
        body = "\n".join(f"{b.name}:\n{b.text()}" for b in self.blocks)
        return f"({arguments}) {attributes}\n{{\n{body}\n}}"


class Global(Value):
    """A variable of a module's own, with its first value as LLVM writes it."""

    def __init__(
        self, module: Module, t: Type, name: str, first: str, align: int, fixed: bool = False
    ) -> None:
        super().__init__(POINTER, f'@"{name}"')
        kind = "constant" if fixed else "global"
        self._line = f"{self.ref} = internal {kind} {t} {first}, align {align}"
        module.globals[name] = self

    def text(self) -> str:
        """Its definition."""
        return self._line


class Module:
    """A module: functions and variables by name. `str()` is its text.

    `placed`: its instructions say which place of a program they come from.
    """

    def __init__(self, name: str = "", placed: bool = False) -> None:
        self.name, self.placed = name, placed
        self.globals: dict[str, Function | Global] = {}
        self.places: dict[str, int] = {}
        self.parts: dict[str, Function] = {}

    def part(self, found: Function, body: str) -> Function:
        """A new function, or an earlier one with this body."""
        known = self.parts.setdefault(body, found)
        if known is not found:
            del self.globals[found.name]
        return known

    def function(self, name: str) -> Function:
        """The function of this name, which exists."""
        found = self.globals[name]
        assert isinstance(found, Function)
        return found

    def __str__(self) -> str:
        head = [f'; ModuleID = "{self.name}"']
        places = [f'!{n} = !{{ !"{_quoted(place)}" }}' for place, n in self.places.items()]
        if self.placed:
            listed = ", ".join(f"!{n}" for n in self.places.values())
            places.insert(0, f"!{PLACES} = !{{ {listed} }}")
        return "\n\n".join([*head, *(g.text() for g in self.globals.values()), *places, ""])


PLACES = "tilec.places"
"""The named metadata that lists the places of a program; an instruction says `!from` which of them it is."""


def _quoted(text: str) -> str:
    """The text of an LLVM string."""
    data = text.encode()
    return "".join(chr(c) if 32 <= c < 127 and chr(c) not in '"\\' else f"\\{c:02X}" for c in data)


Order: TypeAlias = Literal["<", "<=", ">", ">=", "==", "!="]
_ORDERS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne", "uno": "uno"}

Binary: TypeAlias = "Callable[[Builder, Value, Value], Value]"
Cast: TypeAlias = "Callable[[Builder, Value, Type], Value]"


def _binary(word: str) -> Binary:
    def method(self: Builder, a: Value, b: Value) -> Value:
        return self.pure(a.type, f"{word} {a.type.text} {a.ref}, {b.ref}")

    return method


def _cast(word: str) -> Cast:
    def method(self: Builder, a: Value, t: Type) -> Value:
        return a if a.type is t else self.pure(t, f"{word} {a} to {t}")

    return method


class Builder:
    """Writes instructions at the end of a block."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self._place = ""

    def position_at_end(self, block: Block) -> None:
        """Goes on there."""
        self.block = block

    @contextmanager
    def goto_entry_block(self) -> Generator[None]:
        """Instructions in here go to the end of the function's first block."""
        held, self.block = self.block, self.block.function.blocks[0]
        yield
        self.block = held

    @contextmanager
    def of(self, place: str) -> Generator[None]:
        """Instructions in here come from this place of a program (where it is none, from that of before)."""
        held = self._place
        if place:
            places = self.block.function.module.places
            self._place = f", !from !{places.setdefault(place, len(places))}"
        yield
        self._place = held

    def value(self, t: Type, text: str) -> Value:
        """The value of an instruction."""
        ref = self.block.function.fresh(t)
        self.block.lines.append(f"  {ref} = {text}{self._place}")
        return Value(t, ref)

    def pure(self, t: Type, text: str) -> Value:
        """The value of an instruction that depends on its operands alone: written once in a block."""
        known = self.block.known
        found = known.get(text)
        if found is None:
            found = known[text] = self.value(t, text)
        return found

    def effect(self, text: str) -> None:
        """An instruction that gives nothing."""
        self.block.lines.append(f"  {text}{self._place}")

    def end(self, text: str) -> None:
        """The instruction that ends the block."""
        self.block.end = f"  {text}{self._place}"

    # ---- arithmetic

    fadd, fsub, fmul, fdiv = (_binary(x) for x in ("fadd", "fsub", "fmul", "fdiv"))
    sub, mul, sdiv, udiv = (_binary(x) for x in ("sub", "mul", "sdiv", "udiv"))
    srem, urem, shl, ashr = (_binary(x) for x in ("srem", "urem", "shl", "ashr"))
    lshr, and_, or_, xor = (_binary(x) for x in ("lshr", "and", "or", "xor"))

    def add(self, a: Value, b: Value, flags: Sequence[str] = ()) -> Value:
        """a + b. `flags`: what it may rely on, `nsw` say."""
        word = " ".join(("add", *flags))
        return self.pure(a.type, f"{word} {a.type.text} {a.ref}, {b.ref}")

    def fneg(self, a: Value) -> Value:
        """-a."""
        return self.pure(a.type, f"fneg {a}")

    def icmp_signed(self, order: Order, a: Value, b: Value) -> Value:
        """A comparison of whole numbers."""
        return self._compare(
            "icmp", _ORDERS[order] if order in ("==", "!=") else f"s{_ORDERS[order]}", a, b
        )

    def icmp_unsigned(self, order: Order, a: Value, b: Value) -> Value:
        """A comparison of whole numbers without signs."""
        return self._compare(
            "icmp", _ORDERS[order] if order in ("==", "!=") else f"u{_ORDERS[order]}", a, b
        )

    def fcmp_ordered(self, order: Order, a: Value, b: Value) -> Value:
        """A comparison that is false where one is NaN."""
        return self._compare("fcmp", f"o{_ORDERS[order]}", a, b)

    def fcmp_unordered(self, order: Order | Literal["uno"], a: Value, b: Value) -> Value:
        """A comparison that is true where one is NaN; `uno`: whether one is."""
        return self._compare("fcmp", "uno" if order == "uno" else f"u{_ORDERS[order]}", a, b)

    def _compare(self, word: str, how: str, a: Value, b: Value) -> Value:
        n = a.type.count
        t = vector(CONDITION, n) if n else CONDITION
        return self.pure(t, f"{word} {how} {a.type.text} {a.ref}, {b.ref}")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        """a where the condition holds, else b."""
        return self.pure(a.type, f"select {condition}, {a}, {b}")

    def hidden(self, x: Value) -> Value:
        """The same, without LLVM knowing where it comes from; costs no instruction."""
        return self.pure(x.type, f'call {x.type} asm "", "=r,0"({x})')

    # ---- types

    zext, sext, trunc = (_cast(x) for x in ("zext", "sext", "trunc"))
    fpext, fptrunc, bitcast = (_cast(x) for x in ("fpext", "fptrunc", "bitcast"))
    sitofp, uitofp, fptosi = (_cast(x) for x in ("sitofp", "uitofp", "fptosi"))
    inttoptr, ptrtoint = (_cast(x) for x in ("inttoptr", "ptrtoint"))

    # ---- lanes

    def extract_element(self, x: Value, lane: Value) -> Value:
        """A lane of a vector."""
        return self.pure(x.type.element, f"extractelement {x}, {lane}")

    def insert_element(self, x: Value, one: Value, lane: Value) -> Value:
        """A vector with another value in a lane."""
        return self.pure(x.type, f"insertelement {x}, {one}, {lane}")

    def shuffle_vector(self, a: Value, b: Value, order: Value) -> Value:
        """Lanes of a, then of b, by number."""
        t = vector(a.type.element, order.type.count)
        return self.pure(t, f"shufflevector {a}, {b}, {order}")

    def extract_value(self, x: Value, n: int, t: Type) -> Value:
        """A field, of type `t`, of a value of several."""
        return self.pure(t, f"extractvalue {x}, {n}")

    # ---- memory

    def gep(self, base: Value, index: Value, element: Type) -> Value:
        """The address `index` elements after `base`."""
        return self.pure(POINTER, f"getelementptr {element}, {base}, {index}")

    def load(self, address: Value, t: Type, align: int) -> Value:
        """What is there."""
        return self.value(t, f"load {t}, {address}, align {align}")

    def store(self, x: Value, address: Value, align: int) -> None:
        """Puts it there."""
        self.effect(f"store {x}, {address}, align {align}")

    def alloca(self, t: Type, count: int, align: int) -> Value:
        """Room for some elements on the stack."""
        return self.value(POINTER, f"alloca {t}, i32 {count}, align {align}")

    def load_atomic(self, address: Value, order: str, align: int, t: Type) -> Value:
        """What is there, read at once."""
        return self.value(t, f"load atomic {t}, {address} {order}, align {align}")

    def store_atomic(self, x: Value, address: Value, order: str, align: int) -> None:
        """Puts it there at once."""
        self.effect(f"store atomic {x}, {address} {order}, align {align}")

    def atomic_rmw(self, word: str, address: Value, x: Value, order: str) -> Value:
        """Changes what is there at once, and gives what was."""
        return self.value(x.type, f"atomicrmw {word} {address}, {x} {order}")

    def cmpxchg(self, address: Value, old: Value, new: Value, order: str, failed: str) -> Value:
        """Puts `new` where `old` was: what was there, and whether it did."""
        t = plain(f"{{{old.type}, {CONDITION}}}")
        return self.value(t, f"cmpxchg {address}, {old}, {new} {order} {failed}")

    # ---- control

    def phi(self, t: Type) -> Phi:
        """A value that depends on where control came from."""
        found = Phi(t, self.block.function.fresh(t), self._place)
        self.block.lines.append(found)
        return found

    def branch(self, block: Block) -> None:
        """Goes on there."""
        self.end(f"br label %{block.name}")

    def cbranch(self, condition: Value, then: Block, otherwise: Block) -> None:
        """Goes on in one of two blocks."""
        self.end(f"br {condition}, label %{then.name}, label %{otherwise.name}")

    def call(self, function: Function, xs: Sequence[Value]) -> Value:
        """Calls a function."""
        return self.call_at(function, xs, function.result)

    def call_at(self, address: Value, xs: Sequence[Value], result: Type) -> Value:
        """Calls what is at an address, which gives a value of this type."""
        text = f"call {result} {address.ref}({', '.join(map(str, xs))})"
        if result is not VOID:
            return self.value(result, text)
        self.effect(text)
        return Value(VOID, "")

    def ret(self, x: Value) -> None:
        """Ends the function with a value."""
        self.end(f"ret {x}")

    def ret_void(self) -> None:
        """Ends the function."""
        self.end("ret void")
