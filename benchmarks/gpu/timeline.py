"""Where the warpgroups of a Hopper kernel spend their cycles: its text with a mark at each wait, and what the marks tell.

A mark is a line of the generated text after which one thread of a warpgroup notes the clock. The time between two marks
that follow each other belongs to that pair of lines; what is summed up is one table per warpgroup.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

ROOM = 1 << 13
"""The marks that a warpgroup of a block notes at most."""
GROUPS = 4
"""The warpgroups of a block that may note some; the first one is the loading one, of which warp 0 notes."""
BLOCKS = 132
WORDS = BLOCKS * GROUPS * ROOM * 2
HEAD = """
#define MARK(id) asm volatile("{\\n.reg .pred p;\\n.reg .u32 c;\\nsetp.ne.u32 p, %0, 0;\\nmov.u32 c, %%clock;\\n" \\
  "@p st.global.v2.u32 [%1], {%2, c};\\n@p add.u64 %1, %1, 8;\\n}" : "+r"(marking), "+l"(marks) : "n"(id) : "memory")
"""
BEGIN = """  u32 marking = {mine}; u64 marks = {place}ull + (blockIdx.x * {groups} + {group}) * {bytes};
"""
WAIT = re.compile(r"^\s*(if \(lane == 0\) )?wait\(shared \+ (\d+)")
BARRIER = re.compile(r"barrier_init\(shared \+ (\d+) \+ .*// (\w+)")
PLAIN = {
    "named_sync(": "barrier",
    "group_wait<": "products",
    "group_commit();": "issued",
    "copy_commit();": "left",
    "while (origin >= 0) {": "tile",
    "const u32 taken": "dealt",
    "tile = __shfl_sync(FULL, tile, 0);": "dealt to all",
}


@dataclass(frozen=True)
class Marked:
    """A text with marks, and the name of each."""

    text: str
    names: tuple[str, ...]


def marked(text: str, place: int) -> Marked:
    """The text of a kernel with marks, which go to `WORDS` words at an address."""
    lines, names = text.split("\n"), list[str]()
    barriers = {int(m[1]): m[2] for line in lines if (m := BARRIER.search(line))}
    out = list[str]()

    def mark(name: str, n: int) -> str:
        names.append(f"{n} {name}")
        return f"MARK({len(names) - 1});"

    def begin(mine: str, group: str) -> str:
        return BEGIN.format(mine=mine, place=place, groups=GROUPS, group=group, bytes=8 * ROOM)

    inside = False
    for n, line in enumerate(lines):
        wait, plain = WAIT.match(line), next((p for p in PLAIN if p in line), None)
        if "__global__" in line:
            out += HEAD.split("\n")
            inside = True
        where = barriers.get(int(wait[2])) if wait else None
        if inside and where:
            alone = "if (lane == 0) " if wait and wait[1] else ""
            out.append(alone + mark(f"before {where}", n))
            out += [line, alone + mark(where, n)]
        elif inside and plain:
            if plain == "named_sync(":
                out.append(mark("before barrier", n))
            out += [line, mark(PLAIN[plain], n)]
        else:
            out.append(line)
        if "fewer_registers<" in line and inside:
            out.append(begin("threadIdx.x == 0", "0"))
        if "const int w = group - 1;" in line:
            out.append(begin("(threadIdx.x & 127) == 0", "w + 1"))
    return Marked("\n".join(out), tuple(names))


def notes(words: Sequence[int]) -> list[tuple[int, int]]:
    """The marks of a warpgroup in order, from its room: what was marked, when."""
    out = list[tuple[int, int]]()
    for n in range(0, len(words), 2):
        if words[n] == 0 == words[n + 1]:
            break
        out.append((words[n], words[n + 1]))
    return out


def spent(runs: Iterable[list[tuple[int, int]]], names: Sequence[str]) -> list[str]:
    """A line for each pair of marks: how often it came, the median of its cycles, the sum of them in all."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for run in runs:
        for (a, x), (b, y) in pairwise(run):
            found[a, b].append((y - x) % (1 << 32))
    total = sum(sum(x) for x in found.values()) or 1
    lines = list[str]()
    for (a, b), x in sorted(found.items()):
        x.sort()
        tail = f"{len(x):7d} × {x[len(x) // 2]:6d} (mean {sum(x) / len(x):8.0f}, 9/10 {x[len(x) * 9 // 10]:6d})"
        lines.append(f"{100 * sum(x) / total:5.1f} % {tail}  {names[a]} → {names[b]}")
    return lines
