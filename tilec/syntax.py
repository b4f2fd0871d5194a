"""The syntax tree of a `.tile` file. Every node knows the stretch of text it was read from.

The tree says what is written, not what it means: a name is not yet an axis or a value, and `K[b, h, j, d]` need not fit
the declaration of K. `tilec.check` gives it meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, Union

from tilec.errors import Diagnostic, Span

# ---- expressions


@dataclass(frozen=True, slots=True)
class Name:
    """`scale`"""

    span: Span
    name: str


@dataclass(frozen=True, slots=True)
class Number:
    """`64`, `0x5555`, `1e-5`"""

    span: Span
    value: int | float


@dataclass(frozen=True, slots=True)
class Unary:
    """`-x`; `fn` is the function of the IR: neg, invert or not."""

    span: Span
    fn: Literal["neg", "invert", "not"]
    x: Expr


@dataclass(frozen=True, slots=True)
class Binary:
    """`x + y`; `fn` is the function of the IR, `sign` what the program says."""

    span: Span
    fn: str
    sign: str
    x: Expr
    y: Expr


@dataclass(frozen=True, slots=True)
class Logic:
    """`x and y and z`"""

    span: Span
    fn: Literal["and", "or"]
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Compare:
    """`x < y <= z`; `fns` are the functions of the IR between the parts."""

    span: Span
    fns: tuple[str, ...]
    parts: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """`x if condition else y`"""

    span: Span
    x: Expr
    condition: Expr
    y: Expr


@dataclass(frozen=True, slots=True)
class Call:
    """`exp(x)`"""

    span: Span
    fn: Name
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Index:
    """`K[b, h, j, d]`"""

    span: Span
    tensor: Name
    index: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Reduction:
    """`sum[t, u](x)`"""

    span: Span
    fn: Name
    axes: tuple[Name, ...]
    args: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Broken:
    """Text that could not be read; the mistake is in the program's diagnostics."""

    span: Span


Expr: TypeAlias = Union[
    Name, Number, Unary, Binary, Logic, Compare, Conditional, Call, Index, Reduction, Broken
]


def children(e: Expr) -> tuple[Expr, ...]:
    """The expressions that an expression is made of."""
    match e:
        case Name() | Number() | Broken():
            return ()
        case Unary():
            return (e.x,)
        case Binary():
            return (e.x, e.y)
        case Logic() | Compare():
            return e.parts
        case Conditional():
            return (e.x, e.condition, e.y)
        case Call() | Reduction():
            return e.args
        case Index():
            return e.index


def walk(e: Expr) -> Iterator[Expr]:
    """An expression and all below it, outer ones first."""
    todo = [e]
    while todo:
        e = todo.pop()
        yield e
        todo.extend(reversed(children(e)))


# ---- statements


@dataclass(frozen=True, slots=True)
class Let:
    """`S = EXPR`"""

    span: Span
    name: Name
    value: Expr


@dataclass(frozen=True, slots=True)
class AxisLine:
    """`axis c < 512`"""

    span: Span
    name: Name
    bound: Expr


@dataclass(frozen=True, slots=True)
class Def:
    """`def soft(x, cap) = EXPR`, at the top of a file or inside a kernel."""

    span: Span
    name: Name
    params: tuple[Name, ...]
    body: Expr


@dataclass(frozen=True, slots=True)
class Assert:
    """`assert COND, "message"`"""

    span: Span
    condition: Expr
    message: str


Statement: TypeAlias = Union[Let, AxisLine, Def, Assert]


def elements(body: Iterable[Statement]) -> Iterator[Index]:
    """The elements of tensors that values and functions are made of, in order."""
    for s in body:
        if isinstance(s, Let | Def):
            yield from (
                e for e in walk(s.body if isinstance(s, Def) else s.value) if isinstance(e, Index)
            )


# ---- the parts of a file


@dataclass(frozen=True, slots=True)
class Item:
    """A parameter or an output: `Q[B, H]`, `page: i32[B, NP]`, `scale: float = 1 / sqrt(D)`.

    `dims` is None where there are no brackets.
    """

    span: Span
    name: Name
    type: Name | None
    dims: tuple[Expr, ...] | None
    default: Expr | None


@dataclass(frozen=True, slots=True)
class KernelDef:
    """A kernel.

    `broken`: its first line could not be read, so nothing is known of its names. `incomplete`: a line of its body could
    not be read, so a name that nothing defines may be defined there.
    """

    span: Span
    name: Name
    params: tuple[Item, ...]
    outputs: tuple[Item, ...]
    body: tuple[Statement, ...] = ()
    broken: bool = False
    incomplete: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """`sample slope[h] = EXPR`: example data for a parameter, by position."""

    span: Span
    name: Name
    index: tuple[Name, ...]
    value: Expr


@dataclass(frozen=True)
class Program:
    """A file as read. `diagnostics` are the mistakes found on the way; `tilec.check.check` raises them with its own."""

    text: str
    file: str
    kernels: dict[str, KernelDef] = field(default_factory=dict[str, KernelDef])
    functions: dict[str, Def] = field(default_factory=dict[str, Def])
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    samples: dict[str, Sample] = field(default_factory=dict[str, Sample])
    diagnostics: tuple[Diagnostic, ...] = ()
