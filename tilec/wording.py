"""What to say about a line that the grammar refuses: in terms of what the user meant, not of the grammar."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

Words = tuple[str, str | None]
"""A message and a hint."""

FOREIGN = {
    **dict.fromkeys(("for", "while"), "there are no loops: reduce over an axis, as in sum[j](…)"),
    **dict.fromkeys(
        ("import", "from"), "every function of the language is there without an import"
    ),
    "return": "name the result as the kernel's outputs do",
    "lambda": "write a def line",
    "elif": "write A if COND else B if COND2 else C",
    "class": "a file holds kernels and functions",
    "in": "compare with ==, or reduce with any[t](…)",
    "is": "compare with ==",
    "let": "write NAME = EXPR",
    "if": "write NAME = A if COND else B",
}
"""Words of other languages, and what to write here."""

FOREIGN_FUNCTIONS = {
    **dict.fromkeys(("where", "select", "masked_fill"), "write A if COND else B"),
    **dict.fromkeys(
        ("cumsum", "cumprod", "scan"),
        "running sums cannot be said: give one as an input, or sum what an if keeps",
    ),
    **dict.fromkeys(
        ("matmul", "dot", "einsum", "bmm"), "multiply and sum with sum[d](A[i, d] * B[d, j])"
    ),
    **dict.fromkeys(("transpose", "permute"), "reorder the indices"),
    **dict.fromkeys(("arange", "range", "iota"), "as a number, an axis is the position: write j"),
    **dict.fromkeys(("var", "std"), "write it out: mean[j]((x - mean[j](x)) ** 2)"),
    **dict.fromkeys(("argmax", "argmin"), "write it out: min[j](j if x == max[j](x) else N)"),
    **dict.fromkeys(
        ("topk", "sort", "argsort"), "data cannot be sorted: give positions as an input"
    ),
    "prod": "write it out: exp(sum[j](log(x))) where x > 0",
    "gelu": "write it out: 0.5 * x * (1 + erf(x / sqrt(2)))",
    "softplus": "write it out: log(1 + exp(x))",
    "dropout": "write it out: x / (1 - rate) if uniform(seed, i, j) >= rate else 0",
    "maximum": "write max(x, y)",
    "minimum": "write min(x, y)",
    "ln": "write log(…)",
    "len": "the length of a dimension is its name",
}
"""Functions of other languages, and what to write here."""

_INFINITY = "write inf: minus infinity is -inf"
FOREIGN_NAMES = {
    **dict.fromkeys(("infinity", "Infinity", "INFINITY", "infty"), _INFINITY),
    "True": "write true",
    "False": "write false",
    "None": "every value is a number",
}
"""Constants of other languages, and what to write here."""

_CHARACTERS = {
    "!": "write not, or != to compare",
    "@": "multiply and sum with sum[d](A[i, d] * B[d, j])",
    "{": "use ( ) or [ ]",
    "}": "use ( ) or [ ]",
    ";": "write one statement per line",
    "'": 'a number has no quotes, as in -inf; the message of an assert is written "…"',
    **dict.fromkeys("`\u2018\u2019\u201c\u201d", 'text is written in double quotes: "…"'),
    "\\": "a line continues inside brackets",
    "?": "write A if COND else B",
    "\u2212": "write - for minus",
    "\u00d7": "write * for times",
    "\u00b7": "write * for times",
    "\u2264": "write <=",
    "\u2265": "write >=",
    "\u2260": "write !=",
    "\u221e": "write inf",
    "\u2192": "write ->",
    "\u00a0": "this blank is a no-break space: use a plain one",
}


def near(name: str, known: Iterable[str]) -> str | None:
    """A hint with the known name closest to one that is not known."""
    known = list(known)[:1000]
    found = [k for k in known if k.lower() == name.lower()]
    if not found and len(name) > 1:
        found = difflib.get_close_matches(name, known, 1, 0.6)
    return f"did you mean '{found[0]}'?" if found else None


def count(n: int, one: str, many: str | None = None) -> str:
    """`1 index`, `2 indices`"""
    return f"{n} {one if n == 1 else many or one + 's'}"


def unexpected_character(char: str, after: str = "") -> Words:
    """A character that begins no word of the language. `after`: the text behind it."""
    if char == ".":
        return _unexpected_dot(after)
    if char.isalpha():
        return (
            f"unexpected character '{char}'",
            "names are made of the letters a to z, digits and _",
        )
    if char.isprintable():
        hint = "numbers are made of the digits 0 to 9" if char.isdecimal() else None
        return f"unexpected character '{char}'", _CHARACTERS.get(char, hint)
    hint = _CHARACTERS.get(char, "it cannot be seen: delete it, or put a blank in its place")
    return f"unexpected character {char!a}", hint


def _unexpected_dot(after: str) -> Words:
    """`K[..., d]`, `x.exp()`, `torch.exp(x)`, `K.shape`"""
    if after.startswith(".."):
        return "there is no '...': an index names an axis", "name it, as in K[b, h, j, d]"
    if called := re.match(r"(\w+)\s*\(", after):
        written = "a call begins with its function, as in exp(x) and sum[j](x)"
        return "unexpected '.'", FOREIGN_FUNCTIONS.get(called[1], written)
    hint = "there are no attributes: a size is the name of its dimension; a float is written 0.5"
    return "unexpected '.'", hint


@dataclass(frozen=True, slots=True)
class Unexpected:
    """A word that cannot stand where it stands: its terminal in the grammar (`$END`: the end of the line), those that
    could, and the text before it."""

    word: str
    type: str
    expected: frozenset[str]
    before: str


def unexpected_token(e: Unexpected, kind: str) -> Words:
    """What to say about a word in a line of some kind."""
    word, type, expected, before = e.word, e.type, e.expected, e.before
    end = type == "$END"
    if word == "=" and kind == "axis" and before.endswith("<"):
        return "an axis line gives a bound with '<'", "write axis c < 512"
    if word == "=" and "PLUS" in expected and _NAMED.search(before):
        return "arguments have no names", "axes stand in brackets, as in softmax[j](…)"
    if word == "=" and "PLUS" in expected:
        return "unexpected '='", "write == to compare"
    if word == ":" and _in_brackets(before):
        return "there are no slices: an index names an axis", "name it, as in K[b, h, j, d]"
    if kind == "kernel" and not end and before.endswith("]:"):
        return f"'{word}' follows the ':' of the kernel's first line", _BELOW
    if not end and word in FOREIGN and word != "if":
        return f"the language has no '{word}'", FOREIGN[word]
    if type == "NAME" and before.split()[-1:] == ["lambda"]:
        return "the language has no 'lambda'", FOREIGN["lambda"]
    if "ELSE" in expected and "COLON" not in expected:
        return "this 'if' has no 'else'", "write A if COND else B"
    if words := _of_header(e, kind):
        return words
    if type == "STRING":
        return "text in quotes can only be the message of an assert", 'write assert COND, "message"'
    if _begins_operand(expected):
        return _missing_operand(word, end, before)
    return _after_operand(type, word, end, expected, kind)


_NAMED = re.compile(r"[\w\]]\([^()]*,\s*\w+\s*$")
"""What stands before the `=` of `softmax(S, axis=j)`."""


def _in_brackets(before: str) -> bool:
    """Whether the innermost bracket that is open is a square one."""
    open_: list[str] = []
    for c in before:
        if c in "([":
            open_.append(c)
        elif c in ")]" and open_:
            open_.pop()
    return open_[-1:] == ["["]


def _begins_operand(expected: frozenset[str]) -> bool:
    return "NUMBER" in expected


def _missing_operand(word: str, end: bool, before: str) -> Words:
    """An operand must come, and something else does."""
    if end:
        return "the line ends where an expression must come", None
    twice = before[-1:] + word
    if twice in ("&&", "||"):
        return f"'{twice}' is not in the language", f"write {'and' if word == '&' else 'or'}"
    if word == "+":
        return "an operand is missing before '+'", "there is no sign '+': leave it out"
    if word == "=":
        return "an expression is missing before '='", "write == to compare" if before[
            -1:
        ] in "=!<>" else None
    if word in ("kernel", "def", "axis", "assert", "sizes", "sample", "if", "else", "and", "or"):
        return (
            f"an expression is missing before '{word}'",
            f"'{word}' is a word of the language, not a name",
        )
    return f"an expression is missing before '{word}'", None


def _of_header(e: Unexpected, kind: str) -> Words | None:
    """What is missing in the fixed parts of a line."""
    word, type, expected, before = e.word, e.type, e.expected, e.before
    end = type == "$END"
    if kind == "function" and type == "COLON" and (shape := _DEFINED.match(before)):
        written = " ".join(shape.group().split())
        kernel = f"kernel {shape.group(1)}(Q[B, H, M, D], …) -> O[b, h, i, e]:"
        hint = f"write {written} = EXPR; what has tensors and several lines begins {kernel}"
        return "a function is one expression, which follows a '='", hint
    if kind == "kernel" and "_ARROW" in expected:
        return "the kernel's outputs are missing", "write -> O[b, h, i, e]: after the parameters"
    if kind == "kernel" and end and "COLON" in expected:
        return "':' is missing at the end of the kernel's first line", None
    if type == "COLON" and kind in ("let", "function", "axis", "assertion", "sample"):
        return (
            "unexpected ':'",
            "only a kernel's first line ends with ':'" if kind != "let" else "write NAME = EXPR",
        )
    if "NAME" in expected and "NUMBER" not in expected and not end:
        what = {"sizes": "a dimension", "kernel": "a parameter or an output"}.get(kind, "a name")
        if type in ("IF", "ELSE", "AND", "OR", "NOT"):
            return f"'{word}' is a word of the language, not a name", "choose another name"
        if kind == "kernel" and word == "*":
            return "unexpected '*'", "write each parameter: Q[B, H, M, D]"
        return f"{what} must come before '{word}'", None
    if "NAME" in expected and "NUMBER" not in expected:
        if kind == "kernel":
            return (
                "the line ends within an output",
                "write its axes in brackets: O[b, h, i], or O[] for a single number",
            )
        return "the line ends where a name must come", None
    if expected == frozenset(("LPAR",)):
        return f"'(' is missing {'at the end' if end else f'before {word!r}'}", _SHAPE.get(kind)
    if expected == frozenset(("EQUAL",)):
        return f"'=' is missing {'at the end' if end else f'before {word!r}'}", _SHAPE.get(kind)
    if expected == frozenset(("LESS",)):
        return "an axis line gives a bound with '<'", "write axis c < 512"
    if expected == frozenset(("NUMBER",)):
        return f"an integer must come {'at the end' if end else f'before {word!r}'}", _SHAPE.get(
            kind
        )
    return None


_DEFINED = re.compile(r"\s*def\s+(\w+)\s*\([^()]*\)$")
"""What stands before the `:` of `def f(x, y):`."""

_BELOW = "statements come on lines of their own below it, indented"

_SHAPE = {
    "kernel": "write kernel NAME(Q[B, H, M, D], …) -> O[b, h, i, e]:",
    "function": "write def NAME(x, y) = EXPR",
    "sizes": "write sizes B=1, H=8",
    "sample": "write sample NAME[h] = EXPR",
    "axis": "write axis c < 512",
    "let": "write NAME = EXPR",
}


def _after_operand(type: str, word: str, end: bool, expected: frozenset[str], kind: str) -> Words:
    """An expression or a part of the line is complete, and something follows."""
    if end:
        return "the line ends too early", _SHAPE.get(kind)
    if type in ("NAME", "NUMBER", "LPAR", "NOT"):
        missing = "an operator or a comma" if "COMMA" in expected else "an operator"
        return f"{missing} is missing before '{word}'", None
    if word == "->":
        return "unexpected '->'", "only a kernel has outputs"
    if word == ",":
        return "unexpected ','", "commas separate arguments, indices and parameters"
    return f"unexpected '{word}'", _SHAPE.get(kind) if kind in ("kernel", "sizes") else None
