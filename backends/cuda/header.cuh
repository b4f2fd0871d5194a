// Primitives of tilec's CUDA kernels. The same text is plain C++ where TILEC_HOST is defined: `each_thread` is then a loop
// over the threads of a block, so that a kernel can be run and tested without a GPU.
#ifdef TILEC_HOST
#include <cmath>
#include <cstring>
#define DEVICE static inline
#define METHOD inline
#define GLOBAL extern "C" void
#define BOUNDS(threads)
#define each_thread for (int thread = tl::first; thread >= 0 && thread < THREADS; thread += tl::step)
#define SHARED(name, bytes) alignas(128) static unsigned char name[(bytes) + 1]; memset(name, 0xFF, bytes)
#define SYNC()
#define UNROLL
#define UNROLL_2
#define UNROLL_4
#define ROLLED
#else
#define DEVICE static __device__ __forceinline__
#define METHOD __device__ __forceinline__
#define GLOBAL extern "C" __global__ void
#define BOUNDS(threads) __launch_bounds__(threads, 2)
#define each_thread if (const int thread = threadIdx.x; true)
#define SHARED(name, bytes) extern __shared__ __align__(128) unsigned char name[]
#define SYNC() __syncthreads()
#define UNROLL _Pragma("unroll")
#define UNROLL_2 _Pragma("unroll 2")
#define UNROLL_4 _Pragma("unroll 4")
#define ROLLED _Pragma("unroll 1")
#endif

typedef long long i64;
typedef unsigned long long u64;
typedef int i32;
typedef unsigned int u32;
typedef short i16;
typedef unsigned short u16;
typedef signed char i8;
typedef unsigned char u8;
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
struct f8e4m3 { u8 bits; };
struct f8e5m2 { u8 bits; };
struct b8 { u8 bits; };  // a bool in memory

namespace tl {

#ifdef TILEC_HOST
static i64 block = 0, blocks = 1;
static int first = 0, step = 1;
DEVICE u32 bits_of(float x) { u32 u; memcpy(&u, &x, 4); return u; }
DEVICE u64 bits_of(double x) { u64 u; memcpy(&u, &x, 8); return u; }
DEVICE float float_of(u32 u) { float x; memcpy(&x, &u, 4); return x; }
DEVICE double double_of(u64 u) { double x; memcpy(&x, &u, 8); return x; }
DEVICE bool wanted(const u32* redo) { return !redo || *redo; }
DEVICE void redone(u32* redo) { if (redo && block + 1 == blocks) *redo = 0; }
DEVICE i64 block_index() { return block; }
DEVICE i64 block_count() { return blocks; }
#else
DEVICE u32 bits_of(float x) { return __float_as_uint(x); }
DEVICE u64 bits_of(double x) { return __double_as_longlong(x); }
DEVICE float float_of(u32 u) { return __uint_as_float(u); }
DEVICE double double_of(u64 u) { return __longlong_as_double(u); }
// Kernels of one call begin to start while the one before them runs, and go on here when it is done.
DEVICE void in_turn() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}
// A kernel with a flag `redo` runs where an earlier one raised it; the last block to end lowers it again.
DEVICE bool wanted(const u32* redo) {
  in_turn();
  return !redo || *redo;
}
DEVICE void redone(u32* redo) {
  __syncthreads();
  if (redo && threadIdx.x == 0 && atomicAdd(redo + 1, 1u) == gridDim.x - 1) redo[0] = redo[1] = 0;
}
DEVICE i64 block_index() { return blockIdx.x; }
DEVICE i64 block_count() { return gridDim.x; }
#endif
DEVICE float infinity(float) { return float_of(0x7f800000u); }
DEVICE double infinity(double) { return double_of(0x7ff0000000000000ull); }
DEVICE float nan(float) { return float_of(0x7fc00000u); }
DEVICE double nan(double) { return double_of(0x7ff8000000000000ull); }
template <class T> DEVICE bool is_nan(T x) { return x != x; }

// ---- storage types. Narrowing rounds to nearest even; f8e4m3 has no infinity: what is too large is NaN.

// a float of `M` mantissa bits and exponent bias `B`, from the bits of an f32; `top`: its largest finite bits
template <int M, int B>
DEVICE u32 narrow_bits(float x, u32 top, u32 beyond, u32 nan) {
  const u32 u = bits_of(x), sign = u >> 31, a = u & 0x7fffffffu;
  const int width = M == 3 || M == 2 ? 7 : 15;
  if (a > 0x7f800000u) return (sign << width) | nan;
  const int exponent = (int)(a >> 23) - 127 + B;
  u32 out;
  if (exponent >= 1) {
    const u32 drop = 23 - M, half = (1u << (drop - 1)) - 1 + ((a >> drop) & 1);
    out = exponent > 60 ? top + 1 : ((a + half) >> drop) - ((u32)(127 - B) << M);
  } else {  // subnormal: the value as a multiple of the smallest one, rounded by an addition
    const u32 shift = (u32)(127 - B + 1 + 23 - M) << 23;
    out = bits_of(float_of(a) + float_of(shift)) - shift;
  }
  if (out > top) out = beyond;
  return (sign << width) | out;
}

template <int M, int B>
DEVICE float widen_bits(u32 bits, int width, u32 top) {
  const u32 sign = bits >> width, a = bits & ((1u << width) - 1);
  float x;
  if (a > top) x = M != 3 && a == top + 1 ? infinity(0.f) : nan(0.f);
  else if (a >> M) x = float_of((a << (23 - M)) + ((u32)(127 - B) << 23));
  else x = (float)a * float_of((u32)(127 - B + 1 - M) << 23);
  return float_of(bits_of(x) | sign << 31);
}

DEVICE float widen(f16 x) {
#ifdef TILEC_HOST
  return widen_bits<10, 15>(x.bits, 15, 0x7bffu);
#else
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#endif
}
DEVICE float widen(bf16 x) { return float_of((u32)x.bits << 16); }
DEVICE float widen(f8e4m3 x) { return widen_bits<3, 7>(x.bits, 7, 0x7eu); }
DEVICE float widen(f8e5m2 x) { return widen_bits<2, 15>(x.bits, 7, 0x7bu); }
DEVICE float widen(float x) { return x; }
DEVICE double widen(double x) { return x; }
DEVICE i64 widen(i64 x) { return x; }
DEVICE i64 widen(i32 x) { return x; }
DEVICE i64 widen(i16 x) { return x; }
DEVICE i64 widen(i8 x) { return x; }
DEVICE i64 widen(u8 x) { return x; }
DEVICE bool widen(b8 x) { return x.bits != 0; }

DEVICE void store(f16* to, float x) {
#ifdef TILEC_HOST
  to->bits = (u16)narrow_bits<10, 15>(x, 0x7bffu, 0x7c00u, 0x7e00u);
#else
  u16 y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  to->bits = y;
#endif
}
DEVICE void store(bf16* to, float x) {
  const u32 u = bits_of(x);
  to->bits = is_nan(x) ? (u16)((u >> 16) | 0x40u) : (u16)((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}
DEVICE void store(f8e4m3* to, float x) { to->bits = (u8)narrow_bits<3, 7>(x, 0x7eu, 0x7fu, 0x7fu); }
DEVICE void store(f8e5m2* to, float x) { to->bits = (u8)narrow_bits<2, 15>(x, 0x7bu, 0x7cu, 0x7eu); }
DEVICE void store(float* to, float x) { *to = x; }
DEVICE void store(double* to, double x) { *to = x; }
DEVICE void store(i64* to, i64 x) { *to = x; }
DEVICE void store(i32* to, i64 x) { *to = (i32)x; }
DEVICE void store(i16* to, i64 x) { *to = (i16)x; }
DEVICE void store(i8* to, i64 x) { *to = (i8)x; }
DEVICE void store(u8* to, i64 x) { *to = (u8)x; }
DEVICE void store(b8* to, bool x) { to->bits = x; }
DEVICE void store(bool* to, bool x) { *to = x; }

// a number rounded to a storage type
template <class T> DEVICE float rounded(float x) { T y; store(&y, x); return widen(y); }
template <class T> DEVICE double rounded(double x) { T y; store(&y, (float)x); return widen(y); }

// to an integer: truncated; what does not fit is the smallest one
template <class T> DEVICE i64 truncate(T x) {
  return (x < T(0) ? -x : x) < T(9223372036854775808.0) ? (i64)x : (i64)0x8000000000000000ull;
}

// ---- absent zeros: where a value may hold one, it is the negative zero, and any other zero is positive

DEVICE bool gone(float x) { return bits_of(x) == 0x80000000u; }
DEVICE bool gone(double x) { return bits_of(x) == 0x8000000000000000ull; }
template <class T> DEVICE T ordinary(T x) { return x + T(0); }  // -0 becomes 0
template <class T> DEVICE T absent() { return T(-0.0); }

// ---- arithmetic by the language's rules: -inf absorbs all but NaN, 0 / 0 is 0

template <class T> DEVICE T add(T x, T y) {
  const T inf = infinity(T(0));
  return (x == -inf && y == inf) || (x == inf && y == -inf) ? -inf : x + y;
}
template <class T> DEVICE T sub(T x, T y) {
  const T inf = infinity(T(0));
  return x == -inf && y == -inf ? -inf : x - y;
}
template <class T> DEVICE T div(T x, T y) { return x == T(0) && y == T(0) ? T(0) : x / y; }
DEVICE float fma(float x, float y, float z) { return fmaf(x, y, z); }
DEVICE double fma(double x, double y, double z) { return ::fma(x, y, z); }
DEVICE i64 fma(i64 x, i64 y, i64 z) { return x * y + z; }
// a sum of products in which an absent zero hides its partner; `X`, `Y`: which factors may be one
template <bool X, bool Y, class T> DEVICE T fma_absent(T x, T y, T z) {
  return (X && gone(x)) || (Y && gone(y)) ? z : fma(x, y, z);
}

template <class T> DEVICE T max(T x, T y) { return x > y || is_nan(x) ? x : y; }
template <class T> DEVICE T min(T x, T y) { return x < y || is_nan(x) ? x : y; }
DEVICE float maxnum(float x, float y) { return fmaxf(x, y); }
DEVICE double maxnum(double x, double y) { return fmax(x, y); }
DEVICE i64 maxnum(i64 x, i64 y) { return x > y ? x : y; }
template <class T> DEVICE T abs(T x) { return x < T(0) ? -x : x; }
DEVICE float abs(float x) { return fabsf(x); }
DEVICE double abs(double x) { return fabs(x); }

// of positive numbers, bit by bit: rare, and short enough to lie in line, where a call would cost registers
DEVICE u64 long_division(u64 x, u64 y, u64& rest) {
  u64 q = 0, r = 0;
  ROLLED for (int bit = 63; bit >= 0; --bit) {
    const bool carry = r >> 63;
    r = r << 1 | (x >> bit & 1);
    q <<= 1;
    if (carry || r >= y) r -= y, q |= 1;
  }
  rest = r;
  return q;
}
DEVICE u64 magnitude(i64 x) { return x < 0 ? 0 - (u64)x : (u64)x; }
DEVICE i64 wide_quotient(i64 x, i64 y) {
  u64 rest;
  const u64 q = long_division(magnitude(x), magnitude(y), rest);
  return (i64)((x < 0) != (y < 0) ? 0 - q : q);
}
DEVICE i64 wide_remainder(i64 x, i64 y) {
  u64 rest;
  long_division(magnitude(x), magnitude(y), rest);
  return (i64)(x < 0 ? 0 - rest : rest);
}
DEVICE bool narrow(i64 x, i64 y) { return (((u64)x | (u64)y) >> 32) == 0; }
// of integers, 32 bits wide where they fit: the GPU divides wider ones slowly
DEVICE i64 floordiv(i64 x, i64 y) {
  if (y == 0) return 0;
  if (narrow(x, y)) return (u32)x / (u32)y;
  if (y == -1) return (i64)(0 - (u64)x);
  const i64 q = wide_quotient(x, y);
  return q - (q * y != x && (x < 0) != (y < 0));
}
DEVICE i64 mod(i64 x, i64 y) {
  if (y == 0 || y == -1) return 0;
  if (narrow(x, y)) return (u32)x % (u32)y;
  const i64 r = wide_remainder(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
DEVICE float remainder_of(float x, float y) { return fmodf(x, y); }
DEVICE double remainder_of(double x, double y) { return fmod(x, y); }
template <class T> DEVICE T mod(T x, T y) {
  if (y == T(0)) return T(0);
  const T r = remainder_of(x, y);
  return r != T(0) && (r < T(0)) != (y < T(0)) ? r + y : r;
}
DEVICE float floor(float x) { return floorf(x); }
DEVICE double floor(double x) { return ::floor(x); }
template <class T> DEVICE T floordiv(T x, T y) {
  if (y == T(0)) return T(0);
  const T q = (x - mod(x, y)) / y, down = floor(q);
  return q - down > T(0.5) ? down + T(1) : down;
}
DEVICE i64 shl(i64 x, i64 n) { return n < 0 || n > 63 ? 0 : (i64)((u64)x << n); }
DEVICE i64 shr(i64 x, i64 n) { return x >> (n < 0 || n > 63 ? 63 : n); }
template <class T> DEVICE T ipow(T x, u64 n) {
  T out = T(1);
  for (; n; n >>= 1, x = x * x) if (n & 1) out = out * x;
  return out;
}

#define ONE(name, single, wide) \
  DEVICE float name(float x) { return single(x); } \
  DEVICE double name(double x) { return wide(x); }
ONE(exp, expf, ::exp)
ONE(exp2, exp2f, ::exp2)
ONE(log, logf, ::log)
ONE(log2, log2f, ::log2)
ONE(tanh, tanhf, ::tanh)
ONE(sqrt, sqrtf, ::sqrt)
ONE(erf, erff, ::erf)
ONE(sin, sinf, ::sin)
ONE(cos, cosf, ::cos)
ONE(ceil, ceilf, ::ceil)
ONE(round, rintf, ::rint)
#undef ONE
DEVICE float pow(float x, float y) { return powf(x, y); }
DEVICE double pow(double x, double y) { return ::pow(x, y); }
DEVICE float atan2(float x, float y) { return atan2f(x, y); }
DEVICE double atan2(double x, double y) { return ::atan2(x, y); }
template <class T> DEVICE T rsqrt(T x) { return T(1) / sqrt(x); }
template <class T> DEVICE T sigmoid(T x) { return T(1) / (T(1) + exp(-x)); }
template <class T> DEVICE T silu(T x) { return x / (T(1) + exp(-x)); }
template <class T> DEVICE T relu(T x) { return x > T(0) || is_nan(x) ? x : T(0); }
template <class T> DEVICE bool isfinite(T x) { return abs(x) < infinity(T(0)); }

// all 64 bits of a product. As `(u64)x * y` with a literal it is compiled to one instruction more
DEVICE u64 product_of(u32 x, u32 y) {
#ifdef TILEC_HOST
  return (u64)x * y;
#else
  u64 z;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(z) : "r"(x), "r"(y));
  return z;
#endif
}
// Philox 4x32-10: a float in [0, 1) from integers
DEVICE double uniform(i64 seed, i64 w0 = 0, i64 w1 = 0, i64 w2 = 0, i64 w3 = 0) {
  u32 k0 = (u32)seed, k1 = (u32)((u64)seed >> 32), c0 = (u32)w0, c1 = (u32)w1, c2 = (u32)w2, c3 = (u32)w3;
  UNROLL for (int step = 0; step < 10; ++step) {
    const u64 p0 = product_of(c0, 0xD2511F53u), p1 = product_of(c2, 0xCD9E8D57u);
    c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
    c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
    c1 = (u32)p1;
    c3 = (u32)p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return (float)(c0 >> 8) * float_of(0x33800000u);
}

// a narrow float that may be an absent zero: what merely underflows is a positive zero
template <class T> DEVICE void store_marked(T* to, float x) {
  store(to, x);
  if ((u16)(to->bits << 1) == 0 && !gone(x)) to->bits = 0;
}

// ---- products of tiles in shared memory, by the 32 lanes of a warp
//
// acc[m][n] holds, as mma.m16n8 has it, elements of the rows 16 m + lane / 4 (+ 8) and the columns 8 n + 2 (lane % 4) (+ 1).
// `a` is [row][depth] with `lda` elements from row to row, or [depth][row] (AT); `b` is [column][depth], or [depth][column] (BT).

DEVICE int row_of(int lane, int m, int v) { return 16 * m + lane / 4 + 8 * (v / 2); }
DEVICE int column_of(int lane, int n, int v) { return 8 * n + 2 * (lane % 4) + v % 2; }

// one product after the other; `X`, `Y`: which factors may be absent zeros
template <bool X, bool Y, class T, int M, int N, bool AT, bool BT>
DEVICE void products_exact(float (&acc)[M][N][4], const T* a, int lda, const T* b, int ldb, int depth, int lane) {
  ROLLED for (int k = 0; k < depth; ++k) {
    UNROLL for (int m = 0; m < M; ++m) UNROLL for (int n = 0; n < N; ++n) UNROLL for (int v = 0; v < 4; ++v) {
      const int row = row_of(lane, m, v), column = column_of(lane, n, v);
      const float x = widen(a[AT ? k * lda + row : row * lda + k]), y = widen(b[BT ? k * ldb + column : column * ldb + k]);
      acc[m][n][v] = fma_absent<X, Y>(x, y, acc[m][n][v]);
    }
  }
}

#ifndef TILEC_HOST
template <bool T> DEVICE void ldmatrix(u32 (&r)[4], u32 at) {
  if (T) asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
  else asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at) : "memory");
}
DEVICE void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, f16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
DEVICE void mma(float (&c)[4], const u32 (&a)[4], u32 b0, u32 b1, bf16) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
#endif

// `depth`: a multiple of 16; N: even
template <class T, int M, int N, bool AT, bool BT>
DEVICE void products(float (&acc)[M][N][4], const T* a, int lda, const T* b, int ldb, int depth, int lane) {
#ifdef TILEC_HOST
  products_exact<false, false, T, M, N, AT, BT>(acc, a, lda, b, ldb, depth, lane);
#else
  __syncwarp();  // the lanes may have parted in what they did with the last block
  const int r = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
  const int a0 = AT ? (high + r) * lda + low : (low + r) * lda + high;
  const int b0 = BT ? (low + r) * ldb + high : (high + r) * ldb + low;
  const u32 as = (u32)__cvta_generic_to_shared(a + a0), bs = (u32)__cvta_generic_to_shared(b + b0);
  _Pragma("unroll 2") for (int k = 0; k < depth; k += 16) {
    u32 x[M][4];
    UNROLL for (int m = 0; m < M; ++m) ldmatrix<AT>(x[m], as + 2 * (AT ? k * lda + 16 * m : 16 * m * lda + k));
    UNROLL for (int n = 0; n < N; n += 2) {
      u32 y[4];
      ldmatrix<BT>(y, bs + 2 * (BT ? k * ldb + 8 * n : 8 * n * ldb + k));
      UNROLL for (int m = 0; m < M; ++m) {
        mma(acc[m][n], x[m], y[0], y[1], T());
        mma(acc[m][n + 1], x[m], y[2], y[3], T());
      }
    }
  }
#endif
}

// whether rows of a tensor can be read 16 bytes at a time: the last dimension is dense, and all else is aligned
template <class... S> DEVICE bool in_pieces(const void* base, int size, i64 last, S... strides) {
  u64 all = (u64)base;
  const i64 each[] = {0, strides...};
  for (i64 s : each) all |= (u64)(s * size);
  return last == 1 && all % 16 == 0;
}
struct alignas(16) Piece { u32 words[4]; };

// `N` adjacent elements that one thread reads; `whole`: 16 bytes at a time, if they are that many
template <class T, int N> struct Row {
  alignas(16) T x[N];
  METHOD void load(const T* from, i64 stride, bool whole) {
    if (whole && N * sizeof(T) % 16 == 0) {
      UNROLL for (int k = 0; k < (int)(N * sizeof(T) / 16); ++k) ((Piece*)x)[k] = ((const Piece*)from)[k];
    } else {
      UNROLL for (int k = 0; k < N; ++k) x[k] = from[k * stride];
    }
  }
};

// whether an index is in range
DEVICE bool inside(i64 x, i64 n) { return (u64)x < (u64)n; }
DEVICE i64 least(i64 x, i64 y) { return x < y ? x : y; }

}  // namespace tl
