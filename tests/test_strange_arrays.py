"""Objects that look like arrays and are none, or have no memory: an error that names them, never a crash."""

from typing import Any

import numpy as np
import pytest

import tilec

KERNEL = tilec.compile(
    "kernel double(Q[M], s: float = 2) -> O[i]:\n    O = Q[i] * s\n", target="cpu"
)


class Broken:
    """Claims DLPack and fails in it."""

    shape, dtype = (3,), np.dtype("float32")

    def __dlpack__(self, **_: Any) -> Any:
        raise KeyError("no")

    def __dlpack_device__(self) -> Any:
        raise RuntimeError("no")


@pytest.mark.parametrize("x", [Broken(), np.ndarray, np, np.dtype("float32"), [1.0], None])
def test_no_array_is_named_as_such(x: Any) -> None:
    for kernel in (KERNEL, tilec.compile("kernel same(Q[M]) -> O[i]:\n    O = Q[i]\n")):
        with pytest.raises(tilec.ArgumentError, match="argument Q"):
            kernel(x)


def test_a_masked_array_of_a_derived_class_is_refused() -> None:
    class Mine(np.ma.MaskedArray):  # type: ignore[type-arg]
        pass

    with pytest.raises(tilec.ArgumentError, match="masked array"):
        KERNEL(np.ma.array(np.ones(3, np.float32)).view(Mine))


def test_tensors_without_memory_are_refused() -> None:
    torch: Any = pytest.importorskip("torch")
    fake = pytest.importorskip("torch._subclasses").FakeTensorMode().from_tensor(torch.zeros(3))
    freed = torch.zeros(3)
    freed.untyped_storage().resize_(0)
    for x in (fake, freed):
        with pytest.raises(tilec.ArgumentError, match="expected a tensor with memory of its own"):
            KERNEL(x)
    with pytest.raises(tilec.ArgumentError, match="expected a tensor with memory of its own"):
        torch.func.vmap(KERNEL)(torch.zeros(2, 3))
    with pytest.raises(tilec.ArgumentError, match="argument s"):
        KERNEL(torch.zeros(3), s=torch.zeros((), device="meta"))


def test_results_for_a_derived_class_of_tensors_are_tensors() -> None:
    torch: Any = pytest.importorskip("torch")
    derived = type("Derived", (torch.Tensor,), {})
    assert isinstance(KERNEL(torch.ones(3).as_subclass(derived)), torch.Tensor)


def test_a_lazily_negated_tensor_is_read_right_and_not_written() -> None:
    torch: Any = pytest.importorskip("torch")
    negated = torch._neg_view(torch.ones(3))
    assert KERNEL(negated).tolist() == [-2, -2, -2]
    with pytest.raises(tilec.ArgumentError, match="cannot be written one by one"):
        KERNEL(torch.ones(3), out=negated)
