"""Emits the ops of a block on a thread's part of the tiles.

A value has a layout by its axes: a scalar is one variable; a value per row is two (rows g and g + 8 of the warp's 16); a
tile of rows and columns is a fragment, four elements in each block of 8 columns. Fragments are not stored: an element is
computed where it is used, in a loop over the blocks of columns, except contractions and what is dear and used
twice. A loop is written as late as possible, so that all that is made of an element is made in one loop: the *roots* are
reductions, weights packed for the next contraction, and stored fragments.

A sum along a row may stay in parts, one per thread of the four that share the row: it is *partial* until something
needs the total.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from tilec.backends.cuda.fast import Refused
from tilec.backends.cuda.hopper.analysis import Analysis, Root, is_masked
from tilec.backends.cuda.hopper.expression import (
    Expression,
    literal,
)
from tilec.backends.cuda.hopper.loop import FragmentLoop
from tilec.dataflow import names_in
from tilec.ir import (
    Body,
    If,
    Load,
    Map,
    Op,
    Operand,
    Reduce,
    Value,
    Yield,
    operands,
    walk,
)


class BlockEmitter(Analysis):
    """Emits the middle of one block."""

    def begin(self) -> None:
        """Cuts the heads off at the axis's end, and guesses the maxima of a first window."""
        columns = self.structure.columns
        for h in sorted(self.cut & self.arrays.keys() - self.keep.keys()):
            array = self.arrays[h]
            self.out.add("#pragma unroll")
            with self.out.block(f"for (int c = 0; c < {columns // 8}; c++) EACH"):
                self.out.add(
                    f"if (8 * c + (x & 1) >= rest) {array}[{2 * self.scope.held} * c + x] = NEG_INF;"
                )
        kept = [x for x in self.guesses.values() if x in self.keep and self.data_masks(x)]
        self.pending += [Root("keep", x, array=self.keep[x]) for x in kept]
        self.flush()
        rough, self.rough = self.rough, False
        for slot, x in self.guesses.items():
            FragmentLoop(self, []).guess(x, self.registers.slots[slot], again=x in kept)
        self.rough = rough

    def data_masks(self, x: str) -> bool:
        """Whether data decide which elements of a masked value count. Its first columns may be none of a row's."""
        op = self.defs[x]
        if x in self.late or not isinstance(op, Map) or not is_masked(op):
            return False
        found = self._inputs(str(op.args[0])) if isinstance(op.args[0], str) else set[str]()
        return any(isinstance(self.defs.get(y), Load) for y in found)

    # ---- regions

    def emit(self, ops: Sequence[Op]) -> None:
        """Emits straight ops, and what they need."""
        for op in ops:
            if isinstance(op, Yield) or not any(v.name in self.needed for v in op.results):
                continue
            self.op(op)
        self.flush()

    def op(self, op: Op) -> None:
        """One op: at once where it is scalar or per row, later where it is a fragment."""
        s = self.structure
        if isinstance(op, If):
            self.flush()
            self.branch(op)
            return
        axes = op.result.type.axes
        if isinstance(op, Reduce):
            if op.fn != "all":
                self.pending.append(self.reduction(op))
                if op.fn == "sum":
                    self.partial.add(op.result.name)
            return
        name = op.result.name
        if s.stream in axes:
            for parts, dtype in self.packs.get(name, []):
                self.pending.append(Root("pack", name, parts=parts, dtype=dtype))
            if name in self.keep and name not in self.late and name not in self.arrays:
                self.pending.append(Root("keep", name, array=self.keep[name]))
            return
        if len(axes) == 2:
            self.scale(op)
            return
        if op.result.type.dtype == "bool" and axes == (s.row,) and self._only_tested(name):
            return
        waiting = {r.op.result.name for r in self.pending if r.op is not None}
        if waiting & self._inputs_of_row(op):
            self.flush()
        self.row(op)

    def reduction(self, op: Reduce) -> Root:
        """The root of a reduction; a maximum of scaled values is the scaled maximum."""
        x = str(op.args[0])
        inner = self.defs.get(x)
        if op.fn != "sum" and x in self.factors:
            return Root("reduce", x, op=op, factor=self.factors[x])
        if op.fn != "sum" and isinstance(inner, Map) and inner.fn == "mul" and x not in self.keep:
            for y, c in (inner.args, inner.args[::-1]):
                if (
                    isinstance(c, float)
                    and 0.0 < c < math.inf
                    and isinstance(y, str)
                    and self.scope.axes(y) == self.scope.axes(x)
                ):
                    return Root("reduce", y, op=op, factor=c)
        return Root("reduce", x, op=op)

    def _inputs_of_row(self, op: Op) -> set[str]:
        return set(names_in(operands(op)))

    def _only_tested(self, name: str) -> bool:
        users = [o for o in walk(self.block.middle) if name in operands(o)]
        return all(isinstance(o, Reduce) and o.fn == "all" for o in users)

    def row(self, op: Op) -> None:
        """A scalar or row value; a sum of parts stays one."""
        if isinstance(op, Map) and op.result.type.axes == (self.structure.row,):
            parts = [x in self.partial for x in op.args]
            linear = (op.fn == "add" and all(parts)) or (op.fn == "mul" and sum(parts) == 1)
            if linear:
                self.partial.add(op.result.name)
                self.scope.declare(op)
                return
        for x in names_in(operands(op)):
            self.total(x)
        self.scope.declare(op)

    def scale(self, op: Op) -> None:
        """An accumulator times a row value, in place. In the first window it is 0."""
        assert isinstance(op, Map)
        for x, f in (op.args, op.args[::-1]):
            slot = self.slot_of.get(str(x))
            if slot is None or not self.structure.slots[slot].width:
                continue
            self.slot_of[op.result.name] = slot
            if self.first:
                return
            waiting = {r.op.result.name for r in self.pending if r.op is not None}
            if str(f) in waiting:
                self.flush()
            array = self.registers.slots[slot]
            if self.scope.axes(f) == (self.structure.row,):
                self.total(str(f))
                self.out.add(
                    f"scale({array}, {self.scope.values[str(f)].text});{self.scope.comment(op)}"
                )
                return
            factor = self.scope.operand(f).real().text
            name = self.names.fresh("factor")
            each = ", ".join([factor] * self.scope.held)
            self.out.add(
                f"const float {name}[{self.scope.held}] = {{{each}}}; scale({array}, {name});"
            )
            return
        raise Refused(f"{op.result.name} scales no accumulator")

    # ---- loops over a fragment

    def flush(self) -> None:
        """Writes the loop over the fragment that makes all pending roots."""
        if not self.pending:
            return
        roots, self.pending = self.pending, []
        loop = FragmentLoop(self, roots)
        loop.write()

    # ---- branches

    def branch(self, op: If) -> None:
        """A relaxed `if`: each warp decides for its rows. In the first window the exact arm is taken."""
        rows = [
            (k, v)
            for k, v in enumerate(op.results)
            if v.type.axes == (self.structure.row,) and v.name in self.needed
        ]
        for _, v in rows:
            name = self.names.of(v.name)
            self.scope.values[v.name] = Expression(name, "float")
            self.out.add(f"float {name}[{self.scope.held}];")
        words = dict(self.words)
        if self.exact_only:
            with self.out.block(""):
                self.arm(op.orelse, rows)
        else:
            test = " & ".join([self.condition(op.cond), *self.conditions])
            with self.out.block(f"if (__builtin_expect(__all_sync(FULL, {test}), 1))", "} else {"):
                self.arm(op.then, rows)
            self.words = dict(words)
            self.out.depth += 1
            begin = len(self.out.lines)
            self.exact(op.orelse, rows)
            self.read_again(begin, words.values())
            self.out.depth -= 1
            self.out.add("}")
        self.words = words
        end = op.orelse[-1]
        assert isinstance(end, Yield)
        for v, y in zip(op.results, end.values, strict=True):
            if str(y) in self.slot_of:
                self.slot_of[v.name] = self.slot_of[str(y)]

    def read_again(self, begin: int, words: Iterable[str]) -> None:
        """Hides that words of masks are the same in both arms, in the one that has begun at a line. Of each bit that both
        test, the compiler would keep the predicate, for two instructions in the arm that runs."""
        used = {w for line in self.out.lines[begin:] for w in re.findall(r"[A-Za-z_]\w*", line)}
        for word in sorted(used.intersection(w.removesuffix("[r]") for w in words)):
            self.out.lines.insert(begin, "  " * self.out.depth + f"read_again({word});")

    def exact(self, body: Body, rows: list[tuple[int, Value]]) -> None:
        """The arm that is right for all values; it computes again what was computed for small ones only."""
        arrays, rough, self.rough = dict(self.arrays), self.rough, False
        self.pending += [Root("keep", n, array=self.keep[n]) for n in self.late if n in self.needed]
        self.flush()
        self.arm(body, rows)
        self.arrays, self.rough = arrays, rough

    def arm(self, body: Body, rows: list[tuple[int, Value]]) -> None:
        """One arm: its ops, then its results."""
        values, partial = dict(self.scope.values), set(self.partial)
        self.emit(body)
        end = body[-1]
        assert isinstance(end, Yield)
        for k, v in rows:
            text = self.carried(end.values[k], self.wanted_partial(v.name))
            self.out.add(f"ROWS {self.names.of(v.name)}[r] = {text};")
        self.scope.values = values
        self.partial = partial | {v.name for _, v in rows if self.wanted_partial(v.name)}

    def carried(self, y: Operand, in_parts: bool) -> str:
        """A row value as it is carried on: the total, or in parts, of which one thread may have all."""
        if not in_parts:
            if isinstance(y, str):
                self.total(y)
            return self.scope.operand(y).real().text
        text = self.scope.operand(y).real().text
        return text if y in self.partial else f"((lane & 3) ? 0.f : {text})"

    def wanted_partial(self, name: str) -> bool:
        """Whether a result of a branch becomes a carried value that is kept in parts."""
        return any(
            y == name and k in self.registers.partial for k, y in enumerate(self.block.yields)
        )

    def condition(self, x: Operand) -> str:
        """A test of all rows, for this thread's part: parts of sums are tested against a quarter of the limit."""
        op = self.defs.get(str(x))
        if isinstance(op, Map) and op.fn == "and":
            return " & ".join(self.condition(y) for y in op.args)
        assert isinstance(op, Reduce)
        inner = self.defs[str(op.args[0])]
        assert isinstance(inner, Map)
        assert inner.fn == "le"
        total, limit = inner.args
        assert isinstance(limit, float)
        name = self.scope.values[str(total)].text
        bound = literal(limit / 4 if total in self.partial else limit).text
        return " & ".join(f"({name}[{r}] <= {bound})" for r in range(self.scope.held))

    # ---- the end of a block

    def finish(self) -> None:
        """The carried row values for the next window."""
        block = self.block
        for k, (arg, y) in enumerate(zip(block.args, block.yields, strict=True)):
            if self.structure.slots[k].width or y == arg:
                continue
            if isinstance(y, str) and y in block.args:
                raise Refused("its carried values change places")
            text = self.carried(y, k in self.registers.partial)
            self.out.add(f"ROWS {self.registers.slots[k]}[r] = {text};")
        for slot, base in block.bases.items():
            if self.slot_of.get(str(base)) != slot:
                raise Refused(
                    f"{base}, which {self.structure.slots[slot].name} begins from, is not its old value"
                )
