"""Text to syntax tree: the structure of a file, made of logical lines.

A mistake in one line leaves the others readable: it is noted in the program's diagnostics, and what the line would have
defined is kept as far as it can be told, so that its users are not reported too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

from tilec import phrases, syntax
from tilec.errors import Diagnostic, Span
from tilec.lines import Line, Splitter, ended
from tilec.scope import MISTAKES
from tilec.syntax import Broken, Def, Name, Program, Statement
from tilec.wording import FOREIGN, near, unexpected_character

LONGEST = 65_536
"""How many characters a program may have."""
LONGEST_LINE = 10_000
"""How many characters a statement may have."""

_WORDS = {
    "kernel": "kernel",
    "def": "function",
    "sizes": "sizes",
    "sample": "sample",
    "axis": "axis",
    "assert": "assertion",
}
_TOP = ("kernel", "sizes", "sample")
_INSIDE = ("axis", "assertion", "let")
_FUNCTION = re.compile(r"\s*(\w+\s*\([\w\s,]*\))\s*=(?!=)")
"""A function without its `def`."""
_FIRST = re.compile(r"[\s\ufeff]*([A-Za-z_][A-Za-z_0-9]*)[ \t]*(\S?\S?)")


def parse(text: str, file: str = "<text>") -> Program:
    """The program that a text says. Its mistakes are in `diagnostics`; nothing is raised."""
    if len(text) > LONGEST:
        span = Span(file, 1, 1, 1, 2)
        message = f"this program has {len(text)} characters; the most is {LONGEST}"
        return Program(text, file, diagnostics=(Diagnostic(span, message),))
    return _File(ended(text), file).read()


@dataclass
class _Body:
    """The kernel whose indented lines are being read. `head` is None where a kernel cannot even be named."""

    head: syntax.KernelDef | None
    indent: str | None = None
    statements: list[Statement] = field(default_factory=list[Statement])
    incomplete: bool = False
    crooked: bool = False  # a line that is not indented as those above was reported


class _File:
    def __init__(self, text: str, file: str) -> None:
        self.program = Program(text, file)
        self.splitter = Splitter(text, file)
        self.diagnostics = self.splitter.diagnostics
        self.base: str | None = None
        self.body: _Body | None = None

    def read(self) -> Program:
        for line in self.splitter.lines():
            if len(self.diagnostics) >= MISTAKES:
                break
            if self.base is None:
                self.base = line.indent
            if line.indent == self.base:
                self.top(line)
            else:
                self.inside(line)
        self.finish()
        if not self.program.kernels and not self.diagnostics:
            span = Span(self.program.file, 1, 1, 1, 2)
            hint = "write kernel NAME(Q[B, H, M, D], …) -> O[b, h, i, e]: and indented statements"
            self.diagnostics.append(Diagnostic(span, "the file holds no kernel", hint))
        return replace(self.program, diagnostics=tuple(self.diagnostics))

    def report(self, span: Span, message: str, hint: str | None = None) -> None:
        self.diagnostics.append(Diagnostic(span, message, hint))

    def start(self, line: Line, width: int = 1) -> Span:
        """The first word of a line."""
        lead = len(line.text) - len(line.text.lstrip())
        match = _FIRST.match(line.text)
        column, width = (match.start(1) + 1, len(match.group(1))) if match else (lead + 1, width)
        return Span(self.program.file, line.number, column, line.number, column + width)

    # ---- lines

    def top(self, line: Line) -> None:
        """A line that is not indented."""
        kind = self.kind(line)
        if kind in _INSIDE and self.body is not None and self.body.head is not None:
            hint = f"indent it as the other lines of '{self.body.head.name.name}'"
            self.report(self.start(line), "this line belongs into a kernel", hint)
            self.statement(kind, line)
            return
        self.finish()
        if kind in _INSIDE:
            hint = "write kernel NAME(…) -> O[…]: before it, and indent it"
            self.report(self.start(line), "this line belongs into a kernel", hint)
        elif kind is None:
            self.unknown(line)
            self.skip(line)
        elif kind == "function":
            if (node := self.define(line)) is not None:
                self.function(node)
            self.skip(line)
        elif (phrase := self.phrase(kind, line)) is not None:
            self.keep(phrase)
        elif kind == "kernel":
            self.body = _Body(self.broken_kernel(line))

    def skip(self, line: Line) -> None:
        """Where a line that begins no kernel ends as one does, what is indented below it belongs to that."""
        if line.text.partition("#")[0].rstrip().endswith(":"):
            self.body = _Body(None)

    def inside(self, line: Line) -> None:
        """An indented line."""
        if self.body is None:
            self.report(
                self.start(line),
                "this line is indented, but belongs to no kernel",
                "remove the blanks before it",
            )
            self.body = _Body(None)
        elif self.body.indent is None:
            self.check_first_indent(line)
        elif line.indent != self.body.indent:
            self.bad_indent(line, self.body.indent)
        kind = self.kind(line)
        if kind in _TOP:
            self.report(
                self.start(line),
                f"a '{_first(line)}' line is not part of a kernel",
                "remove the blanks before it",
            )
        elif kind is None:
            self.unknown(line)
            self.body.incomplete = True
        else:
            self.statement(kind, line)

    def check_first_indent(self, line: Line) -> None:
        assert self.body is not None
        assert self.base is not None
        self.body.indent = line.indent
        if " " in line.indent and "\t" in line.indent:
            self.report(
                self.start(line), "the indentation mixes tabs and blanks", "indent with blanks only"
            )
        elif not line.indent.startswith(self.base):
            self.bad_indent(line, self.base)

    def bad_indent(self, line: Line, expected: str) -> None:
        """Reports a line that is not indented as those above; once in a kernel, since the next ones may follow it."""
        assert self.body is not None
        if self.body.crooked:
            return
        self.body.crooked = True
        if ("\t" in line.indent) != ("\t" in expected):
            has, had = ("a tab", "blanks") if "\t" in line.indent else ("blanks", "tabs")
            message = f"this line is indented with {has}, the lines above with {had}"
            self.report(self.start(line), message, "indent with blanks only")
        else:
            more = "more" if len(line.indent) > len(expected) else "less"
            message = f"this line is indented {more} than the lines above"
            self.report(self.start(line), message, f"indent it by {len(expected)}")

    def statement(self, kind: str, line: Line) -> None:
        assert self.body is not None
        node = self.define(line) if kind == "function" else self.phrase(kind, line)
        self.body.incomplete |= node is None
        if node is None and kind == "let":
            node = syntax.Let(
                self.start(line), Name(self.start(line), _first(line)), Broken(self.start(line))
            )
        if isinstance(node, syntax.Let | syntax.AxisLine | Def | syntax.Assert):
            self.body.statements.append(node)

    def define(self, line: Line) -> Def | None:
        node = self.phrase("function", line)
        if isinstance(node, Def):
            return node
        match = re.match(r"[\s\ufeff]*def\s+([A-Za-z_]\w*)", line.text)
        if not match:
            return None
        span = self.start(line)
        return Def(span, Name(span, match.group(1)), (), Broken(span))

    # ---- what a line is, and what it gives

    def kind(self, line: Line) -> str | None:
        """The kind of phrase that a line must be, or None."""
        match = _FIRST.match(line.text)
        if not match:
            return None
        word, after = match.groups()
        if after[:1] == "=" and after != "==":
            return "let"
        return _WORDS.get(word)

    def phrase(self, kind: str, line: Line) -> phrases.Phrase | None:
        """The phrase of a line, or None where it is wrong; that is reported."""
        if line.broken:
            return None
        if len(line.text) > LONGEST_LINE:
            message = f"this line has {len(line.text)} characters; the most is {LONGEST_LINE}"
            self.report(self.start(line), message, "give parts of it names of their own")
            return None
        try:
            return phrases.read(kind, line, self.program.file)
        except phrases.Mistake as e:
            self.diagnostics.append(e.diagnostic)
            return None

    def unknown(self, line: Line) -> None:
        """A line that is no phrase of the language."""
        if line.broken:
            return
        match = _FIRST.match(line.text)
        if not match:
            char = line.text.strip()[0]
            if char.isascii() and char.isprintable():
                meant = "a comment begins with #" if char in "/'\"" else "write NAME = EXPR"
                meant = "there are no decorators: remove this line" if char == "@" else meant
                message, hint = f"a line cannot begin with '{char}'", meant
            else:
                message, hint = unexpected_character(char)
            self.report(self.start(line), message, hint)
            return
        word, after = match.groups()
        self.report(self.start(line), *_no_statement(word, after, line.text))

    def broken_kernel(self, line: Line) -> syntax.KernelDef | None:
        match = re.match(r"[\s\ufeff]*kernel\s+([A-Za-z_]\w*)", line.text)
        if not match:
            return None
        span = self.start(line)
        return syntax.KernelDef(span, Name(span, match.group(1)), (), (), broken=True)

    # ---- the parts of the program

    def keep(self, phrase: phrases.Phrase) -> None:
        if isinstance(phrase, syntax.KernelDef):
            self.body = _Body(phrase)
        elif isinstance(phrase, syntax.Sample):
            self.program.samples[phrase.name.name] = phrase
        elif isinstance(phrase, dict):
            self.program.sizes.update({n.name: value for n, value in phrase.items()})

    def function(self, node: Def) -> None:
        if node.name.name in self.program.functions:
            self.report(
                node.name.span,
                f"the function '{node.name.name}' is defined twice",
                "give one another name",
            )
        else:
            self.program.functions[node.name.name] = node

    def finish(self) -> None:
        """The end of the kernel that is being read."""
        body, self.body = self.body, None
        if body is None or body.head is None:
            return
        head = replace(body.head, body=tuple(body.statements), incomplete=body.incomplete)
        if not body.statements and not head.broken and body.indent is None:
            message = f"the kernel '{head.name.name}' has no statements"
            self.report(head.name.span, message, "indent them below its first line")
            head = replace(head, broken=True)
        if head.name.name in self.program.kernels:
            self.report(
                head.name.span,
                f"the kernel '{head.name.name}' is defined twice",
                "give one another name",
            )
        else:
            self.program.kernels[head.name.name] = head


def _first(line: Line) -> str:
    match = _FIRST.match(line.text)
    assert match
    return match.group(1)


def _no_statement(word: str, after: str, text: str) -> tuple[str, str | None]:
    """What to say about a line that begins with a word, of which some text comes after."""
    if word in FOREIGN:
        return f"the language has no '{word}' line", FOREIGN[word]
    if after[:1] == "[" and re.search(r"\]\s*=(?!=)", text):
        return (
            f"'{word}' is not defined by this line",
            f"write {word} = EXPR: the axes are those of the expression",
        )
    if after[1:2] == "=" and after[:1] in "+-*/:":
        return f"'{after}' is not in the language", f"write {word} = {word} {after[0]} …" if after[
            0
        ] != ":" else f"write {word} = …"
    if after == "==":
        return f"'==' compares, and this line defines '{word}'", f"write {word} = …"
    if odd := next((c for c in text if not c.isprintable() and c not in "\t\n"), None):
        return unexpected_character(odd)
    if after[:1] == ":" and "=" in text:
        return "a value is declared without a type", f"write {word} = EXPR; f32(…) converts"
    if shape := _FUNCTION.match(text):
        return "a function is defined by a def line", f"write def {shape.group(1).strip()} = EXPR"
    hint = near(word, list(_WORDS)) if after[:1].isalnum() or after[:1] == "_" else None
    return "this line is no statement", hint or "write NAME = EXPR"
