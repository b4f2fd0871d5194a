// naive for sm_90a, made by tilec, emitter hopper; schedule warpgroups=4,columns=64,stages=2,slices=1,share=false,pingpong=true,order=static,section=16,late=0,store=tma,loader=32,relax=true,apart=true,guess=true,blocks=1,chain=true,pieces=0
// naive: schedule warpgroups=4,columns=64,stages=2,slices=1,share=false,pingpong=true,order=static,section=16,late=0,store=tma,loader=32,relax=true,apart=true,guess=true,blocks=1,chain=true,pieces=0
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

extern "C" __global__ void __launch_bounds__(640, 1) naive_0(
    const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map,
    const __grid_constant__ TensorMap q_map,
    const __grid_constant__ TensorMap O_map,
    const int B,
    const int H,
    const int M,
    const int N) {
  if (threadIdx.x == 32) fetch_map(&k_map);
  if (threadIdx.x == 32) fetch_map(&v_map);
  if (threadIdx.x == 32) fetch_map(&q_map);
  if (threadIdx.x == 32) fetch_map(&O_map);
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  const int group = __shfl_sync(FULL, threadIdx.x >> 7, 0);
  if (threadIdx.x == 0) {
    for (int n = 0; n < 8; n++) barrier_init(shared + 131072 + 8 * n, 1);   // query_full
    for (int n = 0; n < 8; n++) barrier_init(shared + 131136 + 8 * n, 4);   // query_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 131200 + 8 * n, 1);   // k_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 131216 + 8 * n, 16);   // k_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 131232 + 8 * n, 1);   // v_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 131248 + 8 * n, 16);   // v_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 131264 + 8 * n, 1);   // tile_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 131280 + 8 * n, 18);   // tile_free
    barriers_ready();
  }
  __syncthreads();
  in_turn();
  if (group == 0) {
    fewer_registers<32>();
    const int warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);
    if (warp == 0 && (threadIdx.x & 31) == 0) {
      Cursor<2> k_next(1);
      int tile = blockIdx.x;   // the first one of this block
      for (int turn = 0;; turn++) {
        int B_ = B; read_again(B_);
        int H_ = H; read_again(H_);
        int M_ = M; read_again(M_);
        int N_ = N; read_again(N_);
        const int row_tiles = (M_ + 255) / 256;
        const int heads = (B_) * (H_);
        const int tiles = row_tiles * heads;
        int origin = -1, b = -1, h = -1, start_0 = -1, windows_0 = -1, start_1 = -1, windows_1 = -1;
        if (tile < tiles) {
          int head = tile / row_tiles;
          origin = (tile - head * row_tiles) * 256;
          h = head % (H_); head /= H_;
          b = head;
          const int t_2 = (N_ >> 6);  // floordiv(N, 64)
          const i64 t_6 = ((i64)64 * t_2);  // mul(t_2, 64)
          start_0 = 0;
          windows_0 = ((int)greatest<i64>(0, least<i64>(t_6, N_) - start_0) + 63) / 64;
          start_1 = (int)least<i64>(t_6, N_);
          windows_1 = ((int)greatest<i64>(0, N_ - start_1) + 63) / 64;
          if (windows_0 + windows_1 == 0) { start_1 = (int)(N_); windows_1 = 1; }
        }
        wait(shared + 131280 + 8 * (turn & 1), ((turn >> 1) & 1) ^ 1);
        {
          shared_put(shared + 131296 + 28 * (turn & 1), origin);
          shared_put(shared + 131300 + 28 * (turn & 1), b);
          shared_put(shared + 131304 + 28 * (turn & 1), h);
          shared_put(shared + 131308 + 28 * (turn & 1), start_0);
          shared_put(shared + 131312 + 28 * (turn & 1), windows_0);
          shared_put(shared + 131316 + 28 * (turn & 1), start_1);
          shared_put(shared + 131320 + 28 * (turn & 1), windows_1);
          arrive(shared + 131264 + 8 * (turn & 1));
        }
        if (origin < 0) break;
#pragma unroll 1
        for (int n = 0; n < windows_0; n++) {
          const int window = start_0 + n * 64;
          {
            wait(shared + 131216 + 8 * k_next.stage, k_next.parity);
            expect(shared + 131200 + 8 * k_next.stage, 8192);
            copy_in(shared + 65536 + k_next.stage * 8192, &k_map, shared + 131200 + 8 * k_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          k_next.step();
        }
#pragma unroll 1
        for (int n = 0; n < windows_1; n++) {
          const int window = start_1 + n * 64;
          {
            wait(shared + 131216 + 8 * k_next.stage, k_next.parity);
            expect(shared + 131200 + 8 * k_next.stage, 8192);
            copy_in(shared + 65536 + k_next.stage * 8192, &k_map, shared + 131200 + 8 * k_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          k_next.step();
        }
        tile += gridDim.x;
      }
    }
    else if (warp == 1 && (threadIdx.x & 31) == 0) {
      Cursor<2> v_next(1);
      for (int turn = 0;; turn++) {
        wait(shared + 131264 + 8 * (turn & 1), (turn >> 1) & 1);
        const int origin = shared_get(shared + 131296 + 28 * (turn & 1));
        const int b = shared_get(shared + 131300 + 28 * (turn & 1));
        const int h = shared_get(shared + 131304 + 28 * (turn & 1));
        const int start_0 = shared_get(shared + 131308 + 28 * (turn & 1));
        const int windows_0 = shared_get(shared + 131312 + 28 * (turn & 1));
        const int start_1 = shared_get(shared + 131316 + 28 * (turn & 1));
        const int windows_1 = shared_get(shared + 131320 + 28 * (turn & 1));
        arrive(shared + 131280 + 8 * (turn & 1));
        if (origin < 0) break;
#pragma unroll 1
        for (int n = 0; n < windows_0; n++) {
          const int window = start_0 + n * 64;
          {
            wait(shared + 131248 + 8 * v_next.stage, v_next.parity);
            expect(shared + 131232 + 8 * v_next.stage, 8192);
            copy_in(shared + 81920 + v_next.stage * 8192, &v_map, shared + 131232 + 8 * v_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          v_next.step();
        }
#pragma unroll 1
        for (int n = 0; n < windows_1; n++) {
          const int window = start_1 + n * 64;
          {
            wait(shared + 131248 + 8 * v_next.stage, v_next.parity);
            expect(shared + 131232 + 8 * v_next.stage, 8192);
            copy_in(shared + 81920 + v_next.stage * 8192, &v_map, shared + 131232 + 8 * v_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          v_next.step();
        }
      }
    }
    else if (warp == 2 && (threadIdx.x & 31) == 0) {
      for (int turn = 0;; turn++) {
        wait(shared + 131264 + 8 * (turn & 1), (turn >> 1) & 1);
        const int origin = shared_get(shared + 131296 + 28 * (turn & 1));
        const int b = shared_get(shared + 131300 + 28 * (turn & 1));
        const int h = shared_get(shared + 131304 + 28 * (turn & 1));
        const int start_0 = shared_get(shared + 131308 + 28 * (turn & 1));
        const int windows_0 = shared_get(shared + 131312 + 28 * (turn & 1));
        const int start_1 = shared_get(shared + 131316 + 28 * (turn & 1));
        const int windows_1 = shared_get(shared + 131320 + 28 * (turn & 1));
        arrive(shared + 131280 + 8 * (turn & 1));
        if (origin < 0) break;
        for (int w = 0; w < 4; w++) {
          wait(shared + 131136 + 8 * ((turn & 1) * 4 + w), ((turn >> 1) & 1) ^ 1);
          {
            expect(shared + 131072 + 8 * ((turn & 1) * 4 + w), 8192);
            copy_in(shared + 0 + ((turn & 1) * 4 + w) * 8192, &q_map, shared + 131072 + 8 * ((turn & 1) * 4 + w), 0, origin + w * 64, 0, (int)(b), (int)(h));
          }
        }
      }
    }
  }
  else {
    more_registers<112>();
    const int w = group - 1;
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    const u64 q_rows = rows_descriptor(shared + 0 + w * 8192);
    const u64 k_rows = rows_descriptor(shared + 65536);
    Cursor<2> k_ahead(0);
    const u64 v_columns = columns_descriptor(shared + 81920, 8192);
    Cursor<2> v_late(0);
    float t_1[32];
    u32 t_37_packed[16];
    float O_1[32];
    if (w == 3) named_arrive(1, 256);   // the first turn is that of warpgroup 0
    int turn = 0;
    wait(shared + 131264 + 8 * (turn & 1), (turn >> 1) & 1);
    int origin = shared_told(shared + 131296 + 28 * (turn & 1), lane);
    int b = shared_told(shared + 131300 + 28 * (turn & 1), lane);
    int h = shared_told(shared + 131304 + 28 * (turn & 1), lane);
    int start_0 = shared_told(shared + 131308 + 28 * (turn & 1), lane);
    int windows_0 = shared_told(shared + 131312 + 28 * (turn & 1), lane);
    int start_1 = shared_told(shared + 131316 + 28 * (turn & 1), lane);
    int windows_1 = shared_told(shared + 131320 + 28 * (turn & 1), lane);
    if (lane == 0) arrive(shared + 131280 + 8 * (turn & 1));
    wait(shared + 131072 + 8 * ((turn & 1) * 4 + w), ((turn >> 1) & 1));
    wait(shared + 131200 + 8 * k_ahead.stage, k_ahead.parity);
    group_fence();
    pin(t_1);
    rows_by_rows_f16<4, 8192, 8192, false>(t_1, q_rows + (u64)((turn & 1) * 2048), k_rows + (u64)(k_ahead.stage * 512));   // t_7 = contract(q, k, over=d)
    group_commit();
    while (origin >= 0) {
      int row_i[2]; ROWS row_i[r] = origin + w * 64 + warp * 16 + (lane >> 2) + 8 * r;   // i
      float m[2]; ROWS m[r] = NEG_INF;
      float l[2]; ROWS l[r] = 0.0f;
      int adding = 0;   // a tile's first tails replace what is in the accumulators
      int begin_0 = 0, begin_1 = 0;
      group_wait<0>();
      pin(t_1);
      if (lane == 0) arrive(shared + 131216 + 8 * k_ahead.stage);
      k_ahead.step();
      if (windows_0 > 0) {
        begin_0 = 1;
        const int window = start_0 + 0 * 64, stream_lane = window + 2 * (lane & 3);   // j
        {
          float guess[4];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float S_1_x = (t_1[4 * c + x] * 0.18033688f);  // mul(t_7, 0.18033688011112042)   examples/naive.tile:3
            guess[x] = S_1_x;
          }
          ROWS m[r] = quad_max(fmaxf(guess[2 * r], guess[2 * r + 1]));
        }
        float t_20[2]; ROWS t_20[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/naive.tile:4
        float r_3[2]; ROWS r_3[r] = max_nan(t_20[r], -3.4028235e+38f);  // max(t_20, -3.4028234663852886e+38)   examples/naive.tile:4
        float t_27_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_26)   examples/naive.tile:4
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_26_four[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float S_1_x_ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_7, 0.18033688011112042)   examples/naive.tile:3
            const float t_25_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_3[r]));  // sub(S_1, r_3)   examples/naive.tile:4
            const float t_26_x = exp2_(t_25_x);  // exp2(t_25)   examples/naive.tile:4
            t_26_four[x] = t_26_x;
            t_27_part[x] = t_27_part[x] + t_26_x;
          }
          t_37_packed[2 * c] = pack_f16(t_26_four[0], t_26_four[1]);
          t_37_packed[2 * c + 1] = pack_f16(t_26_four[2], t_26_four[3]);
        }
        float t_27[2]; ROWS t_27[r] = t_27_part[2 * r] + t_27_part[2 * r + 1];
        float m_5[2];
        float l_6[2];
        if (__builtin_expect(__all_sync(FULL, (t_27[0] <= 256.0f) & (t_27[1] <= 256.0f)), 1)) {
          float l_5[2]; ROWS l_5[r] = (l[r] + t_27[r]);  // add(l_3, t_27)   examples/naive.tile:4
          ROWS m_5[r] = m[r];
          ROWS l_6[r] = l_5[r];
        } else {
          float t_15_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(S_1)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_15_part[x] = fmaxf(t_15_part[x], t_1[4 * c + x]);
            }
          }
          float t_15[2]; ROWS t_15[r] = quad_max(fmaxf(t_15_part[2 * r], t_15_part[2 * r + 1])) * 0.18033688f;
          float m_4[2]; ROWS m_4[r] = max_nan(m[r], t_15[r]);  // max(m_3, t_15)   examples/naive.tile:4
          float t_16[2]; ROWS t_16[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/naive.tile:4
          float r_2[2]; ROWS r_2[r] = max_nan(t_16[r], -3.4028235e+38f);  // max(t_16, -3.4028234663852886e+38)   examples/naive.tile:4
          float t_21[2]; ROWS t_21[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/naive.tile:4
          float alpha_1[2]; ROWS alpha_1[r] = exp2_(t_21[r]);  // exp2(t_21)   examples/naive.tile:4
          float t_22[2]; ROWS t_22[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/naive.tile:4
          float t_19_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_18)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_18_four[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float S_1_x__ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_7, 0.18033688011112042)   examples/naive.tile:3
              const float t_17_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_2[r]));  // sub(S_1, r_2)   examples/naive.tile:4
              const float t_18_x = exp2_(t_17_x);  // exp2(t_17)   examples/naive.tile:4
              t_18_four[x] = t_18_x;
              t_19_part[x] = t_19_part[x] + t_18_x;
            }
            t_37_packed[2 * c] = pack_f16(t_18_four[0], t_18_four[1]);
            t_37_packed[2 * c + 1] = pack_f16(t_18_four[2], t_18_four[3]);
          }
          float t_19[2]; ROWS t_19[r] = t_19_part[2 * r] + t_19_part[2 * r + 1];
          float l_4[2]; ROWS l_4[r] = (t_22[r] + t_19[r]);  // add(t_22, t_19)   examples/naive.tile:4
          ROWS m_5[r] = m_4[r];
          ROWS l_6[r] = l_4[r];
        }
        ROWS m[r] = m_5[r];
        ROWS l[r] = l_6[r];
      }
      else {
        begin_1 = 1;
        const int window = start_1 + 0 * 64, stream_lane = window + 2 * (lane & 3);   // j
        const int rest = N - stream_lane;
#pragma unroll
        for (int c = 0; c < 8; c++) EACH {
          if (8 * c + (x & 1) >= rest) t_1[4 * c + x] = NEG_INF;
        }
        {
          float guess_[4];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float S_x = (t_1[4 * c + x] * 0.18033688f);  // mul(t_1, 0.18033688011112042)   examples/naive.tile:3
            guess_[x] = S_x;
          }
          ROWS m[r] = quad_max(fmaxf(guess_[2 * r], guess_[2 * r + 1]));
        }
        float t_9[2]; ROWS t_9[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/naive.tile:4
        float r_1[2]; ROWS r_1[r] = max_nan(t_9[r], -3.4028235e+38f);  // max(t_9, -3.4028234663852886e+38)   examples/naive.tile:4
        float t_34_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_33)   examples/naive.tile:4
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_33_four[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float S_x_ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_1, 0.18033688011112042)   examples/naive.tile:3
            const float t_32_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_1[r]));  // sub(S, r_1)   examples/naive.tile:4
            const float t_33_x = exp2_(t_32_x);  // exp2(t_32)   examples/naive.tile:4
            t_33_four[x] = t_33_x;
            t_34_part[x] = t_34_part[x] + t_33_x;
          }
          t_37_packed[2 * c] = pack_f16(t_33_four[0], t_33_four[1]);
          t_37_packed[2 * c + 1] = pack_f16(t_33_four[2], t_33_four[3]);
        }
        float t_34[2]; ROWS t_34[r] = t_34_part[2 * r] + t_34_part[2 * r + 1];
        float m_6[2];
        float l_8[2];
        if (__builtin_expect(__all_sync(FULL, (t_34[0] <= 256.0f) & (t_34[1] <= 256.0f)), 1)) {
          float l_7[2]; ROWS l_7[r] = (l[r] + t_34[r]);  // add(l_0, t_34)   examples/naive.tile:4
          ROWS m_6[r] = m[r];
          ROWS l_8[r] = l_7[r];
        } else {
          float t_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(S)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_part[x] = fmaxf(t_part[x], t_1[4 * c + x]);
            }
          }
          float t[2]; ROWS t[r] = quad_max(fmaxf(t_part[2 * r], t_part[2 * r + 1])) * 0.18033688f;
          float m_1[2]; ROWS m_1[r] = max_nan(m[r], t[r]);  // max(m_0, t)   examples/naive.tile:4
          float t_4[2]; ROWS t_4[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/naive.tile:4
          float r_[2]; ROWS r_[r] = max_nan(t_4[r], -3.4028235e+38f);  // max(t_4, -3.4028234663852886e+38)   examples/naive.tile:4
          float t_10[2]; ROWS t_10[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/naive.tile:4
          float alpha[2]; ROWS alpha[r] = exp2_(t_10[r]);  // exp2(t_10)   examples/naive.tile:4
          float t_11[2]; ROWS t_11[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/naive.tile:4
          float t_8_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_5)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_5_four[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float S_x__ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_1, 0.18033688011112042)   examples/naive.tile:3
              const float t_3_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_[r]));  // sub(S, r)   examples/naive.tile:4
              const float t_5_x = exp2_(t_3_x);  // exp2(t_3)   examples/naive.tile:4
              t_5_four[x] = t_5_x;
              t_8_part[x] = t_8_part[x] + t_5_x;
            }
            t_37_packed[2 * c] = pack_f16(t_5_four[0], t_5_four[1]);
            t_37_packed[2 * c + 1] = pack_f16(t_5_four[2], t_5_four[3]);
          }
          float t_8[2]; ROWS t_8[r] = t_8_part[2 * r] + t_8_part[2 * r + 1];
          float l_1[2]; ROWS l_1[r] = (t_11[r] + t_8[r]);  // add(t_11, t_8)   examples/naive.tile:4
          ROWS m_6[r] = m_1[r];
          ROWS l_8[r] = l_1[r];
        }
        ROWS m[r] = m_6[r];
        ROWS l[r] = l_8[r];
      }
#pragma unroll 1
      for (int n = begin_0; n < windows_0; n++) {
        const int window = start_0 + n * 64, stream_lane = window + 2 * (lane & 3);   // j
        wait(shared + 131200 + 8 * k_ahead.stage, k_ahead.parity);
        named_sync(1 + w, 256);
        group_fence();
        pin(t_1);
        rows_by_rows_f16<4, 8192, 8192, false>(t_1, q_rows + (u64)((turn & 1) * 2048), k_rows + (u64)(k_ahead.stage * 512));   // t_7 = contract(q, k, over=d)
        group_commit();
        wait(shared + 131232 + 8 * v_late.stage, v_late.parity);
        group_fence();
        pin(O_1);
        pin(t_37_packed);
        weights_by_columns_f16<4>(O_1, t_37_packed, v_columns + (u64)(v_late.stage * 512), adding);   // O_1 += contract(t_30, v, over=j)
        group_commit();
        adding = 1;
        named_arrive(1 + (w + 1 == 4 ? 0 : w + 1), 256);
        group_wait<1>();
        pin(t_1);
        if (lane == 0) arrive(shared + 131216 + 8 * k_ahead.stage);
        k_ahead.step();
        float t_20[2]; ROWS t_20[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/naive.tile:4
        float r_3[2]; ROWS r_3[r] = max_nan(t_20[r], -3.4028235e+38f);  // max(t_20, -3.4028234663852886e+38)   examples/naive.tile:4
        group_wait<0>();
        pin(O_1);
        pin(t_37_packed);
        if (lane == 0) arrive(shared + 131248 + 8 * v_late.stage);
        v_late.step();
        float t_27_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_26)   examples/naive.tile:4
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_26_four_[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float S_1_x___ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_7, 0.18033688011112042)   examples/naive.tile:3
            const float t_25_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_3[r]));  // sub(S_1, r_3)   examples/naive.tile:4
            const float t_26_x_ = exp2_(t_25_x_);  // exp2(t_25)   examples/naive.tile:4
            t_26_four_[x] = t_26_x_;
            t_27_part_[x] = t_27_part_[x] + t_26_x_;
          }
          t_37_packed[2 * c] = pack_f16(t_26_four_[0], t_26_four_[1]);
          t_37_packed[2 * c + 1] = pack_f16(t_26_four_[2], t_26_four_[3]);
        }
        float t_27[2]; ROWS t_27[r] = t_27_part_[2 * r] + t_27_part_[2 * r + 1];
        float m_5[2];
        float l_6[2];
        if (__builtin_expect(__all_sync(FULL, (t_27[0] <= 256.0f) & (t_27[1] <= 256.0f)), 1)) {
          float l_5[2]; ROWS l_5[r] = (l[r] + t_27[r]);  // add(l_3, t_27)   examples/naive.tile:4
          ROWS m_5[r] = m[r];
          ROWS l_6[r] = l_5[r];
        } else {
          float t_15_part_[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(S_1)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_15_part_[x] = fmaxf(t_15_part_[x], t_1[4 * c + x]);
            }
          }
          float t_15[2]; ROWS t_15[r] = quad_max(fmaxf(t_15_part_[2 * r], t_15_part_[2 * r + 1])) * 0.18033688f;
          float m_4[2]; ROWS m_4[r] = max_nan(m[r], t_15[r]);  // max(m_3, t_15)   examples/naive.tile:4
          float t_16[2]; ROWS t_16[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/naive.tile:4
          float r_2[2]; ROWS r_2[r] = max_nan(t_16[r], -3.4028235e+38f);  // max(t_16, -3.4028234663852886e+38)   examples/naive.tile:4
          float t_21[2]; ROWS t_21[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/naive.tile:4
          float alpha_1[2]; ROWS alpha_1[r] = exp2_(t_21[r]);  // exp2(t_21)   examples/naive.tile:4
          float t_22[2]; ROWS t_22[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/naive.tile:4
          float t_19_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_18)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_18_four_[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float S_1_x____ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_7, 0.18033688011112042)   examples/naive.tile:3
              const float t_17_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_2[r]));  // sub(S_1, r_2)   examples/naive.tile:4
              const float t_18_x_ = exp2_(t_17_x_);  // exp2(t_17)   examples/naive.tile:4
              t_18_four_[x] = t_18_x_;
              t_19_part_[x] = t_19_part_[x] + t_18_x_;
            }
            t_37_packed[2 * c] = pack_f16(t_18_four_[0], t_18_four_[1]);
            t_37_packed[2 * c + 1] = pack_f16(t_18_four_[2], t_18_four_[3]);
          }
          float t_19[2]; ROWS t_19[r] = t_19_part_[2 * r] + t_19_part_[2 * r + 1];
          float l_4[2]; ROWS l_4[r] = (t_22[r] + t_19[r]);  // add(t_22, t_19)   examples/naive.tile:4
          scale(O_1, alpha_1);  // mul(O_1_1, alpha_1)   examples/naive.tile:5
          ROWS m_5[r] = m_4[r];
          ROWS l_6[r] = l_4[r];
        }
        ROWS m[r] = m_5[r];
        ROWS l[r] = l_6[r];
      }
#pragma unroll 1
      for (int n = begin_1; n < windows_1; n++) {
        const int window = start_1 + n * 64, stream_lane = window + 2 * (lane & 3);   // j
        const int rest = N - stream_lane;
        wait(shared + 131200 + 8 * k_ahead.stage, k_ahead.parity);
        named_sync(1 + w, 256);
        group_fence();
        pin(t_1);
        rows_by_rows_f16<4, 8192, 8192, false>(t_1, q_rows + (u64)((turn & 1) * 2048), k_rows + (u64)(k_ahead.stage * 512));   // t_7 = contract(q, k, over=d)
        group_commit();
        wait(shared + 131232 + 8 * v_late.stage, v_late.parity);
        group_fence();
        pin(O_1);
        pin(t_37_packed);
        weights_by_columns_f16<4>(O_1, t_37_packed, v_columns + (u64)(v_late.stage * 512), adding);   // O_1 += contract(t_30, v, over=j)
        group_commit();
        adding = 1;
        named_arrive(1 + (w + 1 == 4 ? 0 : w + 1), 256);
        group_wait<1>();
        pin(t_1);
        if (lane == 0) arrive(shared + 131216 + 8 * k_ahead.stage);
        k_ahead.step();
#pragma unroll
        for (int c = 0; c < 8; c++) EACH {
          if (8 * c + (x & 1) >= rest) t_1[4 * c + x] = NEG_INF;
        }
        float t_9[2]; ROWS t_9[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/naive.tile:4
        float r_1[2]; ROWS r_1[r] = max_nan(t_9[r], -3.4028235e+38f);  // max(t_9, -3.4028234663852886e+38)   examples/naive.tile:4
        group_wait<0>();
        pin(O_1);
        pin(t_37_packed);
        if (lane == 0) arrive(shared + 131248 + 8 * v_late.stage);
        v_late.step();
        float t_34_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_33)   examples/naive.tile:4
#pragma unroll
        for (int c = 0; c < 8; c++) {
          float t_33_four_[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float S_x___ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_1, 0.18033688011112042)   examples/naive.tile:3
            const float t_32_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_1[r]));  // sub(S, r_1)   examples/naive.tile:4
            const float t_33_x_ = exp2_(t_32_x_);  // exp2(t_32)   examples/naive.tile:4
            t_33_four_[x] = t_33_x_;
            t_34_part_[x] = t_34_part_[x] + t_33_x_;
          }
          t_37_packed[2 * c] = pack_f16(t_33_four_[0], t_33_four_[1]);
          t_37_packed[2 * c + 1] = pack_f16(t_33_four_[2], t_33_four_[3]);
        }
        float t_34[2]; ROWS t_34[r] = t_34_part_[2 * r] + t_34_part_[2 * r + 1];
        float m_6[2];
        float l_8[2];
        if (__builtin_expect(__all_sync(FULL, (t_34[0] <= 256.0f) & (t_34[1] <= 256.0f)), 1)) {
          float l_7[2]; ROWS l_7[r] = (l[r] + t_34[r]);  // add(l_0, t_34)   examples/naive.tile:4
          ROWS m_6[r] = m[r];
          ROWS l_8[r] = l_7[r];
        } else {
          float t_part_[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(S)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_part_[x] = fmaxf(t_part_[x], t_1[4 * c + x]);
            }
          }
          float t[2]; ROWS t[r] = quad_max(fmaxf(t_part_[2 * r], t_part_[2 * r + 1])) * 0.18033688f;
          float m_1[2]; ROWS m_1[r] = max_nan(m[r], t[r]);  // max(m_0, t)   examples/naive.tile:4
          float t_4[2]; ROWS t_4[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/naive.tile:4
          float r_[2]; ROWS r_[r] = max_nan(t_4[r], -3.4028235e+38f);  // max(t_4, -3.4028234663852886e+38)   examples/naive.tile:4
          float t_10[2]; ROWS t_10[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/naive.tile:4
          float alpha[2]; ROWS alpha[r] = exp2_(t_10[r]);  // exp2(t_10)   examples/naive.tile:4
          float t_11[2]; ROWS t_11[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/naive.tile:4
          float t_8_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_5)   examples/naive.tile:4
#pragma unroll
          for (int c = 0; c < 8; c++) {
            float t_5_four_[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float S_x____ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_1, 0.18033688011112042)   examples/naive.tile:3
              const float t_3_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_[r]));  // sub(S, r)   examples/naive.tile:4
              const float t_5_x_ = exp2_(t_3_x_);  // exp2(t_3)   examples/naive.tile:4
              t_5_four_[x] = t_5_x_;
              t_8_part_[x] = t_8_part_[x] + t_5_x_;
            }
            t_37_packed[2 * c] = pack_f16(t_5_four_[0], t_5_four_[1]);
            t_37_packed[2 * c + 1] = pack_f16(t_5_four_[2], t_5_four_[3]);
          }
          float t_8[2]; ROWS t_8[r] = t_8_part_[2 * r] + t_8_part_[2 * r + 1];
          float l_1[2]; ROWS l_1[r] = (t_11[r] + t_8[r]);  // add(t_11, t_8)   examples/naive.tile:4
          scale(O_1, alpha);  // mul(O_1_0, alpha)   examples/naive.tile:5
          ROWS m_6[r] = m_1[r];
          ROWS l_8[r] = l_1[r];
        }
        ROWS m[r] = m_6[r];
        ROWS l[r] = l_8[r];
      }
      if (lane == 0) arrive(shared + 131136 + 8 * ((turn & 1) * 4 + w));
      turn++;
      wait(shared + 131264 + 8 * (turn & 1), (turn >> 1) & 1);
      const int next_origin = shared_told(shared + 131296 + 28 * (turn & 1), lane);
      wait(shared + 131232 + 8 * v_late.stage, v_late.parity);
      if (next_origin >= 0) {
        wait(shared + 131072 + 8 * ((turn & 1) * 4 + w), ((turn >> 1) & 1));
        wait(shared + 131200 + 8 * k_ahead.stage, k_ahead.parity);
      }
      named_sync(1 + w, 256);
      group_fence();
      pin(O_1);
      pin(t_37_packed);
      weights_by_columns_f16<4>(O_1, t_37_packed, v_columns + (u64)(v_late.stage * 512), adding);   // O_1 += contract(t_30, v, over=j)
      group_commit();
      adding = 1;
      group_fence();
      pin(t_1);
      rows_by_rows_f16<4, 8192, 8192, false>(t_1, q_rows + (u64)((turn & 1) * 2048), k_rows + (u64)(k_ahead.stage * 512));   // t_7 = contract(q, k, over=d)
      group_commit();
      named_arrive(1 + (w + 1 == 4 ? 0 : w + 1), 256);
      group_wait<1>();
      pin(O_1);
      pin(t_37_packed);
      if (lane == 0) arrive(shared + 131248 + 8 * v_late.stage);
      v_late.step();
      float l_total[2]; ROWS l_total[r] = quad_sum(l[r]);
      {
        float inverse_l_total[2]; ROWS inverse_l_total[r] = reciprocal(l_total[r]);
        if ((threadIdx.x & 127) == 0) copy_read_out();   // the copy before this one has left shared memory
        named_sync(8 + w, 128);
        const u32 out_place = shared + 98304 + w * 8192, out_row = warp * 16 + (lane & 15);
        const u32 out_lane = out_place + out_row * 128 + ((((u32)lane >> 4) ^ (out_row & 7)) << 4);
        if (__all_sync(FULL, regular(l_total[0]) & regular(l_total[1]))) {
#pragma unroll
          for (int b16 = 0; b16 < 4; b16++) {
            float four[2][4];
#pragma unroll
            for (int b8 = 0; b8 < 2; b8++) EACH {
              const int c = 2 * b16 + b8, r = x >> 1, column = 8 * c + (x & 1);
              const float t_14_x = (O_1[4 * c + x] * inverse_l_total[r]);  // div(O_1, l)   examples/naive.tile:5
              four[b8][x] = t_14_x;
            }
            store_matrices((out_lane ^ ((b16 & 3) << 5)) + (b16 >> 2) * 8192, pack_f16(four[0][0], four[0][1]), pack_f16(four[0][2], four[0][3]), pack_f16(four[1][0], four[1][1]), pack_f16(four[1][2], four[1][3]));
          }
        }
        else {
#pragma unroll
          for (int b16 = 0; b16 < 4; b16++) {
            float four[2][4];
#pragma unroll
            for (int b8 = 0; b8 < 2; b8++) EACH {
              const int c = 2 * b16 + b8, r = x >> 1, column = 8 * c + (x & 1);
              const float t_14_x_ = divide(O_1[4 * c + x], l_total[r]);  // div(O_1, l)   examples/naive.tile:5
              four[b8][x] = t_14_x_;
            }
            store_matrices((out_lane ^ ((b16 & 3) << 5)) + (b16 >> 2) * 8192, pack_f16(four[0][0], four[0][1]), pack_f16(four[0][2], four[0][3]), pack_f16(four[1][0], four[1][1]), pack_f16(four[1][2], four[1][3]));
          }
        }
        written_for_copies();
        named_sync(8 + w, 128);
        if ((threadIdx.x & 127) == 0) {
          copy_out(&O_map, out_place, 0, origin + w * 64, 0, (int)b, (int)h);  // store(b, h, i, e, t_14)   examples/naive.tile:2
          copy_commit();
        }
      }
      origin = next_origin;
      b = shared_told(shared + 131300 + 28 * (turn & 1), lane);
      h = shared_told(shared + 131304 + 28 * (turn & 1), lane);
      start_0 = shared_told(shared + 131308 + 28 * (turn & 1), lane);
      windows_0 = shared_told(shared + 131312 + 28 * (turn & 1), lane);
      start_1 = shared_told(shared + 131316 + 28 * (turn & 1), lane);
      windows_1 = shared_told(shared + 131320 + 28 * (turn & 1), lane);
      if (lane == 0) arrive(shared + 131280 + 8 * (turn & 1));
    }
    group_wait<0>();
    pin(t_1);
    if ((threadIdx.x & 127) == 0) copy_finish();
  }
}
