"""One logical line to a piece of the syntax tree, or to one mistake in the user's terms."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, Union, cast

import lark
from lark.exceptions import UnexpectedCharacters, UnexpectedToken
from lark.tree import Meta

from tilec import grammar, syntax
from tilec.errors import Diagnostic, Span
from tilec.lines import Line
from tilec.syntax import Expr, Item, Name
from tilec.wording import FOREIGN_SIGNS, Unexpected, unexpected_character, unexpected_token

DEPTH = 200
"""How deep an expression may nest, operators included."""

KINDS = ("kernel", "function", "sizes", "sample", "axis", "assertion", "let")

LEAST = 1 << 63
"""The least integer, without its sign."""

RESERVED = ("if", "else", "and", "or", "not")

Phrase: TypeAlias = Union[syntax.KernelDef, syntax.Statement, syntax.Sample, dict[Name, int]]


class Mistake(Exception):
    """What is wrong with a line."""

    def __init__(self, span: Span, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.diagnostic = Diagnostic(span, message, hint)


@functools.cache
def _parser() -> lark.Lark:
    return lark.Lark(
        grammar.source("tile"), parser="lalr", start=list(KINDS), propagate_positions=True
    )


def read(kind: str, line: Line, file: str) -> Phrase:
    """The phrase of a logical line; `kind` is one of KINDS. Raises Mistake."""
    place = _Place(file, line.number - 1)
    try:
        tree: Any = cast(Any, _parser()).parse(line.text, start=kind)
    except UnexpectedCharacters as e:
        at = place.line + e.line
        span = Span(file, at, e.column, at, e.column + 1)
        char, after = line.text[e.pos_in_stream or 0], line.text[(e.pos_in_stream or 0) + 1 :]
        raise Mistake(span, *unexpected_character(char, after)) from None
    except UnexpectedToken as e:
        token: Any = e.token
        if sign := _foreign_sign(line.text, e.pos_in_stream or 0):
            hint = FOREIGN_SIGNS[sign[0]]
            message = f"'{sign[0]}' is not in the language"
            raise Mistake(place.within(line.text, *sign.span()), message, hint) from None
        expected = frozenset(map(str, e.accepts or e.expected))
        end = token.end_pos if token.type == "$END" else e.pos_in_stream or 0
        before = line.text[:end].rstrip()
        unexpected = Unexpected(str(token), str(token.type), expected, before)
        raise Mistake(place.of(token), *unexpected_token(unexpected, kind)) from None
    return cast(Phrase, _build(tree, place))


_FOREIGN_SIGN = re.compile("|".join(map(re.escape, sorted(FOREIGN_SIGNS, key=len, reverse=True))))


def _foreign_sign(text: str, at: int) -> re.Match[str] | None:
    """The operator of another language that a place in a text is part of; `=> O[b]` is one in no kernel's first line."""
    if text.lstrip().startswith("kernel"):
        return None
    found = _FOREIGN_SIGN.finditer(text, max(0, at - 2), at + 3)
    return next((m for m in found if m.start() <= at < m.end()), None)


@dataclass(frozen=True)
class _Place:
    """Where a line is in its file: the number of lines before it."""

    file: str
    line: int

    def of(self, x: lark.Token | Meta) -> Span:
        """The span of a token or of a subtree. That of the end of the line is the place just behind it."""
        first, column = self.line + (x.line or 1), x.column or 1
        last, end = self.line + (x.end_line or 1), x.end_column or 1
        if isinstance(x, lark.Token) and str(x.type) == "$END":
            return Span(self.file, last, end, last, end + 1)
        return Span(self.file, first, column, last, end)

    def within(self, text: str, start: int, end: int) -> Span:
        """The span of a stretch of the logical line's text, which ends on the line it begins on."""
        line = self.line + 1 + text.count("\n", 0, start)
        first = text.rfind("\n", 0, start) + 1
        return Span(self.file, line, start - first + 1, line, end - first + 1)


def _build(tree: lark.Tree[lark.Token], place: _Place) -> object:
    """The tree from the leaves up, without recursion."""
    done: dict[int, object] = {}
    depth: dict[int, int] = {}
    negated = {id(t.children[1]) for t in tree.find_data("unary") if t.children[0] == "-"}
    for part in tree.iter_subtrees():
        below = 1 + max((depth.get(id(c), 0) for c in part.children), default=0)
        span = (
            place.of(part.meta)
            if not part.meta.empty
            else Span(place.file, place.line + 1, 1, place.line + 1, 2)
        )
        if below > DEPTH:
            raise Mistake(
                span,
                f"this expression nests deeper than {DEPTH}",
                "give parts of it names of their own",
            )
        children = [done.get(id(c), c) for c in part.children]
        depth[id(part)] = below
        done[id(part)] = _BUILDERS[part.data](_Node(place, span, children, id(part) in negated))
    return done[id(tree)]


@dataclass(frozen=True)
class _Node:
    """A subtree whose children are built: nodes of the syntax tree, and tokens. `negated`: a `-` stands before it."""

    place: _Place
    span: Span
    children: list[Any]
    negated: bool

    def name(self, k: int = 0) -> Name:
        """The child `k`, a NAME."""
        token = cast(lark.Token, self.children[k])
        if str(token) in RESERVED:
            message = f"'{token}' is a word of the language, not a name"
            raise Mistake(self.place.of(token), message, "choose another name")
        return Name(self.place.of(token), str(token))


# ---- expressions

_SIGNS = {
    **{"+": "add", "-": "sub", "*": "mul", "/": "div", "//": "floordiv", "%": "mod", "**": "pow"},
    **{"|": "bitor", "^": "bitxor", "&": "bitand", "<<": "shl", ">>": "shr"},
    **{"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"},
}


def _number(node: _Node) -> Expr:
    text = str(node.children[0])
    return syntax.Number(node.span, number(text, node.span, node.negated))


def number(text: str, span: Span, negated: bool = False) -> int | float:
    """The value of a literal. `negated`: it may be the 2 to the power 63 of the least integer. Raises Mistake."""
    if re.fullmatch(r"0[xX][0-9a-fA-F]+(_[0-9a-fA-F]+)*", text):
        value = int(text, 16) if len(text) < 40 else 1 << 64
    elif re.fullmatch(r"[0-9]+(_[0-9]+)*", text):
        if text[0] == "0" and text.strip("0_"):
            raise Mistake(span, "a number does not begin with 0", f"write {text.lstrip('0_')}")
        value = int(text) if len(text) < 40 else 1 << 64
    else:
        return _float(text, span)
    if value >= LEAST + negated:
        raise Mistake(
            span,
            "this integer does not fit in 64 bits",
            "write it as a float, with a decimal point",
        )
    return value


def _float(text: str, span: Span) -> float:
    if not re.fullmatch(r"([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text):
        raise Mistake(
            span, f"'{_short(text)}' is neither a number nor a name", "names begin with a letter"
        )
    value = float(text)
    if math.isinf(value):
        raise Mistake(span, f"{_short(text)} is larger than any float", "write inf for infinity")
    return value


def _short(text: str) -> str:
    return text if len(text) <= 24 else text[:20] + "…"


def _unary(node: _Node) -> Expr:
    sign, x = node.children
    if isinstance(x, syntax.Number) and x.value == LEAST and isinstance(x.value, int):
        return syntax.Number(node.span, -LEAST)
    return syntax.Unary(node.span, "neg" if sign == "-" else "invert", x)


def _binary(node: _Node) -> Expr:
    x, sign, y = node.children
    return syntax.Binary(node.span, _SIGNS[str(sign)], str(sign), x, y)


def _comparison(node: _Node) -> Expr:
    signs = tuple(_SIGNS[str(c)] for c in node.children[1::2])
    return syntax.Compare(node.span, signs, tuple(node.children[0::2]))


def _call(node: _Node) -> Expr:
    fn, args = node.children
    if isinstance(fn, Name):
        return syntax.Call(node.span, fn, tuple(args))
    if not isinstance(fn, syntax.Index):
        raise Mistake(node.span, "only a function can be called", "write * to multiply")
    axes: list[Name] = []
    for x in fn.index:
        if not isinstance(x, Name):
            message = f"'{fn.tensor.name}' in front of brackets and parentheses is a reduction over axes: names only"
            raise Mistake(x.span, message, f"write {fn.tensor.name}[j](…), or * to multiply")
        axes.append(x)
    return syntax.Reduction(node.span, fn.tensor, tuple(axes), tuple(args))


def _brackets(node: _Node) -> Expr:
    tensor, index = node.children
    if not isinstance(tensor, Name):
        message = "only a tensor parameter can be indexed"
        hint = "a value has no brackets: its axes are those of its expression"
        if isinstance(tensor, syntax.Index):
            hint = "write all indices in one pair of brackets, as in K[b, h, j, d]"
        raise Mistake(node.span, message, hint)
    return syntax.Index(node.span, tensor, tuple(index))


# ---- lines


def _item(node: _Node) -> Item:
    parts = dict(node.children[1:])
    return Item(node.span, node.name(), parts.get("type"), parts.get("dims"), parts.get("default"))


def _kernel(node: _Node) -> syntax.KernelDef:
    _, params, outputs = node.children
    return syntax.KernelDef(node.span, node.name(), params, outputs)


def _sizes(node: _Node) -> dict[Name, int]:
    out: dict[Name, int] = {}
    for name, value in node.children:
        if any(name.name == n.name for n in out):
            raise Mistake(name.span, f"the size {name.name} is given twice", "remove one")
        out[name] = value
    return out


def _size(node: _Node) -> tuple[Name, int]:
    token = node.children[1]
    value = number(str(token), node.place.of(token))
    if isinstance(value, float):
        message = f"the size {node.name().name} must be an integer"
        raise Mistake(node.place.of(token), message, "write sizes B=1, H=8")
    return node.name(), value


def _assertion(node: _Node) -> syntax.Assert:
    text = node.children[1] if len(node.children) > 1 else None
    return syntax.Assert(node.span, node.children[0], "" if text is None else _unquote(str(text)))


def _unquote(text: str) -> str:
    escapes = {"n": "\n", "t": "\t"}
    return re.sub(r"\\(.)", lambda m: escapes.get(m.group(1), m.group(1)), text[1:-1])


_BUILDERS: dict[str, Callable[[_Node], object]] = {
    "name": lambda n: n.name(),
    "number": _number,
    "unary": _unary,
    "binary": _binary,
    "inverse": lambda n: syntax.Unary(n.span, "not", n.children[0]),
    "comparison": _comparison,
    "_compare": lambda n: n.children[0],
    "both": lambda n: syntax.Logic(n.span, "and", tuple(n.children)),
    "either": lambda n: syntax.Logic(n.span, "or", tuple(n.children)),
    "conditional": lambda n: syntax.Conditional(n.span, *n.children),
    "call": _call,
    "brackets": _brackets,
    "list": lambda n: tuple(n.children),
    "names": lambda n: tuple(n.name(k) for k in range(len(n.children))),
    "items": lambda n: tuple(n.children),
    "item": _item,
    "type": lambda n: ("type", n.name()),
    "dims": lambda n: ("dims", n.children[0]),
    "default": lambda n: ("default", n.children[0]),
    "kernel": _kernel,
    "function": lambda n: syntax.Def(n.span, n.name(), n.children[1], n.children[2]),
    "size": _size,
    "sizes": _sizes,
    "sample": lambda n: syntax.Sample(n.span, n.name(), n.children[1], n.children[2]),
    "axis": lambda n: syntax.AxisLine(n.span, n.name(), n.children[2]),
    "assertion": _assertion,
    "let": lambda n: syntax.Let(n.span, n.name(), n.children[1]),
}
