"""Ctrl-C while machine code runs: no further task is begun.

Python's handler of SIGINT only makes a note, and acts when the machine code is over. So while a job of the main thread
runs, a handler of our own stands before it, which moves the counter of the tasks to where there are none, and then calls
Python's. What was not begun is known and can be done later, where Python's handler lets the program go on.
"""

from __future__ import annotations

import signal
from typing import Any

from tilec.backends.cpu import jit
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.pool import ILL, WELL
from tilec.backends.cpu.vector import KINDS, POINTER, Emit, Value, constant, function

FAR = 1 << 62
"""Where the counter is moved to: the threads may each add 1."""
RECORD = 256
"""Bytes that hold a `struct sigaction` of any C library; the address of the handler comes first."""


def emit(module: Any, run: Any) -> None:
    """`i64 pool_watched(…, counter)`: `run(…)`, which gives 0 if it went well.

    It gives WELL, ILL, or after an interruption the number of the first task that was not begun.
    """
    words = {name: _word(module, name) for name in ("counter", "reached", "handler")}
    stop = _emit_stop(module, words)
    kinds = [*(x.type for x in run.args), KINDS["i64"]]
    f = function(module, "pool_watched", kinds, KINDS["i64"])
    e = Emit(f, jit.host())
    old, new = (e.allocate("i64", RECORD // 8) for _ in range(2))
    number, none = constant("i32", signal.SIGINT), ir.Value(POINTER, "null")

    def action(new: Value, old: Value) -> None:
        kinds = [KINDS["i32"], POINTER, POINTER]
        found = module.globals.get("sigaction")
        if found is None:
            found = ir.Function(module, KINDS["i32"], kinds, "sigaction")
        e.builder.call(found, [number, new, old])

    action(none, old)
    for k in range(RECORD // 8):
        e.write(e.read("i64", old, k), new, k)
    e.write(e.read("i64", old), words["handler"])
    e.write(e.index(WELL), words["reached"])
    e.write(f.args[-1], words["counter"])
    e.write(e.builder.ptrtoint(stop, KINDS["i64"]), new)
    # where SIGINT is ignored, or kills, it may go on doing so: these are no addresses
    e.branch(e.compare(">", e.read("i64", old), 1), lambda: action(new, none))
    status = e.builder.call(run, f.args[:-1])
    action(old, none)
    reached = e.builder.load_atomic(words["reached"], "monotonic", 8, KINDS["i64"])
    failed = e.compare("!=", status, 0)
    e.builder.ret(e.select(failed, constant("i64", ILL), reached))


def _word(module: Any, name: str) -> Any:
    return ir.Global(module, KINDS["i64"], f"interrupt.{name}", "0", 8)


def _emit_stop(module: Any, words: dict[str, Any]) -> Any:
    """The handler. A second signal finds the counter moved already."""
    f = function(module, "interrupt", [KINDS["i32"], POINTER, POINTER], internal=True)
    e = Emit(f, jit.host())
    b = e.builder
    counter = b.inttoptr(e.read("i64", words["counter"]), POINTER)
    before = b.atomic_rmw("xchg", counter, e.index(FAR), "monotonic")
    e.branch(
        e.compare("<", before, FAR),
        lambda: b.store_atomic(before, words["reached"], "monotonic", 8) and None,
    )
    handler = b.inttoptr(e.read("i64", words["handler"]), POINTER)
    e.call_address(handler, *f.args)
    b.ret_void()
    return f
