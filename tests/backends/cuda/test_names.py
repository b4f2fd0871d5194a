"""Names of a program beside those of the text that is generated from it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tilec
from tests.backends.cuda import host
from tests.backends.cuda.compiler import needs_cpp, needs_nvrtc
from tilec import pipeline
from tilec.backends.cuda import fast, generate, nvrtc
from tilec.backends.cuda.hopper import writer
from tilec.backends.cuda.reserved import COMPILER, LANGUAGE, declared, is_private
from tilec.backends.cuda.untiled import Untiled

EXAMPLES = Path(__file__).parents[3] / "examples"
ARCHITECTURES = {"hopper": "sm_90a", "ampere": "sm_80"}

HOSTILE = """
kernel ROWS(FULL[B, H, MOST, D], EACH[B, H, NULL, D], K_stride0[B, H, NULL, E], watch: f32[H],
            again: int = 3, fmaf: float = 0.5) -> out_0[b, h, slab, e], quad_max: f32[b, h, slab]:
    axis slab < MOST
    axis uint4 < NULL
    each_next = sum[d](FULL[b, h, slab, d] * EACH[b, h, uint4, d]) / sqrt(D)
    __syncwarp = each_next * fmaf + watch[h] if uint4 <= slab + again else -inf
    k_stride0_late = softmax[uint4](__syncwarp)
    out_0 = sum[uint4](k_stride0_late * K_stride0[b, h, uint4, e])
    quad_max = logsumexp[uint4](__syncwarp)
sizes B=1, H=2, MOST=70, NULL=90, D=64, E=64
"""
"""A program whose names are macros, functions, types and variables of what is generated."""


def untiled(kernel: tilec.Kernel, dtype: str = "bf16") -> Untiled:
    """A program before it is cut in tiles."""
    typed = kernel._versions.for_types(dict.fromkeys(kernel._source.untyped, dtype))
    return Untiled(typed.online, kernel._source.sizes)


def made(begun: Untiled, emitter: str) -> list[str]:
    """The texts of the kernels that an emitter makes."""
    arch = ARCHITECTURES[emitter]
    (its,) = (m for m in fast.makers(arch) if m.name == emitter)
    code = generate.fast(begun, arch, its, compiling=False)
    assert not isinstance(code, str), code
    return [s.text for s in code.fast.values()]


def identifiers(code: str) -> set[str]:
    """The names of a kernel's text, without those of members."""
    body = code.partition('extern "C" __global__')[2]
    body = re.sub(r'//.*|"[^"]*"|^ *#.*', "", body, flags=re.M)
    return set(re.findall(r"(?<![\w.:>])[A-Za-z_]\w*", body))


@pytest.mark.parametrize("emitter", ARCHITECTURES)
@pytest.mark.parametrize("example", ["alibi", "document", "gemma2", "int8_cache", "paged", "rope"])
def test_what_an_emitter_names_is_not_the_programs(example, emitter, monkeypatch):
    seen: list[writer.Names] = []
    begin = writer.Names.__init__

    def noted(self: writer.Names) -> None:
        begin(self)
        seen.append(self)

    monkeypatch.setattr(writer.Names, "__init__", noted)
    texts = made(untiled(tilec.load(EXAMPLES / f"{example}.tile")), emitter)
    taken = set().union(*(names.taken for names in seen))
    others = set().union(*map(identifiers, texts)) - taken
    assert taken
    assert {x for x in others if not (is_private(x) or writer.is_made(x))} == set()


@needs_nvrtc
@pytest.mark.parametrize("emitter", ARCHITECTURES)
def test_hostile_names(emitter):
    for code in made(untiled(tilec.compile(HOSTILE)), emitter):
        assert nvrtc.compile(code, ARCHITECTURES[emitter]).cubin


@needs_cpp
def test_hostile_names_of_the_general_emitter():
    kernel = tilec.compile(HOSTILE)
    arrays = kernel.sample(1)
    begun = untiled(kernel, "f32")
    fixed = {d: begun.sizes[d] for d in pipeline.module("specialise").static_dims(begun.kernel)}
    tiled = pipeline.run(begun.kernel, pipeline.tile_pipeline(fixed, {}, "cuda"))
    got = host.run(tiled, arrays, {"again": 3, "fmaf": 0.5})
    want = kernel.reference(**arrays)
    for o, w in zip(kernel.outputs, want, strict=True):
        np.testing.assert_allclose(got[o.name], w, 2e-5, 2e-5)


def test_what_a_header_declares():
    found = declared(
        "#define A 1\nstruct alignas(8) B { int x; };\nusing C = int;\nDEVICE float d(int e) { return 1; }\n"
    )
    assert found == {"A", "B", "C", "d"}
    assert "while" in LANGUAGE
    assert "NULL" in COMPILER
