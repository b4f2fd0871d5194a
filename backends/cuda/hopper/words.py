"""Masks as words of bits: a bit for each of a thread's columns, a word per row where rows differ.

What a mask costs is then one instruction for each element, in each copy of the loop, however it is computed. A *stretch* of
columns is a word at once. What depends on the column alone is tested by the eight threads of a warp that have the same
columns, each for a few of them. What is dear to compute and depends on row and column is tested in a loop that is not
unrolled.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Protocol

from tilec.backends.cuda.hopper.analysis import Analysis
from tilec.backends.cuda.hopper.expression import COLUMN, Expression
from tilec.backends.cuda.hopper.span import Span, greatest, least
from tilec.backends.cuda.hopper.writer import Lines, Names

BITS = 128
"""The columns of a tile whose bits fill a word: a thread has 32 of them."""


def number(columns: int) -> int:
    """The words for so many columns of a row."""
    return -(-columns // BITS)


class Loop(Protocol):
    """The loop that masks are for. `held`: the rows of a thread; `declared`: what is known inside the loop only."""

    block: Analysis
    names: Names
    held: int
    declared: set[str]

    def before(self, line: str) -> None:
        """A line before the loop."""
        ...

    def insert(self, lines: Lines) -> None:
        """Lines before the loop."""
        ...

    def apart(self, x: str, lines: Lines) -> Expression:
        """A value, computed in lines of its own."""
        ...


class Words:
    """The masks of a loop over a fragment. `whole`: the loop has all columns, so that words pay."""

    def __init__(self, loop: Loop) -> None:
        self.loop, self.block = loop, loop.block
        self.whole = True

    @property
    def count(self) -> int:
        """The words of a row."""
        return number(self.block.structure.columns)

    # ---- the bit of an element

    def bit(self, span: Span) -> str:
        """The test of an element's bit."""
        return self.tested_in(self.word(span))

    def test(self, name: str) -> str:
        """The test of an element's bit in words that are there already. `name`: see `place`."""
        return self.tested_in(self.place(name))

    def tested_in(self, word: str) -> str:
        """The test of an element's bit in its word."""
        return f"({word} & (1u << (2 * c + (x & 1) & 31)))"

    def hoists(self, span: Span) -> bool:
        """Whether a mask can be computed before the loop."""
        words = {w for t in span.texts() for w in re.findall(r"[A-Za-z_]\w*", t)}
        return not words & self.loop.declared

    def word(self, span: Span) -> str:
        """The word with the bits of an element's row and column, which is made before the loop."""
        span = replace(span, others=())
        if span == Span(words=span.words[:1]):
            return self.place(span.words[0])
        made = self.block.words
        if span not in made:
            held = self.loop.held
            name = made[span] = self.loop.names.fresh("counting")
            self.loop.before(f"u32 {name}[{self.count * held}];")
            for k in range(self.count):
                at = f"{k * held} + r" if k else "r"
                self.loop.before(f"ROWS {name}[{at}] = {self.bits(span, k)};")
        return self.place(f"{made[span]}[r]")

    def place(self, name: str) -> str:
        """A word of an element. `name`: it ends in `[r]` where there is one for each row."""
        name, rows = name.removesuffix("[r]"), name.endswith("[r]")
        if self.count == 1:
            return f"{name}[r]" if rows else name
        return f"{name}[(c >> 4) * {self.loop.held} + r]" if rows else f"{name}[c >> 4]"

    def bits(self, span: Span, k: int) -> str:
        """The bits of a row in its `k`th word."""
        parts: list[str] = []
        more = f" - {BITS * k}" if k else ""
        if span.high:
            parts.append(f"columns_to({least(span.high)}{more})")
        if span.low:
            parts.append(f"~columns_to({greatest(span.low)} - 1{more})")
        for name in span.words:
            whole, rows = name.removesuffix("[r]"), name.endswith("[r]")
            at = f"[{k * self.loop.held} + r]" if rows else f"[{k}]"
            parts.append(name if self.count == 1 else f"{whole}{at}")
        for p in span.periods:
            columns = min(self.block.structure.columns - BITS * k, BITS)
            base = f"{p.base} + {BITS * k}" if k else p.base
            parts.append(f"columns_of_period<{columns}>({base}, {p.low}, {p.high}, {p.size})")
        parts += [f"({' | '.join(self.bits(x, k) for x in union)})" for union in span.unions]
        parts += [f"~({self.bits(x, k)})" for x in span.gaps]
        return " & ".join(parts)

    # ---- tests that are bits of their own

    def tested(self, x: str) -> Expression | None:
        """A condition whose bits are computed before the loop; None where it is computed where it is used."""
        if not self.whole:
            return None
        made, kind = self.block.words, self.block.masks.kind(x)
        if kind == "elements":
            return None
        if x not in made:
            made[x] = self.by_threads(x) if kind == "columns" else self.by_rows(x)
        return self.expression(made[x])

    def expression(self, name: str) -> Expression:
        span = Span(words=(name,))
        return Expression(f"({self.bit(span)} != 0)", "bool", span=span)

    def by_threads(self, x: str) -> str:
        """A word of columns, of which each of the eight threads that have the same ones tests some."""
        name = self.loop.names.fresh(self.loop.names.of(x) + "_bits")
        blocks, some = self.block.structure.columns // 8, self.count > 1
        each = 1 if blocks <= 8 else 2
        lines = Lines()
        at = f"{name}[k]" if some else name
        lines.add(f"u32 {name}[{self.count}];" if some else f"u32 {name};")
        with lines.block(f"for (int k = 0; k < {self.count}; k++)" if some else ""):
            lines.add("u32 own = 0;")
            with lines.block(f"for (int x = 0; x < {2 * each}; x++)"):
                block = (
                    f"{each} * ((threadIdx.x & 31) >> 2) + (x >> 1){' + 16 * k' if some else ''}"
                )
                if 8 * each * self.count != blocks:  # some threads test the last ones, too
                    block = f"least<int>({block}, {blocks - 1})"
                lines.add(f"const int c = {block}, {COLUMN} = 8 * c + (x & 1);")
                lines.add(f"const u32 bit = {self.loop.apart(x, lines).text};")
                lines.add("own |= bit << (2 * c + (x & 1) & 31);")
            lines.add(f"{at} = bits_together(own);")
        self.loop.insert(lines)
        return name

    def by_rows(self, x: str) -> str:
        """A word of columns for each row, by a loop that is not unrolled: it costs its code once. Bits come in from the end
        of the word, so that columns begin with the last."""
        held = self.loop.held
        name = self.loop.names.fresh(self.loop.names.of(x) + "_bits")
        lines = Lines()
        lines.add(f"u32 {name}[{self.count * held}];")
        for k in range(self.count):
            at = f"{name}[{k * held} + r]"
            most = min(self.block.structure.columns - BITS * k, BITS) // 8
            lines.add(f"ROWS {at} = 0;")
            lines.add("#pragma unroll 1")
            with lines.block(f"for (int c = {16 * k + most - 1}; c >= {16 * k}; c--) EACH"):
                lines.add(f"const int r = x >> 1, {COLUMN} = 8 * c + (~x & 1);")
                test = self.loop.apart(x, lines)
                drawn = test.drawn
                if drawn is None:
                    lines.add(f"push({at}, {test.text});")
                else:
                    lines.add(f"push_reached({at}, {drawn.word}, {drawn.limit});")
            if drawn is not None:
                below = str(drawn.below).lower()
                lines.add(f"ROWS {at} = pushed<{below}>({at}, {drawn.limit});")
        self.loop.insert(lines)
        return f"{name}[r]"
