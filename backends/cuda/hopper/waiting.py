"""What a computing warpgroup waits for, and what it tells others: rows, stages of rings, turns, tiles."""

from __future__ import annotations

from tilec.backends.cuda.hopper.labels import RING
from tilec.backends.cuda.hopper.products import Products
from tilec.backends.cuda.hopper.steps import Acquire, Hear, Query, Release, Turn


class Waiting(Products):
    """Writes the steps by which a computing warpgroup keeps in step with the other warps."""

    @property
    def team(self) -> str:
        """Which of the block's rows a warpgroup has."""
        return "team" if self.schedule.slices > 1 else "w"

    def query(self, step: Query) -> None:
        """The tile's rows: there, or no longer needed."""
        place, parity = self.queries(self.team)
        if step.begin:
            self.out.add(f"wait({self.barrier('query_full', place)}, {parity});")
            self.visible(*self.s.queries)
        else:
            self.out.add(f"if (lane == 0) arrive({self.barrier('query_free', place)});")

    def next_tile(self) -> None:
        """The tile after this one."""
        self.out.add("turn++;")
        self.await_tile()
        self.out.add(f"const int next_origin = {self.heard('origin', alone=False)};")

    def acquire(self, step: Acquire | Hear) -> None:
        """A ring's stage: there."""
        full = self.barrier(f"{step.ring}_full", f"{step.cursor}.stage")
        self.out.add(f"wait({full}, {step.cursor}.parity);")
        self.visible(*(t for t in self.s.rings if t.name == step.ring))

    def release(self, step: Release) -> None:
        """A ring's stage: no longer needed."""
        free = self.barrier(f"{step.ring}_free", f"{step.cursor}.stage")
        # one thread speaks for its warp, but of labels each has read its own
        self.out.add(f"{'' if step.ring == RING else 'if (lane == 0) '}arrive({free});")
        self.out.add(f"{step.cursor}.step();")

    def hear_window(self, step: Hear) -> None:
        """A ring's stage, and the word of its window."""
        self.acquire(step)
        self.out.add(f"word = shared_told({self.word(step.cursor)}, lane);")

    def turn(self, step: Turn) -> None:
        """A warpgroup's turn at the tensor unit."""
        if step.begin:
            self.out.add("named_sync(1 + w, 256);")
        else:
            after = f"(w + 1 == {self.schedule.warpgroups} ? 0 : w + 1)"
            self.out.add(f"named_arrive(1 + {after}, 256);")
