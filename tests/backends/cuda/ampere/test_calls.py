"""Calls on a pretended GPU whose kernels on mma.sync run on the emulated machine, and the general ones on the host."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cuda import pretended
from tests.backends.cuda.ampere import emulator
from tests.backends.cuda.answers import EXAMPLES, error
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.pretended import on_device
from tilec.backends.cuda import execute, fast, launch
from tilec.backends.cuda.code import Called
from tilec.backends.cuda.hopper.source import Facts

pytestmark = needs_cpp

SMALL = {"warps": 2, "height": 16, "columns": 32, "stages": 1, "blocks": 1, "query": "shared"}


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that have run."""
    names: list[str] = []
    machine = pretended.install(monkeypatch)
    load = launch.load

    def loaded(device: int, code: Called) -> execute.Loaded:
        texts = {u.names[0]: u.text for u in code.units}
        kernels = {
            n: machine.kernel(f.name, fast_run(f, texts[f.name])) for n, f in code.fast.items()
        }
        for unit in code.units:
            general = {f.name: n for n, f in code.functions.items() if f.name in unit.names}
            if general:
                made = load(unit.text.encode(), [(x, 0, 0) for x in unit.names], "", False)
                kernels |= {general[k.name]: noted(k) for k in made}
        return execute.Loaded(code, kernels)

    def fast_run(facts: Facts, text: str) -> pretended.Run:
        run = emulator.build(facts, text).launch

        def start(table: int, blocks: int) -> None:
            names.append(f"ampere {facts.name}")
            assert not run(ctypes.c_void_p(table), blocks, ctypes.c_uint64(1))

        return start

    def noted(kernel: launch.Kernel) -> launch.Kernel:
        name, run = machine.functions[kernel.function.ptr - 1]

        def start(table: int, blocks: int) -> None:
            names.append(f"simt {name}")
            run(table, blocks)

        return machine.kernel(name, start)

    monkeypatch.setattr(execute, "names", fast.names)
    monkeypatch.setattr(execute, "_load", loaded)
    return names


def called(kernel: tilec.Kernel, arrays: dict[str, Any]) -> np.ndarray:
    """The result of a call with arrays on the pretended GPU."""
    return np.asarray(kernel(**{n: on_device(a) for n, a in arrays.items()}))


def test_a_call_runs_on_the_fast_kernel(launched: list[str]) -> None:
    kernel = tilec.load(EXAMPLES / "causal.tile", target="cuda", schedule=SMALL)
    arrays = kernel.sample(1, dtype="bf16", B=2, H=1, M=40, N=50, D=32, E=32)
    want = kernel.reference(*arrays.values())
    assert error(called(kernel, arrays), want) < 5e-3
    assert [x for x in launched if "ampere" in x] == ["ampere causal_0"]


def test_what_is_not_finite_is_made_again_exactly(launched: list[str]) -> None:
    kernel = tilec.load(EXAMPLES / "causal.tile", target="cuda", schedule=SMALL)
    arrays = kernel.sample(1, dtype="f16", B=1, H=1, M=40, N=40, D=16, E=16)
    arrays["V"] = arrays["V"].copy()
    arrays["V"][..., 30, 3] = np.nan
    got = called(kernel, arrays).astype(float)
    want = np.asarray(kernel.reference(*arrays.values()))
    assert np.isnan(got[..., 30:, 3]).all()
    assert error(got[..., :30, :], want[..., :30, :]) < 1e-3
    assert launched[0] == "ampere causal_0"
    assert launched[1].startswith("simt")


@pytest.mark.parametrize("name", ["document", "jagged"])
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_windows_that_data_decide_are_made_again_exactly(
    launched: list[str], name: str, bad: float
) -> None:
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target="cuda", schedule=SMALL)
    sizes = {
        d: n for d, n in {"B": 1, "H": 1, "N": 150, "D": 16, "E": 16}.items() if d in kernel.dims
    }
    arrays = kernel.sample(1, dtype="bf16", **sizes)
    arrays["V"] = arrays["V"].copy()
    arrays["V"][..., 120, 3] = bad
    want = kernel.reference(*arrays.values())
    got = kernel(**{n: on_device(a) for n, a in arrays.items()})
    for x, y in zip(*((x if isinstance(x, tuple) else (x,)) for x in (got, want)), strict=True):
        assert error(np.asarray(x), np.asarray(y)) < 5e-3
    assert launched[-1].startswith("simt")


def test_rows_that_begin_anywhere_get_a_kernel_of_their_own(launched: list[str]) -> None:
    kernel = tilec.load(EXAMPLES / "naive.tile", target="cuda", schedule=SMALL)
    arrays = kernel.sample(1, dtype="bf16", B=1, H=2, M=20, N=40, D=16, E=16)
    wide = np.zeros((1, 2, 40, 17), arrays["K"].dtype)
    wide[..., 1:] = arrays["K"]
    odd = {**arrays, "K": wide[..., 1:]}
    want = kernel.reference(*arrays.values())
    assert error(called(kernel, odd), want) < 5e-3
    assert error(called(kernel, arrays), want) < 5e-3
    assert launched == ["ampere naive_0"] * 2


def test_an_emitter_that_is_asked_for_says_why_it_cannot(launched: list[str]) -> None:
    kernel = tilec.load(EXAMPLES / "merge.tile", target="cuda", schedule={"emitter": "ampere"})
    sizes = {d: min(n, 32) for d, n in kernel._source.sizes.items() if d in kernel.dims}
    arrays = kernel.sample(1, dtype="bf16", **sizes)
    with pytest.raises(
        tilec.UnsupportedError, match=r"emitter=ampere cannot run merge: no contraction"
    ):
        called(kernel, arrays)
