"""Kernels as Python sees them: binding, checks, outputs, and what can be looked into."""

from __future__ import annotations

import copy
import math
import pickle

import ml_dtypes
import numpy as np
import pytest

import tilec
from tests.programs import CAUSAL, GROUPED, TABLE, inputs

TARGETS = ["reference", "cpu"]


def attention(q, k, v, scale=None):
    """Causal attention with the last query at the last key, in float64."""
    q, k, v = (np.asarray(x).astype(np.float64) for x in (q, k, v))
    m, n = q.shape[2], k.shape[2]
    s = q @ k.swapaxes(2, 3) * (1 / math.sqrt(q.shape[3]) if scale is None else scale)
    s = np.where(np.tri(m, n, n - m, dtype=bool), s, -np.inf)
    p = np.exp(s - s.max(axis=3, keepdims=True, initial=-1e300))
    return p / np.maximum(p.sum(axis=3, keepdims=True), 1e-300) @ v


@pytest.fixture(params=TARGETS)
def causal(request):
    return tilec.compile(CAUSAL, target=request.param)


# ---- calls


def test_by_position_and_by_name(causal):
    q, k, v = inputs()
    want = attention(q, k, v)
    got = causal(q, k, v)
    assert (type(got), got.dtype, got.shape) == (np.ndarray, np.float32, want.shape)
    np.testing.assert_allclose(got, want, atol=1e-5)
    np.testing.assert_array_equal(causal(V=v, Q=q, K=k), got)
    np.testing.assert_allclose(causal(q, k, v, scale=0.3), attention(q, k, v, 0.3), atol=1e-5)
    np.testing.assert_allclose(
        causal(q, K=k, V=v, scale=np.float32(1)), attention(q, k, v, 1), atol=1e-5
    )


def test_one_kernel_many_shapes(causal):
    for m, n in [(1, 1), (3, 130), (130, 3), (0, 4), (4, 0), (20, 24)]:
        q, k, v = inputs(m, n, seed=m)
        np.testing.assert_allclose(causal(q, k, v), attention(q, k, v), atol=1e-5)


def test_strides_and_read_only(causal):
    q, k, v = inputs()
    want = causal(q, k, v)
    for x in (q, k, v):
        x.flags.writeable = False
    spread = [np.repeat(x, 2, axis=2)[:, :, ::2] for x in (q, k, v)]
    turned = [
        np.ascontiguousarray(x.transpose(3, 2, 0, 1)).transpose(2, 3, 1, 0) for x in (q, k, v)
    ]
    back = [x[:, :, ::-1].copy()[:, :, ::-1] for x in (q, k, v)]
    for changed in (spread, turned, back):
        np.testing.assert_allclose(causal(*changed), want, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(np.float64, 1e-12), (np.float16, 3e-3), (ml_dtypes.bfloat16, 3e-2)],
)
def test_element_types(causal, dtype, tolerance):
    q, k, v = inputs(dtype=dtype)
    got = causal(q, k, v)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float64), attention(q, k, v), atol=tolerance)


def test_calls_in_turn_do_not_mix_up_their_scalars(causal):
    q, k, v = inputs()
    for scale in (0.5, 0.0, -0.0, 0.5):
        np.testing.assert_allclose(
            causal(q, k, v, scale=scale), attention(q, k, v, scale), atol=1e-5
        )


@pytest.mark.parametrize("target", TARGETS)
def test_several_outputs_come_as_a_tuple(target):
    kernel = tilec.compile(GROUPED, target=target)
    x = kernel.sample()
    o, lse = kernel(**x, window=4)
    assert (o.shape, lse.shape, lse.dtype) == ((2, 4, 9, 4), (2, 4, 9), np.float32)
    want_o, want_lse = kernel.reference(**x, window=4)
    assert want_o.dtype == want_lse.dtype == np.float64
    np.testing.assert_allclose(o, want_o, atol=1e-5)
    np.testing.assert_allclose(lse, want_lse, atol=1e-5)


def test_target_none_follows_the_arrays():
    q, k, v = inputs()
    np.testing.assert_allclose(tilec.compile(CAUSAL)(q, k, v), attention(q, k, v), atol=1e-5)


@pytest.mark.parametrize("tile", [{"i": 1}, {"i": 7, "j": 3}, {"j": 1000}])
def test_tiles_do_not_change_the_meaning(tile):
    q, k, v = inputs()
    kernel = tilec.compile(CAUSAL, target="cpu", tile=tile)
    np.testing.assert_allclose(kernel(q, k, v), attention(q, k, v), atol=1e-5)


def test_unknown_tile_axis():
    with pytest.raises(tilec.ArgumentError, match="'z'.*i"):
        tilec.compile(CAUSAL, target="cpu", tile={"z": 4})(*inputs())


# ---- out=


def test_out_is_written_and_returned(causal):
    q, k, v = inputs()
    out = np.full((1, 2, 20, 12), np.nan, np.float32)
    assert causal(q, k, v, out=out) is out
    np.testing.assert_allclose(out, attention(q, k, v), atol=1e-5)
    turned = np.zeros((12, 20, 2, 1), np.float32).transpose(3, 2, 1, 0)
    np.testing.assert_allclose(causal(q, k, v, out=turned), attention(q, k, v), atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_out_for_several_outputs(target):
    kernel = tilec.compile(GROUPED, target=target)
    x = kernel.sample()
    out = np.zeros((2, 4, 9, 4), np.float32), np.zeros((2, 4, 9), np.float32)
    assert kernel(**x, out=out) is out
    np.testing.assert_allclose(out[1], kernel.reference(**x)[1], atol=1e-5)
    with pytest.raises(
        tilec.ArgumentError, match=r"argument out: .*2 arrays, \(O, L\), got a float32"
    ):
        kernel(**x, out=out[0])


def test_out_that_does_not_fit(causal):
    q, k, v = inputs()
    frozen = np.zeros((1, 2, 20, 12), np.float32)
    frozen.flags.writeable = False
    for out, words in [
        (np.zeros((1, 2, 20, 11), np.float32), ["(1, 2, 20, 12)", "(1, 2, 20, 11)"]),
        (np.zeros((1, 2, 20, 12)), ["f32", "f64"]),
        (np.broadcast_to(np.float32(0), (1, 2, 20, 12)), ["cannot be written"]),
        (frozen, ["cannot be written"]),
        ([1.0], ["list"]),
    ]:
        with pytest.raises(tilec.ArgumentError, match="argument out") as e:
            causal(q, k, v, out=out)
        assert all(w in str(e.value) for w in words)


def test_out_must_not_be_an_input(causal):
    q, k, v = inputs(n=20)
    with pytest.raises(tilec.ArgumentError, match="out .*shares memory with V"):
        causal(q, k, v, out=v)


# ---- targets and what is not there


def test_targets():
    with pytest.raises(tilec.UnsupportedError, match="sm_75.*sm_80"):
        tilec.compile(CAUSAL, target="cuda:sm_75")
    with pytest.raises(tilec.ArgumentError, match="cuda:sm_90b"):
        tilec.compile(CAUSAL, target="cuda:sm_90b")
    with pytest.raises(tilec.ArgumentError, match="depth.*emitter.*stages"):
        tilec.compile(CAUSAL, target="cuda", schedule={"depth": 2})
    with pytest.raises(tilec.ArgumentError, match="stages is 1, expected 2"):
        tilec.compile(CAUSAL, target="cuda", schedule={"stages": 1})
    with pytest.raises(tilec.ArgumentError, match="'gpu'.*cpu, reference"):
        tilec.compile(CAUSAL, target="gpu")
    with pytest.raises(tilec.ArgumentError, match="'stages'.*workers"):
        tilec.compile(CAUSAL, target="cpu", schedule={"stages": 2})


def test_a_parameter_may_be_called_self():
    kernel = tilec.compile("kernel f(self[N], tensors: int) -> O[i]:\n    O = self[i] + tensors\n")
    x = np.ones(3, np.float32)
    for call in (kernel, kernel.reference):
        assert call(self=x, tensors=2).tolist() == [3, 3, 3]


def test_kernels_can_be_pickled_and_copied(causal):
    x = causal.sample(M=5, N=7)
    want = causal(**x)
    for other in (pickle.loads(pickle.dumps(causal)), copy.deepcopy(causal), copy.copy(causal)):
        assert (str(other), other.target, other.text) == (str(causal), causal.target, causal.text)
        np.testing.assert_array_equal(other(**x), want)
    tiled = tilec.compile(GROUPED, target="cpu", tile={"i": 16, "j": 8})
    again = pickle.loads(pickle.dumps(tiled))
    assert again.ir(after="tile") == tiled.ir(after="tile")


def test_arrays_of_a_device():
    class OnGpu:
        __cuda_array_interface__ = {
            "shape": (1,),
            "typestr": "<f4",
            "data": (16, False),
            "version": 3,
        }

    q, k, _ = inputs()
    with pytest.raises(tilec.ArgumentError, match="argument Q: expected an array on a CUDA device"):
        tilec.compile(CAUSAL)(q, k, OnGpu())
    with pytest.raises(tilec.ArgumentError, match="argument V: .*'cuda'"):
        tilec.compile(CAUSAL, target="cpu")(q, k, OnGpu())


def test_gradients_say_that_they_are_not_there():
    kernel = tilec.compile(CAUSAL)
    with pytest.raises(tilec.UnsupportedError, match="backward"):
        kernel.grad()
    with pytest.raises(tilec.UnsupportedError, match="'f77'.*llvm"):
        kernel.source("f77")


# ---- looking into it


def test_signature():
    kernel = tilec.compile(GROUPED)
    assert kernel.name == "grouped"
    assert list(map(str, kernel.parameters)) == [
        "Q[B, H, M, D]",
        "K[B, HK, N, D]",
        "V[B, HK, N, E]",
        "len: i32[B]",
        "window: int = 16",
    ]
    assert list(map(str, kernel.outputs)) == ["O[b, h, i, e]", "L: f32[b, h, i]"]
    assert kernel.axes["j"] == "N"
    assert "grouped(Q[B, H, M, D]" in repr(kernel)


def test_which_kernel_of_a_program():
    assert tilec.compile(TABLE).name == "table"
    twice = tilec.compile(TABLE, name="twice")
    assert twice(np.arange(3, dtype=np.float32)).tolist() == [0, 2, 4]
    with pytest.raises(tilec.ArgumentError, match="no kernel 'twise'; did you mean twice?"):
        tilec.compile(TABLE, name="twise")


def test_sample():
    kernel = tilec.compile(GROUPED)
    x = kernel.sample()
    assert {n: a.shape for n, a in x.items()} == {
        "Q": (2, 4, 9, 4),
        "K": (2, 2, 9, 4),
        "V": (2, 2, 9, 4),
        "len": (2,),
    }
    assert (x["len"].dtype, x["len"].tolist()) == (np.int32, [9, 8])
    r = np.random.default_rng(3)
    y = kernel.sample(seed=3, M=2, dtype="bf16")
    np.testing.assert_array_equal(
        y["Q"], r.standard_normal((2, 4, 2, 4)).astype(ml_dtypes.bfloat16)
    )
    assert tilec.compile(TABLE).sample()["T"].tolist() == [0, 0.5, 1, 1.5, 2, 2.5]
    with pytest.raises(tilec.ArgumentError, match="no dimension 'Z'"):
        kernel.sample(Z=3)
    with pytest.raises(tilec.ArgumentError, match="no size is known for N"):
        tilec.compile("kernel f(X[N]) -> Y[i]:\n    Y = X[i]\n").sample()


def test_ir_along_the_pipeline():
    kernel = tilec.compile(CAUSAL, target="cpu", tile={"i": 16})
    assert kernel.passes[:2] == ("expand", "simplify")
    assert kernel.passes[-1] == "place"
    assert "softmax" in kernel.ir("lower")
    assert "softmax" not in kernel.ir("expand")
    assert "group(" in kernel.ir("fuse")
    assert "i:16" in kernel.ir()
    with pytest.raises(tilec.ArgumentError, match="'fuze'.*fuse"):
        kernel.ir("fuze")
    reference = tilec.compile(CAUSAL, target="reference")
    assert reference.passes == ()
    assert reference.ir() == kernel.ir("lower")


def test_traffic_falls():
    stated = dict(tilec.compile(CAUSAL).traffic(M=256, N=256))
    quadratic = 2 * 256 * 256 * 4
    assert stated["lower"].total > 4 * quadratic
    assert stated["place"].total < quadratic


def test_source():
    kernel = tilec.compile(CAUSAL)
    assert "define" in kernel.source("llvm")
    assert "ret" in kernel.source("asm")


def test_a_target_stands_for_its_code():
    kernel = tilec.compile(CAUSAL)
    assert kernel.source("cpu") == kernel.source("llvm")
    assert "sm_80" in kernel.source("cuda:sm_80")
    with pytest.raises(tilec.UnsupportedError, match="'reference'.*llvm"):
        kernel.source("reference")
    with pytest.raises(tilec.ArgumentError, match="source: expected a str"):
        kernel.source(None)


# ---- files


def test_load(tmp_path):
    path = tmp_path / "causal.tile"
    path.write_text(CAUSAL)
    q, k, v = inputs()
    np.testing.assert_allclose(tilec.load(path)(q, k, v), attention(q, k, v), atol=1e-5)
    path.write_bytes(b"kernel f(X[N]) -> Y[i]:\n    Y = X[i] # \xff\n")
    with pytest.raises(tilec.SourceError, match="not UTF-8") as e:
        tilec.load(path)
    assert (e.value.line, e.value.column) == (2, 16)
    with pytest.raises(tilec.ArgumentError, match=r"cannot read .*missing\.tile"):
        tilec.load(tmp_path / "missing.tile")
    with pytest.raises(tilec.ArgumentError, match="cannot read"):
        tilec.load(tmp_path)


def test_windows_line_ends_and_byte_order_mark(tmp_path):
    path = tmp_path / "f.tile"
    path.write_bytes(b"\xef\xbb\xbfkernel f(X[N]) -> Y[i]:\r\n    Y = X[i]\r\n")
    assert tilec.load(path).name == "f"


# ---- PyTorch


def test_torch(causal):
    torch = pytest.importorskip("torch")
    q, k, v = inputs()
    t = [torch.from_numpy(x) for x in (q, k, v)]
    got = causal(*t)
    assert isinstance(got, torch.Tensor)
    np.testing.assert_allclose(got.numpy(), attention(q, k, v), atol=1e-5)
    half = causal(*(x.bfloat16().transpose(2, 3).contiguous().transpose(2, 3) for x in t))
    assert half.dtype == torch.bfloat16
    np.testing.assert_allclose(half.float().numpy(), attention(q, k, v), atol=5e-2)
    out = torch.empty(1, 2, 20, 12)
    assert causal(*t, out=out) is out
    np.testing.assert_allclose(out.numpy(), attention(q, k, v), atol=1e-5)


# ---- JAX


def test_torch_outputs_of_every_rank():
    torch = pytest.importorskip("torch")
    text = "kernel f(X[N, M]) -> A[], B[i], C[j, i]:\n    C = X[i, j] + 1\n    B = sum[j](C)\n    A = sum[i](B)\n"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    kernel = tilec.compile(text)
    for _ in range(2):  # the second call is a repeat
        got = kernel(torch.from_numpy(x))
        for g, want in zip(got, kernel.reference(x), strict=True):
            assert g.shape == want.shape
            np.testing.assert_array_equal(g.numpy(), want)


def test_jax(causal):
    jax = pytest.importorskip("jax")
    q, k, v = inputs()
    t = [jax.numpy.asarray(x) for x in (q, k, v)]
    got = causal(*t)
    assert isinstance(got, jax.Array)
    np.testing.assert_allclose(np.asarray(got), attention(q, k, v), atol=1e-5)
    half = causal(*(x.astype(jax.numpy.bfloat16) for x in t))
    assert half.dtype == jax.numpy.bfloat16
    with pytest.raises(tilec.ArgumentError, match="argument out .* cannot be written"):
        causal(*t, out=jax.numpy.zeros((1, 2, 20, 12)))
    with pytest.raises(tilec.ArgumentError, match="argument Q: .* tracing"):
        jax.jit(lambda x: causal(x, *t[1:]))(t[0])


@pytest.mark.parametrize(
    "mask", ["j - i < n", "i - j <= n", "abs(i - j) <= n", "j <= n", "i < n", "-j > n"]
)
def test_scalars_at_the_ends_of_64_bits(mask):
    """No bound of a loop may need more than 64 bits where the program does not."""
    text = f"""
kernel far(Q[M, D], K[N, D], n: int) -> O[i, d]:
    S = sum[d](Q[i, d] * K[j, d]) if {mask} else -inf
    O = sum[j](softmax[j](S) * K[j, d])
"""
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((n, 4), dtype=np.float32) for n in (9, 300))
    cpu, reference = (tilec.compile(text, target=t) for t in ("cpu", "reference"))
    for n in (2**63 - 1, 2**63 - 9, 40, -(2**63), -(2**63) + 1):
        np.testing.assert_allclose(cpu(q, k, n=n), reference(q, k, n=n), 1e-4, 1e-4)


@pytest.mark.parametrize("target", ["reference", "cpu"])
def test_the_least_integer_can_be_written(target):
    low = -(2**63)
    text = f"kernel f(X: i64[N], n: int = {low}) -> O: i64[i], P: i64[i]:\n    O = {low} if X[i] == n else -(-X[i])\n"
    kernel = tilec.compile(text + f"    P = -({low})\n", target=target)
    o, p = kernel(np.array([low, 3], np.int64))
    assert o.tolist() == [low, 3]
    assert p.tolist() == [low, low]  # it wraps: the least integer has no counterpart
