"""The code for processors of every width: what its hot loops hold, and that it computes the same.

No such processor need be there: the assembly is read. Widths that this machine lacks run as vectors of several registers.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tests.backends.cpu.assembly import Loop, called, loops
from tilec.backends.cpu import jit, registers
from tilec.dtypes import DType
from tilec.errors import ArgumentError

EXAMPLES = Path(__file__).parents[3] / "examples"
HOT = 8
"""Products of a loop that counts: a contraction, or exponentials."""
TILES = {"sse": (6, 1), "avx": (6, 1), "avx2": (6, 2), "avx512": (12, 2), "neon": (12, 2)}
"""Rows of a register tile of two vectors, and steps per iteration."""
REGISTER = {"sse": "%xmm", "avx": "%ymm", "avx2": "%ymm", "avx512": "%zmm", "neon": "v"}


def hot(name: str, processor: str, dtype: DType = "f32", d: int = 64) -> list[Loop]:
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    text = kernel.source("asm", dtype=dtype, processor=processor, D=d, E=d)
    assert all(f"{f}:" in text for f in called(text)), "calls what it does not hold"
    return [x for x in loops(text) if x.products >= HOT]


@pytest.mark.parametrize("processor", TILES)
@pytest.mark.parametrize(
    ("name", "dtype", "d"), [("naive", "f32", 64), ("causal", "bf16", 128), ("alibi", "f16", 80)]
)
def test_hot_loops_keep_everything_in_registers(
    processor: str, name: str, dtype: DType, d: int
) -> None:
    if dtype == "f16" and not jit.PROCESSORS[processor].half:
        pytest.skip("f16 is converted by many instructions there, in loops that multiply, too")
    rows, steps = TILES[processor]
    found = hot(name, processor, dtype, d)
    assert [(x.spills, x.reloads) for x in found] == [([], [])] * len(found)
    # scores in whole and in trimmed blocks, sums of values in whole ones: those over a trimmed block take single steps
    full = [x for x in found if x.products >= 2 * (rows - 1) * steps]
    single = [x for x in found if 2 * (rows - 1) <= x.products <= 2 * rows]
    assert len(full) >= 3
    assert any(x.loads in (1 + rows, 2 + rows) for x in single)
    assert max(x.products for x in full) == 2 * rows * steps
    for x in full:
        assert x.uses(REGISTER[processor])
        # two vectors and one element for each row
        assert x.loads <= (2 + rows) * steps
    # columns of values are neighbours in memory, scores' rows of keys are not
    assert {x.asks for x in full} == {0, steps}


def test_a_tile_of_too_many_rows_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilec.backends.cpu.nests.rows_for", lambda machine, kind: 8)
    assert any(x.spills for x in hot("naive", "avx2"))


def test_f64_takes_the_rows_that_fit() -> None:
    rows = {p: registers.rows_for(jit.PROCESSORS[p], "f64") for p in TILES}
    assert rows == {"sse": 2, "avx": 2, "avx2": 2, "avx512": 6, "neon": 6}
    text = tilec.load(EXAMPLES / "naive.tile").source("asm", dtype="f64", processor="avx2")
    assert not any(x.spills for x in loops(text) if x.products == 2 * 4 * 2)


def test_a_processor_that_is_not_known() -> None:
    kernel = tilec.load(EXAMPLES / "naive.tile")
    with pytest.raises(ArgumentError, match="sse, avx, avx2, avx512, neon"):
        kernel.source("asm", processor="altivec")


# ---- what other widths compute


class Sse(jit.Machine):
    """This machine, as if it had vectors of four lanes."""

    lanes = property(lambda self: 4)
    registers = property(lambda self: 16)
    fma = property(lambda self: False)


class Neon(Sse):
    registers = property(lambda self: 32)
    fma = property(lambda self: True)


class Avx512(Neon):
    lanes = property(lambda self: 16)


@pytest.fixture(params=[Sse, Neon, Avx512])
def another(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    here = jit.host()
    machine = request.param(here.triple, here.cpu, here.features)
    monkeypatch.setattr(jit, "host", lambda: machine)
    # objects of their own in the cache
    monkeypatch.setattr(jit, "generator", lambda: request.param.__name__)


@pytest.mark.usefixtures("another")
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize(("m", "n", "d"), [(53, 71, 33), (1, 75, 40), (16, 16, 16)])
def test_other_widths_compute_the_same(dtype: str, m: int, n: int, d: int) -> None:
    rng = np.random.default_rng(m)
    kind = {"f32": np.float32, "f16": np.float16}[dtype]
    q, k, v = (rng.standard_normal((1, 2, length, d)).astype(kind) for length in (m, n, n))
    got = tilec.load(EXAMPLES / "causal.tile", target="cpu")(q, k, v)
    want = tilec.load(EXAMPLES / "causal.tile", target="reference")(q, k, v)
    assert got.dtype == kind
    np.testing.assert_allclose(got, want, rtol=3e-3 if dtype == "f16" else 1e-5, atol=1e-5)
