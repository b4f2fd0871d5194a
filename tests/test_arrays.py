"""Arrays of several libraries, described without copying."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilec
from tilec import arrays
from tilec.dtypes import NUMPY_NAMES
from tilec.errors import ArgumentError

A = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


@pytest.mark.parametrize("dtype", NUMPY_NAMES)
def test_every_element_type(dtype):
    a = np.zeros(3, arrays.numpy_dtype(dtype))
    v = arrays.view("X", a)
    assert (v.dtype, v.pointer, v.shape, v.strides) == (dtype, a.ctypes.data, (3,), (1,))
    assert arrays.allocator("numpy", (2, 2), dtype)().dtype == a.dtype


@pytest.mark.parametrize(
    ("a", "strides"),
    [
        (A.transpose(2, 0, 1), (1, 12, 4)),
        (A[:, ::-1], (12, -4, 1)),
        (A[:, ::2, 1:], (12, 8, 1)),
        (np.broadcast_to(np.float32(3), (2, 5)), (0, 0)),
        (np.lib.stride_tricks.as_strided(A, (2, 2), (4, 4)), (1, 1)),
    ],
)
def test_strides_count_elements_and_nothing_is_copied(a, strides):
    v = arrays.view("X", a)
    assert v.strides == strides
    assert v.pointer == a.__array_interface__["data"][0]
    assert v.numpy() is v.owner
    assert np.shares_memory(v.owner, a)


def test_elements_at_odd_places_are_copied():
    packed = np.zeros(5, dtype=[("x", "u1"), ("y", "<f4")])
    packed["y"] = np.arange(5)
    v = arrays.view("X", packed["y"])
    assert v.strides == (1,)
    assert v.numpy().tolist() == [0, 1, 2, 3, 4]
    assert not v.writable


def test_read_only_is_seen():
    a = A.copy()
    a.flags.writeable = False
    assert not arrays.view("X", a).writable
    assert arrays.view("X", A.copy()).writable


@pytest.mark.parametrize(
    ("x", "words"),
    [
        ([1.0, 2.0], ["argument X", "list"]),
        (3.0, ["argument X", "float"]),
        (None, ["argument X", "got None"]),
        (A.astype(">f4"), ["argument X", ">f4", "astype"]),
        (A.astype(complex), ["argument X", "complex128"]),
        (np.array([object()]), ["argument X", "object"]),
        (np.array(["a"]), ["argument X", "str"]),
        (A.astype(np.uint32), ["argument X", "uint32"]),
        (np.ma.masked_array(A, A > 3), ["argument X", "masked"]),
    ],
)
def test_what_is_no_array_is_refused(x, words):
    with pytest.raises(ArgumentError) as e:
        arrays.view("X", x)
    assert all(w in str(e.value) for w in words), str(e.value)


class OnGpu:
    """An array that says it lives on a CUDA device."""

    __cuda_array_interface__ = {"shape": (2,), "typestr": "<f4", "data": (16, False), "version": 3}


class OverDlpack:
    """An array of a library that tilec has never heard of."""

    def __init__(self, a):
        self.a = a

    def __dlpack__(self, **options):
        return self.a.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.a.__dlpack_device__()


def test_devices():
    assert arrays.device_of(A) == "cpu"
    assert arrays.device_of(OnGpu()) == "cuda"
    assert arrays.device_of(OverDlpack(A)) == "cpu"
    with pytest.raises(ArgumentError, match="argument X: .*'cuda'.* move it first"):
        arrays.view("X", OnGpu())


def test_dlpack_shares_memory():
    a = A.copy()
    v = arrays.view("X", OverDlpack(a.transpose(1, 0, 2)))
    assert (v.shape, v.strides, v.dtype) == ((3, 2, 4), (4, 12, 1), "f32")
    assert v.pointer == a.ctypes.data


def test_overlap_is_exact():
    a = np.zeros(10, np.float32)
    view = lambda x: arrays.view("X", x)  # noqa: E731
    assert arrays.overlap(view(a), view(a[3:4]))
    assert not arrays.overlap(view(a[:5]), view(a[5:]))
    assert not arrays.overlap(view(a[::2]), view(a[1::2]))
    assert arrays.overlap(view(a[::-1]), view(a[9:]))
    assert not arrays.overlap(view(a[:0]), view(a))


@pytest.mark.parametrize(
    ("shape", "strides", "same"),
    [
        ((2, 3, 4), (12, 4, 1), False),
        ((4, 2, 3), (1, 12, 4), False),
        ((2, 3), (-3, 1), False),
        ((2, 3), (8, 2), False),
        ((5,), (0,), True),
        ((1,), (0,), False),
        ((), (), False),
        ((0, 3), (0, 1), False),
        ((2, 2), (1, 1), True),
        ((3, 4), (3, 1), True),
        ((2, 3, 4), (0, 4, 1), True),
    ],
)
def test_repeats(shape, strides, same):
    x = arrays.Array(0, "f32", shape, strides, None, "numpy")
    assert arrays.repeats(x) == same


# ---- PyTorch


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


def test_torch_tensors_share_memory(torch):
    t = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4).transpose(0, 2)
    v = arrays.view("X", t)
    assert (v.pointer, v.shape, v.strides, v.library) == (
        t.data_ptr(),
        (4, 3, 2),
        (1, 4, 12),
        "torch",
    )
    assert v.numpy().ctypes.data == t.data_ptr()
    np.testing.assert_array_equal(v.numpy(), t.numpy())


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("bfloat16", "bf16"),
        ("float8_e4m3fn", "f8e4m3"),
        ("float8_e5m2", "f8e5m2"),
        ("float16", "f16"),
    ],
)
def test_torch_small_floats(torch, name, dtype):
    t = torch.tensor([[1.5, -2.0], [0.5, 4.0]]).to(getattr(torch, name)).t()
    v = arrays.view("X", t)
    assert v.dtype == dtype
    assert v.numpy().astype(np.float64).tolist() == [[1.5, 0.5], [-2.0, 4.0]]
    made = arrays.allocator("torch", (2, 3), dtype)()
    assert (made.dtype, tuple(made.shape)) == (t.dtype, (2, 3))


def test_torch_tensors_that_need_gradients_are_read(torch):
    t = torch.ones(3, requires_grad=True)
    assert arrays.view("X", t).numpy().tolist() == [1, 1, 1]


def test_a_scalar_that_needs_a_gradient_is_refused_as_a_tensor_is(torch):
    kernel = tilec.compile("kernel f(X[M], s: float) -> O[i]:\n    O = X[i] * s\n")
    s = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(ArgumentError, match=r"argument s: .*s\.detach\(\)"):
        kernel(torch.ones(3), s=s)
    assert kernel(torch.ones(3), s=s.detach()).tolist() == [2, 2, 2]


def test_torch_layouts_and_types_that_are_refused(torch):
    with pytest.raises(ArgumentError, match="argument X: .*complex64"):
        arrays.view("X", torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(ArgumentError, match="argument X: .*sparse"):
        arrays.view("X", torch.eye(3).to_sparse())
    with pytest.raises(ArgumentError, match="argument X: .*'meta'"):
        arrays.view("X", torch.zeros(2, device="meta"))


def test_ml_dtypes_are_those_of_numpy_arrays():
    assert arrays.view("X", np.zeros(2, ml_dtypes.bfloat16)).dtype == "bf16"
