"""The general CUDA emitter: its kernels, run on the host as plain C++, against the interpreter."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import tilec
from tests.backends.cuda import host
from tests.backends.cuda.compiler import needs_cpp
from tests.backends.cuda.hopper import running
from tests.programs import CAUSAL, GROUPED, TABLE
from tilec import pipeline
from tilec.backends.cuda import arch, nvrtc
from tilec.backends.cuda.generate import general
from tilec.backends.cuda.simt.lower import lower
from tilec.backends.reference import interpreter
from tilec.dtypes import kind

EXAMPLES = sorted(Path(__file__).parents[3].glob("examples/*.tile"))
ALL = bool(os.environ.get("TILEC_CUDA_ALL"))
"""Whether every example is compiled for every architecture (minutes); else a few are."""


TWO_SUMS = """
kernel two(X[M, N], W: f32[N], n: int) -> S: f64[i], C: i64[i], A: bool[i], D: f16[i, j]:
    axis j < N
    Y = X[i, j] * W[j] if j % 3 != n else -inf
    S = logsumexp[j](Y)
    C = sum[j](1 if X[i, j] > 0 else 0)
    A = any[j](X[i, j] > 2.5)
    D = exp(Y)
sizes M=5, N=300
"""

PRODUCTS = """
kernel products(A[B, M, K], C[B, K, N], s: int[B]) -> O[b, i, j], T: f32[b]:
    O = sum[k](A[b, i, k] * C[b, k, j]) + floor(s[b] / 2) + uniform(7, b, i, j)
    T = sum[i, j](O * O)
sizes B=2, M=70, K=33, N=9
""".replace("s: int[B]", "s: i32[B]")

SPREAD = """
kernel spread(X[M, N]) -> A: i64[i, j], B[i, j], C[i, j], D[j, i]:
    axis j < N
    axis k < N
    A = abs(i - 7)
    B = max[k](X[i, k])
    C = j / 2
    D = sum[k](X[i, k])
sizes M=30, N=40
"""

RANDOM = {
    "causal": CAUSAL,
    "grouped": GROUPED,
    "table": TABLE,
    "two": TWO_SUMS,
    "products": PRODUCTS,
}


def tiles(kernel, dtype="f32", sizes=None, extents=None):
    """The kernel in tiles, and the sizes it is for."""
    known = {**kernel._source.sizes, **(sizes or {})}
    ir = kernel._versions.for_types(dict.fromkeys(kernel._source.untyped, dtype)).lowered
    online = pipeline.run(ir, pipeline.tensor_pipeline())
    fixed = {d: known[d] for d in pipeline.module("specialise").static_dims(online)}
    return ir, pipeline.run(online, pipeline.tile_pipeline(fixed, extents or {}, "cuda"))


def check(
    kernel, arrays, scalars, dtype="f32", sizes=None, extents=None, tolerance=2e-5, **options
):
    """Runs a kernel on the host and compares it with the interpreter."""
    ir, tiled = tiles(kernel, dtype, sizes, extents)
    got = host.run(tiled, arrays, scalars, **options)
    want = interpreter.run(ir, arrays, scalars).outputs
    for o in ir.outputs:
        if kind(o.dtype) == "float":
            g = np.asarray(got[o.name], np.float64)
            np.testing.assert_allclose(g, want[o.name], tolerance, tolerance, err_msg=o.name)
        else:
            np.testing.assert_array_equal(got[o.name], want[o.name], o.name)


def scalars_of(kernel, sizes, given=None):
    return kernel.environment(sizes, given)[1]


@needs_cpp
@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", RANDOM)
def test_programs(name, backwards):
    kernel = tilec.compile(RANDOM[name])
    given = {"n": 1} if name == "two" else {}
    arrays = kernel.sample(3)
    tolerance = 2e-3 if name == "two" else 2e-5
    check(kernel, arrays, scalars_of(kernel, {}, given), tolerance=tolerance, backwards=backwards)


@needs_cpp
@pytest.mark.parametrize("e", ["-abs(j)", "abs(i - j) - 9", "abs(-i)", "min(i - j, -1)"])
def test_positions_in_conditions(e):
    """The bounds of the loop hold negative numbers beside sizes."""
    kernel = tilec.compile(CAUSAL.replace("j <= i + N - M", f"{e} > -7"))
    check(kernel, kernel.sample(1), scalars_of(kernel, {}))


@needs_cpp
@pytest.mark.parametrize("sizes", [{"M": 30, "N": 40}, {"M": 1, "N": 1}, {"M": 3, "N": 0}])
def test_what_is_stored_along_an_axis_that_it_lacks(sizes):
    kernel = tilec.compile(SPREAD)
    check(kernel, kernel.sample(1, **sizes), {}, sizes=sizes)


@needs_cpp
def test_sizes_from_none_to_several_tiles():
    kernel = tilec.compile(CAUSAL)
    for m, n in [(0, 3), (3, 0), (1, 1), (64, 65), (130, 131)]:
        sizes = {"M": m, "N": n}
        arrays = kernel.sample(1, **sizes)
        check(kernel, arrays, scalars_of(kernel, sizes), sizes=sizes)


@needs_cpp
def test_little_shared_memory_moves_tiles_to_the_workspace():
    kernel = tilec.compile(CAUSAL)
    module = lower(tiles(kernel)[1], 4096)
    assert module.functions[0].shared <= 4096
    assert module.functions[0].workspace > 0
    check(kernel, kernel.sample(1), scalars_of(kernel, {}), limit=4096)


@needs_cpp
def test_strides_and_narrow_types():
    kernel = tilec.compile(CAUSAL)
    shape = {"M": 20, "N": 24, "D": 8, "E": 12}
    q, k, v = (np.asarray(x, np.float16) for x in kernel.sample(5, **shape).values())
    q, k = np.asfortranarray(q), k[:, :, ::-1]
    v = np.broadcast_to(v[:, :1], v.shape)
    arrays = {"Q": q, "K": k, "V": v}
    check(kernel, arrays, scalars_of(kernel, shape), dtype="f16", sizes=shape, tolerance=2e-3)


@needs_cpp
def test_what_is_masked_contributes_nothing():
    kernel = tilec.compile(CAUSAL)
    arrays = kernel.sample(2)
    arrays["V"][:, :, 20:] = np.nan
    arrays["K"][:, :, 21] = np.inf
    check(kernel, arrays, scalars_of(kernel, {}))


@needs_cpp
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["causal", "paged"])
def test_tensor_cores(name, dtype):
    kernel = tilec.load(EXAMPLES[0].parent / f"{name}.tile")
    sizes = {
        d: n
        for d, n in {"B": 1, "H": 2, "M": 70, "N": 90, "D": 32, "E": 48}.items()
        if d in kernel.dims
    }
    sizes |= {"HK": 1, "NP": 9, "MP": 7, "P": 16} if name == "paged" else {}
    _, tiled = tiles(kernel, dtype, sizes)
    assert lower(tiled, host.LIMIT).text.count("tl::products<") >= 2
    arrays = kernel.sample(4, dtype=dtype, **sizes)
    if name == "causal":
        arrays["V"][:, :, 80:] = np.nan
        arrays["K"][:, :, 85, 3] = np.inf
    check(kernel, arrays, scalars_of(kernel, sizes), dtype, sizes, tolerance=3e-2)


def test_double_precision_is_kept():
    kernel = tilec.compile(CAUSAL)
    assert "typedef double real;" in lower(tiles(kernel, "f64")[1], 96 << 10).text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_fits(path):
    kernel = tilec.load(path)
    for limit in (99 << 10, 227 << 10):
        module = lower(tiles(kernel, "f16")[1], limit)
        assert all(f.shared <= limit for f in module.functions.values())
        assert all(f.workspace == 0 for f in module.functions.values())


def test_the_text_reads_like_the_program():
    text = lower(tiles(tilec.load(EXAMPLES[0].parent / "causal.tile"))[1], 96 << 10).text
    assert "contract(q, k, over=d)   " in text
    assert "causal.tile:3" in text
    assert "for (int d = 0; d < 64; ++d)" in text


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_how_often_an_unrolled_loop_turns_does_not_depend_on_the_thread(path):
    text = lower(tiles(tilec.load(path), "f16")[1], 96 << 10).text
    loops = re.findall(r"UNROLL\w* for \((?:int|i64) \w+ = ([^;]+);", text)
    assert loops
    assert set(loops) == {"0"}, "the compiler would write the body again, for the rest"


def test_what_each_thread_does_at_most_once_is_no_loop():
    kernel = tilec.load(EXAMPLES[0].parent / "causal.tile")
    text = lower(tiles(kernel, "f16")[1], 96 << 10).text
    assert "constexpr int THREADS = 256;" in text
    assert "if (const int n = thread; n < 64)" in text
    found = re.findall(r"for \(int n = thread; n < (\d+)", text)
    assert found
    assert all(int(n) > 256 for n in found)


SOME = [("causal", "f16", "sm_90a"), ("document", "f32", "sm_80")]
EVERY = [
    (p.stem, t, a) for p in EXAMPLES for t in ("f32", "f16", "bf16") for a in ("sm_80", "sm_90a")
]


@pytest.mark.parametrize(("name", "dtype", "target"), EVERY if ALL else SOME)
def test_compiles(name, dtype, target):
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    kernel = tilec.load(EXAMPLES[0].parent / f"{name}.tile")
    code = general(tiles(kernel, dtype)[1], target)
    made = nvrtc.compile(code.text, target)
    assert set(made.usage) == {f.name for f in code.functions.values()}
    for f in code.functions.values():
        use = made.usage[f.name]
        assert use.shared == 0, "all shared memory is the model's"
        assert f.shared <= arch.shared_limit(target)
        assert use.registers * f.threads <= 1 << 16
        assert use.spill_stores == 0
    assert not made.warnings


COLUMNS = """
kernel columns(X[M, N]) -> A[j], B[j], C: bool[j], D[i], E: f32[i, j]:
    W = exp(X[i, j] - sum[j](X[i, j]))
    A = sum[i](W)
    B = max[i](W)
    C = any[i](W > 1)
    D = max[j](X[i, j]) * rsqrt(mean[j](X[i, j] ** 2) + 0.01)
    E = W
sizes M=5, N=13
"""


@needs_cpp
@pytest.mark.parametrize("extents", [{"i": 1}, {"i": 1, "j": 4}, {"i": 2, "j": 1}])
def test_reductions_over_windows_of_one_position(extents):
    kernel = tilec.compile(COLUMNS)
    check(kernel, kernel.sample(1), {}, extents=extents)


@needs_cpp
def test_sums_of_products_without_axes():
    """A norm of the row that a tile has: its root is no part of a stage of threads."""
    kernel = tilec.compile(
        "kernel f(Q[M, D], K[N, D], V[N, E]) -> O[i, e]:\n"
        "    O = sum[j](sum[d](Q[i, d] * K[j, d]) * V[j, e])\n"
        "    O = O * rsqrt(mean[e](O * O) + 0.01)\n"
        "sizes M=3, N=5, D=4, E=3\n"
    )
    check(kernel, kernel.sample(1), {}, extents={"i": 1})


@needs_cpp
def test_tiles_of_single_precision_beside_double():
    kernel = tilec.compile(
        "kernel f(Q[M, D], K[N, D], V[N, E], row: f32[M], column: f32[N]) -> O[i, e]:\n"
        "    S = sum[d](Q[i, d] * K[j, d]) * row[i] + row[i] + column[j] + column[j] ** 2\n"
        "    O = sum[j](softmax[j](S) * V[j, e])\n"
        "sizes M=9, N=40, D=4, E=4\n"
    )
    arrays = kernel.sample(1, dtype="f64")
    check(kernel, arrays, {}, dtype="f64", extents={"i": 4, "j": 8}, tolerance=1e-12)


MERGE = """
kernel merge(P[S, B, M, E], lse: f32[S, B, M]) -> O[b, i, e]:
    O = sum[s](softmax[s](lse[s, b, i]) * P[s, b, i, e])
sizes S=3, B=2, M=70, E=64
"""
LOOKED_UP = """
kernel looked_up(P[R, M, E], W[S, M], at: i32[S]) -> O[i, e]:
    O = sum[s](W[s, i] * P[at[s], i, e])
sizes R=5, S=7, M=66, E=40
"""


@needs_cpp
@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("sizes", [{}, {"S": 1, "E": 36}, {"S": 70, "M": 33}, {"S": 0}, {"E": 67}])
def test_a_factor_that_meets_one_other_is_read_where_it_lies(sizes, dtype):
    kernel = tilec.compile(MERGE)
    arrays = kernel.sample(1, dtype=dtype, **sizes)
    assert "tl::Row<" in lower(tiles(kernel, dtype, sizes)[1], 96 << 10).text
    tolerance = 2e-3 if dtype == "f16" else 2e-5
    check(kernel, arrays, {}, dtype, sizes, tolerance=tolerance)
    apart = np.zeros((*arrays["P"].shape[:-1], 2 * arrays["P"].shape[-1]), arrays["P"].dtype)
    apart[..., ::2] = arrays["P"]
    check(kernel, arrays | {"P": apart[..., ::2]}, {}, dtype, sizes, tolerance=tolerance)


@needs_cpp
@pytest.mark.parametrize("sizes", [{"M": 3, "N": 700}, {"M": 70, "N": 90}])
def test_pieces_of_wide_values_are_read_where_they_lie(sizes):
    kernel = tilec.load(EXAMPLES[0].parent / "causal.tile")
    sizes = {"B": 1, "H": 1, "D": 16, "E": 320, **sizes}
    arrays = kernel.sample(1, dtype="f16", **sizes)
    placed, _ = running.tiles(kernel, "f16", sizes, workers=40)
    assert "tl::Row<float, 8>" in lower(placed, 96 << 10).text
    got = host.run(placed, arrays, {})
    np.testing.assert_allclose(got["O"], kernel.reference(*arrays.values()), 2e-3, 2e-3)


@needs_cpp
def test_rows_that_are_looked_up_and_read_where_they_lie():
    kernel = tilec.compile(LOOKED_UP)
    arrays = kernel.sample(1)
    arrays["P"][0, 3, 5] = np.inf
    arrays["at"][:] = [4, 1, -1, 5, 2, 0, 3]
    check(kernel, arrays, {})
