"""The schedules that come with the package: which calls take them, and that they are those of today's compiler."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import tilec
from tests.programs import CAUSAL
from tilec import backend
from tilec.cut import Cutter
from tilec.tuning import shipped, space, store
from tilec.tuning.key import kind

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SIZES = {"B": 1, "H": 2, "M": 64, "N": 64, "D": 16, "E": 16}
RENAMED = (
    CAUSAL.replace("kernel causal", "kernel mine")
    .replace("Q", "Queries")
    .replace("M", "Rows")
    .replace(" j", " key")
    .replace("[j]", "[key]")
    .replace(", j,", ", key,")
)
ONE = shipped.Default(
    example="causal",
    dtype="f32",
    program="",
    dims=("B", "H", "M", "D", "N", "E"),
    axes=(),
    sizes=SIZES,
    free=("B", "H"),
    target=kind("cpu"),
    threads=backend.threads("cpu"),
    choice=store.Choice({"i": 16, "j": 32}),
    rule=store.Choice({"i": 64, "j": 64}),
    seconds=1e-3,
    gain=1.5,
    tried=2,
    complete=True,
    machine="another",
    date="",
    command="",
    compiler="another",
)


@pytest.fixture
def ships(monkeypatch):
    """Ships a schedule for the causal program."""
    kernel = tilec.compile(CAUSAL, target="cpu")
    ir = next(iter(kernel.stages(sizes=SIZES)))[1]
    one = dataclasses.replace(ONE, program=shipped.program(ir), axes=tuple(ir.extents))

    def ship(**changed):
        default = dataclasses.replace(one, **changed)
        monkeypatch.setattr(shipped, "defaults", lambda: (default,))
        shipped._by_program.cache_clear()

    ship()
    yield ship
    shipped._by_program.cache_clear()


def taken(text=CAUSAL, **changed):
    """The schedule of a call."""
    kernel = tilec.compile(text, target="cpu")
    return kernel.plan(**kernel.sample(**changed)).tuned


# ---- which calls take it


def test_a_shipped_schedule_serves_machines_of_its_kind(ships):
    found = taken(**SIZES)
    assert found is not None
    assert found.shipped
    assert dict(found.choice.tile) == {"i": 16, "j": 32}
    ships(target="cpu of another kind")
    assert taken(**SIZES) is None
    ships(threads=1 + backend.threads("cpu"))
    assert taken(**SIZES) is None


def test_where_nothing_beat_the_rule_calls_go_by_the_rule(ships):
    ships(choice=None)
    assert taken(**SIZES) is None


def test_it_serves_near_lengths_and_as_many_heads_or_more(ships):
    assert taken(**SIZES | {"M": 80, "N": 50, "H": 7}) is not None
    assert taken(**SIZES | {"B": 2, "H": 1}) is not None
    assert taken(**SIZES | {"H": 1}) is None
    assert taken(**SIZES | {"M": 256, "N": 256}) is None
    assert taken(**SIZES | {"D": 17}) is None


def test_it_serves_a_program_with_other_names(ships):
    sizes = {"B": 1, "H": 2, "Rows": 64, "N": 64, "D": 16, "E": 16}
    found = taken(RENAMED, **sizes)
    assert found is not None
    assert dict(found.choice.tile) == {"i": 16, "key": 32}
    assert taken(RENAMED.replace("<=", "<"), **sizes) is None


def test_types_of_16_bits_share_one(ships):
    hashes = {}
    for dtype in ("f16", "bf16", "f32"):
        kernel = tilec.compile(CAUSAL, target="cpu")
        hashes[dtype] = shipped.program(next(iter(kernel.stages(dtype=dtype, sizes=SIZES)))[1])
    assert hashes["f16"] == hashes["bf16"] != hashes["f32"]


def test_what_the_user_found_goes_first(ships):
    kernel = tilec.compile(CAUSAL, target="cpu")
    kernel.tune(**kernel.sample(**SIZES), space="i=32 j=64", jobs=0)
    found = taken(**SIZES)
    assert found is not None
    assert not found.shipped


def test_one_that_does_not_fit_the_program_is_reported(ships):
    ships(
        choice=store.Choice({"h": 16, "unknown": 3}, {"of another target": 1}),
        axes=("b", "h", "i", "unknown", "d", "j"),
    )
    with pytest.warns(RuntimeWarning, match=re.escape("does not fit causal")):
        assert taken(**SIZES) is None


# ---- what is shipped

ALL = pytest.mark.parametrize(
    "one", shipped.defaults(), ids=lambda d: f"{d.target} {d.example} {d.dtype} {d.sizes}"
)


def loaded(one):
    """The kernel that was searched, its IR before it is cut, the sizes and scalars, and the target."""
    target = "cpu" if one.target.startswith("cpu") else one.target
    kernel = tilec.load(EXAMPLES / f"{one.example}.tile", target=target)
    known, scalars = kernel.environment({d: one.sizes[d] for d in kernel.dims})
    online = dict(kernel.stages(dtype=one.dtype, sizes=known))["online"]
    return kernel, online, known, scalars, target


def test_there_are_some_for_each_kind_that_was_searched():
    kinds = {"cpu avx2", "cpu avx512", "cuda:sm_90a"}
    assert kinds <= {d.target for d in shipped.defaults()}


@ALL
def test_a_search_says_what_it_was(one):
    assert all((one.machine, one.command, one.date, one.compiler))
    assert one.tried > 1
    assert one.gain == 1.0 or one.gain >= 1.03
    assert (one.gain == 1.0) == (one.choice is None)
    assert one.choice != one.rule
    assert (one.threads is None) == (not one.target.startswith("cpu"))


@ALL
def test_the_rule_is_what_it_was_when_the_search_was_made(one):
    """Else the entry is out of date: search again (benchmarks/make_defaults.py), or remove it."""
    _, online, known, scalars, target = loaded(one)
    rule = space.by_rule(online, known, scalars, target, one.threads, compiling=False)
    assert rule == one.rule


@ALL
def test_it_fits(one):
    _, online, known, scalars, target = loaded(one)
    best = one.choice or one.rule
    tiles = Cutter.of(online, target)(known, scalars, best.tile, {}).kernel
    draft = backend.draft(tiles, target, best.schedule, None if best.tile else (online, known))
    assert draft.kernel.body


@ALL
def test_a_call_takes_it(one, monkeypatch):
    kernel, _, known, _, _ = loaded(one)
    monkeypatch.setattr(shipped, "kind", lambda _: one.target)
    monkeypatch.setattr(shipped, "threads", lambda _: one.threads)
    found = kernel.tuned(dtype=one.dtype, sizes=known)
    assert (found and found.choice) == one.choice
    assert found is None or found.shipped
