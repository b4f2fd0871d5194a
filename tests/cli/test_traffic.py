"""`tilec traffic`: its tables, figures and drawing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_traffic(tile):
    status, out, err = tile("traffic", "causal.tile", "--size", "M=256,N=256", "--json")
    assert status == 0
    assert "ceilings" in err
    facts = json.loads(out)
    total = {s["after"]: s["read"] + s["written"] for s in facts["stages"]}
    assert total["lower"] > 10 * total["place"]
    for s in facts["stages"]:
        assert sum(op["read"] for op in s["ops"]) == s["read"]
    grown = facts["compared"]
    assert grown["contract"]["growth"] > 1.7 > 1.1 > grown["online"]["growth"]
    assert grown["contract"]["largest"]["place"] == "in HBM"
    assert grown["place"]["largest"]["place"] == "on chip, a tile at a time"


def test_traffic_prints_tables(tile):
    status, out, _ = tile("traffic", "causal.tile", "--measure", "--after", "contract")
    assert status == 0
    assert out.count("counted") == out.count("equal") == 14
    for words in (
        "roofs: memory",
        "compulsory",
        "by op, after contract",
        "one op at a time",
        "it lives",
    ):
        assert words in out


def test_traffic_draws(tile):
    pytest.importorskip("matplotlib")
    status, _, err = tile("traffic", "causal.tile", "--plot", "roof.svg")
    assert (status, "wrote roof.svg" in err) == (0, True)
    assert "<svg" in Path("roof.svg").read_text()
    status, _, err = tile("traffic", "causal.tile", "--plot", "roof.xyz")
    assert (status, ".svg" in err) == (1, True)


def test_the_least_of_traffic_is_no_more_than_what_its_tiles_do(tile):
    # data decides, so that whole blocks count; small ones leave out more than the usual ones
    Path("pads.tile").write_text(
        "kernel pads(Q[M, D], K[N, D], V[N, E], pad: i32[B]) -> O[i, e]:\n"
        "    S = sum[d](Q[i, d] * K[j, d])\n"
        "    O = sum[j](softmax[j](S if pad[0] <= j <= i else -inf) * V[j, e])\n"
        "sizes B=1, M=512, N=512, D=16, E=16\n"
        "sample pad[b] = 300\n"
    )
    status, out, _ = tile(
        "traffic", "pads.tile", "--target", "cuda:sm_90a", "--tile", "i=16,j=16", "--json"
    )
    assert status == 0
    facts = json.loads(out)
    last = facts["stages"][-1]
    assert facts["least"]["work"]["matrix"] <= last["work"]["matrix"]
