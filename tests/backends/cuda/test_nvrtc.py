"""NVRTC and what is kept of its output."""

from __future__ import annotations

import pytest

from tilec.backends.cuda import arch, nvrtc
from tilec.errors import ArgumentError, CompilerBug, UnsupportedError

LOG = """ptxas info    : Compiling entry function 'f' for 'sm_90a'
ptxas info    : Function properties for f
    8 bytes stack frame, 4 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 61 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compiling entry function 'g' for 'sm_90a'
ptxas info    : Function properties for g
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 20 registers
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized in g
"""


def test_log():
    assert nvrtc.usage(LOG) == {
        "f": nvrtc.Usage(61, 128, 8, 4, 12),
        "g": nvrtc.Usage(20, 0, 0, 0, 0),
    }
    assert [w for w in nvrtc.warnings(LOG) if "C7510" in w]


def test_a_mistake_is_shown_with_the_op_it_came_from():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    text = 'extern "C" __global__ void f(float* x) {\n  // y: f32 = add(x, 1)   a.tile:3\n  x[0] = y;\n}\n'
    with pytest.raises(
        CompilerBug, match=r"(?s)\"y\" is undefined.*>   x\[0\] = y;.*made from: .*a\.tile:3"
    ):
        nvrtc.compile(text, "sm_90a")
    with pytest.raises(UnsupportedError, match=r"sm_11.*sm_90"):
        nvrtc.compile(text, "sm_11")


def test_cubin_and_ptx():
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    text = 'extern "C" __global__ void f(float* x) { x[threadIdx.x] = 1; }\n'
    made = nvrtc.compile(text, "sm_80")
    assert made.cubin[:4] == b"\x7fELF"
    assert made.usage["f"].spill_stores == 0
    assert ".target sm_80" in nvrtc.ptx(text, "sm_80")


def test_architectures():
    assert arch.parse("cuda") is None
    assert arch.parse("cuda:sm_90a") == "sm_90a"
    assert (arch.for_capability(90), arch.for_capability(86)) == ("sm_90a", "sm_86")
    assert arch.runs_on("sm_90a", 90)
    assert not arch.runs_on("sm_90a", 100)
    assert arch.runs_on("sm_80", 86)
    assert not arch.runs_on("sm_80", 90)
    assert arch.translates_to("sm_80", 90)
    with pytest.raises(ArgumentError, match="cuda:9"):
        arch.parse("cuda:9")
    with pytest.raises(UnsupportedError, match="sm_70"):
        arch.parse("cuda:sm_70")
