"""Modules as text: what the builder writes is what LLVM reads, and runs."""

from __future__ import annotations

import ctypes

import pytest

from tilec.backends.cpu import jit
from tilec.backends.cpu import llvmir as ir
from tilec.errors import CompilerBug

I64 = ir.integer(64)


def number(n: int) -> ir.Value:
    return ir.Value(I64, str(n))


def test_types_are_one_object_each() -> None:
    assert ir.vector(ir.FLOAT, 8) is ir.vector(ir.FLOAT, 8)
    assert ir.integer(32) is not I64
    assert str(ir.vector(I64, 4)) == "<4 x i64>"
    assert str(ir.array(ir.integer(8), 24)) == "[24 x i8]"
    assert (ir.vector(I64, 4).element, I64.element) == (I64, I64)


def test_a_loop_runs() -> None:
    module = ir.Module("sums")
    f = ir.Function(module, I64, [I64], "triangle")
    entry, loop, end = (f.append_basic_block(n) for n in ("entry", "loop", "end"))
    b = ir.Builder(entry)
    b.branch(loop)
    b.position_at_end(loop)
    i, total = b.phi(I64), b.phi(I64)
    more, following = b.add(total, i), b.add(i, number(1), flags=["nsw"])
    for phi, x in ((i, following), (total, more)):
        phi.add_incoming(number(0), entry)
        phi.add_incoming(x, loop)
    b.cbranch(b.icmp_signed("<", following, f.args[0]), loop, end)
    b.position_at_end(end)
    b.ret(more)
    code = jit.load(jit.compile(module))
    assert ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(code.address("triangle"))(11) == 55


def test_room_on_the_stack_is_in_the_first_block() -> None:
    module = ir.Module()
    f = ir.Function(module, ir.VOID, [], "f")
    first, second = f.append_basic_block("entry"), f.append_basic_block("entry")
    b = ir.Builder(first)
    b.branch(second)
    b.position_at_end(second)
    with b.goto_entry_block():
        room = b.alloca(I64, 4, 64)
    b.store(number(1), room, 8)
    b.ret_void()
    assert (first.name, second.name) == ("entry", "entry.1")
    assert "alloca" in first.text()
    assert "alloca" not in second.text()
    jit.assembly(module)


def test_a_cast_to_the_same_type_is_nothing() -> None:
    f = ir.Function(ir.Module(), ir.VOID, [I64], "f")
    b = ir.Builder(f.append_basic_block("entry"))
    assert b.zext(f.args[0], I64) is f.args[0]


def test_a_block_that_does_not_end_is_a_bug() -> None:
    module = ir.Module()
    ir.Function(module, ir.VOID, [], "f").append_basic_block("entry")
    with pytest.raises(CompilerBug, match="entry"):
        str(module)


def test_names_of_places_may_hold_anything() -> None:
    module = ir.Module("m", placed=True)
    f = ir.Function(module, I64, [I64], "f")
    b = ir.Builder(f.append_basic_block("entry"))
    with b.of('a "b"\\é.tile:3'):
        x = b.add(f.args[0], number(1))
    b.ret(x)
    assert '!0 = !{ !"a \\22b\\22\\5C\\C3\\A9.tile:3" }' in str(module)
    assert ", !from !0" in f.text()
    jit.assembly(module)


def test_what_a_block_has_computed_is_not_written_again() -> None:
    module = ir.Module("twice")
    f = ir.Function(module, I64, [I64, ir.POINTER], "f")
    entry, end = (f.append_basic_block(n) for n in ("entry", "end"))
    b = ir.Builder(entry)
    twice = b.add(f.args[0], f.args[0])
    assert b.add(f.args[0], f.args[0]) is twice
    read = b.load(f.args[1], I64, 8)
    b.store(twice, f.args[1], 8)
    assert b.load(f.args[1], I64, 8) is not read
    b.branch(end)
    b.position_at_end(end)
    assert b.add(f.args[0], f.args[0]) is not twice
    b.ret(read)
    assert module.function("f").text().count("= add") == 2
