"""What to say about a line that the grammar refuses: in terms of what the user meant, not of the grammar."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tilec.dtypes import SIZES

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
    "xor": "write ^, also between conditions",
    "let": "write NAME = EXPR",
    "if": "write NAME = A if COND else B",
    **dict.fromkeys(
        ("function", "func", "fn"),
        "write kernel NAME(Q[B, H, M, D], …) -> O[b, h, i, e]:, or def NAME(x) = EXPR",
    ),
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

FOREIGN_SIGNS = {
    "&&": "write and",
    "||": "write or",
    "=<": "write <=",
    "=>": "write >=",
    "<>": "write !=",
    "===": "write ==",
    "!==": "write !=",
}
"""Operators of other languages, and what to write here."""

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
    if re.match(r"m?T\b", after):
        return "unexpected '.'", FOREIGN_FUNCTIONS["transpose"]
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
    if kind == "axis" and (
        word == "=" and before.endswith("<") or expected == frozenset(("LESS",))
    ):
        return "an axis line gives a bound with '<'", "write axis c < 512"
    if kind == "assertion" and expected == frozenset(("STRING",)):
        return "the message of an assert is text in quotes", 'write assert COND, "message"'
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
    if type == "NAME" and re.search(r"\blambda$", before):
        return "the language has no 'lambda'", FOREIGN["lambda"]
    if "ELSE" in expected and "COLON" not in expected and type in _CLOSE:
        return "this 'if' has no 'else'", "write A if COND else B"
    if words := _of_header(e, kind):
        return words
    if type == "STRING" and (called := re.search(r"(\w+)\($", before)):
        hint = FOREIGN_FUNCTIONS.get(called[1], "functions take numbers")
        return "text in quotes can only be the message of an assert", hint
    if type == "STRING":
        return "text in quotes can only be the message of an assert", 'write assert COND, "message"'
    if _begins_operand(expected):
        return _missing_operand(word, end, before)
    return _after_operand(e, kind)


_NAMED = re.compile(r"[\w\]]\([^()]*,\s*\w+\s*$")
"""What stands before the `=` of `softmax(S, axis=j)`."""


_CLOSE = ("$END", "RPAR", "RSQB", "COMMA")
"""What an expression may end before."""


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
    last = _LAST.search(before)
    if end:
        hint = f"write what follows '{last.group()}', or remove it" if last else None
        return "the line ends where an expression must come", hint
    if word == "+":
        return "an operand is missing before '+'", "there is no sign '+': leave it out"
    if word in ("kernel", "def", "axis", "assert", "sizes", "sample", "if", "else", "and", "or"):
        return (
            f"an expression is missing before '{word}'",
            f"'{word}' is a word of the language, not a name",
        )
    hint = f"something must stand between '{last.group()}' and '{word}'" if last else None
    return f"an expression is missing before '{word}'", hint


_LAST = re.compile(r"\w+$|[-+*/%<>=!&|^~]+$|[^\w\s]$")
"""The last word or sign of a text."""


def _of_header(e: Unexpected, kind: str) -> Words | None:
    """What is missing in the fixed parts of a line."""
    word, type, expected, before = e.word, e.type, e.expected, e.before
    end = type == "$END"
    if kind == "kernel":
        return _of_kernel(e)
    if kind == "function" and (shape := _DEFINED.match(before)):
        return _of_function(e, shape)
    if type == "COLON" and kind != "sizes":
        hint = "only a kernel's first line ends with ':'" if kind != "let" else "write NAME = EXPR"
        return "unexpected ':'", hint
    if _begins_name(expected) and not end:
        what = "a dimension" if kind == "sizes" else "a name"
        return _no_name(e, what)
    if _begins_name(expected):
        return "the line ends where a name must come", _SHAPE.get(kind)
    if expected in (frozenset(("LPAR",)), frozenset(("EQUAL",))):
        sign = "(" if "LPAR" in expected else "="
        return f"'{sign}' is missing {'at the end' if end else f'before {word!r}'}", _SHAPE[kind]
    if kind == "sizes" and word == "-":
        return "a size cannot be negative", _SHAPE[kind]
    if expected == frozenset(("NUMBER",)):
        what = "at the end" if end else f"before {word!r}"
        return f"an integer must come {what}", _SHAPE.get(kind)
    return None


def _of_function(e: Unexpected, shape: re.Match[str]) -> Words | None:
    """What is wrong in the part of a `def` line before its `=`."""
    kernel = f"kernel {shape[1]}(Q[B, H, M, D], …) -> O[b, h, i, e]:"
    if e.type == "LSQB":
        return "a function takes numbers, no tensors", f"what has tensors begins {kernel}"
    if e.type == "COLON" and shape[0].endswith(")"):
        written = " ".join(shape[0].split())
        hint = f"write {written} = EXPR; what has tensors and several lines begins {kernel}"
        return "a function is one expression, which follows a '='", hint
    return None


def _of_kernel(e: Unexpected) -> Words | None:
    """What is wrong in a kernel's first line."""
    word, type, expected, before = e.word, e.type, e.expected, e.before
    end = type == "$END"
    if before.strip() == "kernel":
        return _no_name(e, "the kernel's name")
    if "_ARROW" in expected:
        return "the kernel's outputs are missing", "write -> O[b, h, i, e]: after the parameters"
    if expected == frozenset(("LPAR",)):
        return f"'(' is missing {'at the end' if end else f'before {word!r}'}", _SHAPE["kernel"]
    if end and "COLON" in expected:
        return "':' is missing at the end of the kernel's first line", "add ':' there"
    if type == "COLON" and before.endswith("]"):
        return "unexpected ':'", "a type comes before the dimensions: Q: f32[B, H, M, D]"
    if _begins_name(expected) and end:
        hint = "write its axes in brackets: O[b, h, i], or O[] for a single number"
        return "the line ends within an output", hint
    if _begins_name(expected):
        return _no_name(e, "a parameter or an output")
    if _begins_operand(expected) or "PLUS" in expected or type not in ("NAME", "LPAR"):
        return None
    return _between_parameters(word, before)


def _between_parameters(word: str, before: str) -> Words:
    """A name or a parenthesis behind what may be a whole parameter or output."""
    last = re.search(r"\w+$", before)
    if word == "(" and last:
        message = f"the dimensions of '{last[0]}' stand in square brackets"
        return message, f"write {last[0]}[B, H, M, D]"
    if last and last[0] in _TYPES:
        message = f"the type '{last[0]}' stands before a name"
        return message, f"write the name first: {word}: {last[0]}[B, H, M, D]"
    return f"a comma is missing before '{word}'", "commas separate parameters, and outputs"


def _begins_name(expected: frozenset[str]) -> bool:
    return "NAME" in expected and "NUMBER" not in expected


def _no_name(e: Unexpected, what: str) -> Words:
    """A name must come, and something else does."""
    if e.type == "$END":
        return f"the line ends where {what} must come", _SHAPE["kernel"]
    if e.type in ("IF", "ELSE", "AND", "OR", "NOT"):
        return f"'{e.word}' is a word of the language, not a name", "choose another name"
    if e.word[0].isdigit():
        return f"'{e.word}' is not a name", "names begin with a letter"
    if e.word == "*":
        return "unexpected '*'", "write each parameter: Q[B, H, M, D]"
    outputs = e.word == "(" and e.before.endswith("->")
    hint = "write the outputs without parentheses: O[b, h, i, e], L[b, h, i]" if outputs else None
    return f"{what} must come before '{e.word}'", hint


_TYPES = (*SIZES, "int", "float", "bool")
"""Words that stand behind the `:` of a parameter."""

_DEFINED = re.compile(r"\s*def\s+(\w+)\s*\([^()]*\)?$")
"""What stands before the `:` of `def f(x, y):`, and before the `[` of `def f(Q[`."""

_BELOW = "statements come on lines of their own below it, indented"

_SHAPE = {
    "kernel": "write kernel NAME(Q[B, H, M, D], …) -> O[b, h, i, e]:",
    "function": "write def NAME(x, y) = EXPR",
    "sizes": "write sizes B=1, H=8",
    "sample": "write sample NAME[h] = EXPR",
    "axis": "write axis c < 512",
    "let": "write NAME = EXPR",
}


def _after_operand(e: Unexpected, kind: str) -> Words:
    """An expression or a part of the line is complete, and something follows."""
    word, last = e.word, (e.before.split() or [""])[-1]
    if e.type == "$END":
        return "the line ends too early", _SHAPE.get(kind)
    if last in ("if", "else", "and", "or") and e.type in _OPERAND:
        hint = (
            FOREIGN["elif"] if last == "if" else f"'{last}' is a word of the language, not a name"
        )
        return f"an expression is missing before '{last}'", hint
    if e.type in _OPERAND:
        missing = "an operator or a comma" if "COMMA" in e.expected else "an operator"
        return f"{missing} is missing before '{word}'", _applied(e)
    if word == "->":
        return "unexpected '->'", "only a kernel has outputs"
    if word == ",":
        return "unexpected ','", "commas separate arguments, indices and parameters"
    return f"unexpected '{word}'", _SHAPE.get(kind) if kind in ("kernel", "sizes") else None


_OPERAND = ("NAME", "NUMBER", "LPAR", "NOT")
"""What an operand may begin with."""


def _applied(e: Unexpected) -> str | None:
    """`exp x` may be meant as a call, `2 x` as a product."""
    last = re.search(r"\w+$", e.before)
    if e.type == "NOT":
        return "write == or != to compare, `and` or `or` to connect"
    if last is None or e.type == "LPAR":
        return "write * to multiply"
    meant = [f"{last[0]}, {e.word}"] if "COMMA" in e.expected else []
    meant += [f"{last[0]}({e.word})"] if not last[0][0].isdigit() else []
    return f"write {' or '.join((*meant, f'{last[0]} * {e.word}'))}"
