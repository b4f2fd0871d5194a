"""What the windows of a tile ask for again and again, of its rows alone: computed once, as long as there are registers."""

from __future__ import annotations

from collections.abc import Collection

from tilec.backends.cuda.hopper.writer import Lines, Names
from tilec.dataflow import names_in
from tilec.ir import Operand

MARK = "// what is computed once"
"""The line in whose place it is written."""
SPARE = 18
"""Registers that are left to the compiler."""


class Once:
    """Integers that are computed when a tile begins. `known`: the names that there are by then; `room`: the registers
    that they may take; `held`: the rows of a thread."""

    def __init__(
        self, out: Lines, names: Names, known: Collection[str], room: int, held: int
    ) -> None:
        self.out, self.names, self.known, self.held = out, names, frozenset(known), held
        self.room = room - SPARE
        self.made: dict[str, str] = {}
        self.depth = out.depth
        out.add(MARK)

    def of(self, text: str, made_of: tuple[Operand, ...]) -> str:
        """An integer, by its name where it is computed once. `made_of`: the operands in its text."""
        if text in self.made:
            return self.made[text]
        rows = "[r]" in text
        cost = self.held if rows else 1
        if cost > self.room or not self.known.issuperset(names_in(made_of)):
            return text
        self.room -= cost
        name = self.names.fresh("end")
        self.made[text] = f"{name}[r]" if rows else name
        return self.made[text]

    def write(self) -> None:
        """All of them, in the place of the mark."""
        own = Lines()
        own.depth = self.depth
        for text, name in self.made.items():
            plain = name.removesuffix("[r]")
            each = f"{plain}[{self.held}]; ROWS {name}" if plain != name else name
            own.add(f"{'' if plain != name else 'const '}int {each} = {text};")
        at = next(k for k, line in enumerate(self.out.lines) if line.strip() == MARK)
        self.out.lines[at : at + 1] = own.lines
