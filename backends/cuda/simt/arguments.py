"""The arguments of a kernel: one struct of 8-byte fields, the same for all grids of a program."""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tilec.backends.cuda.block import Address, Parameter, Piece
from tilec.backends.cuda.simt.text import Names
from tilec.dtypes import DType
from tilec.ir import Buffer, Grid, Kernel

STORAGE = {"f64": "double", "f32": "float", "bool": "b8"}
"""C types of elements in memory, where their name differs."""

ADDRESSES = ("pointer", "workspace", "redo")
"""What fields hold addresses."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field: its C type and name, and what it holds. `key` is `(what, name)` or `(what, name, dimension)`."""

    ctype: str
    name: str
    key: tuple[str, ...]


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

    def pack(self, values: Mapping[tuple[str, ...], int | float]) -> bytes:
        """The struct's bytes: addresses and integers as 64-bit ones, floats as doubles."""
        return b"".join(_packed(f, values) for f in self.fields)

    def parameter(
        self,
        values: Mapping[tuple[str, ...], int | float],
        places: Mapping[str, Address],
        workspace: Address,
        redo: Address | None,
    ) -> Parameter:
        """The struct, with the addresses left open that differ from call to call."""
        pieces: list[Piece] = []
        for key, fixed in self._stretches:
            match key:
                case ("pointer", name):
                    pieces.append(places[name])
                case ("workspace",):
                    pieces.append(workspace)
                case ("redo",):
                    pieces.append(redo or bytes(8))
                case _:
                    assert fixed is not None
                    pieces.append(fixed.pack(values))
        return tuple(pieces)

    @functools.cached_property
    def _stretches(self) -> list[tuple[tuple[str, ...], _Fixed | None]]:
        """The fields that hold addresses, and the stretches of other ones between them."""
        out: list[tuple[tuple[str, ...], _Fixed | None]] = []
        for is_address, some in itertools.groupby(self.fields, lambda f: f.key[0] in ADDRESSES):
            fields = list(some)
            out += [(f.key, None) for f in fields] if is_address else [((), _Fixed(fields))]
        return out


class _Fixed:
    """Fields that lie next to each other and hold no address."""

    def __init__(self, fields: Sequence[Field]) -> None:
        self._struct = struct.Struct("<" + "".join(_code(f) for f in fields))
        self._keys = [(float if _code(f) == "d" else int, f.key) for f in fields]

    def pack(self, values: Mapping[tuple[str, ...], int | float]) -> bytes:
        return self._struct.pack(*[kind(values.get(key, 0)) for kind, key in self._keys])


def _code(f: Field) -> str:
    return "d" if f.ctype == "double" else "q"


def _packed(f: Field, values: Mapping[tuple[str, ...], int | float]) -> bytes:
    x = values.get(f.key, 0)
    return struct.pack("<d", float(x)) if f.ctype == "double" else struct.pack("<q", int(x))


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
