"""Bulk copies of tiles: into shared memory, and ahead of time into the L2 cache.

The blocks of a launch begin their tiles nearly at the same time where these have as many windows, and all of them wait for
what no other tile has read yet: their rows and their first window. A warp asks for that a whole tile earlier. Which block
takes which tile is not known then, but all together take those that follow.
"""

from __future__ import annotations

from collections.abc import Generator

from tilec.backends.cuda.hopper.dealing import Dealing
from tilec.backends.cuda.hopper.schedule import ROWS
from tilec.backends.cuda.hopper.source import CopyMap, Parameter
from tilec.backends.cuda.hopper.structure import Tile


class Copying(Dealing):
    """Writes bulk copies."""

    def copy(self, t: Tile, to: str, full: str, position: str, rows: int) -> None:
        """The copies that bring a tile: one with the slabs as a dimension, or one per slab."""
        for k, (name, at) in enumerate(self.pieces(t, position, rows)):
            place = f"{to} + {k * rows * 128}" if k else to
            self.out.add(f"copy_in({place}, &{name}, {full}, {at});")

    def copy_ahead(self, t: Tile, position: str, rows: int) -> None:
        """The same into the L2 cache."""
        for name, at in self.pieces(t, position, rows):
            self.out.add(f"copy_ahead(&{name}, {at});")

    def pieces(self, t: Tile, position: str, rows: int) -> Generator[tuple[str, str]]:
        """The maps and coordinates of a tile's copies."""
        m = self.map(t, rows)
        others = [self.scope.operand(x, None) for x in t.index if x not in (t.axis, t.feature)]
        rest = "".join(f", (int)({e.text})" for e in others)
        if m.map is not None and m.map.slabs:
            yield m.name, f"0, {position}, 0{rest}"
            return
        for k in range(t.slabs):
            yield m.name, f"{64 * k}, {position}{rest}"

    def map(self, t: Tile, rows: int) -> Parameter:
        """The tensor map argument of a tile."""
        slabs = t.width % 64 == 0 and len(t.index) < 5
        feature, row = t.index.index(t.feature), t.index.index(t.axis)
        m = CopyMap(t.tensor, feature, row, rows, t.width, slabs)
        if t.name not in self.maps:
            name = self.names.fresh(f"{t.name}_map")
            self.maps[t.name] = Parameter("map", name, "const __grid_constant__ TensorMap", m)
        return self.maps[t.name]

    def ask_ahead(self) -> None:
        """Asks for what the tiles begin with that are as far ahead as the launch has blocks."""
        out = self.out
        out.add("#pragma unroll 1")
        with out.block("for (int turn = 0;; turn++)"):
            self.await_tile()
            out.add(f"const bool more = {self.heard('origin', alone=True)} >= 0;")
            out.add(f"const int tile = shared_get({self.number_word}) + (int)gridDim.x;")
            out.add(f"arrive({self.barrier('tile_free', '(turn & 1)')});")
            out.add("if (!more) break;")
            out.add("if (tile >= tiles) continue;")
            out.add(f"int {', '.join(self.places)};")
            self.locate()
            tiles = (*self.s.queries, *self.s.rings)
            self.scalars(self.bound_roots().union(*(t.scalars for t in tiles)))
            with out.block(f"for (int w = 0; w < {self.schedule.warpgroups}; w++)"):
                for t in self.s.queries:
                    self.copy_ahead(t, "origin + w * 64", ROWS)
            self.bounds()
            out.add("int window = -1;")
            for k in self.s.order:
                out.add(f"if (window < 0 && windows_{k} > 0) window = {self.s.at(k, '0')};")
            with out.block("if (window >= 0)"):
                for t in self.s.rings:
                    self.copy_ahead(t, "window", t.rows)
