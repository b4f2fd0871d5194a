"""The schedules that come with the package: how they are found, and that what is shipped is whole."""

from __future__ import annotations

import dataclasses

import pytest

import tilec
from tests.programs import CAUSAL
from tilec.tuning import shipped, store
from tilec.tuning.key import kind

SIZES = {"B": 1, "H": 2, "M": 64, "N": 64, "D": 16, "E": 16}


@pytest.fixture
def one(monkeypatch):
    """Ships a schedule for the causal program, as a search for it would write it down."""
    kernel = tilec.compile(CAUSAL, target="cpu")
    board = kernel.tune(**kernel.sample(**SIZES), space="i=16 j=32", jobs=0)
    key = dataclasses.replace(board.key, target=kind("cpu"), compiler="another")
    winner = store.Winner(key, store.Choice({"i": 16, "j": 32}), 1e-3, 1.5, 0.0)
    monkeypatch.setattr(shipped, "_text", lambda: store.exported([winner]))
    for f in (shipped.winners, shipped._by_key):
        f.cache_clear()
    yield kernel
    monkeypatch.undo()
    for f in (shipped.winners, shipped._by_key):
        f.cache_clear()


def test_what_is_shipped_is_whole():
    kinds = {e.target for e in shipped.evidence()}
    assert all(e.found and e.machine and e.command and e.date for e in shipped.evidence())
    assert {w.key.target for w in shipped.winners()} <= kinds
    assert all(w.gain >= 1.03 for w in shipped.winners())


def test_a_shipped_schedule_serves_machines_of_its_kind(one):
    store.path().unlink()
    plan = tilec.compile(CAUSAL, target="cpu").plan(**one.sample(**SIZES))
    assert plan.tuned is not None
    assert plan.tuned.shipped
    assert dict(plan.tuned.choice.tile) == {"i": 16, "j": 32}
    other = one.sample(**SIZES | {"M": 256, "N": 256})
    assert tilec.compile(CAUSAL, target="cpu").plan(**other).tuned is None


def test_what_the_user_found_goes_first(one):
    one.tune(**one.sample(**SIZES), space="i=32 j=64", jobs=0)
    plan = one.plan(**one.sample(**SIZES))
    assert plan.tuned is not None
    assert not plan.tuned.shipped
