"""The wgmma instructions of a kernel, and its loops over the contracted axis."""

from __future__ import annotations

from tilec.backends.cuda.hopper.slices import Slice
from tilec.backends.cuda.hopper.structure import Structure
from tilec.backends.cuda.hopper.tiles import PARTS

UNROLLED = 16
"""The most steps of a product of rows that are written out."""


def steps(width: int) -> int:
    """The instructions over a contracted axis."""
    return -(-width // 16)


def instructions(s: Structure, slices: int, share: bool = False) -> str:
    """The wgmma instructions and the loops over the contracted axis that the kernel needs."""
    out: list[str] = []
    types = {h.key.dtype for h in s.blocks[0].heads}
    for t in sorted(types):
        out.append(_wgmma_shared(s.columns, t))
    widths = {
        (Slice(s.slots[t.slot].width, slices).columns, t.value.dtype) for t in s.blocks[0].tails
    }
    for n, t in sorted(widths):
        out.append(_wgmma_registers(n, t))
    for t in sorted(types | {t for _, t in widths}):
        rows, columns = t in types, t in {x for _, x in widths}
        long = any(steps(h.key.width) > UNROLLED for h in s.blocks[0].heads)
        loops = [_LOOP_ROWS] * rows + [_LOOP_LONG_ROWS] * (rows and (long or share))
        loops += [_LOOP_HALF_ROWS] * (rows and share) + [_LOOP_COLUMNS] * columns
        if s.precise:
            loops += [_PARTS_ROWS.replace("PARTS", str(PARTS))] * rows + [_PARTS_COLUMNS] * columns
        out.append("".join(loops).replace("TYPE", t))
    return "\n".join(out)


def _registers(n: int, start: int = 0) -> str:
    return ", ".join(f"%{i + start}" for i in range(n))


def _wgmma_shared(n: int, dtype: str) -> str:
    count = n // 2
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""template<int ADD> DEVICE void wgmma_{dtype}(float (&d)[{count}], u64 a, u64 b) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 2}, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{{_registers(count)}}}, "
    "%{count}, %{count + 1}, p, 1, 1, 0, 0;\\n}}\\n"
    : {outs} : "l"(a), "l"(b), "n"(ADD));
}}
"""


def _wgmma_registers(n: int, dtype: str) -> str:
    count = n // 2
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(count))
    return f"""DEVICE void wgmma_{dtype}(float (&d)[{count}], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add) {{
  asm volatile("{{\\n.reg .pred p;\\nsetp.ne.b32 p, %{count + 5}, 0;\\n"
    "wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{dtype}.{dtype} {{{_registers(count)}}}, "
    "{{{_registers(4, count)}}}, %{count + 4}, p, 1, 1, 1;\\n}}\\n"
    : {outs} : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}}
"""


_LOOP_ROWS = """// d += a · bᵀ over STEPS times 16 of the contracted axis; slabs of 64 are SLAB_A and SLAB_B bytes apart
template<int STEPS, int SLAB_A, int SLAB_B, bool ADD, int N> DEVICE void rows_by_rows_TYPE(float (&d)[N], u64 a, u64 b) {
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    const u64 x = a + (u64)(((k / 4) * SLAB_A + (k % 4) * 32) >> 4), y = b + (u64)(((k / 4) * SLAB_B + (k % 4) * 32) >> 4);
    if (k == 0 && !ADD) wgmma_TYPE<0>(d, x, y); else wgmma_TYPE<1>(d, x, y);
  }
}
"""
_LOOP_LONG_ROWS = """// the same where there are many steps: a loop over slabs, as descriptors take registers
template<int STEPS, int SLAB_A, int SLAB_B, bool ADD, int N>
DEVICE void long_rows_by_rows_TYPE(float (&d)[N], u64 a, u64 b) {
  rows_by_rows_TYPE<4, SLAB_A, SLAB_B, ADD>(d, a, b);
#pragma unroll 1
  for (int k = 1; k < STEPS / 4; k++) rows_by_rows_TYPE<4, SLAB_A, SLAB_B, true>(d, a += SLAB_A >> 4, b += SLAB_B >> 4);
  rows_by_rows_TYPE<STEPS % 4, SLAB_A, SLAB_B, true>(d, a + (SLAB_A >> 4), b + (SLAB_B >> 4));
}
"""
_LOOP_HALF_ROWS = """// one half of the steps, an even number; they may begin in the middle of a slab
template<int STEPS, int SLAB_A, int SLAB_B, bool ADD, int N>
DEVICE void half_rows_by_rows_TYPE(float (&d)[N], u64 a, u64 b, int half) {
  if constexpr (STEPS % 4 == 0) {
    const u64 slab = half * (STEPS / 4);
    long_rows_by_rows_TYPE<STEPS, SLAB_A, SLAB_B, ADD>(d, a + slab * (SLAB_A >> 4), b + slab * (SLAB_B >> 4));
  } else {
    const int first = half * STEPS;
    const u64 x = first / 4 * (SLAB_A >> 4) + first % 4 * 2, y = first / 4 * (SLAB_B >> 4) + first % 4 * 2;
    rows_by_rows_TYPE<2, SLAB_A, SLAB_B, ADD>(d, a + x, b + y);
#pragma unroll 1
    for (int k = first + 2; k < first + STEPS; k += 2) {
      const u64 x = k / 4 * (SLAB_A >> 4) + k % 4 * 2, y = k / 4 * (SLAB_B >> 4) + k % 4 * 2;
      rows_by_rows_TYPE<2, SLAB_A, SLAB_B, true>(d, a + x, b + y);
    }
  }
}
"""
_LOOP_COLUMNS = """// d += p · v over STEPS times 16 rows of v; d = p · v if not `add`
template<int STEPS, int N, int M> DEVICE void weights_by_columns_TYPE(float (&d)[N], u32 (&p)[M], u64 v, int add) {
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    wgmma_TYPE(d, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], v + (u64)((k * 2048) >> 4), k ? 1 : add);
  }
}
"""
_PARTS_ROWS = """// the same for operands in parts: a loop, as descriptors take registers
template<int STEPS, int SLAB_A, int SLAB_B, int A, int PART_A, int B, int PART_B, int N>
DEVICE void rows_by_rows_TYPE(float (&d)[N], u64 a, u64 b) {
#pragma unroll 1
  for (int x = A - 1; x >= 0; x--) {
#pragma unroll 1
    for (int y = least<int>(B, PARTS - x) - 1; y >= 0; y--)
      rows_by_rows_TYPE<STEPS, SLAB_A, SLAB_B, true>(d, a + (u64)(x * (PART_A >> 4)), b + (u64)(y * (PART_B >> 4)));
  }
}
"""
_PARTS_COLUMNS = """// the same for v in parts, the first ones of them
template<int STEPS, int N, int M>
DEVICE void weights_by_columns_TYPE(float (&d)[N], u32 (&p)[M], u64 v, int parts, int bytes) {
#pragma unroll 1
  for (int y = parts - 1; y >= 0; y--) weights_by_columns_TYPE<STEPS>(d, p, v + (u64)(y * (bytes >> 4)), 1);
}
"""
