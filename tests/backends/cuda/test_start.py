"""Code that is known: a process that finds it runs no pass, and launches the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tilec
from tests.backends.cuda import pretended
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.pretended import on_device
from tests.programs import CAUSAL
from tilec import check, parse, pipeline, plain
from tilec.arrays import Array
from tilec.backends.cuda import execute, generate, launch
from tilec.backends.cuda.start import KNOWN

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"
SIZES = {"B": 2, "H": 4, "HK": 2, "M": 512, "N": 512, "D": 64, "E": 64}


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))


def forbid(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing may be parsed, passed or generated from here on."""

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("made again")

    for module, name in ((parse, "parse"), (check, "lower"), (pipeline, "run")):
        monkeypatch.setattr(module, name, fail)
    for name in ("general", "fast", "lower"):
        monkeypatch.setattr(generate, name, fail)


@needs_cpp
def test_calls_find_what_earlier_ones_found(monkeypatch: pytest.MonkeyPatch):
    pretended.install(monkeypatch)
    arrays = {n: on_device(a) for n, a in tilec.compile(CAUSAL).sample(1).items()}
    want = tilec.compile(CAUSAL, target="cuda")(**arrays)
    forbid(monkeypatch)
    got = tilec.compile(CAUSAL, target="cuda")(**arrays)
    np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def case(name: str, arch: str, sizes: dict[str, int], scattered: str = "") -> execute.Case | None:
    """A call of the fast code for a program, of arrays that are nowhere."""
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target=f"cuda:{arch}")
    typed = kernel._versions.all_of("bf16")
    known = {**kernel._source.sizes, **sizes}
    known = {d: known[d] for d in kernel.dims}
    header = typed.facts.kernel
    extents = {a: known.get(str(x), 1) for a, x in header.extents.items()}
    shapes = {
        t.name: (t.dtype, tuple(known[str(d)] for d in t.dims)) for t in header.tensors.values()
    }
    shapes |= {o.name: (o.dtype, tuple(extents[a] for a in o.axes)) for o in header.outputs}
    views: dict[str, Array] = {}
    for n, (dtype, shape) in shapes.items():
        steps = tuple(int(np.prod(shape[k + 1 :])) for k in range(len(shape)))
        views[n] = Array(8 if n == scattered else 1 << 20, dtype, shape, steps, None, "cupy")
    cut = typed.cutter(kernel.target or "")(known, {}, {}, {})
    made = execute.executable(
        cut.tiles, kernel.target or "", {}, typed.before(known), packed=cut.packed
    )
    scalars = {a.name: 0.125 for a in header.arguments.values()}
    return made.fast_case(0, made.numbers.completed({**known, **scalars}), views)


@pytest.mark.parametrize("arch", ["sm_90a", "sm_80"])
@pytest.mark.parametrize("name", ["causal", "document", "gemma2", "sink"])
def test_fast_code_is_found(name: str, arch: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        launch, "shared", lambda device: 227 << 10 if arch == "sm_90a" else 163 << 10
    )
    monkeypatch.setattr(launch, "processors", lambda device: 108)
    monkeypatch.setattr(generate, "_problem", lambda code: None)  # the compiler would take seconds
    calls = [(SIZES, ""), (SIZES, "K"), ({**SIZES, "M": 1, "N": 4096}, "")]
    first = [case(name, arch, sizes, k) for sizes, k in calls]
    assert any(first)
    forbid(monkeypatch)
    for (sizes, k), one in zip(calls, first, strict=True):
        again = case(name, arch, sizes, k)
        assert (again is None) == (one is None)
        if one is None or again is None:
            continue
        assert again.code == one.code
        assert (again.known, again.views) == (one.known, one.views)
        assert plain.read(plain.write(one.code), KNOWN) == one.code
        numbers = one.code.numbers.list(one.known, one.views)
        assert again.code.numbers.list(again.known, again.views) == numbers
        assert parameters(again) == parameters(one)


def parameters(found: execute.Case) -> list[object]:
    """What is written of a call's parameters, but for tensor maps."""
    layout = found.code.layout
    given = [*found.code.numbers.list(found.known, found.views)]
    given += [f(found.known) for f in layout._found]
    return [given[k] for k in layout._picked]
