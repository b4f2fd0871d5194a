"""fold: heads that share their keys, and positions of rows, as one axis: keys are read once for all of these.

Requires: groups (after online; best after specialise). Changes: the groups that stream something have an axis for the rows
of `group` heads, position by position, in place of the heads' and the positions' axes. What they give is put where it
belongs by groups of their own.

    O_1 = group(axes=[b, h, i]) {              buffer O_r: [b, h_u, i_r, e]
      … load(Q, b, h, i, d) …                  O_2 = group(axes=[b, h_u, i_r]) {
      … load(K, b, h // 4, j, d) …      ->       … load(Q, b, h_u * 4 + i_r % 4, i_r // 4, d) …
      yield(o) }                                 … load(K, b, h_u, j, d) …
    store(O, b, h, i, e, value=O_1)              yield(o) }
                                               store(O_r, b, h_u, i_r, e, value=O_2)
                                               O_1 = group(axes=[b, h, i]) {
                                                 yield(load(O_r, b, h // 4, i * 4 + h % 4, e)) }
                                               store(O, b, h, i, e, value=O_1)

The heads of a group lie next to each other: so a position is that of the rows over a number, and grows with them, which
leaves bounds of loops as tight as they were.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tilec.dataflow import live
from tilec.dtypes import kind
from tilec.folding import FoldingBuilder
from tilec.ir import (
    Axis,
    Body,
    Buffer,
    For,
    Group,
    If,
    Kernel,
    Map,
    Op,
    Operand,
    Store,
    Type,
    Value,
    Yield,
    rebuild,
    walk,
)
from tilec.passes.specialise import fix
from tilec.renaming import fresh, used_names


@dataclass(frozen=True)
class Options:
    """`heads` and `rows`: two axes of the groups; without them nothing changes. `group`: how many heads share their keys, a
    divisor of the length of their axis."""

    heads: str | None = None
    rows: str | None = None
    group: int = 1


def fold(kernel: Kernel, options: Options = Options()) -> Kernel:
    """The kernel with heads and positions in one axis."""
    if options.heads is None or options.rows is None:
        return kernel
    return _Folder(kernel, options.heads, options.rows, options.group).folded()


class _Folder:
    def __init__(self, kernel: Kernel, heads: str, rows: str, group: int) -> None:
        taken = used_names(kernel)
        self.heads, self.rows, self.group = heads, rows, group
        self.shared, self.folded_rows = (fresh(n, taken) for n in (f"{heads}_u", f"{rows}_r"))
        self.kernel = replace(kernel, axes=tuple(self.axes(kernel)))
        self.emit = FoldingBuilder(self.kernel, taken, {})
        self.new: dict[str, Operand] = {}

    def axes(self, kernel: Kernel) -> Iterator[Axis]:
        """The axes, each new one before that whose place it takes."""
        count, extents = self.group, kernel.extents
        for a in kernel.axes:
            if a.name == self.heads:
                yield Axis(self.shared, fix(("floordiv", extents[self.heads], count), {}))
            if a.name == self.rows:
                yield Axis(self.folded_rows, fix(("mul", extents[self.rows], count), {}))
            yield a

    def folded(self) -> Kernel:
        """The kernel; groups without a stream stay as they are."""
        body: list[Op] = []
        for op in self.kernel.body:
            streams = isinstance(op, Group) and any(isinstance(x, For) for x in walk(op.body))
            if isinstance(op, Group) and streams and {self.heads, self.rows} <= set(op.axes):
                body += self.of_group(op)
            else:
                body.append(op)
        return replace(self.kernel, body=tuple(body))

    def of_group(self, op: Group) -> Iterator[Op]:
        """The group over the new axes, and those that put its results where they belong."""
        made = [replace(v, type=self.type(v.type)) for v in op.results]
        made = [replace(v, name=fresh(v.name, self.emit.taken)) for v in made]
        homes = [self.home(old, v) for old, v in zip(op.results, made, strict=True)]
        yield from (Buffer((b,), span=op.span) for b in homes)
        yield replace(
            op,
            results=tuple(made),
            axes=self.type(Type("i64", op.axes)).axes,
            body=live(self.region(op.body)),
        )
        for v, b in zip(made, homes, strict=True):
            yield Store((), b.name, b.type.axes, v.name, span=op.span)
        for v, b in zip(op.results, homes, strict=True):
            yield self.placed(op, v, b)

    def home(self, old: Value, new: Value) -> Value:
        """The buffer of a result, of floats as its output has them."""
        to = {s.tensor for s in self.kernel.body if isinstance(s, Store) and s.value == old.name}
        dtypes = {o.dtype for o in self.kernel.outputs if o.name in to}
        floats = kind(new.type.dtype) == "float" and len(dtypes) == 1
        dtype = dtypes.pop() if floats else new.type.dtype
        name = fresh(f"{old.name}_rows", self.emit.taken)
        return Value(name, replace(new.type, dtype=dtype, space="hbm"))

    def type(self, t: Type) -> Type:
        """A type over the new axes."""
        places = {self.heads: (self.shared, self.folded_rows), self.rows: (self.folded_rows,)}
        axes = {x for a in t.axes for x in places.get(a, (a,))}
        return replace(t, axes=tuple(a for a in self.kernel.extents if a in axes), tile=())

    # ---- inside a group

    def region(self, body: Body) -> Body:
        """A region's ops; the outermost one begins with the position and the head of a row."""
        held, self.emit.ops = self.emit.ops, []
        if self.heads not in self.new:
            e = self.emit.fn
            first = e("mul", self.shared, self.group)
            self.new[self.heads] = e("add", first, e("mod", self.folded_rows, self.group))
            self.new[self.rows] = e("floordiv", self.folded_rows, self.group)
        for op in body:
            self.op(op)
        out, self.emit.ops = tuple(self.emit.ops), held
        return out

    def op(self, op: Op) -> None:
        """An op over the new axes."""
        if isinstance(op, (For, If, Yield)):
            arguments = op.args if isinstance(op, For) else ()
            self.emit.types |= {v.name: self.type(v.type) for v in arguments}
            self.emit.add(rebuild(op, self.of, self.region, self.value))
            return
        name = op.result.name
        self.new[name] = self.shared_by(op) or self.again(op)

    def again(self, op: Op) -> str:
        """The op with new operands, under its name."""
        self.emit.taken.discard(op.result.name)
        return self.emit.again(op, {x: y for x, y in self.new.items() if x != op.result.name})

    def shared_by(self, op: Op) -> Operand | None:
        """What a head is over how many share their keys: the same for all in a group."""
        match op:
            case Map(fn="floordiv", args=(x, int() as n)) if x == self.heads:
                return None if n % self.group else self.quotient(n // self.group)
            case _:
                return None

    def quotient(self, n: int) -> Operand:
        return self.shared if n == 1 else self.emit.map("floordiv", self.shared, n)

    def of(self, x: Operand) -> Operand:
        return self.new.get(x, x) if isinstance(x, str) else x

    def value(self, v: Value) -> Value:
        return replace(v, type=self.type(v.type))

    # ---- the results

    def placed(self, op: Group, v: Value, home: Value) -> Group:
        """A group that gives a result over the axes that it had."""
        emit = FoldingBuilder(self.kernel, self.emit.taken, {})
        emit.types[home.name] = home.type
        row = emit.fn(
            "add", emit.fn("mul", self.rows, self.group), emit.fn("mod", self.heads, self.group)
        )
        places = {
            self.shared: emit.fn("floordiv", self.heads, self.group),
            self.folded_rows: row,
        }
        found = emit.load(home.name, *(places.get(a, a) for a in home.type.axes))
        if home.type.dtype != v.type.dtype:
            found = emit.cast(found, v.type.dtype)
        return Group((v,), axes=op.axes, body=(*emit.ops, Yield((), (found,))), span=op.span)
