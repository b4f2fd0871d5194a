"""In which order tiles are taken and windows are walked."""

from __future__ import annotations

import pytest

import tilec
from tests.backends.cuda.answers import EXAMPLES, LIMIT, off, prepared
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tilec.backends.cuda.hopper import sections

pytestmark = needs_cpp


def test_what_ends_at_the_rows_begins_there() -> None:
    for name, order in (("alibi", True), ("document", True), ("naive", False)):
        kernel = tilec.load(EXAMPLES / f"{name}.tile")
        sizes = {d: kernel._source.sizes[d] for d in kernel.dims}
        _, sources = running.tiles(kernel, "bf16", sizes)
        structure = next(iter(sources.values())).plan.structure
        assert structure.descending == order
        assert structure.order == ((1, 0) if order else (0, 1))


@pytest.mark.parametrize("late", [0, 7, 10])
def test_sections_and_late_rows(monkeypatch: pytest.MonkeyPatch, late: int) -> None:
    monkeypatch.setattr(sections, "CACHE", 1)
    monkeypatch.setattr(sections, "AT_ONCE", 6)
    sizes = {"B": 1, "H": 5, "M": 300, "N": 300, "D": 16, "E": 16}
    kernel, arrays = prepared("causal", "f16", sizes)
    (source,) = running.tiles(kernel, "f16", sizes, warpgroups=2, order="longest")[1].values()
    assert sections.section(source.structure, sizes, 2) == 2
    changes = {"warpgroups": 2, "columns": 64, "order": "longest", "section": 2, "late": late}
    got = running.run(kernel, arrays, "f16", sizes, processors=3, **changes)
    assert off(got, kernel, arrays) < LIMIT["f16"]
