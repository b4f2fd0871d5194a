"""What programs are lowered to: the IR, and that it means what the program says."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from tilec.backends.reference import interpreter
from tilec.check import check, lower
from tilec.errors import SourceError
from tilec.ir import ABSENT, Cast, Kernel, Load, Map, Reduce, operands, walk
from tilec.parse import parse
from tilec.text import show
from tilec.verify import verify

NAN, INF = float("nan"), float("inf")
W = np.exp([1, -2, 3.5]) / np.exp([1, -2, 3.5]).sum()


def lowered(text: str, name: str | None = None, **dtypes: str) -> Kernel:
    program = parse(text)
    check(program)
    kernel = lower(program, name or next(iter(program.kernels)), dtypes)
    verify(kernel)
    return kernel


def run(text: str, name: str | None = None, /, **arguments):
    """The outputs of a kernel, by name."""
    kernel = lowered(text, name)
    arrays = {n: np.asarray(x) for n, x in arguments.items() if n in kernel.tensors}
    scalars = {n: x for n, x in arguments.items() if n in kernel.arguments}
    return interpreter.run(kernel, arrays, scalars).outputs


def one(line: str, **arguments):
    """The output O of a kernel of a few lines, in which i, j and k range over the three elements of X."""
    lines = ["axis i < N", "axis j < N", "axis k < N", *line.split("\n")]
    header = "kernel f(X[N], Y: i32[N], n: int) -> O[i]:\n"
    given = {"X": np.array([1.0, -2.0, 3.5]), "Y": np.array([2, 0, 1], np.int32), "n": 2}
    return run(header + "".join(f"    {part}\n" for part in lines), **given, **arguments)["O"]


def test_causal_attention_as_ir():
    kernel = lowered(
        "kernel causal(Q[B, H, M, D], K[B, H, N, D], V[B, H, N, E]) -> O[b, h, i, e]:\n"
        "    S = sum[d](Q[b, h, i, d] * K[b, h, j, d]) / sqrt(D)\n"
        "    P = softmax[j](S if j <= i + N - M else -inf)\n"
        "    O = sum[j](P * V[b, h, j, e])\n",
        Q="f16",
        K="f16",
        V="f16",
    )
    assert show(kernel) == (
        "kernel causal(Q: f16[B, H, M, D], K: f16[B, H, N, D], V: f16[B, H, N, E]) -> O: f16[b, h, i, e] {\n"
        "  axis b < B\n"
        "  axis h < H\n"
        "  axis i < M\n"
        "  axis j < N\n"
        "  axis d < D\n"
        "  axis e < E\n"
        "  q: f16[b, h, i, d] = load(Q, b, h, i, d)\n"
        "  k: f16[b, h, j, d] = load(K, b, h, j, d)\n"
        "  t: f32[b, h, i, j, d] = mul(q, k)\n"
        "  t_1: f32[b, h, i, j] = sum(t, over=d)\n"
        "  t_2: f32 = sqrt(D)\n"
        "  S: f32[b, h, i, j] = div(t_1, t_2)\n"
        "  t_3: i64[i] = add(i, N)\n"
        "  t_4: i64[i] = sub(t_3, M)\n"
        "  t_5: bool[i, j] = le(j, t_4)\n"
        "  t_6: f32[b, h, i, j] = select(t_5, S, -inf)\n"
        "  P: f32[b, h, i, j] = softmax(t_6, over=j)\n"
        "  v: f16[b, h, j, e] = load(V, b, h, j, e)\n"
        "  t_7: f32[b, h, i, j, e] = mul(P, v)\n"
        "  O_1: f32[b, h, i, e] = sum(t_7, over=j)\n"
        "  store(O, b, h, i, e, value=O_1)\n"
        "}\n"
    )


def test_header():
    kernel = lowered(
        "kernel f(X[N, M], T: bf16[M + N - 1], s: float = 1, w: int = 2 * M, p: float = 1 / sqrt(N), "
        "q: int = w) -> A[i, c]:\n"
        '    assert N % 2 == 0 and w > 0, "even"\n    assert N < 100\n    axis c < M // 2\n'
        "    A = X[i, c] * T[c] + s + p\n"
    )
    assert kernel.tensors["T"].dims == (("sub", ("add", "M", "N"), 1),)
    assert [a.default for a in kernel.arguments.values()] == [
        1.0,
        ("mul", 2, "M"),
        ("div", 1, ("sqrt", "N")),
        "w",
    ]
    assert kernel.extents == {"i": "N", "c": ("floordiv", "M", 2)}
    even, short = kernel.assertions
    assert even.condition == ("and", ("eq", ("mod", "N", 2), 0), ("gt", "w", 0))
    assert even.message == "even"
    assert short.message


def test_output_types():
    text = "kernel f(Y: i32[N], X[N]) -> A[i], B: i32[i], C: bool[i]:\n    A = Y[i]\n    B = A + 1\n    C = X[i] > 0\n"
    assert [o.dtype for o in lowered(text, X="bf16").outputs] == ["bf16", "i32", "bool"]
    assert lowered("kernel f(X: i32[N]) -> A[i]:\n    A = X[i]\n").outputs[0].dtype == "f32"


def test_types_known_only_at_the_call():
    text = "kernel f(X[N], T[N]) -> O[i]:\n    O = X[T[i]] + (1 if X[i] > 0 else 0)\n"
    assert lowered(text, X="f32", T="i16").tensors["T"].dtype == "i16"
    with pytest.raises(SourceError, match="an index needs an integer"):
        lowered(text, X="f32", T="f16")


def test_axes_follow_the_storage_order():
    text = "kernel f(A[N, D], B[M, D], C[D, M]) -> O[i, j]:\n    O = sum[d](A[i, d] * B[j, d] * C[d, j])\n"
    assert list(lowered(text).extents) == ["i", "j", "d"]


# ---- names


def test_a_name_may_be_defined_again():
    assert one("a = X[i]\na = a + 1\na = a * 2\nO = a").tolist() == [4, -2, 9]
    kernel = lowered(
        "kernel f(X[N], n: int) -> O[i]:\n    n = n + 1\n    X = X[i] * n\n    O = X\n"
    )
    assert {"n_1", "X_1"} <= set(kernel.values)


def test_user_names_stay_in_the_ir():
    kernel = lowered("kernel f(X[N]) -> O[i]:\n    t = X[i] + 1\n    x = t * X[i]\n    O = x / 2\n")
    assert {"t", "x"} <= set(kernel.values)


def test_functions_see_their_own_names_only():
    pre = "def f(i, j) = i - 2 * j\ndef g(x) = f(x, 1) + pi * 0\n"
    assert run(
        f"{pre}kernel k(X[N]) -> O[i, j]:\n    O = f(X[j], X[i]) + g(0) + 2\n", X=[1.0, 5.0]
    )["O"].tolist() == [
        [-1.0, 3.0],
        [-9.0, -5.0],
    ]


def test_local_functions_see_the_kernel():
    got = one("a = 10\ndef f(x) = X[x] * a + n\na = 100\nO = f(i)")
    assert got.tolist() == [102, -198, 352]


def test_a_function_gives_its_parameter_a_range():
    text = "kernel f(X[N], Y[M]) -> O[i, j]:\n    def x(p) = X[p]\n    def y(q) = Y[q] + x(r) * 0\n"
    text += "    O = x(i) + sum[r](y(j)) / N\n"
    assert lowered(text).extents == {"i": "N", "r": "N", "j": "M"} or set(
        lowered(text).extents
    ) == {"i", "r", "j"}


def test_a_function_does_not_bind_the_callers_axis():
    """sum[t] inside `before` is its own t, although the caller's argument is a t."""
    before = "def before(x) = sum[t](1 if X[t] < x else 0)"
    text = f"kernel f(X: i32[N]) -> O[t]:\n    {before}\n    O = before(X[t]) + 10 * before(t)\n"
    x = np.array([3, 1, 2, 1])
    want = [(x < v).sum() + 10 * (x < k).sum() for k, v in enumerate(x)]
    assert run(text, X=x)["O"].tolist() == want
    assert "t_1" in lowered(text).extents


def test_a_function_sums_over_a_value_it_is_given():
    pre = "def share(x) = x / sum[j](x)\n"
    text = f"{pre}kernel f(X[N]) -> O[j], P[j]:\n    w = X[j] ** 2\n    O = share(w)\n    P = share(X[j] + 1)\n"
    got = run(text, X=[1.0, 2.0])
    np.testing.assert_allclose(got["O"], [0.2, 0.8])
    np.testing.assert_allclose(got["P"], [0.4, 0.6])


def test_a_function_may_take_an_axis():
    pre = "def total(x, a) = sum[a](x)\n"
    assert run(f"{pre}kernel f(X[N, M]) -> O[i]:\n    O = total(X[i, j], j)\n", X=[[1, 2], [3, 4]])[
        "O"
    ].tolist() == [3, 7]


def test_a_value_has_no_axis_of_its_name():
    assert one("g = i // 2\nO = X[g] * 10").tolist() == [10, 10, -20]


def test_an_axis_may_have_the_name_of_a_tensor():
    text = "kernel f(X[B, N], b: f32[N]) -> O[b, i], S[i]:\n"
    text += "    O = X[b, i] * b[i] + b\n    S = sum[b](X[b, i])\n"
    got = run(text, X=[[1.0, 2.0], [3.0, 4.0]], b=[10.0, 100.0])
    assert got["O"].tolist() == [[10, 200], [31, 401]]
    assert got["S"].tolist() == [4, 6]


# ---- expressions


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("Y[i] / 2", [1, 0, 0.5]),
        ("(Y[i] - 2) // n", [0, -1, -1]),
        ("(Y[i] - 3) % 2", [1, 1, 0]),
        ("5 // (Y[i] - 2)", [0, -3, -5]),
        ("i ** 2 + 2 ** Y[i]", [4, 2, 6]),
        ("clamp(X[i], 0, n)", [1, 0, 2]),
        ("min(X[i], 1, i)", [0, -2, 1]),
        ("(i ^ 3) & 2 | 4", [6, 6, 4]),
        ("~i << 1", [-2, -4, -6]),
        ("1 if 0 <= i - 1 < n - 1 else 7", [7, 1, 7]),
        ("1 if not (i == 1 or X[i] > 3) else 0", [1, 0, 0]),
        ("i32(X[i]) + i64(X[i] / 2)", [1, -3, 4]),
        ("bool(Y[i]) + 1", [2, 1, 2]),
        ("abs(X[i]) + floor(X[i]) + round(X[i])", [3, -2, 10.5]),
        ("X[i - 1]", [0, 1, -2]),
        ("X[Y[i]]", [3.5, 1, -2]),
        ("relu(X[i]) + isfinite(X[i])", [2, 1, 4.5]),
        ("floor(i) * ceil(i) + relu(i - 1)", [0, 1, 5]),
        ("sum[j](X[j]) + mean[j](X[j])", [10 / 3] * 3),
        ("max[j](X[j]) - min[j](Y[j])", [3.5] * 3),
        ("1 if any[j](X[j] < i - 2) else 2", [2, 1, 1]),
        ("1 if all[j](Y[j]) else 2", [2] * 3),
        ("sum[j](j < i)", [0, 1, 2]),
        ("sum[j, k](X[j] * X[k]) + N", [9.25] * 3),
        ("pow(2, i) + atan2(0, 1)", [1, 2, 4]),
        ("-inf if i > 0 else nan", [NAN, -INF, -INF]),
        ("true + (false or true)", [2] * 3),
    ],
)
def test_expression(expression, expected):
    np.testing.assert_allclose(one(f"O = {expression}"), expected)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("sum[j](X[i])", [3, -6, 10.5]),
        ("sum[j, k](X[i] * X[k])", [7.5, -15, 26.25]),
        ("max[j](X[i])", [1, -2, 3.5]),
        ("min[j](i) + mean[j](X[i]) + mean[j](i)", [1, 0, 7.5]),
        ("1 if any[j](i > 0) and all[j](i < 2) else 0", [0, 1, 0]),
        ("logsumexp[j](X[i])", np.array([1, -2, 3.5]) + np.log(3)),
        ("logsumexp[j](X[i], 0)", np.log(3 * np.exp([1, -2, 3.5]) + 1)),
        ("logsumexp[j](inf if i > 0 else -inf, -inf)", [-INF, INF, INF]),
        ("softmax[j](X[i])", [1 / 3] * 3),
        ("softmax[j](-inf)", [0] * 3),
        ("softmax[j](X[i], 1, X[i])", np.exp([1, -2, 3.5]) / (4 * np.exp([1, -2, 3.5]) + np.e)),
        ("sum[k](X[k] * softmax[j, k](X[k] + X[i] * 0))", np.dot(W, [1, -2, 3.5]) / 3),
        ("sum[j](softmax[j](X[i]))", [1] * 3),
    ],
)
def test_reduction_over_an_axis_that_the_operand_lacks(expression, expected):
    np.testing.assert_allclose(one(f"O = {expression}"), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [("sum", 0), ("max", -INF), ("min", INF), ("logsumexp", -INF), ("mean", NAN)],
)
def test_reduction_over_nothing(reduction, expected):
    text = (
        f"kernel f(X[N], Y[M]) -> O[i]:\n    O = {reduction}[j](X[i] + 0 * Y[0]) + sum[j](Y[j])\n"
    )
    np.testing.assert_array_equal(run(text, X=[4.0], Y=np.zeros(0))["O"], [expected])


def test_an_arm_that_is_zero_is_absent():
    kernel = lowered(
        "kernel f(X[N]) -> O[i]:\n    O = (X[i] if i > 1 else 0) + (0.0 if i > 2 else X[i]) + (-0 if i > 1 else 1)\n"
    )
    selects = [op for op in kernel.body if isinstance(op, Map) and op.fn == "select"]
    assert [ABSENT in op.args for op in selects] == [True, True, False]


@pytest.mark.parametrize(
    ("expression", "guarded"),
    [
        ("X[i] if Y[i] > 0 else Z[i]", "XZ"),
        ("1 if X[i] > 0 and Y[i] > 0 or Z[i] > 0 else 0", "YZ"),
        ("1 if X[i] < Y[i] < Z[i] else 0", "Z"),
        ("arm(X[i], Y[i] > 0) + Z[i]", "X"),
        ("twice(X[i], Y[i] > 0) + Z[i]", "X"),
        ("both(X[i], Y[i] > 0) + Z[i]", ""),
        ("(X[i] if X[i] > 0 else 0) if Y[i] > 0 else Z[i]", "XXZ"),
    ],
)
def test_guarded_loads(expression, guarded):
    functions = "def arm(x, c) = x if c else 0\ndef twice(x, c) = arm(x, c) * 2\ndef both(x, c) = x + arm(x, c)\n"
    kernel = lowered(f"{functions}kernel f(X[N], Y[N], Z[N]) -> O[i]:\n    O = {expression}\n")
    assert (
        "".join(sorted(op.tensor for op in kernel.body if isinstance(op, Load) and op.guarded))
        == guarded
    )


def test_arguments_are_lowered_once():
    kernel = lowered("def cube(x) = x * x * x\nkernel f(X[N]) -> O[i]:\n    O = cube(exp(X[i]))\n")
    assert [op.fn for op in kernel.body if isinstance(op, Map)] == ["exp", "mul", "mul"]


def test_conversions_and_powers():
    text = "kernel f(X[N]) -> O[i]:\n    O = f16(X[i]) + i32(X[i]) ** 3 + X[i] ** 2 + X[i] ** 0.5 + 2 ** i\n"
    kernel = lowered(text)
    assert [op.to for op in kernel.body if isinstance(op, Cast)] == ["f16", "i32"]
    powers = [op for op in kernel.body if isinstance(op, Map) and "pow" in op.fn]
    assert [(op.fn, op.result.type.dtype) for op in powers] == [
        ("ipow", "i64"),
        ("ipow", "f32"),
        ("pow", "f32"),
        ("pow", "f32"),
    ]


def test_further_logits():
    kernel = lowered(
        "kernel f(X[N], s[H]) -> O[h, j]:\n    O = softmax[j](X[j], s[h], 1) + logsumexp[j](X[j], s[h])\n"
    )
    assert [(op.fn, len(op.args)) for op in kernel.body if isinstance(op, Reduce)] == [
        ("softmax", 3),
        ("logsumexp", 2),
    ]


def test_every_op_knows_its_place():
    text = "kernel f(X[N]) -> O[i]:\n    O = exp(X[i]) +\\\n".replace("+\\", "+ (2 *\n      X[i])")
    places = {(op.span.line, op.span.column) for op in walk(lowered(text).body) if op.span}
    assert places == {(1, 19), (2, 9), (2, 13), (2, 22), (3, 7)}


def test_the_check_leaves_no_trace():
    program = parse(
        "kernel f(X[N]) -> O[i]:\n    def unused(x) = X[x] + sum[j](X[j])\n    O = X[i]\n"
    )
    check(program)
    assert len(lower(program, "f", {"X": "f32"}).body) == 2


# ---- every program of the folder of cases


def cases() -> dict[str, str]:
    """The programs of the folder of cases that TILEC_CASES names."""
    folder = Path(os.environ.get("TILEC_CASES", ""))
    if not (folder / "programs.py").is_file():
        return {}
    sys.path.insert(0, str(folder))
    try:
        programs, gym = (_module(folder / f"{n}.py") for n in ("programs", "gym"))
    finally:
        sys.path.remove(str(folder))
    return {**programs.PROGRAMS, **{e.id: e.text for e in gym.ENTRIES}}


def _module(path: Path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_programs_of_the_cases_folder():
    found = cases()
    if not found:
        pytest.skip("there is no folder of cases: set TILEC_CASES")
    for text in found.values():
        program = parse(text)
        check(program)
        for name in program.kernels:
            kernel = lower(program, name, {})
            verify(kernel)
            assert all(x != "" for op in kernel.body for x in operands(op))


def test_a_power_of_a_tensor_without_a_type_is_what_the_tensor_is() -> None:
    text = "kernel f(n[N], X[N]) -> O: i64[i], P[i]:\n    O = n[i] ** 2\n    P = X[n[i] ** 2] + X[i] ** 9\n"
    assert lowered(text, n="i32").values["O_1"].type.dtype == "i64"
    with pytest.raises(SourceError, match="its value is a float"):
        lowered(text, n="f32")
