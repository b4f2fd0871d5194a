"""Object files become images, which do what LLVM's own loader makes of them."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import pytest

from tilec.backends.cpu import codegen, image, jit
from tilec.errors import CompilerBug

linux = pytest.mark.skipif(
    not (sys.platform == "linux" and image.known(jit.host().triple)),
    reason="images are made on Linux on x86-64",
)
PROGRAM = """
@count = internal global i64 40
@zeros = internal global [4096 x i8] zeroinitializer
@seen = global i64 1
@table = internal constant [2 x ptr] [ptr @double, ptr @cosf]

declare float @cosf(float)
declare float @erff(float)

define internal i64 @double(i64 %x) noinline {
  %y = mul i64 %x, 2
  ret i64 %y
}

define i64 @counts(i64 %x) {
  %a = load i64, ptr @count
  %b = add i64 %a, %x
  store i64 %b, ptr @count
  %c = load i64, ptr @seen
  %d = add i64 %b, %c
  ret i64 %d
}

define i64 @calls(i64 %n) {
  %p = getelementptr [2 x ptr], ptr @table, i64 0, i64 0
  %f = load ptr, ptr %p
  %x = call i64 %f(i64 %n)
  %y = call i64 @double(i64 %x)
  ret i64 %y
}

define float @constants(float %x) {
  %a = fadd float %x, 0.25
  %b = call float @cosf(float %a)
  %q = getelementptr [2 x ptr], ptr @table, i64 0, i64 1
  %f = load ptr, ptr %q
  %c = call float %f(float %a)
  %d = fsub float %b, %c
  %e = call float @erff(float %d)
  %g = fadd float %e, 0.75
  ret float %g
}

define ptr @zero() {
  ret ptr @zeros
}
"""


def run(code: jit.Code) -> list[Any]:
    """What the functions of the program give."""
    int64, float32 = ctypes.c_int64, ctypes.c_float
    whole = ctypes.CFUNCTYPE(int64, int64)
    counts, calls = whole(code.address("counts")), whole(code.address("calls"))
    constants = ctypes.CFUNCTYPE(float32, float32)(code.address("constants"))
    zero = ctypes.CFUNCTYPE(ctypes.c_void_p)(code.address("zero"))()
    return [counts(1), counts(1), calls(5), constants(0.5), ctypes.string_at(zero, 4096)]


EXPECTED = [42, 43, 20, 0.75, bytes(4096)]


@linux
def test_an_image_does_what_its_object_says() -> None:
    packed = jit.compile(PROGRAM)
    assert image.is_image(packed)
    first, second = jit.load(packed), jit.load(packed)
    assert run(first) == EXPECTED
    assert run(second) == EXPECTED  # each has data of its own
    with pytest.raises(KeyError):
        first.address("double")  # it is nobody else's


@linux
def test_code_is_never_written_where_it_runs() -> None:
    code = jit.load(jit.compile(PROGRAM))
    lines = Path("/proc/self/maps").read_text().split("\n")
    (own,) = (line for line in lines if line and _holds(line, code.address("counts")))
    assert own.split()[1].startswith("r-x")


def _holds(line: str, address: int) -> bool:
    first, last = (int(x, 16) for x in line.split()[0].split("-"))
    return first <= address < last


def test_what_is_not_known_here_is_left_to_llvm() -> None:
    host = jit.host()
    plain = codegen.compile(PROGRAM, host, jit.Options())
    assert run(jit.load(plain)) == EXPECTED
    assert (
        image.linked(b"\xcf\xfa\xed\xfe other systems' objects")
        == b"\xcf\xfa\xed\xfe other systems' objects"
    )
    other = jit.PROCESSORS["sse" if host.arm else "neon"]
    assert not image.is_image(jit.compile(PROGRAM, machine=other))


@linux
def test_thread_local_data_is_left_to_llvm() -> None:
    text = "@x = thread_local global i64 1\ndefine i64 @f() {\n  %y = load i64, ptr @x\n  ret i64 %y\n}\n"
    assert not image.is_image(jit.compile(text))


@linux
def test_a_function_that_no_library_has() -> None:
    code = jit.compile(
        "declare void @nowhere_at_all()\ndefine void @f() {\n  call void @nowhere_at_all()\n  ret void\n}\n"
    )
    with pytest.raises(CompilerBug, match="calls nowhere_at_all, which no library has"):
        jit.load(code)
