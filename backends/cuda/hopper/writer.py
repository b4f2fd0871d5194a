"""Generated text: lines with indentation, and C names for the names of the IR."""

from __future__ import annotations

import functools
import re
from collections.abc import Generator
from contextlib import contextmanager
from importlib.resources import files

from tilec.backends.cuda.reserved import COMPILER, LANGUAGE, declared, is_private

_WORDS = """
NO_COLUMN NO_ROW THREAD abs adding ahead at at_first atan2f atomicAdd b16 b32 b8 bit block c ceil ceilf chosen chunk column
coming corner cos cosf counter counting crew cursor end erf erff every exp exp2f expf fabsf factor few first
first_line floor floorf fmaf fmaxf fminf four free from got group head heads held i64 inside isinf isnan k kind lane lap
last late left line loaded log log2f logf max memory min most_heads n next next_origin next_window origin other
out_column out_here out_lane out_place out_row own own_inside own_spot part piece place position pow powf probe quad r
redo remaining rest right rintf round row row_i row_tiles rsqrtf section send sent_row shared sin sinf slab slice slot
source spot sqrt sqrtf stage start stream_lane taken tall tanh tanhf team thread tile tile_place tiles to tried truncf turn
turned u16 u32 u64 uint4 w warp whole width window window_at windows windows_at word x
"""
"""What the emitters use besides: their variables, and functions of the compiler."""
_MADE = re.compile(
    r"(copy|inverse)_.*|.*_(stride\d|next|ahead|late|rows|columns|held|place)|(begin|out|sent|start|windows)_\d+|"
    r"(rows_by_rows|weights_by_columns)_b?f16"
)
_HEADERS = [("hopper", "hopper.cuh"), ("ampere", "primitives.cuh"), ("ampere", "fragments.cuh")]


def is_made(name: str) -> bool:
    """Whether a name is one that the emitters may make of another."""
    return _MADE.fullmatch(name) is not None


@functools.cache
def _reserved() -> frozenset[str]:
    folder = files("tilec.backends.cuda")
    texts = (folder.joinpath(*path).read_text("utf-8") for path in _HEADERS)
    return LANGUAGE.union(COMPILER, _WORDS.split(), *map(declared, texts))


class Lines:
    """Lines of code."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 0

    def add(self, text: str) -> None:
        """Appends lines at the present depth."""
        self.lines += [
            ("  " * self.depth + line) if line and not line.startswith("#") else line
            for line in text.split("\n")
        ]

    @contextmanager
    def block(self, head: str, tail: str = "}") -> Generator[None]:
        """A block in braces."""
        self.add(head + " {" if head else "{")
        self.depth += 1
        yield
        self.depth -= 1
        self.add(tail)

    def __str__(self) -> str:
        return "\n".join(self.lines) + "\n"


class Names:
    """C names, one per name of the IR, the same where it can be."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self.taken: set[str] = set(_reserved())

    def of(self, name: str) -> str:
        """The C name of an IR name."""
        if name not in self.known:
            plain = re.sub(r"\W", lambda m: f"u{ord(m[0]):x}", name, flags=re.ASCII)
            bad = is_private(plain) or is_made(plain)
            self.known[name] = self.fresh(plain + "_" if bad else plain)
        return self.known[name]

    def fresh(self, name: str) -> str:
        """A new C name like `name`."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
