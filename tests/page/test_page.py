"""The page and the graph: whole, self-contained, and true to the IR."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import pytest

import tilec
from tests.programs import CAUSAL, GROUPED
from tilec import backend, ceilings, roofline
from tilec.ir import Group, walk
from tilec.page import graph
from tilec.page.html import Line, Page, code_lines, lines, side_by_side
from tilec.traffic import budget

SIZES = {"B": 1, "H": 2, "M": 32, "N": 32, "D": 8, "E": 8}


def page(text: str = CAUSAL, code: str = "") -> Page:
    kernel = tilec.compile(text)
    known, scalars = kernel.environment({d: SIZES.get(d, 2) for d in kernel.dims})
    stages = list(kernel.stages(sizes=known))
    data = kernel.sample(**known)
    figures = [
        roofline.stage(n, k, budget(k, known, scalars, data), ceilings.H200) for n, k in stages
    ]
    return Page("a <title>", kernel.text, stages, figures, "C", code)


class Checker(HTMLParser):
    """Every element that is opened is closed, in order."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.passes: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in self.VOID:
            self.open.append(tag)
        found = dict(attrs)
        self.links += [v for k, v in attrs if k in ("src", "href")]
        if tag == "section":
            self.passes.append(found["data-pass"])

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("text", [CAUSAL, GROUPED])
def test_page_is_whole_and_loads_nothing(text):
    p = page(text, "// x   f.tile:3\nint a;\n")
    checker = Checker()
    checker.feed(p.text())
    assert checker.open == []
    assert all(link.startswith("#") for link in checker.links)
    assert checker.passes == [*map(str, range(len(p.stages))), "code"]
    assert "http" not in re.sub(r"http://www\.w3\.org/2000/svg", "", p.text())
    assert "<title>a &lt;title&gt;</title>" in p.text()


def test_lines_come_from_the_program():
    kernel = tilec.compile(CAUSAL)
    *_, (_, tiles) = kernel.stages(sizes=SIZES)
    found = lines(tiles)
    softmax = next(n for n, x in enumerate(CAUSAL.splitlines(), 1) if "softmax" in x)
    assert any(x.at == softmax and "exp2(" in x.text for x in found)
    assert not any("# " in x.text for x in found)


def test_code_belongs_to_the_last_comment_before_it():
    code = "a;\n  // k = load(K)   dir/f.tile:3\n  b;\n  // plain\n  c;\n}\nd;\n"
    assert [x.at for x in code_lines(code)] == [None, 3, 3, 3, 3, None, None]


def test_cuda_code_is_linked():
    kernel = tilec.compile(CAUSAL, target="cuda:sm_80")
    at = {x.at for x in code_lines(kernel.source("cuda", **SIZES))}
    assert len(at - {None}) >= 3


def test_llvm_code_is_linked_and_stays_what_it_is():
    kernel = tilec.compile(CAUSAL, target="cpu")
    *_, (_, tiles) = kernel.stages(sizes=SIZES)
    placed, plain = (backend.source(tiles, "llvm", placed=p) for p in (True, False))
    found = code_lines(placed)
    body = [n for n, x in enumerate(found) if x.text.startswith("!tilec.places")]
    texts = [x.text for x in found[: body[0]]]
    assert [x.rstrip() for x in texts if x.strip()] == [
        x.rstrip() for x in plain.splitlines() if x.strip()
    ]
    softmax = next(n for n, x in enumerate(CAUSAL.splitlines(), 1) if "softmax" in x)
    at = [x.at for x in found]
    assert len(set(at) - {None}) >= 3
    assert at.count(softmax) > 20
    assert sum(x is not None for x in at) > len(at) / 2


def test_changes_are_marked():
    html = side_by_side(
        [Line("a = add(b, c)", 1), Line("same")], [Line("a = sub(b, c)", 1), Line("same")]
    )
    assert '<td class="gone at" data-line="1">a = <mark>add</mark>(b, c)</td>' in html
    assert '<td class="new at" data-line="1">a = <mark>sub</mark>(b, c)</td>' in html
    assert "<td>same</td><td>same</td>" in html


def test_what_moves_into_a_region_is_the_same():
    html = side_by_side(
        [Line("  a = add(b, c)"), Line("}")],
        [Line("  group {"), Line("    a = add(b, c)"), Line("  }"), Line("}")],
    )
    assert html.count("<td>  a = add(b, c)</td><td>    a = add(b, c)</td>") == 1
    assert html.count("<td>}</td><td>}</td>") == 1
    assert html.count('class="new"') == 2


# ---- the graph


def stages(text=CAUSAL):
    kernel = tilec.compile(text)
    return dict(kernel.stages(sizes={d: SIZES.get(d, 2) for d in kernel.dims}))


@pytest.mark.parametrize("after", ["lower", "contract", "online", "place"])
def test_every_op_is_a_node_and_every_edge_has_two(after):
    kernel = stages()[after]
    g = graph.graph(kernel)
    from tilec.ir import Yield, regions

    leaves = [op for op in walk(kernel.body) if not regions(op) and not isinstance(op, Yield)]
    assert len(g.nodes) == len(leaves)
    assert {x for e in g.edges for x in e} <= set(g.nodes)
    order = list(g.nodes)
    assert all(order.index(a) < order.index(b) for a, b in g.edges)


def test_groups_are_boxes():
    kernel = stages()["fuse"]
    groups = [op for op in walk(kernel.body) if isinstance(op, Group)]
    g = graph.graph(kernel)
    assert [b.title for b in g.boxes] == [f"group {', '.join(op.axes)}" for op in groups]
    text = graph.dot(kernel)
    assert text.count("subgraph cluster_") == len(groups)
    assert text.count("{") == text.count("}")


@pytest.mark.parametrize("after", ["lower", "fuse", "place"])
def test_svg_is_xml_with_a_place_for_each_node(after):
    kernel = stages(GROUPED)[after]
    root = ET.fromstring(graph.svg(kernel))
    titles = [e.text for e in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == len(graph.graph(kernel).nodes)
    boxes = {(e.get("x"), e.get("y")) for g in root.findall("{*}g") for e in g.findall("{*}rect")}
    assert len(boxes) == len(titles), "no node lies on another"
