"""The text form of the IR: what `show` prints, `tilec.reader` reads back to an equal kernel.

One rule prints every op, from the roles of its dataclass fields:

    results = word(operands, attribute=value, …) [as (arguments)] [{ region }] [else { region }]

`parts` says for an op class where each field goes; the reader uses the same table.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from dataclasses import dataclass
from typing import Any, Literal, cast

from tilec import scalar
from tilec.ir import Absent, Argument, Body, Kernel, Op, Operand, Output, Tensor, Type, Value

Place = Literal["word", "positional", "spread", "keyword", "arguments", "region"]

LITERALS = {"true": True, "false": False, "inf": float("inf"), "nan": float("nan")}
_RESERVED = frozenset(
    {*LITERALS, "absent", "axis", "assert", "kernel", "as", "if", "else", "and", "or", "not"}
)
_NAME = re.compile(r"[^\W\d]\w*")
_NO_DEFAULT = object()
TEXT = "str | None"
"""The annotation of a field that holds free text."""


@dataclass(frozen=True, slots=True)
class Part:
    """A field of an op class: its name, where it is written, its annotation, its default."""

    name: str
    place: Place
    type: str
    default: Any

    @property
    def required(self) -> bool:
        """Whether the text must give it."""
        return self.default is _NO_DEFAULT


@functools.cache
def parts(op: type[Op]) -> tuple[Part, ...]:
    """The fields of an op class in the order of its text, results and span left out."""
    out: list[Part] = []
    spread = False
    for f in dataclasses.fields(op):
        if f.name in ("results", "span"):
            continue
        role = f.metadata.get("role")
        place: Place
        if f.name in ("fn", "which"):
            place = "word"
        elif role in ("region", "arguments"):
            place = role
        elif role == "operands":
            place, spread = "spread", True
        else:
            # What follows a list of operands must be named, or it would be read as one of them.
            place = "keyword" if f.kw_only or spread else "positional"
        default = _NO_DEFAULT if f.default is dataclasses.MISSING else f.default
        out.append(Part(f.name, place, str(f.type), default))
    return tuple(out)


def show(kernel: Kernel, locations: bool = False, mark: Op | None = None) -> str:
    """The text of a kernel, ending in a line feed.

    `locations` adds the place in the user's program to each op, as a comment. `mark` points at one op.
    """
    params = ", ".join(_parameter(p) for p in kernel.params)
    outputs = ", ".join(_output(o) for o in kernel.outputs)
    lines = [f"kernel {show_name(kernel.name)}({params}) -> {outputs} {{"]
    lines += [f"  axis {show_name(a.name)} < {scalar.show(a.extent, 5)}" for a in kernel.axes]
    lines += [f"  assert {scalar.show(a.condition)}, {_text(a.message)}" for a in kernel.assertions]
    _Printer(lines, locations, mark).body(kernel.body, "  ")
    return "\n".join([*lines, "}", ""])


def show_op(op: Op) -> str:
    """The text of one op, its regions left out."""
    line = _head(op)
    return f"{line} {{…}}" if any(p.place == "region" for p in parts(type(op))) else line


def show_name(name: str) -> str:
    """A name as the text spells it: between backquotes where it would be read as something else."""
    return name if _NAME.fullmatch(name) and name not in _RESERVED else f"`{name}`"


def show_operand(x: Operand) -> str:
    """An operand: a name or a literal."""
    if isinstance(x, str):
        return show_name(x)
    if isinstance(x, bool):
        return "true" if x else "false"
    return "absent" if isinstance(x, Absent) else repr(x)


def show_type(t: Type) -> str:
    """A type: `f32[i:128, d] @reg`."""
    extents = zip(t.axes, t.tile, strict=True)
    axes = ", ".join(show_name(a) if n is None else f"{show_name(a)}:{n}" for a, n in extents)
    return t.dtype + (f"[{axes}]" if axes else "") + (f" @{t.space}" if t.space else "")


def _parameter(p: Tensor | Argument) -> str:
    if isinstance(p, Tensor):
        return f"{show_name(p.name)}: {p.dtype}[{', '.join(scalar.show(d) for d in p.dims)}]"
    default = "" if p.default is None else f" = {scalar.show(p.default)}"
    return f"{show_name(p.name)}: {p.type}{default}"


def _output(o: Output) -> str:
    return f"{show_name(o.name)}: {o.dtype}[{', '.join(show_name(a) for a in o.axes)}]"


def _value(v: Value) -> str:
    return f"{show_name(v.name)}: {show_type(v.type)}"


@dataclass
class _Printer:
    lines: list[str]
    locations: bool
    mark: Op | None

    def body(self, body: Body, indent: str) -> None:
        for op in body:
            self.op(op, indent)

    def op(self, op: Op, indent: str) -> None:
        line = _head(op)
        note = ""
        if self.locations and op.span:
            note = f"  # {op.span}"
        if op is self.mark:
            note += "  # <-- here"
        for n, part in enumerate(p for p in parts(type(op)) if p.place == "region"):
            self.lines.append(f"{indent}{'} else' if n else line} {{{'' if n else note}")
            self.body(getattr(op, part.name), indent + "  ")
            line, note = "}", ""
        self.lines.append(indent + line + note)


def _head(op: Op) -> str:
    word, inside, arguments = op.word, list[str](), ""
    for part in parts(type(op)):
        x: Any = getattr(op, part.name)
        if part.place == "word":
            word = x
        elif part.place == "positional":
            inside.append(show_operand(x))
        elif part.place == "spread":
            inside.extend(show_operand(y) for y in x)
        elif part.place == "keyword" and (part.required or x != part.default):
            inside.append(f"{part.name}={_text(x) if part.type == TEXT else _attribute(x)}")
        elif part.place == "arguments":
            arguments = f" as ({', '.join(_arguments(op.results, x))})"
    results = ", ".join(_value(v) for v in op.results)
    return f"{results}{' = ' if results else ''}{word}({', '.join(inside)}){arguments}"


def _arguments(results: tuple[Value, ...], arguments: tuple[Value, ...]) -> list[str]:
    """Block arguments: without their types where these are the results' own."""
    own = [v.type for v in results]
    if own == [v.type for v in arguments]:
        return [show_name(v.name) for v in arguments]
    return [_value(v) for v in arguments]


def _text(x: str) -> str:
    return json.dumps(x, ensure_ascii=False)


def _attribute(x: Any) -> str:
    if not isinstance(x, tuple):
        return show_operand(x)
    items = cast("tuple[Any, ...]", x)
    if any(isinstance(y, tuple) for y in items):
        return f"[{', '.join(f'{show_name(a)}:{n}' for a, n in items)}]"
    names = [show_name(y) for y in items]
    return names[0] if len(names) == 1 else f"[{', '.join(names)}]"
