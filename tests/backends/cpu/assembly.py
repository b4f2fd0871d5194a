"""Reads assembly (AT&T syntax for x86-64, Arm's for AArch64): what the innermost loops of a function do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx

LABEL = re.compile(r"(\.?L\w+|\w+):")
JUMP = re.compile(r"(j\w+|b(?:\.\w+)?|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.L\w+)$")
ALWAYS = ("jmp", "b")
"""Jumps after which the next line does not run."""
FMA = re.compile(r"v?fn?m(?:add|sub|l[as])\w*\s")
PRODUCT = re.compile(r"v?mulp[sd]\s|fmul\s+v")
SUM = re.compile(r"v?addp[sd]\s|fadd\s+v")
COMMENT = re.compile(r"(?:^|\s)(?:#\s|//).*")
MEMORY = re.compile(r"\(%|\[(?:x|sp)")
ASK = re.compile(r"prefetch\w+\s|prfm\s")
STACK = re.compile(r"\((?:%rsp|%rbp)|\[(?:sp|x29)\b")
VECTOR = re.compile(r"%[xyz]mm\d|\b[qv]\d+\b")


@dataclass(frozen=True)
class Loop:
    """The instructions of an innermost loop."""

    code: tuple[str, ...]

    @property
    def products(self) -> int:
        """Fused multiply-adds, or pairs of a product and a sum, of vectors."""
        fused, products, sums = (
            sum(bool(p.match(x)) for x in self.code) for p in (FMA, PRODUCT, SUM)
        )
        return fused + min(products, sums)

    @property
    def loads(self) -> int:
        """Instructions that read or write memory."""
        return sum(bool(MEMORY.search(x)) for x in self.code) - self.asks

    @property
    def asks(self) -> int:
        """Instructions that ask for memory ahead."""
        return sum(bool(ASK.match(x)) for x in self.code)

    @property
    def spills(self) -> list[str]:
        """Instructions that read or write vectors on the stack."""
        return [x for x in self.code if STACK.search(x) and VECTOR.search(x)]

    @property
    def reloads(self) -> list[str]:
        """Instructions that read or write anything else on the stack."""
        return [x for x in self.code if STACK.search(x) and not VECTOR.search(x)]

    def uses(self, register: str) -> bool:
        """Whether a register of this kind occurs: `%zmm`, or `v` and `q` of Arm."""
        return any(re.search(rf"(?<!\w){register}\d", x) for x in self.code)


def loops(text: str) -> list[Loop]:
    """The innermost loops, in the order of the text."""
    blocks, edges = _blocks(text)
    graph = nx.DiGraph(edges)
    found = [
        sorted(inner)
        for component in nx.strongly_connected_components(graph)
        for inner in _innermost(graph.subgraph(component).copy(), graph)
    ]
    return [Loop(tuple(x for n in inner for x in blocks[n])) for inner in sorted(found)]


def called(text: str) -> set[str]:
    """The functions that are called by name."""
    return set(re.findall(r"^\s+(?:callq?|bl)\s+([A-Za-z_][\w.@]*)", text, re.MULTILINE))


def _innermost(part: nx.DiGraph, whole: nx.DiGraph) -> Iterator[set[int]]:
    """The innermost loops of a strongly connected part: what is still one when the edges to its head are gone has an
    inner loop."""
    if part.number_of_edges() == 0:
        return
    nodes = set(part)
    heads = {n for n in nodes if any(p not in nodes for p in whole.predecessors(n))} or {min(nodes)}
    inner = part.copy()
    inner.remove_edges_from([(a, b) for a, b in part.edges if b in heads])
    deeper = [c for c in nx.strongly_connected_components(inner) if inner.subgraph(c).edges]
    if not deeper:
        yield nodes
    for c in deeper:
        yield from _innermost(inner.subgraph(c).copy(), whole)


def _blocks(text: str) -> tuple[list[list[str]], list[tuple[int, int]]]:
    """Stretches of instructions that run together, and which one may follow which."""
    blocks: list[list[str]] = [[]]
    places: dict[str, int] = {}
    jumps: list[tuple[int, str]] = []
    edges: list[tuple[int, int]] = []
    falls = False
    for line in text.split("\n"):
        label = LABEL.match(line)
        if label:
            blocks.append([])
            places[label.group(1)] = len(blocks) - 1
            if falls:
                edges.append((len(blocks) - 2, len(blocks) - 1))
            falls = True
        instruction = COMMENT.sub("", line).strip()
        if label or not instruction or instruction.startswith("."):
            continue
        blocks[-1].append(instruction)
        jump = JUMP.match(instruction)
        if jump:
            jumps.append((len(blocks) - 1, jump.group(2)))
        ends = jump is not None and jump.group(1) in ALWAYS
        falls = not (ends or instruction.startswith("ret"))
        if jump:
            blocks.append([])
            if falls:
                edges.append((len(blocks) - 2, len(blocks) - 1))
            falls = not ends
    edges += [(n, places[to]) for n, to in jumps if to in places]
    return blocks, edges
