"""A process that runs candidates of a search: it reads a request per line, and answers each with a line.

Started as `python -m tilec.tuning.running FOLDER`; the folder holds the problem and the data of its arrays. What a library
prints goes to standard error, so that standard output holds answers only. An error that may have left the GPU unusable
is answered as `fatal`: the process is not used again.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy

from tilec import backend, pipeline
from tilec.arrays import Array, numpy_dtype
from tilec.cut import Before
from tilec.dtypes import SIZES, DType
from tilec.errors import TilecError
from tilec.outline import Tiles
from tilec.reader import read
from tilec.rows import Rows, chooser
from tilec.tuning.expected import Expected

IDLE = 0.05
"""Seconds of rest before a burst on a GPU, so that each candidate finds the same clock."""
BURST = 0.008
"""Seconds that a burst on a GPU lasts, about; between FEWEST and MOST calls."""
FEWEST, MOST = 3, 20


class Memory:
    """Bytes where a target wants them: here, or on the GPU."""

    def __init__(self, on_gpu: bool) -> None:
        self.cupy: Any = None
        self.device: int | None = None
        if on_gpu:
            from tilec.backends.cuda import launch

            self.cupy, self.device = launch.cupy(), launch.current_device()

    def array(
        self, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...], data: Any, offset: int
    ) -> Array:
        """An array of a layout whose first byte lies `offset` behind a multiple of 256; with some elements, or without."""
        size = SIZES[dtype]
        steps = (
            [(n - 1) * s for n, s in zip(shape, strides, strict=True)] if math.prod(shape) else []
        )
        before = -sum(min(s, 0) for s in steps) * size
        length = (sum(abs(s) for s in steps) + 1) * size
        start = offset + -(-before // 256) * 256
        host = numpy.full(start + length, 0xFF, "u1")  # NaN where nothing is
        if data is not None:
            at = numpy.ndarray(shape, data.dtype, host, start, tuple(s * size for s in strides))
            at[...] = data
        if self.cupy is None:
            room = numpy.empty(host.size + 256, "u1")
            shift = -room.__array_interface__["data"][0] % 256
            owner = room[shift:][: host.size]
            owner[...] = host
            pointer = owner.__array_interface__["data"][0]
            return Array(pointer + start, dtype, shape, strides, owner, "numpy")
        owner = self.cupy.asarray(host)
        pointer = int(owner.data.ptr)
        return Array(pointer + start, dtype, shape, strides, owner, "cupy", True, self.device)

    def read(self, a: Array) -> Any:
        """The elements of a dense array that lies at the beginning of its memory, as a NumPy array."""
        raw = a.owner if self.cupy is None else self.cupy.asnumpy(a.owner)
        return (
            raw[: math.prod(a.shape) * SIZES[a.dtype]].view(numpy_dtype(a.dtype)).reshape(a.shape)
        )


class Problem:
    """The data of a search, and the candidates that were loaded so far."""

    def __init__(self, folder: Path) -> None:
        about = json.loads((folder / "problem.json").read_text(encoding="utf-8"))
        self.folder, self.target = folder, about["target"]
        (self.online,) = read(about["online"])
        self.sizes, self.scalars = about["sizes"], about["scalars"]
        self.rows = chooser(self.online)
        self.memory = Memory(backend.on_gpu(self.target))
        self.tensors = {x["name"]: self._tensor(x) for x in about["arrays"]}
        self.results = {
            name: self.memory.array(dtype, tuple(shape), _dense(shape), None, 0)
            for name, dtype, shape in about["outputs"]
        }
        self.runners: dict[str, backend.Runner] = {}
        self.want: Expected | None = None

    def _tensor(self, x: dict[str, Any]) -> Array:
        shape, dtype = tuple(x["shape"]), numpy_dtype(x["dtype"])
        data = numpy.fromfile(self.folder / x["file"], dtype).reshape(shape)
        return self.memory.array(x["dtype"], shape, tuple(x["strides"]), data, x["offset"])

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does what is asked."""
        match request["do"]:
            case "forget":
                self.runners.pop(request["name"], None)
                return {}
            case "expect":  # something else than before
                self.want = None
                return {}
            case "outputs":
                self.call(request)()
                self.wait()
                found = {n: self.memory.read(a).astype("float64") for n, a in self.results.items()}
                numpy.savez(self.folder / "outputs.npz", **found)
                return {}
            case "check":
                return self.check(self.call(request))
            case _:
                call = self.call(request)
                return {
                    "seconds": self.once(call) if self.memory.cupy is None else self.burst(call)
                }

    def call(self, request: dict[str, Any]) -> Callable[[], None]:
        """A call of a candidate, without arguments."""
        name = request["name"]
        if name not in self.runners:
            (tiles,) = read(request["tiles"])
            before = Before.of(self.online, self.sizes) if request["own"] else None
            packed = self._packed() if request["own"] else None
            made = backend.runner(
                Tiles.of(tiles), self.target, request["schedule"], before, packed=packed
            )
            self.runners[name] = made
        runner = self.runners[name]
        return lambda: runner(self.tensors, self.scalars, self.results)

    def _packed(self) -> Rows | None:
        return self.rows({**self.sizes, **self.scalars}, pipeline.target_of(self.target))

    def check(self, call: Callable[[], None]) -> dict[str, Any]:
        """A result against what it should be."""
        if self.want is None:
            self.want = Expected.read(self.folder)
        for a in self.results.values():
            a.owner[...] = 0xFF
        call()
        self.wait()
        wrong, error = self.want.differs({n: self.memory.read(a) for n, a in self.results.items()})
        return {"wrong": wrong, "error": error}

    def wait(self) -> None:
        """Until all is done."""
        if self.memory.cupy is not None:
            self.memory.cupy.cuda.Device().synchronize()

    def once(self, call: Callable[[], None]) -> float:
        """The seconds of one call."""
        start = time.perf_counter()
        call()
        self.wait()
        return time.perf_counter() - start

    def burst(self, call: Callable[[], None]) -> float:
        """The seconds of a call on the GPU: the median of a few in a row, after a rest."""
        cuda = self.memory.cupy.cuda
        time.sleep(IDLE)
        first = min(self.once(call), self.once(call))
        events = [
            (cuda.Event(), cuda.Event())
            for _ in range(max(FEWEST, min(MOST, math.ceil(BURST / max(first, 1e-6)))))
        ]
        for start, end in events:
            start.record()
            call()
            end.record()
        self.wait()
        return statistics.median(cuda.get_elapsed_time(*pair) for pair in events) * 1e-3


def _dense(shape: list[int]) -> tuple[int, ...]:
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def main() -> None:
    """Answers requests until the input ends, or until an error that may have left the GPU unusable."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def say(answer: dict[str, Any]) -> None:
        print(json.dumps(answer), file=out, flush=True)

    problem = Problem(Path(sys.argv[1]))
    say({"ready": True})
    for line in sys.stdin:
        try:
            say(problem.answer(json.loads(line)))
        except TilecError as e:
            say({"failed": str(e).splitlines()[0]})
        except Exception as e:
            say(
                {
                    "failed": f"{type(e).__name__}: {str(e).splitlines()[0] if str(e) else ''}",
                    "fatal": True,
                }
            )
            return


if __name__ == "__main__":
    main()
