"""Hopper kernels as the compiler sees them: registers and shared memory as planned, nothing spilled, nothing serialised."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import pytest

import tilec
from tests.backends.cuda.compiler import needs_nvrtc
from tests.backends.cuda.hopper import running
from tests.programs import CAUSAL
from tilec.backends.cuda import generate, nvrtc
from tilec.backends.cuda.code import Code, compiled
from tilec.backends.cuda.hopper import listing
from tilec.backends.cuda.hopper import plan as plans
from tilec.backends.cuda.hopper.compile import candidates
from tilec.backends.cuda.hopper.schedule import Schedule, changed
from tilec.backends.cuda.hopper.sections import section
from tilec.errors import ArgumentError

EXAMPLES = Path(__file__).parents[4] / "examples"
FITTING = [
    "alibi",
    "causal",
    "chunked",
    "chunks",
    "differential",
    "document",
    "dropout",
    "gemma2",
    "int8_cache",
    "jagged",
    "mla",
    "mla_sparse",
    "naive",
    "natten2d",
    "paged",
    "pair_bias",
    "prefix",
    "qk_norm",
    "retention",
    "rope",
    "sigmoid",
    "sink",
    "sink_by_hand",
    "swin",
    "t5",
    "watched",
]
ALL = bool(os.environ.get("TILEC_CUDA_ALL"))
"""Whether every fitting example is compiled (minutes); else two are."""
WIDE = {"M": 4096, "N": 4096, "D": 128, "E": 128}


def code(name: str, **schedule: object) -> Code:
    """The code of an example for wide heads."""
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target="cuda:sm_90a", schedule=schedule)
    return kernel.gpu_code(dtype="bf16", **{d: n for d, n in WIDE.items() if d in kernel.dims})


@needs_nvrtc
@pytest.mark.parametrize("name", FITTING if ALL else ["causal", "document", "paged"])
def test_registers_and_shared_memory_are_as_planned(name: str) -> None:
    check_usage(code(name))


WIDER: list[tuple[str, dict[str, int], tuple[int, int, int]]] = [
    ("mla", {"B": 2, "H": 128, "M": 1, "N": 8192, "C": 512, "R": 64}, (2, 2, 32)),
    ("mla", {"H": 16, "M": 4096, "N": 4096, "C": 512, "R": 64}, (2, 2, 32)),
    ("naive", {"H": 16, "M": 4096, "N": 4096, "D": 512, "E": 512}, (2, 2, 32)),
    ("causal", {"H": 16, "M": 4096, "N": 4096, "D": 320, "E": 320}, (2, 2, 64)),
    ("causal", {"H": 16, "M": 4096, "N": 4096, "D": 576, "E": 576}, (3, 3, 32)),
    ("gemma2", {"H": 16, "HK": 4, "M": 4096, "N": 4096, "D": 512, "E": 64}, (2, 1, 32)),
]
"""Heads wider than 256, and the warpgroups, slices and columns of their tiles."""


@needs_nvrtc
@pytest.mark.parametrize(("name", "sizes", "expected"), WIDER if ALL else WIDER[:1])
def test_wider_heads_are_as_planned(
    name: str, sizes: dict[str, int], expected: tuple[int, int, int]
) -> None:
    kernel = tilec.load(EXAMPLES / f"{name}.tile", target="cuda:sm_90a")
    made = kernel.gpu_code(dtype="bf16", **sizes)
    check_usage(made)
    found = next(iter(made.fast.values())).plan.schedule
    assert (found.warpgroups, found.slices, found.columns) == expected


@pytest.mark.parametrize(("name", "sizes", "expected"), WIDER[1:])
def test_wider_heads_have_a_plan(
    name: str, sizes: dict[str, int], expected: tuple[int, int, int]
) -> None:
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    _, sources = running.tiles(kernel, "bf16", {"B": 1, **sizes})
    found = next(iter(sources.values())).plan.schedule
    assert (found.warpgroups, found.slices, found.columns) == expected


def check_usage(made: Code) -> None:
    """The kernels of some code take what they should, and nothing else."""
    assert made.emitter == "hopper"
    images = dict(zip((u.names for u in made.units), compiled(made), strict=True))
    for source in made.fast.values():
        image = images[(source.name,)]
        use = image.usage[source.name]
        assert use.registers <= source.plan.schedule.entry
        assert (use.shared, use.stack, use.spill_stores, use.spill_loads) == (0, 0, 0, 0)
        assert not [w for w in image.warnings if "C75" in w]
        assert source.shared == max(r.offset + r.bytes * r.count for r in ends(source.plan))


def ends(plan: plans.Plan) -> list[plans.Room]:
    """All that lies in shared memory."""
    barriers = [plans.Room(n, at, 8, k) for n, (at, _, k) in plan.barriers.items()]
    return [*plan.rooms.values(), *barriers]


@pytest.mark.parametrize("name", FITTING)
def test_every_fitting_example_has_a_plan(name: str) -> None:
    kernel = tilec.load(EXAMPLES / f"{name}.tile")
    _, sources = running.tiles(kernel, "bf16", {d: kernel._source.sizes[d] for d in kernel.dims})
    for source in sources.values():
        rooms = sorted(ends(source.plan), key=lambda r: r.offset)
        for a, b in itertools.pairwise(rooms):
            assert a.offset + a.bytes * a.count <= b.offset
        text = listing.show(source.plan)
        assert text.count("acquire") >= 3
        assert f"{source.plan.schedule.warpgroups} warpgroups" in text


def test_schedules_are_checked() -> None:
    assert changed(Schedule(), {"columns": "64", "relax": "false"}) == Schedule(
        columns=64, relax=False
    )
    for field, value in (
        ("columns", 20),
        ("warpgroups", 5),
        ("stages", "x"),
        ("slices", 3),
        ("share", True),
        ("relax", 2),
        ("loader", 20),
    ):
        with pytest.raises(ArgumentError, match=field):
            changed(Schedule(), {field: value})
    with pytest.raises(ArgumentError, match="no field 'colums'"):
        changed(Schedule(), {"colums": 64})


@needs_nvrtc
def test_a_schedule_is_taken_or_refused_aloud() -> None:
    assert "columns=64" in code("naive", columns=64, emitter="hopper").note
    with pytest.raises(ArgumentError, match="fragments take"):
        code("naive", columns=256)


GATED = """
kernel gated(Q[H, M, D], K[H, N, D], V[H, N, E], G[H, M, E]) -> O[h, i, e]:
    S = sum[d](Q[h, i, d] * K[h, j, d]) / sqrt(D)
    O = sigmoid(G[h, i, e]) * sum[j](softmax[j](S if j <= i else -inf) * V[h, j, e])
"""
GATES = {"H": 4, "M": 300, "N": 300, "D": 256, "E": 256}


@needs_nvrtc
@pytest.mark.parametrize(
    ("text", "sizes"),
    [(GATED, GATES), ((EXAMPLES / "int8_cache.tile").read_text(), {})],
    ids=["gates of wide heads", "two scales of a column"],
)
def test_what_takes_many_registers_fits_at_once(
    text: str, sizes: dict[str, int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plain = nvrtc.compile
    texts: list[str] = []

    def noting(source: str, *rest: Any) -> nvrtc.Compiled:
        texts.append(source)
        return plain(source, *rest)

    monkeypatch.setattr(nvrtc, "compile", noting)
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    made = tilec.compile(text, target="cuda:sm_90a").gpu_code(dtype="bf16", **sizes)
    assert (made.emitter, len(texts)) == ("hopper", 1)


def test_short_rows_are_dealt_out_in_long_sections():
    kernel = tilec.compile(CAUSAL, target="cuda:sm_90a")
    sizes = {"B": 16, "H": 8, "D": 256, "E": 256}
    _, sources = running.tiles(kernel, "bf16", sizes | {"M": 4096, "N": 4096})
    (source,) = sources.values()
    lengths = (1024, 4096, 16384)
    found = [section(source.structure, sizes | {"M": n, "N": n}, 8) for n in lengths]
    assert found == [25, 6, 2]


@pytest.mark.parametrize(
    ("named", "tried"),
    [
        (["relax"], [(128, 32), (96, 40), (64, 40), (32, 40)]),
        (["relax", "loader"], [(128, 24), (96, 24), (64, 24), (32, 24)]),
        (["relax", "columns"], [(128, 32)]),
        (["columns", "loader"], [(128, 24)]),
    ],
)
def test_what_is_asked_for_stays_where_registers_lack(
    named: list[str], tried: list[tuple[int, int]]
) -> None:
    found = list(candidates(Schedule(3, 128, relax=False), named))
    assert [(s.columns, s.loader) for s in found] == tried
    assert {(s.warpgroups, s.relax) for s in found} == {(3, False)}


def test_a_schedule_that_spills_says_so_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def spilling(text: str, _: str) -> nvrtc.Compiled:
        names = re.findall(r"__global__ void .*? (\w+)\(", text)
        use = nvrtc.Usage(registers=128, shared=0, stack=8, spill_stores=4, spill_loads=4)
        return nvrtc.Compiled(b"", dict.fromkeys(names, use), ())

    monkeypatch.setattr(generate, "image", spilling)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    asked = {"columns": 128, "relax": False}
    kernel = tilec.compile(CAUSAL, target="cuda:sm_90a", schedule=asked)
    with pytest.raises(ArgumentError) as e:
        kernel.gpu_code(dtype="bf16", B=1, H=2, M=2048, N=2048, D=64, E=64)
    said = str(e.value)
    assert ": 8 bytes of registers go to memory with schedule warpgroups=3,columns=128" in said
    assert "grid" not in said


def test_products_that_begin_with_too_few_registers_are_refused() -> None:
    """Three blocks leave a thread 80; the compiler does not take the products of 128 columns of values then."""
    kernel = tilec.load(
        EXAMPLES / "naive.tile",
        target="cuda:sm_90a",
        schedule={"warpgroups": 1, "columns": 32, "blocks": 3},
    )
    sizes = {"B": 1, "H": 2, "M": 256, "N": 256, "D": 128, "E": 128}
    with pytest.raises(ArgumentError, match="94 registers per thread, which begins with 80"):
        kernel.gpu_code(dtype="f16", **sizes)
