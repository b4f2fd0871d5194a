"""The text of a kernel as it is written: lines, blocks, and the C names of things."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

from tilec.backends.cuda.reserved import COMPILER, LANGUAGE, is_private, macros
from tilec.backends.cuda.source import header

_WORDS = """
i64 u64 i32 u32 i16 u16 i8 u8 f16 bf16 f8e4m3 f8e5m2 b8 tl real a thread task memory workspace THREADS Args
isnan isinf isfinite signbit exp exp2 log log2 sin cos tanh sqrt erf pow floor ceil round min max abs
"""
RESERVED = LANGUAGE | COMPILER | macros(header()) | frozenset(_WORDS.split())
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
            bad = plain in RESERVED or is_private(plain) or plain != name
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
