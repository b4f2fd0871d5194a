"""The arguments of a call: those of a file, or sample data of the sizes that the command line gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from tilec.cli import files, options
from tilec.dtypes import SIZES, kind
from tilec.errors import ArgumentError
from tilec.scalar import Number

if TYPE_CHECKING:
    from tilec.kernel import Kernel


@dataclass(frozen=True)
class Asked:
    """What the command line says of the arguments: `--input`, `--size`, `--dtype`, `--set`, `--seed`."""

    file: str | None
    size: options.Strings
    dtype: str | None
    set: options.Strings
    seed: int

    @property
    def scalars(self) -> dict[str, Number]:
        return options.scalars(self.set)

    def tensors(self, kernel: Kernel) -> dict[str, Any]:
        """The tensors of a call, by name."""
        if self.file is None:
            wanted = options.element_type(self.dtype, kernel.target)
            return kernel.sample(self.seed, dtype=wanted, **options.sizes(kernel, self.size))
        if self.size:
            raise typer.BadParameter("the sizes are those of --input", param_hint="--size")
        return from_file(kernel, self.file, self.dtype)


def from_file(kernel: Kernel, file: str, dtype: str | None) -> dict[str, Any]:
    """The arguments in an .npz file, each with its element type."""
    arrays = _read(file)
    types = {p.name: p.type for p in kernel.parameters}
    untyped = {p.name for p in kernel.parameters if p.type is None}
    wanted = None if dtype is None else options.element_type(dtype)
    return {
        name: _typed(a, wanted if name in untyped else types.get(name))
        for name, a in arrays.items()
    }


def _read(file: str) -> dict[str, Any]:
    """The arrays of an .npz file. Nothing in it is executed: pickled objects are refused."""
    import zipfile

    import numpy

    try:
        found: Any = numpy.load(file, allow_pickle=False)
        if isinstance(found, numpy.ndarray):
            raise ArgumentError(f"{file} holds one array without a name; expected an .npz file")
        with found:
            return {name: found[name] for name in found.files}
    except ValueError as e:
        raise ArgumentError(
            f"cannot read {file}: it is no .npz file of plain arrays (objects are not loaded)"
        ) from e
    except (OSError, EOFError, KeyError, zipfile.BadZipFile) as e:
        raise ArgumentError(f"cannot read {file}: {getattr(e, 'strerror', None) or e}") from e


def _typed(a: Any, dtype: Any) -> Any:
    """An array of a file with its element type: 16- and 8-bit floats that NumPy lacks come as plain bytes."""
    from tilec.arrays import numpy_dtype

    if dtype not in SIZES:
        return a
    want = numpy_dtype(dtype)
    if a.dtype.kind == "V" and a.dtype.itemsize == want.itemsize:
        return a.view(want)
    return a.astype(want) if a.dtype.kind == "f" and kind(dtype) == "float" else a


def to_file(file: str, outputs: Mapping[str, Any]) -> None:
    """Writes arrays as an .npz file; 16- and 8-bit floats as f32."""
    import numpy

    plain = {
        n: a if a.dtype.kind in "fiub" and a.dtype.isbuiltin == 1 else a.astype("float32")
        for n, a in outputs.items()
    }
    with files.writing(file) as f:
        numpy.savez(f, **plain)
