"""`tilec emit`: the generated code."""

from __future__ import annotations

from pathlib import Path


def test_emit(tile):
    status, out, _ = tile("emit", "causal.tile", "--to", "llvm")
    assert (status, "define" in out) == (0, True)
    status, out, _ = tile("emit", "causal.tile", "--to", "asm")
    assert (status, "ret" in out) == (0, True)


def test_code_asks_for_the_sizes_it_needs(tile):
    Path("open.tile").write_text(
        "kernel f(X[N, D], Y[M, D]) -> Z[i, j]:\n    Z = sum[d](X[i, d] * Y[j, d])\n"
    )
    status, _, err = tile("emit", "open.tile", "--to", "cuda", "--target", "cuda:sm_80")
    assert status == 1
    assert "no size is known for N, D, M" in err
