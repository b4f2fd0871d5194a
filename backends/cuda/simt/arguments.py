"""The arguments of a kernel: one struct of 8-byte fields, the same for all grids of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilec.backends.cuda import block, call
from tilec.backends.cuda.block import WORDS, WORKSPACE, Parameter, Piece, Pointer
from tilec.backends.cuda.simt.writer import Names
from tilec.dtypes import DType
from tilec.ir import Buffer, Grid, Kernel

STORAGE = {"f64": "double", "f32": "float", "bool": "b8"}
"""C types of elements in memory, where their name differs."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its C type and name, and what it holds. `key` is `(what, name)` or `(what, name, dimension)`."""

    ctype: str
    name: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class Function:
    """A grid's kernel: its name, threads per block, dynamic shared memory in bytes, and workspace bytes per block."""

    name: str
    threads: int
    shared: int
    workspace: int


def storage(dtype: str) -> str:
    """The C type of an element in memory."""
    return STORAGE.get(dtype, dtype)


class Arguments:
    """The fields of a kernel's arguments, in order."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        names = Names(())
        self.fields: list[Field] = []
        self.names: dict[tuple[str, ...], str] = {}
        for ctype, wanted, key in _fields(kernel):
            name = names.fresh(names.of(wanted) if wanted.isidentifier() else "v")
            self.fields.append(Field(ctype, name, key))
            self.names[key] = name

    def get(self, *key: str) -> str:
        """The C expression that reads a field."""
        return f"a.{self.names[key]}"

    def declaration(self) -> str:
        """The struct."""
        lines = [f"  {f.ctype} {f.name};" for f in self.fields]
        return "\n".join(["struct Args {", *lines, "};"])

    def parameter(self, redo: bool) -> Parameter:
        """The struct. `redo`: its kernels run only where the fast ones ask for that."""

        def piece(f: Field) -> Piece:
            match f.key:
                case ("pointer", name):
                    return Pointer(name)
                case ("workspace",):
                    return Pointer(WORKSPACE)
                case ("redo",):
                    return Pointer(WORDS, 4) if redo else block.Field("q", call.NOUGHT)
                case key:
                    return block.Field("d" if f.ctype == "double" else "q", key)

        return tuple(map(piece, self.fields))


def tensors(kernel: Kernel) -> dict[str, tuple[DType, int]]:
    """The element type and rank of everything in memory: parameters, outputs and buffers."""
    out: dict[str, tuple[DType, int]] = {
        name: (t.dtype, len(t.dims)) for name, t in kernel.tensors.items()
    }
    out.update({o.name: (o.dtype, len(o.axes)) for o in kernel.outputs})
    for op in kernel.body:
        if isinstance(op, Buffer):
            out[op.result.name] = op.result.type.dtype, len(op.result.type.axes)
    return out


def _fields(kernel: Kernel) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    for name, (dtype, rank) in tensors(kernel).items():
        yield f"{storage(dtype)}*", name, ("pointer", name)
        for k in range(rank):
            yield "i64", f"{name}_n{k}", ("shape", name, str(k))
            yield "i64", f"{name}_s{k}", ("stride", name, str(k))
    for name in kernel.dims:
        yield "i64", name, ("dim", name)
    for axis in kernel.axes:
        yield "i64", f"{axis.name}_extent", ("extent", axis.name)
    for name, argument in kernel.arguments.items():
        yield ("double" if argument.type == "float" else "i64"), name, ("scalar", name)
    for n, grid in enumerate(x for x in kernel.body if isinstance(x, Grid)):
        yield "i64", f"tasks_{n}", ("tasks", str(n))
        for axis, _ in grid.axes:
            yield "i64", f"tiles_{n}_{axis}", ("tiles", str(n), axis)
    yield "unsigned char*", "spill", ("workspace",)
    yield "u32*", "redo", ("redo",)
