"""Measuring a GPU: the loops compile to what they are to measure, and what ncu says is understood. (No GPU is needed.)"""

from __future__ import annotations

import re

import pytest

from tests.backends.cuda.compiler import needs_nvrtc
from tilec.backends.cuda import ceilings, counters, nvrtc
from tilec.errors import UnsupportedError


@needs_nvrtc
@pytest.mark.parametrize(
    ("arch", "product"),
    [("sm_90a", "wgmma.mma_async.sync.aligned.m64n256k16"), ("sm_80", "mma.sync")],
)
def test_loops_keep_to_registers_and_to_their_unit(arch, product):
    made = nvrtc.compile(ceilings.source(arch), arch)
    bulk = {"stream_all"} if arch == "sm_90a" else set()
    assert set(made.usage) == bulk | {
        "read_all",
        "copy_all",
        "multiply_add",
        "exponentials",
        "products",
    }
    assert not made.warnings
    assert all(u.stack == u.spill_stores == 0 for u in made.usage.values())
    assert made.usage["products"].registers <= 65536 // 256
    ptx = nvrtc.ptx(ceilings.source(arch), arch)
    assert product in ptx
    loop = re.search(r"\.entry exponentials.*?\n}", ptx, re.S)
    assert loop is not None
    assert loop[0].count("ex2.approx.ftz.f32") >= 4 * ceilings.CHAINS


SAID = """==PROF== Connected to process 7
what the program prints, "ID" and all
==PROF== Profiling "causal": 0%....100%
"ID","Process ID","Kernel Name","dram__bytes_read.sum","dram__bytes_write.sum"
"","","","byte","byte"
"0","7","causal","1,000","20"
"1","7","read_all","5000","3"
"""


def test_rows_are_found_among_what_ncu_says():
    rows = counters.table(SAID)
    assert [r["Kernel Name"] for r in rows] == ["causal", "read_all"]
    assert counters.total(rows, "dram__bytes_read.sum") == 6000
    assert counters.table("==ERROR== nothing") == []


CALL = counters.Call("x.tile", None, "cuda", "f16", {"N": 4}, {}, {}, {})


def test_what_the_kernel_after_it_writes_counts_and_what_it_reads_does_not(monkeypatch):
    def launches(call, metrics):
        own = dict.fromkeys(metrics, "64") | {"Kernel Name": "causal"}
        after = dict.fromkeys(metrics, "1000") | {
            "Kernel Name": "read_all",
            "dram__bytes_write.sum": "8",
        }
        return [own, after]

    monkeypatch.setattr(counters, "launches", launches)
    assert counters.count(CALL) == counters.Counted(64, 72, 64 * 32, 64 * 32)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not", "may not read them.*run as root"),
        ("==ERROR== Failed to initialize the profiler", "Failed to initialize the profiler"),
        ("==PROF== Connected\nTraceback: no GPU", "no GPU"),
        ("", "said nothing"),
    ],
)
def test_a_refusal_says_why(said, words, monkeypatch, tmp_path):
    tool = tmp_path / "ncu"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(UnsupportedError, match=words):
        counters.count(CALL)


def test_without_the_tool_it_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnsupportedError, match="ncu of Nsight Compute"):
        counters.count(CALL)
