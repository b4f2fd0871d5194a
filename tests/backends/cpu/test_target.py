"""A compiled kernel as a whole: the cache, threads, and calls that differ in sizes and scalars."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilec
from tests.backends.cpu.lowering import Array, check, kernel, on_cpu
from tests.backends.cpu.test_lower import ATTENTION, attention_arrays
from tilec.arrays import view
from tilec.backends.cpu import jit, lower, pool
from tilec.backends.cpu.target import Executable, compile
from tilec.backends.cpu.ways import Choice
from tilec.errors import UnsupportedError
from tilec.ir import Kernel
from tilec.outline import Tiles

EXAMPLES = Path(__file__).parents[3] / "examples"
SCALED = """
kernel f(X: f32[N], n: int, s: float = 1 / sqrt(N), flip: bool = false) -> O: f32[i] {
  axis i < N
  grid(axes=[i:16]) {
    x: f32[i:16] = load(X, i)
    y: f32[i:16] = mul(x, s)
    z: f32[i:16] = add(y, n)
    m: f32[i:16] = neg(z)
    o: f32[i:16] = select(flip, m, z)
    store(O, i, value=o)
  }
}"""


def test_scalars_take_their_values_and_defaults_from_each_call() -> None:
    k = kernel(SCALED)
    code = compile(k)
    x = {"X": np.arange(20, dtype=np.float32)}
    check(k, x, {"n": 3}, code=code)
    check(k, x, {"n": -(2**20), "s": 0.5}, code=code)
    check(k, x, {"n": 1, "s": 2.0, "flip": True}, code=code)
    check(k, x, {"n": True, "s": 2, "flip": False}, code=code)


def test_a_second_compilation_takes_the_object_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    k = kernel(SCALED)
    first = compile(k)

    def refuse(*_: object) -> None:
        raise AssertionError("lowered again")

    monkeypatch.setattr(lower, "lower", refuse)
    second = compile(k)
    x = {"X": np.arange(5, dtype=np.float32)}
    for code in (first, second):
        check(k, x, {"n": 3}, code=code)
    with pytest.raises(AssertionError, match="lowered again"):
        compile(kernel(SCALED.replace("neg", "abs")))


def test_the_result_has_the_same_bits_on_any_number_of_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    k = kernel(ATTENTION)
    code = compile(k)
    arrays = attention_arrays(2, 3, 75, 60)
    results: list[bytes] = []
    for threads in ("1", "2", "2", "4"):
        monkeypatch.setenv("TILEC_NUM_THREADS", threads)
        results.append(on_cpu(k, arrays, {}, code)["O"].tobytes())
    assert len(set(results)) == 1


def test_calls_from_several_threads_do_not_disturb_each_other() -> None:
    k = kernel(ATTENTION)
    code = compile(k)
    cases = [attention_arrays(1, 2, 20 + n, 30 + n) for n in range(8)]
    alone = [on_cpu(k, a, {}, code)["O"] for a in cases]

    def run(n: int) -> np.ndarray[Any, Any]:
        return on_cpu(k, cases[n % len(cases)], {}, code)["O"]

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(24)))
    for n, x in enumerate(together):
        np.testing.assert_array_equal(x, alone[n % len(cases)])


def test_code_that_few_calls_need_is_compiled_when_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    k = kernel(ATTENTION)
    code = compile(k)

    def kept(arrays: dict[str, Any]) -> int:
        check(k, arrays, code=code)
        return len(list(tmp_path.rglob("*.o")))

    assert kept(attention_arrays(1, 2, 40, 40)) == 1
    hidden = attention_arrays(1, 2, 40, 40)
    hidden["V"][0, 0, 0] = np.nan
    assert kept(hidden) == 2
    assert kept(attention_arrays(1, 2, 3, 40)) == 3
    for arrays in (hidden, attention_arrays(1, 2, 40, 41), attention_arrays(2, 2, 2, 9)):
        assert kept(arrays) == 3
    # another executable finds all of it, and calls that were made ready before exact code was there still find it
    code = compile(k)
    assert kept(attention_arrays(1, 2, 40, 40)) == 3
    for shape in ((1, 2, 7, 40), (1, 2, 40, 40)):
        hidden = attention_arrays(*shape)
        hidden["V"][0, 1, 0] = np.nan
        assert kept(hidden) == 3


def test_a_call_compiles_only_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    asked: list[Choice] = []
    plain = lower.lower

    def noting(kernel: Kernel, machine: Any, chosen: Choice) -> lower.Module:
        asked.append(chosen)
        return plain(kernel, machine, chosen)

    monkeypatch.setattr(lower, "lower", noting)
    k = kernel(ATTENTION)
    code = Executable(Tiles.of(k))
    for shape, way in (((1, 2, 3, 40), "few"), ((1, 2, 40, 40), "usual")):
        arrays = attention_arrays(*shape)
        check(k, arrays, code=code)
        assert asked.pop() == Choice((way,))
        arrays["K"] = np.asfortranarray(arrays["K"])
        check(k, arrays, code=code)
        assert asked.pop() == Choice((way,), dense=False)
    arrays["V"][0, 0, 0] = np.nan
    check(k, arrays, code=code)
    assert asked == [Choice(("exact",), dense=False)]


def test_code_for_consecutive_elements_has_no_other() -> None:
    k = kernel(ATTENTION)
    texts = [
        lower.lower(k, jit.host(), Choice((way,), dense)).text
        for way in ("usual", "few")
        for dense in (False, True)
    ]
    general, dense, any_rows, rows = texts
    assert "gather_f32" in general
    assert "gather_f32" not in dense
    assert len(dense) < 0.95 * len(general)
    assert len(rows) < 0.75 * len(any_rows)


def test_threads_that_meet_nan_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    k = kernel(ATTENTION)
    code = compile(k)
    cases = [attention_arrays(1, 2, 20, 30) for _ in range(6)]
    for n, arrays in enumerate(cases):
        arrays["V"][0, 0, n] = np.nan
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda a: check(k, a, code=code), cases))


def test_a_tile_of_unknown_extent_is_refused() -> None:
    text = """
kernel f(X: f32[N, M]) -> O: f32[i, j] {
  axis i < N
  axis j < M
  grid(axes=[i:16]) {
    x: f32[i:16, j] = load(X, i, j)
    s: f32[i:16] = sum(x, over=j)
    y: f32[i:16, j] = sub(x, s)
    z: f32[i:16] = sum(y, over=j)
    w: f32[i:16, j] = add(y, z)
    store(O, i, j, value=w)
  }
}"""
    with pytest.raises(UnsupportedError, match="axis j"):
        compile(kernel(text))


def test_a_context_that_another_thread_has_just_taken() -> None:
    """Between a look at the free contexts and the taking of one, another thread may take it."""

    class Robbed(deque[Any]):
        def __bool__(self) -> bool:
            self.clear()
            return True

    k = kernel("""
kernel f(X: f32[N]) -> O: f32[i] {
  axis i < N
  grid(axes=[i:16]) {
    x: f32[i:16] = load(X, i)
    store(O, i, value=x)
  }
}""")
    code = compile(k)
    x, o = np.arange(20, dtype=np.float32), np.zeros(20, np.float32)
    ready = code.ready({"X": view("X", x)}, {}, {"O": view("O", o)})
    ready._free = Robbed()  # pyright: ignore[reportPrivateUsage]
    for _ in range(2):
        ready([x.ctypes.data, o.ctypes.data])
        np.testing.assert_array_equal(o, x)
        o[:] = 0


# ---- memory

LONG = 65536


@pytest.mark.parametrize(("threads", "most"), [(2, 4 << 20), (16, 16 << 20)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("name", "rows"),
    [("naive", LONG), ("causal", LONG), ("causal", 1), ("naive", 128), ("document", LONG)],
)
def test_memory_beside_the_arrays_stays_small(
    name: str,
    rows: int,
    dtype: type,
    threads: int,
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what a call is told, nothing grows with rows times keys, and hardly anything with the keys; each thread has its
    tiles."""
    monkeypatch.setattr(pool, "threads", lambda: threads)

    def nothing(*shape: int, kind: type = dtype) -> Array:
        return np.broadcast_to(np.zeros(1, kind), shape)

    given = [nothing(1, 2, n, 256) for n in (rows, LONG, LONG)]
    given += [nothing(1, LONG, kind=np.int32)] if name == "document" else []
    program = tilec.load(EXAMPLES / f"{name}.tile", target="cpu")
    plan = program.plan(*given)
    assert isinstance(plan.run, Executable)
    tensors = {n: view(n, x) for n, x in zip(plan.ir.tensors, given, strict=True)}
    outputs = {o.name: view(o.name, nothing(*o.shape)) for o in plan.outputs}
    needed = plan.run.memory(tensors, {}, outputs)
    assert 5_000 * threads < needed < most
    if rows == 128:
        # the keys are in pieces, each of which leaves a part of every row's result
        assert needed > threads * rows * 256 * 4
