"""Generated text: lines with indentation, and C names for the names of the IR."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

_WORDS = """
alignas and asm auto bool break case catch char class const constexpr continue decltype default
delete do double else enum explicit extern false float for friend goto if inline int long mutable
namespace new not operator or private protected public register return short signed sizeof static
struct switch template this throw true try typedef typename union unsigned using virtual void
volatile while xor u16 u32 u64 i64 r x c column row_i stream_lane memory shared group warp lane quad
tile tiles heads turn cursor rest wait expect arrive scale clear pin split regular divide least
greatest narrow word block chosen most_heads next_origin counting own bit k send held last at at_first every row other left
remaining from
first loaded late ahead window windows
origin main min max abs exp log sqrt floor ceil round erf sin cos pow tanh w n b8 b16 b32 four width
section place taken probe redo counter start head got right slot row_tiles out_place out_row out_here
out_column part out_lane corner turned position piece thread to kind tried coming few windows_at next_window
end next stage free factor start_0 start_1 start_2 start_3 windows_0
windows_1 windows_2 windows_3 begin_0
begin_1 begin_2 begin_3 crew piece line spot inside tile_place
upper all_bits first_line own_spot own_inside step source
adding first_bits sent_row sent_0 sent_1 sent_2 sent_3
bits_together position_mod uniform repeated finite whole_power real_mod real_floor_div shift_left shift_right powf atan2f
"""
_RESERVED = frozenset(_WORDS.split())


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
        self.taken: set[str] = set(_RESERVED)

    def of(self, name: str) -> str:
        """The C name of an IR name."""
        if name not in self.known:
            plain = re.sub(r"\W", lambda m: f"u{ord(m[0]):x}", name, flags=re.ASCII)
            self.known[name] = self.fresh(plain)
        return self.known[name]

    def fresh(self, name: str) -> str:
        """A new C name like `name`."""
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name
