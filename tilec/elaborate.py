"""Expressions to ops: names looked up, functions expanded, kinds checked.

One walk does all of it, so that what is checked is what is lowered. A mistake is reported and its value is FAILED: the
walk goes on, and nothing that uses a failed value is reported again.

Functions are expanded as if written out, except that their arguments are lowered once. `sum[t](…)` in a function does not
bind the `t` that a caller's argument mentions: it then sums over an axis of its own (`t_1`). An argument that is a value
without any mention of `t`, such as `S`, is summed over, as it would be in place.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal, cast

from tilec import calls, reductions, syntax, unknown
from tilec.builder import Builder
from tilec.dtypes import kind
from tilec.errors import Span
from tilec.ir import ABSENT, Operand
from tilec.lowering import lower_scalar
from tilec.phrases import DEPTH, LEAST
from tilec.scalar import Scalar, evaluable
from tilec.scope import CONSTANTS, FAILED, KERNEL, Frame, KindOf, Names, Report, Stop, Term
from tilec.syntax import Expr, Name

OPS = 4_000
"""How many ops a kernel may have once its functions are expanded."""
SCALAR_SIZE = 1_000
"""How large an expression of dimensions may be once its functions are expanded."""


class Elaborator:
    """Lowers the expressions of one kernel into `builder`."""

    def __init__(self, names: Names, builder: Builder, report: Report) -> None:
        self.names, self.builder, self.report = names, builder, report
        self.generic = False  # a function is being checked that nothing calls
        self.called: set[str] = set()
        self.guarded = False
        self.asked = frozenset[str]()  # the axes that the conditions of the `if`s around depend on
        self.depth = 0
        self._numbers: dict[str, int] = {}
        self.unknown: set[str] = set()
        self.may = ""  # of what the expression may be made, where it is one of scalars
        self.twins: dict[str, list[str]] = {}

    # ---- entry points

    def term(self, e: Expr, frame: Frame = KERNEL) -> Term:
        """An expression as a value."""
        self.depth += 1
        try:
            if self.depth > DEPTH:
                hint = "give parts of it names of their own"
                self.report(
                    e.span, f"this nests deeper than {DEPTH} once its functions are expanded", hint
                )
                raise Stop
            self.report.step(e.span)
            return self._term(e, frame)
        finally:
            self.depth -= 1

    def scalar(self, e: Expr, what: str, may: str, frame: Frame = KERNEL) -> Term | None:
        """An expression of dimensions and scalar arguments, as one; None where it is another, which is reported.

        `what` names the expression and `may` says what it may be made of.
        """
        ops = len(self.builder.ops)
        self.may = may
        term = self.term(e, frame)
        self.may = ""
        del self.builder.ops[ops:]
        if term.failed:
            return None
        if term.scalar is None:
            hint = f"'{term.axes[0]}' is an axis, and has no single value" if term.axes else None
            self.report(e.span, f"{what} can only be made of {may}", hint)
            return None
        return term

    def check_function(self, node: syntax.Def, top: bool) -> None:
        """Checks a function that nothing calls."""
        self.generic = True
        self.term(node.body, Frame({p.name: Term(0.0) for p in node.params}, top, node.name.name))
        self.generic = False

    # ---- expressions

    def _term(self, e: Expr, frame: Frame) -> Term:
        match e:
            case Name():
                return self._name(e, frame)
            case syntax.Number():
                return Term(
                    e.value, kind="int" if isinstance(e.value, int) else "float", scalar=e.value
                )
            case syntax.Unary():
                return self._unary(e, frame)
            case syntax.Binary():
                return self._binary(e, frame)
            case syntax.Logic():
                return self._logic(e, frame)
            case syntax.Compare():
                return self._compare(e, frame)
            case syntax.Conditional():
                return self._conditional(e, frame)
            case syntax.Call():
                return calls.call(self, e, frame)
            case syntax.Index():
                return self._index(e, frame)
            case syntax.Reduction():
                return reductions.reduction(self, e, frame)
            case syntax.Broken():
                return FAILED

    def emit(self, span: Span, fn: str, kind: KindOf, *args: Term) -> Term:
        """A pointwise function of values."""
        if any(a.failed for a in args):
            return FAILED
        self.count(span)
        self.builder.span = span
        operand = self.builder.map(fn, *(a.operand for a in args), name=self.new_name("t"))
        return self.made(operand, kind, args, fn)

    def made(self, operand: str, kind: KindOf, args: Sequence[Term], fn: str | None) -> Term:
        """The term of an op that was made: its axes and size, and the expression of scalars that it may also be."""
        size = 1 + sum(a.size for a in args)
        scalars = [a.scalar for a in args if a.scalar is not None]
        whole = (
            fn is not None and evaluable(fn) and len(scalars) == len(args) and size <= SCALAR_SIZE
        )
        tree = cast(Scalar, (fn, *scalars)) if whole else None
        mentions = frozenset[str]().union(*(a.mentions for a in args))
        left = (
            frozenset[str]().union(*(a.open for a in args)) if kind == "any" else frozenset[str]()
        )
        axes = self.builder.types[operand].axes
        return Term(operand, axes, kind, tree, size, mentions, open=left)

    def count(self, span: Span) -> None:
        """One op more; a kernel with too many is a mistake."""
        if len(self.builder.ops) >= OPS:
            self.report.too_large(span)

    def new_name(self, stem: str) -> str:
        """`stem`, or the first of `stem_1`, `stem_2`, … that is free."""
        number = self._numbers.get(stem, 0)
        while (name := f"{stem}_{number}" if number else stem) in self.builder.taken:
            number += 1
        self._numbers[stem] = number
        return name

    @contextmanager
    def guard(self, on: bool = True, asked: Iterable[str] = ()) -> Generator[None]:
        """Inside, a load is one that an `if` of the program decides on, by positions on some axes; none: on any."""
        held = self.guarded, self.asked
        if on:
            self.guarded, self.asked = True, self.asked.union(asked or self.builder.kernel.extents)
        yield
        self.guarded, self.asked = held

    # ---- names

    def _name(self, e: Name, frame: Frame) -> Term:
        name = e.name
        if name in frame.params:
            return frame.params[name]
        if name in CONSTANTS:
            value = CONSTANTS[name]
            return Term(
                math.nan if value != value else value, kind=_literal_kind(value), scalar=value
            )
        if frame.top:
            return unknown.not_seen(self, e, frame)
        if name in self.names.values:
            return self.names.values[name]
        if name in self.names.arguments:
            return Term(name, kind=self.names.arguments[name].type, scalar=name)
        if name in self.names.dims:
            return Term(name, kind="int", scalar=name)
        return self._axis(e, frame)

    def _axis(self, e: Name, frame: Frame) -> Term:
        if e.name not in self.names.axes or e.name in self.names.lets:
            unknown.no_such_name(self, e, frame)
            return FAILED
        axis = frame.axes.get(e.name, e.name)
        return Term(axis, (axis,), "int", mentions=frozenset((axis,)), bare=axis)

    # ---- operators

    def number(self, kinds: Sequence[KindOf]) -> KindOf:
        """The kind of a number made of operands of these kinds."""
        return "float" if "float" in kinds else "any" if "any" in kinds else "int"

    def _unary(self, e: syntax.Unary, frame: Frame) -> Term:
        x = self.term(e.x, frame)
        if e.fn == "not":
            return self.emit(e.span, "not", "bool", self.condition(x, e.x, "'not'"))
        if e.fn == "invert":
            x = self.whole(x, e.x, "'~'")
            return self.emit(e.span, "invert", "bool" if x.kind == "bool" else x.kind, x)
        if x.operand == -LEAST and isinstance(x.operand, int):
            return x  # it wraps: the least integer has no counterpart
        if isinstance(x.operand, int | float) and not isinstance(x.operand, bool) and not x.failed:
            return (
                replace(x, operand=-x.operand, scalar=-x.operand) if x.operand == x.operand else x
            )
        return self.emit(e.span, "neg", self.number([x.kind]), x)

    def _binary(self, e: syntax.Binary, frame: Frame) -> Term:
        x, y = self.term(e.x, frame), self.term(e.y, frame)
        if e.fn == "pow":
            return calls.power(self, e.span, x, y, e.y)
        if e.fn in ("bitand", "bitor", "bitxor", "shl", "shr"):
            x, y = self.whole(x, e.x, f"'{e.sign}'"), self.whole(y, e.y, f"'{e.sign}'")
            bits = e.fn.startswith("bit") and x.kind == y.kind == "bool"
            return self.emit(
                e.span,
                e.fn,
                "bool" if bits else "any" if "any" in (x.kind, y.kind) else "int",
                x,
                y,
            )
        return self.emit(
            e.span, e.fn, "float" if e.fn == "div" else self.number([x.kind, y.kind]), x, y
        )

    def _logic(self, e: syntax.Logic, frame: Frame) -> Term:
        out: Term | None = None
        for part in e.parts:
            with self.guard(out is not None, out.axes if out else ()):
                x = self.condition(self.term(part, frame), part, f"'{e.fn}'")
            out = x if out is None else self.emit(e.span, e.fn, "bool", out, x)
        assert out is not None
        return out

    def _compare(self, e: syntax.Compare, frame: Frame) -> Term:
        out: Term | None = None
        left = self.term(e.parts[0], frame)
        for fn, part in zip(e.fns, e.parts[1:], strict=True):
            with self.guard(out is not None, out.axes if out else ()):
                right = self.term(part, frame)
            test = self.emit(e.span, fn, "bool", left, right)
            out = test if out is None else self.emit(e.span, "and", "bool", out, test)
            left = right
        assert out is not None
        return out

    def _conditional(self, e: syntax.Conditional, frame: Frame) -> Term:
        condition = self.condition(self.term(e.condition, frame), e.condition, "'if'")
        with self.guard(asked=condition.axes):
            arms = [self._arm(arm, frame) for arm in (e.x, e.y)]
        kinds: list[KindOf] = [a.kind for a in arms]
        kind: KindOf = "bool" if kinds == ["bool", "bool"] else self.number(kinds)
        return self.emit(e.span, "select", kind, condition, *arms)

    def _arm(self, e: Expr, frame: Frame) -> Term:
        if isinstance(e, syntax.Number) and e.value == 0:
            return Term(ABSENT, kind="int" if isinstance(e.value, int) else "float", scalar=e.value)
        return self.term(e, frame)

    def _place(self, x: Operand, dim: Scalar) -> Operand:
        """An index of a dimension. An axis that is one is inside its tensor, as targets see it, and calls check; where an
        `if` lets it range over more than the dimension, what is beyond becomes a number that is outside."""
        extent = self.builder.kernel.extents.get(x) if isinstance(x, str) else None
        if x not in self.asked or extent is None or extent == dim:
            return x
        return self.builder.map("min", x, lower_scalar(self.builder, dim), name=self.new_name("t"))

    def condition(self, x: Term, e: Expr, user: str) -> Term:
        """A value that must be true or false."""
        if x.failed or x.kind in ("bool", "any"):
            self.assume(x, "bool")
            return x
        what = "an integer" if x.kind == "int" else "a float"
        hint = f"compare it: write {self.report.quote(e.span, 'x')} != 0"
        self.report(e.span, f"{user} needs a condition, and this is {what}", hint)
        return FAILED

    def whole(self, x: Term, e: Expr, user: str) -> Term:
        """A value that must be an integer or a boolean."""
        if x.failed or x.kind != "float":
            self.assume(x, "i32")
            return x
        hint = f"write i32({self.report.quote(e.span, '…')}) to truncate it"
        if isinstance(e, syntax.Binary) and e.fn == "div":
            hint = "write // for a whole quotient"
        if user == "'^'":
            hint = "write ** for a power"
        self.report(e.span, f"{user} needs an integer, and this is a float", hint)
        return FAILED

    # ---- elements of tensors

    def _index(self, e: syntax.Index, frame: Frame) -> Term:
        name = e.tensor.name
        if name in frame.params or frame.top or name not in self.names.tensors:
            unknown.no_tensor(self, e, frame)
            return FAILED
        tensor = self.names.tensors[name]
        index = [self.whole(self.term(x, frame), x, "an index") for x in e.index]
        if len(index) != len(tensor.dims):
            unknown.wrong_rank(self, e, name)
            return FAILED
        if any(x.failed for x in index):
            return FAILED
        self.count(e.span)
        self.builder.span = e.span
        new = self.new_name(name.lower())
        places = [self._place(x.operand, n) for x, n in zip(index, tensor.dims, strict=True)]
        operand = self.builder.load(name, *places, guarded=self.guarded, name=new)
        if name in self.names.untyped:
            return replace(self.made(operand, "any", index, None), open=frozenset((name,)))
        return self.made(operand, kind(tensor.dtype), index, None)

    def assume(self, x: Term, dtype: Literal["bool", "i32"]) -> None:
        """Notes that the untyped tensors behind a value have to hold booleans, or integers or booleans."""
        assumed = self.names.assumed
        assumed.update({t: dtype for t in x.open if dtype == "bool" or t not in assumed})

    def truth(self, span: Span, x: Term) -> Term:
        """Whether a number is other than 0."""
        return (
            x
            if x.kind == "bool"
            else self.emit(span, "ne", "bool", x, Term(0, kind="int", scalar=0))
        )


def _literal_kind(value: float | bool) -> KindOf:
    return "bool" if isinstance(value, bool) else "float"
