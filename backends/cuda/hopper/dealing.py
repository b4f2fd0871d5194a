"""Which tile is next: the first loading warp finds it and says where it is, all others hear it."""

from __future__ import annotations

from tilec.backends.cuda.hopper.roles import Roles


class Dealing(Roles):
    """Writes how the tiles of the grid are dealt out. A tile is known by its first row, `origin`, and its place on each
    other axis of the grid; `turn` counts the tiles of a block."""

    def announce(self) -> None:
        """Says where the tile with the number `tile` is, or that there are no more."""
        out = self.out
        out.add(f"int {', '.join(f'{x} = -1' for x in self.places)};")
        with out.block("if (tile < tiles)"):
            self.locate()
        out.add(f"wait({self.barrier('tile_free', '(turn & 1)')}, ((turn >> 1) & 1) ^ 1);")
        with out.block("if (lane == 0)" if self.s.together else ""):
            for k, x in enumerate(self.places):
                out.add(f"shared_put({self.tile_word(k)}, {x});")
            out.add(f"arrive({self.barrier('tile_full', '(turn & 1)')});")

    def hear(self, places: list[str], alone: bool) -> None:
        """Hears where the tile is; its `origin` is negative where there are no more. `alone`: one thread of a warp hears."""
        out = self.out
        out.add(f"wait({self.barrier('tile_full', '(turn & 1)')}, (turn >> 1) & 1);")
        for k, x in enumerate(places):
            word = f"shared_get({self.tile_word(k)})"
            out.add(f"{x} = {word if alone else f'__shfl_sync(FULL, {word}, 0)'};")
        lone = "" if alone else "if (lane == 0) "
        out.add(f"{lone}arrive({self.barrier('tile_free', '(turn & 1)')});")

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
        with out.block("if (lane == 0)" if self.s.together else ""):
            out.add("const u32 taken = atomicAdd(counter, 1u);")
            out.add("// the last one of this launch leaves it ready for the next")
            out.add("if (taken == (u32)tiles - 1) *counter = 0;")
            out.add("tile = taken + gridDim.x;")
        if self.s.together:
            out.add("tile = __shfl_sync(FULL, tile, 0);")
