"""Which tile is next: the first loading warp finds it and says where it is, all others hear it."""

from __future__ import annotations

from tilec.backends.cuda.hopper.expression import POSITION, Expression
from tilec.backends.cuda.hopper.roles import Roles


class Dealing(Roles):
    """Writes how the tiles of the grid are dealt out. A tile is known by its first row, `origin`, and its place on each
    other axis of the grid; `turn` counts the tiles of a block."""

    @property
    def told(self) -> list[str]:
        """The variables that all roles hear: where a tile is, and its loops, where no data decides about them."""
        loops = () if self.s.chosen else range(len(self.s.loops))
        return [*self.places, *(f"{x}_{k}" for k in loops for x in ("start", "windows"))]

    def count(self) -> None:
        """The tiles of the grid."""
        out, size = self.out, self.s.rows
        rows = self.scope.extent(self.s.row).text
        out.add(f"const int row_tiles = ({rows} + {size - 1}) / {size};")
        heads = " * ".join(f"({self.scope.extent(a).text})" for a, _ in self.others) or "1"
        out.add(f"const int heads = {heads};")
        out.add("const int tiles = row_tiles * heads;")

    def read_dims(self) -> None:
        """Dimensions that the compiler takes for others at each turn. What it makes of them, such as the reciprocals that it
        divides by, would lie in registers from one tile to the next, of which a loading thread has few."""
        for d in self.kernel.dims:
            name = self.names.fresh(self.names.of(d) + "_")
            self.out.add(f"int {name} = {self.scope.values[d].text}; read_again({name});")
            self.scope.values[d] = Expression(name, "int", POSITION)

    def announce(self) -> None:
        """Says where the tile with the number `tile` is, or that there are no more."""
        out = self.out
        out.add(f"int {', '.join(f'{x} = -1' for x in self.told)};")
        with out.block("if (tile < tiles)"):
            self.locate()
            if not self.s.chosen:
                saved = dict(self.scope.values)
                self.scalars(self.bound_roots())
                self.bounds(declared=True)
                self.never_none()
                self.scope.values = saved
        out.add(f"wait({self.barrier('tile_free', '(turn & 1)')}, ((turn >> 1) & 1) ^ 1);")
        with out.block("if (lane == 0)" if self.plan.together else ""):
            for k, x in enumerate(self.told):
                out.add(f"shared_put({self.tile_word(k)}, {x});")
            out.add(f"arrive({self.barrier('tile_full', '(turn & 1)')});")

    def never_none(self) -> None:
        """A tile without windows gets one beyond the end: its first products are issued ahead in any case."""
        cut = [k for k, loop in enumerate(self.s.loops) if loop.ragged]
        if cut:
            none = " + ".join(f"windows_{k}" for k in range(len(self.s.loops)))
            beyond = f"(int)({self.scope.extent(self.s.stream).text})"
            self.out.add(
                f"if ({none} == 0) {{ start_{cut[-1]} = {beyond}; windows_{cut[-1]} = 1; }}"
            )

    def hear(self, declared: str, alone: bool) -> None:
        """Hears what is told. `alone`: one thread of a warp hears."""
        self.await_tile()
        self.take_tile(self.told, declared, alone)

    def await_tile(self) -> None:
        """Waits until a tile is announced."""
        full = self.barrier("tile_full", "(turn & 1)")
        self.out.add(f"wait({full}, (turn >> 1) & 1);")

    def take_tile(self, variables: list[str], declared: str, alone: bool) -> None:
        """Reads what is told; the room is free for another tile then."""
        for x in variables:
            self.out.add(f"{declared}{x} = {self.heard(x, alone)};")
        lone = "" if alone else "if (lane == 0) "
        self.out.add(f"{lone}arrive({self.barrier('tile_free', '(turn & 1)')});")

    def heard(self, x: str, alone: bool) -> str:
        """What is told of a variable."""
        word = self.tile_word(self.told.index(x))
        return f"shared_get({word})" if alone else f"shared_told({word}, lane)"

    def tile_word(self, k: int) -> str:
        """Where the `k`th place is told."""
        room = self.plan.rooms["tile"]
        return f"shared + {room.offset + 4 * k} + {room.bytes} * (turn & 1)"

    def tile_after(self) -> None:
        """The number of the tile that the block takes next."""
        out = self.out
        if self.schedule.order == "static":
            out.add("tile += gridDim.x;")
            return
        with out.block("if (lane == 0)" if self.plan.together else ""):
            out.add("const u32 taken = atomicAdd(counter, 1u);")
            out.add("// the last one of this launch leaves it ready for the next")
            out.add("if (taken == (u32)tiles - 1) *counter = 0;")
            out.add("tile = taken + gridDim.x;")
        if self.plan.together:
            out.add("tile = __shfl_sync(FULL, tile, 0);")
