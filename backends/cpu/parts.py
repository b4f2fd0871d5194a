"""Parts of a function as functions of their own, shared by parts that are alike.

Blocks of a streamed axis that differ only in where they begin and end have the same code, and so have the windows with masks
in front of an axis's ragged end and there. Such code is written for each of them and then found to be the same: in the
text of a part, values and blocks are numbered from its beginning, and what it takes from outside is its arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace

from tilec.backends.cpu.llvmir import VOID, Block, Builder, Function, Module, Value
from tilec.ir import Body, Contract, For, If, Op, Operand, rebuild, walk
from tilec.ir import Value as Name

REF = re.compile(r"%[\w.]+")
DEFINED = re.compile(r"^  (%v\d+) = ", re.MULTILINE)
PLACE = re.compile(r", !from !\d+$", re.MULTILINE)


def shape(body: Iterable[Op]) -> Body:
    """A body whose names are numbers, in the order in which they occur; of loops, from where to where does not count."""
    names: dict[str, str] = {}

    def operand(x: Operand) -> Operand:
        return names.setdefault(x, str(len(names))) if isinstance(x, str) else x

    def value(v: Name) -> Name:
        return Name(names.setdefault(v.name, str(len(names))), v.type)

    def region(body: Iterable[Op]) -> Body:
        ops = (
            replace(op, init=(), start=None, stop=None) if isinstance(op, For) else op
            for op in body
        )
        return tuple(rebuild(op, operand, region, value) for op in ops)

    return region(body)


def repeated(body: Body) -> Collection[Body]:
    """The shapes of the loops, and of the regions of branches, that occur in a body more than once and are worth a call."""
    found: Counter[Body] = Counter()
    for op in walk(body):
        match op:
            case For():
                found[shape((op,))] += 1
            case If():
                found.update(map(shape, (op.then, op.orelse)))
            case _:
                pass
    return {s for s, times in found.items() if times > 1 and _long(s)}


def _long(body: Body) -> bool:
    """Whether its code is long: other loops and branches are too short for a call."""
    return any(isinstance(op, Contract) for op in walk(body))


@contextmanager
def apart(module: Module, builder: Builder) -> Generator[None]:
    """What is written in here becomes a function, which is called. Nothing that follows may use a value from in here."""
    caller, before = builder.block.function, builder.block
    first = len(caller.blocks)
    builder.position_at_end(caller.append_basic_block("part"))
    yield
    builder.ret_void()
    blocks = caller.blocks[first:]
    del caller.blocks[first:]
    builder.position_at_end(before)
    _call(module, builder, caller, blocks)


def _call(module: Module, builder: Builder, caller: Function, blocks: Sequence[Block]) -> None:
    part = Function(module, VOID, [], f"part_{len(module.parts)}")
    part.linkage, part.attributes = "internal", {"noinline", "nounwind"}
    texts = [b.text() for b in blocks]
    names = _Names(caller, part, {ref for text in texts for ref in DEFINED.findall(text)})
    for b in blocks:
        names[f"%{b.name}"] = f"%{part.append_basic_block(b.word).name}"
    for block, text in zip(part.blocks, texts, strict=True):
        renamed = REF.sub(lambda found: names[found[0]], text)
        *lines, block.end = renamed.split("\n")
        block.lines += lines
    body = part.body()
    same = module.part(part, PLACE.sub("", body) if module.placed else body)
    builder.call(same, names.taken)


class _Names(dict[str, str]):
    """What the references of a caller are in its part. `defined`: the values of the part's own."""

    def __init__(self, caller: Function, part: Function, defined: Collection[str]) -> None:
        super().__init__()
        self.caller, self.part, self.defined = caller, part, defined
        self.taken: list[Value] = []

    def __missing__(self, ref: str) -> str:
        t = self.caller.type_of(ref)
        if ref in self.defined:
            self[ref] = self.part.fresh(t)
        else:
            self.taken.append(Value(t, ref))
            self[ref] = self.part.argument(t)
        return self[ref]
