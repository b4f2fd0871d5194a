"""What a Hopper kernel should take, and what it has from memory, held against what an H200 showed."""

from __future__ import annotations

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import backend, ceilings
from tilec.backends.cuda.hopper import cost, misses, sections
from tilec.traffic import budget

TIMES = {
    (2, 128, 2): 380.3,
    (2, 96, 2): 384.6,
    (2, 64, 3): 389.2,
    (2, 48, 3): 411.2,
    (2, 32, 3): 478.0,
    (2, 32, 2): 515.4,
    (3, 64, 2): 387.7,
    (3, 48, 3): 406.8,
    (3, 32, 3): 450.7,
}
"""Microseconds of causal attention with 64 heads of 128 and 4096 positions, by warpgroups, columns and stages."""


def stated(schedule, **sizes):
    """A kernel's draft with its budget, and the sizes."""
    kernel = tilec.compile(CAUSAL, target="cuda:sm_90a")
    known, scalars = kernel.environment(sizes)
    steps = dict(kernel.stages(dtype="bf16", sizes=known))
    before = (steps["online"], known)
    found = backend.draft(steps["place"], "cuda:sm_90a", schedule, before)
    return found, budget(found.kernel, known, scalars), before


def test_schedules_are_ranked_as_they_were_measured():
    found = {}
    for warpgroups, columns, stages in TIMES:
        fields = {"warpgroups": warpgroups, "columns": columns, "stages": stages}
        draft, b, _ = stated(fields | {"order": "longest"}, B=4, H=16, M=4096, N=4096, D=128, E=128)
        assert draft.seconds is not None
        found[warpgroups, columns, stages] = 1e6 * draft.seconds(b, ceilings.H200)
    ranked = sorted(TIMES, key=lambda at: found[at])
    assert min(TIMES[at] for at in ranked[:3]) < 1.03 * min(TIMES.values())
    assert max(TIMES, key=lambda at: found[at]) == (2, 32, 2)
    for at, took in TIMES.items():
        assert found[at] == pytest.approx(took, rel=0.1)


LONG = {"B": 1, "H": 16, "M": 16384, "N": 16384, "D": 128, "E": 128}
ONCE = 4 * 16 * 16384 * 128 * 2


def from_memory(schedule, roof=ceilings.H200, **sizes):
    _, b, before = stated(schedule, **{**LONG, **sizes})
    return backend.memory_bytes(before, "cuda:sm_90a", schedule, b, roof)


# (heads, positions, masked, rows of a tile, heads of a section): megabytes that an H200 counted, with head size 128
COUNTED = {
    (16, 16384, False, 128, 0): 274.5,
    (16, 16384, False, 128, 4): 747.3,
    (16, 16384, False, 128, 8): 1416.5,
    (16, 16384, True, 128, 0): 1854.0,
    (16, 16384, True, 128, 1): 268.3,
    (16, 16384, True, 128, 2): 268.8,
    (16, 16384, True, 128, 3): 270.1,
    (16, 16384, True, 128, 4): 307.8,
    (16, 16384, True, 128, 6): 440.0,
    (16, 16384, True, 128, 8): 634.6,
    (16, 16384, True, 128, 16): 1194.8,
    (16, 16384, True, 192, 6): 366.5,
    (32, 8192, False, 128, 16): 1308.0,
    (32, 8192, True, 128, 0): 1029.9,
    (32, 8192, True, 128, 8): 304.7,
    (32, 8192, True, 128, 12): 433.0,
    (32, 8192, True, 128, 32): 1193.8,
    (256, 1024, True, 128, 8): 268.4,
    (4, 32768, False, 128, 0): 174.2,
    (4, 65536, False, 128, 0): 735.3,
    (4, 65536, True, 128, 1): 300.9,
}


def streamed(heads, positions, masked, rows, section):
    """The tiles of a launch as they are dealt out; a section of 0: statically."""
    ends = [min(positions, n + rows) if masked else positions for n in range(0, positions, rows)]
    chunk = max(1, positions // misses.CHUNKS)
    own = [2 * 256 * min(rows, positions - n) for n in range(0, positions, rows)]
    each = tuple(misses.Row(0, -(-e // chunk), o) for e, o in zip(ends, own, strict=True))
    return misses.Streams(heads, 1, each, chunk, 512, section, ceilings.H200.workers)


@pytest.mark.parametrize("case", COUNTED, ids=str)
def test_bytes_are_those_that_were_counted(case):
    found = misses.played(streamed(*case), ceilings.H200.far)
    assert found / 1e6 == pytest.approx(COUNTED[case], rel=0.15)


def test_what_a_large_cache_holds_comes_once():
    s = streamed(16, 16384, True, 128, 16)
    assert misses.played(s, 1 << 30) == pytest.approx(ONCE, rel=0.01)
    assert misses.played(s, 1 << 20) > 4 * misses.played(s, ceilings.H200.far)


@pytest.mark.parametrize(("heads", "section", "late"), [(5, 2, 0), (5, 2, 1), (3, 8, 2), (4, 1, 3)])
def test_every_tile_is_dealt_out_once(heads, section, late):
    found = list(sections.dealt(range(3), heads, section, late))
    assert sorted(found) == [(h, r) for h in range(heads) for r in range(3)]
    assert {r for _, r in found[len(found) - heads * late :]} == set(range(late))


def test_a_section_that_is_not_whole_comes_first():
    s = streamed(5, 256, True, 128, 2)
    assert [(h, r.end) for h, r in s.dealt(5)][:6] == [
        (0, 32),
        (0, 16),
        (1, 32),
        (2, 32),
        (1, 16),
        (2, 16),
    ]


def test_the_usual_section_is_read_once():
    assert from_memory({"late": 0}) == pytest.approx(ONCE, rel=0.05)


def test_late_rows_have_their_keys_twice():
    keys = 264 * 128 * 512
    assert from_memory({}) == pytest.approx(ONCE + keys, rel=0.05)


def test_late_rows_end_a_launch_together():
    rows = [4000.0 + 2700 * (n % 6) for n in range(64)]  # documents of six blocks

    def ends(late):
        return cost.dealt([(32, t) for t in rows], (6, late), 32, workers=132)

    together = 32 * sum(rows) / 132
    assert ends(0) > 1.03 * together
    assert ends(8) < 1.02 * together


def test_sections_are_as_long_as_asked_where_nothing_bounds_them(monkeypatch):
    monkeypatch.setattr(sections, "CACHE", 1 << 50)
    fields = {"order": "longest", "columns": 128}
    measured = 614_220_288 + 79_835_904
    assert from_memory(fields | {"section": 8}) == pytest.approx(measured, rel=0.15)


def test_heads_that_share_keys_have_them_once():
    text = CAUSAL.replace("K[b, h, j", "K[b, h // 4, j").replace("V[b, h, j", "V[b, h // 4, j")
    text = text.replace("K[B, H,", "K[B, G,").replace("V[B, H,", "V[B, G,")
    kernel = tilec.compile(text, target="cuda:sm_90a")
    known, scalars = kernel.environment({**LONG, "G": 4})
    steps = dict(kernel.stages(dtype="bf16", sizes=known))
    b = budget(steps["place"], known, scalars)
    moved = backend.memory_bytes((steps["online"], known), "cuda:sm_90a", {}, b, ceilings.H200)
    assert moved == pytest.approx(ONCE * (2 + 2 / 4) / 4, rel=0.05)


def test_nothing_is_said_of_other_emitters():
    assert from_memory({"emitter": "simt"}, M=256, N=256) is None
