"""Expressions to ops: names looked up, functions expanded, kinds checked.

One walk does all of it, so that what is checked is what is lowered. A mistake is reported and its value is FAILED: the
walk goes on, and nothing that uses a failed value is reported again.

Functions are expanded as if written out, except that their arguments are lowered once. `sum[t](…)` in a function does not
bind the `t` that a caller's argument mentions: it then sums over an axis of its own (`t_1`). An argument that is a value
without any mention of `t`, such as `S`, is summed over, as it would be in place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NoReturn, cast

from tilec import reductions, scalar, syntax
from tilec.dtypes import SIZES as DTYPES
from tilec.dtypes import DType, kind
from tilec.errors import Span
from tilec.ir import ABSENT, Axis, Builder, Operand, fresh
from tilec.phrases import DEPTH
from tilec.scalar import Scalar, evaluable
from tilec.scope import BUILT_IN, CONSTANTS, FAILED, POINTWISE, REDUCTIONS, KindOf, Names, Report, Stop, Term, always_used
from tilec.syntax import Expr, Name
from tilec.wording import count, near

STEPS = 40_000
"""How many parts of expressions a kernel may have once its functions are expanded."""
OPS = 4_000
"""How many ops a kernel may have once its functions are expanded."""
SCALAR_SIZE = 1_000
"""How large an expression of dimensions may be once its functions are expanded."""


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


class Elaborator:
    """Lowers the expressions of one kernel into `builder`."""

    def __init__(self, names: Names, builder: Builder, report: Report) -> None:
        self.names, self.builder, self.report = names, builder, report
        self.generic = False  # a function is being checked that nothing calls
        self.called: set[str] = set()
        self._guarded = False
        self._depth = 0
        top = always_used(names.functions, {})
        self.always = {**top, **always_used(names.local, top)}
        self._steps = 0
        self._numbers: dict[str, int] = {}
        self._unknown: set[str] = set()
        self._twins: dict[str, list[str]] = {}

    # ---- entry points

    def term(self, e: Expr, frame: Frame = KERNEL) -> Term:
        """An expression as a value."""
        self._depth += 1
        try:
            if self._depth > DEPTH:
                hint = "give parts of it names of their own"
                self.report(e.span, f"this nests deeper than {DEPTH} once its functions are expanded", hint)
                raise Stop
            self._steps += 1
            if self._steps > STEPS:
                self._too_large(e.span)
            return self._term(e, frame)
        finally:
            self._depth -= 1

    def scalar(self, e: Expr, what: str, may: str, frame: Frame = KERNEL) -> Term | None:
        """An expression of dimensions and scalar arguments, as one; None where it is another, which is reported.

        `what` names the expression and `may` says what it may be made of.
        """
        ops = len(self.builder.ops)
        term = self.term(e, frame)
        del self.builder.ops[ops:]
        if term.failed:
            return None
        if term.scalar is None:
            self.report(e.span, f"{what} can only be made of {may}")
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
                return Term(e.value, kind="int" if isinstance(e.value, int) else "float", scalar=e.value)
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
                return self._call(e, frame)
            case syntax.Index():
                return self._index(e, frame)
            case syntax.Reduction():
                return self._reduction(e, frame)
            case syntax.Broken():
                return FAILED

    def emit(self, span: Span, fn: str, kind: KindOf, *args: Term) -> Term:
        """A pointwise function of values."""
        if any(a.failed for a in args):
            return FAILED
        self._count(span)
        self.builder.span = span
        operand = self.builder.map(fn, *(a.operand for a in args), name=self.new_name("t"))
        return self._made(operand, kind, args, fn)

    def _made(self, operand: str, kind: KindOf, args: Sequence[Term], fn: str | None) -> Term:
        size = 1 + sum(a.size for a in args)
        scalars = [a.scalar for a in args if a.scalar is not None]
        whole = fn is not None and evaluable(fn) and len(scalars) == len(args) and size <= SCALAR_SIZE
        tree = cast(Scalar, (fn, *scalars)) if whole else None
        mentions = frozenset[str]().union(*(a.mentions for a in args))
        return Term(operand, self.builder.types[operand].axes, kind, tree, size, mentions)

    def _count(self, span: Span) -> None:
        if len(self.builder.ops) >= OPS:
            self._too_large(span)

    def _too_large(self, span: Span) -> NoReturn:
        message = f"this kernel is too large: more than {OPS} operations once its functions are expanded"
        self.report(span, message, "give a value that is used several times a name of its own")
        raise Stop

    def new_name(self, stem: str) -> str:
        """`stem`, or the first of `stem_1`, `stem_2`, … that is free."""
        number = self._numbers.get(stem, 0)
        while (name := f"{stem}_{number}" if number else stem) in self.builder.taken:
            number += 1
        self._numbers[stem] = number
        return name

    @contextmanager
    def _guard(self, on: bool = True) -> Iterator[None]:
        """Inside, a load is one that an `if` of the program decides on."""
        held, self._guarded = self._guarded, self._guarded or on
        yield
        self._guarded = held

    # ---- names

    def _name(self, e: Name, frame: Frame) -> Term:
        name = e.name
        if name in frame.params:
            return frame.params[name]
        if name in CONSTANTS:
            value = CONSTANTS[name]
            return Term(math.nan if value != value else value, kind=_literal_kind(value), scalar=value)
        if frame.top:
            return self._not_seen(e, frame)
        if name in self.names.values:
            return self.names.values[name]
        if name in self.names.arguments:
            return Term(name, kind=self.names.arguments[name].type, scalar=name)
        if name in self.names.dims:
            return Term(name, kind="int", scalar=name)
        return self._axis(e, frame)

    def _axis(self, e: Name, frame: Frame) -> Term:
        if e.name not in self.names.axes or e.name in self.names.lets:
            self._no_such_name(e, frame)
            return FAILED
        axis = frame.axes.get(e.name, e.name)
        return Term(axis, (axis,), "int", mentions=frozenset((axis,)), bare=axis)

    def _not_seen(self, e: Name, frame: Frame) -> Term:
        if e.name == frame.function or e.name in BUILT_IN or e.name in REDUCTIONS:
            self._no_such_name(e, frame)
            return FAILED
        hint = near(e.name, [*frame.params, *CONSTANTS])
        self.report(
            e.span,
            f"'{e.name}' is not a parameter of '{frame.function}': a function at the top of a file sees only its own",
            hint or f"pass '{e.name}' as an argument, or move the def line into the kernel",
        )
        return FAILED

    def _no_such_name(self, e: Name, frame: Frame) -> None:
        name = e.name
        if name in self._unknown:
            return
        if name in self.names.lets:
            self.names.incomplete = True
            hint = "move that line up, or give this index another name: a name that a line defines is never an axis"
            self.report(e.span, f"'{name}' is used before line {self.names.lets[name].line} defines it", hint)
        elif name in self.names.tensors:
            self.names.incomplete = True
            dims = ", ".join(["…"] * len(self.names.tensors[name].dims))
            self.report(e.span, f"'{name}' is a tensor: its elements are written {name}[{dims}]")
        elif name in ("True", "False", "None"):
            hint = f"write {name.lower()}" if name != "None" else "every value is a number"
            self.report(e.span, f"'{name}' is not in the language", hint)
        elif self.names.function(name, frame.top) or name in BUILT_IN or name in REDUCTIONS:
            axes = "[j]" if name in REDUCTIONS and name not in BUILT_IN else ""
            self.report(e.span, f"'{name}' is a function", f"write {name}{axes}(…)")
        else:
            self._unknown.add(name)
            hint = near(name, [*frame.params, *self.names.known()])
            if self.names.incomplete and not hint:
                return
            if not hint and name[0].isupper() and name.lower() in self.names.axes:
                hint = f"axes are written in lower case: did you mean '{name.lower()}'?"
            self.report(
                e.span,
                f"nothing says what '{name}' is: it is neither defined nor the index of a tensor's dimension",
                hint or (f"say what it ranges over: axis {name} < …" if name[0].islower() else None),
            )

    # ---- operators

    def _number(self, kinds: Sequence[KindOf]) -> KindOf:
        return "float" if "float" in kinds else "any" if "any" in kinds else "int"

    def _unary(self, e: syntax.Unary, frame: Frame) -> Term:
        x = self.term(e.x, frame)
        if e.fn == "not":
            return self.emit(e.span, "not", "bool", self._condition(x, e.x, "'not'"))
        if e.fn == "invert":
            x = self._whole(x, e.x, "'~'")
            return self.emit(e.span, "invert", "bool" if x.kind == "bool" else x.kind, x)
        if isinstance(x.operand, int | float) and not isinstance(x.operand, bool) and not x.failed:
            return replace(x, operand=-x.operand, scalar=-x.operand) if x.operand == x.operand else x
        return self.emit(e.span, "neg", self._number([x.kind]), x)

    def _binary(self, e: syntax.Binary, frame: Frame) -> Term:
        x, y = self.term(e.x, frame), self.term(e.y, frame)
        if e.fn == "pow":
            return self._power(e.span, x, y, e.y)
        if e.fn in ("bitand", "bitor", "bitxor", "shl", "shr"):
            x, y = self._whole(x, e.x, f"'{e.sign}'"), self._whole(y, e.y, f"'{e.sign}'")
            bits = e.fn.startswith("bit") and x.kind == y.kind == "bool"
            return self.emit(e.span, e.fn, "bool" if bits else "any" if "any" in (x.kind, y.kind) else "int", x, y)
        return self.emit(e.span, e.fn, "float" if e.fn == "div" else self._number([x.kind, y.kind]), x, y)

    def _power(self, span: Span, x: Term, y: Term, exponent: Expr) -> Term:
        n = y.operand
        if x.kind not in ("int", "bool") or not isinstance(n, int) or isinstance(n, bool) or n < 0 or y.failed:
            return self.emit(span, "pow", "float", x, y)
        if n >= 64:
            message = f"an integer to the power of {n} does not fit in 64 bits"
            self.report(exponent.span, message, "make the base a float: f32(…), or with a decimal point")
            return FAILED
        return self.emit(span, "ipow", "int", x, y)

    def _logic(self, e: syntax.Logic, frame: Frame) -> Term:
        out: Term | None = None
        for part in e.parts:
            with self._guard(out is not None):
                x = self._condition(self.term(part, frame), part, f"'{e.fn}'")
            out = x if out is None else self.emit(e.span, e.fn, "bool", out, x)
        assert out is not None
        return out

    def _compare(self, e: syntax.Compare, frame: Frame) -> Term:
        out: Term | None = None
        left = self.term(e.parts[0], frame)
        for fn, part in zip(e.fns, e.parts[1:], strict=True):
            with self._guard(out is not None):
                right = self.term(part, frame)
            test = self.emit(e.span, fn, "bool", left, right)
            out = test if out is None else self.emit(e.span, "and", "bool", out, test)
            left = right
        assert out is not None
        return out

    def _conditional(self, e: syntax.Conditional, frame: Frame) -> Term:
        condition = self._condition(self.term(e.condition, frame), e.condition, "'if'")
        with self._guard():
            arms = [self._arm(arm, frame) for arm in (e.x, e.y)]
        kinds = [a.kind for a in arms]
        kind: KindOf = "bool" if kinds == ["bool", "bool"] else self._number(kinds)
        return self.emit(e.span, "select", kind, condition, *arms)

    def _arm(self, e: Expr, frame: Frame) -> Term:
        if isinstance(e, syntax.Number) and e.value == 0:
            return Term(ABSENT, kind="int" if isinstance(e.value, int) else "float", scalar=e.value)
        return self.term(e, frame)

    def _condition(self, x: Term, e: Expr, user: str) -> Term:
        """A value that must be true or false."""
        if x.failed or x.kind in ("bool", "any"):
            return x
        what = "an integer" if x.kind == "int" else "a float"
        hint = f"compare it: write {self.report.quote(e.span, 'x')} != 0"
        self.report(e.span, f"{user} needs a condition, and this is {what}", hint)
        return FAILED

    def _whole(self, x: Term, e: Expr, user: str) -> Term:
        """A value that must be an integer or a boolean."""
        if x.failed or x.kind != "float":
            return x
        hint = f"write i32({self.report.quote(e.span, '…')}) to truncate it"
        if isinstance(e, syntax.Binary) and e.fn == "div":
            hint = "write // for a whole quotient"
        self.report(e.span, f"{user} needs an integer, and this is a float", hint)
        return FAILED

    # ---- elements of tensors

    def _index(self, e: syntax.Index, frame: Frame) -> Term:
        name = e.tensor.name
        if name in frame.params or frame.top or name not in self.names.tensors:
            self._no_tensor(e, frame)
            return FAILED
        tensor = self.names.tensors[name]
        index = [self._whole(self.term(x, frame), x, "an index") for x in e.index]
        if len(index) != len(tensor.dims):
            self._wrong_rank(e, name)
            return FAILED
        if any(x.failed for x in index):
            return FAILED
        self._count(e.span)
        self.builder.span = e.span
        new = self.new_name(name.lower())
        operand = self.builder.load(name, *(x.operand for x in index), guarded=self._guarded, name=new)
        kind_of: KindOf = "any" if name in self.names.untyped else kind(tensor.dtype)
        return self._made(operand, kind_of, index, None)

    def _wrong_rank(self, e: syntax.Index, name: str) -> None:
        dims = [scalar.show(d) for d in self.names.tensors[name].dims]
        given = count(len(e.index), "index is", "indices are")
        message = f"{name} has {count(len(dims), 'dimension')}, but {given} given"
        self.report(e.span, message, f"it is declared {name}[{', '.join(dims)}]")

    def _no_tensor(self, e: syntax.Index, frame: Frame) -> None:
        name, span = e.tensor.name, e.tensor.span
        self.names.incomplete = True
        if name in frame.params:
            message = f"'{name}' is a parameter of '{frame.function}': a number, which has no elements"
            self.report(span, message, "functions take numbers; inside a kernel they see its tensors by name")
        elif frame.top:
            message = f"'{frame.function}' cannot see tensors: it is defined at the top of the file"
            self.report(span, message, "pass the element as an argument, or move the def line into the kernel")
        elif name in self.names.values:
            self.report(span, f"'{name}' is a value, not a tensor parameter", f"write {name} alone: it keeps its axes")
        elif name in self.names.lets:
            self.report(span, f"'{name}' is a value, which has no elements", f"write {name} below the line that defines it")
        elif name in REDUCTIONS:
            self.report(span, f"'{name}' has nothing to reduce", f"write {name}[j](…)")
        elif why := self.names.no_axis(name):
            self.report(span, f"'{name}' is {why}, not a tensor parameter")
        elif name not in self._unknown:
            self._unknown.add(name)
            hint = near(name, self.names.tensors) or "the kernel's parameters are its tensors"
            self.report(span, f"no tensor parameter is called '{name}'", hint)

    # ---- functions

    def _call(self, e: syntax.Call, frame: Frame) -> Term:
        name = e.fn.name
        node = self.names.function(name, frame.top)
        if node is not None:
            return self._expand(e, node, frame)
        if name not in BUILT_IN:
            self._no_function(e, frame)
        args = [self.term(a, frame) for a in e.args]
        if name not in BUILT_IN:
            return FAILED
        least, most = _arity(name)
        if not least <= len(args) <= most:
            self._wrong_count(e, least, most)
            return FAILED
        return self._built_in(e, name, args)

    def _expand(self, e: syntax.Call, node: syntax.Def, frame: Frame) -> Term:
        name = node.name.name
        top = self.names.functions.get(name) is node
        self.called.add(name)
        self.names.incomplete |= isinstance(node.body, syntax.Broken)
        exposed = self.always[name]
        args: list[Term] = []
        for k, a in enumerate(e.args):
            param = node.params[k].name if k < len(node.params) else None
            with self._guard(param is not None and param not in exposed):
                args.append(self.term(a, frame))
        if isinstance(node.body, syntax.Broken):
            return FAILED
        if len(args) != len(node.params):
            hint = f"it is defined as {name}({', '.join(p.name for p in node.params)}) in line {node.span.line}"
            takes = f"'{name}' takes {count(len(node.params), 'argument')}, not {len(args)}"
            self.report(e.span, takes, hint)
            return FAILED
        params = {p.name: a for p, a in zip(node.params, args, strict=True)}
        self._count(e.span)
        return self.term(node.body, Frame(params, top, name, frame.axes))

    def _no_function(self, e: syntax.Call, frame: Frame) -> None:
        name, span = e.fn.name, e.fn.span
        if name in REDUCTIONS:
            self.report(span, f"'{name}' needs the axes it reduces over", f"write {name}[j](…)")
        elif name in self.names.local:
            line = self.names.local[name].span.line
            where = "in a kernel, which this function does not see" if frame.top else f"only in line {line}"
            self.report(span, f"the function '{name}' is defined {where}", "move its def line up")
        elif name in self.names.tensors:
            self.names.incomplete = True
            self.report(span, f"'{name}' is a tensor, not a function", f"write {name}[…]")
        elif name in ("int", "float"):
            self.report(span, f"'{name}' is not a function", f"write {'i32' if name == 'int' else 'f32'}(…)")
        elif name in self.names.known() or name in frame.params:
            self.report(span, f"'{name}' is not a function", f"write {name} * (…) to multiply")
        else:
            functions = [*self.names.functions, *self.names.seen, *BUILT_IN, *REDUCTIONS]
            self.report(span, f"no function is called '{name}'", near(name, functions))

    def _wrong_count(self, e: syntax.Call, least: int, most: int) -> None:
        name, given = e.fn.name, len(e.args)
        if name in ("min", "max") and given == 1:
            hint = f"write {name}[j](…) for the {name}imum over an axis"
            self.report(e.span, f"'{name}' of numbers takes two or more", hint)
            return
        takes = count(least, "argument") if least == most else f"{least} to {count(most, 'argument')}"
        takes = f"{least} or more arguments" if most > 9 else takes
        hint = {"clamp": "write clamp(x, lo, hi)", "uniform": "write uniform(seed, b, h, i, j)"}.get(name)
        self.report(e.span, f"'{name}' takes {takes}, not {given}", hint)

    def _built_in(self, e: syntax.Call, name: str, args: list[Term]) -> Term:
        span, kinds = e.span, [a.kind for a in args]
        if name in DTYPES:
            return self._convert(span, args[0], name)
        if name in ("min", "max"):
            out = args[0]
            for a in args[1:]:
                out = self.emit(span, name, self._number([out.kind, a.kind]), out, a)
            return out
        if name == "clamp":
            low = self.emit(span, "max", self._number(kinds[:2]), args[0], args[1])
            return self.emit(span, "min", self._number(kinds), low, args[2])
        if name == "pow":
            return self._power(span, args[0], args[1], e.args[1])
        if name == "uniform":
            whole = [self._whole(a, x, "'uniform'") for a, x in zip(args, e.args, strict=True)]
            return self.emit(span, name, "float", *whole)
        if kinds == ["int"] and name in ("floor", "ceil"):
            return args[0]
        if kinds == ["int"] and name == "relu":
            return self.emit(span, "max", "int", args[0], Term(0, kind="int", scalar=0))
        result: KindOf = "bool" if name == "isfinite" else self._number(kinds) if name == "abs" else "float"
        return self.emit(span, name, result, *args)

    def _convert(self, span: Span, x: Term, to: str) -> Term:
        if x.failed:
            return FAILED
        if to == "bool":
            return x if x.kind == "bool" else self.truth(span, x)
        self._count(span)
        self.builder.span = span
        operand = self.builder.cast(x.operand, cast(DType, to), name=self.new_name("t"))
        whole = kind(cast(DType, to)) == "int"
        out = self._made(operand, "int" if whole else "float", [x], "i64" if whole else "f64")
        return replace(out, bare=None)

    def truth(self, span: Span, x: Term) -> Term:
        """Whether a number is other than 0."""
        return x if x.kind == "bool" else self.emit(span, "ne", "bool", x, Term(0, kind="int", scalar=0))

    # ---- reductions

    def _reduction(self, e: syntax.Reduction, frame: Frame) -> Term:
        fn = e.fn.name
        if fn not in REDUCTIONS:
            self._no_reduction(e)
        axes = self._bound(e, frame)
        if not e.args or len(e.args) > 1 and fn not in ("softmax", "logsumexp"):
            self.report(e.span, f"'{fn}[…]' takes 1 argument, not {len(e.args)}")
            axes = None
        inner = frame if axes is None else self._without_capture(e, axes, frame)
        x = self.term(e.args[0], inner) if e.args else FAILED
        logits = [self.term(a, frame) for a in e.args[1:]]
        if axes is None or fn not in REDUCTIONS or x.failed or any(a.failed for a in logits):
            return FAILED
        bound = tuple(inner.axes.get(name, axis) for name, axis in axes)
        if self._captured(e, axes, inner, frame) or not self._fit(e, bound, logits):
            return FAILED
        self._count(e.span)
        out = reductions.reduce(self, e.span, fn, x, logits, bound)
        gone: frozenset[str] = frozenset() if fn == "softmax" else frozenset(bound)
        mentions = frozenset[str]().union(x.mentions - gone, *(a.mentions for a in logits))
        return replace(out, mentions=mentions, bare=None, scalar=None)

    def _bound(self, e: syntax.Reduction, frame: Frame) -> list[tuple[str, str]] | None:
        """The axes a reduction binds: the name it writes for each, and the axis. None: that is reported."""
        if not e.axes:
            self.report(e.span, f"'{e.fn.name}[]' says no axis", f"write {e.fn.name}[j](…)")
            return None
        out: list[tuple[str, str]] = []
        for name in e.axes:
            axis = self._bound_axis(e, name, frame)
            if axis is None:
                return None
            if any(axis == a for _, a in out):
                self.report(name.span, f"'{e.fn.name}' reduces over '{name.name}' twice", "name each axis once")
                return None
            out.append((name.name, axis))
        return out

    def _bound_axis(self, e: syntax.Reduction, name: Name, frame: Frame) -> str | None:
        if name.name in frame.params:
            term = frame.params[name.name]
            if term.bare is None and not term.failed and not self.generic:
                message = f"'{name.name}' is a parameter of '{frame.function}', and here it is no axis"
                self.report(name.span, message, "pass an axis by its name")
            return term.bare
        if not (self.generic and frame.top) and (why := self.names.no_axis(name.name)):
            self.report(name.span, f"'{name.name}' is {why}: '{e.fn.name}' reduces over axes", _another(name.name))
            return None
        if name.name in self.names.axes:
            return frame.axes.get(name.name, name.name)
        if not self.generic:
            self._no_such_name(name, frame)
        return None

    def _without_capture(self, e: syntax.Reduction, axes: list[tuple[str, str]], frame: Frame) -> Frame:
        """The frame of a reduction's operand: an axis that the function's own text names, and an argument of it
        mentions, becomes one of its own."""
        own = {n.name for a in e.args[:1] for n in syntax.walk(a) if isinstance(n, Name)}
        mentioned = frozenset[str]().union(*(frame.params[n].mentions for n in own if n in frame.params))
        renamed = {
            name: self._twin(name, mentioned)
            for name, axis in axes
            if name not in frame.params and name in own and axis in mentioned
        }
        return replace(frame, axes={**frame.axes, **renamed}) if renamed else frame

    def _twin(self, name: str, mentioned: frozenset[str]) -> str:
        """Another axis with the range of `name`, that no argument mentions."""
        twins = self._twins.setdefault(name, [])
        for twin in twins:
            if twin not in mentioned:
                return twin
        twin = fresh(name, self.builder.taken)
        twins.append(twin)
        self.names.axes[twin] = self.names.axes[name]
        kernel = self.builder.kernel
        self.builder.kernel = replace(kernel, axes=(*kernel.axes, Axis(twin, self.names.axes[name].extent)))
        return twin

    def _captured(self, e: syntax.Reduction, axes: list[tuple[str, str]], inner: Frame, frame: Frame) -> bool:
        """Reports a kernel's value that varies over an axis which had to be renamed here."""
        for name, axis in axes:
            if inner.axes.get(name) == frame.axes.get(name):
                continue
            for n in syntax.walk(e.args[0]):
                if isinstance(n, Name) and n.name not in frame.params and n.name in self.names.values:
                    if axis in self.names.values[n.name].axes:
                        message = f"'{n.name}' varies over '{name}', and so does an argument of '{frame.function}'"
                        self.report(n.span, message, f"use another index than '{name}' in the call")
                        return True
        return False

    def _fit(self, e: syntax.Reduction, bound: tuple[str, ...], logits: list[Term]) -> bool:
        for a, arg in zip(logits, e.args[1:], strict=True):
            over = [x for x in bound if x in a.axes]
            if over:
                message = f"a further logit of '{e.fn.name}' must not vary over '{over[0]}'"
                self.report(arg.span, message, "it is one more term of each row; add what varies to the first argument")
                return False
        return True

    def _no_reduction(self, e: syntax.Reduction) -> None:
        name = e.fn.name
        if name in BUILT_IN or self.names.function(name, False):
            self.report(e.fn.span, f"'{name}' is no reduction", f"write {name}(…), without axes")
        elif name in self.names.tensors:
            self.report(e.span, f"'{name}' is a tensor: an element cannot be called", "write * to multiply")
        else:
            self.report(e.fn.span, f"no reduction is called '{name}'", near(name, REDUCTIONS))


def _another(name: str) -> str | None:
    return "use another index" if name not in CONSTANTS else None


def _literal_kind(value: float | bool) -> KindOf:
    return "bool" if isinstance(value, bool) else "float"


def _arity(name: str) -> tuple[int, int]:
    if name in ("min", "max"):
        return 2, 99
    if name == "uniform":
        return 1, 5
    if name == "clamp":
        return 3, 3
    return (2, 2) if name in ("pow", "atan2") else (1, 1)
