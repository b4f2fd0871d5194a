"""online: reductions over one axis that depend on each other, in one pass over it.

Requires: groups (after fuse). Changes: in each group the outermost reductions, and those over the same axes,
run in `for`s.

    m = max(x, over=j); l = sum(exp2(sub(x, m)), over=j)
    ->
    m, l = for(-inf, 0.0, axis=j) as (m_0, l_0) {
      n = max(m_0, max(x, over=j)); a = exp2(sub(m_0, n)); p = exp2(sub(x, n)); yield(n, add(mul(l_0, a), sum(p, over=j)))
    }

A reduction joins the loop of the ones it depends on (its *states*) where `factor` proves that it is a
sum of terms c(states) · Σ g(j) · exp(u(j) + w(states)): when the states move, its accumulators are multiplied
by exp(w(new) - w(old)), and c is applied after the loop. One that does not factor gets a loop of its own, after
the first; its `note` says so. A reduction over several axes runs in nested loops.

What a group yields may have axes that its grid lacks: the columns of V. A tile has these whole, so that no loop runs over
them; a norm of the outputs' rows is made after the loops. So is an axis that a reduction inside of a loop over several is
over: `d` in `sum[j, d](sum[d](…) * …)`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from tilec.builder import Builder
from tilec.dataflow import definitions, forward, names_in
from tilec.dtypes import DType, kind
from tilec.ieee import absent_values
from tilec.ir import (
    For,
    Group,
    Kernel,
    Op,
    Operand,
    Reduce,
    Type,
    Value,
    Yield,
    operands,
    walk,
)
from tilec.passes.behind import Behind, alone, key
from tilec.passes.expand import LIMITS
from tilec.passes.factor import Expr, Known, Phi, Term, conversion
from tilec.passes.sharing import Loop, Sharing
from tilec.renaming import fresh

COMBINE = {"max": "max", "maxnum": "max", "min": "min", "any": "or", "all": "and"}


def online(kernel: Kernel) -> Kernel:
    """One pass over each streamed axis, where the algebra allows it."""
    taken = Builder(kernel).taken
    read = {x for op in kernel.body for x in _read(op)}
    absent = absent_values(kernel)
    body = tuple(
        _Stream(kernel, op, taken, read, absent).run() if isinstance(op, Group) else op
        for op in kernel.body
    )
    return replace(kernel, body=body)


def _read(op: Op) -> set[str]:
    """The names that an op reads, those of its body included; what it yields to others does not count."""
    return {x for o in walk((op,)) if not isinstance(o, Yield) for x in names_in(operands(o))}


class _Stream(Builder):
    """Rebuilds the body of one group around its loops."""

    def __init__(
        self, kernel: Kernel, group: Group, taken: set[str], read: set[str], absent: set[str]
    ) -> None:
        super().__init__(kernel, taken)
        self.group, self.read = group, read
        self.body = group.body[:-1]
        end = group.body[-1]
        assert isinstance(end, Yield)
        self.yields = end.values
        self.defs = definitions(self.body)
        self.old_types = dict(self.types)
        whole = {a for v in group.results for a in v.type.axes} - set(group.axes)
        known = Known(absent, tuple(kernel.dims))
        self.sharing = Sharing(self.body, self.yields, whole, self.old_types, known)
        self.rows: dict[str, Operand] = {}

    def run(self) -> Group:
        for name in self.defs:
            self.taken.discard(name)
        for loop in self.sharing.loops:
            _Emitter(self, loop).emit()
        kept = [
            (v, self.row(x))
            for v, x in zip(self.group.results, self.yields, strict=True)
            if v.name in self.read  # not what was a cut for reductions of this very group
        ]
        body = (*self.ops, Yield((), tuple(x for _, x in kept)))
        return replace(self.group, results=tuple(v for v, _ in kept), body=body)

    # ---- values per row, outside the loops

    def row(self, x: Operand) -> Operand:
        """A value of the old body that has no streamed axis, outside all loops; made where it is first needed."""
        if not isinstance(x, str) or x not in self.defs:
            return x
        if x not in self.rows:
            self.rows[x] = self.again(
                self.defs[x], {y: self.row(y) for y in names_in(operands(self.defs[x]))}
            )
        return self.rows[x]


class _Emitter:
    """Emits one loop, or a nest of them: a region per axis."""

    def __init__(self, stream: _Stream, loop: Loop) -> None:
        self.b, self.loop = stream, loop
        self.moving = forward(stream.body, loop.reductions)
        self.behind = Behind(
            stream.defs, stream.yields, stream.kernel.dims, loop.reductions, self.moving
        )
        self.regions: list[list[Op]] = [stream.ops, *([] for _ in loop.axes)]
        self.copies: dict[str, Operand] = {}
        self.states: dict[tuple[str, str], Operand] = {}
        self.made: dict[tuple[object, ...], Operand] = {}
        self.accumulators: dict[tuple[object, ...], int] = {}
        self.init: list[Operand] = []
        self.args: list[list[Value]] = [[] for _ in loop.axes]
        self.new: list[Operand] = []
        self.names: list[str] = []

    def emit(self) -> None:
        """The loop, and what the reductions are after it."""
        b = self.b
        for name, terms in self.loop.reductions.items():
            b.span = b.defs[name].span
            if terms is None:
                self._extreme(name)
            else:
                self._sums(name, terms)
        results = self._close()
        b.ops = self.regions[0]
        for name, terms in self.loop.reductions.items():
            b.rows[name] = self._value(name, terms, [v.name for v in results], b.row)

    def _close(self) -> tuple[Value, ...]:
        b = self.b
        values: tuple[Operand, ...] = tuple(self.new)
        results: tuple[Value, ...] = ()
        for depth in range(len(self.loop.axes), 0, -1):
            names = self.names if depth == 1 else [fresh(n, b.taken) for n in self.names]
            results = tuple(Value(n, v.type) for n, v in zip(names, self.args[0], strict=True))
            init = tuple(self.init) if depth == 1 else tuple(v.name for v in self.args[depth - 2])
            op = For(
                results,
                init,
                axis=self.loop.axes[depth - 1],
                args=tuple(self.args[depth - 1]),
                body=(*self.regions[depth], Yield((), values)),
                note=self.loop.note,
                span=b.span,
            )
            b.ops = self.regions[depth - 1]
            b.add(op)
            values = tuple(v.name for v in results)
        return results

    # ---- carried values

    def _carry(self, name: str, type: Type, init: Operand) -> int:
        b = self.b
        self.init.append(init)
        self.names.append(fresh(name, b.taken))
        for args in self.args:
            v = b.value(f"{name}_0", type)
            b.types[v.name] = type
            args.append(v)
        self.new.append("")
        return len(self.new) - 1

    def _old(self, k: int) -> str:
        return self.args[-1][k].name

    def _extreme(self, name: str) -> None:
        op = self.b.sharing.reduction(name)
        assert isinstance(op, Reduce)
        b, t = self.b, op.result.type
        k = self._carry(name, Type(t.dtype, t.axes), _identity(op.fn, t.dtype))
        x = self._element(op.args[0])
        self._at(len(self.loop.axes))
        part = b.reduce(op.fn, x, over=op.over)
        self.new[k] = b.map(COMBINE[op.fn], self._old(k), part, name=name)
        self.states[name, "old"], self.states[name, "new"] = self._old(k), self.new[k]

    def _sums(self, name: str, terms: list[Term]) -> None:
        over = self.b.sharing.reduction(name).over
        for t in terms:
            self._accumulate(name, over, t)
            if t.weights and self._asked(name, t):
                self._accumulate("l", over, alone(t.weights))
        for when in ("old", "new"):
            values = [self._old(k) if when == "old" else self.new[k] for k in range(len(self.new))]
            if any(
                name in self._needs(p.w)
                for r in self.loop.reductions.values()
                for t in r or []
                for p in t.phis
            ):
                self._at(len(self.loop.axes))
                self.states[name, when] = self._value(
                    name, terms, values, partial(self._state, when=when)
                )

    def _needs(self, e: Expr) -> set[str]:
        if isinstance(e, tuple):
            return set[str]().union(*(self._needs(x) for x in e[1:]))
        if not isinstance(e, str) or e not in self.b.defs:
            return set()
        return {e}.union(
            *(self._needs(x) for x in names_in(operands(self.b.defs[e])) if x in self.moving)
        )

    def _asked(self, name: str, t: Term) -> bool:
        """Whether the sum of a term's weights is asked for behind the loop."""
        behind = self.behind
        return behind.unbounded(name, t) or any(behind.guarded(t, c) for _, c in t.coefficients)

    def _accumulate(self, name: str, over: tuple[str, ...], t: Term) -> None:
        k = key(over, t)
        if k not in self.accumulators:
            self.accumulators[k] = self._sum(name, t, over)

    def _sum(self, name: str, t: Term, over: tuple[str, ...]) -> int:
        b = self.b
        type = self._type(t, over)
        zero: Operand = 0 if type.dtype == "i64" else 0.0
        k = self._carry(name, type, zero)
        x = self._expr(t.x, "new")
        y = None if t.y is None else self._expr(t.y, "new")
        self._at(len(self.loop.axes))
        part = (
            b.reduce("sum", self._spread(x, over), over=over)
            if y is None
            else b.contract(x, y, over)
        )
        old: Operand = self._old(k)
        for p in t.phis:
            old = b.map("mul", old, self._alpha(p))
        self.new[k] = b.map("add", old, part, name=name)
        return k

    def _spread(self, x: Operand, over: tuple[str, ...]) -> Operand:
        """x, made to have the axes of the sum: one of a constant counts positions."""
        b = self.b
        for axis in over:
            if axis not in b.type_of(x).axes:
                x = b.map("select", b.map("ge", axis, 0), x, x)
        return x

    def _type(self, t: Term, over: tuple[str, ...]) -> Type:
        b = self.b
        axes = [a for e in (t.x, t.y) if e is not None for a in self._axes(e)]
        dtypes = {self._dtype(e) for e in (t.x, t.y) if e is not None}
        dtype: DType = b.kernel.compute if "float" in dtypes else "i64"
        joined, _ = b.join([Type("i64", tuple(dict.fromkeys(axes)))])
        return Type(dtype, tuple(a for a in joined if a not in over))

    def _axes(self, e: Expr) -> list[str]:
        if isinstance(e, tuple):
            return [a for x in e[1:] for a in self._axes(x)]
        if isinstance(e, str) and e in self.b.old_types:
            return list(self.b.old_types[e].axes)
        return list(self.b.type_of(e).axes)

    def _dtype(self, e: Expr) -> str:
        if isinstance(e, tuple):
            if e[0] in ("exp", "exp2", "div") or conversion(e[0]) is not None:
                return "float"
            return "float" if "float" in {self._dtype(x) for x in e[1:]} else "int"
        t = (
            self.b.old_types[e]
            if isinstance(e, str) and e in self.b.old_types
            else self.b.type_of(e)
        )
        return "float" if kind(t.dtype) == "float" else "int"

    # ---- expressions

    def _at(self, depth: int) -> None:
        self.b.ops = self.regions[depth]

    def _element(self, x: Operand) -> Operand:
        """A value that does not depend on the states, copied into the loop, or made before it."""
        b = self.b
        if not isinstance(x, str) or x not in b.defs:
            return x
        if not set(b.old_types[x].axes) & set(self.loop.axes) and x not in self.moving:
            self._at(0)
            return b.row(x)
        if x not in self.copies:
            op = b.defs[x]
            parts = {y: self._element(y) for y in names_in(operands(op))}
            axes = set(b.old_types[x].axes)
            self._at(max(k + 1 for k, a in enumerate(self.loop.axes) if a in axes))
            self.copies[x] = b.again(op, parts)
        return self.copies[x]

    def _state(self, x: Operand, when: str) -> Operand:
        """A value per row, as it is with the states before (`old`) or after (`new`) the present window."""
        b = self.b
        if not isinstance(x, str) or x not in b.defs:
            return x
        if x not in self.moving:
            self._at(0)
            value = b.row(x)
            self._at(len(self.loop.axes))
            return value
        if (x, when) not in self.states:
            parts = {y: self._state(y, when) for y in names_in(operands(b.defs[x]))}
            self._at(len(self.loop.axes))
            self.states[x, when] = b.again(b.defs[x], parts)
        return self.states[x, when]

    def _expr(self, e: Expr, when: str) -> Operand:
        if not isinstance(e, tuple):
            moving = isinstance(e, str) and e in self.moving
            return self._state(e, when) if moving else self._element(e)
        key = (e, when)
        if key not in self.made:
            function, *parts = e
            args = [self._expr(x, when) for x in parts]
            self._at(len(self.loop.axes))
            self.made[key] = self._apply(str(function), args)
        return self.made[key]

    def _apply(self, function: str, args: list[Operand]) -> Operand:
        b = self.b
        if function == "clamp":
            top = LIMITS[b.kernel.compute]
            return b.map("max", b.map("min", args[0], top), -top, name="r")
        to = conversion(function)
        return b.map(function, *args) if to is None else b.cast(args[0], to)

    def _alpha(self, p: Phi) -> Operand:
        """exp(w(new) - w(old)): what the accumulators are multiplied by."""
        key = ("alpha", p)
        if key not in self.made:
            new, old = self._expr(p.w, "new"), self._expr(p.w, "old")
            self._at(len(self.loop.axes))
            b = self.b
            z = b.map("sub", old, new) if p.negative else b.map("sub", new, old)
            if p.scale is not None:
                scale = self._expr(p.scale, "new")
                self._at(len(self.loop.axes))
                z = b.map("mul", z, scale)
            self.made[key] = b.map(p.fn, z, name="alpha")
        return self.made[key]

    def _value(
        self,
        name: str,
        terms: list[Term] | None,
        values: list[Operand],
        of: Callable[[Operand], Operand],
    ) -> Operand:
        """What a reduction is, from the carried values: Σ c · accumulator."""
        b = self.b
        if terms is None:
            return values[self._index(name)]
        total: Operand | None = None
        for t in terms:
            part = self._behind(name, t, values, of)
            total = part if total is None else b.map("add", total, part)
        init = getattr(b.defs[name], "init", None)
        assert total is not None
        return total if init is None else b.map("add", self._outside(init, of), total)

    def _behind(
        self, name: str, t: Term, values: list[Operand], of: Callable[[Operand], Operand]
    ) -> Operand:
        """What a term of a reduction is behind the loop: its sum with its coefficients.

        From the first that may be NaN on, coefficients are one factor of a row, which takes fewer registers than each alone.
        """
        b, over = self.b, self.b.sharing.reduction(name).over
        part = values[self.accumulators[key(over, t)]]
        l: Operand = 1.0
        if t.weights and self._asked(name, t):
            l = values[self.accumulators[key(over, alone(t.weights))]]
        if self.behind.unbounded(name, t):
            finite = b.map("eq", b.map("sub", l, l), 0.0)
            part = b.map("mul", part, b.map("select", finite, 1.0, 0.0))
        zero = 0 if b.type_of(part).dtype == "i64" else 0.0
        factor: Operand | None = None
        for how, c in t.coefficients:
            by = self._outside(c, of)
            match how:
                case "keep":
                    part = b.map("select", by, part, zero)
                case "drop":
                    part = b.map("select", by, zero, part)
                case _ if self.behind.guarded(t, c) or factor is not None:
                    first = how == "mul" and factor is None
                    factor = by if first else b.map(how, 1.0 if factor is None else factor, by)
                case _:
                    part = b.map(how, part, by)
        if factor is None:
            return part
        return b.map("mul", part, b.map("select", b.map("eq", l, 0.0), 0.0, factor))

    def _outside(self, e: Expr, of: Callable[[Operand], Operand]) -> Operand:
        if not isinstance(e, tuple):
            return of(e)
        args = [self._outside(x, of) for x in e[1:]]
        return self._apply(str(e[0]), args)

    def _index(self, name: str) -> int:
        return next(k for k, v in enumerate(self.new) if v == self.states[name, "new"])


def _identity(fn: str, dtype: DType) -> Operand:
    if fn in ("any", "all"):
        return fn == "all"
    if kind(dtype) == "int":
        return -(2**63) if fn != "min" else 2**63 - 1
    return -math.inf if fn != "min" else math.inf
