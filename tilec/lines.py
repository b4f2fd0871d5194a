"""A file as logical lines: comments and strings recognised, lines joined while a bracket is open.

Each logical line is parsed on its own, so a mistake in one hides none in the others, and how deep brackets nest is known
before any parser sees them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tilec.errors import Diagnostic, Span

NESTING = 100
"""How deep brackets may nest."""

_CLOSES = {")": "(", "]": "["}
_TOKENS = re.compile(r'"(?:\\.|[^"\\\n])*"|["#()\[\]]')
_STARTS = re.compile(
    r"\s*(?:kernel\s+\w+\s*\(|def\s+\w+\s*\(|sample\s+\w+\s*\[|sizes\s+\w+\s*=|assert\s|axis\s+\w+\s*<)"
)
_LET = re.compile(r"\s*[A-Za-z_]\w*\s*=(?!=)")
_HEADER = re.compile(r"\s*kernel\b")
_INDENT = re.compile(r"[ \t]*")


def ended(text: str) -> str:
    """A text whose lines end as they do here, wherever it was written."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@dataclass(frozen=True, slots=True)
class Line:
    """A logical line. `text` holds whole lines of the file, so columns are those of the file.

    `broken`: its brackets or strings do not match, which is reported; it cannot be parsed.
    """

    text: str
    number: int
    indent: str
    broken: bool


@dataclass
class _Open:
    """The logical line being read: its lines so far, and the brackets open in it with their places."""

    number: int
    parts: list[str] = field(default_factory=list[str])
    brackets: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    broken: bool = False

    def finish(self) -> Line:
        text = "\n".join(self.parts)
        match = _INDENT.match(text)
        return Line(text, self.number, match.group() if match else "", self.broken)


class Splitter:
    """Splits a text into logical lines; what is wrong with its brackets and strings goes to `diagnostics`."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.diagnostics: list[Diagnostic] = []

    def lines(self) -> Iterator[Line]:
        """The logical lines that hold more than blanks and comments."""
        held: _Open | None = None
        for number, text in enumerate(self.text.split("\n"), 1):
            if held is not None and _begins_anew(held, text):
                self._never_closed(held)
                yield held.finish()
                held = None
            if held is None:
                if not (code := text.strip(" \t\r\f\v\ufeff")) or code[0] == "#":
                    continue
                held = _Open(number)
            held.parts.append(text)
            self._scan(held, text, number)
            if not held.brackets and not text.rstrip().endswith("\\"):
                yield held.finish()
                held = None
        if held is not None:
            self._never_closed(held)
            yield held.finish()

    def _scan(self, held: _Open, text: str, number: int) -> None:
        """Follows the brackets of one line of the file."""
        for match in _TOKENS.finditer(text):
            sign, column = match.group(), match.start() + 1
            if sign == "#":
                return
            if sign == '"':
                self._report(
                    held,
                    number,
                    column,
                    "this text is never closed",
                    'end it with " on the same line',
                )
                held.brackets.clear()
                return
            if sign in "([":
                held.brackets.append((sign, number, column))
                if len(held.brackets) > NESTING:
                    message = f"brackets nest deeper than {NESTING}"
                    self._report(
                        held, number, column, message, "give the inner parts names of their own"
                    )
                    held.brackets.clear()
                    return
            elif sign in _CLOSES:
                self._close(held, sign, number, column)

    def _close(self, held: _Open, sign: str, number: int, column: int) -> None:
        if not held.brackets:
            if not held.broken:
                self._report(
                    held,
                    number,
                    column,
                    f"'{sign}' closes nothing",
                    "remove it, or open a bracket before",
                )
            return
        opened, line, at = held.brackets.pop()
        if opened != _CLOSES[sign] and not held.broken:
            where = f"column {at}" if line == number else f"line {line}, column {at}"
            message = f"'{opened}' of {where} is closed by '{sign}'"
            self._report(
                held, number, column, message, f"close it with '{')' if opened == '(' else ']'}'"
            )

    def _never_closed(self, held: _Open) -> None:
        if not held.brackets:  # the last line ends with a backslash
            return
        sign, line, column = held.brackets[-1]
        if not held.broken:
            message = f"'{sign}' is never closed"
            self._report(held, line, column, message, f"add '{')' if sign == '(' else ']'}'")

    def _report(self, held: _Open, line: int, column: int, message: str, hint: str) -> None:
        held.broken = True
        self.diagnostics.append(
            Diagnostic(Span(self.file, line, column, line, column + 1), message, hint)
        )


def _begins_anew(held: _Open, text: str) -> bool:
    """Whether a line begins a statement although a bracket is open: then somebody forgot to close it."""
    if _STARTS.match(text):
        return True
    if not _LET.match(text):
        return False
    # `scale = 1` in a kernel's first line is a parameter without its type
    code = text.split("#")[0].rstrip()
    return not _HEADER.match(held.parts[0]) or not ("->" in code or code.endswith((",", ")")))
