"""Elements in fewer instructions than their ops say, where factors are the same along a row or a small error is allowed.

A product is cheaper than a quotient, and 2 to the power of a logarithm than a power. A tanh of common arguments is a
polynomial, whose coefficients hold the factors around it. What must hold for this is tested after the loop: the `conditions`
of the block.
"""

from __future__ import annotations

import math
from typing import Protocol

from tilec.backends.cuda.hopper.analysis import Analysis
from tilec.backends.cuda.hopper.expression import (
    Drawn,
    Expression,
    literal,
)
from tilec.backends.cuda.hopper.pairs import Pairs
from tilec.backends.cuda.hopper.pointwise import pointwise
from tilec.backends.cuda.hopper.writer import Lines, Names
from tilec.ir import Map, Operand

FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
"""Comparisons with their sides exchanged."""


class Loop(Protocol):
    """The loop that has the elements. `held`: the rows of a thread; `locals`: what is computed; `declared`: its names."""

    block: Analysis
    names: Names
    out: Lines
    held: int
    locals: dict[str, Expression]
    declared: set[str]

    def value(self, x: Operand) -> Expression:
        """An element of an operand."""
        ...

    def before(self, line: str) -> None:
        """A line before the loop."""
        ...


class Shortcuts:
    """The shortcuts of a loop over a fragment; what they need before it is made once."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.block, self.names, self.held = loop, loop.block, loop.names, loop.held
        self.reach: dict[str, str] = {}
        self.squares: dict[str, str] = {}
        self.odd: dict[tuple[str, ...], tuple[str, str, str]] = {}
        self.inverses: dict[str, str] = {}
        self.logarithms: dict[str, str] = {}
        self.moves: dict[tuple[str, float], str] = {}

    def of(self, x: str, op: Map) -> Expression | None:
        """An element in short; None where there is no shortcut."""
        match op:
            case Map(fn="div", args=args) if self.constant(args[1]):
                values = [self.loop.value(y) for y in args]
                return pointwise("div", values, op.result.type.dtype, self.inverse)
            case Map(fn="pow", args=(y, n)) if self.is_whole_power(y, n):
                return self.whole_power(y, n)
            case Map() if (bent := self.bent(x)) is not None:
                return self.small_tanh(*bent)
            case Map(fn="lt" | "le" | "gt" | "ge") if (drawn := self.drawn(op)) is not None:
                return self.word_test(*drawn)
            case Map(fn="exp2", args=(y,)) if (moved := self.moved(y)) is not None:
                return self.moved_power(*moved)
            case Map(fn="tanh", args=(y,)) if (scaled := self.scale(y)) is not None:
                return self.scaled_tanh(*scaled)
            case Map(fn="div", args=(y, z)) if self.block.rough and self.block.is_short(op):
                text, factor = self.loop.value(y).real().text, self.common_inverse(z)
                return Expression(f"({text} * {factor})", "float", product=(text, factor))
            case _:
                return None

    # ---- random numbers

    def drawn(self, op: Map) -> tuple[str, Map, Operand] | None:
        """A test of a random number against one that is the same along a row, the random one first."""
        x, y = op.args
        for fn, a, b in ((op.fn, x, y), (FLIPPED[op.fn], y, x)):
            inner = self.block.defs.get(a) if isinstance(a, str) else None
            if isinstance(inner, Map) and inner.fn == "uniform" and self.steady(b):
                return fn, inner, b
        return None

    def word_test(self, fn: str, drawn: Map, limit: Operand) -> Expression:
        """The test of the random bits, before they become a float."""
        text = self.loop.value(limit).real().text
        name, rows = self.names.fresh("limit"), "[r]" in text
        up, none = ("true", "false")[fn in ("ge", "lt")], "0u" if fn in ("lt", "le") else "1u << 24"
        each = f"{name}[{self.held}]; ROWS {name}[r]" if rows else name
        self.loop.before(f"u32 {each} = word_from<{up}>({text}, {none});")
        seed, *words = (self.loop.value(y).whole().text for y in drawn.args)
        bits = self.names.fresh("random")
        self.loop.declared.add(bits)
        counter = ", ".join([seed, *(f"(u32){w}" for w in words)])
        self.loop.out.add(f"const u32 {bits} = random_word({counter});")
        return Drawn(bits, f"{name}[r]" if rows else name, fn in ("lt", "le")).value()

    # ---- quotients

    def constant(self, x: Operand) -> bool:
        """Whether an operand is a literal other than 0."""
        return isinstance(x, (int, float)) and x != 0

    def inverse(self, e: Expression) -> str:
        """1 / e, folded when it is compiled."""
        return f"(1.f / {e.text})"

    def common_inverse(self, x: Operand) -> str:
        """1 / x of what does not change along the columns, where that is neither 0 nor extreme."""
        y = self.loop.value(x).real().text
        if y not in self.inverses:
            name = self.inverses[y] = self.names.fresh("inverse")
            rows = "[r]" in y
            self.loop.before(
                f"float {name}{f'[{self.held}]; ROWS {name}[r]' if rows else ''} = reciprocal({y});"
            )
            for k in range(self.held) if rows else (0,):
                self.block.conditions.append(f"regular({y.replace('[r]', f'[{k}]')})")
        return self.inverses[y] + ("[r]" if "[r]" in y else "")

    # ---- powers

    def moved(self, x: Operand) -> tuple[Operand, Operand, float] | None:
        """An exponent (y - r) * c, where r does not change along a row, as y, r and c."""
        product = self.computed(x)
        if not self.block.rough or self.crowded or product is None or product.fn != "mul":
            return None
        for y, c in (product.args, product.args[::-1]):
            inner = self.computed(y)
            if isinstance(c, float) and inner is not None and inner.fn == "sub":
                base, r = inner.args
                if self.block.is_fixed(r) and not self.steady(base):
                    return base, r, c
        return None

    @property
    def crowded(self) -> bool:
        """Whether elements of pairs wait in registers, beside each score. Fewer instructions were slower there."""
        return any(isinstance(what, Pairs) for what, _ in self.block.fetched.values())

    def computed(self, x: Operand) -> Map | None:
        """What computes an element where it is used."""
        op = self.block.defs.get(x) if isinstance(x, str) else None
        here = op is not None and x not in self.block.arrays and x not in self.loop.locals
        return op if here and isinstance(op, Map) and self.block.is_fragment(op) else None

    def moved_power(self, x: Operand, r: Operand, c: float) -> Expression:
        """2 to the power (x - r) * c in one instruction less: what r * c is rounded by is the same along a row, and no more
        than what scores of that size are rounded by. Where the product is not finite, the exact arm has the difference."""
        y, factor = self.loop.value(r).real().text, literal(c).text
        if (y, c) not in self.moves:
            name = self.moves[y, c] = self.names.fresh("move")
            rows = "[r]" in y
            each = f"{name}[{self.held}]; ROWS {name}[r]" if rows else name
            self.loop.before(f"float {each} = -({y} * {factor});")
            for k in range(self.held) if rows else (0,):
                at = f"[{k}]" if rows else ""
                self.block.conditions.append(f"(fabsf({name}{at}) < 1e30f)")
        move = self.moves[y, c] + ("[r]" if "[r]" in y else "")
        text = f"fmaf({self.loop.value(x).real().text}, {factor}, {move})"
        return pointwise("exp2", [Expression(text, "float")], "f32")

    def is_whole_power(self, x: Operand, n: Operand) -> bool:
        """Whether a power has a base that is the same along a row and a whole exponent, and may have an error of its own."""
        if self.block.structure.precise or not self.block.is_fixed(x):
            return False
        e = self.loop.value(n)
        return e.kind == "int" and e.bits <= 31

    def whole_power(self, x: Operand, n: Operand) -> Expression:
        """x to the power n: 2 to the power n times the logarithm of |x|, which is taken once."""
        base, count = self.loop.value(x).real().text, self.loop.value(n)
        if base not in self.logarithms:
            name = self.logarithms[base] = self.names.fresh("logarithm")
            each = f"{name}[{self.held}]; ROWS {name}[r]" if "[r]" in base else name
            self.loop.before(f"float {each} = finite(log2f(fabsf({base})));")
        logarithm = self.logarithms[base] + ("[r]" if "[r]" in base else "")
        args = [count.real(), Expression(logarithm, "float")]
        exponent = pointwise("mul", args, "f32").text
        return Expression(f"whole_power({base}, {exponent}, {count.whole().text})", "float")

    # ---- tanh

    def bent(self, x: str) -> tuple[Operand, list[str], list[str]] | None:
        """A tanh for common arguments, times factors: what it is of, the factors inside and outside."""
        if not self.block.rough:
            return None
        base, outside = self.factored(x)
        op = self.block.defs.get(str(base))
        if not isinstance(op, Map) or op.fn != "tanh" or not self.block.is_short(op):
            return None
        inner, inside = self.factored(op.args[0])
        return inner, inside, outside

    def factored(self, x: Operand) -> tuple[Operand, list[str]]:
        """An element as another one times factors that do not change along a row."""
        op = self.block.defs.get(x) if isinstance(x, str) else None
        if op is None or x in self.block.arrays or x in self.loop.locals:
            return x, []
        match op:
            case Map(fn="mul", args=args) if self.block.is_fragment(op):
                for y, z in (args, args[::-1]):
                    if self.steady(z):
                        base, factors = self.factored(y)
                        return base, [*factors, self.loop.value(z).real().text]
            case Map(fn="div", args=(y, z)) if self.block.is_fragment(op) and self.constant(z):
                base, factors = self.factored(y)
                return base, [*factors, self.inverse(self.loop.value(z))]
            case Map(fn="div", args=(y, z)) if (
                self.block.is_fragment(op) and self.steady(z) and self.block.rough
            ):
                base, factors = self.factored(y)
                return base, [*factors, self.common_inverse(z)]
            case _:
                pass
        return x, []

    def steady(self, x: Operand) -> bool:
        """Whether an operand is a number that does not change along a row."""
        return isinstance(x, (int, float)) or self.block.is_fixed(x)

    def small_tanh(self, x: Operand, inside: list[str], outside: list[str]) -> Expression:
        """outside · tanh(inside · x) as x times a polynomial in x², whose coefficients hold the factors."""
        e = self.loop.value(x).real().text
        key = (e, *inside, "of", *outside)
        if e not in self.reach:
            self.reach[e] = self.names.fresh("reach")
            self.loop.before(f"float {self.reach[e]} = 0.f;")
            square = self.names.fresh("square")
            self.loop.declared.add(square)
            self.loop.out.add(f"const float {square} = {e} * {e};")
            self.loop.out.add(f"{self.reach[e]} = fmaxf({self.reach[e]}, {square});")
            self.squares[e] = square
        if key not in self.odd:
            self.odd[key] = self.coefficients(self.reach[e], inside, outside)
        a, b, c = self.odd[key]
        factor = self.names.fresh("factor")
        self.loop.declared.add(factor)
        square = self.squares[e]
        self.loop.out.add(f"const float {factor} = fmaf(fmaf({c}, {square}, {b}), {square}, {a});")
        return Expression(f"({e} * {factor})", "float", product=(e, factor))

    def scale(self, x: Operand) -> tuple[Operand, float] | None:
        """An element as another one times a literal that is not extreme; None where it is none."""
        op = self.block.defs.get(x) if isinstance(x, str) else None
        if op is None or x in self.block.arrays or x in self.loop.locals or not isinstance(op, Map):
            return None
        match op:
            case Map(fn="mul", args=(y, float() | int() as c) | (float() | int() as c, y)):
                c = float(c)
            case Map(fn="div", args=(y, float() | int() as c)) if c:
                c = 1.0 / c
            case _:
                return None
        base, more = self.scale(y) or (y, 1.0)
        return (base, c * more) if 1e-30 < abs(c * more) < 1e30 else None

    def scaled_tanh(self, x: Operand, c: float) -> Expression:
        """tanh of an element times a literal: one product."""
        text, factor = self.loop.value(x).real().text, literal(2.0 * math.log2(math.e) * c).text
        return Expression(f"tanh_scaled({text}, {factor})", "float")

    def coefficients(
        self, reach: str, inside: list[str], outside: list[str]
    ) -> tuple[str, str, str]:
        """The polynomial's coefficients; the greatest square is tested, for all columns at once."""
        rows = any("[r]" in f for f in (*inside, *outside))
        size, each, at = (f"[{self.held}]", "ROWS ", "[r]") if rows else ("", "", "")

        def variable(name: str, text: str) -> str:
            name = self.names.fresh(name)
            self.loop.before(f"float {name}{size}; {each}{name}{at} = {text};")
            return name

        inner = variable("inner", " * ".join(inside) or "1.f")
        outer = variable("outer", " * ".join(outside) or "1.f")
        a = variable("odd", f"{outer}{at} * {inner}{at}")
        b = variable("odd", f"TANH_3 * {a}{at} * {inner}{at} * {inner}{at}")
        c = variable("odd", f"TANH_5 / TANH_3 * {b}{at} * {inner}{at} * {inner}{at}")
        for k in [f"[{r}]" for r in range(self.held)] if rows else [""]:
            square = f"{reach} * {inner}{k} * {inner}{k}"
            self.block.conditions.append(f"({square} <= tanh_reach({outer}{k}))")
        return f"{a}{at}", f"{b}{at}", f"{c}{at}"
