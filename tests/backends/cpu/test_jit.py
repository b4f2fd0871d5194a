"""Compilation, loading and the object cache."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from tilec.backends.cpu import jit
from tilec.errors import CompilerBug

TRIPLE = "define i64 @f(i64 %x) {\n  %y = mul i64 %x, 3\n  ret i64 %y\n}\n"
CALLS_LIBM = """
declare float @erff(float)
define float @g(float %x) {
  %y = call float @erff(float %x)
  ret float %y
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    return tmp_path / "cpu"


def call(code: jit.Code, x: int) -> int:
    return ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("f"))(x)


@pytest.mark.parametrize("passes", [0, 1, 3])
@pytest.mark.parametrize("codegen", [0, 3])
def test_compiles_and_runs(passes: int, codegen: int) -> None:
    code = jit.load(jit.compile(TRIPLE, jit.Options(passes, codegen)))
    assert call(code, 14) == 42
    with pytest.raises(KeyError):
        code.address("missing")


def test_finds_libm() -> None:
    code = jit.load(jit.compile(CALLS_LIBM))
    g = ctypes.CFUNCTYPE(ctypes.c_float, ctypes.c_float)(code.address("g"))
    assert g(0.5) == pytest.approx(0.5204999, rel=1e-6)


def test_many_objects_live_side_by_side() -> None:
    codes = [jit.load(jit.compile(TRIPLE.replace("3", str(n)))) for n in range(30)]
    assert [call(c, 2) for c in codes] == [2 * n for n in range(30)]


def test_wrong_ir_is_a_compiler_bug_that_shows_the_place() -> None:
    broken = TRIPLE.replace("mul i64 %x, 3", "mul i64 %x, 3.5")
    with pytest.raises(CompilerBug, match=r">   %y = mul i64 %x, 3\.5"):
        jit.compile(broken)
    unordered = "define i64 @f() {\n  %a = add i64 %b, 1\n  %b = add i64 %a, 1\n  ret i64 %b\n}"
    with pytest.raises(CompilerBug, match="dominate"):
        jit.compile(unordered)


def test_assembly_is_text_for_any_machine() -> None:
    assert "f:" in jit.assembly(TRIPLE)
    vector = "define <16 x float> @f(<16 x float> %x) {\n  %y = fadd <16 x float> %x, %x\n  ret <16 x float> %y\n}"
    wide = jit.Machine("x86_64-unknown-linux-gnu", "x86-64-v4", "+avx512f,+avx512vl")
    if not jit.host().arm:
        assert "zmm" in jit.assembly(vector, machine=wide)


@pytest.mark.parametrize(
    ("features", "lanes", "registers", "fma", "half"),
    [
        ("+avx,+avx2,+fma,+f16c,-avx512f", 8, 16, True, True),
        ("+avx,+avx2,+fma,+f16c,+avx512f", 16, 32, True, True),
        ("+sse2,-avx,-fma", 4, 16, False, False),
    ],
)
def test_machine(features: str, lanes: int, registers: int, fma: bool, half: bool) -> None:
    m = jit.Machine("x86_64-unknown-linux-gnu", "some", features)
    assert (m.lanes, m.registers, m.fma, m.half) == (lanes, registers, fma, half)


def test_arm_machine() -> None:
    m = jit.Machine("aarch64-unknown-linux-gnu", "some", "+neon")
    assert (m.lanes, m.registers, m.fma, m.half) == (4, 32, True, True)


# ---- the cache


def never() -> tuple[object, str]:
    raise AssertionError("built although it was cached")


def test_a_hit_builds_nothing(folder: Path) -> None:
    first = jit.cached("triple", lambda: (TRIPLE, "notes ✓"))
    again = jit.cached("triple", never)
    assert again == first
    assert again.notes == "notes ✓"
    assert call(jit.load(again.object), 5) == 15
    assert [p.suffix for p in folder.iterdir()] == [".o"]


def test_keys_tell_programs_options_and_machines_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    other = jit.Machine("x86_64-unknown-linux-gnu", "skylake", "+avx2")
    keys = {
        jit.cache_key("a"),
        jit.cache_key("b"),
        jit.cache_key("a", jit.Options(passes=1)),
        jit.cache_key("a", machine=other),
    }
    monkeypatch.setattr(jit, "generator", lambda: "another version of it")
    assert len({*keys, jit.cache_key("a")}) == 5


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "noise", "swap"])
def test_a_damaged_entry_is_written_anew(folder: Path, damage: str) -> None:
    first = jit.cached("triple", lambda: (TRIPLE, "n"))
    (path,) = folder.iterdir()
    data = path.read_bytes()
    middle = len(data) // 2
    path.write_bytes(
        {
            "cut": data[:middle],
            "flip": data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :],
            "empty": b"",
            "noise": os.urandom(500),
            "swap": data[32:] + data[:32],
        }[damage]
    )
    assert jit.cached("triple", lambda: (TRIPLE, "n")) == first
    assert path.read_bytes() == data


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no file owners")
def test_an_entry_that_others_can_write_is_not_trusted(folder: Path) -> None:
    jit.cached("triple", lambda: (TRIPLE, ""))
    (path,) = folder.iterdir()
    path.write_bytes(jit.Entry(b"evil").pack())
    path.chmod(0o666)
    assert call(jit.load(jit.cached("triple", lambda: (TRIPLE, "")).object), 1) == 3
    assert path.stat().st_mode & 0o022 == 0


def test_a_directory_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "file"))
    assert call(jit.load(jit.cached("triple", lambda: (TRIPLE, "")).object), 1) == 3


def test_many_processes_at_once(folder: Path) -> None:
    script = textwrap.dedent(f"""
        import ctypes
        from tilec.backends.cpu import jit
        for n in range(20):
            entry = jit.cached(f"program {{n}}", lambda: ({TRIPLE!r}.replace("3", str(n)), str(n)))
            f = jit.load(entry.object).address("f")
            code = jit.load(entry.object)
            f = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("f"))
            assert (f(7), entry.notes) == (7 * n, str(n))
    """)
    processes = [subprocess.Popen([sys.executable, "-c", script]) for _ in range(4)]
    assert [p.wait(60) for p in processes] == [0] * 4
    assert len(list(folder.iterdir())) == 20


def test_a_hit_is_fast(folder: Path) -> None:
    jit.cached("triple", lambda: (TRIPLE, ""))
    best = 1.0
    for _ in range(5):
        start = time.perf_counter()
        jit.load(jit.cached("triple", never).object)
        best = min(best, time.perf_counter() - start)
    print(f"{best * 1e3:.2f} ms from key to address")
    assert best < 0.05
