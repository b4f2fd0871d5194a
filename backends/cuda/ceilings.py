"""Measures what a GPU reaches: copies, reads that the last cache answers, and loops of each of its units.

Every figure is the best of a few launches of about a millisecond: what a kernel may find that runs for itself. On random
numbers, for a tensor unit that multiplies zeros draws less power and runs faster.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from tilec.backends.cuda import arch as architectures
from tilec.backends.cuda import launch, nvrtc
from tilec.ceilings import Ceilings

ROUNDS = 7
CHAINS, THREADS = 8, 512
"""As in ceilings.cuh."""
LARGE = 1 << 30
"""Bytes of an array that no cache holds."""
WARPGROUPS, PRODUCT = 2, 2 * 64 * 256 * 64
"""Of a block of `products` with wgmma: its warpgroups, and the operations of one round of each."""
WARPS, SMALL_PRODUCT, TILES = 8, 2 * 16 * 8 * 16, 8
"""The same with mma.sync: warps, operations of one product, products of a round."""
COPY, COPIES = 1 << 15, 6
"""Of `stream_all`, as in ceilings.cuh: bytes of a copy, and copies in flight."""
TENSOR_SHARED = (2 * 64 + 256) * 128
"""Bytes of the operands of `products` with wgmma."""


def source(arch: str) -> str:
    """The text of the kernels for an architecture."""
    text = files("tilec.backends.cuda").joinpath("ceilings.cuh").read_text("utf-8")
    if arch != "sm_90a":
        return text
    registers = ", ".join(f"%{n}" for n in range(128))
    outs = ", ".join(f'"+f"(d[{n}])' for n in range(128))
    product = (
        f'asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {{{registers}}}, %128, %129, 1, 1, 1, 0, 0;" '
        f': {outs} : "l"(a + k * 2), "l"(b + k * 2));'
    )
    return f"#define WGMMA {product}\n{text}"


def name(device: int) -> str:
    """What a device is called, where its figures are kept."""
    c = launch.cupy()
    found = c.cuda.runtime.getDeviceProperties(device)["name"]
    text = found.decode() if isinstance(found, bytes) else str(found)
    return f"{text}, {launch.processors(device)} multiprocessors"


def measure() -> Ceilings:
    """The ceilings of the current device."""
    c = launch.cupy()
    device = launch.current_device()
    arch = architectures.for_capability(launch.capability(device))
    loops = _Loops.load(c, arch, launch.processors(device))
    attributes = c.cuda.Device(device).attributes
    far = int(attributes["L2CacheSize"])
    return Ceilings(
        machine=name(device),
        memory=max(loops.reads(LARGE, 1), loops.copies(LARGE)),
        cache=max(loops.reads(far // 4, 256), loops.streams(far // 4)),
        matrix=max(loops.products(), loops.library()),
        fma=loops.steps("multiply_add", 1 << 14),
        special=loops.steps("exponentials", 1 << 11),
        shared=False,
        workers=loops.processors,
        near=int(attributes["MaxSharedMemoryPerBlockOptin"]),
        far=far,
        origin="measured on this machine",
    )


def flusher(size: int) -> Callable[[], None]:
    """A function that reads an array of `size` bytes, and so leaves nothing else in the caches."""
    import numpy

    c, device = launch.cupy(), launch.current_device()
    arch = architectures.for_capability(launch.capability(device))
    loops = _Loops.load(c, arch, launch.processors(device))
    given = (c.zeros(size, "uint8"), c.zeros(16, "uint8"), numpy.uint64(size // 16), numpy.int32(1))
    return lambda: loops.start("read_all", 4 * loops.processors, given)


@dataclass(frozen=True)
class _Loops:
    """The loaded kernels."""

    cupy: Any
    arch: str
    processors: int
    kernels: dict[str, launch.Kernel]

    @staticmethod
    def load(c: Any, arch: str, processors: int) -> _Loops:
        """The kernels on the current device."""
        image = nvrtc.compile(source(arch), arch).cubin
        wgmma = arch == "sm_90a"
        wanted = [(n, THREADS, 0) for n in ("read_all", "copy_all", "multiply_add", "exponentials")]
        wanted.append(("products", 256, TENSOR_SHARED if wgmma else 0))
        if wgmma:
            wanted.append(("stream_all", 32, COPIES * COPY + 8 * COPIES))
        return _Loops(c, arch, processors, {k.name: k for k in launch.load(image, wanted)})

    def best(self, run: Callable[[], object]) -> float:
        """The shortest time of a few runs, in seconds."""
        cuda = self.cupy.cuda
        events = [(cuda.Event(), cuda.Event()) for _ in range(ROUNDS)]
        run()
        for start, end in events:
            start.record()
            run()
            end.record()
        cuda.Device().synchronize()
        return min(cuda.get_elapsed_time(*pair) for pair in events) * 1e-3

    def time(self, name: str, blocks: int, data: Any, out: Any, first: int, second: int) -> float:
        """The shortest time of a kernel."""
        import numpy

        given = (data, out, numpy.uint64(first), numpy.int32(second))
        return self.best(lambda: self.start(name, blocks, given))

    def start(self, name: str, blocks: int, given: tuple[Any, ...]) -> None:
        """Launches a kernel on the current stream."""
        k = self.kernels[name]
        k.function((blocks,), (k.threads,), given, k.shared)

    def reads(self, size: int, passes: int) -> float:
        """Bytes per second of reading an array some times over."""
        data, out = self.cupy.zeros(size, "uint8"), self.cupy.zeros(16, "uint8")
        took = self.time("read_all", 4 * self.processors, data, out, size // 16, passes)
        return size // 16 * 16 * passes / took

    def streams(self, size: int) -> float:
        """Bytes per second that all multiprocessors take in by bulk copies out of an array that the last cache holds: each
        from another place on, or all from the same. 0 where there are no such copies."""
        if "stream_all" not in self.kernels:
            return 0.0
        data, out = self.cupy.zeros(size, "uint8"), self.cupy.zeros(16, "uint8")
        chunks, each = size // COPY, 1 << 10
        times = (
            self.time("stream_all", self.processors, data, out, each << 32 | chunks, apart)
            for apart in (0, 1, 7)
        )
        return self.processors * each * COPY / min(times)

    def copies(self, size: int) -> float:
        """Bytes per second, read and written, of copying an array."""
        data, out = self.cupy.zeros(size, "uint8"), self.cupy.empty(size, "uint8")
        return 2 * size / self.time("copy_all", 4 * self.processors, data, out, size // 16, 1)

    def steps(self, name: str, rounds: int) -> float:
        """Steps per second of all lanes."""
        data, out = self.cupy.full(64, 0.5, "float32"), self.cupy.zeros(4, "float32")
        blocks = 4 * self.processors
        took = self.time(name, blocks, data, out, rounds, 0)
        return float(blocks) * THREADS * CHAINS * rounds / took

    def products(self) -> float:
        """Operations per second of the tensor unit, with operands at hand."""
        import numpy

        data = numpy.random.default_rng(0).standard_normal(TENSOR_SHARED // 2, dtype="float32")
        if self.arch == "sm_90a":  # the upper halves of f32 are bf16
            raw = self.cupy.asarray((data.view("uint32") >> 16).astype("uint16"))
            blocks, each, rounds = self.processors, WARPGROUPS * PRODUCT, 1 << 11
        else:
            raw = self.cupy.asarray(data.astype("float16").view("uint16"))
            blocks, each, rounds = 4 * self.processors, WARPS * TILES * SMALL_PRODUCT, 1 << 12
        out = self.cupy.zeros(4, "float32")
        return float(blocks) * each * rounds / self.time("products", blocks, raw, out, rounds, 0)

    def library(self) -> float:
        """Operations per second of a large product by the library that CuPy calls; 0 where it has none."""
        n = 8192
        try:
            a, b = (self.cupy.random.standard_normal((n, n), dtype="float32") for _ in range(2))
            a, b = a.astype("float16"), b.astype("float16")
            out = self.cupy.empty((n, n), "float16")
            return 2.0 * n**3 / self.best(lambda: self.cupy.matmul(a, b, out=out))
        except Exception:  # whatever CuPy raises where the library is missing
            return 0.0
