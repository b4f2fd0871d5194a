"""Errors: what went wrong, where in the user's program, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of a source file. Lines and columns count from 1; `end_column` is exclusive."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake in a program: the place, what is wrong in the user's terms, and a hint that names the remedy."""

    span: Span
    message: str
    hint: str | None = None

    def render(self, source: str) -> str:
        """The message as it is printed: position, the line, the place underlined, the hint."""
        s = self.span
        lines = source.split("\n")
        text = lines[s.line - 1] if 1 <= s.line <= len(lines) else ""
        width = max(
            1, (s.end_column if s.end_line == s.line else len(text.rstrip()) + 1) - s.column
        )
        out = [
            f"{s.file}:{s.line}:{s.column}: error: {self.message}",
            *_underlined(text, s.column - 1, width),
        ]
        if self.hint:
            out.append(f"  hint: {self.hint}")
        return "\n".join(out)


SHOWN = 160
"""How much of a long line is shown."""


def _underlined(text: str, at: int, width: int) -> tuple[str, str]:
    """A line, or the part of a long one around the place, and the underline. What cannot be printed is a blank."""
    first = max(0, at - SHOWN // 2) if len(text) > SHOWN else 0
    shown = "".join(c if c.isprintable() else " " for c in text[first : first + SHOWN])
    lead, tail = ("…" if first else ""), ("…" if len(text) > first + SHOWN else "")
    mark = "^" * max(1, min(width, len(shown) - (at - first)))
    return f"{lead}{shown}{tail}".rstrip(), " " * (len(lead) + at - first) + mark


class TilecError(Exception):
    """The base of every error that tilec raises on purpose."""


class SourceError(TilecError):
    """One or more mistakes in a program. The attributes are those of the first; `str()` shows them all."""

    def __init__(self, diagnostics: list[Diagnostic], source: str) -> None:
        self.diagnostics = sorted(diagnostics, key=lambda d: (d.span.line, d.span.column))
        first = self.diagnostics[0]
        self.file, self.line, self.column = first.span.file, first.span.line, first.span.column
        self.hint = first.hint
        super().__init__("\n\n".join(d.render(source) for d in self.diagnostics))


class ArgumentError(TilecError):
    """A call's arguments do not fit: it names the argument, what was expected and what came."""


class UnsupportedError(TilecError):
    """A target cannot do this: it names the target, the limit and what would work."""


class ResourceError(TilecError):
    """A schedule does not fit the target's memory or registers."""


class CompilerBug(TilecError):
    """tilec broke one of its own rules. The message holds the IR with the failing op marked."""
