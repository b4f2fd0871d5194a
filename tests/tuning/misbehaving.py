"""A process for candidates in which some of them do harm: tiles of 16 columns crash it, tiles of 32 never come back."""

from __future__ import annotations

import os
import sys
import time

from tilec.reader import read
from tilec.tuning import running
from tilec.tuning.space import tiled_axes


class Problem(running.Problem):
    def answer(self, request):
        if request["do"] == "check":
            (tiles,) = read(request["tiles"])
            columns = tiled_axes(tiles)["j"]
            if columns == 16:
                print("a terrible thing has happened", file=sys.stderr, flush=True)
                os._exit(3)
            while columns == 32:
                time.sleep(1)
        return super().answer(request)


if __name__ == "__main__":
    running.Problem = Problem
    running.main()
