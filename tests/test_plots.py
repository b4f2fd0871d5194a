"""Drawings: what is named in them, and where it stands."""

from __future__ import annotations

from typing import Any

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import ceilings, plots, roofline
from tilec.errors import ArgumentError
from tilec.traffic import budget

pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
SIZES = {"B": 1, "H": 2, "M": 64, "N": 64, "D": 16, "E": 16}


def axes(figure: Any) -> Any:
    return figure.axes[0]


def labels(figure: Any) -> list[str]:
    return [x.get_text() for x in axes(figure).get_legend().get_texts()]


def test_roofline_names_its_roofs_and_the_forms_below_them():
    kernel = tilec.compile(CAUSAL)
    steps = dict(kernel.stages(sizes=SIZES))
    env, scalars = kernel.environment(SIZES)
    forms = {
        name: roofline.stage(after, steps[after], budget(steps[after], env, scalars), ceilings.H200)
        for name, after in {"one op at a time": "contract", "in tiles": "place"}.items()
    }
    figure = plots.roofline("causal", forms, ceilings.H200)
    assert labels(figure)[:2] == ["memory, 4.5 TB/s", "last cache, 23.5 TB/s"]
    assert labels(figure)[2:] == [f"{n}: {s.bound.holds}" for n, s in forms.items()]
    assert "NVIDIA H200" in axes(figure).get_title()
    memory, *_ = axes(figure).lines
    for name, (x,), (y,) in (
        (n, *p.get_data()) for n, p in zip(forms, axes(figure).lines[2:], strict=False)
    ):
        assert x == pytest.approx(forms[name].operations / forms[name].moved)
        assert y <= 1.001 * max(memory.get_ydata())


@pytest.mark.parametrize("sizes", [{"N": 4}, {"N": 0}])
def test_roofline_of_a_program_that_only_copies(sizes):
    kernel = tilec.compile("kernel same(X[N]) -> Y[i]:\n    Y = X[i]\n")
    steps = dict(kernel.stages(sizes=sizes))
    form = roofline.stage("place", steps["place"], budget(steps["place"], sizes, {}), ceilings.H200)
    figure = plots.roofline("same", {"in tiles": form}, ceilings.H200)
    (x,), (y,) = axes(figure).lines[2].get_data()
    assert x > 0
    assert y > 0


def test_bars_are_as_long_as_times_and_ours_stands_out():
    figure = plots.bars("causal", ["tilec", "another"], [1e-3, 2e-3])
    ours, theirs = axes(figure).patches
    assert (ours.get_width(), theirs.get_width()) == (1.0, 2.0)
    assert ours.get_facecolor() != theirs.get_facecolor()
    assert [t.get_text().strip() for t in axes(figure).texts] == ["1", "2  (2.00 ×)"]


def test_bars_that_would_leave_no_room_end_at_an_arrow():
    figure = plots.bars("causal", ["tilec", "another", "slow"], [1e-3, 2e-3, 40e-3])
    widths = [p.get_width() for p in axes(figure).patches]
    assert widths[:2] == [1.0, 2.0]
    assert 2.0 < widths[2] < 3.0
    assert axes(figure).texts[2].get_text().strip() == "→ 40  (40.00 ×)"


def test_a_search_shows_the_default_and_the_fastest():
    figure = plots.search("causal", [1e-3, 2e-3, 3e-3], [2e-3, 1.5e-3, 4e-3], 0, 1e-3)
    found = {x.get_label(): x.get_xydata().tolist() for x in axes(figure).lines}
    assert found["the default"] == [[1.0, 2.0]]
    assert found["the fastest"] == [[2.0, 1.5]]
    assert len(found["candidates"]) == 3


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 "), (999, "999 "), (1000, "1 k"), (4.5e12, "4.5 T"), (1e15, "1 P")]
)
def test_numbers_are_short(number, text):
    assert plots.short(number) == text


def test_files_are_of_the_kind_that_their_name_says():
    figure = plots.bars("causal", ["tilec"], [1e-3])
    assert plots.drawn(figure, "a.svg").startswith(b"<?xml")
    with pytest.raises(ArgumentError, match=r"must end in \.svg"):
        plots.drawn(figure, "a.jpg")
