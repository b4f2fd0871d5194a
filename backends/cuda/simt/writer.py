"""The text of a kernel as it is written: lines, blocks, and the C names of things."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

RESERVED = frozenset(
    [
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "class",
        "compl",
        "const",
        "constexpr",
        "const_cast",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "register",
        "reinterpret_cast",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "template",
        "this",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
        "char8_t",
        "char16_t",
        "char32_t",
        "concept",
        "requires",
        "co_await",
        "co_return",
        "co_yield",
        "i64",
        "u64",
        "i32",
        "u32",
        "i16",
        "u16",
        "i8",
        "u8",
        "f16",
        "bf16",
        "f8e4m3",
        "f8e5m2",
        "b8",
        "tl",
        "real",
        "a",
        "thread",
        "task",
        "memory",
        "workspace",
        "THREADS",
        "Args",
        "each_thread",
        "DEVICE",
        "GLOBAL",
        "BOUNDS",
        "SHARED",
        "SYNC",
        "UNROLL",
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "warpSize",
        "main",
        "unix",
        "linux",
        "INFINITY",
        "NAN",
        "isnan",
        "isinf",
        "isfinite",
        "signbit",
        "exp",
        "exp2",
        "log",
        "log2",
        "sin",
        "cos",
        "tanh",
        "sqrt",
        "erf",
        "pow",
        "floor",
        "ceil",
        "round",
        "min",
        "max",
        "abs",
    ]
)
"""Names that a kernel's own must not have."""


class Names:
    """C names: those of the IR, changed where C or the header has the name already."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken) | RESERVED
        self.own: dict[str, str] = {}

    def of(self, name: str) -> str:
        """The C name of an IR name."""
        if name not in self.own:
            plain = name if name.isascii() and name.isidentifier() else "v"
            bad = plain in RESERVED or plain.startswith("__") or plain != name
            self.own[name] = self.fresh(plain + "_") if bad else plain
        return self.own[name]

    def with_suffix(self, name: str, suffix: str) -> str:
        """The C name of something that goes with an IR name, the same whenever it is asked for."""
        key = f"{name} {suffix}"
        if key not in self.own:
            self.own[key] = self.fresh(self.of(name) + suffix)
        return self.own[key]

    def fresh(self, name: str) -> str:
        """A new name like `name`."""
        out, n = name, 0
        while out in self.taken:
            n += 1
            out = f"{name.rstrip('_')}_{n}"
        self.taken.add(out)
        return out


class Writer:
    """Lines of C, indented by block. A name may be declared once in a block and those around it."""

    def __init__(self, names: Names, depth: int = 0) -> None:
        self.lines: list[str] = []
        self.names, self.depth = names, depth
        self.declared: list[set[str]] = [set()]

    def line(self, text: str = "") -> None:
        """One line."""
        self.lines.append("  " * self.depth + text if text else "")

    @contextmanager
    def block(self, head: str = "", tail: str = "") -> Generator[None]:
        """Lines between braces."""
        self.line(f"{head} {{".lstrip())
        self.depth += 1
        self.declared.append(set())
        yield
        self.declared.pop()
        self.depth -= 1
        self.line("}" + tail)

    def declare(self, ctype: str, name: str, value: str) -> str:
        """A constant; gives its name, which differs from `name` where that is visible already."""
        out = self.names.fresh(name) if any(name in names for names in self.declared) else name
        self.declared[-1].add(out)
        self.line(f"const {ctype} {out} = {value};")
        return out
