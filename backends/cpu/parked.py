"""What the threads of a pool do, as machine code: they wait for a job, take part in it, and wait again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilec.backends.cpu import interrupt, jit
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.pool import (
    BUSY,
    CONTEXT,
    DONE,
    GO,
    JOB,
    NEED,
    NO_MEMORY,
    PAGE,
    QUIT,
    SLOT_BLOCK,
    SLOT_SCRATCH,
    SLOT_SIZE,
    SLOTS,
)
from tilec.backends.cpu.vector import KINDS, POINTER, VOID, Emit, Value, constant, function


def module() -> ir.Module:
    """All of it."""
    module = ir.Module("pool")
    _emit_grow(module)
    _emit_loop(module)
    _emit_run(module)
    interrupt.emit(module, module.function("pool_run"))
    return module


def _libc(e: Emit, name: str, result: Any, xs: Iterable[Value]) -> Value:
    """A call of a C function."""
    xs = list(xs)
    found = e.module.globals.get(name)
    if found is None:
        found = ir.Function(e.module, result, [x.type for x in xs], name)
    return e.builder.call(found, xs)


def _field(e: Emit, block: Value, at: int) -> Value:
    return e.at(block, at, 1)


def _get(e: Emit, block: Value, at: int, pointer: bool = False) -> Value:
    t = POINTER if pointer else KINDS["i64"]
    return e.builder.load(_field(e, block, at), t, 8)


def _put(e: Emit, x: Value, block: Value, at: int) -> None:
    e.builder.store(x, _field(e, block, at), 8)


def _wait(e: Emit, semaphore: Value) -> None:
    """sem_wait, again where a signal interrupted it."""
    again = e.function.append_basic_block("wait")
    after = e.function.append_basic_block("woken")
    e.builder.branch(again)
    e.builder.position_at_end(again)
    status = _libc(e, "sem_wait", KINDS["i32"], [semaphore])
    e.builder.cbranch(e.compare("!=", status, 0), again, after)
    e.builder.position_at_end(after)


def _emit_grow(module: Any) -> None:
    """`i1 grow(slot, bytes)`: gives a slot that much scratch memory; false where there is none."""
    f = function(module, "grow", [POINTER, KINDS["i64"]], KINDS["i1"], internal=True)
    e = Emit(f, jit.host())
    slot, need = f.args

    def allocate() -> list[Value]:
        _libc(e, "free", VOID, [_get(e, slot, SLOT_SCRATCH, pointer=True)])
        whole = e.and_(e.add(need, PAGE - 1), -PAGE)
        fresh = _libc(e, "aligned_alloc", POINTER, [constant("i64", PAGE), whole])
        found = e.compare("!=", e.builder.ptrtoint(fresh, KINDS["i64"]), 0)
        _put(e, fresh, slot, SLOT_SCRATCH)
        _put(e, e.select(found, whole, constant("i64", 0)), slot, SLOT_SIZE)
        return [found]

    enough = e.compare("<=", need, _get(e, slot, SLOT_SIZE))
    (ok,) = e.branch(enough, lambda: [constant("i1", 1)], allocate)
    e.builder.ret(ok)


def _emit_loop(module: Any) -> None:
    """`ptr pool_loop(slot)`: the life of a thread."""
    f = function(module, "pool_loop", [POINTER], POINTER)
    e = Emit(f, jit.host())
    (slot,) = f.args
    block = _get(e, slot, SLOT_BLOCK, pointer=True)
    head, job, end = (f.append_basic_block(name) for name in ("head", "job", "end"))
    e.builder.branch(head)
    e.builder.position_at_end(head)
    _wait(e, _field(e, block, GO))
    e.builder.cbranch(e.compare("!=", _get(e, block, QUIT), 0), end, job)
    e.builder.position_at_end(job)
    ready = e.builder.call(module.function("grow"), [slot, _get(e, block, NEED)])

    def work() -> None:
        scratch = _get(e, slot, SLOT_SCRATCH, pointer=True)
        address, context = (_get(e, block, at, pointer=True) for at in (JOB, CONTEXT))
        e.call_address(address, context, scratch)

    # Without memory it leaves the tasks to the others.
    e.branch(ready, work)
    _libc(e, "sem_post", KINDS["i32"], [_field(e, block, DONE)])
    e.builder.branch(head)
    e.builder.position_at_end(end)
    _libc(e, "free", VOID, [_get(e, slot, SLOT_SCRATCH, pointer=True)])
    e.builder.ret(ir.Value(POINTER, "null"))


def _emit_run(module: Any) -> None:
    """`i32 pool_run(block, f, context, bytes, helpers)`: one job; NO_MEMORY where the caller has none, else 0."""
    arguments = [POINTER] * 3 + [KINDS["i64"]] * 2
    f = function(module, "pool_run", arguments, KINDS["i32"])
    e = Emit(f, jit.host())
    block, address, context, need, helpers = f.args
    zero, one = constant("i64", 0), constant("i64", 1)
    slot = e.at(block, SLOTS, 1)

    def alone() -> list[Value]:
        whole = e.and_(e.add(need, 2 * PAGE - 1), -PAGE)
        scratch = _libc(e, "aligned_alloc", POINTER, [constant("i64", PAGE), whole])
        found = e.compare("!=", e.builder.ptrtoint(scratch, KINDS["i64"]), 0)
        e.branch(found, lambda: e.call_address(address, context, scratch) and None)
        _libc(e, "free", VOID, [scratch])
        return [found]

    def together() -> None:
        for x, at in ((address, JOB), (context, CONTEXT), (need, NEED)):
            _put(e, x, block, at)
        e.loop(zero, helpers, 1, [], lambda i, _: _signal(e, block))
        e.call_address(address, context, _get(e, slot, SLOT_SCRATCH, pointer=True))
        e.loop(zero, helpers, 1, [], lambda i, _: _wait(e, _field(e, block, DONE)))

    def owner() -> list[Value]:
        found = e.builder.call(module.function("grow"), [slot, need])
        e.branch(found, together)
        e.builder.atomic_rmw("xchg", _field(e, block, BUSY), zero, "release")
        return [found]

    taken = e.builder.cmpxchg(_field(e, block, BUSY), zero, one, "acquire", "monotonic")
    (ok,) = e.branch(e.builder.extract_value(taken, 1, KINDS["i1"]), owner, alone)
    e.builder.ret(e.select(ok, constant("i32", 0), constant("i32", NO_MEMORY)))


def _signal(e: Emit, block: Value) -> None:
    _libc(e, "sem_post", KINDS["i32"], [_field(e, block, GO)])
