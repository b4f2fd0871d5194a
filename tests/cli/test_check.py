"""`tilec check`: signatures, axes and all mistakes."""

from __future__ import annotations

import json
from pathlib import Path


def test_check_prints_signatures_and_axes(tile):
    status, out, err = tile("check", "grouped.tile", "table.tile")
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].startswith("grouped.tile: grouped(Q[B, H, M, D], K[B, HK, N, D]")
    assert lines[0].endswith("-> O[b, h, i, e], L: f32[b, h, i]")
    assert "i < M" in lines[1]
    assert (
        lines[2] == "table.tile: table(X[M, N], T: f32[M + N - 1], flag: bool = false) -> Y[i, j]"
    )
    assert lines[4] == "table.tile: twice(X[N]) -> Y[i]"
    status, out, _ = tile("check", "table.tile:twice", "--json")
    assert json.loads(out)[0]["axes"] == {"i": "N"}


def test_check_reports_all_mistakes(tile):
    Path("bad.tile").write_text("kernel f(X[N]) -> Y[i]:\n    Z = X[i, i]\n    Y = foo(X[i])\n")
    status, out, err = tile("check", "bad.tile", "causal.tile", "missing.tile")
    assert status == 1
    assert "causal(" in out
    assert "bad.tile:2:" in err
    assert "bad.tile:3:" in err
    assert "cannot read missing.tile" in err
    status, out, _ = tile("check", "bad.tile", "--json")
    assert status == 1
    assert [m["line"] for m in json.loads(out)] == [2, 3]
