"""A process that compiles candidates: it reads a request per line, and answers each with a line.

Code generation holds one lock in a process, so that threads would wait for each other. What is compiled goes into the
cache on disk; the answer says how it went. Started as `python -m tilec.tuning.worker`.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tilec import backend
from tilec.errors import ArgumentError, ResourceError, TilecError, UnsupportedError
from tilec.reader import read


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compiles one candidate: `tiles` is a kernel in tiles as text, `online` the one before it was cut, or None.

    Its schedule was found to be one; that it makes no code is a matter of what the compiler finds room for (`fits`).
    """
    start = time.perf_counter()
    try:
        (tiles,) = read(request["tiles"])
        before = None
        if request["online"] is not None:
            before = read(request["online"])[0], request["sizes"]
        backend.prepare(tiles, request["target"], request["schedule"], before)
    except (ResourceError, ArgumentError) as e:
        return {"ok": False, "fits": False, "error": str(e)}
    except UnsupportedError as e:
        return {"ok": False, "error": str(e)}
    except TilecError as e:
        return {"ok": False, "error": f"{type(e).__name__}: {str(e).splitlines()[0]}"}
    return {"ok": True, "seconds": time.perf_counter() - start}


def main() -> None:
    """Answers requests until the input ends."""
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
