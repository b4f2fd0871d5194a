"""One page that shows a kernel on its way through the pipeline: it needs no other file and loads nothing.

At the left the program and the passes with their bytes; beside them the IR before and after a pass, changes marked; the
dataflow; the generated code. A line of the program, and everything that came from it, light up together.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from tilec import pipeline, text
from tilec.ir import Kernel
from tilec.page.graph import svg
from tilec.roofline import Stage

AT = re.compile(r"\s+# (?P<file>.*):(?P<line>\d+):\d+$")
"""A location at the end of a line of IR text."""
IN_CODE = re.compile(r"//.*\s(?P<file>\S+):(?P<line>\d+)$")
"""A location in a comment of generated code; it holds until the next one."""

FROM = re.compile(r", !from !(?P<name>\d+)$")
"""What an instruction of LLVM carries that says where it comes from; PLACE is what that says."""
PLACE = re.compile(r'^!(?P<name>\d+) = !\{ !".*:(?P<line>\d+)" \}$', re.MULTILINE)


@dataclass(frozen=True)
class Line:
    """A line of text, and the line of the program that it comes from."""

    text: str
    at: int | None = None


@dataclass(frozen=True)
class Page:
    """What is shown.

    `stages`: the IR after each pass, the first as lowered; `budgets`: their figures; `code`: what runs, in a `language`.
    """

    title: str
    program: str
    stages: Sequence[tuple[str, Kernel]]
    budgets: Sequence[Stage]
    language: str
    code: str

    def text(self) -> str:
        """The HTML."""
        (_, first), names = self.stages[0], [n for n, _ in self.stages]
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en"><head><meta charset="utf-8">',
                f"<title>{escape(self.title)}</title><style>{_resource('page.css')}</style></head><body>",
                f'<nav><h1>{escape(first.name)}</h1><p class="sizes">{escape(self.title)}</p>',
                "<h2>Program</h2>",
                _listing(_program(self.program), numbered=True),
                "<h2>Passes</h2>",
                *self._passes(names),
                "</nav><main>",
                *(self._section(n) for n in range(len(self.stages))),
                self._code(),
                f"</main><script>{_resource('page.js')}</script></body></html>",
                "",
            ]
        )

    def _passes(self, names: Sequence[str]) -> Iterator[str]:
        most = max((s.moved for s in self.budgets), default=1) or 1
        for n, (name, s) in enumerate(zip(names, self.budgets, strict=True)):
            summary = "the program as written" if n == 0 else pipeline.summary(name)
            width = 100 * s.moved / most
            yield (
                f'<a class="pass" href="#pass-{n}" data-pass="{n}" title="{escape(summary)}"><b>{escape(name)}</b>'
                f"<i>{s.moved:,} bytes · {escape(s.bound.holds)}</i>"
                '<svg class="bar" viewBox="0 0 100 4" preserveAspectRatio="none">'
                f'<rect width="{width:.3f}" height="4"/></svg></a>'
            )
        yield '<a class="pass" href="#code" data-pass="code"><b>code</b><i>what runs</i></a>'

    def _section(self, n: int) -> str:
        name, kernel = self.stages[n]
        s = self.budgets[n]
        before = self.stages[n - 1] if n else None
        head = f"after {name}" if before is None else f"{before[0]} → {name}"
        tables = (
            _listing(lines(kernel))
            if before is None
            else side_by_side(lines(before[1]), lines(kernel))
        )
        return (
            f'<section id="pass-{n}" data-pass="{n}"><h2>{escape(head)}</h2>'
            f"<p>{_prose('as lowered' if before is None else pipeline.summary(name))}</p>"
            f"<p>{s.read:,} bytes read, {s.written:,} written ({s.compulsory:,} compulsory); {s.work['matrix']:,} matrix, "
            f"{s.work['fma']:,} other, {s.work['special']:,} special operations; bound: {escape(s.bound.holds)}</p>"
            f"{tables}<h3>bytes per op: <span class='r'>read</span>, <span class='w'>written</span></h3>{_bars(s)}"
            "<h3>dataflow</h3>"
            f'<div class="graph">{svg(kernel)}</div></section>'
        )

    def _code(self) -> str:
        found = code_lines(self.code)
        linked = any(x.at is not None for x in found)
        note = (
            ""
            if linked
            else "<p>This form of code carries no places of the program; CUDA text does (--target cuda).</p>"
        )
        return (
            f'<section id="code" data-pass="code"><h2>{escape(self.language)}</h2>{note}'
            f"{_listing(found, numbered=True)}</section>"
        )


def _prose(text: str) -> str:
    """A sentence in which names stand in backticks."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


# ---- lines


def lines(kernel: Kernel) -> list[Line]:
    """The text of a kernel, with places."""
    out: list[Line] = []
    for line in text.show(kernel, locations=True).splitlines():
        found = AT.search(line)
        out.append(Line(line) if found is None else Line(line[: found.start()], int(found["line"])))
    return out


def code_lines(code: str) -> list[Line]:
    """Generated code: a line belongs to the place that it names itself, or the last comment before it does."""
    out: list[Line] = []
    at: int | None = None
    places = {m["name"]: int(m["line"]) for m in PLACE.finditer(code)}
    for line in code.splitlines():
        if carried := FROM.search(line):
            out.append(Line(line[: carried.start()], places[carried["name"]]))
            continue
        found = IN_CODE.search(line)
        at = int(found["line"]) if found else None if line.rstrip() == "}" else at
        out.append(Line(line, at))
    return out


def _program(program: str) -> list[Line]:
    return [Line(x, n) for n, x in enumerate(program.splitlines(), 1)]


def _attributes(line: Line, kind: str = "") -> str:
    classes = " ".join(filter(None, (kind, "at" if line.at is not None else "")))
    return (f' class="{classes}"' if classes else "") + (
        f' data-line="{line.at}"' if line.at is not None else ""
    )


def _listing(found: Sequence[Line], numbered: bool = False) -> str:
    rows = (
        f"<div{_attributes(x)}>{f'<u>{n}</u>' if numbered else ''}{escape(x.text) or ' '}</div>"
        for n, x in enumerate(found, 1)
    )
    return f"<pre>{''.join(rows)}</pre>"


def side_by_side(before: Sequence[Line], after: Sequence[Line]) -> str:
    """Two listings in rows; what is gone, new or changed is marked, changed words by themselves. What only moved into a
    region or out of it is the same."""
    a, b = (
        [x.text if x.text.strip() == "}" else x.text.strip() for x in y] for y in (before, after)
    )
    rows: list[str] = []
    for tag, i0, i1, j0, j1 in difflib.SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        for x, y in itertools.zip_longest(before[i0:i1], after[j0:j1]):
            same = tag == "equal"
            left, right = _pair(x, y, same)
            rows.append(
                f"<tr>{_cell(x, left, '' if same else 'gone')}{_cell(y, right, '' if same else 'new')}</tr>"
            )
    return f'<table class="diff"><tr><th>before</th><th>after</th></tr>{"".join(rows)}</table>'


def _cell(line: Line | None, html: str, kind: str) -> str:
    return "<td></td>" if line is None else f"<td{_attributes(line, kind)}>{html}</td>"


WORD = re.compile(r"\w+|\W")


def _pair(x: Line | None, y: Line | None, same: bool) -> tuple[str, str]:
    """Two lines as HTML; where they are much alike, only the words that differ are marked."""
    if x is None or y is None or same:
        return "" if x is None else escape(x.text), "" if y is None else escape(y.text)
    a, b = WORD.findall(x.text), WORD.findall(y.text)
    match = difflib.SequenceMatcher(None, a, b, autojunk=False)
    if match.ratio() < 0.6:
        return escape(x.text), escape(y.text)
    left, right = "", ""
    for tag, i0, i1, j0, j1 in match.get_opcodes():
        p, q = escape("".join(a[i0:i1])), escape("".join(b[j0:j1]))
        left += p if tag == "equal" or not p else f"<mark>{p}</mark>"
        right += q if tag == "equal" or not q else f"<mark>{q}</mark>"
    return left, right


MOST_BARS = 12


def _bars(s: Stage) -> str:
    """The ops that move most bytes."""
    rows = sorted((r for r in s.rows if r.moved), key=lambda r: -r.moved)
    most = max((r.moved for r in rows), default=1)
    out = [
        f"<tr><td>{escape(r.op)}</td><td class='n'>{r.moved:,}</td><td><svg class='bar' viewBox='0 0 100 4' "
        f"preserveAspectRatio='none'><rect class='r' width='{100 * r.read / most:.3f}' height='4'/><rect "
        f"x='{100 * r.read / most:.3f}' width='{100 * r.written / most:.3f}' height='4'/></svg></td></tr>"
        for r in rows[:MOST_BARS]
    ]
    more = f"<tr><td>{len(rows) - MOST_BARS} more</td></tr>" if len(rows) > MOST_BARS else ""
    return f"<table class='bars'>{''.join(out)}{more}</table>"


def _resource(name: str) -> str:
    return files("tilec.page").joinpath(name).read_text(encoding="utf-8")
