"""The search: what it tries, what it believes, what it leaves behind, and that later calls take the winner."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest

import tilec
from tests.programs import CAUSAL
from tilec import backend
from tilec.backends.cpu import pool
from tilec.cut import Cutter
from tilec.tuning import board as boards
from tilec.tuning import drafts, expected, search, space, store
from tilec.tuning.key import key
from tilec.tuning.problem import Options, Problem

EXAMPLES = Path(__file__).parents[2] / "examples"
SIZES = {"B": 1, "H": 1, "M": 40, "N": 48, "D": 8, "E": 8}


def tuned(kernel, **more):
    return kernel.tune(**kernel.sample(**SIZES), **{"budget": 60.0, "jobs": 0} | more)


def tiles_of(kernel):
    *_, (_, tiles) = kernel.stages(sizes=SIZES)
    return tiles


def space_of(kernel, target, sizes):
    online = dict(kernel.stages(sizes=sizes))["online"]
    cut = Cutter.of(online, target)(sizes, {"scale": 1.0}, {}, {})
    return space.default_space(cut, online, target)


# ---- the space


def test_default_space_covers_rows_and_columns():
    kernel = tilec.compile(CAUSAL)
    found = space_of(kernel, "cpu", SIZES)
    assert found == {"i": space.ROWS, "j": space.COLUMNS}
    tried = list(space.candidates(found, tiles_of(kernel), SIZES))
    # 40 rows are covered by 64, 48 columns too: larger extents make the same tiles
    assert {c.tile["i"] for c in tried} == {c.tile["j"] for c in tried} == {16, 32, 64}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("i", "'i' is not NAME=VALUE"),
        ("i=", "is not NAME=VALUE"),
        ("i=64,x", "i=64,x|i=x"),
        ("i=0", "1 or more"),
        ("z=4", "no 'z' to search; there are b, h, i, j"),
        ("d=4", "no 'd' to search"),
        ("stages=2", "no 'stages'"),
        ("i=1 i=2", "twice"),
        ("", "nothing to search"),
    ],
)
def test_wrong_spaces_say_what_there_is(text, words):
    with pytest.raises(tilec.ArgumentError, match=words):
        space.parse([text], tiles_of(tilec.compile(CAUSAL)), "cpu")


# ---- searching


class Ran(Exception):
    """Stops a search at its first candidate."""


@pytest.mark.parametrize(
    ("example", "dtype", "sizes", "tile"),
    [
        ("naive", "f32", {"H": 2, "M": 1, "N": 4096}, {}),  # in pieces
        ("naive", "f32", {"H": 2, "M": 1, "N": 4096}, {"j": 256}),
        ("naive", "f32", {"H": 8, "M": 300, "N": 64}, {"i": 32}),
        ("naive", "f16", {"H": 8, "M": 2048, "N": 64}, {}),  # in tall tiles
        ("paged", "f32", {"H": 8, "HK": 2, "M": 1}, {}),  # with heads in rows
        ("paged", "f32", {"H": 8, "HK": 2, "M": 1}, {"j": 64}),
    ],
)
def test_what_is_timed_is_what_a_call_runs(monkeypatch, example, dtype, sizes, tile):
    monkeypatch.setattr(pool, "threads", lambda: 4)
    kernel = tilec.load(EXAMPLES / f"{example}.tile", target="cpu")
    data = kernel.sample(dtype=dtype, **sizes)
    ran = []

    def first(self, e):
        ran.append(self.drafts.candidate(e))
        raise Ran

    monkeypatch.setattr(search._Search, "prepare_default", lambda self: first(self, self.default))
    if tile:
        monkeypatch.setattr(search._Search, "prepare_default", lambda _: None)
        monkeypatch.setattr(search._Search, "tried", first)
    asked = " ".join(f"{a}={n}" for a, n in tile.items()) or None
    with pytest.raises(Ran):
        kernel.tune(**data, space=asked, jobs=0)
    own = tilec.load(EXAMPLES / f"{example}.tile", target="cpu", tile=tile)
    plan = own.plan(**data)
    assert ran[0].cut.kernel == plan.ir
    if example == "paged":
        assert space.tiled_axes(plan.ir)["h"] == 4


def test_kernels_in_pieces_are_ranked():
    target = "cuda:sm_90a"
    kernel = tilec.load(EXAMPLES / "paged.tile", target=target)
    sizes = {"B": 2, "H": 8, "HK": 2, "M": 1, "D": 128, "E": 128, "NP": 512, "MP": 256, "P": 16}
    known, scalars = kernel.environment(sizes)
    stages = dict(kernel.stages(dtype="bf16", sizes=known))
    fixed = {d: known[d] for d in ("D", "E", "P")}
    problem = Problem(
        key=key(stages["lower"], known, fixed, target),
        target=target,
        lowered=stages["lower"],
        online=stages["online"],
        sizes=known,
        scalars=scalars,
        fixed=fixed,
        arrays=kernel.sample(dtype="bf16", **known),
        reference=dict,
        bench=lambda: None,
    )
    with store.open_store() as s:
        one = search._Search(problem, s, Options(space=["columns=32,64"]))
        others = one.ranked()
    assert any(n.endswith("_pieces") for n in one.default.runs.arguments)
    assert 0 < one.drafts.bound() < one.default.predicted
    assert others
    assert all(e.predicted > 0 for e in others)


def test_few_rows_are_searched_along_the_keys():
    kernel = tilec.load(EXAMPLES / "paged.tile", target="cpu")
    known, _ = kernel.environment({"H": 8, "HK": 2, "M": 1})
    assert space_of(kernel, "cpu", known) == {"j": space.LONG}


def test_every_candidate_is_checked_and_the_fastest_is_stored():
    kernel = tilec.compile(CAUSAL)
    seen = []
    board = tuned(kernel, space="i=16,64 j=16,48", progress=lambda *x: seen.append(x))
    assert board.complete
    assert board.compared_with == "the float64 reference"
    # the default covers both axes, as i=64 with j=48 does, but its tiles are others
    assert len(board.measured) == 5
    assert board.best.relative == min(e.relative for e in board.measured if e is board.best)
    assert all(e.error < 1e-5 for e in board.measured)
    assert [done for done, *_ in seen] == [2, 3, 4, 5]
    with store.open_store() as s:
        assert s.winner(board.key).choice == board.best.choice


def test_later_calls_take_the_stored_schedule():
    kernel = tilec.compile(CAUSAL)
    data = kernel.sample(**SIZES)
    board = tuned(kernel, space="i=16")
    with store.open_store() as s:
        s.keep(store.Winner(board.key, store.Choice({"i": 16, "j": 16}), 1.0, 1.0, 1.0))
    later = tilec.compile(CAUSAL)
    plan = later.plan(**data)
    assert plan.tuned.choice.tile == {"i": 16, "j": 16}
    assert space.tiled_axes(plan.ir)["j"] == 16
    np.testing.assert_allclose(later(**data), later.reference(**data), atol=1e-5)
    # a kernel that was called before the search takes it, too
    kernel(**data)
    board = tuned(kernel, space="i=16")
    kernel(**data)
    assert kernel.plan(**data).tuned.choice == board.best.choice
    # near sizes share it, others do not, and the user's word goes first
    assert later.plan(**later.sample(**SIZES | {"N": 60})).tuned is not None
    assert later.plan(**later.sample(**SIZES | {"N": 600})).tuned is None
    assert tilec.compile(CAUSAL, tile={"i": 32}).plan(**data).tuned is None


@pytest.mark.parametrize(
    ("tile", "schedule"),
    [
        ({"z": 16}, {}),
        ({"i": 10**9}, {}),
        ({}, {"stages": 2}),
        ({}, {"workers": "many"}),
        ({}, {"workers": -4}),
    ],
)
def test_a_schedule_that_does_not_fit_is_reported_and_not_used(tile, schedule):
    kernel = tilec.compile(CAUSAL)
    data = kernel.sample(**SIZES)
    board = tuned(kernel, space="i=16")
    with store.open_store() as s:
        s.keep(store.Winner(board.key, store.Choice(tile, schedule), 1.0, 1.0, 1.0))
    with pytest.warns(RuntimeWarning, match="does not fit"):
        assert tilec.compile(CAUSAL).plan(**data).tuned is None


def test_a_damaged_file_is_reported_and_not_used():
    kernel = tilec.compile(CAUSAL)
    tuned(kernel, space="i=16")
    store.path().write_bytes(b"x" * 4096)
    store.path().chmod(0o600)
    data = kernel.sample(**SIZES)
    with pytest.warns(RuntimeWarning, match="damaged"):
        assert tilec.compile(CAUSAL).plan(**data).tuned is None
    with pytest.raises(store.StoreError, match="damaged"):
        tuned(kernel, space="i=16")


def test_resume_measures_only_what_is_left(monkeypatch):
    kernel = tilec.compile(CAUSAL)
    board = tuned(kernel, space="i=16,32")
    with store.open_store() as s:
        before = {t.choice.text: t.seconds for t in s.trials(board.key)}
        s.note(board.key, store.Trial(store.Choice({"i": 48}), "running"))
    again = tuned(kernel, space="i=16,32,48", resume=True)
    seconds = {e.choice.text: e.seconds for e in again.entries}
    for text, t in before.items():
        assert seconds[text] == t
    assert store.Choice({"i": 48}).text in seconds


def test_ctrl_c_keeps_what_is_known():
    kernel = tilec.compile(CAUSAL)

    def stop(*_):
        raise KeyboardInterrupt

    board = tuned(kernel, space="i=16,32 j=16,32", progress=stop)
    assert not board.complete
    assert len(board.measured) == 2
    assert "not all candidates" in str(board)
    with store.open_store() as s:
        assert s.winner(board.key) is not None


def test_a_wrong_result_never_wins(monkeypatch):
    real = backend.runner

    def runner(tiles, target, *more, **named):
        run = real(tiles, target, *more, **named)
        if space.tiled_axes(tiles.kernel)["j"] != 16:
            return run

        def wrong(tensors, scalars, outputs):
            for a in outputs.values():
                a.numpy()[...] = 7.0

        return wrong

    monkeypatch.setattr(backend, "runner", runner)
    board = tuned(tilec.compile(CAUSAL), space="j=16,32")
    assert {e.state for e in board.entries if e.choice.tile.get("j") == 16} == {"wrong"}
    assert board.best.choice.tile.get("j") != 16
    assert "1 wrong: j=16: O is off by" in str(board)


def test_what_is_better_beside_the_best_alone_does_not_win(monkeypatch):
    ratios = iter([0.5, 1.1])  # beside the incumbent, then beside the default
    monkeypatch.setattr(search._Search, "beside", lambda *_: (next(ratios), 1e-3))
    board = tuned(tilec.compile(CAUSAL), space="i=16")
    assert board.best is board.default
    assert [e.relative for e in board.measured if e is not board.default] == [1.1]


def test_large_problems_are_checked_at_some_tiles(monkeypatch):
    monkeypatch.setattr(expected, "EXACT", 10)
    board = tuned(tilec.compile(CAUSAL), space="i=16")
    assert board.compared_with == "the float64 reference at 3 tiles"
    assert 0 < max(e.error for e in board.measured) < 1e-5


def test_what_is_too_large_for_that_is_checked_against_the_default(monkeypatch):
    monkeypatch.setattr(expected, "EXACT", 10)
    monkeypatch.setattr(expected, "SAMPLED", 10)
    board = tuned(tilec.compile(CAUSAL), space="i=16")
    assert board.compared_with == "the default schedule"
    assert max(e.error for e in board.measured) < 1e-5


@pytest.mark.parametrize("most", [expected.EXACT, 10])
def test_large_exponents_are_as_far_off_as_plain_arithmetic(monkeypatch, most):
    monkeypatch.setattr(expected, "EXACT", most)
    kernel = tilec.compile(CAUSAL, target="cpu")
    data = {**kernel.sample(3, B=1, H=1, M=32, N=64, D=4096, E=16), "scale": 1.0}
    seen = []
    with_plain = expected.with_plain
    monkeypatch.setattr(expected, "with_plain", lambda *x: seen.append(with_plain(*x)) or seen[-1])
    board = kernel.tune(**data, budget=60.0, jobs=0, space="i=16")
    assert (len(seen), board.complete) == (1, True)
    assert 0 < seen[0].plain["O"] < 1e-2


def test_a_budget_that_is_too_short_is_refused_before_anything_runs(monkeypatch):
    monkeypatch.setattr(search._Search, "prepare_default", lambda _: pytest.fail("it ran"))
    monkeypatch.setattr(drafts.cost, "seconds", lambda *_: 25.0)
    with pytest.raises(
        tilec.ResourceError, match=r"takes 25 s or more.* 60 s of the.*works is 600 s"
    ):
        tuned(tilec.compile(CAUSAL), space="i=16")


def test_a_budget_that_ends_early_leaves_the_default(monkeypatch):
    said = []
    monkeypatch.setattr(drafts.cost, "seconds", lambda *_: 0.2)
    late = {"left": property(lambda _: 0.0), "possible": lambda _: None}
    for name, x in late.items():
        monkeypatch.setattr(search._Search, name, x)
    monkeypatch.setattr(search._Search, "in_time", lambda _: (_ for _ in ()).throw(search.Late()))
    board = tuned(tilec.compile(CAUSAL), space="i=16", notice=said.append)
    assert (board.complete, board.best) == (False, board.default)
    assert board.compared_with == "the default schedule"  # there was no time for exact values
    with store.open_store() as s:
        assert s.winner(board.key) is None  # it was compared with nothing
    assert said == [
        "computing exact values to compare with",
        "timing the default schedule: about 0.2 s a call",
    ]


def test_what_does_not_fit_is_not_tried():
    kernel = tilec.compile(CAUSAL)
    data = kernel.sample(**SIZES | {"M": 4096, "N": 4096})
    board = kernel.tune(**data, jobs=0, budget=60.0, space="i=4096 j=4096")
    assert [e.state for e in board.entries] == ["measured", "does not fit"]
    assert "use smaller tiles" in board.entries[1].note


def test_compiling_processes_fill_the_cache(tmp_path):
    board = tuned(tilec.compile(CAUSAL), space="i=16,32", jobs=2)
    assert board.complete
    assert len(board.measured) == 3


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"budget": 0.0}, "more than 0"),
        ({"budget": "60s"}, "budget: .*'60s'"),
        ({"jobs": -1}, "0 or more"),
        ({"space": "q=1"}, "no 'q'"),
    ],
)
def test_useless_options_are_refused(more, words):
    kernel = tilec.compile(CAUSAL)
    with pytest.raises(tilec.ArgumentError, match=words):
        kernel.tune(**kernel.sample(**SIZES), **{"jobs": 0} | more)


def test_the_reference_has_no_schedule():
    kernel = tilec.compile(CAUSAL, target="reference")
    with pytest.raises(tilec.UnsupportedError, match="reference has no schedule"):
        kernel.tune(**kernel.sample(**SIZES))


def test_untuned_calls_touch_no_file():
    kernel = tilec.compile(CAUSAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert kernel.plan(**kernel.sample(**SIZES)).tuned is None
    assert not store.exists()


def test_a_board_shows_time_speed_and_roof():
    board = tuned(tilec.compile(CAUSAL), space="i=16")
    shown = boards.show(board, 1)
    assert "of roof" in shown
    assert " 1. " in shown
    assert " 2. " not in shown
    slower = dataclasses.replace(board.entries[1], relative=2.0)
    assert board.time(slower) == 2 * board.default.seconds


# ---- targets with schedule fields


def test_schedule_fields_are_searched_where_a_target_has_them():
    kernel = tilec.compile(CAUSAL, target="cuda:sm_90a")
    tiles = tiles_of(kernel)
    found = space_of(kernel, "cuda:sm_90a", SIZES)
    assert set(found) == {"warpgroups", "columns", "stages", "order", "store"}
    (one,) = space.candidates(
        space.parse(["warpgroups=3 columns=96 order=longest"], tiles, "cuda:sm_90a"), tiles, SIZES
    )
    assert (one.tile, one.schedule) == ({}, {"warpgroups": 3, "columns": 96, "order": "longest"})
    assert "warps" in space_of(kernel, "cuda:sm_80", SIZES)
    with pytest.raises(tilec.ArgumentError, match="no 'warpgroups'"):
        space.parse(["warpgroups=3"], tiles, "cpu")
