"""What the programs are timed beside: FlashAttention-4 as it is called, and which heads are compared."""

from __future__ import annotations

import sys
import types

import numpy as np
import pytest

from tilec import beside, peers
from tilec.formula import Formula, Roles, evaluate

ROLES = Roles(("q", "k", "v"), "slopes")


@pytest.mark.parametrize(
    ("formula", "arguments"),
    [
        (Formula(), {"causal": False}),
        (Formula(mask="causal", aligned=True, cap=30.0), {"causal": True, "softcap": 30.0}),
        (
            Formula(mask="causal window", window=8, aligned=True, scale=0.5),
            {"causal": True, "window_size": (7, 0), "softmax_scale": 0.5},
        ),
        (Formula(mask="window", window=8, aligned=True), {"causal": False, "window_size": (8, 8)}),
    ],
)
def test_flash_attention_is_asked_for_the_formula(monkeypatch, formula, arguments):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    said = {}

    def flash(q, k, v, **more):
        said.update(more)
        asked = [x.transpose(1, 2) for x in (q, k, v)]
        return peers.written_out(formula, *asked, None).transpose(1, 2), None

    monkeypatch.setitem(sys.modules, "flash_attn", types.ModuleType("flash_attn"))
    cute = types.ModuleType("flash_attn.cute")
    monkeypatch.setattr(cute, "flash_attn_func", flash, raising=False)
    monkeypatch.setitem(sys.modules, "flash_attn.cute", cute)
    q, k, v = (torch.randn(1, 2, n, 8) for n in (5, 9, 9))
    run = peers._Flash4(formula, q, k, v)()
    assert said == arguments
    assert torch.equal(run(), peers.written_out(formula, q, k, v, None))


@pytest.mark.parametrize(
    "formula",
    [Formula(mask="chunked causal", window=8), Formula(slopes="slopes"), Formula(mask="causal")],
)
def test_flash_attention_refuses_what_it_has_not(formula):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    q, k, v = (torch.randn(1, 2, n, 8) for n in (5, 9, 9))
    with pytest.raises(ValueError, match="it "):
        peers._Flash4(formula, q, k, v)()


def test_flash_attention_that_is_missing_says_how_to_get_it(monkeypatch):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setitem(sys.modules, "flash_attn", None)
    with pytest.raises(ValueError, match="pip install flash-attn-4"):
        peers._Flash4(Formula(), *(torch.zeros(1, 1, 4, 8) for _ in range(3)))()


def test_some_heads_stand_for_all(monkeypatch):
    rng = np.random.default_rng(1)
    arrays = {
        "q": rng.normal(size=(2, 6, 5, 4)),
        "k": rng.normal(size=(2, 3, 7, 4)),
        "v": rng.normal(size=(2, 3, 7, 4)),
        "slopes": rng.normal(size=6),
    }
    formula = Formula(slopes="slopes", mask="causal", aligned=True)
    assert beside.some_heads(arrays, ROLES)[1] is arrays
    monkeypatch.setattr(beside, "COMPARED", 10)
    some, own = beside.some_heads(arrays, ROLES)
    full = evaluate(formula, arrays, ROLES.names)
    assert full[some].shape == (1, 2, 5, 4)
    np.testing.assert_allclose(evaluate(formula, own, ROLES.names), full[some], rtol=1e-12)
