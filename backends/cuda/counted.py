"""The process whose kernels are counted: it calls a kernel on sample data between two marks for the profiler.

Started by `tilec.backends.cuda.counters` as `python -m tilec.backends.cuda.counted CALL`.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import json
import sys
from typing import Any

from tilec import gpu
from tilec.backends.cuda import ceilings, launch
from tilec.backends.cuda.counters import Call
from tilec.kernel import load

OVER = 8
"""How many times the size of the L2 cache is read to empty it."""


def main() -> None:
    """Runs the call of the command line."""
    call = Call(**json.loads(sys.argv[1]))
    kernel = load(
        call.file,
        name=call.name,
        target=call.target,
        tile=call.tile,
        schedule=call.schedule,
    )
    dtype: Any = call.dtype
    arguments = {**gpu.send(kernel.sample(call.seed, dtype=dtype, **call.sizes)), **call.scalars}
    c = launch.cupy()
    flush = ceilings.flusher(OVER * int(c.cuda.Device().attributes["L2CacheSize"]))
    out = kernel(**arguments)  # compiles
    flush()
    gpu.wait()
    c.cuda.runtime.profilerStart()
    kernel(**arguments, out=out)
    flush()
    gpu.wait()
    c.cuda.runtime.profilerStop()


if __name__ == "__main__":
    main()
