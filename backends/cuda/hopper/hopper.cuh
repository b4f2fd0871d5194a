// Primitives of the Hopper kernels: barriers, bulk tensor copies, wgmma groups, fragments.
#pragma nv_diag_suppress 177, 550   // what a role does not use
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;
typedef unsigned short u16;
#define DEVICE __device__ __forceinline__
#define NEG_INF __int_as_float(0xff800000)
#define POS_INF __int_as_float(0x7f800000)
#define QUIET_NAN __int_as_float(0x7fc00000)
#define FULL 0xffffffffu
#define MOST 0x7fffffff
#define MOST_WIDE 0x7fffffffffffffffLL
#define BEYOND (1 << 30)
#define FAR (1 << 29)
#ifndef HELD_ROWS
#define HELD_ROWS 2
#endif
#define ROWS _Pragma("unroll") for (int r = 0; r < HELD_ROWS; r++)     // a thread's rows of a fragment: g, g + 8 and so on
#define EACH _Pragma("unroll") for (int x = 0; x < 2 * HELD_ROWS; x++) // a thread's elements of an 8-column block, two a row
#define IN_ORDER asm volatile("" ::: "memory")   // keeps the blocks of a long loop from being computed all at once

struct alignas(64) TensorMap { unsigned char bytes[128]; };

// ---- barriers in shared memory

// Kernels of one call begin to start while the one before them runs, and go on here when it is done.
DEVICE void in_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE u32 shared_address(const void* p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void barrier_init(u32 b, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(count) : "memory"); }
DEVICE void barriers_ready() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void expect(u32 b, u32 bytes) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "r"(bytes) : "memory"); }
DEVICE void arrive(u32 b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b) : "memory"); }
DEVICE void wait(u32 b, u32 parity) {
  asm volatile("{\n.reg .pred p;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\nbra AGAIN;\nDONE:\n}" :: "r"(b), "r"(parity) : "memory");
}
DEVICE void shared_put(u32 a, int x) { asm volatile("st.shared.s32 [%0], %1;" :: "r"(a), "r"(x) : "memory"); }
DEVICE void shared_put(u32 a, float x) { asm volatile("st.shared.f32 [%0], %1;" :: "r"(a), "f"(x) : "memory"); }
DEVICE void shared_put(u32 a, i64 x) { asm volatile("st.shared.s64 [%0], %1;" :: "r"(a), "l"(x) : "memory"); }
DEVICE void shared_two(u32 a, int (&x)[2]) { asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "r"(a)); }
DEVICE void shared_two(u32 a, float (&x)[2]) { asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(x[0]), "=f"(x[1]) : "r"(a)); }
DEVICE void shared_two(u32 a, i64 (&x)[2]) { asm volatile("ld.shared.v2.s64 {%0, %1}, [%2];" : "=l"(x[0]), "=l"(x[1]) : "r"(a)); }
DEVICE int shared_get(u32 a) { int x; asm volatile("ld.shared.s32 %0, [%1];" : "=r"(x) : "r"(a) : "memory"); return x; }
// a word that a warp is told: its first thread reads it, whose arrival at a barrier then says that it may be written again
DEVICE int shared_told(u32 a, int lane) {
  int x = 0;
  asm volatile("{\n.reg .pred p;\nsetp.eq.s32 p, %2, 0;\n@p ld.shared.s32 %0, [%1];\n}" : "+r"(x) : "r"(a), "r"(lane) : "memory");
  return __shfl_sync(FULL, x, 0);
}
template<int N> DEVICE void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }
template<int N> DEVICE void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
DEVICE void named_sync(u32 id, u32 threads) { asm volatile("bar.sync %0, %1;" :: "r"(id), "r"(threads) : "memory"); }
DEVICE void named_arrive(u32 id, u32 threads) { asm volatile("bar.arrive %0, %1;" :: "r"(id), "r"(threads) : "memory"); }

// ---- sums of which two groups have a part each: both add up the same numbers

template<int N> DEVICE void add_other(float (&d)[N], u32 own, u32 other, u32 id) {
  const u32 lane = (threadIdx.x & 127) * 16;
  named_sync(id, 256);   // what was there has been read
#pragma unroll
  for (int k = 0; k < N; k += 4)
    asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" :: "r"(own + k * 512 + lane), "f"(d[k]), "f"(d[k + 1]), "f"(d[k + 2]), "f"(d[k + 3]) : "memory");
  named_sync(id, 256);
#pragma unroll
  for (int k = 0; k < N; k += 4) {
    float x[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3]) : "r"(other + k * 512 + lane) : "memory");
#pragma unroll
    for (int n = 0; n < 4; n++) d[k + n] += x[n];
  }
}

// ---- a place in a ring of buffers: which stage comes next, and the parity of its barrier

template<int STAGES> struct Cursor {
  u32 stage = 0, parity;
  DEVICE Cursor(u32 first) : parity(first) {}
  DEVICE void step() { if (++stage == STAGES) { stage = 0; parity ^= 1; } }
};

// ---- bulk tensor copies

DEVICE void fetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" :: "l"((u64)map) : "memory"); }
DEVICE void copy_in(u32 to, const TensorMap* map, u32 full, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
    :: "r"(to), "l"((u64)map), "r"(full), "r"(c0), "r"(c1) : "memory");
}
DEVICE void copy_in(u32 to, const TensorMap* map, u32 full, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
    :: "r"(to), "l"((u64)map), "r"(full), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
DEVICE void copy_in(u32 to, const TensorMap* map, u32 full, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6}], [%2];"
    :: "r"(to), "l"((u64)map), "r"(full), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
DEVICE void copy_in(u32 to, const TensorMap* map, u32 full, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
    :: "r"(to), "l"((u64)map), "r"(full), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
// where a copy begins that was looked up: 32 bits, in which no place outside of a tensor becomes one within
DEVICE int coordinate(i64 x) { return x < -BEYOND || x > BEYOND ? -BEYOND : (int)x; }
DEVICE void copy_out(const TensorMap* map, u32 from, int c0, int c1) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
    :: "l"((u64)map), "r"(from), "r"(c0), "r"(c1) : "memory");
}
DEVICE void copy_out(const TensorMap* map, u32 from, int c0, int c1, int c2) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
    :: "l"((u64)map), "r"(from), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
DEVICE void copy_out(const TensorMap* map, u32 from, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
    :: "l"((u64)map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3) : "memory");
}
DEVICE void copy_out(const TensorMap* map, u32 from, int c0, int c1, int c2, int c3, int c4) {
  asm volatile("cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];"
    :: "l"((u64)map), "r"(from), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4) : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
DEVICE void copy_read_out() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
DEVICE void copy_finish() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }
DEVICE void written_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void shared_piece(u32 a, u32 x0, u32 x1, u32 x2, u32 x3) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" :: "r"(a), "r"(x0), "r"(x1), "r"(x2), "r"(x3));
}
// by all threads, before those of a block meet
DEVICE void clear_shared(u32 a, int bytes) {
  for (int n = 16 * threadIdx.x; n < bytes; n += 16 * blockDim.x) shared_piece(a + n, 0, 0, 0, 0);
  written_for_copies();
}
DEVICE void shared_word(u32 a, u32 x) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(a), "r"(x)); }
DEVICE void store_matrices(u32 a, u32 x0, u32 x1, u32 x2, u32 x3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" :: "r"(a), "r"(x0), "r"(x1), "r"(x2), "r"(x3) : "memory");
}

// ---- wgmma groups. `pin` keeps the compiler from using registers that a group still writes or reads.

DEVICE void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template<int PENDING> DEVICE void group_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(PENDING) : "memory"); }
template<int N> DEVICE void pin(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+f"(d[i]) :: "memory");
}
template<int N> DEVICE void pin(u32 (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) asm volatile("" : "+r"(d[i]) :: "memory");
}

// Shared memory descriptors of 128-byte swizzled tiles: rows of 64 elements, slabs of 64 columns.
// `rows_descriptor`: the contracted axis runs along the 128 bytes. `columns_descriptor`: it runs over the rows;
// `slab`: bytes from one slab of 64 columns to the next.
#define DESCRIPTOR (((u64)1 << 62) | ((u64)(1024 >> 4) << 32))
DEVICE u64 rows_descriptor(u32 a) { return DESCRIPTOR | ((u64)1 << 16) | (u64)((a & 0x3FFFF) >> 4); }
DEVICE u64 columns_descriptor(u32 a, u32 slab) { return DESCRIPTOR | ((u64)(slab >> 4) << 16) | (u64)((a & 0x3FFFF) >> 4); }

// ---- numbers

DEVICE float exp2_(float x) { float y; asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float log2_(float x) { float y; asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float reciprocal(float x) { float y; asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x)); return y; }
DEVICE float max_nan(float x, float y) { float z; asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
DEVICE float min_nan(float x, float y) { float z; asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y)); return z; }
DEVICE float sigmoid_(float x) { return reciprocal(1.f + exp2_(x * -1.4426950408889634f)); }
// tanh of x times a number; c: twice that, times log2 e
DEVICE float tanh_scaled(float x, float c) { return fmaf(-2.f, reciprocal(1.f + exp2_(x * c)), 1.f); }
DEVICE float tanh_(float x) { return tanh_scaled(x, 2.8853900817779268f); }
// tanh x is x (1 + TANH_3 x² + TANH_5 x⁴) up to 9.1e-6 where x² <= 0.25, and up to 1.5e-3 |x|³.
#define TANH_3 (-0.33185161f)
#define TANH_5 0.11544492f
// the greatest x² for which `outer` times the polynomial is right to 1e-3: less than the rounding of a weight
DEVICE float tanh_reach(float outer) { return fabsf(outer) <= 110.f ? 0.25f : exp2_((log2_(fabsf(outer)) + 0.5777f) * -0.6666667f); }
DEVICE bool regular(float y) { return fabsf(y) > 1e-30f && fabsf(y) < 1e30f; }   // x / y is x * (1 / y)
DEVICE float divisor_scale(float y) { return fabsf(y) <= 1e-30f ? 1.2676506e30f : fabsf(y) >= 1e30f ? 7.8886091e-31f : 1.f; }
// 0 / 0 is 0. Nothing here branches on y alone: of a loop over x the compiler would make a copy for each case.
DEVICE float divide(float x, float y) {
  const float s = divisor_scale(y), inverse = reciprocal(y * s), zero = y == y ? copysignf(1.f, y) : y;
  return x * (x == 0.f ? zero : inverse) * s;
}
DEVICE float f16_value(u16 x) { float y; asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x)); return y; }
DEVICE float bf16_value(u16 x) { return __int_as_float((int)((u32)x << 16)); }
DEVICE float f8e5m2_value(unsigned char x) { return f16_value((u16)(x << 8)); }
DEVICE float f8e4m3_value(unsigned char x) {   // as an f16 it would be 256 times smaller
  return (x & 0x7f) == 0x7f ? QUIET_NAN : 256.f * f16_value((u16)((x & 0x80) << 8 | (x & 0x7f) << 7));
}
DEVICE u32 pack_f16(float lo, float hi) { u32 r; asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEVICE u32 pack_bf16(float lo, float hi) { u32 r; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo)); return r; }
DEVICE u32 watch(u32 x, u32 y) { u32 r; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(y), "r"(0u), "r"(x)); return r; }
DEVICE u32 watch_f16(u32 x, u32 y) { u32 r; asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(y), "r"(0u), "r"(x)); return r; }
// stay 0 while all are finite
DEVICE u32 watch(u32 x, u32 a, u32 b, u32 c, u32 d) { return watch(watch(watch(watch(x, a), b), c), d); }
DEVICE u32 watch_f16(u32 x, u32 a, u32 b, u32 c, u32 d) { return watch_f16(watch_f16(watch_f16(watch_f16(x, a), b), c), d); }
// two floats as three bf16 each that add up to them: what is cut off a part goes into the next one
DEVICE u32 upper(float lo, float hi) { return ((u32)__float_as_int(lo) >> 16) | ((u32)__float_as_int(hi) & 0xffff0000u); }
DEVICE float without_upper(float x) { return x - __int_as_float((int)((u32)__float_as_int(x) & 0xffff0000u)); }
DEVICE void split(float lo, float hi, u32& a, u32& b, u32& c) {
  a = upper(lo, hi);
  lo = without_upper(lo), hi = without_upper(hi);
  b = upper(lo, hi);
  c = pack_bf16(without_upper(lo), without_upper(hi));
}
// 0 where b is 0; without branches on b, see `divide`
template<class T> DEVICE T floor_div(T a, T b) {
  const T some = b != 0, d = b + (1 - some), q = a / d, r = a - q * d;
  return (q - ((r != 0) & ((r ^ d) < 0))) & -some;
}
template<class T> DEVICE T floor_mod(T a, T b) { return (a - floor_div(a, b) * b) & -(T)(b != 0); }
DEVICE float real_mod(float a, float b) {
  if (b == 0.f) return 0.f;
  const float r = fmodf(a, b);
  return r != 0.f && (r < 0.f) != (b < 0.f) ? r + b : r;
}
DEVICE float real_floor_div(float a, float b) {
  if (b == 0.f) return 0.f;
  const float q = (a - real_mod(a, b)) / b, down = floorf(q);
  return q - down > 0.5f ? down + 1.f : down;
}
DEVICE i64 shift_left(i64 a, i64 n) { return n < 0 || n > 63 ? 0 : (i64)((u64)a << n); }
DEVICE i64 shift_right(i64 a, i64 n) { return a >> (n < 0 || n > 63 ? 63 : n); }
template<class T> DEVICE T repeated(T a, u32 n) {
  T out = T(1);
  for (; n; n >>= 1, a = a * a) if (n & 1) out = out * a;
  return out;
}
DEVICE float finite(float x) { return min_nan(max_nan(x, -1e30f), 1e30f); }   // so that 0 times it is 0
// x to the power n, a whole number; `exponent`: n times the logarithm of |x| to base 2
DEVICE float whole_power(float x, float exponent, int n) {
  const float y = exp2_(exponent);
  return n == 0 ? 1.f : x < 0.f && (n & 1) ? -y : y;
}
// all 64 bits of a product. As `(u64)a * b` with a literal it is compiled to one instruction more
// The same word, from this thread by way of the others: neither compiler knows. What was found out of its bits is not kept for
// code that hardly ever runs.
DEVICE void read_again(u32& word) { asm volatile("{\n.reg .u32 lane;\nmov.u32 lane, %%laneid;\nshfl.sync.idx.b32 %0, %0, lane, 31, -1;\n}" : "+r"(word)); }
DEVICE void read_again(int& x) { asm volatile("" : "+r"(x)); }
template<int N> DEVICE void read_again(u32 (&words)[N]) { _Pragma("unroll") for (int k = 0; k < N; k++) read_again(words[k]); }
DEVICE void push_carry(u32& word, u32 a, u32 b) { asm("{\n.reg .u32 sum;\nadd.cc.u32 sum, %1, %2;\naddc.u32 %0, %0, %0;\n}" : "+r"(word) : "r"(a), "r"(b)); }
DEVICE u64 product_of(u32 a, u32 b) { u64 x; asm("mul.wide.u32 %0, %1, %2;" : "=l"(x) : "r"(a), "r"(b)); return x; }
// Philox 4x32-10: a word of random bits from integers; the upper 24 of them as a float in [0, 1)
DEVICE u32 random_word(i64 seed, u32 c0 = 0, u32 c1 = 0, u32 c2 = 0, u32 c3 = 0) {
  u32 k0 = (u32)seed, k1 = (u32)((u64)seed >> 32);
#pragma unroll
  for (int step = 0; step < 10; step++) {
    const u64 p0 = product_of(c0, 0xD2511F53u), p1 = product_of(c2, 0xCD9E8D57u);
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c0;
}
template<class... W> DEVICE float uniform(i64 seed, W... words) { return (float)(random_word(seed, words...) >> 8) * 5.9604644775390625e-8f; }
// the least such 24 bits whose float is x or more (`UP`: more than x); of a NaN `none`
template<bool UP> DEVICE u32 word_from(float x, u32 none) {
  const float y = x * 16777216.f, least = UP ? floorf(y) + 1.f : ceilf(y);
  return x != x ? none : least <= 0.f ? 0u : least >= 16777216.f ? 16777216u : (u32)least;
}
// A word of bits that come in from its end. Whether random bits reach a limit is the carry of one sum, but for a limit of 0.
DEVICE void push(u32& word, bool bit) { word = 2 * word + bit; }
DEVICE void push_reached(u32& word, u32 random, u32 limit) { push_carry(word, random, 0u - (limit << 8)); }
template<bool BELOW> DEVICE u32 pushed(u32 word, u32 limit) { return (limit ? word : ~0u) ^ (BELOW ? ~0u : 0u); }
template<class T> DEVICE T least(T a, T b) { return a < b ? a : b; }
template<class T> DEVICE T greatest(T a, T b) { return a > b ? a : b; }
// The least and the greatest position y with y // n == x. All of them are between x n and the next multiple of n, in 32 bits
// but for a product, since each window of each row asks.
DEVICE int product_within(int x, int n) { const i64 y = (i64)x * n; return (int)(y < -(1 << 30) ? -(1 << 30) : y > MOST ? MOST : y); }
DEVICE int nearest_number(int n) { return greatest<int>(-(1 << 30), least<int>(n, 1 << 30)); }
DEVICE int quotient_low(int x, int n) {
  const int m = nearest_number(n), y = greatest<int>(product_within(x, m) + least<int>(m + 1, 0), -(1 << 30));
  return m == 0 && x != 0 ? 1 << 30 : m == 0 ? 0 : y;
}
DEVICE int quotient_high(int x, int n) {
  const int m = nearest_number(n), y = least<int>(product_within(x, m), 1 << 30) + greatest<int>(m - 1, 0);
  return m == 0 && x != 0 ? -1 : m == 0 ? 1 << 30 : y;
}
// The ends of the positions whose quotients by n are between two numbers
DEVICE int quotients_from(int low, int high, int n) {
  if (n == 0) return low <= 0 && high >= 0 ? 0 : BEYOND;
  return quotient_low(n < 0 ? high : low, n);
}
DEVICE int quotients_to(int low, int high, int n) {
  if (n == 0) return low <= 0 && high >= 0 ? BEYOND : -1;
  return quotient_high(n < 0 ? low : high, n);
}
DEVICE int within(int a, int most) { return greatest<int>(-1, least<int>(a, most)); }
DEVICE i64 sum_stopped(i64 a, i64 b) {
  const i64 sum = (i64)((u64)a + (u64)b);
  return ((a ^ sum) & (b ^ sum)) < 0 ? (a < 0 ? -MOST_WIDE : MOST_WIDE) : sum;
}
DEVICE i64 difference_stopped(i64 a, i64 b) {
  const i64 rest = (i64)((u64)a - (u64)b);
  return ((a ^ b) & (a ^ rest)) < 0 ? (a < 0 ? -MOST_WIDE : MOST_WIDE) : rest;
}
// of the columns 8c and 8c + 1 of a thread those up to one, as the bits 2c and 2c + 1
DEVICE u32 first_bits(int n) { u32 x; asm("bmsk.clamp.b32 %0, 0, %1;" : "=r"(x) : "r"(n)); return x; }
DEVICE u32 columns_to(int last) { return first_bits(greatest<int>(2 * (last >> 3) + ((last & 7) ? 1 : 0) + 1, 0)); }
// bits of columns: those that any of the 8 threads has which have the same columns
DEVICE u32 bits_together(u32 x) {
  x |= __shfl_xor_sync(FULL, x, 4);
  x |= __shfl_xor_sync(FULL, x, 8);
  return x | __shfl_xor_sync(FULL, x, 16);
}
DEVICE int narrow(i64 a) { return (int)(a < -(1 << 30) ? -(1 << 30) : a > (1 << 30) ? (1 << 30) : a); }
// The positions whose remainders by n are between two numbers: where they begin and end in each period, and how long that is.
// Positions are below 2^28, so all numbers beyond 2^29 give them the same remainders, but those below 0 by so much less.
DEVICE int period_number(i64 n) { return (int)greatest<i64>(-FAR, least<i64>(n, FAR)); }
DEVICE int period_size(i64 n) { const int m = period_number(n); return m == 0 ? FAR : greatest<int>(m, -m); }
DEVICE i64 period_end(i64 x, i64 n) { return n < -FAR && x <= -FAR / 2 ? least<i64>(x - n - FAR, -FAR / 2) : x; }
DEVICE int period_from(i64 low, i64 n) {
  if (n == 0) return low <= 0 ? 0 : 2 * FAR;
  return narrow(greatest<i64>(period_end(low, n), least<i64>(period_number(n) + 1, 0)));
}
DEVICE int period_to(i64 high, i64 n) {
  if (n == 0) return high >= 0 ? FAR : -1;
  return narrow(least<i64>(period_end(high, n), greatest<i64>(period_number(n) - 1, 0)));
}
// bits of a thread's columns, the first of which is `first`
template<int COLUMNS> DEVICE u32 columns_of_period(int first, int from, int to, int size) {
  u32 bits = 0;
#pragma unroll 1
  for (int at = -(int)((u32)first % (u32)size); from <= to && at + from < COLUMNS; at += size)
    bits |= columns_to(at + to) & ~columns_to(at + from - 1);
  return bits;
}
// of a position, by any number: beyond all positions it does not matter for the quotient how far
DEVICE i64 position_mod(int a, i64 n) { return ((i64)a - (i64)floor_div<int>(a, narrow(n)) * n) & -(i64)(n != 0); }

// ---- elements of tensors that are asked for early: two adjacent ones, or one, of which nothing is read where `there` is not

DEVICE void two_of(const float* p, bool there, float& x, float& y) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p ld.global.nc.v2.f32 {%0, %1}, [%2];\n}" : "+f"(x), "+f"(y) : "l"(p), "r"((int)there));
}
DEVICE void one_of(const float* p, bool there, float& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.f32 %0, [%1];\n}" : "+f"(x) : "l"(p), "r"((int)there));
}
DEVICE void two_of(const u16* p, bool there, u32& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.u32 %0, [%1];\n}" : "+r"(x) : "l"(p), "r"((int)there));
}
DEVICE void one_of(const u16* p, bool there, u32& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.u16 %0, [%1];\n}" : "+r"(x) : "l"(p), "r"((int)there));
}
DEVICE void two_of(const unsigned char* p, bool there, u32& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.u16 %0, [%1];\n}" : "+r"(x) : "l"(p), "r"((int)there));
}
DEVICE void one_of(const unsigned char* p, bool there, u32& x) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.global.nc.u8 %0, [%1];\n}" : "+r"(x) : "l"(p), "r"((int)there));
}
template<class T> DEVICE bool side_by_side(const T* const (&at)[2], i64 stride) {
  return stride == 1 && (((u64)at[0] | (u64)at[1]) & (2 * sizeof(T) - 1)) == 0;
}
// a thread's elements of two rows in `BLOCKS` blocks of 8 columns, of which it has two; those before `rest` count
template<int BLOCKS> DEVICE void pairs_of(float (&x)[4 * BLOCKS], const float* const (&at)[2], const bool (&there)[2], i64 stride, int rest) {
  _Pragma("unroll") for (int k = 0; k < 4 * BLOCKS; k++) x[k] = 0.f;
  if (side_by_side(at, stride) && rest >= 8 * BLOCKS) {
    _Pragma("unroll") for (int c = 0; c < BLOCKS; c++) ROWS two_of(at[r] + 8 * c, there[r], x[4 * c + 2 * r], x[4 * c + 2 * r + 1]);
  } else {
    _Pragma("unroll") for (int k = 0; k < 4 * BLOCKS; k++) {
      const int r = k >> 1 & 1, column = 2 * (k & ~3) + (k & 1);
      one_of(at[r] + column * stride, there[r] && column < rest, x[k]);
    }
  }
}
template<int BLOCKS, class T> DEVICE void pairs_of(u32 (&x)[2 * BLOCKS], const T* const (&at)[2], const bool (&there)[2], i64 stride, int rest) {
  _Pragma("unroll") for (int k = 0; k < 2 * BLOCKS; k++) x[k] = 0;
  if (side_by_side(at, stride) && rest >= 8 * BLOCKS) {
    _Pragma("unroll") for (int c = 0; c < BLOCKS; c++) ROWS two_of(at[r] + 8 * c, there[r], x[2 * c + r]);
  } else {
    _Pragma("unroll") for (int c = 0; c < BLOCKS; c++) ROWS {
      u32 low = 0, high = 0;
      one_of(at[r] + 8 * c * stride, there[r] && 8 * c < rest, low);
      one_of(at[r] + (8 * c + 1) * stride, there[r] && 8 * c + 1 < rest, high);
      x[2 * c + r] = low | high << 8 * sizeof(T);
    }
  }
}
// a thread's elements by the difference of position and row: what its first row has in a block of columns, its second one has
// in the next; `first`: the second row's first place, in steps towards `SIGN`
template<int BLOCKS, int SIGN, class T, class X> DEVICE void diagonals_of(X (&x)[2 * BLOCKS + 2], const T* at, i64 stride, i64 first, i64 length, bool there) {
  const i64 last = first + SIGN * (8 * BLOCKS + 1);
  _Pragma("unroll") for (int k = 0; k < 2 * BLOCKS + 2; k++) x[k] = 0;
  if (there && (u64)first < (u64)length && (u64)last < (u64)length) {
    _Pragma("unroll") for (int k = 0; k < 2 * BLOCKS + 2; k++) one_of(at + (8 * (k >> 1) + (k & 1)) * stride, true, x[k]);
  } else {
    _Pragma("unroll") for (int k = 0; k < 2 * BLOCKS + 2; k++) {
      const int column = 8 * (k >> 1) + (k & 1);
      one_of(at + column * stride, there && (u64)(first + SIGN * column) < (u64)length, x[k]);
    }
  }
}

// ---- pieces of tiles that the loading warps compute: 8 adjacent columns of a row

template<class T> struct Piece { T of[8]; };
DEVICE uint2 load_two(const void* p) {
  uint2 v;
  asm("{\n.reg .pred p;\nsetp.ne.u64 p, %2, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\n@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n}"
    : "=&r"(v.x), "=&r"(v.y) : "l"(p));
  return v;
}
DEVICE uint4 load_four(const void* from, int k) {
  uint4 v;
  asm("{\n.reg .pred p;\nsetp.ne.u64 p, %4, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
    "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
    : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w) : "l"(from ? (const char*)from + 16 * k : nullptr));
  return v;
}
// 16 bytes into a tile; zeros from an address that is no multiple of 16, beyond one that can be read
constexpr u64 NO_ROW = 1, NO_COLUMN = 2;
DEVICE void copy_piece(u32 to, u64 from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
    :: "r"(to), "l"(from & ~(u64)15), "r"((u32)from & 15 ? 0 : 16) : "memory");
}
// a thread's own pieces, some windows ahead: addresses as above
template<int BYTES> DEVICE void copy_ahead(u32 to, u64 from) {
  const u64 p = from & ~(u64)7;
  const bool none = from & (BYTES == 8 ? 7 : 15);
  if constexpr (BYTES == 8) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" :: "r"(to), "l"(p), "r"(none ? 0 : 8) : "memory");
  } else {
#pragma unroll
    for (int k = 0; k < BYTES; k += 16)
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(to + k), "l"((p & ~(u64)15) + (none ? 0 : k)), "r"(none ? 0 : 16) : "memory");
  }
}
DEVICE void pieces_asked() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template<int N> DEVICE void pieces_here() { asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory"); }
template<class T> DEVICE Piece<T> staged_piece(u32 a) {
  Piece<T> x;
  if constexpr (sizeof(T) == 1) {
    uint2 v;
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "r"(a) : "memory");
    memcpy(&x, &v, 8);
  } else {
#pragma unroll
    for (int k = 0; k < (int)sizeof(T) / 2; k++) {
      uint4 v;
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(a + 16 * k) : "memory");
      memcpy((char*)&x + 16 * k, &v, 16);
    }
  }
  return x;
}
// this thread arrives at a barrier when the pieces that it copies have
DEVICE void copies_arrive(u32 b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" :: "r"(b) : "memory"); }
DEVICE void copied_for_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void pieces_copied() { asm volatile("cp.async.wait_all;" ::: "memory"); }
DEVICE i64 all_bits(i64 a) { return a; }
template<class... Rest> DEVICE i64 all_bits(i64 a, Rest... rest) { return a | all_bits(rest...); }
// whether pieces of a tensor can be loaded as a whole: they are dense and aligned
template<class T, class... Strides> DEVICE bool is_whole(const T* p, i64 step, Strides... strides) {
  constexpr int bytes = sizeof(T) == 1 ? 8 : 16;
  return step == 1 && ((u64)p & (bytes - 1)) == 0 && (all_bits(strides...) & (bytes / (int)sizeof(T) - 1)) == 0;
}
// 8 elements side by side, zeros without a place to load them from
template<class T> DEVICE Piece<T> whole_piece(const T* p) {
  Piece<T> x;
  if constexpr (sizeof(T) == 1) {
    const uint2 v = load_two(p);
    memcpy(&x, &v, 8);
  } else {
#pragma unroll
    for (int k = 0; k < (int)sizeof(T) / 2; k++) { const uint4 v = load_four(p, k); memcpy((char*)&x + 16 * k, &v, 16); }
  }
  return x;
}
// signed bytes as 16-bit numbers, two at a time, by way of numbers whose last bits are the bytes
DEVICE u32 minus_bf16(u32 x, u32 y) { u32 r; asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(0x3f803f80u), "r"(y ^ 0x80008000u)); return r; }
DEVICE u32 minus_f16(u32 x, u32 y) { u32 r; asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(r) : "r"(x), "r"(y)); return r; }
DEVICE u32 bytes_apart(u32 four, int k) { return __byte_perm(four, 0, k ? 0x4342 : 0x4140); }
DEVICE void widen_bf16(const Piece<signed char>& piece, u32 (&words)[4]) {
  u32 four[2];
  memcpy(four, &piece, 8);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 two = bytes_apart(four[k >> 1], k & 1);
    words[k] = minus_bf16((two & 0x007f007fu) | 0x43004300u, (two & 0x00800080u) | 0x43004300u);
  }
}
DEVICE void widen_f16(const Piece<signed char>& piece, u32 (&words)[4]) {
  u32 four[2];
  memcpy(four, &piece, 8);
#pragma unroll
  for (int k = 0; k < 4; k++) words[k] = minus_f16(bytes_apart(four[k >> 1], k & 1) ^ 0x64806480u, 0x64806480u);
}
template<int LINES> DEVICE u32 piece_place(u32 tile, int line, int piece) {
  return tile + (u32)((piece >> 3) * (LINES * 128) + line * 128 + (((piece ^ line) & 7) << 4));
}

// ---- the four threads that share a row

DEVICE float quad_sum(float x) { x += __shfl_xor_sync(FULL, x, 1); return x + __shfl_xor_sync(FULL, x, 2); }
DEVICE float quad_max(float x) { x = fmaxf(x, __shfl_xor_sync(FULL, x, 1)); return fmaxf(x, __shfl_xor_sync(FULL, x, 2)); }
DEVICE float quad_min(float x) { x = fminf(x, __shfl_xor_sync(FULL, x, 1)); return fminf(x, __shfl_xor_sync(FULL, x, 2)); }
DEVICE float quad_max_nan(float x) { x = max_nan(x, __shfl_xor_sync(FULL, x, 1)); return max_nan(x, __shfl_xor_sync(FULL, x, 2)); }
DEVICE float quad_min_nan(float x) { x = min_nan(x, __shfl_xor_sync(FULL, x, 1)); return min_nan(x, __shfl_xor_sync(FULL, x, 2)); }

// ---- rows of an output: where a thread has a pair in each of several blocks of 8 columns, it gathers neighbours

DEVICE void gather_row(u32 (&x)[2]) {
  const bool odd = threadIdx.x & 1;
  const u32 got = __shfl_xor_sync(FULL, odd ? x[0] : x[1], 1);
  if (odd) x[0] = got; else x[1] = got;
}
DEVICE void gather_row(u32 (&x)[4]) {
  const bool odd = threadIdx.x & 1, high = threadIdx.x & 2;
  const u32 a = __shfl_xor_sync(FULL, odd ? x[0] : x[1], 1), b = __shfl_xor_sync(FULL, odd ? x[2] : x[3], 1);
  if (odd) { x[0] = a; x[2] = b; } else { x[1] = a; x[3] = b; }
  const u32 c = __shfl_xor_sync(FULL, high ? x[0] : x[2], 2), d = __shfl_xor_sync(FULL, high ? x[1] : x[3], 2);
  if (high) { x[0] = c; x[1] = d; } else { x[2] = c; x[3] = d; }
}
DEVICE void store_if(bool here, void* p, const u32 (&x)[2]) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p st.global.v2.b32 [%0], {%1, %2};\n}"
    :: "l"(p), "r"(x[0]), "r"(x[1]), "r"((int)here) : "memory");
}
DEVICE void store_if(bool here, void* p, const u32 (&x)[4]) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p st.global.v4.b32 [%0], {%1, %2, %3, %4};\n}"
    :: "l"(p), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"((int)here) : "memory");
}
DEVICE void store_pair(float* p, float x, float y) { asm volatile("st.global.v2.f32 [%0], {%1, %2};" :: "l"(p), "f"(x), "f"(y) : "memory"); }

// ---- accumulators: element 2 HELD_ROWS c + x of a thread is in row g + 8 (x / 2), column 8c + 2 (lane % 4) + x % 2

template<int N> DEVICE void clear(float (&d)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++) d[i] = 0.f;
}
// the first BY elements to the end: so a loop that is not unrolled sees one after another
template<int BY, int N> DEVICE void turn_by(float (&d)[N]) {
  float first[BY];
#pragma unroll
  for (int i = 0; i < BY; i++) first[i] = d[i];
#pragma unroll
  for (int i = 0; i < N; i++) d[i] = i < N - BY ? d[i + BY < N ? i + BY : 0] : first[i < N - BY ? 0 : i - (N - BY)];
}
template<int N, int HELD> DEVICE void scale(float (&d)[N], const float (&f)[HELD]) {
#pragma unroll
  for (int i = 0; i < N; i++) d[i] *= f[(i >> 1) & (HELD - 1)];
}
