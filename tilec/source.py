"""A kernel's source: a checked program and which of its kernels is meant."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tilec import choices
from tilec.dtypes import DType
from tilec.errors import ArgumentError, Span
from tilec.ir import Kernel
from tilec.syntax import KernelDef, Program, elements

if TYPE_CHECKING:
    from tilec.check import Assumed


class Source:
    """A kernel of a checked program. Raises ArgumentError for a name that the program lacks."""

    def __init__(self, program: Program, assumed: Assumed, name: str | None) -> None:
        self.program = program
        self._assumed = assumed
        self.name = self._pick(name)

    @staticmethod
    def of(text: str, file: str, name: str | None = None) -> Source:
        """A kernel of a program given as text; `name` None: the first."""
        return Source(*_checked(choices.text("the program's text", text), file), name)

    def other(self, name: str) -> Source:
        """Another kernel of the same program."""
        return Source(self.program, self._assumed, name)

    def _pick(self, name: str | None) -> str:
        kernels = list(self.program.kernels)
        if name is None:
            return kernels[0]
        if choices.text("name", name) in kernels:
            return name
        near = difflib.get_close_matches(name, kernels, 1)
        hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(kernels)}"
        raise ArgumentError(f"{self.program.file} has no kernel {name!r}{hint}")

    @property
    def definition(self) -> KernelDef:
        """The kernel as written."""
        return self.program.kernels[self.name]

    @functools.cached_property
    def untyped(self) -> tuple[str, ...]:
        """The tensor parameters whose element type is that of the argument, in order."""
        params = self.definition.params
        return tuple(p.name.name for p in params if p.dims is not None and p.type is None)

    def types(self, dtype: DType) -> dict[str, DType]:
        """An element type for each untyped tensor: `dtype`, or what its use asks for where floats will not do."""
        return {**dict.fromkeys(self.untyped, dtype), **self._assumed[self.name]}

    @functools.cached_property
    def untyped_outputs(self) -> frozenset[str]:
        """The outputs whose element type is that of the first float tensor."""
        return frozenset(o.name.name for o in self.definition.outputs if o.type is None)

    @property
    def sizes(self) -> dict[str, int]:
        """The program's `sizes`, as far as the kernel has such dimensions."""
        dims = self.signature.dims
        return {d: n for d, n in self.program.sizes.items() if d in dims}

    def own(self, sizes: Mapping[str, object]) -> dict[str, int]:
        """Sizes given by the user. Raises ArgumentError for one of a dimension that the kernel lacks, or of no use."""
        dims = self.signature.dims
        for n in sizes:
            if n not in dims:
                raise ArgumentError(
                    f"{self.name} has no dimension {n!r}; its dimensions are {', '.join(dims)}"
                )
        return choices.sizes(sizes)

    def all_sizes(self, sizes: Mapping[str, object]) -> dict[str, int]:
        """The program's sizes with those given on top. Raises ArgumentError for one that is missing or unknown."""
        known = {**self.sizes, **self.own(sizes)}
        dims = self.signature.dims
        lacking = [d for d in dims if d not in known]
        if lacking:
            raise ArgumentError(
                f"no size is known for {', '.join(lacking)}; give it, or add `sizes {lacking[0]}=…` to the program"
            )
        return {d: known[d] for d in dims}

    def written(self, element: Span, position: int) -> str:
        """An index of an element of a tensor, as written; empty where it is long or not to be found."""
        from tilec.scope import Report

        found = [e for e in elements(self.definition.body) if e.span == element]
        return Report(self.program.text).quote(found[0].index[position].span, "") if found else ""

    @functools.cached_property
    def signature(self) -> Kernel:
        """The tensor IR with f32 for every untyped tensor that may be one: for what does not depend on element types."""
        return self.lowered({})

    def lowered(self, dtypes: Mapping[str, DType]) -> Kernel:
        """The tensor IR, given the element types of the untyped tensors (for others those of `types`)."""
        from tilec.check import lower

        return lower(self.program, self.name, {**self.types("f32"), **dtypes})


def _checked(text: str, file: str) -> tuple[Program, Assumed]:
    """The program of a text, and what its kernels ask of untyped tensors. Raises SourceError with all of its mistakes."""
    from tilec.check import check
    from tilec.parse import parse

    program = parse(text, file)
    return program, check(program)


def _near(file: str) -> str:
    """What may have been meant by a file that is not there."""
    path, colon, name = file.rpartition(":")
    if colon and Path(path).is_file():
        return f"; to choose a kernel of {path}, give its name: name={name!r}"
    try:
        there = [p.name for p in Path(file).parent.iterdir()]
    except OSError:
        return f"; there is no folder {Path(file).parent}"
    found = difflib.get_close_matches(Path(file).name, there, 1, 0.8)
    return f"; did you mean {Path(file).with_name(found[0])}?" if found else ""


def read(file: str) -> str:
    """The text of a program's file. Raises ArgumentError where it cannot be read, SourceError where it is not UTF-8."""
    from tilec.parse import decode

    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        hint = _near(file) if isinstance(e, FileNotFoundError) else ""
        raise ArgumentError(f"cannot read {file}: {getattr(e, 'strerror', None) or e}{hint}") from e
    return decode(data, file).replace("\r\n", "\n")
