"""The worker threads: every task once, on several threads, in nested and concurrent calls, after a fork, at exit."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tilec.backends.cpu import jit, pool
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.vector import POINTER, Emit, constant, function
from tilec.errors import ArgumentError

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="threads are for Linux")


def build() -> ir.Module:
    """`count(ctx, scratch)`: ctx is a counter, the number of tasks, the bytes of scratch, the work per task, a place
    for every task. A task fills the scratch memory, adds it up again and again and adds 1 to its place."""
    module = ir.Module()
    f = function(module, "count", [POINTER, POINTER])
    e = Emit(f, jit.host())
    ctx, scratch = f.args
    tasks, size, work = (e.read("i64", ctx, k) for k in (1, 2, 3))
    head, body, end = (f.append_basic_block(n) for n in ("head", "body", "end"))
    e.builder.branch(head)
    e.builder.position_at_end(head)
    task = e.builder.atomic_rmw("add", ctx, constant("i64", 1), "monotonic")
    e.builder.cbranch(e.compare("<", task, tasks), body, end)
    e.builder.position_at_end(body)
    e.loop(0, size, 1, [], lambda i, _: e.write(constant("i8", 1), scratch, i))

    def spin(i: Any, c: list[Any]) -> list[Any]:
        at = e.mul(e.builder.srem(i, e.max(size, 1)), 1)
        seen = e.read_if("i8", scratch, at, e.compare("<", at, size))
        return [e.add(c[0], e.convert(seen, "i64"))]

    (total,) = e.loop(0, work, 1, [constant("i64", 0)], spin)
    wrong = e.and_(e.compare("!=", total, work), e.compare(">", size, 0))
    place = e.add(task, 4)
    step = e.select(wrong, constant("i64", 1000), constant("i64", 1))
    e.write(e.add(e.read("i64", ctx, place), step), ctx, place)
    e.builder.branch(head)
    e.builder.position_at_end(end)
    e.builder.ret_void()
    return module


CODE = jit.load(jit.compile(build()))
"""Loaded before any thread starts, and held: an address dies with its code."""


def job(
    tasks: int,
    scratch: int = 64,
    work: int = 1000,
    workers: int | None = None,
    done: list[int] | None = None,
) -> list[int]:
    """How often each task was done, also in `done`; Ctrl-C can interrupt it."""
    ctx = (ctypes.c_int64 * (4 + tasks))(0, tasks, scratch, work)
    place = ctypes.addressof(ctx)
    try:
        pool.run(CODE.address("count"), place, scratch, workers, place)
    finally:
        if done is not None:
            done += ctx[4:]
    return list(ctx[4:])


@pytest.mark.parametrize("workers", [1, 2, 3, None])
@pytest.mark.parametrize("scratch", [0, 1, 4096, 300_000])
def test_every_task_once(workers: int | None, scratch: int) -> None:
    assert job(100, scratch, workers=workers) == [1] * 100
    assert job(0, scratch, workers=workers) == []


def test_many_small_jobs() -> None:
    assert all(job(3, 100 * k, 1) == [1] * 3 for k in range(500))


@linux
def test_more_threads_than_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEC_NUM_THREADS", raising=False)
    more = pool.threads() + 5
    monkeypatch.setattr(pool, "_processors", lambda: set(range(more)))
    assert pool.threads() == more
    for _ in range(50):
        assert job(40) == [1] * 40
    assert pool._pool().started == more - 1


@linux
def test_the_environment_bounds_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_processors", lambda: set(range(8)))
    for text, count in (("3", 3), ("1", 1), ("64", 8), ("", 8)):
        monkeypatch.setenv("TILEC_NUM_THREADS", text)
        assert pool.threads() == count
    for text in ("0", "-1", "two", " ", "1.5"):
        monkeypatch.setenv("TILEC_NUM_THREADS", text)
        with pytest.raises(ArgumentError, match="TILEC_NUM_THREADS"):
            pool.threads()


@linux
def test_a_call_uses_the_processors_that_its_thread_may_use(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where that changes after the threads were started, and for the calling thread alone."""
    monkeypatch.delenv("TILEC_NUM_THREADS", raising=False)
    before = pool.threads()
    assert job(40) == [1] * 40
    seen: list[int] = []

    def bound() -> None:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        seen.append(pool.threads())
        assert ran_on(pool.threads()) == [os.sched_getaffinity(0)]
        assert job(40) == [1] * 40

    run_in_thread(bound)
    assert seen == [1]
    assert pool.threads() == before == len(os.sched_getaffinity(0))
    assert ran_on(before) == [os.sched_getaffinity(0)] * before


@linux
def test_threads_run_where_the_caller_may_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads move with the calls. A processor that no machine has stands for a second one beside the last."""
    monkeypatch.delenv("TILEC_NUM_THREADS", raising=False)
    everywhere = os.sched_getaffinity(0)
    one = {max(everywhere)}
    monkeypatch.setattr(pool, "_processors", lambda: {*one, 1000})
    assert ran_on(2)[1:] == [one]
    monkeypatch.setattr(pool, "_processors", lambda: {*everywhere, 1000})
    assert ran_on(2)[1:] == [everywhere]
    monkeypatch.setattr(pool, "_processors", lambda: {*everywhere, 1000, 1001})
    assert ran_on(3)[1:] == [everywhere] * 2


def ran_on(count: int) -> list[set[int]]:
    """The processors that each of some threads may run on while they do a job together, the caller first."""
    seen: dict[int, set[int]] = {}
    together = threading.Barrier(count)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def worker(context: int, scratch: int) -> None:
        seen[threading.get_native_id()] = os.sched_getaffinity(0)
        together.wait(10)

    pool.run(ctypes.cast(worker, ctypes.c_void_p).value or 0, 0, 64, count)
    own = seen.pop(threading.get_native_id())
    return [own, *seen.values()]


def run_in_thread(body: Callable[[], None]) -> None:
    """What happens in a thread of its own, its exceptions included."""
    with ThreadPoolExecutor(1) as one:
        one.submit(body).result()


def test_scratch_memory_is_aligned_and_kept_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function in Python in place of machine code sees a page of its own on every thread."""
    seen: list[int] = []
    together = threading.Barrier(pool.threads())

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def worker(context: int, scratch: int) -> None:
        seen.append(scratch)
        together.wait(10)

    pool.run(ctypes.cast(worker, ctypes.c_void_p).value or 0, 0, 5000)
    assert len(seen) == pool.threads() == len(set(seen))
    assert all(s % 4096 == 0 for s in seen)


def test_nested_call_runs_on_its_own_thread() -> None:
    inner: list[list[int]] = []

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def worker(context: int, scratch: int) -> None:
        inner.append(job(10, 70_000))

    pool.run(ctypes.cast(worker, ctypes.c_void_p).value or 0, 0, 64, 1)
    assert inner == [[1] * 10]
    assert job(10) == [1] * 10


def test_concurrent_calls() -> None:
    results: list[bool] = []

    def caller(n: int) -> None:
        results.extend(job(20, 1000 * n, 100) == [1] * 20 for _ in range(100))

    callers = [threading.Thread(target=caller, args=(n,)) for n in range(4)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert len(results) == 400
    assert all(results)


def test_no_memory_is_an_error() -> None:
    with pytest.raises(MemoryError):
        pool.run(CODE.address("count"), 0, 1 << 60)
    assert job(5) == [1] * 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_works_after_a_fork() -> None:
    assert job(20) == [1] * 20
    child = os.fork()
    if child == 0:
        fine = all(job(20) == [1] * 20 for _ in range(20))
        os._exit(0 if fine else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert job(20) == [1] * 20


@linux
def test_keyboard_interrupt_waits_for_the_job() -> None:
    timer = threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT))
    ctx = (ctypes.c_int64 * 12)(0, 8, 64, 20_000_000)

    def again_and_again() -> None:
        while True:
            ctx[0] = 0
            pool.run(CODE.address("count"), ctypes.addressof(ctx), 64)

    timer.start()
    with pytest.raises(KeyboardInterrupt):
        again_and_again()
    timer.join()
    assert len(set(ctx[4:])) == 1
    assert job(20) == [1] * 20


def test_exits_cleanly() -> None:
    """The interpreter ends at once, whether threads are idle or one of them is in a call."""
    script = textwrap.dedent("""
        import threading, time
        from tests.backends.cpu.test_pool import job
        assert job(50) == [1] * 50
        threading.Thread(target=lambda: job(8, 64, 30_000_000), daemon=True).start()
        time.sleep(0.02)
    """)
    done = subprocess.run([sys.executable, "-c", script], timeout=60, capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")


def signals(count: int, wait: float = 0.05) -> threading.Thread:
    """Sends this process SIGINT some times, after a while each."""

    def send() -> None:
        for _ in range(count):
            time.sleep(wait)
            os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=send)
    thread.start()
    return thread


@linux
@pytest.mark.parametrize("workers", [2, None])
def test_control_c_ends_a_job_between_tasks(workers: int | None) -> None:
    done: list[int] = []
    thread = signals(1)
    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        job(100_000, work=1_000_000, workers=workers, done=done)  # minutes
    thread.join()
    assert time.monotonic() - start < 10
    assert 1 in done
    assert 0 in done
    assert set(done) == {0, 1}
    assert job(20) == [1] * 20


@linux
def test_a_handler_that_goes_on_gets_the_whole_job() -> None:
    seen: list[int] = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append(1))
    try:
        thread = signals(3, 0.02)
        while thread.is_alive():
            assert job(300, work=200_000) == [1] * 300
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen


@linux
@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_a_signal_that_is_ignored_or_kills_still_does(handler: signal.Handlers) -> None:
    text = f"""
        import os, signal, threading, time
        from tests.backends.cpu.test_pool import job, signals
        job(2)
        signal.signal(signal.SIGINT, signal.Handlers({int(handler)}))
        thread = signals(1)
        while thread.is_alive():
            assert job(100, work=200_000) == [1] * 100
        print("alive")
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)], capture_output=True, text=True, timeout=60
    )
    ignored = handler == signal.SIG_IGN
    assert done.stdout == ("alive\n" if ignored else "")
    assert done.returncode == (0 if ignored else -signal.SIGINT)
