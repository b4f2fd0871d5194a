// paged for sm_90a, made by tilec, emitter hopper; schedule warpgroups=1,columns=64,stages=3,slices=1,share=false,pingpong=false,order=longest,section=1,late=0,store=direct,loader=40,relax=true,apart=true,guess=true,blocks=2,chain=true,pieces=0
// paged: schedule warpgroups=1,columns=64,stages=3,slices=1,share=false,pingpong=false,order=longest,section=1,late=0,store=direct,loader=40,relax=true,apart=true,guess=true,blocks=2,chain=true,pieces=0
// … hopper.cuh

template<int ADD> DEVICE void wgmma_f16(float (&d)[32], u64 a, u64 b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
    "%32, %33, p, 1, 1, 0, 0;\n}\n"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "l"(a), "l"(b), "n"(ADD));
}

DEVICE void wgmma_f16(float (&d)[32], u32 a0, u32 a1, u32 a2, u32 a3, u64 b, int add) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %37, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
    "{%32, %33, %34, %35}, %36, p, 1, 1, 1;\n}\n"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]) : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(add));
}

// d += a · bᵀ over STEPS times 16 of the contracted axis; slabs of 64 are SLAB_A and SLAB_B bytes apart
template<int STEPS, int SLAB_A, int SLAB_B, bool ADD, int N> DEVICE void rows_by_rows_f16(float (&d)[N], u64 a, u64 b) {
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    const u64 x = a + (u64)(((k / 4) * SLAB_A + (k % 4) * 32) >> 4), y = b + (u64)(((k / 4) * SLAB_B + (k % 4) * 32) >> 4);
    if (k == 0 && !ADD) wgmma_f16<0>(d, x, y); else wgmma_f16<1>(d, x, y);
  }
}
// d += p · v over STEPS times 16 rows of v; d = p · v if not `add`
template<int STEPS, int N, int M> DEVICE void weights_by_columns_f16(float (&d)[N], u32 (&p)[M], u64 v, int add) {
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    wgmma_f16(d, p[4 * k], p[4 * k + 1], p[4 * k + 2], p[4 * k + 3], v + (u64)((k * 2048) >> 4), k ? 1 : add);
  }
}

extern "C" __global__ void __launch_bounds__(256, 2) paged_0(
    const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map,
    const __grid_constant__ TensorMap q_map,
    const int* __restrict__ len,
    const i64 len_stride0,
    const int* __restrict__ page,
    const i64 page_stride0,
    const i64 page_stride1,
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
    const int most_heads,
    const int late_rows,
    u32* __restrict__ counter,
    u32* __restrict__ redo) {
  if (threadIdx.x == 32) fetch_map(&k_map);
  if (threadIdx.x == 32) fetch_map(&v_map);
  if (threadIdx.x == 32) fetch_map(&q_map);
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  const int group = __shfl_sync(FULL, threadIdx.x >> 7, 0);
  if (threadIdx.x == 0) {
    for (int n = 0; n < 2; n++) barrier_init(shared + 65536 + 8 * n, 1);   // query_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 65552 + 8 * n, 4);   // query_free
    for (int n = 0; n < 3; n++) barrier_init(shared + 65568 + 8 * n, 1);   // k_full
    for (int n = 0; n < 3; n++) barrier_init(shared + 65592 + 8 * n, 4);   // k_free
    for (int n = 0; n < 3; n++) barrier_init(shared + 65616 + 8 * n, 1);   // v_full
    for (int n = 0; n < 3; n++) barrier_init(shared + 65640 + 8 * n, 4);   // v_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 65664 + 8 * n, 1);   // tile_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 65680 + 8 * n, 6);   // tile_free
    barriers_ready();
  }
  clear_shared(shared + 0, 16384);
  __syncthreads();
  in_turn();
  if (group == 0) {
    fewer_registers<40>();
    const int warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);
    const int lane = threadIdx.x & 31;
    if (warp == 0) {
      Cursor<3> k_next(1);
      int tile = blockIdx.x;   // the first one of this block
      for (int turn = 0;; turn++) {
        const int row_tiles = (8 + 3) / 4;
        const int heads = (B) * (M);
        const int tiles = row_tiles * heads;
        int origin = -1, b = -1, i = -1, start_0 = -1, windows_0 = -1, start_1 = -1, windows_1 = -1;
        if (tile < tiles) {
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
          origin = (row + place / width) * 4;
          i = head % (M); head /= M;
          b = head;
          const int len_1 = len[(i64)b * len_stride0];  // load(b)   examples/paged.tile:5
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
          start_0 = 0;
          windows_0 = ((int)greatest<i64>(0, least<i64>(t_45, ((i64)P * MP)) - start_0) + 63) / 64;
          start_1 = (int)least<i64>(t_45, ((i64)P * MP));
          windows_1 = ((int)greatest<i64>(0, least<i64>(t_42, ((i64)P * MP)) - start_1) + 63) / 64;
          if (windows_0 + windows_1 == 0) { start_1 = (int)(((i64)P * MP)); windows_1 = 1; }
        }
        wait(shared + 65680 + 8 * (turn & 1), ((turn >> 1) & 1) ^ 1);
        if (lane == 0) {
          shared_put(shared + 65696 + 28 * (turn & 1), origin);
          shared_put(shared + 65700 + 28 * (turn & 1), b);
          shared_put(shared + 65704 + 28 * (turn & 1), i);
          shared_put(shared + 65708 + 28 * (turn & 1), start_0);
          shared_put(shared + 65712 + 28 * (turn & 1), windows_0);
          shared_put(shared + 65716 + 28 * (turn & 1), start_1);
          shared_put(shared + 65720 + 28 * (turn & 1), windows_1);
          arrive(shared + 65664 + 8 * (turn & 1));
        }
        if (origin < 0) break;
        const int h_first = origin;  // edge()
        const int t_3 = (h_first >> 2);  // floordiv(h_first, 4)   examples/paged.tile:4
#pragma unroll 1
        for (int n = 0; n < windows_0; n++) {
          const int window = start_0 + n * 64;
          const int k_spot = window + 16 * lane;   // j
          const int t_49_ = floor_div<int>(k_spot, P);  // floordiv(j, P)   examples/paged.tile:4
          const int page_2_ = ((u64)(i64)(t_49_) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49_ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
          const int t_50_ = floor_mod<int>(k_spot, P);  // mod(j, P)   examples/paged.tile:4
          const int k_at = k_spot < ((i64)P * MP) ? coordinate(t_50_) : -BEYOND;
          const int k_at_ = coordinate(page_2_);
          const int k_at__ = coordinate(t_3);
          {
            wait(shared + 65592 + 8 * k_next.stage, k_next.parity);
            if (lane == 0) expect(shared + 65568 + 8 * k_next.stage, 8192);
            if (lane < 4) {
              copy_in(shared + 16384 + k_next.stage * 8192 + 2048 * lane + 0, &k_map, shared + 65568 + 8 * k_next.stage, 0, k_at, k_at_, k_at__);
            }
          }
          k_next.step();
        }
#pragma unroll 1
        for (int n = 0; n < windows_1; n++) {
          const int window = start_1 + n * 64;
          const int k_spot_ = window + 16 * lane;   // j
          const int t_49__ = floor_div<int>(k_spot_, P);  // floordiv(j, P)   examples/paged.tile:4
          const int page_2__ = ((u64)(i64)(t_49__) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49__ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
          const int t_50__ = floor_mod<int>(k_spot_, P);  // mod(j, P)   examples/paged.tile:4
          const int k_at___ = k_spot_ < ((i64)P * MP) ? coordinate(t_50__) : -BEYOND;
          const int k_at____ = coordinate(page_2__);
          const int k_at_____ = coordinate(t_3);
          {
            wait(shared + 65592 + 8 * k_next.stage, k_next.parity);
            if (lane == 0) expect(shared + 65568 + 8 * k_next.stage, 8192);
            if (lane < 4) {
              copy_in(shared + 16384 + k_next.stage * 8192 + 2048 * lane + 0, &k_map, shared + 65568 + 8 * k_next.stage, 0, k_at___, k_at____, k_at_____);
            }
          }
          k_next.step();
        }
        if (lane == 0) {
          const u32 taken = atomicAdd(counter, 1u);
          // the last one of this launch leaves it ready for the next
          if (taken == (u32)tiles - 1) *counter = 0;
          tile = taken + gridDim.x;
        }
        tile = __shfl_sync(FULL, tile, 0);
      }
    }
    else if (warp == 1) {
      Cursor<3> v_next(1);
      for (int turn = 0;; turn++) {
        wait(shared + 65664 + 8 * (turn & 1), (turn >> 1) & 1);
        const int origin = shared_told(shared + 65696 + 28 * (turn & 1), lane);
        const int b = shared_told(shared + 65700 + 28 * (turn & 1), lane);
        const int i = shared_told(shared + 65704 + 28 * (turn & 1), lane);
        const int start_0 = shared_told(shared + 65708 + 28 * (turn & 1), lane);
        const int windows_0 = shared_told(shared + 65712 + 28 * (turn & 1), lane);
        const int start_1 = shared_told(shared + 65716 + 28 * (turn & 1), lane);
        const int windows_1 = shared_told(shared + 65720 + 28 * (turn & 1), lane);
        if (lane == 0) arrive(shared + 65680 + 8 * (turn & 1));
        if (origin < 0) break;
        const int h_first = origin;  // edge()
        const int t_3 = (h_first >> 2);  // floordiv(h_first, 4)   examples/paged.tile:4
#pragma unroll 1
        for (int n = 0; n < windows_0; n++) {
          const int window = start_0 + n * 64;
          const int v_spot = window + 16 * lane;   // j
          const int t_49___ = floor_div<int>(v_spot, P);  // floordiv(j, P)   examples/paged.tile:4
          const int page_2___ = ((u64)(i64)(t_49___) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49___ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
          const int t_50___ = floor_mod<int>(v_spot, P);  // mod(j, P)   examples/paged.tile:4
          const int v_at = v_spot < ((i64)P * MP) ? coordinate(t_50___) : -BEYOND;
          const int v_at_ = coordinate(page_2___);
          const int v_at__ = coordinate(t_3);
          {
            wait(shared + 65640 + 8 * v_next.stage, v_next.parity);
            if (lane == 0) expect(shared + 65616 + 8 * v_next.stage, 8192);
            if (lane < 4) {
              copy_in(shared + 40960 + v_next.stage * 8192 + 2048 * lane + 0, &v_map, shared + 65616 + 8 * v_next.stage, 0, v_at, v_at_, v_at__);
            }
          }
          v_next.step();
        }
#pragma unroll 1
        for (int n = 0; n < windows_1; n++) {
          const int window = start_1 + n * 64;
          const int v_spot_ = window + 16 * lane;   // j
          const int t_49____ = floor_div<int>(v_spot_, P);  // floordiv(j, P)   examples/paged.tile:4
          const int page_2____ = ((u64)(i64)(t_49____) < (u64)MP ? page[(i64)b * page_stride0 + (i64)t_49____ * page_stride1] : 0);  // load(b, t_49)   examples/paged.tile:4
          const int t_50____ = floor_mod<int>(v_spot_, P);  // mod(j, P)   examples/paged.tile:4
          const int v_at___ = v_spot_ < ((i64)P * MP) ? coordinate(t_50____) : -BEYOND;
          const int v_at____ = coordinate(page_2____);
          const int v_at_____ = coordinate(t_3);
          {
            wait(shared + 65640 + 8 * v_next.stage, v_next.parity);
            if (lane == 0) expect(shared + 65616 + 8 * v_next.stage, 8192);
            if (lane < 4) {
              copy_in(shared + 40960 + v_next.stage * 8192 + 2048 * lane + 0, &v_map, shared + 65616 + 8 * v_next.stage, 0, v_at___, v_at____, v_at_____);
            }
          }
          v_next.step();
        }
      }
    }
    else if (warp == 2) {
      for (int turn = 0;; turn++) {
        wait(shared + 65664 + 8 * (turn & 1), (turn >> 1) & 1);
        const int origin = shared_told(shared + 65696 + 28 * (turn & 1), lane);
        const int b = shared_told(shared + 65700 + 28 * (turn & 1), lane);
        const int i = shared_told(shared + 65704 + 28 * (turn & 1), lane);
        const int start_0 = shared_told(shared + 65708 + 28 * (turn & 1), lane);
        const int windows_0 = shared_told(shared + 65712 + 28 * (turn & 1), lane);
        const int start_1 = shared_told(shared + 65716 + 28 * (turn & 1), lane);
        const int windows_1 = shared_told(shared + 65720 + 28 * (turn & 1), lane);
        if (lane == 0) arrive(shared + 65680 + 8 * (turn & 1));
        if (origin < 0) break;
        if (lane == 0) for (int w = 0; w < 1; w++) {
          wait(shared + 65552 + 8 * ((turn & 1) * 1 + w), ((turn >> 1) & 1) ^ 1);
          {
            expect(shared + 65536 + 8 * ((turn & 1) * 1 + w), 512);
            copy_in(shared + 0 + ((turn & 1) * 1 + w) * 8192 + 0, &q_map, shared + 65536 + 8 * ((turn & 1) * 1 + w), 0, origin + w * 64, (int)(b), (int)(i));
          }
        }
      }
    }
  }
  else {
    more_registers<216>();
    const int w = group - 1;
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    const u64 q_rows = rows_descriptor(shared + 0 + w * 8192);
    const u64 k_rows = rows_descriptor(shared + 16384);
    Cursor<3> k_ahead(0);
    const u64 v_columns = columns_descriptor(shared + 40960, 8192);
    Cursor<3> v_late(0);
    float t_5[32];
    u32 t_35_packed[16];
    float O_1[32];
    int turn = 0;
    wait(shared + 65664 + 8 * (turn & 1), (turn >> 1) & 1);
    int origin = shared_told(shared + 65696 + 28 * (turn & 1), lane);
    int b = shared_told(shared + 65700 + 28 * (turn & 1), lane);
    int i = shared_told(shared + 65704 + 28 * (turn & 1), lane);
    int start_0 = shared_told(shared + 65708 + 28 * (turn & 1), lane);
    int windows_0 = shared_told(shared + 65712 + 28 * (turn & 1), lane);
    int start_1 = shared_told(shared + 65716 + 28 * (turn & 1), lane);
    int windows_1 = shared_told(shared + 65720 + 28 * (turn & 1), lane);
    if (lane == 0) arrive(shared + 65680 + 8 * (turn & 1));
    wait(shared + 65536 + 8 * ((turn & 1) * 1 + w), ((turn >> 1) & 1));
    wait(shared + 65568 + 8 * k_ahead.stage, k_ahead.parity);
    group_fence();
    pin(t_5);
    rows_by_rows_f16<4, 8192, 8192, false>(t_5, q_rows + (u64)((turn & 1) * 512), k_rows + (u64)(k_ahead.stage * 512));   // t_51 = contract(q, k, over=d)
    group_commit();
    while (origin >= 0) {
      int row_i[2]; ROWS row_i[r] = origin + w * 64 + warp * 16 + (lane >> 2) + 8 * r;   // h
      const int len_1 = len[(i64)b * len_stride0];  // load(b)   examples/paged.tile:5
      const i64 t_8 = ((i64)len_1 - M);  // sub(len_1, M)   examples/paged.tile:5
      const i64 t_9 = (t_8 + i);  // add(t_8, i)   examples/paged.tile:5
      float m[2]; ROWS m[r] = NEG_INF;
      float l[2]; ROWS l[r] = 0.0f;
      int adding = 0;   // a tile's first tails replace what is in the accumulators
      int begin_0 = 0, begin_1 = 0;
      group_wait<0>();
      pin(t_5);
      if (lane == 0) arrive(shared + 65592 + 8 * k_ahead.stage);
      k_ahead.step();
      if (windows_0 > 0) {
        begin_0 = 1;
        const int window = start_0 + 0 * 64, stream_lane = window + 2 * (lane & 3);   // j
        {
          float guess[4];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float t_52_x = (t_5[4 * c + x] * 0.18033688f);  // mul(t_51, 0.18033688011112042)   examples/paged.tile:4
            guess[x] = t_52_x;
          }
          ROWS m[r] = quad_max(fmaxf(guess[2 * r], guess[2 * r + 1]));
        }
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
        float m_5[2];
        float l_6[2];
        if (__builtin_expect(__all_sync(FULL, (t_13[0] <= 256.0f) & (t_13[1] <= 256.0f)), 1)) {
          float l_5[2]; ROWS l_5[r] = (l[r] + t_13[r]);  // add(l_3, t_13)   examples/paged.tile:5
          ROWS m_5[r] = m[r];
          ROWS l_6[r] = l_5[r];
        } else {
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
          ROWS m_5[r] = m_4[r];
          ROWS l_6[r] = l_4[r];
        }
        ROWS m[r] = m_5[r];
        ROWS l[r] = l_6[r];
      }
      else {
        begin_1 = 1;
        const int window = start_1 + 0 * 64, stream_lane = window + 2 * (lane & 3);   // j
        const int rest = ((i64)P * MP) - stream_lane;
        u32 counting_[2];
        ROWS counting_[r] = columns_to(least<int>(least<int>(len_1 - stream_lane - 1, narrow(t_9) - stream_lane), rest - 1));
        {
          float guess_[4];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float t_15_x = ((counting_[r] & (1u << (2 * c + (x & 1) & 31))) ? t_5[4 * c + x] : NEG_INF);  // select(t_11, t_14, -inf)   examples/paged.tile:4
            guess_[x] = (t_15_x * 0.18033688f);
          }
          ROWS m[r] = quad_max(fmaxf(guess_[2 * r], guess_[2 * r + 1]));
        }
        float t_20[2]; ROWS t_20[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/paged.tile:5
        float r_1[2]; ROWS r_1[r] = max_nan(t_20[r], -3.4028235e+38f);  // max(t_20, -3.4028234663852886e+38)   examples/paged.tile:5
#pragma unroll
        for (int c = 0; c < 8; c++) {
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_15_x_ = ((counting_[r] & (1u << (2 * c + (x & 1) & 31))) ? t_5[4 * c + x] : NEG_INF);  // select(t_11, t_14, -inf)   examples/paged.tile:4
            t_5[4 * c + x] = t_15_x_;
          }
        }
        float t_32_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_31)   examples/paged.tile:5
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_31_four[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_30_x = fmaf(t_5[4 * c + x], 0.18033688f, -(r_1[r]));  // sub(t_15, r_1)   examples/paged.tile:5
            const float t_31_x = exp2_(t_30_x);  // exp2(t_30)   examples/paged.tile:5
            t_31_four[x] = t_31_x;
            t_32_part[x] = t_32_part[x] + t_31_x;
          }
          t_35_packed[2 * c] = pack_f16(t_31_four[0], t_31_four[1]);
          t_35_packed[2 * c + 1] = pack_f16(t_31_four[2], t_31_four[3]);
        }
        float t_32[2]; ROWS t_32[r] = t_32_part[2 * r] + t_32_part[2 * r + 1];
        float m_6[2];
        float l_8[2];
        if (__builtin_expect(__all_sync(FULL, (t_32[0] <= 256.0f) & (t_32[1] <= 256.0f)), 1)) {
          float l_7[2]; ROWS l_7[r] = (l[r] + t_32[r]);  // add(l_0, t_32)   examples/paged.tile:5
          ROWS m_6[r] = m[r];
          ROWS l_8[r] = l_7[r];
        } else {
          float t_4_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_15)   examples/paged.tile:5
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_4_part[x] = fmaxf(t_4_part[x], t_5[4 * c + x]);
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
          ROWS m_6[r] = m_1[r];
          ROWS l_8[r] = l_1[r];
        }
        ROWS m[r] = m_6[r];
        ROWS l[r] = l_8[r];
      }
#pragma unroll 1
      for (int n = begin_0; n < windows_0; n++) {
        const int window = start_0 + n * 64, stream_lane = window + 2 * (lane & 3);   // j
        wait(shared + 65568 + 8 * k_ahead.stage, k_ahead.parity);
        group_fence();
        pin(t_5);
        rows_by_rows_f16<4, 8192, 8192, false>(t_5, q_rows + (u64)((turn & 1) * 512), k_rows + (u64)(k_ahead.stage * 512));   // t_51 = contract(q, k, over=d)
        group_commit();
        wait(shared + 65616 + 8 * v_late.stage, v_late.parity);
        group_fence();
        pin(O_1);
        pin(t_35_packed);
        weights_by_columns_f16<4>(O_1, t_35_packed, v_columns + (u64)(v_late.stage * 512), adding);   // O_1 += contract(t_28, v, over=j)
        group_commit();
        adding = 1;
        group_wait<1>();
        pin(t_5);
        if (lane == 0) arrive(shared + 65592 + 8 * k_ahead.stage);
        k_ahead.step();
        float t_58[2]; ROWS t_58[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/paged.tile:5
        float r_3[2]; ROWS r_3[r] = max_nan(t_58[r], -3.4028235e+38f);  // max(t_58, -3.4028234663852886e+38)   examples/paged.tile:5
        group_wait<0>();
        pin(O_1);
        pin(t_35_packed);
        if (lane == 0) arrive(shared + 65640 + 8 * v_late.stage);
        v_late.step();
        float t_13_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_12)   examples/paged.tile:5
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_12_four_[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_52_x___ = (t_5[4 * c + x] * 0.18033688f);  // mul(t_51, 0.18033688011112042)   examples/paged.tile:4
            const float t_6_x_ = fmaf(t_5[4 * c + x], 0.18033688f, -(r_3[r]));  // sub(t_52, r_3)   examples/paged.tile:5
            const float t_12_x_ = exp2_(t_6_x_);  // exp2(t_6)   examples/paged.tile:5
            t_12_four_[x] = t_12_x_;
            t_13_part_[x] = t_13_part_[x] + t_12_x_;
          }
          t_35_packed[2 * c] = pack_f16(t_12_four_[0], t_12_four_[1]);
          t_35_packed[2 * c + 1] = pack_f16(t_12_four_[2], t_12_four_[3]);
        }
        float t_13[2]; ROWS t_13[r] = t_13_part_[2 * r] + t_13_part_[2 * r + 1];
        float m_5[2];
        float l_6[2];
        if (__builtin_expect(__all_sync(FULL, (t_13[0] <= 256.0f) & (t_13[1] <= 256.0f)), 1)) {
          float l_5[2]; ROWS l_5[r] = (l[r] + t_13[r]);  // add(l_3, t_13)   examples/paged.tile:5
          ROWS m_5[r] = m[r];
          ROWS l_6[r] = l_5[r];
        } else {
          float t_53_part_[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_52)   examples/paged.tile:5
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_53_part_[x] = fmaxf(t_53_part_[x], t_5[4 * c + x]);
            }
          }
          float t_53[2]; ROWS t_53[r] = quad_max(fmaxf(t_53_part_[2 * r], t_53_part_[2 * r + 1])) * 0.18033688f;
          float m_4[2]; ROWS m_4[r] = max_nan(m[r], t_53[r]);  // max(m_3, t_53)   examples/paged.tile:5
          float t_54[2]; ROWS t_54[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/paged.tile:5
          float r_2[2]; ROWS r_2[r] = max_nan(t_54[r], -3.4028235e+38f);  // max(t_54, -3.4028234663852886e+38)   examples/paged.tile:5
          float t_59[2]; ROWS t_59[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/paged.tile:5
          float alpha_1[2]; ROWS alpha_1[r] = exp2_(t_59[r]);  // exp2(t_59)   examples/paged.tile:5
          float t_60[2]; ROWS t_60[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/paged.tile:5
          float t_57_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_56)   examples/paged.tile:5
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_56_four_[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_52_x____ = (t_5[4 * c + x] * 0.18033688f);  // mul(t_51, 0.18033688011112042)   examples/paged.tile:4
              const float t_55_x_ = fmaf(t_5[4 * c + x], 0.18033688f, -(r_2[r]));  // sub(t_52, r_2)   examples/paged.tile:5
              const float t_56_x_ = exp2_(t_55_x_);  // exp2(t_55)   examples/paged.tile:5
              t_56_four_[x] = t_56_x_;
              t_57_part_[x] = t_57_part_[x] + t_56_x_;
            }
            t_35_packed[2 * c] = pack_f16(t_56_four_[0], t_56_four_[1]);
            t_35_packed[2 * c + 1] = pack_f16(t_56_four_[2], t_56_four_[3]);
          }
          float t_57[2]; ROWS t_57[r] = t_57_part_[2 * r] + t_57_part_[2 * r + 1];
          float l_4[2]; ROWS l_4[r] = (t_60[r] + t_57[r]);  // add(t_60, t_57)   examples/paged.tile:5
          scale(O_1, alpha_1);  // mul(O_1_1, alpha_1)   examples/paged.tile:6
          ROWS m_5[r] = m_4[r];
          ROWS l_6[r] = l_4[r];
        }
        ROWS m[r] = m_5[r];
        ROWS l[r] = l_6[r];
      }
#pragma unroll 1
      for (int n = begin_1; n < windows_1; n++) {
        const int window = start_1 + n * 64, stream_lane = window + 2 * (lane & 3);   // j
        const int rest = ((i64)P * MP) - stream_lane;
        wait(shared + 65568 + 8 * k_ahead.stage, k_ahead.parity);
        group_fence();
        pin(t_5);
        rows_by_rows_f16<4, 8192, 8192, false>(t_5, q_rows + (u64)((turn & 1) * 512), k_rows + (u64)(k_ahead.stage * 512));   // t_51 = contract(q, k, over=d)
        group_commit();
        wait(shared + 65616 + 8 * v_late.stage, v_late.parity);
        group_fence();
        pin(O_1);
        pin(t_35_packed);
        weights_by_columns_f16<4>(O_1, t_35_packed, v_columns + (u64)(v_late.stage * 512), adding);   // O_1 += contract(t_28, v, over=j)
        group_commit();
        adding = 1;
        group_wait<1>();
        pin(t_5);
        if (lane == 0) arrive(shared + 65592 + 8 * k_ahead.stage);
        k_ahead.step();
        float t_20[2]; ROWS t_20[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/paged.tile:5
        float r_1[2]; ROWS r_1[r] = max_nan(t_20[r], -3.4028235e+38f);  // max(t_20, -3.4028234663852886e+38)   examples/paged.tile:5
        u32 counting__[2];
        ROWS counting__[r] = columns_to(least<int>(least<int>(len_1 - stream_lane - 1, narrow(t_9) - stream_lane), rest - 1));
#pragma unroll
        for (int c = 0; c < 8; c++) {
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_15_x__ = ((counting__[r] & (1u << (2 * c + (x & 1) & 31))) ? t_5[4 * c + x] : NEG_INF);  // select(t_11, t_14, -inf)   examples/paged.tile:4
            t_5[4 * c + x] = t_15_x__;
          }
        }
        group_wait<0>();
        pin(O_1);
        pin(t_35_packed);
        if (lane == 0) arrive(shared + 65640 + 8 * v_late.stage);
        v_late.step();
        float t_32_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_31)   examples/paged.tile:5
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_31_four_[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_30_x_ = fmaf(t_5[4 * c + x], 0.18033688f, -(r_1[r]));  // sub(t_15, r_1)   examples/paged.tile:5
            const float t_31_x_ = exp2_(t_30_x_);  // exp2(t_30)   examples/paged.tile:5
            t_31_four_[x] = t_31_x_;
            t_32_part_[x] = t_32_part_[x] + t_31_x_;
          }
          t_35_packed[2 * c] = pack_f16(t_31_four_[0], t_31_four_[1]);
          t_35_packed[2 * c + 1] = pack_f16(t_31_four_[2], t_31_four_[3]);
        }
        float t_32[2]; ROWS t_32[r] = t_32_part_[2 * r] + t_32_part_[2 * r + 1];
        float m_6[2];
        float l_8[2];
        if (__builtin_expect(__all_sync(FULL, (t_32[0] <= 256.0f) & (t_32[1] <= 256.0f)), 1)) {
          float l_7[2]; ROWS l_7[r] = (l[r] + t_32[r]);  // add(l_0, t_32)   examples/paged.tile:5
          ROWS m_6[r] = m[r];
          ROWS l_8[r] = l_7[r];
        } else {
          float t_4_part_[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_15)   examples/paged.tile:5
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_4_part_[x] = fmaxf(t_4_part_[x], t_5[4 * c + x]);
            }
          }
          float t_4[2]; ROWS t_4[r] = quad_max(fmaxf(t_4_part_[2 * r], t_4_part_[2 * r + 1])) * 0.18033688f;
          float m_1[2]; ROWS m_1[r] = max_nan(m[r], t_4[r]);  // max(m_0, t_4)   examples/paged.tile:5
          float t_18[2]; ROWS t_18[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/paged.tile:5
          float r_[2]; ROWS r_[r] = max_nan(t_18[r], -3.4028235e+38f);  // max(t_18, -3.4028234663852886e+38)   examples/paged.tile:5
          float t_21[2]; ROWS t_21[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/paged.tile:5
          float alpha[2]; ROWS alpha[r] = exp2_(t_21[r]);  // exp2(t_21)   examples/paged.tile:5
          float t_22[2]; ROWS t_22[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/paged.tile:5
          float t_19_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_17)   examples/paged.tile:5
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_17_four_[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_16_x_ = fmaf(t_5[4 * c + x], 0.18033688f, -(r_[r]));  // sub(t_15, r)   examples/paged.tile:5
              const float t_17_x_ = exp2_(t_16_x_);  // exp2(t_16)   examples/paged.tile:5
              t_17_four_[x] = t_17_x_;
              t_19_part_[x] = t_19_part_[x] + t_17_x_;
            }
            t_35_packed[2 * c] = pack_f16(t_17_four_[0], t_17_four_[1]);
            t_35_packed[2 * c + 1] = pack_f16(t_17_four_[2], t_17_four_[3]);
          }
          float t_19[2]; ROWS t_19[r] = t_19_part_[2 * r] + t_19_part_[2 * r + 1];
          float l_1[2]; ROWS l_1[r] = (t_22[r] + t_19[r]);  // add(t_22, t_19)   examples/paged.tile:5
          scale(O_1, alpha);  // mul(O_1_0, alpha)   examples/paged.tile:6
          ROWS m_6[r] = m_1[r];
          ROWS l_8[r] = l_1[r];
        }
        ROWS m[r] = m_6[r];
        ROWS l[r] = l_8[r];
      }
      if (lane == 0) arrive(shared + 65552 + 8 * ((turn & 1) * 1 + w));
      turn++;
      wait(shared + 65664 + 8 * (turn & 1), (turn >> 1) & 1);
      const int next_origin = shared_told(shared + 65696 + 28 * (turn & 1), lane);
      wait(shared + 65616 + 8 * v_late.stage, v_late.parity);
      if (next_origin >= 0) {
        wait(shared + 65536 + 8 * ((turn & 1) * 1 + w), ((turn >> 1) & 1));
        wait(shared + 65568 + 8 * k_ahead.stage, k_ahead.parity);
      }
      group_fence();
      pin(O_1);
      pin(t_35_packed);
      weights_by_columns_f16<4>(O_1, t_35_packed, v_columns + (u64)(v_late.stage * 512), adding);   // O_1 += contract(t_28, v, over=j)
      group_commit();
      adding = 1;
      group_fence();
      pin(t_5);
      rows_by_rows_f16<4, 8192, 8192, false>(t_5, q_rows + (u64)((turn & 1) * 512), k_rows + (u64)(k_ahead.stage * 512));   // t_51 = contract(q, k, over=d)
      group_commit();
      group_wait<1>();
      pin(O_1);
      pin(t_35_packed);
      if (lane == 0) arrive(shared + 65640 + 8 * v_late.stage);
      v_late.step();
      float l_total[2]; ROWS l_total[r] = quad_sum(l[r]);
      {
        u32 probe_ = 0;
        float inverse_l_total[2]; ROWS inverse_l_total[r] = reciprocal(l_total[r]);
        const int out_column = 8 * (lane & 3);
        u16* out_row[2]; ROWS out_row[r] = O + ((i64)b * O_stride0 + (i64)row_i[r] * O_stride1 + (i64)i * O_stride2 + (i64)0 * O_stride3) + out_column;
        bool out_here[2]; ROWS out_here[r] = row_i[r] < least<int>(8, origin + 4);
        if (__all_sync(FULL, regular(l_total[0]) & regular(l_total[1]))) {
#pragma unroll
          for (int b32 = 0; b32 < 2; b32++) {
            float four[4][4];
#pragma unroll
            for (int b8 = 0; b8 < 4; b8++) EACH {
              const int c = 4 * b32 + b8, r = x >> 1, column = 8 * c + (x & 1);
              const float t_25_x = (O_1[4 * c + x] * inverse_l_total[r]);  // div(O_1, l)   examples/paged.tile:6
              four[b8][x] = t_25_x;
            }
            probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]));
            probe_ = watch(probe_, pack_bf16(four[2][0], four[2][1]), pack_bf16(four[2][2], four[2][3]), pack_bf16(four[3][0], four[3][1]), pack_bf16(four[3][2], four[3][3]));
            ROWS {
              u32 part[4] = {pack_f16(four[0][2 * r], four[0][2 * r + 1]), pack_f16(four[1][2 * r], four[1][2 * r + 1]), pack_f16(four[2][2 * r], four[2][2 * r + 1]), pack_f16(four[3][2 * r], four[3][2 * r + 1])};
              gather_row(part);
              store_if(out_here[r], out_row[r] + 32 * b32, part);  // store(b, h, i, e, t_25)   examples/paged.tile:2
            }
          }
        }
        else {
#pragma unroll
          for (int b32 = 0; b32 < 2; b32++) {
            float four[4][4];
#pragma unroll
            for (int b8 = 0; b8 < 4; b8++) EACH {
              const int c = 4 * b32 + b8, r = x >> 1, column = 8 * c + (x & 1);
              const float t_25_x_ = divide(O_1[4 * c + x], l_total[r]);  // div(O_1, l)   examples/paged.tile:6
              four[b8][x] = t_25_x_;
            }
            probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]));
            probe_ = watch(probe_, pack_bf16(four[2][0], four[2][1]), pack_bf16(four[2][2], four[2][3]), pack_bf16(four[3][0], four[3][1]), pack_bf16(four[3][2], four[3][3]));
            ROWS {
              u32 part[4] = {pack_f16(four[0][2 * r], four[0][2 * r + 1]), pack_f16(four[1][2 * r], four[1][2 * r + 1]), pack_f16(four[2][2 * r], four[2][2 * r + 1]), pack_f16(four[3][2 * r], four[3][2 * r + 1])};
              gather_row(part);
              store_if(out_here[r], out_row[r] + 32 * b32, part);  // store(b, h, i, e, t_25)   examples/paged.tile:2
            }
          }
        }
        if (probe_ & 0x7fff7fff) *redo = 1;   // NaN or infinity: perhaps times a weight that is absent
      }
      origin = next_origin;
      b = shared_told(shared + 65700 + 28 * (turn & 1), lane);
      i = shared_told(shared + 65704 + 28 * (turn & 1), lane);
      start_0 = shared_told(shared + 65708 + 28 * (turn & 1), lane);
      windows_0 = shared_told(shared + 65712 + 28 * (turn & 1), lane);
      start_1 = shared_told(shared + 65716 + 28 * (turn & 1), lane);
      windows_1 = shared_told(shared + 65720 + 28 * (turn & 1), lane);
      if (lane == 0) arrive(shared + 65680 + 8 * (turn & 1));
    }
    group_wait<0>();
    pin(t_5);
  }
}
