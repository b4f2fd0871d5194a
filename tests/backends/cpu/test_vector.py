"""`Emit`: arithmetic, memory, shuffles and control flow against NumPy."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.harness import IDS, MACHINES, run
from tilec.backends.cpu import jit, storage
from tilec.backends.cpu import llvmir as ir
from tilec.backends.cpu.vector import (
    KINDS,
    POINTER,
    Emit,
    constant,
    constants,
    function,
    kind_of,
    lanes_of,
)

on_machines = pytest.mark.parametrize(("machine", "lanes"), MACHINES, ids=IDS)


def execute(
    body: Callable[..., None],
    *arrays: np.ndarray,
    numbers: tuple[int, ...] = (),
    machine: jit.Machine | None = None,
    lanes: int | None = None,
) -> None:
    """Compiles `body(e, *pointers, *i64)` and calls it on arrays and integers."""
    module = ir.Module()
    types = [POINTER] * len(arrays) + [KINDS["i64"]] * len(numbers)
    f = function(module, "f", types)
    e = Emit(f, machine or jit.host(), lanes)
    body(e, *f.args)
    e.builder.ret_void()
    code = jit.load(jit.compile(module, machine=machine))
    kinds = [ctypes.c_void_p] * len(arrays) + [ctypes.c_int64] * len(numbers)
    ctypes.CFUNCTYPE(None, *kinds)(code.address("f"))(*(a.ctypes.data for a in arrays), *numbers)


def test_python_numbers_emit_nothing() -> None:
    module = ir.Module()
    f = function(module, "f", [KINDS["i64"], KINDS["f32"]])
    e = Emit(f, jit.host())
    n, x = f.args
    assert (e.add(2, 3), e.mul(4, 5), e.sub(1, 2), e.max(1, 2), e.min(1, 2)) == (5, 20, -1, 2, 1)
    assert e.add(n, 0) is n
    assert e.add(0, n) is n
    assert e.mul(n, 1) is n
    assert e.sub(n, 0) is n
    assert e.add(x, 0) is not x  # -0.0 + 0 is 0.0
    with pytest.raises(TypeError):
        e.fma(1, 2, 3)


def test_operands_take_the_type_of_the_vector() -> None:
    module = ir.Module()
    f = function(module, "f", [ir.vector(KINDS["f32"], 8), KINDS["f32"]])
    e = Emit(f, jit.host())
    v, s = f.args
    out = e.fma(s, 2.0, v)
    assert (kind_of(out), lanes_of(out)) == ("f32", 8)
    assert (kind_of(e.mul(s, 2)), lanes_of(e.mul(s, 2))) == ("f32", 0)


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_float_literals_are_exact(kind: str) -> None:
    xs = [0.0, -0.0, 1 / 3, 1e-45, 1e39, -np.inf, np.inf, np.nan, 3.4e38, 2.0**-1074]
    out = np.zeros(len(xs), "f4" if kind == "f32" else "f8")

    def body(e: Emit, p: Any) -> None:
        for k, x in enumerate(xs):
            e.write(constant(kind, x), p, k)  # type: ignore[arg-type]

    execute(body, out)
    with np.errstate(over="ignore"):
        want = np.array(xs).astype(out.dtype)
    np.testing.assert_array_equal(out, want)
    assert (np.signbit(out) == np.signbit(want)).all()


def test_integer_literals_wrap() -> None:
    out = np.zeros(5, "i8")
    xs = [-(1 << 63), (1 << 63) - 1, (1 << 64) - 1, 1 << 64, -1]
    execute(
        lambda e, p: [e.write(constant("i64", x), p, k) for k, x in enumerate(xs)] and None, out
    )
    assert out.tolist() == [-(1 << 63), (1 << 63) - 1, -1, 0, -1]


@on_machines
def test_conversions(machine: jit.Machine, lanes: int) -> None:
    x = np.array([0, 1, -1, 5, 1 << 30, -(1 << 31)] * 3, "i8")
    options: dict[str, Any] = {"machine": machine, "lanes": lanes}
    for kind in ("f32", "f64", "i32", "i1"):
        got = run(lambda e, v: e.convert(e.convert(v, kind), "f64"), x, output="f64", **options)  # noqa: B023
        want = x.astype({"f32": "f4", "f64": "f8", "i32": "i4", "i1": "?"}[kind]).astype("f8")
        np.testing.assert_array_equal(got, want)


@on_machines
def test_comparisons_with_nan(machine: jit.Machine, lanes: int) -> None:
    values = np.array([0.0, -0.0, 1, np.inf, -np.inf, np.nan], "f4")
    x, y = (a.ravel() for a in np.meshgrid(values, values))
    truth = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
    }
    for order, f in truth.items():
        got = run(
            lambda e, a, b: e.compare(order, a, b),  # noqa: B023
            x,
            y,
            output="bool",
            machine=machine,
            lanes=lanes,
        )
        assert (got == f(x, y)).all(), order


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("kind", ["f32", "f64", "i64"])
def test_transpose_and_reductions(n: int, kind: Any) -> None:
    t = {"f32": "f4", "f64": "f8", "i64": "i8"}[kind]
    x = np.arange(n * n).reshape(n, n).astype(t)
    y, sums = np.zeros_like(x), np.zeros(3 * n, t)

    def body(e: Emit, source: Any, target: Any, total: Any) -> None:
        rows = [e.read(kind, source, k * n, n) for k in range(n)]
        for k, row in enumerate(e.transpose(rows)):
            e.write(row, target, k * n)
        for k, row in enumerate(rows):
            e.write(e.across(e.add, row), total, k)
            e.write(e.across(e.max, row), total, n + k)
        e.write(e.sums(rows), total, 2 * n)

    execute(body, x, y, sums)
    assert (y == x.T).all()
    assert sums.tolist() == [*x.sum(1).tolist(), *x.max(1).tolist(), *x.sum(1).tolist()]


@on_machines
@pytest.mark.parametrize("dtype", ["f32", "f64", "bf16", "u8", "i64"])
def test_masked_memory_is_not_touched(dtype: Any, machine: jit.Machine, lanes: int) -> None:
    """Everything masked out lies at the address 0 and beyond."""
    out = np.full(4 * lanes, -1.0, "f4")

    def body(e: Emit, p: Any) -> None:
        null = e.builder.inttoptr(constant("i64", 0), POINTER)
        none = constant("i1", 0, lanes)
        one = constants("i1", [int(k == 1) for k in range(lanes)])
        far = e.mul(e.ramp(), 1 << 40)
        e.write(storage.load(e, "f32", p, 0, lanes, mask=one), p, lanes)
        values = storage.load(e, dtype, null, 0, lanes, to="f32", mask=none)
        e.write(values, p, 2 * lanes)
        values = storage.gather(e, dtype, null, far, to="f32", mask=none)
        e.write(values, p, 3 * lanes)
        storage.store(e, dtype, values, null, 0, mask=none)
        single = storage.load(e, dtype, null, 5, to="f32", mask=constant("i1", 0))
        e.write(single, p, 0)

    execute(body, out, machine=machine, lanes=lanes)
    assert out[:2].tolist() == [0, -1]
    assert (out[lanes:] == [float(-(k == 1)) for k in range(lanes)] + [0] * (2 * lanes)).all()


@on_machines
def test_gather_and_scatter(machine: jit.Machine, lanes: int) -> None:
    x, y = np.arange(100, dtype="f4"), np.zeros(100, "f4")

    def body(e: Emit, p: Any, q: Any) -> None:
        at = e.add(e.mul(e.ramp(), -3), 60)
        seen = storage.gather(e, "f32", p, at, mask=e.compare("<", at, 60))
        storage.scatter(e, "f32", e.add(seen, 0.5), q, at)

    execute(body, x, y, machine=machine, lanes=lanes)
    want = np.zeros(100, "f4")
    for k in range(lanes):
        want[60 - 3 * k] = (x[60 - 3 * k] if k else 0) + 0.5
    assert (y == want).all()


def test_loops_and_branches() -> None:
    out = np.zeros(8, "i8")

    def body(e: Emit, p: Any, n: Any) -> None:
        def count(start: Any, stop: Any, step: Any, **options: Any) -> Any:
            zero = constant("i64", 0)
            return e.loop(start, stop, step, [zero], lambda i, c: [e.add(c[0], 1)], **options)[0]

        counts = [
            count(0, n, 1),
            count(n, 0, 1),
            count(0, n, 4),
            count(0, 10, 3),
            count(5, 5, 1),
            count(0, n, 1, some=True),
        ]
        for k, x in enumerate(counts):
            e.write(x, p, k)
        (y,) = e.branch(e.compare(">", n, 5), lambda: [e.mul(n, 2)], lambda: [e.neg(n)])
        e.write(y, p, 6)

        def outer(i: Any, c: list[Any]) -> list[Any]:
            return e.loop(i, n, 1, c, lambda j, d: [e.add(d[0], j)])

        (total,) = e.loop(0, n, 1, [constant("i64", 0)], outer)
        e.write(total, p, 7)

    for n in (0, 1, 7, 8):
        execute(body, out, numbers=(n,))
        nested = sum(j for i in range(n) for j in range(i, n))
        some = max(n, 1)
        want = [n, 0, -(-n // 4), 4, 0, some, 2 * n if n > 5 else -n, nested]
        assert out.tolist() == want


def test_outlined_code_is_emitted_once() -> None:
    x = np.arange(16, dtype="f4")
    times: list[int] = []

    def cube(e: Emit, v: Any) -> Any:
        times.append(1)
        return e.mul(e.mul(v, v), v)

    got = run(lambda e, v: e.add(e.outlined("cube", cube, v), e.outlined("cube", cube, v)), x)
    assert (got == 2 * x**3).all()
    assert len(times) == 1


def test_stack_memory_and_any() -> None:
    out = np.zeros(2, "f4")

    def body(e: Emit, p: Any) -> None:
        slot = e.allocate("f32", e.lanes)
        e.write(e.convert(e.ramp(), "f32"), slot)
        e.write(e.read("f32", slot, 2), p, 0)
        found = e.any(e.compare("==", e.ramp(), 3))
        missing = e.any(e.compare("==", e.ramp(), 99))
        both = e.add(e.convert(found, "f32"), e.mul(e.convert(missing, "f32"), 10.0))
        e.write(both, p, 1)

    execute(body, out)
    assert out.tolist() == [2, 1]
