"""Schedules of the kernels on mma.sync: what is tried, what fits, and what the compiler makes of it."""

from __future__ import annotations

import itertools
import os
from dataclasses import replace
from pathlib import Path

import pytest

import tilec
from tests.backends.cuda.ampere import running
from tests.backends.cuda.compiler import needs_nvrtc
from tests.programs import CAUSAL
from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import generate, launch, target
from tilec.backends.cuda.ampere import compile as ampere
from tilec.backends.cuda.ampere import plan as plans
from tilec.backends.cuda.ampere.schedule import Schedule
from tilec.backends.cuda.ampere.source import Source
from tilec.backends.cuda.code import Code, compiled
from tilec.backends.cuda.untiled import Untiled
from tilec.errors import ArgumentError

EXAMPLES = Path(__file__).parents[4] / "examples"
ALL = bool(os.environ.get("TILEC_CUDA_ALL"))
"""Whether kernels are compiled for many architectures and sizes (minutes); else for some."""


def begun(width: int) -> Untiled:
    """Causal attention of a width."""
    sizes = {"B": 1, "H": 1, "M": 4096, "N": 4096, "D": width, "E": width}
    return running.online(tilec.load(EXAMPLES / "causal.tile"), "bf16", sizes)


def tried(width: int, arch: str) -> list[Schedule]:
    """The schedules that are tried for causal attention."""
    return list(ampere.schedules(begun(width), arch))


def code(name: str, width: int, arch: str, **schedule: object) -> Code:
    """The code of an example."""
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target=f"cuda:{arch}", schedule=schedule)
    wide = {"M": 4096, "N": 4096, "D": width, "E": width}
    return kernel.gpu_code(dtype="bf16", **{d: n for d, n in wide.items() if d in kernel.dims})


@pytest.mark.parametrize(
    ("width", "arch", "rows", "columns", "stages", "query"),
    [
        (64, "sm_80", 128, 64, 2, "registers"),
        (128, "sm_80", 128, 64, 1, "shared"),
        (128, "sm_100a", 128, 64, 1, "shared"),
        (128, "sm_86", 128, 32, 1, "shared"),
        (192, "sm_80", 64, 64, 1, "half"),
        (256, "sm_80", 64, 48, 1, "half"),
        (256, "sm_89", 128, 32, 1, "shared"),
        (256, "sm_90", 64, 64, 1, "half"),
        (512, "sm_80", 64, 48, 1, "shared"),
        (512, "sm_89", 32, 32, 1, "shared"),
    ],
)
def test_the_best_schedule_that_fits_comes_first(
    width: int, arch: str, rows: int, columns: int, stages: int, query: str
) -> None:
    first = tried(width, arch)[0]
    found = first.rows, first.columns, first.stages, first.query
    assert found == (rows, columns, stages, query)


def test_a_device_with_more_shared_memory_gets_tiles_that_use_it() -> None:
    shared = architectures.shared_limit("sm_90")
    first = next(ampere.schedules(replace(begun(256), shared=shared), "sm_80"))
    assert (first.columns, first.stages) == (64, 1)
    assert first == tried(256, "sm_90")[0] != tried(256, "sm_80")[0]


def test_code_as_called_is_for_the_device_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tilec.load(EXAMPLES / "causal.tile", target="cuda:sm_80")
    sizes = {"M": 4096, "N": 4096, "D": 256, "E": 256}
    monkeypatch.setattr(target, "here", lambda given, arch: replace(given, shared=232448))
    for called, columns in ((False, 48), (True, 64)):
        made = kernel.gpu_code(dtype="bf16", called=called, **sizes)
        assert f",columns={columns}," in made.note


def test_a_draft_is_for_the_device_that_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    given = begun(256)
    monkeypatch.setattr(launch, "available", lambda: True)
    monkeypatch.setattr(launch, "current_device", lambda: 1)
    monkeypatch.setattr(launch, "shared", lambda device: 1000 + device)
    for capability, arch, shared in (
        (90, "sm_80", 1001),
        (90, "sm_90a", 1001),
        (80, "sm_90a", None),
    ):
        monkeypatch.setattr(launch, "capability", lambda device, number=capability: number)
        assert target.here(given, arch) == replace(given, shared=shared)


@pytest.mark.parametrize("width", [8, 64, 72, 128, 200, 256, 320, 576])
@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_120a"])
def test_what_is_tried_fits(width: int, arch: str) -> None:
    schedules = tried(width, arch)
    assert len(schedules) == len(set(schedules)) > 3
    for s in schedules:
        threads = s.threads * s.blocks
        assert threads * s.registers <= 65536
    online = begun(width)
    for s in (schedules[0], schedules[-1]):
        (source,) = ampere.sources(online, ampere.tiles(online, s), s, arch).values()
        assert isinstance(source, Source)
        assert architectures.resident(architectures.shared_limit(arch), source.shared) >= s.blocks


def test_rooms_do_not_overlap() -> None:
    for name in ("causal", "differential", "mla", "document"):
        kernel = tilec.load(EXAMPLES / f"{name}.tile")
        sizes = {d: kernel._source.sizes[d] for d in kernel.dims}
        _, sources, _ = running.tiles(running.online(kernel, "bf16", sizes))
        for source in sources.values():
            rooms = [r for n, r in source.plan.rooms.items() if n != "out"]
            for a, b in itertools.pairwise(sorted(rooms, key=lambda r: r.offset)):
                assert a.offset + a.bytes * a.count <= b.offset
            assert source.shared == max(
                r.offset + r.bytes * r.count for r in source.plan.rooms.values()
            )
            assert f"shared {source.shared} bytes" in plans.show(source.plan)


MATRIX = [
    (d, a) for d in (8, 40, 64, 96, 128, 192, 256, 320, 576) for a in ("sm_80", "sm_86", "sm_120a")
]


@needs_nvrtc
@pytest.mark.parametrize(
    ("width", "arch"),
    MATRIX if ALL else [(64, "sm_80"), (128, "sm_80"), (256, "sm_86"), (512, "sm_86")],
)
def test_the_first_schedule_keeps_everything_in_registers(width: int, arch: str) -> None:
    made = code("causal", width, arch)
    assert made.emitter == "ampere"
    assert str(tried(width, arch)[0]) in made.note
    (source,) = made.fast.values()
    (image,) = compiled(made)
    use = image.usage[source.name]
    assert use.registers <= source.plan.schedule.registers
    assert (use.shared, use.stack, use.spill_stores, use.spill_loads) == (0, 0, 0, 0)
    assert not image.warnings


READING = ["document", "jagged", "pair_bias", "t5", "differential", "watched"]
"""Examples that need many registers beside their tiles: labels, tables and biases, two softmaxes, scores for two results."""


@needs_nvrtc
@pytest.mark.parametrize("name", READING if ALL else READING[:1])
@pytest.mark.parametrize("width", [64, 128] if ALL else [64])
def test_what_is_read_beside_tiles_is_thought_of_before_compiling(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"D": width, "E": width, "N": 4096}
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target="cuda:sm_80")
    seen: list[int] = []
    plain = generate._problem

    def noting(code: Code) -> tuple[str, int] | None:
        found = plain(code)
        seen.append(0 if found is None else found[1])
        return found

    monkeypatch.setattr(generate, "_problem", noting)
    assert kernel.gpu_code(dtype="bf16", **sizes).emitter == "ampere"
    assert seen == [0]


MASKED = """
kernel masked(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E], keep: bool[M, N]) -> O[b, h, i, e]:
    P = softmax[j](sum[d](Q[b, h, i, d] * K[b, h, j, d]) if keep[i, j] else -inf)
    O = sum[j](P * V[b, h, j, e])
"""


@pytest.mark.parametrize("width", [64, 128])
def test_truth_values_of_a_window_are_loaded_at_once_too(width: int) -> None:
    sizes = {"B": 1, "H": 2, "M": 256, "N": 256, "D": width, "E": width}
    first = next(ampere.schedules(running.online(tilec.compile(MASKED), "f16", sizes), "sm_80"))
    assert plans.scores(first) <= ampere.AT_ONCE


@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("name", READING)
def test_tiles_that_are_likely_not_to_fit_come_last(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    sizes = {d: kernel._source.sizes[d] for d in kernel.dims}
    sizes |= dict.fromkeys(("D", "E"), width)
    online = running.online(kernel, "bf16", sizes)
    guessed = list(ampere.schedules(online, "sm_80"))
    monkeypatch.setattr(ampere, "roomy", lambda s, schedule: True)
    plain = list(ampere.schedules(online, "sm_80"))
    assert set(guessed) == set(plain)
    usual = width == 256 or (name, width) == ("differential", 128)  # smaller tiles come first there
    assert (guessed == plain) == usual


def test_the_emitter_is_chosen_and_named() -> None:
    kernel = tilec.compile(CAUSAL, target="cuda:sm_80")
    double = tilec.compile(CAUSAL.replace("causal", "double"), target="cuda:sm_80")
    single = double.gpu_code(dtype="f64", M=64, N=64, D=64, E=64)
    assert single.emitter == "simt"
    assert "not ampere: " in single.text.split("\n")[0]
    half = kernel.gpu_code(dtype="f16", M=64, N=64, D=64, E=64)
    assert half.emitter == "ampere"
    assert half.plans
    assert half.plans[0].startswith("plan causal")
    asked = tilec.compile(CAUSAL, target="cuda:sm_90a", schedule={"emitter": "ampere"})
    assert asked.gpu_code(dtype="f16", M=64, N=64, D=64, E=64).emitter == "ampere"


def test_schedules_are_checked() -> None:
    for fields, said in (
        ({"columns": 20}, "columns is 20"),
        ({"height": 8}, "height is 8"),
        ({"warps": 3}, "warps is 3"),
        ({"query": "here"}, "query is here"),
        ({"warpgroups": 2}, "no field 'warpgroups'; it has emitter, warps, height"),
        ({"emitter": "simt", "columns": 32}, "emitter simt has no field 'columns'"),
    ):
        with pytest.raises(ArgumentError, match=said):
            tilec.compile(CAUSAL, target="cuda:sm_80", schedule=fields)
    with pytest.raises(ArgumentError, match=r"fragments take .* registers"):
        code("naive", 128, "sm_80", columns=256)
    with pytest.raises(ArgumentError, match="it makes code for sm_90a only"):
        code("naive", 64, "sm_80", emitter="hopper")
