"""Reads the text form of the IR: `read(show(kernel)) == [kernel]`.

The grammar (`grammar/ir.lark`) knows one form of op; `tilec.assemble` makes the op that is meant.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast, get_args

import lark
from lark import Token

from tilec import grammar
from tilec.assemble import Extents, Keyword, Mistake, Text, assemble, near
from tilec.dtypes import SIZES, DType
from tilec.errors import Diagnostic, SourceError, Span
from tilec.functions import FUNCTIONS
from tilec.ir import (
    ABSENT,
    Argument,
    Assertion,
    Axis,
    Body,
    Kernel,
    Op,
    Operand,
    Output,
    Space,
    Tensor,
    Type,
    Value,
)
from tilec.scalar import INFIX, Scalar, evaluable, is_natural
from tilec.text import LITERALS

MAX_REGIONS = 64
"""How deep regions may be nested."""

MAX_OPERATORS = 250
"""How deep the operators of a scalar expression may be nested."""

_SIGNS = {sign: function for function, (sign, _) in INFIX.items()}
_FORM = "an op is written `name: type = word(operands, attribute=value)`"


def read(text: str, file: str = "<ir>") -> list[Kernel]:
    """The kernels of a text. Raises SourceError, with the place in `file`, where it is not IR.

    The ops have no span: the places in the user's program that `show` adds are comments.
    """
    try:
        _check_depth(text)
        return cast(Any, _parser()).parse(text + "\n")
    except Mistake as e:
        raise _error(text, file, e.line, e.column, e.width, e.message, e.hint) from None
    except lark.UnexpectedCharacters as e:
        found = text[e.pos_in_stream : cast(int, e.pos_in_stream) + 1]
        message = f"unexpected character {found!r}"
        raise _error(text, file, e.line, e.column, 1, message, _FORM) from None
    except lark.UnexpectedToken as e:
        raise _unexpected(text, file, cast(Token, e.token)) from None


@functools.cache
def _parser() -> lark.Lark:
    return lark.Lark(grammar.source("ir"), parser="lalr", lexer="contextual", transformer=_Build())


# ---- mistakes


def _error(
    text: str, file: str, line: int, column: int, width: int, message: str, hint: str | None
) -> SourceError:
    span = Span(file, line, column, line, column + width)
    return SourceError([Diagnostic(span, message, hint)], text)


def _unexpected(text: str, file: str, token: Token) -> SourceError:
    lines = text.split("\n")
    if token.type == "$END" or (token.line or 1) > len(lines):
        line, column = len(lines), len(lines[-1]) + 1
        return _error(text, file, line, column, 1, "the text ends inside a kernel", "add a `}`")
    line, column = token.line or 1, token.column or 1
    if token.type == "_NL":
        return _error(text, file, line, column, 1, "the line ends too early", _FORM)
    return _error(text, file, line, column, len(token), f"unexpected {str(token)!r}", _FORM)


def _check_depth(text: str) -> None:
    # Passes recurse into regions, so their depth must be bounded. Braces in strings and comments
    # count too, which only makes the bound stricter.
    depth = 0
    for n, line in enumerate(text.split("\n"), 1):
        depth += line.count("{") - line.count("}")
        if depth > MAX_REGIONS:
            raise Mistake((n, 1), f"regions are nested more than {MAX_REGIONS} deep")


# ---- what the parser calls, rule by rule


@dataclass(frozen=True, slots=True)
class _Part:
    """A scalar expression while it is read: how deep it is, and whether it is a bare number."""

    scalar: Scalar
    depth: int = 0
    bare: bool = False


_inline = cast(Any, lark.v_args(inline=True))  # pyright: ignore[reportUnknownMemberType]


def _int(token: Token) -> int:
    if len(token) > 4000:
        raise Mistake(token, "an integer literal has more than 4000 digits")
    return int(token)


def _number(token: Token) -> int | float:
    return _int(token) if token.type == "INT" else float(token)


def _literal(token: Token) -> Operand | None:
    if token == "nan":
        return math.nan  # the one NaN object, so that kernels compare equal
    return ABSENT if token == "absent" else LITERALS.get(token)


def _string(token: Token) -> str:
    try:
        return json.loads(token)
    except ValueError:
        raise Mistake(token, "a string with an escape that JSON does not have") from None


def _dtype(token: Token) -> DType:
    if token not in SIZES:
        raise Mistake(token, f"{str(token)!r} is no element type", f"there are {', '.join(SIZES)}")
    return cast(DType, str(token))


def _present(items: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(x for x in items if x is not None)


class _Build(lark.Transformer[Token, Any]):
    """Turns each rule, as soon as it is read, into what it stands for."""

    def start(self, items: list[Any]) -> list[Kernel]:
        return items

    @_inline
    def kernel(self, name: str, params: Any, outputs: Any, *rest: Any) -> Kernel:
        *header, body = rest
        return Kernel(
            name,
            params,
            outputs,
            tuple(x for x in header if isinstance(x, Axis)),
            body,
            tuple(x for x in header if isinstance(x, Assertion)),
        )

    def params(self, items: list[Any]) -> tuple[Any, ...]:
        return _present(items)

    outputs = arguments = items = results = params

    @_inline
    def tensor(self, name: str, dtype: Token, *dims: Scalar | None) -> Tensor:
        return Tensor(name, _dtype(dtype), _present(dims))

    @_inline
    def argument(self, name: str, type: Token, default: Scalar | None) -> Argument:
        if type not in ("int", "float", "bool"):
            hint = "a tensor is written `Q: f32[B, H]`, a scalar has type int, float or bool"
            raise Mistake(type, f"{str(type)!r} is no type of a scalar argument", hint)
        return Argument(name, cast(Any, str(type)), default)

    @_inline
    def output(self, name: str, dtype: Token, *axes: str | None) -> Output:
        return Output(name, _dtype(dtype), _present(axes))

    @_inline
    def axis(self, name: str, _less: Token, extent: _Part) -> Axis:
        return Axis(name, extent.scalar)

    @_inline
    def assertion(self, condition: Scalar, message: Token) -> Assertion:
        return Assertion(condition, _string(message))

    # ops

    def body(self, items: list[Op]) -> Body:
        return tuple(items)

    @_inline
    def block(self, body: Body) -> Body:
        return body

    @_inline
    def op(
        self,
        results: tuple[Value, ...] | None,
        word: Token,
        items: tuple[Any, ...],
        arguments: tuple[Value, ...] | None,
        then: Body | None,
        orelse: Body | None,
    ) -> Op:
        return assemble(
            results or (), word, items, arguments, [b for b in (then, orelse) if b is not None]
        )

    @_inline
    def result(self, name: str, type: Type) -> Value:
        return Value(name, type)

    @_inline
    def untyped(self, name: str) -> str:
        return name

    @_inline
    def type(self, dtype: Token, *rest: Any) -> Type:
        *extents, space = rest
        found: Extents = [x for x in extents if x is not None]
        if space is not None and space not in get_args(Space):
            raise Mistake(
                space, f"{str(space)!r} is no memory space", "there are hbm, sram and reg"
            )
        place = None if space is None else cast(Space, str(space))
        return Type(_dtype(dtype), tuple(a for a, _ in found), tuple(n for _, n in found), place)

    @_inline
    def extent(self, name: str, n: Token | None) -> tuple[str, int | None]:
        return name, None if n is None else _int(n)

    @_inline
    def keyword(self, name: Token, value: Any) -> Keyword:
        return Keyword(name, value)

    @_inline
    def text(self, token: Token) -> Text:
        return Text(_string(token))

    def listing(self, items: list[Any]) -> Extents:
        return [x for x in items if x is not None]

    @_inline
    def quoted_operand(self, name: Token) -> str:
        return str(name)[1:-1]

    @_inline
    def word_operand(self, name: Token) -> Operand:
        found = _literal(name)
        return str(name) if found is None else found

    @_inline
    def number_operand(self, token: Token) -> Operand:
        return _number(token)

    @_inline
    def negative_operand(self, token: Token) -> Operand:
        return -_number(token)

    @_inline
    def negative_word(self, name: Token) -> Operand:
        if name != "inf":
            raise Mistake(name, f"-{name} is no operand", "only a number or inf can have a sign")
        return -math.inf

    @_inline
    def name(self, token: Token) -> str:
        return str(token)[1:-1] if token.type == "QUOTED" else str(token)

    # scalar expressions

    @_inline
    def scalar(self, part: _Part) -> Scalar:
        return part.scalar

    @_inline
    def number(self, token: Token) -> _Part:
        return _Part(_number(token), bare=True)

    @_inline
    def word(self, token: Token) -> _Part:
        if token.type == "QUOTED":
            return _Part(str(token)[1:-1])
        if token in LITERALS:
            return _Part(cast(Scalar, _literal(token)), bare=token in ("inf", "nan"))
        return _Part(str(token))

    @_inline
    def brackets(self, part: _Part) -> _Part:
        return _Part(part.scalar, part.depth)

    @_inline
    def call(self, name: Token, *operands: _Part | None) -> _Part:
        if not evaluable(name):
            raise Mistake(
                name, f"no scalar function is called {str(name)!r}", near(name, FUNCTIONS)
            )
        return _node(name, str(name), *_present(operands))

    @_inline
    def select(self, then: _Part, condition: _Part, orelse: _Part) -> _Part:
        return _node((1, 1), "select", condition, then, orelse)

    @_inline
    def binary(self, x: _Part, sign: Token, y: _Part) -> _Part:
        return _node(sign, _SIGNS[sign], x, y)

    @_inline
    def power(self, x: _Part, y: _Part) -> _Part:
        return _node((1, 1), "ipow" if is_natural(y.scalar) else "pow", x, y)

    @_inline
    def not_(self, x: _Part) -> _Part:
        return _node((1, 1), "not", x)

    @_inline
    def invert(self, x: _Part) -> _Part:
        return _node((1, 1), "invert", x)

    @_inline
    def negative(self, minus: Token, x: _Part) -> _Part:
        if x.bare:  # -2 is a literal, -(2) a negation
            return _Part(-cast(float, x.scalar))
        return _node(minus, "neg", x)


def _node(at: Token | tuple[int, int], function: str, *operands: _Part) -> _Part:
    depth = 1 + max((x.depth for x in operands), default=0)
    if depth > MAX_OPERATORS:
        raise Mistake(at, f"an expression is nested more than {MAX_OPERATORS} deep")
    return _Part((function, *(x.scalar for x in operands)), depth)
