"""What a call costs beside the work of its kernel, on the CPU and on a GPU, next to PyTorch's own attention.

    python benchmarks/call_overhead.py [--out results.jsonl]

The arrays are tiny, so that the time of a call is its overhead. On a GPU the time is that of handing a call over, and the
script also checks what could go wrong where calls are remembered: other tensors of a known layout, other layouts, calls
from several threads and on several streams, and CUDA graphs, with their results against float64 and bit by bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np
import torch
import torch.nn.functional as F

import tilec

CAUSAL = (ROOT / "examples" / "causal.tile").read_text()
ROUNDS, CALLS = 60, 50
LIMIT = {"cpu": 15.0, "cuda": 25.0}
"""What a call may cost, in microseconds."""


Calls = dict[str, Callable[[], Any]]


def overheads(calls: Calls, wait: Callable[[], None] = lambda: None) -> dict[str, float]:
    """Microseconds per call: medians of batches, of each kind of call in turn; between them the device catches up."""
    times: dict[str, list[float]] = {what: [] for what in calls}
    for run in calls.values():
        for _ in range(CALLS):
            run()
    wait()
    for _ in range(ROUNDS):
        for what, run in calls.items():
            start = time.perf_counter()
            for _ in range(CALLS):
                run()
            times[what].append((time.perf_counter() - start) / CALLS * 1e6)
            wait()
    return {what: statistics.median(t) for what, t in times.items()}


def line(where: str, what: str, us: float) -> dict[str, Any]:
    note = ""
    if what.startswith("tilec"):
        note = f"at most {LIMIT[where]:.0f} asked: {'ok' if us <= LIMIT[where] else 'MORE'}"
    print(f"{where:5} {what:32} {us:8.1f} us  {note}", flush=True)
    return {"device": where, "what": what, "us": round(us, 2)}


def on_cpu() -> Iterator[dict[str, Any]]:
    torch.set_num_threads(1)
    kernel = tilec.compile(CAUSAL, target="cpu")
    t = [torch.randn(1, 1, 1, 16) for _ in range(3)]
    n = [x.numpy() for x in t]
    out = torch.empty(1, 1, 1, 16)
    there = out.numpy()
    calls: Calls = {
        "tilec, NumPy": lambda: kernel(*n),
        "tilec, NumPy, out=": lambda: kernel(*n, out=there),
        "tilec, PyTorch": lambda: kernel(*t),
        "tilec, PyTorch, out=": lambda: kernel(*t, out=out),
        "PyTorch SDPA": lambda: F.scaled_dot_product_attention(*t),
    }
    for what, us in overheads(calls).items():
        yield line("cpu", what, us)


# ---- on a GPU


def tensors(
    seed: int, m: int = 128, n: int = 128, d: int = 64, b: int = 1, h: int = 2
) -> list[Any]:
    g = torch.Generator(device="cuda").manual_seed(seed)
    shapes = ((b, h, m, d), (b, h, n, d), (b, h, n, d))
    return [torch.randn(s, device="cuda", generator=g, dtype=torch.bfloat16) for s in shapes]


def exact(q: Any, k: Any, v: Any) -> Any:
    s = q.double() @ k.double().mT / q.shape[-1] ** 0.5
    m, n = s.shape[-2:]
    mask = torch.ones(m, n, dtype=torch.bool, device="cuda").triu_(1 + n - m)
    p = torch.softmax(s.masked_fill(mask, float("-inf")), -1).nan_to_num(0.0)  # rows without keys
    return p @ v.double()


def error(got: Any, arrays: list[Any]) -> float:
    want = exact(*arrays)
    return ((got.double() - want).norm() / want.norm()).item()


def on_gpu() -> Iterator[dict[str, Any]]:
    kernel = tilec.compile(CAUSAL)
    wait = torch.cuda.synchronize
    sets = [tensors(seed) for seed in range(8)]
    out = torch.empty_like(sets[0][0])
    turn = [0]

    def next_set() -> list[Any]:
        turn[0] = (turn[0] + 1) % len(sets)
        return sets[turn[0]]

    moving = tensors(9, m=4096)[0]

    def sliced() -> Any:
        turn[0] = (turn[0] + 1) % 3000
        return kernel(moving[:, :, turn[0] : turn[0] + 128], *sets[0][1:])

    calls: Calls = {
        "tilec, same tensors": lambda: kernel(*sets[0]),
        "tilec, same tensors, out=": lambda: kernel(*sets[0], out=out),
        "tilec, eight sets in turn": lambda: kernel(*next_set()),
        "tilec, ever new addresses": sliced,
        "PyTorch SDPA": lambda: F.scaled_dot_product_attention(*sets[0], is_causal=True),
        "torch.empty_like": lambda: torch.empty_like(out),
        **pieces(kernel, sets[0], out),
    }
    for what, us in overheads(calls, wait).items():
        yield line("cuda", what, us)
    lengths = iter(range(1, 100000))
    keys = tensors(3, n=ROUNDS * CALLS + CALLS + 1)

    def longer() -> Any:
        n = next(lengths)
        return kernel(keys[0], keys[1][:, :, :n], keys[2][:, :, :n])

    yield {"device": "cuda", "what": "a new length", "us": overheads({"": longer}, wait)[""]}


def pieces(kernel: Any, arrays: list[Any], out: Any) -> Calls:
    """What a call that comes again is made of."""
    kernel(*arrays)
    repeats = kernel._calls.repeats
    look = repeats.look(arrays, {}, None)
    ready = repeats.find(look)
    addresses = [*look[1], out.data_ptr()]
    return {
        "  of this: the look": lambda: repeats.find(repeats.look(arrays, {}, None)),
        "  of this: its output": ready.make[0],
        "  of this: the launches": lambda: ready.launch(addresses),
    }


def checks() -> Iterator[tuple[str, bool]]:
    kernel = tilec.compile(CAUSAL)
    sets = [tensors(seed) for seed in range(100)]
    first = [kernel(*s) for s in sets]
    worst = max(error(o, s) for o, s in zip(first, sets, strict=True))
    yield f"100 sets of tensors, error {worst:.1e}", worst < 1e-2
    again = [kernel(*s) for s in sets[::-1]][::-1]
    yield "the same bits again", all(map(torch.equal, first, again))
    bits = [kernel(*sets[0]) for _ in range(100)]
    yield "100 launches, the same bits", all(torch.equal(bits[0], o) for o in bits)
    worst = 0.0
    for n in range(1, 300, 7):
        q, k, v = tensors(n, m=64, n=n, d=64)
        wide = tensors(n, m=64, n=2 * n, d=64)
        worst = max(worst, error(kernel(q, k, v), [q, k, v]))
        strided = [q, wide[1][:, :, ::2], wide[2][:, :, ::2]]
        worst = max(worst, error(kernel(*strided), strided))
    yield f"other layouts, error {worst:.1e}", worst < 1e-2
    with ThreadPoolExecutor(4) as pool:
        threaded = list(pool.map(lambda s: on_stream(kernel, s), sets))
    yield "four threads, a stream each", all(map(torch.equal, first, threaded))
    yield from graphs(kernel)


def on_stream(kernel: Any, arrays: list[Any]) -> Any:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.default_stream())
    with torch.cuda.stream(stream):
        out = kernel(*arrays)
    stream.synchronize()
    return out


def graphs(kernel: Any) -> Iterator[tuple[str, bool]]:
    arrays = tensors(1, m=512, n=512, b=2, h=8)
    kernel(*arrays)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a = kernel(*arrays)
        b = kernel(a, *arrays[1:])
    good = True
    for seed in range(2, 12):
        for x, y in zip(arrays, tensors(seed, m=512, n=512, b=2, h=8), strict=True):
            x.copy_(y)
        graph.replay()
        torch.cuda.synchronize()
        good &= error(a, arrays) < 1e-2
        want = kernel(kernel(*arrays), *arrays[1:])
        good &= torch.equal(b, want)
    yield "a captured graph, replayed on new data", good
    other = torch.cuda.CUDAGraph()
    with torch.cuda.graph(other):
        c = kernel(*arrays)
    want = kernel(*arrays)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    good = True
    for _ in range(200):
        graph.replay()
        with torch.cuda.stream(side):
            other.replay()
        eager = kernel(*arrays)
    torch.cuda.synchronize()
    good &= all(torch.equal(want, x) for x in (a, c, eager))
    yield "two graphs and eager calls at once", good
    del kernel
    fresh = torch.cuda.CUDAGraph()
    gone = tilec.compile(CAUSAL)
    gone(*arrays)
    torch.cuda.synchronize()
    with torch.cuda.graph(fresh):
        d = gone(*arrays)
    del gone
    fresh.replay()
    torch.cuda.synchronize()
    yield "a graph outlives its kernel", torch.equal(want, d)
    print(
        f"      replay of a graph of two calls: {replay_time(graph):.1f} us of the device",
        flush=True,
    )


def replay_time(graph: Any) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    for _ in range(100):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) * 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="append the figures there, as JSON lines")
    args = parser.parse_args()
    facts = list(on_cpu())
    fine = True
    if torch.cuda.is_available():
        facts += on_gpu()
        print(f"cuda  a new length (not remembered)    {facts[-1]['us']:8.1f} us")
        for what, good in checks():
            print(f"{'ok' if good else 'WRONG':5} {what}", flush=True)
            fine &= good
    else:
        print("no GPU here")
    if args.out:
        with args.out.open("a") as file:
            file.writelines(json.dumps({"numpy": np.__version__, **f}) + "\n" for f in facts)
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
