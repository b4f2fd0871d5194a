"""Tiles that the loading warps compute: rows of pieces, a piece being 8 adjacent columns, 16 bytes of a tile.

A warp takes a batch of rows at a time. First each thread computes what one of these rows needs: where it begins in memory,
its factors. Then the threads of the warp go through the pieces of the batch: they load what a piece is made of, several
pieces at a time, compute its elements, round them, and write them to their swizzled places. Values of columns alone are made
once, before the rows. Where the elements of a row are not side by side and aligned, they are loaded one by one.

Pieces that are copied as they stand do not pass through registers, and nobody waits for them here: the tile's barrier is
told when they have arrived. So the places of all of a warp's rows are looked up first, then all its copies are under way at
once.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from tilec.backends.cuda.hopper.elements import Elements
from tilec.backends.cuda.hopper.expression import COLUMN, ELEMENT
from tilec.backends.cuda.hopper.pieces import PIECE
from tilec.backends.cuda.hopper.staging import Staged
from tilec.dtypes import SIZES
from tilec.ir import Load

FLIGHT = 32
"""The registers per thread that hold pieces on their way from memory."""
TOGETHER = 6
"""The pieces of bytes that a thread widens side by side: one after the other it would wait for each."""


class Computing(Elements):
    """Writes the loop that computes a tile."""

    @property
    def steps(self) -> int:
        """How many pieces a thread has on their way at a time."""
        held = sum(2 * SIZES[op.result.type.dtype] for op in self.adjacent)
        most = max(1, FLIGHT // max(1, held))
        return max(1, min(most, 8, 16 * self.lanes // 32))

    @property
    def batch(self) -> int:
        """The rows that a warp takes at a time."""
        return self.steps * 32 // self.lanes

    def write(self, to: str, origin: str, full: str | None = None) -> None:
        """The tile whose first row is `origin`, to an address in shared memory. `crew` is the warp's place among them.
        Its rows were looked up. Each thread arrives at the barrier `full` where pieces may be copied; without one they are
        waited for here."""
        out, t = self.out, self.tile
        with out.block(""):
            out.add(f"const u32 tile_place = {to};{self.scope.comment(t.ops[-1])}")
            test = " && ".join(dict.fromkeys(map(self.dense, self.adjacent)))
            if not test or t.width % PIECE:
                self.all_elements(origin, full)
                return
            with out.block(f"if ({test})", "} else {"):
                if self.places:
                    self.copies(full)
                else:
                    self.all_pieces(origin, full)
            out.depth += 1
            self.all_elements(origin, full)
            out.depth -= 1
            out.add("}")

    def all_pieces(self, origin: str, full: str | None) -> None:
        """The loop over pieces that are loaded as a whole."""
        if self.staged:
            self.staged_loop(origin)
        else:
            self.loop(origin, True)
        self.tell(full)

    def all_elements(self, origin: str, full: str | None) -> None:
        """The loop over elements."""
        self.loop(origin, False)
        self.tell(full)

    def tell(self, full: str | None) -> None:
        """Says that a thread has written its part of a tile that may be copied by others."""
        if full is not None and self.tile.copied:
            self.out.add(f"arrive({full});")

    # ---- copies

    def look_up(self, origin: str) -> None:
        """Where the rows are that this warp copies, for each thread of one or more; nothing where pieces are not copied."""
        self.begin(True)
        if not self.is_copy:
            return
        out, op = self.out, self.tile.ops[-1]
        assert isinstance(op, Load)
        self.places = self.names.fresh(self.names.of(op.result.name) + "_rows")
        out.add(f"u64 {self.places}[{self.share.turns}];{self.scope.comment(op)}")
        with self.each_turn():
            self.own_row(origin, self.share.lines)
            out.add(f"{self.places}[lap] = {self.own[op.result.name].text};")

    def copies(self, full: str | None) -> None:
        """Copies of all pieces of the rows that were looked up."""
        out, op = self.out, self.tile.ops[-1]
        assert isinstance(op, Load)
        with self.each_chunk():
            along = self.column(op)
            with self.each_turn(), self.each_piece():
                here = self.names.fresh(self.names.of(op.result.name) + "_here")
                out.add(f"const u64 {here} = __shfl_sync(FULL, {self.places}[lap], source);")
                out.add(f"if ({self.some()}) copy_piece({self.piece_place(0)}, {here} + {along});")
        out.add("pieces_copied();" if full is None else f"copies_arrive({full});")

    def column(self, op: Load) -> str:
        """The bytes between the beginning of a row in memory and a thread's piece of it."""
        along, name = self.loaded.along(op), self.names.fresh("along")
        start = self.first(op.index[along]).text
        length = self.scope.scalar_expression(self.scope.dims(op.tensor)[along]).text
        size = SIZES[op.result.type.dtype]
        self.out.add(f"const u64 {name} = {start} < {length} ? {size} * {start} : NO_COLUMN;")
        return name

    # ---- pieces that are staged

    def ask(self, origin: str) -> None:
        """Copies the pieces of a window to where this thread finds them when it is the window's turn."""
        test = " && ".join(dict.fromkeys(map(self.dense, self.adjacent)))
        self.begin(True)
        self.asking = True
        with self.out.block(f"if ({test})"):
            self.out.add(f"const int piece = lane & {self.lanes - 1};")
            along = {x.load.result.name: self.column(x.load) for x in self.staged}
            with self.each_turn():
                self.own_row(origin, self.share.lines)
                with self.each_piece():
                    for x in self.staged:
                        name = x.load.result.name
                        here = self.names.fresh(self.names.of(name) + "_here")
                        row = self.own[name].text
                        self.out.add(f"const u64 {here} = __shfl_sync(FULL, {row}, source);")
                        copy = (
                            f"copy_ahead<{x.bytes}>({self.staged_place(x)}, {here} + {along[name]})"
                        )
                        self.out.add(f"if ({self.some()}) {copy};")
        self.asking = False

    def staged_place(self, x: Staged) -> str:
        """Where this thread's piece of a step is."""
        number = f"(lap * {self.share.steps} + step) * {self.warps} + crew"
        return f"staged_place + {x.offset} + {x.bytes} * (32 * ({number}) + lane)"

    def staged_loop(self, origin: str) -> None:
        """The loop over pieces that have been asked for."""
        out = self.out
        self.begin(True)
        out.add(f"const int piece = lane & {self.lanes - 1};")
        self.make_columns()
        most = TOGETHER if self.is_bytes else 2
        together = max(n for n in range(1, most + 1) if self.share.steps % n == 0)
        with self.each_turn():
            self.own_row(origin, self.share.lines)
            out.add("#pragma unroll 1")
            with out.block(f"for (int first = 0; first < {self.share.steps}; first += {together})"):
                for x in self.staged:
                    self.staged_pieces(x, together)
                out.add("#pragma unroll")
                with out.block(f"for (int k = 0; k < {together}; k++)"):
                    out.add("const int step = first + k;")
                    self.source()
                    if self.is_bytes:
                        self.widened()
                    else:
                        self.eight(origin)

    def staged_pieces(self, x: Staged, count: int) -> None:
        """Some of this thread's pieces, which have arrived."""
        name = x.load.result.name
        pieces = self.names.fresh(self.names.of(name) + "_staged")
        element = ELEMENT[self.scope.dtype(x.load.tensor)]
        self.out.add(f"Piece<{element}> {pieces}[{count}];")
        self.out.add("#pragma unroll")
        with self.out.block(f"for (int k = 0; k < {count}; k++)"):
            self.out.add("const int step = first + k;")
            self.out.add(f"{pieces}[k] = staged_piece<{element}>({self.staged_place(x)});")
        self.loads[name] = f"{pieces}[k]"

    # ---- loops over a warp's rows

    @contextmanager
    def each_turn(self) -> Generator[None]:
        """A loop over the turns of a warp, each of adjacent rows."""
        self.out.add("#pragma unroll")
        with self.out.block(f"for (int lap = 0; lap < {self.share.turns}; lap++)"):
            self.out.add(
                f"const int first_line = (crew * {self.share.turns} + lap) * {self.share.lines};"
            )
            yield

    @contextmanager
    def each_piece(self) -> Generator[None]:
        """A loop over a thread's pieces of a turn."""
        self.out.add("#pragma unroll")
        with self.out.block(f"for (int step = 0; step < {self.share.steps}; step++)"):
            self.source()
            yield

    def loop(self, origin: str, whole: bool) -> None:
        """The loop over batches. `whole`: pieces are loaded as such."""
        out = self.out
        self.begin(whole)
        if self.is_single:
            out.add(f"const int piece = lane & {self.lanes - 1};")
            if whole:
                self.make_columns()
        step = self.warps * self.batch
        out.add("#pragma unroll 1")
        with out.block(
            f"for (int first_line = crew * {self.batch}; first_line < {self.rows}; first_line += {step})"
        ):
            self.own_row(origin, self.batch)
            with out.block("") if self.is_single else self.each_chunk():
                if not whole:
                    self.one_by_one(origin)
                else:
                    if not self.is_single:
                        self.make_columns()
                    self.flight(origin)

    @contextmanager
    def each_chunk(self) -> Generator[None]:
        """A loop over the pieces of a row, as many at a time as a warp has threads: all of them go through it."""
        if self.is_single:
            self.out.add(f"const int piece = lane & {self.lanes - 1};")
            yield
            return
        self.out.add("#pragma unroll 1")
        with self.out.block(f"for (int chunk = 0; chunk < {self.pieces}; chunk += 32)"):
            self.out.add("const int piece = chunk + lane;")
            yield

    @contextmanager
    def each_step(self) -> Generator[None]:
        """A loop over the pieces that a thread takes of a batch. `source`: the thread that knows its row."""
        self.out.add(f"#pragma unroll{'' if self.whole else ' 1'}")
        with self.out.block(f"for (int step = 0; step < {self.steps}; step++)"):
            self.source()
            yield

    # ---- the pieces of a batch

    def flight(self, origin: str) -> None:
        """The pieces of a batch: all loads, then all elements."""
        moving = [op for op in self.adjacent if not self.is_column(op)]
        for op in moving:
            name = self.names.fresh(self.names.of(op.result.name) + "_load")
            self.loads[op.result.name] = f"{name}[step]"
            element = ELEMENT[self.scope.dtype(op.tensor)]
            self.out.add(f"Piece<{element}> {name}[{self.steps}];")
        if moving:
            with self.each_step():
                for op in moving:
                    self.load_piece(op)
        if self.is_bytes:
            with self.each_step():
                self.widened()
            return
        with self.each_step():
            self.eight(origin)

    def load_piece(self, op: Load) -> None:
        """A piece of a tensor, zeros where it is out of range."""
        out = self.out
        row, element = self.own[op.result.name].text, ELEMENT[self.scope.dtype(op.tensor)]
        at = self.names.fresh(f"{self.names.of(op.result.name)}_here")
        out.add(
            f"const {element}* const {at} = (const {element}*)__shfl_sync(FULL, (u64){row}, source);"
        )
        along = self.loaded.along(op)
        start = self.first(op.index[along]).text
        length = self.scope.scalar_expression(self.scope.dims(op.tensor)[along]).text
        place = f"{at} && {start} < {length} ? {at} + {start} : nullptr"
        out.add(f"{self.loads[op.result.name]} = whole_piece({place});")

    def one_by_one(self, origin: str) -> None:
        """The pieces of a batch, two elements at a time."""
        out = self.out
        with self.each_step():
            self.settle(origin)
            out.add("#pragma unroll 1")
            with out.block(f"for (int word = 0; word < {PIECE // 2}; word++)"):
                two = self.names.fresh(self.names.of(self.root) + "_two")
                out.add(f"float {two}[2];")
                out.add("#pragma unroll")
                with out.block(f"for (int {COLUMN} = 0; {COLUMN} < 2; {COLUMN}++)"):
                    out.add(f"{two}[{COLUMN}] = {self.rounded(f'({PIECE} * piece + 2 * word)')};")
                names = [self.names.fresh(f"part_{n}") for n in range(self.tile.parts)]
                out.add(f"u32 {', '.join(names)};")
                self.packed(f"{two}[0]", f"{two}[1]", names)
                if self.tile.rounded:
                    out.add(f"probe = {self.watch}(probe, {names[0]});")
                with out.block(f"if ({self.some()})"):
                    for n, name in enumerate(names):
                        out.add(f"shared_word({self.piece_place(n)} + 4 * word, {name});")
