"""The dataflow of a kernel: ops as nodes, values as edges, groups and loops as boxes. As DOT text, or laid out as SVG."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

from tilec.ir import (
    Body,
    Buffer,
    Cast,
    Contract,
    Edge,
    For,
    Grid,
    Group,
    If,
    Kernel,
    Load,
    Map,
    Op,
    Reduce,
    Store,
    Yield,
    operands,
    regions,
)

COLOURS = {
    "load": "#cfe3f7",
    "store": "#cfe3f7",
    "contract": "#f7d9c0",
    "reduce": "#dff0cf",
    "map": "#eeeeee",
    "special": "#efd6f2",
    "buffer": "#f7f0c0",
}


@dataclass(frozen=True)
class Node:
    """An op. `line`: of the program that it comes from; `box`: the innermost box that it is in."""

    name: str
    label: str
    kind: str
    line: int | None
    box: int


@dataclass(frozen=True)
class Box:
    """A region: a group, a grid, a loop or a condition; `inside`: the box around it (-1: none)."""

    title: str
    inside: int


@dataclass
class Graph:
    """Nodes by name in the kernel's order, edges from the one that defines a value to its users, and boxes."""

    nodes: dict[str, Node] = field(default_factory=dict[str, Node])
    edges: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    boxes: list[Box] = field(default_factory=list[Box])


def graph(kernel: Kernel) -> Graph:
    """The dataflow of a kernel. Loops hand their results on from the ops that yield them."""
    return _Builder(kernel).graph


class _Builder:
    def __init__(self, kernel: Kernel) -> None:
        self.kernel, self.graph = kernel, Graph()
        self.source: dict[str, str] = {}
        self.stores = 0
        self.body(kernel.body, -1)

    def body(self, body: Body, box: int) -> tuple[str | None, ...]:
        """Adds the ops of a body; gives the nodes of what it yields."""
        for op in body:
            if isinstance(op, Yield):
                return tuple(self.source.get(x) if isinstance(x, str) else None for x in op.values)
            self.op(op, box)
        return ()

    def op(self, op: Op, box: int) -> None:
        inner = regions(op)
        if not inner:
            self.node(op, box)
            return
        self.graph.boxes.append(Box(_title(op), box))
        number = len(self.graph.boxes) - 1
        if isinstance(op, For):
            for v, x in zip(op.args, op.init, strict=True):
                if isinstance(x, str) and x in self.source:
                    self.source[v.name] = self.source[x]
        for region in inner:
            for v, found in zip(op.results, self.body(region, number), strict=False):
                if found is not None:
                    self.source[v.name] = found

    def node(self, op: Op, box: int) -> None:
        if isinstance(op, Store):
            self.stores += 1
            name = f"store {op.tensor} {self.stores}"
        else:
            name = op.result.name
        label, kind = _label(op)
        self.graph.nodes[name] = Node(
            name, label, kind, None if op.span is None else op.span.line, box
        )
        read = dict.fromkeys(x for x in operands(op) if isinstance(x, str) and x in self.source)
        for x in dict.fromkeys(self.source[x] for x in read):
            self.graph.edges.append((x, name))
        for v in op.results:
            self.source[v.name] = name
        if isinstance(op, Store) and op.tensor in self.source:  # a buffer: who loads it comes after
            self.source[op.tensor] = name
        if isinstance(op, Load) and op.tensor in self.source:
            self.graph.edges.append((self.source[op.tensor], name))


def _title(op: Op) -> str:
    match op:
        case Group():
            return f"group {', '.join(op.axes)}"
        case Grid():
            return f"grid {', '.join(f'{a}:{n}' for a, n in op.axes)}"
        case For():
            return f"for {op.axis}" + ("" if op.tile is None else f":{op.tile}")
        case If():
            return "if"
        case _:
            return op.word


def _label(op: Op) -> tuple[str, str]:
    """What stands on a node, and its kind."""
    from tilec.work import SPECIAL

    match op:
        case Load():
            return f"{op.result.name} = {op.tensor}[…]", "load"
        case Store():
            return f"{op.tensor}[{', '.join(map(str, op.index))}]", "store"
        case Buffer():
            return f"{op.result.name} in HBM", "buffer"
        case Contract():
            return (
                f"{op.result.name}[{', '.join(op.result.type.axes)}] = contract over {', '.join(op.over)}",
                "contract",
            )
        case Reduce():
            return f"{op.result.name} = {op.fn} over {', '.join(op.over)}", "reduce"
        case Map():
            return f"{op.result.name} = {op.fn}", "special" if op.fn in SPECIAL else "map"
        case Cast():
            return f"{op.result.name} = {op.to}", "map"
        case Edge():
            return f"{op.result.name} = {op.which}({op.axis})", "map"
        case _:
            return op.word, "map"


# ---- DOT


def dot(kernel: Kernel) -> str:
    """The graph in the DOT language: `dot -Tsvg` draws it."""
    g = graph(kernel)
    lines = [
        f"digraph {_quoted(kernel.name)} {{",
        '  node [shape=box, style="filled,rounded", fontname="sans-serif"];',
    ]
    lines += _boxes(g, -1, "  ")
    lines += [f"  {_quoted(a)} -> {_quoted(b)};" for a, b in g.edges]
    return "\n".join([*lines, "}", ""])


def _boxes(g: Graph, outer: int, pad: str) -> Iterator[str]:
    for n in g.nodes.values():
        if n.box == outer:
            yield f"{pad}{_quoted(n.name)} [label={_quoted(n.label)}, fillcolor={_quoted(COLOURS[n.kind])}];"
    for k, b in enumerate(g.boxes):
        if b.inside == outer:
            yield f"{pad}subgraph cluster_{k} {{"
            yield f"{pad}  label={_quoted(b.title)};"
            yield from _boxes(g, k, pad + "  ")
            yield f"{pad}}}"


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# ---- SVG


ROW, WIDE, HIGH, GAP, PAD = 40, 172, 24, 14, 9


def svg(kernel: Kernel) -> str:
    """The graph as an SVG element: a node per op on the row after its latest operand, boxes around regions."""
    return _Layout(graph(kernel)).text()


class _Layout:
    """Boxes are placed one below the other, each a block of rows; nodes of a box side by side where they may be."""

    def __init__(self, g: Graph) -> None:
        self.g = g
        self.x: dict[str, float] = {}
        self.y: dict[str, float] = {}
        self.frames: list[tuple[float, float, float, float, str]] = []
        self.into: dict[str, list[str]] = {}
        for a, b in g.edges:
            self.into.setdefault(b, []).append(a)
        self.width, self.height = self.place(-1, PAD, PAD)

    def place(self, box: int, left: float, top: float) -> tuple[float, float]:
        """Places what is in a box from a corner on; gives its right and lower ends."""
        y, right = top, left + WIDE
        for part in self.parts(box):
            if isinstance(part, int):
                inner_right, inner_bottom = self.place(part, left + PAD, y + 20)
                self.frames.append(
                    (left, y, inner_right + PAD, inner_bottom + 4, self.g.boxes[part].title)
                )
                right, y = max(right, inner_right + PAD), inner_bottom + GAP + 4
            else:
                end, y = self.rows(part, left, y)
                right = max(right, end)
        return right, y

    def parts(self, box: int) -> Iterator[int | list[str]]:
        """What a box holds directly, in order: runs of nodes, and the boxes between them."""
        run: list[str] = []
        seen: set[int] = set()
        for n in self.g.nodes.values():
            child = self.child(n.box, box)
            if child == box:
                run.append(n.name)
            elif child is not None and child not in seen:
                seen.add(child)
                if run:
                    yield run
                run = []
                yield child
        if run:
            yield run

    def child(self, box: int, outer: int) -> int | None:
        """The box directly in `outer` that a box is in; `outer` itself where they are the same."""
        while box != outer:
            if box == -1:
                return None
            if self.g.boxes[box].inside == outer:
                return box
            box = self.g.boxes[box].inside
        return outer

    def rows(self, names: list[str], left: float, top: float) -> tuple[float, float]:
        """A run of nodes: each on the row after its operands in the run."""
        depth: dict[str, int] = {}
        taken: dict[int, int] = {}
        for n in names:
            depth[n] = 1 + max((depth[a] for a in self.into.get(n, []) if a in depth), default=-1)
            column = taken.get(depth[n], 0)
            taken[depth[n]] = column + 1
            self.x[n], self.y[n] = left + column * (WIDE + GAP), top + depth[n] * ROW
        right = left + max(taken.values()) * (WIDE + GAP) - GAP
        return right, top + (max(depth.values()) + 1) * ROW

    def text(self) -> str:
        """The SVG element."""
        out = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width + PAD:.0f}" height="{self.height + PAD:.0f}" '
            f'font-family="sans-serif" font-size="11">'
        ]
        for x0, y0, x1, y1, title in reversed(self.frames):
            out.append(
                f'<rect x="{x0:.0f}" y="{y0:.0f}" width="{x1 - x0:.0f}" height="{y1 - y0:.0f}" rx="5" fill="#4477aa" '
                f'fill-opacity="0.06" stroke="#4477aa"/><text x="{x0 + 5:.0f}" y="{y0 + 13:.0f}" fill="#4477aa">'
                f"{escape(title)}</text>"
            )
        for a, b in self.g.edges:
            if a in self.x and b in self.x:
                out.append(self.edge(a, b))
        out += [self.node(n) for n in self.g.nodes.values() if n.name in self.x]
        return "\n".join([*out, "</svg>"])

    def edge(self, a: str, b: str) -> str:
        """A curve from the lower edge of a node to the upper one of another; past nodes in between at their right."""
        x0, y0 = self.x[a] + WIDE / 2, self.y[a] + HIGH
        x1, y1 = self.x[b] + WIDE / 2, self.y[b]
        if x0 == x1 and y1 - y0 > ROW:
            side, y0, y1 = x0 + WIDE / 2, y0 - HIGH / 4, y1 + HIGH / 4
            path = f"M{side:.0f} {y0:.0f} C{side + GAP:.0f} {y0 + 8:.0f} {side + GAP:.0f} {y1 - 8:.0f} {side:.0f} {y1:.0f}"
        else:
            bend = max(8.0, abs(y1 - y0) / 3)
            path = f"M{x0:.0f} {y0:.0f} C{x0:.0f} {y0 + bend:.0f} {x1:.0f} {y1 - bend:.0f} {x1:.0f} {y1:.0f}"
        ends = escape(f"{a} {b}")
        return f'<path data-ends="{ends}" d="{path}" fill="none" stroke="#888" stroke-width="0.8"/>'

    def node(self, n: Node) -> str:
        x, y = self.x[n.name], self.y[n.name]
        link = "" if n.line is None else f' class="at" data-line="{n.line}"'
        shown = n.label if len(n.label) <= 28 else n.label[:27] + "…"
        return (
            f'<g{link} data-node="{escape(n.name)}"><title>{escape(n.label)}</title>'
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDE}" height="{HIGH}" rx="4" '
            f'fill="{COLOURS[n.kind]}" stroke="#555" stroke-width="0.6"/><text x="{x + 6:.0f}" y="{y + 16:.0f}">'
            f"{escape(shown)}</text></g>"
        )
