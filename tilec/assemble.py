"""One op of the IR text: from its word, operands and attributes to the fields of its class, by the table of `tilec.text`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

from lark import Token

from tilec import ir
from tilec.dtypes import SIZES
from tilec.functions import FUNCTIONS, REDUCTIONS
from tilec.ir import Body, Op, Value
from tilec.text import TEXT, Part, parts


class Mistake(Exception):
    """A mistake at a token, or where only the line is known, in that line."""

    def __init__(self, at: Token | tuple[int, int], message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint
        if isinstance(at, Token):
            self.line, self.column, self.width = at.line or 1, at.column or 1, len(at)
        else:
            (self.line, self.column), self.width = at, 1


def near(word: str, words: Iterable[str]) -> str | None:
    """A hint that names the word that was probably meant."""
    found = difflib.get_close_matches(word, sorted(words), 1)
    return f"did you mean {found[0]}?" if found else None


@dataclass(frozen=True, slots=True)
class Keyword:
    """`name=value` between the operands. The value: an operand, a `Text`, or a list of extents."""

    name: Token
    value: Any


class Text(str):
    """A string between quotes, which is no name."""


Extents = list[tuple[str, "int | None"]]
"""A list in brackets: names, each with a number after a colon or without one."""

_PLAIN: tuple[type[Op], ...] = (
    *(ir.Load, ir.Store, ir.Buffer, ir.Cast, ir.Contract),
    *(ir.Yield, ir.Group, ir.Grid, ir.For, ir.If),
)
_OPS: dict[str, type[Op]] = {
    **{op.word: op for op in _PLAIN},
    **dict.fromkeys(("first", "last"), ir.Edge),
}


def assemble(
    results: tuple[Value, ...],
    word: Token,
    items: tuple[Any, ...],
    arguments: tuple[Value | str, ...] | None,
    blocks: list[Body],
) -> Op:
    """The op. Raises Mistake for a word that is none, and for what it does not take or lacks."""
    given = {str(x.name): x for x in items if isinstance(x, Keyword)}
    positional = [x for x in items if not isinstance(x, Keyword)]
    if len(given) + len(positional) < len(items):
        raise Mistake(word, f"an attribute of {word} is given twice")
    op = _class_of(word, "over" in given)
    fields: dict[str, Any] = {"results": results}
    for part in parts(op):
        if part.place == "word":
            fields[part.name] = str(word)
        elif part.place == "positional":
            fields[part.name] = _name_or_operand(
                word, part, positional.pop(0) if positional else None
            )
        elif part.place == "spread":
            fields[part.name], positional = tuple(positional), []
        elif part.place == "region":
            fields[part.name] = _block(word, blocks)
        elif part.place == "arguments":
            fields[part.name] = _arguments(word, results, arguments or ())
            arguments = None
        elif part.name in given:
            fields[part.name] = _attribute(part, given.pop(part.name))
        elif part.required:
            raise Mistake(word, f"{word} needs {part.name}=")
    _nothing_left(word, op, given, positional, arguments, blocks)
    return op(**fields)


def _class_of(word: Token, reduces: bool) -> type[Op]:
    if word in _OPS:
        return _OPS[word]
    if reduces and word in REDUCTIONS:
        return ir.Reduce
    if word in FUNCTIONS:
        return ir.Map
    if word in REDUCTIONS:
        raise Mistake(word, f"{word} needs over=")
    hint = near(word, {*_OPS, *FUNCTIONS, *REDUCTIONS})
    raise Mistake(word, f"no op is called {str(word)!r}", hint)


def _nothing_left(
    word: Token,
    op: type[Op],
    given: dict[str, Keyword],
    positional: list[Any],
    arguments: Any,
    blocks: list[Body],
) -> None:
    for x in given.values():
        names = [p.name for p in parts(op) if p.place == "keyword"]
        hint = f"it takes {', '.join(names)}" if names else "it takes none"
        raise Mistake(x.name, f"{word} has no attribute {x.name}", hint)
    if positional:
        raise Mistake(word, f"{word} takes fewer operands")
    if arguments:
        raise Mistake(word, f"{word} has no arguments")
    if blocks:
        raise Mistake(word, f"{word} has fewer regions")


def _name_or_operand(word: Token, part: Part, x: Any) -> Any:
    if x is None:
        raise Mistake(word, f"{word} needs one more operand, its {part.name}")
    if part.type == "str" and not isinstance(x, str):
        raise Mistake(word, f"the {part.name} of {word} must be a name")
    return x


def _block(word: Token, blocks: list[Body]) -> Body:
    if not blocks:
        raise Mistake(word, f"{word} needs one more region {{ … }}")
    return blocks.pop(0)


def _arguments(
    word: Token, results: tuple[Value, ...], arguments: tuple[Value | str, ...]
) -> tuple[Value, ...]:
    if any(isinstance(x, str) for x in arguments) and len(arguments) != len(results):
        raise Mistake(word, f"{word} has {len(results)} results and {len(arguments)} arguments")
    return tuple(
        Value(x, results[n].type) if isinstance(x, str) else x for n, x in enumerate(arguments)
    )


def _attribute(part: Part, keyword: Keyword) -> Any:
    """The value of an attribute, checked against the annotation of its field."""
    x = keyword.value

    def wrong(expected: str) -> Mistake:
        return Mistake(keyword.name, f"{keyword.name} must be {expected}")

    if part.type == "tuple[str, ...]":
        if isinstance(x, str) and not isinstance(x, Text):
            return (x,)
        if not isinstance(x, list) or any(n is not None for _, n in cast(Extents, x)):
            raise wrong("an axis or a list of axes")
        return tuple(a for a, _ in cast(Extents, x))
    if part.type == "tuple[tuple[str, int], ...]":
        if not isinstance(x, list) or any(n is None for _, n in cast(Extents, x)):
            raise wrong("a list of axes with their tile extents, [b:1, i:128]")
        return tuple(cast("list[tuple[str, int]]", x))
    if (part.type == TEXT) != isinstance(x, Text):
        raise wrong("text between quotes" if part.type == TEXT else "a name or a literal")
    if isinstance(x, Text):
        return str(x)
    if isinstance(x, list):
        raise wrong("one value")
    if part.type == "bool" and not isinstance(x, bool):
        raise wrong("true or false")
    if part.type == "int | None" and (isinstance(x, bool) or not isinstance(x, int)):
        raise wrong("an integer")
    if part.type in ("str", "DType") and not isinstance(x, str):
        raise wrong("a name")
    if part.type == "DType" and x not in SIZES:
        raise wrong(f"one of {', '.join(SIZES)}")
    return x
