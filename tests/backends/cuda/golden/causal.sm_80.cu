// causal for sm_80, made by tilec, emitter ampere; schedule warps=4,height=32,columns=64,stages=2,slices=1,query=registers,blocks=2,order=longest,section=8,late=528,relax=true,pieces=0
// causal: schedule warps=4,height=32,columns=64,stages=2,slices=1,query=registers,blocks=2,order=longest,section=8,late=528,relax=true,pieces=0
#define HELD_ROWS 4
#define THREAD (int)threadIdx.x
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


// … hopper.cuh: numbers
// … hopper.cuh: pieces of tiles that the loading warps compute: 8 adjacent columns of a row
// … hopper.cuh: the four threads that share a row
// … hopper.cuh: rows of an output: where a thread has a pair in each of several blocks of 8 columns, it gathers neighbours
// … hopper.cuh: accumulators: element 2 HELD_ROWS c + x of a thread is in row g + 8 (x / 2), column 8c + 2 (lane % 4) + x % 2
// … primitives.cuh

// … fragments.cuh

extern "C" __global__ void __launch_bounds__(128, 2) causal_0(
    const u16* __restrict__ Q,
    const i64 Q_stride0,
    const i64 Q_stride1,
    const i64 Q_stride2,
    const i64 Q_stride3,
    const u16* __restrict__ K,
    const i64 K_stride0,
    const i64 K_stride1,
    const i64 K_stride2,
    const i64 K_stride3,
    const u16* __restrict__ V,
    const i64 V_stride0,
    const i64 V_stride1,
    const i64 V_stride2,
    const i64 V_stride3,
    u16* __restrict__ O,
    const i64 O_stride0,
    const i64 O_stride1,
    const i64 O_stride2,
    const i64 O_stride3,
    const int B,
    const int H,
    const int M,
    const int N,
    const int most_heads,
    const int late_rows,
    u32* __restrict__ redo) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  const int lane = threadIdx.x & 31, warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);
  const u32 corner = (lane & 15) * 128 + (((lane >> 4) ^ (lane & 7)) << 4);   // in 16 rows, for `matrices`
  const u32 turned = ((lane & 7) + (lane >> 4) * 8) * 128 + (((lane >> 3 & 1) ^ (lane & 7)) << 4);
  in_turn();
  const int row_tiles = (M + 127) / 128;
  const int heads = (B) * (H);
  const int tile = blockIdx.x;
  int origin, b, h;
  const int late = late_rows * heads;
  int place = row_tiles * heads - 1 - tile;   // so that the last section is whole
  int head = 0, width = heads, row = 0;
  if (place >= late) {
    const int tall = row_tiles - late_rows, whole = tall * most_heads;
    place -= late;
    head = place / whole * most_heads;
    place %= whole;
    width = least<int>(most_heads, heads - head);
    row = late_rows;
  }
  head += place % width;
  origin = (row + place / width) * 128;
  h = head % (H); head /= H;
  b = head;
  int row_i[4]; ROWS row_i[r] = origin + warp * 32 + ((lane) >> 2) + 8 * r;   // i
  int t_3[4]; ROWS t_3[r] = (row_i[r] + N);  // add(i, N)   examples/causal.tile:4
  int t_4[4]; ROWS t_4[r] = (t_3[r] - M);  // sub(t_3, M)   examples/causal.tile:4
  const int i_first = origin;  // edge()
  const int i_last = least<int>(origin + 128, M) - 1;  // edge()
  const int t_25 = (i_first + N);  // add(i_first, N)
  const int t_26 = (t_25 - M);  // sub(t_25, M)
  const int t_27 = (i_last + N);  // add(i_last, N)
  const int t_28 = (t_27 - M);  // sub(t_27, M)
  const int t_29 = (t_28 + 1);  // add(t_28, 1)
  const int t_30 = least<int>(N, t_29);  // min(N, t_29)
  const int t_31 = (t_26 + 1);  // add(t_26, 1)
  const int t_32 = least<int>(N, t_31);  // min(N, t_31)
  const int t_33 = (t_32 >> 6);  // floordiv(t_32, 64)
  const i64 t_34 = ((i64)64 * t_33);  // mul(t_33, 64)
  const i64 t_35 = greatest<i64>(0, t_34);  // max(0, t_34)
  const int start_0 = 0;
  const int windows_0 = ((int)greatest<i64>(0, least<i64>(t_35, N) - start_0) + 63) / 64;
  const int start_1 = (int)least<i64>(t_35, N);
  const int windows_1 = ((int)greatest<i64>(0, least<i64>(t_30, N) - start_1) + 63) / 64;
  float t_1[64];
  u32 t_52_packed[32];
  float m[4]; ROWS m[r] = NEG_INF;
  float l[4]; ROWS l[r] = 0.0f;
  float O_1[64];
  clear(O_1);
  const int windows = windows_0 + windows_1;
  const auto window_at = [&](int n) {
    if (n < windows_1) return start_1 + (windows_1 - 1 - n) * 64;
    n -= windows_1;
    return start_0 + (windows_0 - 1 - n) * 64;
  };
  const auto copy_q = [&](int position, int stage) {
    const int thread = THREAD, row = thread >> 3, piece = thread & 7;
    const u16* const from = Q + (i64)(b) * (int)Q_stride0 + (i64)(h) * (int)Q_stride1 + (i64)(position + row) * (int)Q_stride2 + 8 * piece;
    const u32 to = shared + 0 + row * 128 + ((piece ^ (row & 7)) << 4);
    const int left = M - position;
    if (left >= 128) copy_rows<128, 64, 128>(to, from, (int)Q_stride2);
    else copy_some_rows<128, 64, 128>(to, from, (int)Q_stride2, left - row);
  };
  const auto copy_k = [&](int position, int stage) {
    const int thread = THREAD, row = thread >> 3, piece = thread & 7;
    const u16* const from = K + (i64)(b) * (int)K_stride0 + (i64)(h) * (int)K_stride1 + (i64)(position + row) * (int)K_stride2 + 8 * piece;
    const u32 to = shared + 16384 + stage * 8192 + row * 128 + ((piece ^ (row & 7)) << 4);
    const int left = N - position;
    if (left >= 64) copy_rows<64, 64, 128>(to, from, (int)K_stride2);
    else copy_some_rows<64, 64, 128>(to, from, (int)K_stride2, left - row);
  };
  const auto copy_v = [&](int position, int stage) {
    const int thread = THREAD, row = thread >> 3, piece = thread & 7;
    const u16* const from = V + (i64)(b) * (int)V_stride0 + (i64)(h) * (int)V_stride1 + (i64)(position + row) * (int)V_stride2 + 8 * piece;
    const u32 to = shared + 32768 + stage * 8192 + row * 128 + ((piece ^ (row & 7)) << 4);
    const int left = N - position;
    if (left >= 64) copy_rows<64, 64, 128>(to, from, (int)V_stride2);
    else copy_some_rows<64, 64, 128>(to, from, (int)V_stride2, left - row);
  };
  if (windows > 0) {
    copy_q(origin, 0);
    copy_k(window_at(0), 0);
    copy_v(window_at(0), 0);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    u32 q_held[4][2][4];
#pragma unroll
    for (int k = 0; k < 4; k++) rows_of<4>(q_held[k], shared + 0 + warp * 4096, corner, 128, k);
    int n = 0, stage = 0;
#pragma unroll 1
    for (const int end = windows_1; n < end; n++) {
      const int window = window_at(n);
      copies_wait<0>();
      __syncthreads();
      if (n + 1 < windows) {
        const int next = window_at(n + 1), free = stage == 0 ? 1 : stage - 1;
        copy_k(next, free);
        copy_v(next, free);
      }
      copies_commit();
      const int stream_lane = window + 2 * (lane & 3);   // j
      const int rest = N - stream_lane;
      if (n == 0) {
        float few_[16];
        held_by_rows<f16, 64, 4, false>(few_, q_held, shared + 16384 + stage * 8192, turned);   // t_1 = contract(q, k, over=d)
        int row_i[4]; ROWS row_i[r] = origin + warp * 32 + ((again(lane)) >> 2) + 8 * r;   // i
        int t_3[4]; ROWS t_3[r] = (row_i[r] + N);  // add(i, N)   examples/causal.tile:4
        int t_4[4]; ROWS t_4[r] = (t_3[r] - M);  // sub(t_3, M)   examples/causal.tile:4
        u32 counting_[4];
        ROWS counting_[r] = columns_to(t_4[r] - stream_lane);
        {
          float guess[8];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float t_12_x = ((counting_[r] & (1u << (2 * c + (x & 1) & 31))) ? few_[8 * c + x] : NEG_INF);  // select(t_5, t_11, -inf)   examples/causal.tile:3
            const float t_12_in = column < rest ? (t_12_x * 0.18033688f) : NEG_INF;
            guess[x] = t_12_in;
          }
          ROWS m[r] = quad_max(fmaxf(guess[2 * r], guess[2 * r + 1]));
        }
      }
      held_by_rows<f16, 64, 4, false>(t_1, q_held, shared + 16384 + stage * 8192, turned);   // t_1 = contract(q, k, over=d)
      int row_i[4]; ROWS row_i[r] = origin + warp * 32 + ((again(lane)) >> 2) + 8 * r;   // i
      int t_3[4]; ROWS t_3[r] = (row_i[r] + N);  // add(i, N)   examples/causal.tile:4
      int t_4[4]; ROWS t_4[r] = (t_3[r] - M);  // sub(t_3, M)   examples/causal.tile:4
      {
        float t_14[4]; ROWS t_14[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/causal.tile:4
        float r_1[4]; ROWS r_1[r] = max_nan(t_14[r], -3.4028235e+38f);  // max(t_14, -3.4028234663852886e+38)   examples/causal.tile:4
        float t_49_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_36)   examples/causal.tile:4
        u32 counting__[4];
        ROWS counting__[r] = columns_to(least<int>(t_4[r] - stream_lane, rest - 1));
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_36_four[8];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_12_x_ = ((counting__[r] & (1u << (2 * c + (x & 1) & 31))) ? t_1[8 * c + x] : NEG_INF);  // select(t_5, t_11, -inf)   examples/causal.tile:3
            const float t_24_x = fmaf(t_12_x_, 0.18033688f, -(r_1[r]));  // sub(t_12, r_1)   examples/causal.tile:4
            const float t_36_x = exp2_(t_24_x);  // exp2(t_24)   examples/causal.tile:4
            t_36_four[x] = t_36_x;
            t_49_part[r] = t_49_part[r] + t_36_x;
          }
          t_52_packed[4 * c] = pack_f16(t_36_four[0], t_36_four[1]);
          t_52_packed[4 * c + 1] = pack_f16(t_36_four[2], t_36_four[3]);
          t_52_packed[4 * c + 2] = pack_f16(t_36_four[4], t_36_four[5]);
          t_52_packed[4 * c + 3] = pack_f16(t_36_four[6], t_36_four[7]);
        }
        float t_49[4]; ROWS t_49[r] = t_49_part[r];
        float l_7[4]; ROWS l_7[r] = (l[r] + t_49[r]);  // add(l_0, t_49)   examples/causal.tile:4
        if (__builtin_expect(__all_sync(FULL, (t_49[0] <= 256.0f) & (t_49[1] <= 256.0f) & (t_49[2] <= 256.0f) & (t_49[3] <= 256.0f)), 1)) {
          ROWS l[r] = l_7[r];
        }
        else {
          held_by_rows<f16, 64, 4, false>(t_1, q_held, shared + 16384 + stage * 8192, turned);   // t_1 = contract(q, k, over=d)
          int row_i[4]; ROWS row_i[r] = origin + warp * 32 + ((lane_number()) >> 2) + 8 * r;   // i
          int t_3[4]; ROWS t_3[r] = (row_i[r] + N);  // add(i, N)   examples/causal.tile:4
          int t_4[4]; ROWS t_4[r] = (t_3[r] - M);  // sub(t_3, M)   examples/causal.tile:4
          float t_14[4]; ROWS t_14[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_1[4]; ROWS r_1[r] = max_nan(t_14[r], -3.4028235e+38f);  // max(t_14, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_12)   examples/causal.tile:4
          u32 counting___[4];
          ROWS counting___[r] = columns_to(least<int>(t_4[r] - stream_lane, rest - 1));
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_12_x__ = ((counting___[r] & (1u << (2 * c + (x & 1) & 31))) ? t_1[8 * c + x] : NEG_INF);  // select(t_5, t_11, -inf)   examples/causal.tile:3
              t_part[r] = fmaxf(t_part[r], t_12_x__);
              t_1[8 * c + x] = t_12_x__;
            }
          }
          float t[4]; ROWS t[r] = quad_max(t_part[r]) * 0.18033688f;
          float m_1[4]; ROWS m_1[r] = max_nan(m[r], t[r]);  // max(m_0, t)   examples/causal.tile:4
          float t_8[4]; ROWS t_8[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_[4]; ROWS r_[r] = max_nan(t_8[r], -3.4028235e+38f);  // max(t_8, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_15[4]; ROWS t_15[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/causal.tile:4
          float alpha[4]; ROWS alpha[r] = exp2_(t_15[r]);  // exp2(t_15)   examples/causal.tile:4
          float t_16[4]; ROWS t_16[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/causal.tile:4
          float t_13_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_9)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_9_four[8];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_7_x = fmaf(t_1[8 * c + x], 0.18033688f, -(r_[r]));  // sub(t_12, r)   examples/causal.tile:4
              const float t_9_x = exp2_(t_7_x);  // exp2(t_7)   examples/causal.tile:4
              t_9_four[x] = t_9_x;
              t_13_part[r] = t_13_part[r] + t_9_x;
            }
            t_52_packed[4 * c] = pack_f16(t_9_four[0], t_9_four[1]);
            t_52_packed[4 * c + 1] = pack_f16(t_9_four[2], t_9_four[3]);
            t_52_packed[4 * c + 2] = pack_f16(t_9_four[4], t_9_four[5]);
            t_52_packed[4 * c + 3] = pack_f16(t_9_four[6], t_9_four[7]);
          }
          float t_13[4]; ROWS t_13[r] = t_13_part[r];
          float l_1[4]; ROWS l_1[r] = (t_16[r] + t_13[r]);  // add(t_16, t_13)   examples/causal.tile:4
          scale(O_1, alpha);  // mul(O_1_0, alpha)   examples/causal.tile:5
          ROWS m[r] = m_1[r];
          ROWS l[r] = l_1[r];
        }
      }
      weights_by_columns<f16, 64, 4>(O_1, t_52_packed, shared + 32768 + stage * 8192, corner);   // O_1 += contract(t_52, v, over=j)
      stage = stage == 1 ? 0 : stage + 1;
    }
#pragma unroll 1
    for (const int end = windows_1 + windows_0; n < end; n++) {
      const int window = window_at(n);
      copies_wait<0>();
      __syncthreads();
      if (n + 1 < windows) {
        const int next = window_at(n + 1), free = stage == 0 ? 1 : stage - 1;
        copy_k(next, free);
        copy_v(next, free);
      }
      copies_commit();
      const int stream_lane = window + 2 * (lane & 3);   // j
      if (n == 0) {
        float few__[16];
        held_by_rows<f16, 64, 4, false>(few__, q_held, shared + 16384 + stage * 8192, turned);   // t_37 = contract(q, k, over=d)
        {
          float guess_[8];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float t_38_x = (few__[8 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
            guess_[x] = t_38_x;
          }
          ROWS m[r] = quad_max(fmaxf(guess_[2 * r], guess_[2 * r + 1]));
        }
      }
      held_by_rows<f16, 64, 4, false>(t_1, q_held, shared + 16384 + stage * 8192, turned);   // t_37 = contract(q, k, over=d)
      {
        float t_44[4]; ROWS t_44[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/causal.tile:4
        float r_3[4]; ROWS r_3[r] = max_nan(t_44[r], -3.4028235e+38f);  // max(t_44, -3.4028234663852886e+38)   examples/causal.tile:4
        float t_10_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_6)   examples/causal.tile:4
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_6_four[8];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_38_x_ = (t_1[8 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
            const float t_2_x = fmaf(t_1[8 * c + x], 0.18033688f, -(r_3[r]));  // sub(t_38, r_3)   examples/causal.tile:4
            const float t_6_x = exp2_(t_2_x);  // exp2(t_2)   examples/causal.tile:4
            t_6_four[x] = t_6_x;
            t_10_part[r] = t_10_part[r] + t_6_x;
          }
          t_52_packed[4 * c] = pack_f16(t_6_four[0], t_6_four[1]);
          t_52_packed[4 * c + 1] = pack_f16(t_6_four[2], t_6_four[3]);
          t_52_packed[4 * c + 2] = pack_f16(t_6_four[4], t_6_four[5]);
          t_52_packed[4 * c + 3] = pack_f16(t_6_four[6], t_6_four[7]);
        }
        float t_10[4]; ROWS t_10[r] = t_10_part[r];
        float l_5[4]; ROWS l_5[r] = (l[r] + t_10[r]);  // add(l_3, t_10)   examples/causal.tile:4
        if (__builtin_expect(__all_sync(FULL, (t_10[0] <= 256.0f) & (t_10[1] <= 256.0f) & (t_10[2] <= 256.0f) & (t_10[3] <= 256.0f)), 1)) {
          ROWS l[r] = l_5[r];
        }
        else {
          held_by_rows<f16, 64, 4, false>(t_1, q_held, shared + 16384 + stage * 8192, turned);   // t_37 = contract(q, k, over=d)
          float t_44[4]; ROWS t_44[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_3[4]; ROWS r_3[r] = max_nan(t_44[r], -3.4028235e+38f);  // max(t_44, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_39_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_38)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_39_part[r] = fmaxf(t_39_part[r], t_1[8 * c + x]);
            }
          }
          float t_39[4]; ROWS t_39[r] = quad_max(t_39_part[r]) * 0.18033688f;
          float m_4[4]; ROWS m_4[r] = max_nan(m[r], t_39[r]);  // max(m_3, t_39)   examples/causal.tile:4
          float t_40[4]; ROWS t_40[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_2[4]; ROWS r_2[r] = max_nan(t_40[r], -3.4028235e+38f);  // max(t_40, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_45[4]; ROWS t_45[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/causal.tile:4
          float alpha_1[4]; ROWS alpha_1[r] = exp2_(t_45[r]);  // exp2(t_45)   examples/causal.tile:4
          float t_46[4]; ROWS t_46[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/causal.tile:4
          float t_43_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_42)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_42_four[8];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_38_x__ = (t_1[8 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
              const float t_41_x = fmaf(t_1[8 * c + x], 0.18033688f, -(r_2[r]));  // sub(t_38, r_2)   examples/causal.tile:4
              const float t_42_x = exp2_(t_41_x);  // exp2(t_41)   examples/causal.tile:4
              t_42_four[x] = t_42_x;
              t_43_part[r] = t_43_part[r] + t_42_x;
            }
            t_52_packed[4 * c] = pack_f16(t_42_four[0], t_42_four[1]);
            t_52_packed[4 * c + 1] = pack_f16(t_42_four[2], t_42_four[3]);
            t_52_packed[4 * c + 2] = pack_f16(t_42_four[4], t_42_four[5]);
            t_52_packed[4 * c + 3] = pack_f16(t_42_four[6], t_42_four[7]);
          }
          float t_43[4]; ROWS t_43[r] = t_43_part[r];
          float l_4[4]; ROWS l_4[r] = (t_46[r] + t_43[r]);  // add(t_46, t_43)   examples/causal.tile:4
          scale(O_1, alpha_1);  // mul(O_1_1, alpha_1)   examples/causal.tile:5
          ROWS m[r] = m_4[r];
          ROWS l[r] = l_4[r];
        }
      }
      weights_by_columns<f16, 64, 4>(O_1, t_52_packed, shared + 32768 + stage * 8192, corner);   // O_1 += contract(t_22, v, over=j)
      stage = stage == 1 ? 0 : stage + 1;
    }
  }
  {
    float l_total[4]; ROWS l_total[r] = quad_sum(l[r]);
    {
      u32 probe_ = 0;
      float inverse_l_total[4]; ROWS inverse_l_total[r] = reciprocal(l_total[r]);
      __syncwarp();   // what was there has left
      const u32 out_place = shared + warp * 4096;
      const u32 out_lane = out_place + (lane >> 2) * 144 + (lane & 3) * 4;
      if (__all_sync(FULL, regular(l_total[0]) & regular(l_total[1]) & regular(l_total[2]) & regular(l_total[3]))) {
#pragma unroll
        for (int b16 = 0; b16 < 4; b16++) {
          float four[2][8];
#pragma unroll
          for (int b8 = 0; b8 < 2; b8++) EACH {
            const int c = 2 * b16 + b8, r = x >> 1, column = 8 * c + (x & 1);
            const float t_19_x = (O_1[8 * c + x] * inverse_l_total[r]);  // div(O_1, l)   examples/causal.tile:5
            four[b8][x] = t_19_x;
          }
          probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]), pack_bf16(four[0][4], four[0][5]), pack_bf16(four[0][6], four[0][7]), pack_bf16(four[1][4], four[1][5]), pack_bf16(four[1][6], four[1][7]));
          const u32 out_0 = (out_lane ^ ((2 * (b16 & 3) + 0) << 4)) + (b16 >> 2) * 16384;
          shared_word(out_0 + 0, pack_f16(four[0][0], four[0][1]));
          shared_word(out_0 + 1024, pack_f16(four[0][2], four[0][3]));
          shared_word(out_0 + 2048, pack_f16(four[0][4], four[0][5]));
          shared_word(out_0 + 3072, pack_f16(four[0][6], four[0][7]));
          const u32 out_1 = (out_lane ^ ((2 * (b16 & 3) + 1) << 4)) + (b16 >> 2) * 16384;
          shared_word(out_1 + 0, pack_f16(four[1][0], four[1][1]));
          shared_word(out_1 + 1024, pack_f16(four[1][2], four[1][3]));
          shared_word(out_1 + 2048, pack_f16(four[1][4], four[1][5]));
          shared_word(out_1 + 3072, pack_f16(four[1][6], four[1][7]));
        }
      }
      else {
#pragma unroll
        for (int b16 = 0; b16 < 4; b16++) {
          float four[2][8];
#pragma unroll
          for (int b8 = 0; b8 < 2; b8++) EACH {
            const int c = 2 * b16 + b8, r = x >> 1, column = 8 * c + (x & 1);
            const float t_19_x_ = divide(O_1[8 * c + x], l_total[r]);  // div(O_1, l)   examples/causal.tile:5
            four[b8][x] = t_19_x_;
          }
          probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]), pack_bf16(four[0][4], four[0][5]), pack_bf16(four[0][6], four[0][7]), pack_bf16(four[1][4], four[1][5]), pack_bf16(four[1][6], four[1][7]));
          const u32 out_0 = (out_lane ^ ((2 * (b16 & 3) + 0) << 4)) + (b16 >> 2) * 16384;
          shared_word(out_0 + 0, pack_f16(four[0][0], four[0][1]));
          shared_word(out_0 + 1024, pack_f16(four[0][2], four[0][3]));
          shared_word(out_0 + 2048, pack_f16(four[0][4], four[0][5]));
          shared_word(out_0 + 3072, pack_f16(four[0][6], four[0][7]));
          const u32 out_1 = (out_lane ^ ((2 * (b16 & 3) + 1) << 4)) + (b16 >> 2) * 16384;
          shared_word(out_1 + 0, pack_f16(four[1][0], four[1][1]));
          shared_word(out_1 + 1024, pack_f16(four[1][2], four[1][3]));
          shared_word(out_1 + 2048, pack_f16(four[1][4], four[1][5]));
          shared_word(out_1 + 3072, pack_f16(four[1][6], four[1][7]));
        }
      }
      if (probe_ & 0x7fff7fff) *redo = 1;   // NaN or infinity: perhaps times a weight that is absent
      __syncwarp();
#pragma unroll
      for (int start = 0; start < 32; start += 4) {
        const int row = start + (lane >> 3), taken = origin + warp * 32 + row;
#pragma unroll
        for (int slab = 0; slab < 1; slab++) {
          const int column = 64 * slab + 8 * (lane & 7);
          if (taken < M) *(uint4*)(&O[(i64)b * O_stride0 + (i64)h * O_stride1 + (i64)taken * O_stride2 + (i64)column * O_stride3]) = get_shared(out_place + slab * 16384 + row * 128 + (((lane & 7) ^ (row & 7)) << 4));  // store(b, h, i, e, t_19)   examples/causal.tile:2
        }
      }
    }
  }
}
