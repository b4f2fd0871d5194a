"""A kernel's source: a checked program and which of its kernels is meant."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tilec import choices, outline, plain
from tilec.dtypes import DType
from tilec.errors import ArgumentError, Diagnostic, SourceError, Span
from tilec.ir import Kernel
from tilec.lines import ended
from tilec.shelf import Shelf

if TYPE_CHECKING:
    from tilec.check import Assumed
    from tilec.syntax import KernelDef, Program


@dataclass(frozen=True)
class Facts:
    """What calls need to know of a kernel as written.

    `kernels`: all of the program; `name`: this one. `header`: its IR without ops, with f32 for every untyped tensor that may
    be one. `untyped`: the tensor parameters whose element type is that of the argument, in order; `assumed`: what their use
    asks for where floats will not do; `following`: the outputs whose type is that of the first float tensor. `sizes`: those
    that the program states.
    """

    kernels: tuple[str, ...]
    name: str
    header: Kernel
    untyped: tuple[str, ...]
    assumed: dict[str, DType]
    following: tuple[str, ...]
    sizes: dict[str, int]


KNOWN = outline.HEADER | plain.classes(Facts)


class Source:
    """A kernel of a program that has no mistakes; None for the first. The text is read where more is asked than its facts.

    Raises SourceError with all mistakes of the program, ArgumentError for a name that it lacks.
    """

    def __init__(self, text: str, file: str, name: str | None = None) -> None:
        self.text, self.file = choices.text("the program's text", text), file
        if name is not None:
            choices.text("name", name)
        self.shelf = Shelf("program", text, name)
        self._asked = name
        self.facts = self.shelf.kept(Facts, self._facts, KNOWN)
        self.name, self.untyped = self.facts.name, self.facts.untyped
        self.header, self.sizes = outline.placed(self.facts.header, file), self.facts.sizes

    def other(self, name: str) -> Source:
        """Another kernel of the same program."""
        return Source(self.text, self.file, name)

    @functools.cached_property
    def _checked(self) -> tuple[Program, Assumed]:
        """The program, and what its kernels ask of untyped tensors."""
        from tilec.check import check
        from tilec.parse import parse

        program = parse(self.text, self.file)
        return program, check(program)

    @property
    def program(self) -> Program:
        """The program as written."""
        return self._checked[0]

    def _facts(self) -> Facts:
        from tilec.check import lower

        program, assumed = self._checked
        name = _pick(list(program.kernels), self._asked, self.file)
        written = program.kernels[name]
        params = (p for p in written.params if p.dims is not None and p.type is None)
        untyped = tuple(p.name.name for p in params)
        header = outline.header(
            lower(program, name, {**dict.fromkeys(untyped, "f32"), **assumed[name]})
        )
        following = tuple(o.name.name for o in written.outputs if o.type is None)
        sizes = {d: n for d, n in program.sizes.items() if d in header.dims}
        kernels = tuple(program.kernels)
        return Facts(kernels, name, header, untyped, dict(assumed[name]), following, sizes)

    @property
    def definition(self) -> KernelDef:
        """The kernel as written."""
        return self.program.kernels[self.name]

    def types(self, dtype: DType) -> dict[str, DType]:
        """An element type for each untyped tensor: `dtype`, or what its use asks for where floats will not do."""
        return {**dict.fromkeys(self.untyped, dtype), **self.facts.assumed}

    def own(self, sizes: Mapping[str, object]) -> dict[str, int]:
        """Sizes given by the user. Raises ArgumentError for one of a dimension that the kernel lacks, or of no use."""
        dims = self.header.dims
        for n in sizes:
            if n not in dims:
                raise ArgumentError(
                    f"{self.name} has no dimension {n!r}; its dimensions are {', '.join(dims)}"
                )
        return choices.sizes(sizes)

    def all_sizes(self, sizes: Mapping[str, object]) -> dict[str, int]:
        """The program's sizes with those given on top. Raises ArgumentError for one that is missing or unknown."""
        known = {**self.sizes, **self.own(sizes)}
        dims = self.header.dims
        lacking = [d for d in dims if d not in known]
        if lacking:
            raise ArgumentError(
                f"no size is known for {', '.join(lacking)}; give it, or add `sizes {lacking[0]}=…` to the program"
            )
        return {d: known[d] for d in dims}

    def written(self, element: Span, position: int) -> str:
        """An index of an element of a tensor, as written; empty where it is long or not to be found."""
        from tilec.scope import Report
        from tilec.syntax import elements

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


def _pick(kernels: list[str], name: str | None, file: str) -> str:
    if name is None:
        return kernels[0]
    if name in kernels:
        return name
    near = difflib.get_close_matches(name, kernels, 1)
    hint = f"; did you mean {near[0]}?" if near else f"; it has {', '.join(kernels)}"
    raise ArgumentError(f"{file} has no kernel {name!r}{hint}")


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
    try:
        data = Path(file).read_bytes()
    except (OSError, ValueError) as e:  # ValueError: a NUL in the name
        hint = _near(file) if isinstance(e, FileNotFoundError) else ""
        raise ArgumentError(f"cannot read {file}: {getattr(e, 'strerror', None) or e}{hint}") from e
    return decode(data, file)


def decode(data: bytes, file: str) -> str:
    """The text of a file's bytes, whose lines may end as on any system. Raises SourceError where they are not UTF-8."""
    try:
        return ended(data.decode("utf-8-sig"))
    except UnicodeDecodeError as e:
        before = ended(data[: e.start].decode("utf-8", "replace"))
        line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
        message = f"byte 0x{data[e.start]:02x} is not UTF-8 text"
        diagnostic = Diagnostic(
            Span(file, line, column, line, column + 1), message, "save the file as UTF-8"
        )
        raise SourceError([diagnostic], ended(data.decode("utf-8", "replace"))) from None
