"""What the names of a kernel mean, and what the expander knows of a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, NoReturn, TypeAlias

from tilec import scalar
from tilec.dtypes import SIZES as DTYPES
from tilec.dtypes import DType, Kind
from tilec.errors import Diagnostic, Span
from tilec.functions import FUNCTIONS
from tilec.ir import Argument, Operand, Tensor
from tilec.scalar import Scalar
from tilec.syntax import Broken, Call, Compare, Conditional, Def, Expr, Logic, Name, children, walk

KindOf: TypeAlias = Literal["float", "int", "bool", "any"]
"""The kind of a value. `any`: it depends on an element type that only the call decides."""

CONSTANTS: dict[str, float | bool] = {
    "inf": float("inf"),
    "nan": float("nan"),
    "pi": 3.141592653589793,
    "true": True,
    "false": False,
}
REDUCTIONS = ("sum", "max", "min", "mean", "any", "all", "logsumexp", "softmax")
SCALAR_TYPES: tuple[Kind, ...] = ("int", "float", "bool")
_FLOATS = (f.name for f in FUNCTIONS.values() if f.result == "float" and f.most == 1)
POINTWISE = (*_FLOATS, "abs", "isfinite")
BUILT_IN = (*POINTWISE, "min", "max", "pow", "atan2", "clamp", "uniform", *DTYPES)


@dataclass(frozen=True, slots=True)
class Term:
    """A lowered expression.

    `scalar`: the same as an expression of dimensions and scalar arguments, of `size` nodes, where it is one. `mentions`:
    the axes its text names, free. `bare`: the axis that it is, if it is nothing else. `open`: the untyped tensors that its
    kind depends on. `failed`: it holds a reported mistake, and nothing that uses it is reported.
    """

    operand: Operand
    axes: tuple[str, ...] = ()
    kind: KindOf = "any"
    scalar: Scalar | None = None
    size: int = 1
    mentions: frozenset[str] = frozenset()
    bare: str | None = None
    open: frozenset[str] = frozenset()
    failed: bool = False


FAILED = Term(0, failed=True)


@dataclass(frozen=True)
class Frame:
    """Where an expression stands: in a kernel, or in a function.

    `params`: the function's arguments. `top`: a function of the file, which sees nothing of the kernel. `axes`: axes that
    a reduction renamed, so that it does not bind a caller's.
    """

    params: Mapping[str, Term] = field(default_factory=dict[str, Term])
    top: bool = False
    function: str | None = None
    axes: Mapping[str, str] = field(default_factory=dict[str, str])


KERNEL = Frame()


@dataclass(frozen=True, slots=True)
class Range:
    """What an axis ranges over: 0 .. extent - 1. `tensor`: whose dimension it is, None for an `axis` line's."""

    extent: Scalar
    tensor: str | None
    position: int = 0
    span: Span | None = None
    """The bound of the `axis` line."""

    @property
    def text(self) -> str:
        """The bound as the program writes it."""
        return scalar.show(self.extent)


@dataclass
class Names:
    """The names of one kernel, as far as it has been read."""

    tensors: dict[str, Tensor] = field(default_factory=dict[str, Tensor])
    untyped: set[str] = field(default_factory=set[str])
    assumed: dict[str, DType] = field(default_factory=dict[str, DType])
    """The untyped tensors whose use asks for integers or booleans, with a type that will do."""
    arguments: dict[str, Argument] = field(default_factory=dict[str, Argument])
    dims: dict[str, None] = field(default_factory=dict[str, None])
    axes: dict[str, Range] = field(default_factory=dict[str, Range])
    values: dict[str, Term] = field(default_factory=dict[str, Term])
    lets: dict[str, Span] = field(default_factory=dict[str, Span])
    """Where each value is first defined, those to come included."""
    functions: dict[str, Def] = field(default_factory=dict[str, Def])
    """The functions of the file."""
    always: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    """The parameters that each function looks at in any case, not only under an `if`."""
    local: dict[str, Def] = field(default_factory=dict[str, Def])
    """The functions of the kernel, those to come included."""
    incomplete: bool = False
    """Whether a part of the kernel was not understood: a name that nothing defines may be defined there."""
    broken: set[str] = field(default_factory=set[str])
    """Parameters whose declaration is wrong, which is reported: what uses them is not."""
    seen: set[str] = field(default_factory=set[str])
    """Those of `local` that are defined by now."""

    def no_axis(self, name: str) -> str | None:
        """Why a name cannot be an axis, or None."""
        if name in CONSTANTS:
            return "a constant"
        if name in self.lets:
            return f"a value, defined in line {self.lets[name].line}"
        if name in self.arguments:
            return "a scalar parameter"
        if name in self.dims:
            return "a dimension"
        return None

    def known(self) -> list[str]:
        """Every name that an expression may use."""
        return [*self.values, *self.arguments, *self.dims, *self.axes, *CONSTANTS, *self.tensors]

    def function(self, name: str, top: bool) -> Def | None:
        """The function a call means; at the top of a file (`top`) local ones are not seen."""
        if not top and name in self.seen:
            return self.local[name]
        return self.functions.get(name)


CALLS = 100
"""How many functions may call one another in a row."""
MISTAKES = 50
"""How many mistakes are looked for."""


STEPS = 100_000
"""How many parts the expressions of a program may have once its functions are expanded."""


class Stop(Exception):
    """There is no use in reading on: a limit is exceeded, which is reported, or enough mistakes are found."""


class Report:
    """Collects mistakes; the same one, met again in another expansion, counts once."""

    def __init__(self, text: str = "") -> None:
        self.lines = text.split("\n")
        self.diagnostics: list[Diagnostic] = []
        self._seen: set[tuple[Span, str]] = set()
        self._steps = 0

    def __call__(self, span: Span, message: str, hint: str | None = None) -> None:
        """Adds a mistake. Raises Stop when there are enough."""
        if (span, message) not in self._seen:
            self._seen.add((span, message))
            self.diagnostics.append(Diagnostic(span, message, hint))
        if len(self.diagnostics) >= MISTAKES:
            raise Stop

    def step(self, span: Span) -> None:
        """Counts a part of an expression. Raises Stop where there are too many, which is reported."""
        self._steps += 1
        if self._steps > STEPS:
            self.too_large(span)

    def too_large(self, span: Span) -> NoReturn:
        """Reports that functions expand to more than can be compiled, and raises Stop."""
        message = "this program is too large once its functions are expanded"
        self(span, message, "give a value that is used several times a name of its own")
        raise Stop

    def quote(self, span: Span, other: str) -> str:
        """The text of a short span, or `other`."""
        if (
            span.line != span.end_line
            or span.end_column - span.column > 30
            or span.line > len(self.lines)
        ):
            return other
        return self.lines[span.line - 1][span.column - 1 : span.end_column - 1] or other


# ---- functions: who calls whom


def in_call_order(functions: Mapping[str, Def], report: Report) -> dict[str, Def]:
    """The functions, those that one calls before it.

    Reports functions that call themselves, also through others, and chains of calls that are too long; their bodies
    become Broken.
    """
    out: dict[str, Def] = {}
    height: dict[str, int] = {}
    for root in functions:
        path: list[tuple[str, list[Name]]] = []
        _enter(root, functions, out, path)
        while path:
            name, todo = path[-1]
            if todo:
                _follow(todo.pop(), functions, out, path, report)
                continue
            path.pop()
            node = functions[name]
            called = [height[fn.name] for fn in _calls(node.body) if fn.name in height]
            height[name] = 1 + max(called, default=0)
            wrong = any(fn.name in functions and fn.name not in out for fn in _calls(node.body))
            if height[name] > CALLS:
                message = f"'{name}' calls functions that call functions, more than {CALLS} deep"
                report(node.name.span, message, "write some of them out")
                height[name], wrong = 0, True
            out[name] = replace(node, body=Broken(node.body.span)) if wrong else node
    return out


def _follow(
    fn: Name,
    functions: Mapping[str, Def],
    out: Mapping[str, Def],
    path: list[tuple[str, list[Name]]],
    report: Report,
) -> None:
    ring = [n for n, _ in path]
    if fn.name not in ring:
        _enter(fn.name, functions, out, path)
        return
    ring = ring[ring.index(fn.name) + 1 :]
    via = f" through {', '.join(ring[:5])}{', …' if len(ring) > 5 else ''}" if ring else ""
    report(
        fn.span, f"'{fn.name}' calls itself{via}", "functions are expanded: there is no recursion"
    )


def _enter(
    name: str,
    functions: Mapping[str, Def],
    done: Mapping[str, Def],
    path: list[tuple[str, list[Name]]],
) -> None:
    if name in functions and name not in done:
        path.append((name, _calls(functions[name].body)[::-1]))


def _calls(e: Expr) -> list[Name]:
    return [x.fn for x in walk(e) if isinstance(x, Call)]


def always_used(
    functions: Mapping[str, Def], known: Mapping[str, frozenset[str]]
) -> dict[str, frozenset[str]]:
    """The parameters that each function looks at in any case, not only under an `if`. `functions` in call order;
    `known`: the same of other functions they call."""
    out = dict(known)
    params = {n: [p.name for p in f.params] for n, f in functions.items()}
    for name, node in functions.items():
        out[name] = frozenset(_always(node.body, out, params))
    return out


def _always(
    e: Expr, known: Mapping[str, frozenset[str]], params: Mapping[str, list[str]]
) -> Iterator[str]:
    match e:
        case Name():
            yield e.name
            parts: tuple[Expr, ...] = ()
        case Logic():
            parts = e.parts[:1]
        case Compare():
            parts = e.parts[:2]
        case Conditional():
            parts = (e.condition,)
        case Call() if e.fn.name in params and e.fn.name in known:
            names = params[e.fn.name]
            parts = tuple(a for a, p in zip(e.args, names, strict=False) if p in known[e.fn.name])
        case _:
            parts = children(e)
    for part in parts:
        yield from _always(part, known, params)
