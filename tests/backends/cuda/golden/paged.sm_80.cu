// paged for sm_80, made by tilec, emitter ampere; schedule warps=4,height=16,columns=64,stages=2,slices=1,query=shared,blocks=2,order=static,section=8,late=0,relax=true,pieces=0
// paged: schedule warps=4,height=16,columns=64,stages=2,slices=1,query=shared,blocks=2,order=static,section=8,late=0,relax=true,pieces=0
#define HELD_ROWS 2
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

extern "C" __global__ void __launch_bounds__(128, 2) paged_0(
    const int* __restrict__ len,
    const i64 len_stride0,
    const u16* __restrict__ Q,
    const i64 Q_stride0,
    const i64 Q_stride1,
    const i64 Q_stride2,
    const i64 Q_stride3,
    const int* __restrict__ page,
    const i64 page_stride0,
    const i64 page_stride1,
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
    const int M,
    const int NP,
    const int P,
    const int MP,
    u32* __restrict__ redo) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  const int lane = threadIdx.x & 31, warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);
  const u32 corner = (lane & 15) * 128 + (((lane >> 4) ^ (lane & 7)) << 4);   // in 16 rows, for `matrices`
  const u32 turned = ((lane & 7) + (lane >> 4) * 8) * 128 + (((lane >> 3 & 1) ^ (lane & 7)) << 4);
  in_turn();
  const int row_tiles = (8 + 3) / 4;
  const int heads = (B) * (M);
  const int tile = blockIdx.x;
  int origin, b, i;
  int head = tile / row_tiles;
  origin = (tile - head * row_tiles) * 4;
  i = head % (M); head /= M;
  b = head;
  int row_i[2]; ROWS row_i[r] = origin + warp * 16 + ((lane) >> 2) + 8 * r;   // h
  const int h_first = origin;  // edge()
  const int len_1 = len[(i64)b * len_stride0];  // load(b)   examples/paged.tile:5
  const i64 t_8 = ((i64)len_1 - M);  // sub(len_1, M)   examples/paged.tile:5
  const i64 t_9 = (t_8 + i);  // add(t_8, i)   examples/paged.tile:5
  const int t_3 = (h_first >> 2);  // floordiv(h_first, 4)   examples/paged.tile:4
  const i64 t_2 = ((i64)P * MP);  // mul(MP, P)
  const i64 t_37 = ((i64)len_1 - 1);  // sub(len_1, 1)
  const i64 t_38 = ((i64)len_1 + i);  // add(len_1, i)
  const i64 t_39 = (t_38 - M);  // sub(t_38, M)
  const i64 t_40 = least<i64>(t_37, t_39);  // min(t_37, t_39)
  const i64 t_41 = (t_40 + 1);  // add(t_40, 1)
  const i64 t_42 = least<i64>(t_2, t_41);  // min(t_2, t_41)
  const i64 t_43 = (t_42 >> 6);  // floordiv(t_42, 64)
  const i64 t_44 = (64 * t_43);  // mul(t_43, 64)
  const i64 t_45 = greatest<i64>(0, t_44);  // max(0, t_44)
  const int start_0 = 0;
  const int windows_0 = ((int)greatest<i64>(0, least<i64>(t_45, ((i64)P * MP)) - start_0) + 63) / 64;
  const int start_1 = (int)least<i64>(t_45, ((i64)P * MP));
  const int windows_1 = ((int)greatest<i64>(0, least<i64>(t_42, ((i64)P * MP)) - start_1) + 63) / 64;
  float t_5[32];
  u32 t_35_packed[16];
  float m[2]; ROWS m[r] = NEG_INF;
  float l[2]; ROWS l[r] = 0.0f;
  float O_1[32];
  clear(O_1);
  const int windows = windows_0 + windows_1;
  const auto window_at = [&](int n) {
    if (n < windows_0) return start_0 + n * 64;
    n -= windows_0;
    return start_1 + n * 64;
  };
  const auto copy_q = [&](int position, int stage) {
    const int thread = THREAD, row = thread >> 3, piece = thread & 7;
    const u16* const from = Q + (i64)(b) * (int)Q_stride0 + (i64)(i) * (int)Q_stride2 + (i64)(position + row) * (int)Q_stride1 + 8 * piece;
    const u32 to = shared + 0 + row * 128 + ((piece ^ (row & 7)) << 4);
    const int left = 8 - position;
    if (left >= 64) copy_rows<64, 64, 128>(to, from, (int)Q_stride1);
    else copy_some_rows<64, 64, 128>(to, from, (int)Q_stride1, left - row);
  };
  const auto copy_k = [&](int position, int stage) {
    const int crew = warp;
    u64 k_1_rows[1];  // load(page_2, t_50, t_3, d)   examples/paged.tile:4
#pragma unroll
    for (int lap = 0; lap < 1; lap++) {
      const int first_line = (crew * 1 + lap) * 16;
      const int own_spot = position + first_line + lane;   // j
      const bool own_inside = lane < 16 && own_spot < ((i64)P * MP);
      const int t_49_own = floor_div<int>(own_spot, P);  // floordiv(j, P)   examples/paged.tile:4
      const int page_2_own = ((u64)(i64)(t_49_own) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49_own * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
      const int t_50_own = floor_mod<int>(own_spot, P);  // mod(j, P)   examples/paged.tile:4
      const u64 k_1_row = own_inside && (u64)(i64)(page_2_own) < (u64)NP && (u64)(i64)(t_50_own) < (u64)P && (u64)(i64)(t_3) < (u64)2 ? (u64)(K + ((i64)(page_2_own) * K_stride0 + (i64)(t_50_own) * K_stride1 + (i64)(t_3) * K_stride2)) : (u64)K + NO_ROW;
      k_1_rows[lap] = k_1_row;
    }
    {
      const u32 tile_place = shared + 8192 + stage * 8192;  // load(page_2, t_50, t_3, d)   examples/paged.tile:4
      if (is_whole(K, K_stride3, K_stride0, K_stride1, K_stride2)) {
        const int piece = lane & 7;
        const u64 along = (8 * piece) < 64 ? 2 * (8 * piece) : NO_COLUMN;
#pragma unroll
        for (int lap = 0; lap < 1; lap++) {
          const int first_line = (crew * 1 + lap) * 16;
#pragma unroll
          for (int step = 0; step < 4; step++) {
            const int source = step * 4 + lane / 8, line = first_line + source;
            const u64 k_1_here = __shfl_sync(FULL, k_1_rows[lap], source);
            if (line < 64) copy_piece(piece_place<64>(tile_place, line, piece), k_1_here + along);
          }
        }
        pieces_copied();
      } else {
        const int piece = lane & 7;
#pragma unroll 1
        for (int first_line = crew * 16; first_line < 64; first_line += 64) {
          const int own_spot = position + first_line + lane;   // j
          const bool own_inside = lane < 16 && own_spot < ((i64)P * MP);
          const int t_49_own_ = floor_div<int>(own_spot, P);  // floordiv(j, P)   examples/paged.tile:4
          const int page_2_own_ = ((u64)(i64)(t_49_own_) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49_own_ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
          const int t_50_own_ = floor_mod<int>(own_spot, P);  // mod(j, P)   examples/paged.tile:4
          {
#pragma unroll 1
            for (int step = 0; step < 4; step++) {
              const int source = step * 4 + lane / 8, line = first_line + source;
              const int spot = position + line;
              const bool inside = spot < ((i64)P * MP);
              const int page_2_here = __shfl_sync(FULL, page_2_own_, source);
              const int t_50_here = __shfl_sync(FULL, t_50_own_, source);
#pragma unroll 1
              for (int word = 0; word < 4; word++) {
                float k_1_two[2];
#pragma unroll
                for (int column = 0; column < 2; column++) {
                  const float k_1_x = ((u64)(i64)(page_2_here) < (u64)NP && (u64)(i64)(t_50_here) < (u64)P && (u64)(i64)(t_3) < (u64)2 && ((8 * piece + 2 * word) + column) < 64 ? f16_value(K[(i64)page_2_here * K_stride0 + (i64)t_50_here * K_stride1 + (i64)t_3 * K_stride2 + (i64)((8 * piece + 2 * word) + column) * K_stride3]) : 0.f);  // load(page_2, t_50, t_3, d)   examples/paged.tile:4
                  k_1_two[column] = inside ? k_1_x : 0.f;
                }
                u32 part_0;
                part_0 = pack_f16(k_1_two[0], k_1_two[1]);
                if (line < 64) {
                  shared_word(piece_place<64>(tile_place, line, piece) + 4 * word, part_0);
                }
              }
            }
          }
        }
      }
    }
  };
  const auto copy_v = [&](int position, int stage) {
    const int crew = warp;
    u64 v_1_rows[1];  // load(page_2, t_50, t_3, e)   examples/paged.tile:6
#pragma unroll
    for (int lap = 0; lap < 1; lap++) {
      const int first_line = (crew * 1 + lap) * 16;
      const int own_spot = position + first_line + lane;   // j
      const bool own_inside = lane < 16 && own_spot < ((i64)P * MP);
      const int t_49_own__ = floor_div<int>(own_spot, P);  // floordiv(j, P)   examples/paged.tile:4
      const int page_2_own__ = ((u64)(i64)(t_49_own__) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49_own__ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
      const int t_50_own__ = floor_mod<int>(own_spot, P);  // mod(j, P)   examples/paged.tile:4
      const u64 v_1_row = own_inside && (u64)(i64)(page_2_own__) < (u64)NP && (u64)(i64)(t_50_own__) < (u64)P && (u64)(i64)(t_3) < (u64)2 ? (u64)(V + ((i64)(page_2_own__) * V_stride0 + (i64)(t_50_own__) * V_stride1 + (i64)(t_3) * V_stride2)) : (u64)V + NO_ROW;
      v_1_rows[lap] = v_1_row;
    }
    {
      const u32 tile_place = shared + 24576 + stage * 8192;  // load(page_2, t_50, t_3, e)   examples/paged.tile:6
      if (is_whole(V, V_stride3, V_stride0, V_stride1, V_stride2)) {
        const int piece = lane & 7;
        const u64 along_ = (8 * piece) < 64 ? 2 * (8 * piece) : NO_COLUMN;
#pragma unroll
        for (int lap = 0; lap < 1; lap++) {
          const int first_line = (crew * 1 + lap) * 16;
#pragma unroll
          for (int step = 0; step < 4; step++) {
            const int source = step * 4 + lane / 8, line = first_line + source;
            const u64 v_1_here = __shfl_sync(FULL, v_1_rows[lap], source);
            if (line < 64) copy_piece(piece_place<64>(tile_place, line, piece), v_1_here + along_);
          }
        }
        pieces_copied();
      } else {
        const int piece = lane & 7;
#pragma unroll 1
        for (int first_line = crew * 16; first_line < 64; first_line += 64) {
          const int own_spot = position + first_line + lane;   // j
          const bool own_inside = lane < 16 && own_spot < ((i64)P * MP);
          const int t_49_own___ = floor_div<int>(own_spot, P);  // floordiv(j, P)   examples/paged.tile:4
          const int page_2_own___ = ((u64)(i64)(t_49_own___) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49_own___ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
          const int t_50_own___ = floor_mod<int>(own_spot, P);  // mod(j, P)   examples/paged.tile:4
          {
#pragma unroll 1
            for (int step = 0; step < 4; step++) {
              const int source = step * 4 + lane / 8, line = first_line + source;
              const int spot = position + line;
              const bool inside = spot < ((i64)P * MP);
              const int page_2_here_ = __shfl_sync(FULL, page_2_own___, source);
              const int t_50_here_ = __shfl_sync(FULL, t_50_own___, source);
#pragma unroll 1
              for (int word = 0; word < 4; word++) {
                float v_1_two[2];
#pragma unroll
                for (int column = 0; column < 2; column++) {
                  const float v_1_x = ((u64)(i64)(page_2_here_) < (u64)NP && (u64)(i64)(t_50_here_) < (u64)P && (u64)(i64)(t_3) < (u64)2 && ((8 * piece + 2 * word) + column) < 64 ? f16_value(V[(i64)page_2_here_ * V_stride0 + (i64)t_50_here_ * V_stride1 + (i64)t_3 * V_stride2 + (i64)((8 * piece + 2 * word) + column) * V_stride3]) : 0.f);  // load(page_2, t_50, t_3, e)   examples/paged.tile:6
                  v_1_two[column] = inside ? v_1_x : 0.f;
                }
                u32 part_0_;
                part_0_ = pack_f16(v_1_two[0], v_1_two[1]);
                if (line < 64) {
                  shared_word(piece_place<64>(tile_place, line, piece) + 4 * word, part_0_);
                }
              }
            }
          }
        }
      }
    }
  };
  if (windows > 0) {
    copy_q(origin, 0);
    copy_k(window_at(0), 0);
    copy_v(window_at(0), 0);
    copies_commit();
    const u32 q_place = shared + 0 + warp * 2048;
    int n = 0, stage = 0;
#pragma unroll 1
    for (const int end = windows_0; n < end; n++) {
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
      if (warp < 1) {
        if (n == 0) {
          float few_[8];
          rows_by_rows<f16, 4, 64, 64, 2, false, false>(few_, q_place, corner, shared + 8192 + stage * 8192, turned);   // t_51 = contract(q, k, over=d)
          {
            float guess[4];
            const int c = 0;
            EACH {
              const int r = x >> 1, column = x & 1;
              const float t_52_x = (few_[4 * c + x] * 0.18033688f);  // mul(t_51, 0.18033688011112042)   examples/paged.tile:4
              guess[x] = t_52_x;
            }
            ROWS m[r] = quad_max(fmaxf(guess[2 * r], guess[2 * r + 1]));
          }
        }
        rows_by_rows<f16, 4, 64, 64, 2, false, false>(t_5, q_place, corner, shared + 8192 + stage * 8192, turned);   // t_51 = contract(q, k, over=d)
        {
          float t_58[2]; ROWS t_58[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/paged.tile:5
          float r_3[2]; ROWS r_3[r] = max_nan(t_58[r], -3.4028235e+38f);  // max(t_58, -3.4028234663852886e+38)   examples/paged.tile:5
          float t_13_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_12)   examples/paged.tile:5
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_12_four[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_52_x_ = (t_5[4 * c + x] * 0.18033688f);  // mul(t_51, 0.18033688011112042)   examples/paged.tile:4
              const float t_6_x = fmaf(t_5[4 * c + x], 0.18033688f, -(r_3[r]));  // sub(t_52, r_3)   examples/paged.tile:5
              const float t_12_x = exp2_(t_6_x);  // exp2(t_6)   examples/paged.tile:5
              t_12_four[x] = t_12_x;
              t_13_part[x] = t_13_part[x] + t_12_x;
            }
            t_35_packed[2 * c] = pack_f16(t_12_four[0], t_12_four[1]);
            t_35_packed[2 * c + 1] = pack_f16(t_12_four[2], t_12_four[3]);
          }
          float t_13[2]; ROWS t_13[r] = t_13_part[2 * r] + t_13_part[2 * r + 1];
          float l_5[2]; ROWS l_5[r] = (l[r] + t_13[r]);  // add(l_3, t_13)   examples/paged.tile:5
          if (__builtin_expect(__all_sync(FULL, (t_13[0] <= 256.0f) & (t_13[1] <= 256.0f)), 1)) {
            ROWS l[r] = l_5[r];
          }
          else {
            rows_by_rows<f16, 4, 64, 64, 2, false, true>(t_5, q_place, corner, shared + 8192 + stage * 8192, turned);   // t_51 = contract(q, k, over=d)
            float t_58[2]; ROWS t_58[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/paged.tile:5
            float r_3[2]; ROWS r_3[r] = max_nan(t_58[r], -3.4028235e+38f);  // max(t_58, -3.4028234663852886e+38)   examples/paged.tile:5
            float t_53_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_52)   examples/paged.tile:5
#pragma unroll
            for (int c = 0; c < 8; c++) {
              EACH {
                const int r = x >> 1, column = 8 * c + (x & 1);
                t_53_part[x] = fmaxf(t_53_part[x], t_5[4 * c + x]);
              }
            }
            float t_53[2]; ROWS t_53[r] = quad_max(fmaxf(t_53_part[2 * r], t_53_part[2 * r + 1])) * 0.18033688f;
            float m_4[2]; ROWS m_4[r] = max_nan(m[r], t_53[r]);  // max(m_3, t_53)   examples/paged.tile:5
            float t_54[2]; ROWS t_54[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/paged.tile:5
            float r_2[2]; ROWS r_2[r] = max_nan(t_54[r], -3.4028235e+38f);  // max(t_54, -3.4028234663852886e+38)   examples/paged.tile:5
            float t_59[2]; ROWS t_59[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/paged.tile:5
            float alpha_1[2]; ROWS alpha_1[r] = exp2_(t_59[r]);  // exp2(t_59)   examples/paged.tile:5
            float t_60[2]; ROWS t_60[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/paged.tile:5
            float t_57_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_56)   examples/paged.tile:5
#pragma unroll
            for (int c = 0; c < 8; c++) {
              float t_56_four[4];
              EACH {
                const int r = x >> 1, column = 8 * c + (x & 1);
                const float t_52_x__ = (t_5[4 * c + x] * 0.18033688f);  // mul(t_51, 0.18033688011112042)   examples/paged.tile:4
                const float t_55_x = fmaf(t_5[4 * c + x], 0.18033688f, -(r_2[r]));  // sub(t_52, r_2)   examples/paged.tile:5
                const float t_56_x = exp2_(t_55_x);  // exp2(t_55)   examples/paged.tile:5
                t_56_four[x] = t_56_x;
                t_57_part[x] = t_57_part[x] + t_56_x;
              }
              t_35_packed[2 * c] = pack_f16(t_56_four[0], t_56_four[1]);
              t_35_packed[2 * c + 1] = pack_f16(t_56_four[2], t_56_four[3]);
            }
            float t_57[2]; ROWS t_57[r] = t_57_part[2 * r] + t_57_part[2 * r + 1];
            float l_4[2]; ROWS l_4[r] = (t_60[r] + t_57[r]);  // add(t_60, t_57)   examples/paged.tile:5
            scale(O_1, alpha_1);  // mul(O_1_1, alpha_1)   examples/paged.tile:6
            ROWS m[r] = m_4[r];
            ROWS l[r] = l_4[r];
          }
        }
      }
      if (warp < 1) {
        weights_by_columns<f16, 64, 2>(O_1, t_35_packed, shared + 24576 + stage * 8192, corner);   // O_1 += contract(t_28, v, over=j)
      }
      stage = stage == 1 ? 0 : stage + 1;
    }
#pragma unroll 1
    for (const int end = windows_0 + windows_1; n < end; n++) {
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
      const int rest = ((i64)P * MP) - stream_lane;
      if (warp < 1) {
        if (n == 0) {
          float few__[8];
          rows_by_rows<f16, 4, 64, 64, 2, false, false>(few__, q_place, corner, shared + 8192 + stage * 8192, turned);   // t_5 = contract(q, k, over=d)
          u32 counting_[2];
          ROWS counting_[r] = columns_to(least<int>(len_1 - stream_lane - 1, narrow(t_9) - stream_lane));
          {
            float guess_[4];
            const int c = 0;
            EACH {
              const int r = x >> 1, column = x & 1;
              const float t_15_x = ((counting_[r] & (1u << (2 * c + (x & 1) & 31))) ? few__[4 * c + x] : NEG_INF);  // select(t_11, t_14, -inf)   examples/paged.tile:4
              const float t_15_in = column < rest ? (t_15_x * 0.18033688f) : NEG_INF;
              guess_[x] = t_15_in;
            }
            ROWS m[r] = quad_max(fmaxf(guess_[2 * r], guess_[2 * r + 1]));
          }
        }
        rows_by_rows<f16, 4, 64, 64, 2, false, false>(t_5, q_place, corner, shared + 8192 + stage * 8192, turned);   // t_5 = contract(q, k, over=d)
        {
          float t_20[2]; ROWS t_20[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/paged.tile:5
          float r_1[2]; ROWS r_1[r] = max_nan(t_20[r], -3.4028235e+38f);  // max(t_20, -3.4028234663852886e+38)   examples/paged.tile:5
          float t_32_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_31)   examples/paged.tile:5
          u32 counting__[2];
          ROWS counting__[r] = columns_to(least<int>(least<int>(len_1 - stream_lane - 1, narrow(t_9) - stream_lane), rest - 1));
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_31_four[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_15_x_ = ((counting__[r] & (1u << (2 * c + (x & 1) & 31))) ? t_5[4 * c + x] : NEG_INF);  // select(t_11, t_14, -inf)   examples/paged.tile:4
              const float t_30_x = fmaf(t_15_x_, 0.18033688f, -(r_1[r]));  // sub(t_15, r_1)   examples/paged.tile:5
              const float t_31_x = exp2_(t_30_x);  // exp2(t_30)   examples/paged.tile:5
              t_31_four[x] = t_31_x;
              t_32_part[x] = t_32_part[x] + t_31_x;
            }
            t_35_packed[2 * c] = pack_f16(t_31_four[0], t_31_four[1]);
            t_35_packed[2 * c + 1] = pack_f16(t_31_four[2], t_31_four[3]);
          }
          float t_32[2]; ROWS t_32[r] = t_32_part[2 * r] + t_32_part[2 * r + 1];
          float l_7[2]; ROWS l_7[r] = (l[r] + t_32[r]);  // add(l_0, t_32)   examples/paged.tile:5
          if (__builtin_expect(__all_sync(FULL, (t_32[0] <= 256.0f) & (t_32[1] <= 256.0f)), 1)) {
            ROWS l[r] = l_7[r];
          }
          else {
            rows_by_rows<f16, 4, 64, 64, 2, false, true>(t_5, q_place, corner, shared + 8192 + stage * 8192, turned);   // t_5 = contract(q, k, over=d)
            float t_20[2]; ROWS t_20[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/paged.tile:5
            float r_1[2]; ROWS r_1[r] = max_nan(t_20[r], -3.4028235e+38f);  // max(t_20, -3.4028234663852886e+38)   examples/paged.tile:5
            float t_4_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_15)   examples/paged.tile:5
            u32 counting___[2];
            ROWS counting___[r] = columns_to(least<int>(least<int>(len_1 - stream_lane - 1, narrow(t_9) - stream_lane), rest - 1));
#pragma unroll
            for (int c = 0; c < 8; c++) {
              EACH {
                const int r = x >> 1, column = 8 * c + (x & 1);
                const float t_15_x__ = ((counting___[r] & (1u << (2 * c + (x & 1) & 31))) ? t_5[4 * c + x] : NEG_INF);  // select(t_11, t_14, -inf)   examples/paged.tile:4
                t_4_part[x] = fmaxf(t_4_part[x], t_15_x__);
                t_5[4 * c + x] = t_15_x__;
              }
            }
            float t_4[2]; ROWS t_4[r] = quad_max(fmaxf(t_4_part[2 * r], t_4_part[2 * r + 1])) * 0.18033688f;
            float m_1[2]; ROWS m_1[r] = max_nan(m[r], t_4[r]);  // max(m_0, t_4)   examples/paged.tile:5
            float t_18[2]; ROWS t_18[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/paged.tile:5
            float r_[2]; ROWS r_[r] = max_nan(t_18[r], -3.4028235e+38f);  // max(t_18, -3.4028234663852886e+38)   examples/paged.tile:5
            float t_21[2]; ROWS t_21[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/paged.tile:5
            float alpha[2]; ROWS alpha[r] = exp2_(t_21[r]);  // exp2(t_21)   examples/paged.tile:5
            float t_22[2]; ROWS t_22[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/paged.tile:5
            float t_19_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_17)   examples/paged.tile:5
#pragma unroll
            for (int c = 0; c < 8; c++) {
              float t_17_four[4];
              EACH {
                const int r = x >> 1, column = 8 * c + (x & 1);
                const float t_16_x = fmaf(t_5[4 * c + x], 0.18033688f, -(r_[r]));  // sub(t_15, r)   examples/paged.tile:5
                const float t_17_x = exp2_(t_16_x);  // exp2(t_16)   examples/paged.tile:5
                t_17_four[x] = t_17_x;
                t_19_part[x] = t_19_part[x] + t_17_x;
              }
              t_35_packed[2 * c] = pack_f16(t_17_four[0], t_17_four[1]);
              t_35_packed[2 * c + 1] = pack_f16(t_17_four[2], t_17_four[3]);
            }
            float t_19[2]; ROWS t_19[r] = t_19_part[2 * r] + t_19_part[2 * r + 1];
            float l_1[2]; ROWS l_1[r] = (t_22[r] + t_19[r]);  // add(t_22, t_19)   examples/paged.tile:5
            scale(O_1, alpha);  // mul(O_1_0, alpha)   examples/paged.tile:6
            ROWS m[r] = m_1[r];
            ROWS l[r] = l_1[r];
          }
        }
      }
      if (warp < 1) {
        weights_by_columns<f16, 64, 2>(O_1, t_35_packed, shared + 24576 + stage * 8192, corner);   // O_1 += contract(t_35, v, over=j)
      }
      stage = stage == 1 ? 0 : stage + 1;
    }
  }
  {
    float l_total[2]; ROWS l_total[r] = quad_sum(l[r]);
    {
      u32 probe_ = 0;
      float inverse_l_total[2]; ROWS inverse_l_total[r] = reciprocal(l_total[r]);
      __syncwarp();   // what was there has left
      const u32 out_place = shared + warp * 2048;
      const u32 out_lane = out_place + (lane >> 2) * 144 + (lane & 3) * 4;
      if (__all_sync(FULL, regular(l_total[0]) & regular(l_total[1]))) {
#pragma unroll
        for (int b16 = 0; b16 < 4; b16++) {
          float four[2][4];
#pragma unroll
          for (int b8 = 0; b8 < 2; b8++) EACH {
            const int c = 2 * b16 + b8, r = x >> 1, column = 8 * c + (x & 1);
            const float t_25_x = (O_1[4 * c + x] * inverse_l_total[r]);  // div(O_1, l)   examples/paged.tile:6
            four[b8][x] = t_25_x;
          }
          probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]));
          const u32 out_0 = (out_lane ^ ((2 * (b16 & 3) + 0) << 4)) + (b16 >> 2) * 8192;
          shared_word(out_0 + 0, pack_f16(four[0][0], four[0][1]));
          shared_word(out_0 + 1024, pack_f16(four[0][2], four[0][3]));
          const u32 out_1 = (out_lane ^ ((2 * (b16 & 3) + 1) << 4)) + (b16 >> 2) * 8192;
          shared_word(out_1 + 0, pack_f16(four[1][0], four[1][1]));
          shared_word(out_1 + 1024, pack_f16(four[1][2], four[1][3]));
        }
      }
      else {
#pragma unroll
        for (int b16 = 0; b16 < 4; b16++) {
          float four[2][4];
#pragma unroll
          for (int b8 = 0; b8 < 2; b8++) EACH {
            const int c = 2 * b16 + b8, r = x >> 1, column = 8 * c + (x & 1);
            const float t_25_x_ = divide(O_1[4 * c + x], l_total[r]);  // div(O_1, l)   examples/paged.tile:6
            four[b8][x] = t_25_x_;
          }
          probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]));
          const u32 out_0 = (out_lane ^ ((2 * (b16 & 3) + 0) << 4)) + (b16 >> 2) * 8192;
          shared_word(out_0 + 0, pack_f16(four[0][0], four[0][1]));
          shared_word(out_0 + 1024, pack_f16(four[0][2], four[0][3]));
          const u32 out_1 = (out_lane ^ ((2 * (b16 & 3) + 1) << 4)) + (b16 >> 2) * 8192;
          shared_word(out_1 + 0, pack_f16(four[1][0], four[1][1]));
          shared_word(out_1 + 1024, pack_f16(four[1][2], four[1][3]));
        }
      }
      if (probe_ & 0x7fff7fff) *redo = 1;   // NaN or infinity: perhaps times a weight that is absent
      __syncwarp();
#pragma unroll
      for (int start = 0; start < 16; start += 4) {
        const int row = start + (lane >> 3), taken = origin + warp * 16 + row;
#pragma unroll
        for (int slab = 0; slab < 1; slab++) {
          const int column = 64 * slab + 8 * (lane & 7);
          if (taken < least<int>(8, origin + 4)) *(uint4*)(&O[(i64)b * O_stride0 + (i64)taken * O_stride1 + (i64)i * O_stride2 + (i64)column * O_stride3]) = get_shared(out_place + slab * 8192 + row * 128 + (((lane & 7) ^ (row & 7)) << 4));  // store(b, h, i, e, t_25)   examples/paged.tile:2
        }
      }
    }
  }
}
