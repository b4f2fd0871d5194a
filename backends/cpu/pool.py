"""Worker threads that wait inside machine code.

A worker function `void f(ctx, scratch)` pulls its tasks from an atomic counter in `ctx`; `run` has several threads
execute it at once. The threads are parked on a semaphore in machine code, never hold Python's lock and are woken in a
few microseconds. Everything that changes while threads run (the job, the scratch memory, who owns the pool) is changed
by machine code alone, in one call from Python, so that no exception can find it half done.

A call that finds the pool in use, from another thread or from inside a job, does its work on its own thread. Threads
are started at the first call that wants them and again in the child of a fork; they run where the caller may run, which
is asked at each call. Where POSIX semaphores in memory are missing (outside Linux) there is one thread.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import signal
import sys
import threading
from typing import Any, NamedTuple

from tilec.backends.cpu import jit
from tilec.errors import ArgumentError

PAGE = 4096
MOST = 1024
"""Threads of a pool."""

# The control block, in bytes: `busy` is the owner's mark, the job follows, then the two semaphores, then a slot for
# every thread: the block's address, its scratch memory, and how much that is. Slot 0 is the caller's.
BUSY, JOB, CONTEXT, NEED, QUIT, GO, DONE, SLOTS = 0, 8, 16, 24, 32, 64, 128, 192
SLOT_BLOCK, SLOT_SCRATCH, SLOT_SIZE, SLOT_BYTES = 0, 8, 16, 64
NO_MEMORY = 1
"""What a run gives where the caller has no scratch memory, else 0."""
WELL, ILL = -1, -2
"""What one that is watched gives where all went well, and where there was no memory."""


class Crew(NamedTuple):
    """How many threads a call may use, and the processors that they may run on."""

    threads: int
    places: set[int]


def threads() -> int:
    """How many threads a call may use: the processors that the caller may run on, at most `$TILEC_NUM_THREADS`."""
    return crew().threads


def crew() -> Crew:
    """The threads that a call may use now."""
    places = _processors()
    allowed = min(len(places), MOST)
    text = os.environ.get("TILEC_NUM_THREADS")
    if not text:
        return Crew(allowed, places)
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentError(f"TILEC_NUM_THREADS is {text!r}, expected a number of threads from 1")
    return Crew(min(allowed, int(text)), places)


def _processors() -> set[int]:
    """Those that the calling thread may run on."""
    return os.sched_getaffinity(0) if sys.platform.startswith("linux") else {0}


def run(
    address: int,
    context: int,
    scratch: int,
    workers: int | None = None,
    counter: int = 0,
    found: Crew | None = None,
) -> None:
    """Has up to `workers` threads (all unless given), the caller among them, call `void f(context, scratch memory)`.

    `address`: of `f`. `context`: its first argument; whatever it holds must tell the threads' tasks apart, as by an
    atomic counter. `scratch`: bytes that every thread needs for itself; they start at a multiple of 4096 and hold what
    an earlier call left there. Returns when every thread is done. Raises MemoryError where the caller gets no scratch
    memory.

    `counter`: the address of an atomic counter of tasks. In the main thread Ctrl-C then moves it, so that no further task
    is begun, and what Python's handler of SIGINT raises is raised. `found`: the threads, where the caller has just asked.
    """
    pool, wanted = _pool(), 1
    if workers != 1:
        many, places = found or crew()
        wanted = many if workers is None else min(workers, many)
        if wanted > 1:
            pool.prepare(wanted - 1, places)
    helpers = min(wanted - 1, pool.started)
    if counter and workers != 1 and threading.get_ident() == threading.main_thread().ident:
        good = pool.watched(address, context, scratch, helpers, counter)
    else:
        good = pool.call(address, context, scratch, helpers)
    if not good:
        raise MemoryError(f"no {scratch} bytes of scratch memory")


# ---- the threads


class _Pool:
    """The control block and its threads."""

    def __init__(self) -> None:
        code = _code()
        kinds = [*[ctypes.c_void_p] * 3, ctypes.c_int64, ctypes.c_int64]
        self._run: Any = ctypes.CFUNCTYPE(ctypes.c_int32, *kinds)(code.address("pool_run"))
        self._watched: Any = ctypes.CFUNCTYPE(ctypes.c_int64, *kinds, ctypes.c_int64)(
            code.address("pool_watched")
        )
        self._loop = code.address("pool_loop")
        self._memory = ctypes.create_string_buffer(SLOTS + SLOT_BYTES * MOST + 64)
        self._block = -(-ctypes.addressof(self._memory) // 64) * 64
        self._libc: Any = ctypes.CDLL(None)
        self._ids: list[int] = []
        self._places: set[int] = set()
        self._lock = threading.Lock()
        if sys.platform.startswith("linux"):
            for semaphore in (GO, DONE):
                self._libc.sem_init(ctypes.c_void_p(self._block + semaphore), 0, 0)

    @property
    def started(self) -> int:
        """Threads that are there besides the caller."""
        return len(self._ids)

    def call(self, address: int, context: int, scratch: int, helpers: int) -> bool:
        """Runs one job, with `helpers` of the threads. False where there is no scratch memory."""
        return self._run(self._block, address, context, scratch, helpers) == 0

    def watched(self, address: int, context: int, scratch: int, helpers: int, counter: int) -> bool:
        """The same, for the main thread: after Ctrl-C no task is begun."""
        while True:
            reached = self._watched(self._block, address, context, scratch, helpers, counter)
            if reached < 0:
                return reached == WELL
            # here Python's handler has raised something, or lets the program go on: with the tasks that are left
            ctypes.c_int64.from_address(counter).value = reached

    def prepare(self, count: int, places: set[int]) -> None:
        """Sees to it that there are `count` threads, and that all run on the processors `places`."""
        if self.started < count:
            self._grow(count)
        busy = ctypes.c_int64.from_address(self._block + BUSY).value
        if places != self._places and not busy:
            self._move(places)

    def _move(self, places: set[int]) -> None:
        """Has the threads run on these processors from now on."""
        size = max(places) // 64 * 8 + 8
        mask = sum(1 << n for n in places).to_bytes(size, "little")
        with self._lock:
            for thread in self._ids:
                self._libc.pthread_setaffinity_np(
                    ctypes.c_ulong(thread), ctypes.c_size_t(size), mask
                )
            self._places = set(places)

    def _grow(self, count: int) -> None:
        """Starts threads until there are `count`; fewer where the system gives no more."""
        with self._lock:
            self._places = set()  # new threads run where this one may
            # A thread that handled signals would interrupt the waiting of another: they are for Python's own threads.
            held = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            try:
                while self.started < count and self._start():
                    pass
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)

    def _start(self) -> bool:
        slot = self._block + SLOTS + SLOT_BYTES * (self.started + 1)
        ctypes.c_int64.from_address(slot + SLOT_BLOCK).value = self._block
        thread = ctypes.c_ulong()
        create = self._libc.pthread_create
        made = create(
            ctypes.byref(thread), None, ctypes.c_void_p(self._loop), ctypes.c_void_p(slot)
        )
        if made == 0:
            self._ids.append(thread.value)
        return made == 0

    def stop(self) -> None:
        """Ends the threads; what they are doing is finished first."""
        with self._lock:
            ctypes.c_int64.from_address(self._block + QUIT).value = 1
            for _ in self._ids:
                self._libc.sem_post(ctypes.c_void_p(self._block + GO))
            for thread in self._ids:
                self._libc.pthread_join(ctypes.c_ulong(thread), None)
            self._ids.clear()


_held: _Pool | None = None
_guard = threading.Lock()


def _pool() -> _Pool:
    global _held
    if _held is None:
        with _guard:
            _held = _held or _Pool()
    return _held


def _forget() -> None:
    """In the child of a fork: it has none of the threads, and no lock that one of them held may stay locked."""
    global _held, _guard
    _held, _guard = None, threading.Lock()


def _stop() -> None:
    global _held
    if _held is not None:
        _held.stop()
        _held = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
atexit.register(_stop)


# ---- the machine code


@functools.cache
def _code() -> jit.Code:
    """Loaded once, and never unloaded: threads wait in it."""

    def build() -> tuple[object, str]:
        from tilec.backends.cpu import parked

        return parked.module(), ""

    return jit.load(jit.cached("pool", build).object)
