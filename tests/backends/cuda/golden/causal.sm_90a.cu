// causal for sm_90a, made by tilec, emitter hopper; schedule warpgroups=2,columns=128,stages=2,slices=1,share=false,pingpong=true,order=longest,section=16,late=0,store=tma,loader=24,relax=true,apart=true,guess=true,blocks=1,chain=true,pieces=0
// causal: schedule warpgroups=2,columns=128,stages=2,slices=1,share=false,pingpong=true,order=longest,section=16,late=0,store=tma,loader=24,relax=true,apart=true,guess=true,blocks=1,chain=true,pieces=0
// … hopper.cuh

template<int ADD> DEVICE void wgmma_f16(float (&d)[64], u64 a, u64 b) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, "
    "%64, %65, p, 1, 1, 0, 0;\n}\n"
    : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63]) : "l"(a), "l"(b), "n"(ADD));
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

extern "C" __global__ void __launch_bounds__(384, 1) causal_0(
    const __grid_constant__ TensorMap k_map,
    const __grid_constant__ TensorMap v_map,
    const __grid_constant__ TensorMap q_map,
    const __grid_constant__ TensorMap O_map,
    const int B,
    const int H,
    const int M,
    const int N,
    const int most_heads,
    const int late_rows,
    u32* __restrict__ counter,
    u32* __restrict__ redo) {
  if (threadIdx.x == 32) fetch_map(&k_map);
  if (threadIdx.x == 32) fetch_map(&v_map);
  if (threadIdx.x == 32) fetch_map(&q_map);
  if (threadIdx.x == 32) fetch_map(&O_map);
  extern __shared__ __align__(1024) unsigned char memory[];
  const u32 shared = shared_address(memory);
  const int group = __shfl_sync(FULL, threadIdx.x >> 7, 0);
  if (threadIdx.x == 0) {
    for (int n = 0; n < 4; n++) barrier_init(shared + 114688 + 8 * n, 1);   // query_full
    for (int n = 0; n < 4; n++) barrier_init(shared + 114720 + 8 * n, 4);   // query_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 114752 + 8 * n, 1);   // k_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 114768 + 8 * n, 8);   // k_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 114784 + 8 * n, 1);   // v_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 114800 + 8 * n, 8);   // v_free
    for (int n = 0; n < 2; n++) barrier_init(shared + 114816 + 8 * n, 1);   // tile_full
    for (int n = 0; n < 2; n++) barrier_init(shared + 114832 + 8 * n, 10);   // tile_free
    barriers_ready();
  }
  __syncthreads();
  in_turn();
  if (group == 0) {
    fewer_registers<24>();
    const int warp = __shfl_sync(FULL, threadIdx.x >> 5, 0);
    if (warp == 0 && (threadIdx.x & 31) == 0) {
      Cursor<2> k_next(1);
      int tile = blockIdx.x;   // the first one of this block
      for (int turn = 0;; turn++) {
        int B_ = B; read_again(B_);
        int H_ = H; read_again(H_);
        int M_ = M; read_again(M_);
        int N_ = N; read_again(N_);
        const int row_tiles = (M_ + 127) / 128;
        const int heads = (B_) * (H_);
        const int tiles = row_tiles * heads;
        int origin = -1, b = -1, h = -1, start_0 = -1, windows_0 = -1, start_1 = -1, windows_1 = -1;
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
          origin = (row + place / width) * 128;
          h = head % (H_); head /= H_;
          b = head;
          const int i_first = origin;  // edge()
          const int i_last = least<int>(origin + 128, M_) - 1;  // edge()
          const int t_25 = (i_first + N_);  // add(i_first, N)
          const int t_26 = (t_25 - M_);  // sub(t_25, M)
          const int t_27 = (i_last + N_);  // add(i_last, N)
          const int t_28 = (t_27 - M_);  // sub(t_27, M)
          const int t_29 = (t_28 + 1);  // add(t_28, 1)
          const int t_30 = least<int>(N_, t_29);  // min(N, t_29)
          const int t_31 = (t_26 + 1);  // add(t_26, 1)
          const int t_32 = least<int>(N_, t_31);  // min(N, t_31)
          const int t_33 = (t_32 >> 7);  // floordiv(t_32, 128)
          const i64 t_34 = ((i64)128 * t_33);  // mul(t_33, 128)
          const i64 t_35 = greatest<i64>(0, t_34);  // max(0, t_34)
          start_0 = 0;
          windows_0 = ((int)greatest<i64>(0, least<i64>(t_35, N_) - start_0) + 127) / 128;
          start_1 = (int)least<i64>(t_35, N_);
          windows_1 = ((int)greatest<i64>(0, least<i64>(t_30, N_) - start_1) + 127) / 128;
          if (windows_0 + windows_1 == 0) { start_1 = (int)(N_); windows_1 = 1; }
        }
        wait(shared + 114832 + 8 * (turn & 1), ((turn >> 1) & 1) ^ 1);
        {
          shared_put(shared + 114848 + 28 * (turn & 1), origin);
          shared_put(shared + 114852 + 28 * (turn & 1), b);
          shared_put(shared + 114856 + 28 * (turn & 1), h);
          shared_put(shared + 114860 + 28 * (turn & 1), start_0);
          shared_put(shared + 114864 + 28 * (turn & 1), windows_0);
          shared_put(shared + 114868 + 28 * (turn & 1), start_1);
          shared_put(shared + 114872 + 28 * (turn & 1), windows_1);
          arrive(shared + 114816 + 8 * (turn & 1));
        }
        if (origin < 0) break;
#pragma unroll 1
        for (int n = 0; n < windows_1; n++) {
          const int window = start_1 + (windows_1 - 1 - n) * 128;
          {
            wait(shared + 114768 + 8 * k_next.stage, k_next.parity);
            expect(shared + 114752 + 8 * k_next.stage, 16384);
            copy_in(shared + 32768 + k_next.stage * 16384, &k_map, shared + 114752 + 8 * k_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          k_next.step();
        }
#pragma unroll 1
        for (int n = 0; n < windows_0; n++) {
          const int window = start_0 + (windows_0 - 1 - n) * 128;
          {
            wait(shared + 114768 + 8 * k_next.stage, k_next.parity);
            expect(shared + 114752 + 8 * k_next.stage, 16384);
            copy_in(shared + 32768 + k_next.stage * 16384, &k_map, shared + 114752 + 8 * k_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          k_next.step();
        }
        {
          const u32 taken = atomicAdd(counter, 1u);
          // the last one of this launch leaves it ready for the next
          if (taken == (u32)tiles - 1) *counter = 0;
          tile = taken + gridDim.x;
        }
      }
    }
    else if (warp == 1 && (threadIdx.x & 31) == 0) {
      Cursor<2> v_next(1);
      for (int turn = 0;; turn++) {
        wait(shared + 114816 + 8 * (turn & 1), (turn >> 1) & 1);
        const int origin = shared_get(shared + 114848 + 28 * (turn & 1));
        const int b = shared_get(shared + 114852 + 28 * (turn & 1));
        const int h = shared_get(shared + 114856 + 28 * (turn & 1));
        const int start_0 = shared_get(shared + 114860 + 28 * (turn & 1));
        const int windows_0 = shared_get(shared + 114864 + 28 * (turn & 1));
        const int start_1 = shared_get(shared + 114868 + 28 * (turn & 1));
        const int windows_1 = shared_get(shared + 114872 + 28 * (turn & 1));
        arrive(shared + 114832 + 8 * (turn & 1));
        if (origin < 0) break;
#pragma unroll 1
        for (int n = 0; n < windows_1; n++) {
          const int window = start_1 + (windows_1 - 1 - n) * 128;
          {
            wait(shared + 114800 + 8 * v_next.stage, v_next.parity);
            expect(shared + 114784 + 8 * v_next.stage, 16384);
            copy_in(shared + 65536 + v_next.stage * 16384, &v_map, shared + 114784 + 8 * v_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          v_next.step();
        }
#pragma unroll 1
        for (int n = 0; n < windows_0; n++) {
          const int window = start_0 + (windows_0 - 1 - n) * 128;
          {
            wait(shared + 114800 + 8 * v_next.stage, v_next.parity);
            expect(shared + 114784 + 8 * v_next.stage, 16384);
            copy_in(shared + 65536 + v_next.stage * 16384, &v_map, shared + 114784 + 8 * v_next.stage, 0, window, 0, (int)(b), (int)(h));
          }
          v_next.step();
        }
      }
    }
    else if (warp == 2 && (threadIdx.x & 31) == 0) {
      for (int turn = 0;; turn++) {
        wait(shared + 114816 + 8 * (turn & 1), (turn >> 1) & 1);
        const int origin = shared_get(shared + 114848 + 28 * (turn & 1));
        const int b = shared_get(shared + 114852 + 28 * (turn & 1));
        const int h = shared_get(shared + 114856 + 28 * (turn & 1));
        const int start_0 = shared_get(shared + 114860 + 28 * (turn & 1));
        const int windows_0 = shared_get(shared + 114864 + 28 * (turn & 1));
        const int start_1 = shared_get(shared + 114868 + 28 * (turn & 1));
        const int windows_1 = shared_get(shared + 114872 + 28 * (turn & 1));
        arrive(shared + 114832 + 8 * (turn & 1));
        if (origin < 0) break;
        for (int w = 0; w < 2; w++) {
          wait(shared + 114720 + 8 * ((turn & 1) * 2 + w), ((turn >> 1) & 1) ^ 1);
          {
            expect(shared + 114688 + 8 * ((turn & 1) * 2 + w), 8192);
            copy_in(shared + 0 + ((turn & 1) * 2 + w) * 8192, &q_map, shared + 114688 + 8 * ((turn & 1) * 2 + w), 0, origin + w * 64, 0, (int)(b), (int)(h));
          }
        }
      }
    }
  }
  else {
    more_registers<240>();
    const int w = group - 1;
    const int lane = threadIdx.x & 31, warp = (threadIdx.x >> 5) & 3;
    const u64 q_rows = rows_descriptor(shared + 0 + w * 8192);
    const u64 k_rows = rows_descriptor(shared + 32768);
    Cursor<2> k_ahead(0);
    const u64 v_columns = columns_descriptor(shared + 65536, 16384);
    Cursor<2> v_late(0);
    float t_1[64];
    u32 t_52_packed[32];
    float O_1[32];
    if (w == 1) named_arrive(1, 256);   // the first turn is that of warpgroup 0
    int turn = 0;
    wait(shared + 114816 + 8 * (turn & 1), (turn >> 1) & 1);
    int origin = shared_told(shared + 114848 + 28 * (turn & 1), lane);
    int b = shared_told(shared + 114852 + 28 * (turn & 1), lane);
    int h = shared_told(shared + 114856 + 28 * (turn & 1), lane);
    int start_0 = shared_told(shared + 114860 + 28 * (turn & 1), lane);
    int windows_0 = shared_told(shared + 114864 + 28 * (turn & 1), lane);
    int start_1 = shared_told(shared + 114868 + 28 * (turn & 1), lane);
    int windows_1 = shared_told(shared + 114872 + 28 * (turn & 1), lane);
    if (lane == 0) arrive(shared + 114832 + 8 * (turn & 1));
    wait(shared + 114688 + 8 * ((turn & 1) * 2 + w), ((turn >> 1) & 1));
    wait(shared + 114752 + 8 * k_ahead.stage, k_ahead.parity);
    group_fence();
    pin(t_1);
    rows_by_rows_f16<4, 8192, 16384, false>(t_1, q_rows + (u64)((turn & 1) * 1024), k_rows + (u64)(k_ahead.stage * 1024));   // t_37 = contract(q, k, over=d)
    group_commit();
    while (origin >= 0) {
      int row_i[2]; ROWS row_i[r] = origin + w * 64 + warp * 16 + (lane >> 2) + 8 * r;   // i
      int t_3[2]; ROWS t_3[r] = (row_i[r] + N);  // add(i, N)   examples/causal.tile:4
      int t_4[2]; ROWS t_4[r] = (t_3[r] - M);  // sub(t_3, M)   examples/causal.tile:4
      float m[2]; ROWS m[r] = NEG_INF;
      float l[2]; ROWS l[r] = 0.0f;
      int adding = 0;   // a tile's first tails replace what is in the accumulators
      int begin_0 = 0, begin_1 = 0;
      group_wait<0>();
      pin(t_1);
      if (lane == 0) arrive(shared + 114768 + 8 * k_ahead.stage);
      k_ahead.step();
      if (windows_1 > 0) {
        begin_1 = 1;
        const int window = start_1 + (windows_1 - 1 - 0) * 128, stream_lane = window + 2 * (lane & 3);   // j
        const int rest = N - stream_lane;
        u32 counting_[2];
        ROWS counting_[r] = columns_to(least<int>(t_4[r] - stream_lane, rest - 1));
        {
          float guess[4];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float t_12_x = ((counting_[r] & (1u << (2 * c + (x & 1) & 31))) ? t_1[4 * c + x] : NEG_INF);  // select(t_5, t_11, -inf)   examples/causal.tile:3
            guess[x] = (t_12_x * 0.18033688f);
          }
          ROWS m[r] = quad_max(fmaxf(guess[2 * r], guess[2 * r + 1]));
        }
        float t_14[2]; ROWS t_14[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/causal.tile:4
        float r_1[2]; ROWS r_1[r] = max_nan(t_14[r], -3.4028235e+38f);  // max(t_14, -3.4028234663852886e+38)   examples/causal.tile:4
#pragma unroll
        for (int c = 0; c < 16; c++) {
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_12_x_ = ((counting_[r] & (1u << (2 * c + (x & 1) & 31))) ? t_1[4 * c + x] : NEG_INF);  // select(t_5, t_11, -inf)   examples/causal.tile:3
            t_1[4 * c + x] = t_12_x_;
          }
        }
        float t_49_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_36)   examples/causal.tile:4
#pragma unroll
        for (int c = 0; c < 16; c++) {
          float t_36_four[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_24_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_1[r]));  // sub(t_12, r_1)   examples/causal.tile:4
            const float t_36_x = exp2_(t_24_x);  // exp2(t_24)   examples/causal.tile:4
            t_36_four[x] = t_36_x;
            t_49_part[x] = t_49_part[x] + t_36_x;
          }
          t_52_packed[2 * c] = pack_f16(t_36_four[0], t_36_four[1]);
          t_52_packed[2 * c + 1] = pack_f16(t_36_four[2], t_36_four[3]);
        }
        float t_49[2]; ROWS t_49[r] = t_49_part[2 * r] + t_49_part[2 * r + 1];
        float m_6[2];
        float l_8[2];
        if (__builtin_expect(__all_sync(FULL, (t_49[0] <= 256.0f) & (t_49[1] <= 256.0f)), 1)) {
          float l_7[2]; ROWS l_7[r] = (l[r] + t_49[r]);  // add(l_0, t_49)   examples/causal.tile:4
          ROWS m_6[r] = m[r];
          ROWS l_8[r] = l_7[r];
        } else {
          float t_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_12)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_part[x] = fmaxf(t_part[x], t_1[4 * c + x]);
            }
          }
          float t[2]; ROWS t[r] = quad_max(fmaxf(t_part[2 * r], t_part[2 * r + 1])) * 0.18033688f;
          float m_1[2]; ROWS m_1[r] = max_nan(m[r], t[r]);  // max(m_0, t)   examples/causal.tile:4
          float t_8[2]; ROWS t_8[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_[2]; ROWS r_[r] = max_nan(t_8[r], -3.4028235e+38f);  // max(t_8, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_15[2]; ROWS t_15[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/causal.tile:4
          float alpha[2]; ROWS alpha[r] = exp2_(t_15[r]);  // exp2(t_15)   examples/causal.tile:4
          float t_16[2]; ROWS t_16[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/causal.tile:4
          float t_13_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_9)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            float t_9_four[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_7_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_[r]));  // sub(t_12, r)   examples/causal.tile:4
              const float t_9_x = exp2_(t_7_x);  // exp2(t_7)   examples/causal.tile:4
              t_9_four[x] = t_9_x;
              t_13_part[x] = t_13_part[x] + t_9_x;
            }
            t_52_packed[2 * c] = pack_f16(t_9_four[0], t_9_four[1]);
            t_52_packed[2 * c + 1] = pack_f16(t_9_four[2], t_9_four[3]);
          }
          float t_13[2]; ROWS t_13[r] = t_13_part[2 * r] + t_13_part[2 * r + 1];
          float l_1[2]; ROWS l_1[r] = (t_16[r] + t_13[r]);  // add(t_16, t_13)   examples/causal.tile:4
          ROWS m_6[r] = m_1[r];
          ROWS l_8[r] = l_1[r];
        }
        ROWS m[r] = m_6[r];
        ROWS l[r] = l_8[r];
      }
      else {
        begin_0 = 1;
        const int window = start_0 + (windows_0 - 1 - 0) * 128, stream_lane = window + 2 * (lane & 3);   // j
        {
          float guess_[4];
          const int c = 0;
          EACH {
            const int r = x >> 1, column = x & 1;
            const float t_38_x = (t_1[4 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
            guess_[x] = t_38_x;
          }
          ROWS m[r] = quad_max(fmaxf(guess_[2 * r], guess_[2 * r + 1]));
        }
        float t_44[2]; ROWS t_44[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/causal.tile:4
        float r_3[2]; ROWS r_3[r] = max_nan(t_44[r], -3.4028235e+38f);  // max(t_44, -3.4028234663852886e+38)   examples/causal.tile:4
        float t_10_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_6)   examples/causal.tile:4
#pragma unroll
        for (int c = 0; c < 16; c++) {
          float t_6_four[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_38_x_ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
            const float t_2_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_3[r]));  // sub(t_38, r_3)   examples/causal.tile:4
            const float t_6_x = exp2_(t_2_x);  // exp2(t_2)   examples/causal.tile:4
            t_6_four[x] = t_6_x;
            t_10_part[x] = t_10_part[x] + t_6_x;
          }
          t_52_packed[2 * c] = pack_f16(t_6_four[0], t_6_four[1]);
          t_52_packed[2 * c + 1] = pack_f16(t_6_four[2], t_6_four[3]);
        }
        float t_10[2]; ROWS t_10[r] = t_10_part[2 * r] + t_10_part[2 * r + 1];
        float m_5[2];
        float l_6[2];
        if (__builtin_expect(__all_sync(FULL, (t_10[0] <= 256.0f) & (t_10[1] <= 256.0f)), 1)) {
          float l_5[2]; ROWS l_5[r] = (l[r] + t_10[r]);  // add(l_3, t_10)   examples/causal.tile:4
          ROWS m_5[r] = m[r];
          ROWS l_6[r] = l_5[r];
        } else {
          float t_39_part[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_38)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_39_part[x] = fmaxf(t_39_part[x], t_1[4 * c + x]);
            }
          }
          float t_39[2]; ROWS t_39[r] = quad_max(fmaxf(t_39_part[2 * r], t_39_part[2 * r + 1])) * 0.18033688f;
          float m_4[2]; ROWS m_4[r] = max_nan(m[r], t_39[r]);  // max(m_3, t_39)   examples/causal.tile:4
          float t_40[2]; ROWS t_40[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_2[2]; ROWS r_2[r] = max_nan(t_40[r], -3.4028235e+38f);  // max(t_40, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_45[2]; ROWS t_45[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/causal.tile:4
          float alpha_1[2]; ROWS alpha_1[r] = exp2_(t_45[r]);  // exp2(t_45)   examples/causal.tile:4
          float t_46[2]; ROWS t_46[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/causal.tile:4
          float t_43_part[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_42)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            float t_42_four[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_38_x__ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
              const float t_41_x = fmaf(t_1[4 * c + x], 0.18033688f, -(r_2[r]));  // sub(t_38, r_2)   examples/causal.tile:4
              const float t_42_x = exp2_(t_41_x);  // exp2(t_41)   examples/causal.tile:4
              t_42_four[x] = t_42_x;
              t_43_part[x] = t_43_part[x] + t_42_x;
            }
            t_52_packed[2 * c] = pack_f16(t_42_four[0], t_42_four[1]);
            t_52_packed[2 * c + 1] = pack_f16(t_42_four[2], t_42_four[3]);
          }
          float t_43[2]; ROWS t_43[r] = t_43_part[2 * r] + t_43_part[2 * r + 1];
          float l_4[2]; ROWS l_4[r] = (t_46[r] + t_43[r]);  // add(t_46, t_43)   examples/causal.tile:4
          ROWS m_5[r] = m_4[r];
          ROWS l_6[r] = l_4[r];
        }
        ROWS m[r] = m_5[r];
        ROWS l[r] = l_6[r];
      }
#pragma unroll 1
      for (int n = begin_1; n < windows_1; n++) {
        const int window = start_1 + (windows_1 - 1 - n) * 128, stream_lane = window + 2 * (lane & 3);   // j
        const int rest = N - stream_lane;
        wait(shared + 114752 + 8 * k_ahead.stage, k_ahead.parity);
        named_sync(1 + w, 256);
        group_fence();
        pin(t_1);
        rows_by_rows_f16<4, 8192, 16384, false>(t_1, q_rows + (u64)((turn & 1) * 1024), k_rows + (u64)(k_ahead.stage * 1024));   // t_37 = contract(q, k, over=d)
        group_commit();
        wait(shared + 114784 + 8 * v_late.stage, v_late.parity);
        group_fence();
        pin(O_1);
        pin(t_52_packed);
        weights_by_columns_f16<8>(O_1, t_52_packed, v_columns + (u64)(v_late.stage * 1024), adding);   // O_1 += contract(t_22, v, over=j)
        group_commit();
        adding = 1;
        named_arrive(1 + (w + 1 == 2 ? 0 : w + 1), 256);
        group_wait<1>();
        pin(t_1);
        if (lane == 0) arrive(shared + 114768 + 8 * k_ahead.stage);
        k_ahead.step();
        float t_14[2]; ROWS t_14[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_0, 3.4028234663852886e+38)   examples/causal.tile:4
        float r_1[2]; ROWS r_1[r] = max_nan(t_14[r], -3.4028235e+38f);  // max(t_14, -3.4028234663852886e+38)   examples/causal.tile:4
        u32 counting__[2];
        ROWS counting__[r] = columns_to(least<int>(t_4[r] - stream_lane, rest - 1));
#pragma unroll
        for (int c = 0; c < 16; c++) {
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_12_x__ = ((counting__[r] & (1u << (2 * c + (x & 1) & 31))) ? t_1[4 * c + x] : NEG_INF);  // select(t_5, t_11, -inf)   examples/causal.tile:3
            t_1[4 * c + x] = t_12_x__;
          }
        }
        group_wait<0>();
        pin(O_1);
        pin(t_52_packed);
        if (lane == 0) arrive(shared + 114800 + 8 * v_late.stage);
        v_late.step();
        float t_49_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_36)   examples/causal.tile:4
#pragma unroll
        for (int c = 0; c < 16; c++) {
          float t_36_four_[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_24_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_1[r]));  // sub(t_12, r_1)   examples/causal.tile:4
            const float t_36_x_ = exp2_(t_24_x_);  // exp2(t_24)   examples/causal.tile:4
            t_36_four_[x] = t_36_x_;
            t_49_part_[x] = t_49_part_[x] + t_36_x_;
          }
          t_52_packed[2 * c] = pack_f16(t_36_four_[0], t_36_four_[1]);
          t_52_packed[2 * c + 1] = pack_f16(t_36_four_[2], t_36_four_[3]);
        }
        float t_49[2]; ROWS t_49[r] = t_49_part_[2 * r] + t_49_part_[2 * r + 1];
        float m_6[2];
        float l_8[2];
        if (__builtin_expect(__all_sync(FULL, (t_49[0] <= 256.0f) & (t_49[1] <= 256.0f)), 1)) {
          float l_7[2]; ROWS l_7[r] = (l[r] + t_49[r]);  // add(l_0, t_49)   examples/causal.tile:4
          ROWS m_6[r] = m[r];
          ROWS l_8[r] = l_7[r];
        } else {
          float t_part_[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_12)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_part_[x] = fmaxf(t_part_[x], t_1[4 * c + x]);
            }
          }
          float t[2]; ROWS t[r] = quad_max(fmaxf(t_part_[2 * r], t_part_[2 * r + 1])) * 0.18033688f;
          float m_1[2]; ROWS m_1[r] = max_nan(m[r], t[r]);  // max(m_0, t)   examples/causal.tile:4
          float t_8[2]; ROWS t_8[r] = min_nan(m_1[r], 3.4028235e+38f);  // min(m_1, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_[2]; ROWS r_[r] = max_nan(t_8[r], -3.4028235e+38f);  // max(t_8, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_15[2]; ROWS t_15[r] = (r_1[r] - r_[r]);  // sub(r_1, r)   examples/causal.tile:4
          float alpha[2]; ROWS alpha[r] = exp2_(t_15[r]);  // exp2(t_15)   examples/causal.tile:4
          float t_16[2]; ROWS t_16[r] = (l[r] * alpha[r]);  // mul(l_0, alpha)   examples/causal.tile:4
          float t_13_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_9)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            float t_9_four_[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_7_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_[r]));  // sub(t_12, r)   examples/causal.tile:4
              const float t_9_x_ = exp2_(t_7_x_);  // exp2(t_7)   examples/causal.tile:4
              t_9_four_[x] = t_9_x_;
              t_13_part_[x] = t_13_part_[x] + t_9_x_;
            }
            t_52_packed[2 * c] = pack_f16(t_9_four_[0], t_9_four_[1]);
            t_52_packed[2 * c + 1] = pack_f16(t_9_four_[2], t_9_four_[3]);
          }
          float t_13[2]; ROWS t_13[r] = t_13_part_[2 * r] + t_13_part_[2 * r + 1];
          float l_1[2]; ROWS l_1[r] = (t_16[r] + t_13[r]);  // add(t_16, t_13)   examples/causal.tile:4
          scale(O_1, alpha);  // mul(O_1_0, alpha)   examples/causal.tile:5
          ROWS m_6[r] = m_1[r];
          ROWS l_8[r] = l_1[r];
        }
        ROWS m[r] = m_6[r];
        ROWS l[r] = l_8[r];
      }
#pragma unroll 1
      for (int n = begin_0; n < windows_0; n++) {
        const int window = start_0 + (windows_0 - 1 - n) * 128, stream_lane = window + 2 * (lane & 3);   // j
        wait(shared + 114752 + 8 * k_ahead.stage, k_ahead.parity);
        named_sync(1 + w, 256);
        group_fence();
        pin(t_1);
        rows_by_rows_f16<4, 8192, 16384, false>(t_1, q_rows + (u64)((turn & 1) * 1024), k_rows + (u64)(k_ahead.stage * 1024));   // t_37 = contract(q, k, over=d)
        group_commit();
        wait(shared + 114784 + 8 * v_late.stage, v_late.parity);
        group_fence();
        pin(O_1);
        pin(t_52_packed);
        weights_by_columns_f16<8>(O_1, t_52_packed, v_columns + (u64)(v_late.stage * 1024), adding);   // O_1 += contract(t_22, v, over=j)
        group_commit();
        adding = 1;
        named_arrive(1 + (w + 1 == 2 ? 0 : w + 1), 256);
        group_wait<1>();
        pin(t_1);
        if (lane == 0) arrive(shared + 114768 + 8 * k_ahead.stage);
        k_ahead.step();
        float t_44[2]; ROWS t_44[r] = min_nan(m[r], 3.4028235e+38f);  // min(m_3, 3.4028234663852886e+38)   examples/causal.tile:4
        float r_3[2]; ROWS r_3[r] = max_nan(t_44[r], -3.4028235e+38f);  // max(t_44, -3.4028234663852886e+38)   examples/causal.tile:4
        group_wait<0>();
        pin(O_1);
        pin(t_52_packed);
        if (lane == 0) arrive(shared + 114800 + 8 * v_late.stage);
        v_late.step();
        float t_10_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_6)   examples/causal.tile:4
#pragma unroll
        for (int c = 0; c < 16; c++) {
          float t_6_four_[4];
          EACH {
            const int r = x >> 1, column = 8 * c + (x & 1);
            const float t_38_x___ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
            const float t_2_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_3[r]));  // sub(t_38, r_3)   examples/causal.tile:4
            const float t_6_x_ = exp2_(t_2_x_);  // exp2(t_2)   examples/causal.tile:4
            t_6_four_[x] = t_6_x_;
            t_10_part_[x] = t_10_part_[x] + t_6_x_;
          }
          t_52_packed[2 * c] = pack_f16(t_6_four_[0], t_6_four_[1]);
          t_52_packed[2 * c + 1] = pack_f16(t_6_four_[2], t_6_four_[3]);
        }
        float t_10[2]; ROWS t_10[r] = t_10_part_[2 * r] + t_10_part_[2 * r + 1];
        float m_5[2];
        float l_6[2];
        if (__builtin_expect(__all_sync(FULL, (t_10[0] <= 256.0f) & (t_10[1] <= 256.0f)), 1)) {
          float l_5[2]; ROWS l_5[r] = (l[r] + t_10[r]);  // add(l_3, t_10)   examples/causal.tile:4
          ROWS m_5[r] = m[r];
          ROWS l_6[r] = l_5[r];
        } else {
          float t_39_part_[4] = {NEG_INF, NEG_INF, NEG_INF, NEG_INF};  // maxnum(t_38)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              t_39_part_[x] = fmaxf(t_39_part_[x], t_1[4 * c + x]);
            }
          }
          float t_39[2]; ROWS t_39[r] = quad_max(fmaxf(t_39_part_[2 * r], t_39_part_[2 * r + 1])) * 0.18033688f;
          float m_4[2]; ROWS m_4[r] = max_nan(m[r], t_39[r]);  // max(m_3, t_39)   examples/causal.tile:4
          float t_40[2]; ROWS t_40[r] = min_nan(m_4[r], 3.4028235e+38f);  // min(m_4, 3.4028234663852886e+38)   examples/causal.tile:4
          float r_2[2]; ROWS r_2[r] = max_nan(t_40[r], -3.4028235e+38f);  // max(t_40, -3.4028234663852886e+38)   examples/causal.tile:4
          float t_45[2]; ROWS t_45[r] = (r_3[r] - r_2[r]);  // sub(r_3, r_2)   examples/causal.tile:4
          float alpha_1[2]; ROWS alpha_1[r] = exp2_(t_45[r]);  // exp2(t_45)   examples/causal.tile:4
          float t_46[2]; ROWS t_46[r] = (l[r] * alpha_1[r]);  // mul(l_3, alpha_1)   examples/causal.tile:4
          float t_43_part_[4] = {0.f, 0.f, 0.f, 0.f};  // sum(t_42)   examples/causal.tile:4
#pragma unroll
          for (int c = 0; c < 16; c++) {
            float t_42_four_[4];
            EACH {
              const int r = x >> 1, column = 8 * c + (x & 1);
              const float t_38_x____ = (t_1[4 * c + x] * 0.18033688f);  // mul(t_37, 0.18033688011112042)   examples/causal.tile:3
              const float t_41_x_ = fmaf(t_1[4 * c + x], 0.18033688f, -(r_2[r]));  // sub(t_38, r_2)   examples/causal.tile:4
              const float t_42_x_ = exp2_(t_41_x_);  // exp2(t_41)   examples/causal.tile:4
              t_42_four_[x] = t_42_x_;
              t_43_part_[x] = t_43_part_[x] + t_42_x_;
            }
            t_52_packed[2 * c] = pack_f16(t_42_four_[0], t_42_four_[1]);
            t_52_packed[2 * c + 1] = pack_f16(t_42_four_[2], t_42_four_[3]);
          }
          float t_43[2]; ROWS t_43[r] = t_43_part_[2 * r] + t_43_part_[2 * r + 1];
          float l_4[2]; ROWS l_4[r] = (t_46[r] + t_43[r]);  // add(t_46, t_43)   examples/causal.tile:4
          scale(O_1, alpha_1);  // mul(O_1_1, alpha_1)   examples/causal.tile:5
          ROWS m_5[r] = m_4[r];
          ROWS l_6[r] = l_4[r];
        }
        ROWS m[r] = m_5[r];
        ROWS l[r] = l_6[r];
      }
      if (lane == 0) arrive(shared + 114720 + 8 * ((turn & 1) * 2 + w));
      turn++;
      wait(shared + 114816 + 8 * (turn & 1), (turn >> 1) & 1);
      const int next_origin = shared_told(shared + 114848 + 28 * (turn & 1), lane);
      wait(shared + 114784 + 8 * v_late.stage, v_late.parity);
      if (next_origin >= 0) {
        wait(shared + 114688 + 8 * ((turn & 1) * 2 + w), ((turn >> 1) & 1));
        wait(shared + 114752 + 8 * k_ahead.stage, k_ahead.parity);
      }
      named_sync(1 + w, 256);
      group_fence();
      pin(O_1);
      pin(t_52_packed);
      weights_by_columns_f16<8>(O_1, t_52_packed, v_columns + (u64)(v_late.stage * 1024), adding);   // O_1 += contract(t_22, v, over=j)
      group_commit();
      adding = 1;
      group_fence();
      pin(t_1);
      rows_by_rows_f16<4, 8192, 16384, false>(t_1, q_rows + (u64)((turn & 1) * 1024), k_rows + (u64)(k_ahead.stage * 1024));   // t_37 = contract(q, k, over=d)
      group_commit();
      named_arrive(1 + (w + 1 == 2 ? 0 : w + 1), 256);
      group_wait<1>();
      pin(O_1);
      pin(t_52_packed);
      if (lane == 0) arrive(shared + 114800 + 8 * v_late.stage);
      v_late.step();
      float l_total[2]; ROWS l_total[r] = quad_sum(l[r]);
      {
        u32 probe_ = 0;
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
              const float t_19_x = (O_1[4 * c + x] * inverse_l_total[r]);  // div(O_1, l)   examples/causal.tile:5
              four[b8][x] = t_19_x;
            }
            probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]));
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
              const float t_19_x_ = divide(O_1[4 * c + x], l_total[r]);  // div(O_1, l)   examples/causal.tile:5
              four[b8][x] = t_19_x_;
            }
            probe_ = watch(probe_, pack_bf16(four[0][0], four[0][1]), pack_bf16(four[0][2], four[0][3]), pack_bf16(four[1][0], four[1][1]), pack_bf16(four[1][2], four[1][3]));
            store_matrices((out_lane ^ ((b16 & 3) << 5)) + (b16 >> 2) * 8192, pack_f16(four[0][0], four[0][1]), pack_f16(four[0][2], four[0][3]), pack_f16(four[1][0], four[1][1]), pack_f16(four[1][2], four[1][3]));
          }
        }
        if (probe_ & 0x7fff7fff) *redo = 1;   // NaN or infinity: perhaps times a weight that is absent
        written_for_copies();
        named_sync(8 + w, 128);
        if ((threadIdx.x & 127) == 0) {
          copy_out(&O_map, out_place, 0, origin + w * 64, 0, (int)b, (int)h);  // store(b, h, i, e, t_19)   examples/causal.tile:2
          copy_commit();
        }
      }
      origin = next_origin;
      b = shared_told(shared + 114852 + 28 * (turn & 1), lane);
      h = shared_told(shared + 114856 + 28 * (turn & 1), lane);
      start_0 = shared_told(shared + 114860 + 28 * (turn & 1), lane);
      windows_0 = shared_told(shared + 114864 + 28 * (turn & 1), lane);
      start_1 = shared_told(shared + 114868 + 28 * (turn & 1), lane);
      windows_1 = shared_told(shared + 114872 + 28 * (turn & 1), lane);
      if (lane == 0) arrive(shared + 114832 + 8 * (turn & 1));
    }
    group_wait<0>();
    pin(t_1);
    if ((threadIdx.x & 127) == 0) copy_finish();
  }
}
