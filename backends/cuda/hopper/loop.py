"""One loop over a fragment: all that is made of its elements at a place in the program."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper import between
from tilec.backends.cuda.hopper.analysis import Analysis, Root
from tilec.backends.cuda.hopper.expression import (
    COLUMN,
    ELEMENT,
    POSITION,
    Expression,
    bracket,
    cast,
    literal,
)
from tilec.backends.cuda.hopper.pointwise import pointwise, quick_log
from tilec.backends.cuda.hopper.shortcuts import Shortcuts
from tilec.backends.cuda.hopper.span import Span
from tilec.backends.cuda.hopper.words import Words
from tilec.backends.cuda.hopper.writer import Lines
from tilec.dataflow import backward, names_in
from tilec.ir import (
    Cast,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    operands,
)

COMBINE = {
    "sum": "{0} + {1}",
    "max": "max_nan({0}, {1})",
    "min": "min_nan({0}, {1})",
    "maxnum": "fmaxf({0}, {1})",
}
IDENTITY = {"sum": "0.f", "max": "NEG_INF", "min": "POS_INF", "maxnum": "NEG_INF"}
LONG = 8
"""Ops of an element from which on code that hardly ever runs is a loop that is not unrolled."""
QUAD = {"sum": "quad_sum", "max": "quad_max_nan", "min": "quad_min_nan", "maxnum": "quad_max"}


class FragmentLoop:
    """One loop over the blocks of 8 columns of a fragment."""

    def __init__(self, block: Analysis, roots: list[Root]) -> None:
        self.block, self.roots = block, roots
        self.scope, self.out, self.names = block.scope, block.out, block.names
        self.held = block.scope.held
        self.locals: dict[str, Expression] = {}
        self.stored = {r.value: r.array for r in roots if r.what == "keep"}
        self.declared: set[str] = set()
        self.parts: dict[str, str] = {}
        self.words = Words(self)
        self.shortcuts = Shortcuts(self)
        self.mark = 0, 0
        self.inside: tuple[int, int] | None = None
        self.turned: dict[str, None] | None = None
        """The arrays that turn as a loop goes on, if it is one: each block of 8 columns comes to the beginning in turn."""

    def write(self) -> None:
        """The loop and what follows it: the ends of its reductions."""
        out, s = self.out, self.block.structure
        width = 2 * self.held  # elements in 8 columns
        self.begin()
        packed = {
            r.value: self.names.fresh(self.names.of(r.value) + "_four")
            for r in self.roots
            if r.what == "pack"
        }
        self.mark = len(out.lines), out.depth
        self.turned = {} if self.block.rare and not packed and self.is_long() else None
        out.add("#pragma unroll" if self.turned is None else "#pragma unroll 1")
        with out.block(f"for (int c = 0; c < {s.columns // 8}; c++)"):
            if self.block.heavy and not self.block.rough:
                out.add("IN_ORDER;")
            for name in packed.values():
                out.add(f"float {name}[{width}];")
            self.inside = len(out.lines), out.depth
            with out.block("EACH"):
                out.add(f"const int r = x >> 1, {COLUMN} = 8 * c + (x & 1);")
                for root in self.roots:
                    self.element(root, packed)
                for value, array in self.stored.items():
                    e = self.locals[value]
                    bare = (
                        e.product[0] if value in self.block.factors and e.product else e.real().text
                    )
                    out.add(f"{self.place_in(array)} = {bare};")
            for root in self.roots:
                if root.what == "pack":
                    self.pack(root, packed[root.value])
            for array in self.turned or ():
                out.add(f"turn_by<{width}>({array});")
        for r in self.roots:
            if r.op is not None:
                self.combine(r)
        self.block.arrays.update(self.stored)

    def is_long(self) -> bool:
        """Whether an element takes many instructions, and none of a register that its block of columns decides on."""
        there = self.block.arrays.keys() - self.stored.keys()
        roots = [r.value for r in self.roots if r.value not in there]
        found = backward(roots, self.block.defs, there) - there
        own = [x for x in found if self.block.structure.stream in self.scope.axes(x)]
        return len(own) >= LONG and self.block.fetched.keys().isdisjoint(own)

    def test(self, x: str) -> None:
        """The words of a mask, without a loop that needs them."""
        self.mark = len(self.out.lines), self.out.depth
        self.words.tested(x)

    def begin(self) -> None:
        """The parts of reductions and the arrays that the loop fills."""
        out, size = self.out, 2 * self.held * self.block.structure.columns // 8
        for r in self.roots:
            self.settle(r.value)
        for r in self.roots:
            if r.op is not None:
                parts = ", ".join([IDENTITY[r.op.fn]] * 4)
                out.add(f"float {self.part(r.op)}[4] = {{{parts}}};{self.scope.comment(r.op)}")
        for r in self.roots:
            if r.what == "keep" and r.array not in self.block.registers.heads:
                out.add(f"float {r.array}[{size}];")

    def pack(self, root: Root, packed: str) -> None:
        """Pairs of weights as words, or as a word in each part."""
        for n in range(self.held):
            at = f"{self.held} * c + {n}" if n else f"{self.held} * c"
            pair = f"{packed}[{2 * n}], {packed}[{2 * n + 1}]"
            if len(root.parts) == 1:
                self.out.add(f"{root.parts[0]}[{at}] = pack_{root.dtype}({pair});")
            else:
                self.out.add(f"split({pair}, {', '.join(f'{p}[{at}]' for p in root.parts)});")

    def guess(self, x: str, slot: str, again: bool = False) -> None:
        """The maximum of a value over its first 8 columns, as a guess of that over all. `again`: where none of a row's is
        there, as where another document ends in the window, over all of them."""
        out = self.out
        part = self.names.fresh("guess")
        greatest = f"quad_max(fmaxf({part}[2 * r], {part}[2 * r + 1]))"
        self.mark = len(out.lines), out.depth
        with out.block(""):
            out.add(f"float {part}[{2 * self.held}];")
            out.add("const int c = 0;")
            self.inside = len(out.lines), out.depth
            with out.block("EACH"):
                out.add(f"const int r = x >> 1, {COLUMN} = x & 1;")
                out.add(f"{part}[x] = {self.guarded(x, 'NEG_INF', False)};")
            out.add(f"ROWS {slot}[r] = {greatest};")
            if again:
                there = " & ".join(f"({slot}[{r}] > NEG_INF)" for r in range(self.held))
                with out.block(f"if (!__all_sync(FULL, {there}))"):
                    out.add("#pragma unroll")
                    with out.block(
                        f"for (int c = 1; c < {self.block.structure.columns // 8}; c++) EACH"
                    ):
                        e = f"{self.block.arrays[x]}[{2 * self.held} * c + x]"
                        out.add(f"{part}[x] = fmaxf({part}[x], {self.scaled(x, e).text});")
                    out.add(f"ROWS {slot}[r] = {greatest};")

    def part(self, op: Reduce) -> str:
        """The name of a thread's four parts of a reduction."""
        name = op.result.name
        if name not in self.parts:
            self.parts[name] = self.names.fresh(f"{self.names.of(name)}_part")
        return self.parts[name]

    def settle(self, x: str) -> None:
        """Adds up the parts of the row sums that an element depends on."""
        op = self.block.defs.get(x)
        if op is None or x in self.block.arrays:
            return
        for y in names_in(operands(op)):
            if y in self.block.partial:
                self.block.total(y)
            elif self.block.structure.stream in self.scope.axes(y):
                self.settle(y)

    def element(self, root: Root, packed: dict[str, str]) -> None:
        """What a root does with an element."""
        if root.what == "keep":
            self.value(root.value)
            return
        fn = root.op.fn if root.op is not None else "sum"
        e = self.guarded(root.value, IDENTITY[fn], root.factor is not None)
        if root.what == "pack":
            self.out.add(f"{packed[root.value]}[x] = {e};")
            return
        assert root.op is not None
        part = f"{self.part(root.op)}[{'x' if self.held == 2 else 'r'}]"
        self.out.add(f"{part} = {COMBINE[fn].format(part, e)};")

    def guarded(self, name: str, identity: str, bare: bool) -> str:
        """An element, or the identity beyond the axis's end. `bare`: without its factor."""
        value = self.value(name).real()
        e = (
            value.product[0]
            if bare and name in self.block.factors and value.product
            else value.text
        )
        if not self.block.ragged or self.block.cut:
            return e
        key = f"{name} or {identity}"
        if key not in self.locals:
            local = self.names.fresh(self.names.of(name) + "_in")
            self.out.add(f"const float {local} = {COLUMN} < rest ? {e} : {identity};")
            self.locals[key] = Expression(local, "float")
        return self.locals[key].text

    def combine(self, root: Root) -> None:
        """A thread's parts of a reduction into one value per row."""
        assert root.op is not None
        name, fn = self.names.of(root.op.result.name), root.op.fn
        both = f"{self.part(root.op)}[r]"
        if self.held == 2:
            parts = (f"{self.part(root.op)}[2 * r{more}]" for more in ("", " + 1"))
            both = COMBINE[fn].format(*parts)
        if root.op.result.name not in self.block.partial:
            both = f"{QUAD[fn]}({both})"
        if root.factor is not None:
            both = f"{both} * {literal(root.factor).text}"
        self.out.add(f"float {name}[{self.held}]; ROWS {name}[r] = {both};")
        self.scope.values[root.op.result.name] = Expression(name, "float")

    # ---- elements

    def value(self, x: Operand) -> Expression:
        """An element of an operand, computed once per loop."""
        s = self.block.structure
        if not isinstance(x, str):
            return literal(x)
        if x in self.locals:
            return self.locals[x]
        if x == s.stream:
            return Expression("stream_lane", "int", POSITION, 1)
        if x == s.row:
            return Expression("row_i[r]", "int", POSITION)
        array = self.block.arrays.get(x)
        if array is not None and x not in self.stored:
            return self.scaled(x, self.place_in(array))
        axes = self.scope.axes(x)
        if s.stream not in axes:
            return self.scope.operand(x)
        return self.computed(x)

    def place_in(self, array: str) -> str:
        """Where an element is in an array."""
        if self.turned is None:
            return f"{array}[{2 * self.held} * c + x]"
        self.turned[array] = None
        return f"{array}[x]"

    def computed(self, x: str) -> Expression:
        """The element of a value of columns, or of rows and columns, as a local constant."""
        op = self.block.defs.get(x)
        if op is None:
            raise Refused(f"{x} is not known here")
        bits = self.words.tested(x)
        if bits is not None:
            self.locals[x] = bits
            return bits
        if isinstance(op, Load) and (op.tensor, op.index) in self.scope.labels:
            self.locals[x] = self.label(op)
            return self.locals[x]
        e = self.expression(x, op)
        if e.step or e.drawn or (e.span is not None and self.words.hoists(e.span)):
            self.locals[x] = e
            return e
        name = self.names.fresh(self.names.of(x) + "_x")
        self.declared.add(name)
        kept = x in self.block.factors
        ctype = "float" if kept else e.ctype
        self.out.add(f"const {ctype} {name} = {e.text};{self.scope.comment(op)}")
        self.locals[x] = (
            self.scaled(x, name)
            if kept
            else Expression(name, e.kind, e.bits, product=e.product, line=e.line)
        )
        return self.locals[x]

    def expression(self, x: str, op: Op) -> Expression:
        """What an element is, from the elements of its operands."""
        match op:
            case Map() if (short := self.shortcuts.of(x, op)) is not None:
                return short
            case Map(fn="select", args=(_, y, z)) if x in self.block.given:
                bit = Expression(self.words.test(self.block.given[x] + "[r]"), "bool")
                args = [bit, self.value(self.bare(x, y)), self.value(z)]
                return pointwise("select", args, op.result.type.dtype)
            case Map() if (test := self.block.comparisons.between(op)) is not None:
                position = self.value(self.block.structure.stream)
                return between.tested(test, self.value, position, self.scope.once)
            case Map(fn="log" | "log2", args=(y,)):
                return quick_log(op.fn, self.value(self.bare(x, y)))
            case Map():
                args = [self.value(self.bare(x, y)) for y in op.args]
                if op.fn == "select":
                    return self.selected(x, op, args)
                if op.fn in ("and", "or"):
                    args = self.spanned(op, args)
                return pointwise(op.fn, args, op.result.type.dtype)
            case Cast():
                return cast(self.value(op.x), op.to)
            case Load() if x in self.block.fetched and self.words.whole:
                what, array = self.block.fetched[x]
                return what.element(array)
            case Load():
                index = [self.value(y) for y in op.index]
                return self.scope.load(op, index, self.place(op, index), self.inside_by_bit)
            case _:
                raise Refused(f"{x} is no pointwise value")

    def spanned(self, op: Map, args: list[Expression]) -> list[Expression]:
        """Conditions of a stretch and of what is the same along a row: that is a stretch, too."""
        if not any(a.span for a in args):
            return args
        steady = [isinstance(y, str) and self.block.is_fixed(y) for y in op.args]
        return [
            replace(a, span=Span(high=(f"({a.text} ? BEYOND : -BEYOND)",))) if s else a
            for a, s in zip(args, steady, strict=True)
        ]

    def selected(self, x: str, op: Map, args: list[Expression]) -> Expression:
        """A selection; where its condition is a stretch of columns and others, of one value by each: the compiler then
        has predicates for both, and computes no bool."""
        conditions = self.counts(x, op, args[0])
        dtype, (taken, otherwise) = op.result.type.dtype, args[1:]
        if len(conditions) > 1 and op.args[2] != -math.inf:
            both = " && ".join(c.text for c in conditions)
            conditions = [Expression(f"({both})", "bool")]
        for c in conditions:
            taken = pointwise("select", [c, taken, otherwise], dtype)
        return taken

    def counts(self, x: str, op: Map, condition: Expression) -> list[Expression]:
        """The conditions of a masked value; where there is a stretch of columns, a bit for each of them is made before
        the loop."""
        span = condition.span
        kept = op.args[2] == -math.inf
        if x in self.block.cut and kept:
            rest = Span(high=("rest - 1",))
            span = (span or Span(others=(condition.text,))).both(rest)
        elif x in self.block.cut:
            return [Expression(f"({condition.text} || {COLUMN} >= rest)", "bool")]
        if span is None or not span.some or not self.words.hoists(span):
            return [condition]
        return [Expression(text, "bool") for text in (self.words.bit(span), *span.others)]

    def inside_by_bit(self, e: Expression, bound: Expression) -> str | None:
        """The test that an index is in range, by a bit for each column."""
        if e.step != 1 or max(e.bits, bound.bits) > 31 or not self.words.whole:
            return None
        base = bracket(e.text)
        span = Span((f"-{base}",), (f"{bound.text} - 1 - {base}",))
        return self.words.bit(span) if self.words.hoists(span) else None

    def place(self, op: Load, index: list[Expression]) -> str | None:
        """An element by a pointer that is computed before the loop; None where its index is computed in it."""
        inside = {w for e in self.locals.values() for w in re.findall(r"[A-Za-z_]\w*", e.text)}
        inside &= self.declared
        words = [set(re.findall(r"[A-Za-z_]\w*", e.text)) for e in index]
        if any(w & inside for w in words) or not any(e.step for e in index):
            return None
        name = self.names.of(op.tensor)
        pointer = self.names.fresh(f"{name}_at")
        rows = any("r" in w for w in words)
        strides = [self.scope.stride(op.tensor, k) for k in range(len(index))]
        base = " + ".join(f"(i64)({e.text}) * {n}" for n, e in zip(strides, index, strict=True))
        steps = [f"{e.step} * {n}" for n, e in zip(strides, index, strict=True) if e.step]
        element = ELEMENT[self.scope.dtype(op.tensor)]
        if rows:
            self.before(
                f"const {element}* {pointer}[{self.held}]; ROWS {pointer}[r] = {name} + ({base});"
            )
        else:
            self.before(f"const {element}* const {pointer} = {name} + ({base});")
        return f"{pointer}{'[r]' if rows else ''}[{COLUMN} * ({' + '.join(steps)})]"

    def label(self, op: Load) -> Expression:
        """A label of an element's column; the two of a thread's columns are read together."""
        label, place = self.scope.labels[op.tensor, op.index]
        pair = self.names.fresh(f"{self.names.of(op.result.name)}_two")
        at, depth = self.inside or (len(self.out.lines), self.out.depth)
        for line in (
            f"{label.ctype} {pair}[2];{self.scope.comment(op)}",
            f"shared_two({place} + {8 * label.bytes} * c, {pair});",
        ):
            self.out.lines.insert(at, "  " * depth + line)
            at += 1
        if self.inside is not None:
            self.inside = at, depth
        return label.element(f"{pair}[x & 1]")

    def before(self, line: str) -> None:
        """A line before the loop."""
        at, depth = self.mark
        self.out.lines.insert(at, line if line.startswith("#") else "  " * depth + line)
        self.mark = at + 1, depth
        if self.inside is not None:
            self.inside = self.inside[0] + 1, self.inside[1]

    def insert(self, lines: Lines) -> None:
        """Lines before the loop."""
        for line in lines.lines:
            self.before(line)

    def apart(self, x: str, lines: Lines) -> Expression:
        """A condition, computed in lines of its own, with a loop of its own."""
        loop = FragmentLoop(self.block, [])
        loop.out, loop.words.whole = lines, False
        return loop.value(x)

    def bare(self, x: str, y: Operand) -> Operand:
        """The operand `y` of a masked value `x`; without the factor that is applied later."""
        inner = self.block.defs.get(str(y))
        if (
            x not in self.block.factors
            or y == -math.inf
            or not isinstance(inner, Map)
            or inner.fn != "mul"
        ):
            return y
        return next((z for z in inner.args if z != self.block.factors[x]), y)

    def scaled(self, x: str, text: str) -> Expression:
        """A stored element, times the factor it was stored without."""
        c = self.block.factors.get(x)
        if c is None:
            return Expression(text, "float")
        factor = literal(c).text
        return Expression(f"({text} * {factor})", "float", product=(text, factor))
