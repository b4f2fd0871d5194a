"""Parts that are alike are one function; what differs between them keeps its own code."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.backends.cpu import jit
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.parts import apart
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, function

EXAMPLES = Path(__file__).parents[3] / "examples"


def run(module: ir.Module, array: np.ndarray) -> None:
    code = jit.load(jit.compile(module))
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address("f"))(array.ctypes.data)


def parts(module: ir.Module) -> list[str]:
    return [name for name in module.globals if name.startswith("part_")]


def begin() -> tuple[ir.Module, Emit]:
    module = ir.Module("m")
    return module, Emit(function(module, "f", [POINTER]), jit.host())


def test_parts_that_differ_in_what_they_take_are_one() -> None:
    module, e = begin()
    for k in (0, 3):
        at = e.at(e.function.args[0], k, 8)
        n = e.read("i64", e.function.args[0], 8)
        with apart(module, e.builder):
            e.loop(0, n, 1, [], lambda i, _, at=at: e.write(e.mul(i, i), at, i))
    e.builder.ret_void()
    assert len(parts(module)) == 1
    array = np.arange(9, dtype="i8")
    array[8] = 3
    run(module, array)
    assert array.tolist() == [0, 1, 4, 0, 1, 4, 6, 7, 3]


def test_parts_that_differ_in_a_number_are_two() -> None:
    module, e = begin()
    for k in (0, 1):
        with apart(module, e.builder):
            e.write(e.index(7 + k), e.at(e.function.args[0], e.index(k), 8))
    e.builder.ret_void()
    assert len(parts(module)) == 2
    array = np.zeros(2, "i8")
    run(module, array)
    assert array.tolist() == [7, 8]


def test_parts_of_parts() -> None:
    module, e = begin()
    (pointer,) = e.function.args
    for k in (0, 2):
        with apart(module, e.builder):
            at = e.at(pointer, e.index(k), 8)
            with apart(module, e.builder):
                e.write(e.read("i64", at, 1), at)
    e.builder.ret_void()
    assert len(parts(module)) == 3
    array = np.array([1, 2, 3, 4])
    run(module, array)
    assert array.tolist() == [2, 2, 4, 4]


def test_a_value_of_a_part_is_of_no_use_behind_it() -> None:
    module, e = begin()
    with apart(module, e.builder):
        x = e.add(e.read("i64", e.function.args[0]), 1)
    e.write(x, e.function.args[0])
    e.builder.ret_void()
    with pytest.raises(tilec.errors.CompilerBug):
        jit.compile(module)


@pytest.mark.parametrize(
    ("name", "calls"),
    [
        ("gemma2", 2),
        ("document", 2),
        ("chunks", 2),
        ("natten2d", 2),
        ("bigbird", 2),
        ("causal", 0),
        ("naive", 0),
    ],
)
def test_windows_with_the_same_masks_are_compiled_once(name: str, calls: int) -> None:
    text = tilec.load(EXAMPLES / f"{name}.tile", target="cpu").source("llvm")
    assert len(re.findall(r"call void @\"part_0\"", text)) == calls
    assert "part_1" not in text


def test_places_do_not_tell_parts_apart() -> None:
    module = ir.Module("m", placed=True)
    f = function(module, "f", [KINDS["i64"]])
    b = ir.Builder(f.append_basic_block("entry"))
    for line in (1, 2):
        with b.of(f"a.tile:{line}"), apart(module, b):
            b.add(f.args[0], f.args[0])
    b.ret_void()
    assert len(parts(module)) == 1
    jit.assembly(module)


def test_keys_and_values_are_copied_by_one_function() -> None:
    text = tilec.load(EXAMPLES / "causal.tile", target="cpu").source("llvm", dtype="f16")
    copies = re.findall(r"call i64 @\"(copy_[^\"]*)\"", text)
    # in whole windows and in masked ones
    assert len(copies) == 4
    assert len(set(copies)) == 1


def test_what_is_long_is_not_written_for_each_vector_of_a_register_tile() -> None:
    """The buckets of distances, one per vector of a panel in each of two loops over keys."""
    text = tilec.load(EXAMPLES / "t5.tile", target="cpu").source("llvm")
    assert len(re.findall(r"call [^@]*@\"log2\.", text)) == 2 * 2
