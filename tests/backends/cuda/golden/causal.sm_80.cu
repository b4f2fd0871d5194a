// causal for sm_80, made by tilec, emitter simt
// … header.cuh

struct Args {
  f16* Q;
  i64 Q_n0;
  i64 Q_s0;
  i64 Q_n1;
  i64 Q_s1;
  i64 Q_n2;
  i64 Q_s2;
  i64 Q_n3;
  i64 Q_s3;
  f16* K;
  i64 K_n0;
  i64 K_s0;
  i64 K_n1;
  i64 K_s1;
  i64 K_n2;
  i64 K_s2;
  i64 K_n3;
  i64 K_s3;
  f16* V;
  i64 V_n0;
  i64 V_s0;
  i64 V_n1;
  i64 V_s1;
  i64 V_n2;
  i64 V_s2;
  i64 V_n3;
  i64 V_s3;
  f16* O;
  i64 O_n0;
  i64 O_s0;
  i64 O_n1;
  i64 O_s1;
  i64 O_n2;
  i64 O_s2;
  i64 O_n3;
  i64 O_s3;
  i64 B;
  i64 H;
  i64 M;
  i64 N;
  i64 b_extent;
  i64 h_extent;
  i64 i_extent;
  i64 j_extent;
  i64 d_extent;
  i64 e_extent;
  i64 tasks_0;
  i64 tiles_0_b;
  i64 tiles_0_h;
  i64 tiles_0_i;
  unsigned char* spill;
  u32* redo;
};

GLOBAL BOUNDS(256) causal_0(const Args a) {
  typedef float real;
  constexpr int THREADS = 256;
  SHARED(memory, 54016);
  f16* const q = (f16*)(memory + 16640);  // [i:64, d:64]
  float* const m_3 = (float*)(memory + 26112);  // [i:64]
  float* const l_3 = (float*)(memory + 25856);  // [i:64]
  float* const O_1_1 = (float*)(memory + 0);  // [i:64, e:64]
  f16* const k_1 = (f16*)(memory + 43520);  // [j:64, d:64]
  float* const t_38 = (float*)(memory + 26880);  // [i:64, j:64]
  float* const t_39 = (float*)(memory + 43520);  // [i:64]
  float* const t_39_part = (float*)(memory + 43776);  // []
  float* const m_4 = (float*)(memory + 26368);  // [i:64]
  float* const alpha_1 = (float*)(memory + 26624);  // [i:64]
  f16* const t_42 = (f16*)(memory + 43520);  // [i:64, j:64]
  float* const t_43 = (float*)(memory + 52736);  // [i:64]
  float* const t_43_part = (float*)(memory + 52992);  // []
  f16* const v_1 = (f16*)(memory + 26880);  // [j:64, e:64]
  f16* const k = (f16*)(memory + 43520);  // [j:64, d:64]
  float* const t_12 = (float*)(memory + 26880);  // [i:64, j:64]
  float* const t = (float*)(memory + 43520);  // [i:64]
  float* const t_part = (float*)(memory + 43776);  // []
  float* const m_1 = (float*)(memory + 26368);  // [i:64]
  float* const alpha = (float*)(memory + 26624);  // [i:64]
  f16* const t_9 = (f16*)(memory + 43520);  // [i:64, j:64]
  float* const t_13 = (float*)(memory + 52736);  // [i:64]
  float* const t_13_part = (float*)(memory + 52992);  // []
  f16* const v = (f16*)(memory + 26880);  // [j:64, e:64]
  if (!tl::wanted(a.redo)) return;
  for (i64 task = tl::block_index(); task < a.tasks_0; task += tl::block_count()) {
    const i64 i_0 = (tl::mod(task, a.tiles_0_i)) * 64;
    const int i_n = (int)tl::least(64, a.i_extent - i_0);
    const i64 h = tl::mod(tl::floordiv(task, a.tiles_0_i), a.tiles_0_h);
    const i64 b = tl::floordiv(tl::floordiv(task, a.tiles_0_i), a.tiles_0_h);
    // i_first: i64 = first(i)
    // i_last: i64 = last(i)
    // t_25: i64 = add(i_first, N)
    const i64 t_25 = (i_0 + a.N);
    // t_26: i64 = sub(t_25, M)
    const i64 t_26 = (t_25 - a.M);
    // t_27: i64 = add(i_last, N)
    const i64 t_27 = ((i_0 + (i_n - 1)) + a.N);
    // t_28: i64 = sub(t_27, M)
    const i64 t_28 = (t_27 - a.M);
    // t_29: i64 = add(t_28, 1)
    const i64 t_29 = (t_28 + i64(1));
    // t_30: i64 = min(N, t_29)
    const i64 t_30 = tl::min(a.N, t_29);
    // t_31: i64 = add(t_26, 1)
    const i64 t_31 = (t_26 + i64(1));
    // t_32: i64 = min(N, t_31)
    const i64 t_32 = tl::min(a.N, t_31);
    // t_33: i64 = floordiv(t_32, 64)
    const i64 t_33 = tl::floordiv(t_32, i64(64));
    // t_34: i64 = mul(t_33, 64)
    const i64 t_34 = (t_33 * i64(64));
    // t_35: i64 = max(0, t_34)
    const i64 t_35 = tl::max(i64(0), t_34);
    // q: f16[i:64, d] @sram = load(Q, b, h, i, d)   /tmp/wt/B/examples/causal.tile:3
    if (tl::in_pieces(a.Q, 2, a.Q_s3, a.Q_s0, a.Q_s1, a.Q_s2)) {
      each_thread {
        UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
          const int i = (n / 8) / 1 % 64;
          if (i < i_n) {
            const int d = n % 8 * 8;
            *(tl::Piece*)&q[(i) * 72 + d] = *(const tl::Piece*)(a.Q + (b * a.Q_s0 + h * a.Q_s1 + (i_0 + i) * a.Q_s2 + (i64)d * a.Q_s3));
          }
        }
      }
    }
    else {
      each_thread {
        UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
          const int i = n / 64;
          const int d = n % 64;
          if (i < i_n) {
            const float q_at = (float)tl::widen(a.Q[b * a.Q_s0 + h * a.Q_s1 + (i_0 + i) * a.Q_s2 + (i64)d * a.Q_s3]);
            tl::store(&q[(i) * 72 + d], q_at);
          }
        }
      }
    }
    SYNC();
    // m_2: f32[i:64] @reg, l_2: f32[i:64] @reg, O_2: f32[i:64, e] @reg = for(-inf, 0.0, 0.0, axis=j, tile=64, stop=t_35, ragged=false) as (m_3, l_3, O_1_1) {…}   /tmp/wt/B/examples/causal.tile:5
    each_thread {
      ROLLED for (int n = thread; n < 64; n += THREADS) {
        const int i = n;
        if (i < i_n) {
          m_3[i] = (-tl::infinity(float(0)));
        }
      }
    }
    SYNC();
    each_thread {
      ROLLED for (int n = thread; n < 64; n += THREADS) {
        const int i = n;
        if (i < i_n) {
          l_3[i] = 0.0f;
        }
      }
    }
    SYNC();
    each_thread {
      ROLLED for (int n = thread; n < 4096; n += THREADS) {
        const int i = n / 64;
        const int e = n % 64;
        if (i < i_n) {
          O_1_1[(i) * 65 + e] = 0.0f;
        }
      }
    }
    SYNC();
    const i64 j_end = tl::least(t_35, a.j_extent);
    for (i64 j_at = i64(0); j_at < j_end; j_at += 64) {
      const i64 j_0 = j_at;
      // k_1: f16[j:64, d] @sram = load(K, b, h, j, d)   /tmp/wt/B/examples/causal.tile:3
      if (tl::in_pieces(a.K, 2, a.K_s3, a.K_s0, a.K_s1, a.K_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (true) {
              const int d = n % 8 * 8;
              *(tl::Piece*)&k_1[(j) * 72 + d] = *(const tl::Piece*)(a.K + (b * a.K_s0 + h * a.K_s1 + (j_0 + j) * a.K_s2 + (i64)d * a.K_s3));
            }
          }
        }
      }
      else {
        each_thread {
          UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
            const int j = n / 64;
            const int d = n % 64;
            const float k_1_at = (float)tl::widen(a.K[b * a.K_s0 + h * a.K_s1 + (j_0 + j) * a.K_s2 + (i64)d * a.K_s3]);
            tl::store(&k_1[(j) * 72 + d], k_1_at);
          }
        }
      }
      SYNC();
      // t_37: f32[i:64, j:64] @reg = contract(q, k_1, over=d)   /tmp/wt/B/examples/causal.tile:3
      // t_38: f32[i:64, j:64] @reg = mul(t_37, 0.18033688011112042)   /tmp/wt/B/examples/causal.tile:3
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, false, false>(acc, &q[(row) * 72 + 0], 72, &k_1[(column) * 72 + 0], 72, 64, lane);
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int j = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_37_at = acc[r_4][c][k_2];
              const float t_38_at = (t_37_at * 0.18033688011112042f);
              t_38[(i) * 65 + j] = t_38_at;
            }
          }
        }
      }
      SYNC();
      // t_39: f32[i:64] @reg = maxnum(t_38, over=j)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_39_sum = -tl::infinity(float(0));
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              t_39_sum = tl::maxnum(t_39_sum, t_38[(i) * 65 + j]);
            }
          }
          t_39_part[n * 4 + part] = t_39_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_39_sum = -tl::infinity(float(0));
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_39_sum = tl::maxnum(t_39_sum, t_39_part[n * 4 + k_2]);
            t_39[i] = t_39_sum;
          }
        }
      }
      SYNC();
      // m_4: f32[i:64] @reg = max(m_3, t_39)   /tmp/wt/B/examples/causal.tile:4
      // alpha_1: f32[i:64] @reg = exp2(t_45)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float m_4_at = tl::max(m_3[i], t_39[i]);
            const float t_44 = tl::min(m_3[i], 3.4028234663852886e+38f);
            const float r_3 = tl::max(t_44, (-3.4028234663852886e+38f));
            const float t_40 = tl::min(m_4_at, 3.4028234663852886e+38f);
            const float r_2 = tl::max(t_40, (-3.4028234663852886e+38f));
            const float t_45 = (r_3 - r_2);
            const float alpha_1_at = (t_45 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_45));
            m_4[i] = m_4_at;
            alpha_1[i] = alpha_1_at;
          }
        }
      }
      SYNC();
      // t_42: f32[i:64, j:64] @reg = exp2(t_41)   /tmp/wt/B/examples/causal.tile:4
      // t_43: f32[i:64] @reg = sum(t_42, over=j)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_43_sum = float(0);
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              const float t_40 = tl::min(m_4[i], 3.4028234663852886e+38f);
              const float r_2 = tl::max(t_40, (-3.4028234663852886e+38f));
              const float t_41 = (t_38[(i) * 65 + j] - r_2);
              const float t_42_at = (t_41 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_41));
              t_43_sum = t_43_sum + t_42_at;
              tl::store_marked(&t_42[(i) * 72 + j], t_42_at);
            }
          }
          t_43_part[n * 4 + part] = t_43_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_43_sum = float(0);
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_43_sum = t_43_sum + t_43_part[n * 4 + k_2];
            t_43[i] = t_43_sum;
          }
        }
      }
      SYNC();
      // l_4: f32[i:64] @reg = add(t_46, t_43)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float t_46 = (tl::gone(alpha_1[i]) ? tl::absent<float>() : tl::ordinary((l_3[i] * alpha_1[i])));
            const float l_4_at = tl::add(t_46, t_43[i]);
            l_3[i] = l_4_at;
          }
        }
      }
      SYNC();
      // v_1: f16[j:64, e] @sram = load(V, b, h, j, e)   /tmp/wt/B/examples/causal.tile:5
      if (tl::in_pieces(a.V, 2, a.V_s3, a.V_s0, a.V_s1, a.V_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (true) {
              const int e = n % 8 * 8;
              *(tl::Piece*)&v_1[(j) * 72 + e] = *(const tl::Piece*)(a.V + (b * a.V_s0 + h * a.V_s1 + (j_0 + j) * a.V_s2 + (i64)e * a.V_s3));
            }
          }
        }
      }
      else {
        each_thread {
          UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
            const int j = n / 64;
            const int e = n % 64;
            const float v_1_at = (float)tl::widen(a.V[b * a.V_s0 + h * a.V_s1 + (j_0 + j) * a.V_s2 + (i64)e * a.V_s3]);
            tl::store(&v_1[(j) * 72 + e], v_1_at);
          }
        }
      }
      SYNC();
      // t_47: f32[i:64, e] @reg = contract(t_42, v_1, over=j)   /tmp/wt/B/examples/causal.tile:5
      // O_4: f32[i:64, e] @reg = add(t_48, t_47)   /tmp/wt/B/examples/causal.tile:5
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, false, true>(acc, &t_42[(row) * 72 + 0], 72, &v_1[(0) * 72 + column], 72, 64, lane);
          bool bad = false;
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) bad |= tl::is_nan(acc[r_4][c][k_2]) && row + tl::row_of(lane, r_4, k_2) < i_n;
          if (bad) {
            UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) acc[r_4][c][k_2] = 0;
            tl::products_exact<true, false, f16, 1, 4, false, true>(acc, &t_42[(row) * 72 + 0], 72, &v_1[(0) * 72 + column], 72, 64, lane);
          }
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int e = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_47_at = acc[r_4][c][k_2];
              const float t_48 = (tl::gone(alpha_1[i]) ? tl::absent<float>() : tl::ordinary((O_1_1[(i) * 65 + e] * alpha_1[i])));
              const float O_4_at = tl::add(t_48, t_47_at);
              O_1_1[(i) * 65 + e] = O_4_at;
            }
          }
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            m_3[i] = m_4[i];
          }
        }
      }
      SYNC();
    }
    // m: f32[i:64] @reg, l: f32[i:64] @reg, O_1: f32[i:64, e] @reg = for(m_2, l_2, O_2, axis=j, tile=64, start=t_35, stop=t_30) as (m_0, l_0, O_1_0) {…}   /tmp/wt/B/examples/causal.tile:5
    const i64 j_end_1 = tl::least(t_30, a.j_extent);
    for (i64 j_at = t_35; j_at < j_end_1; j_at += 64) {
      const i64 j_0 = j_at;
      const int j_n = (int)tl::least(64, a.j_extent - j_0);
      // k: f16[j:64, d] @sram = load(K, b, h, j, d)   /tmp/wt/B/examples/causal.tile:3
      if (tl::in_pieces(a.K, 2, a.K_s3, a.K_s0, a.K_s1, a.K_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (j < j_n) {
              const int d = n % 8 * 8;
              *(tl::Piece*)&k[(j) * 72 + d] = *(const tl::Piece*)(a.K + (b * a.K_s0 + h * a.K_s1 + (j_0 + j) * a.K_s2 + (i64)d * a.K_s3));
            }
          }
        }
      }
      else {
        each_thread {
          UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
            const int j = n / 64;
            const int d = n % 64;
            if (j < j_n) {
              const float k_at = (float)tl::widen(a.K[b * a.K_s0 + h * a.K_s1 + (j_0 + j) * a.K_s2 + (i64)d * a.K_s3]);
              tl::store(&k[(j) * 72 + d], k_at);
            }
          }
        }
      }
      SYNC();
      // t_1: f32[i:64, j:64] @reg = contract(q, k, over=d)   /tmp/wt/B/examples/causal.tile:3
      // t_12: f32[i:64, j:64] @reg = select(t_5, t_11, -inf)   /tmp/wt/B/examples/causal.tile:3
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, false, false>(acc, &q[(row) * 72 + 0], 72, &k[(column) * 72 + 0], 72, 64, lane);
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int j = column + tl::column_of(lane, c, k_2);
            if (i < i_n && j < j_n) {
              float t_1_at = acc[r_4][c][k_2];
              const i64 t_3 = ((i_0 + i) + a.N);
              const i64 t_4 = (t_3 - a.M);
              const bool t_5 = ((j_0 + j) <= t_4);
              const float t_11 = (t_1_at * 0.18033688011112042f);
              const float t_12_at = (t_5 ? t_11 : (-tl::infinity(float(0))));
              t_12[(i) * 65 + j] = t_12_at;
            }
          }
        }
      }
      SYNC();
      // t: f32[i:64] @reg = maxnum(t_12, over=j)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_sum = -tl::infinity(float(0));
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              if (j < j_n) {
                t_sum = tl::maxnum(t_sum, t_12[(i) * 65 + j]);
              }
            }
          }
          t_part[n * 4 + part] = t_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_sum = -tl::infinity(float(0));
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_sum = tl::maxnum(t_sum, t_part[n * 4 + k_2]);
            t[i] = t_sum;
          }
        }
      }
      SYNC();
      // m_1: f32[i:64] @reg = max(m_0, t)   /tmp/wt/B/examples/causal.tile:4
      // alpha: f32[i:64] @reg = exp2(t_15)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float m_1_at = tl::max(m_3[i], t[i]);
            const float t_14 = tl::min(m_3[i], 3.4028234663852886e+38f);
            const float r_1 = tl::max(t_14, (-3.4028234663852886e+38f));
            const float t_8 = tl::min(m_1_at, 3.4028234663852886e+38f);
            const float r = tl::max(t_8, (-3.4028234663852886e+38f));
            const float t_15 = (r_1 - r);
            const float alpha_at = (t_15 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_15));
            m_1[i] = m_1_at;
            alpha[i] = alpha_at;
          }
        }
      }
      SYNC();
      // t_9: f32[i:64, j:64] @reg = exp2(t_7)   /tmp/wt/B/examples/causal.tile:4
      // t_13: f32[i:64] @reg = sum(t_9, over=j)   /tmp/wt/B/examples/causal.tile:4
      if (j_n < 64) {
        each_thread {
          for (int n = thread; n < 4608; n += THREADS) t_9[n].bits = 0;
        }
        SYNC();
      }
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_13_sum = float(0);
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              if (j < j_n) {
                const float t_8 = tl::min(m_1[i], 3.4028234663852886e+38f);
                const float r = tl::max(t_8, (-3.4028234663852886e+38f));
                const float t_7 = (t_12[(i) * 65 + j] - r);
                const float t_9_at = (t_7 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_7));
                t_13_sum = t_13_sum + t_9_at;
                tl::store_marked(&t_9[(i) * 72 + j], t_9_at);
              }
            }
          }
          t_13_part[n * 4 + part] = t_13_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_13_sum = float(0);
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_13_sum = t_13_sum + t_13_part[n * 4 + k_2];
            t_13[i] = t_13_sum;
          }
        }
      }
      SYNC();
      // l_1: f32[i:64] @reg = add(t_16, t_13)   /tmp/wt/B/examples/causal.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float t_16 = (tl::gone(alpha[i]) ? tl::absent<float>() : tl::ordinary((l_3[i] * alpha[i])));
            const float l_1_at = tl::add(t_16, t_13[i]);
            l_3[i] = l_1_at;
          }
        }
      }
      SYNC();
      // v: f16[j:64, e] @sram = load(V, b, h, j, e)   /tmp/wt/B/examples/causal.tile:5
      if (j_n < 64) {
        each_thread {
          for (int n = thread; n < 4608; n += THREADS) v[n].bits = 0;
        }
        SYNC();
      }
      if (tl::in_pieces(a.V, 2, a.V_s3, a.V_s0, a.V_s1, a.V_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (j < j_n) {
              const int e = n % 8 * 8;
              *(tl::Piece*)&v[(j) * 72 + e] = *(const tl::Piece*)(a.V + (b * a.V_s0 + h * a.V_s1 + (j_0 + j) * a.V_s2 + (i64)e * a.V_s3));
            }
          }
        }
      }
      else {
        each_thread {
          UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
            const int j = n / 64;
            const int e = n % 64;
            if (j < j_n) {
              const float v_at = (float)tl::widen(a.V[b * a.V_s0 + h * a.V_s1 + (j_0 + j) * a.V_s2 + (i64)e * a.V_s3]);
              tl::store(&v[(j) * 72 + e], v_at);
            }
          }
        }
      }
      SYNC();
      // t_17: f32[i:64, e] @reg = contract(t_9, v, over=j)   /tmp/wt/B/examples/causal.tile:5
      // O_3: f32[i:64, e] @reg = add(t_18, t_17)   /tmp/wt/B/examples/causal.tile:5
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, false, true>(acc, &t_9[(row) * 72 + 0], 72, &v[(0) * 72 + column], 72, (j_n + 15) / 16 * 16, lane);
          bool bad = false;
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) bad |= tl::is_nan(acc[r_4][c][k_2]) && row + tl::row_of(lane, r_4, k_2) < i_n;
          if (bad) {
            UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) acc[r_4][c][k_2] = 0;
            tl::products_exact<true, false, f16, 1, 4, false, true>(acc, &t_9[(row) * 72 + 0], 72, &v[(0) * 72 + column], 72, (j_n + 15) / 16 * 16, lane);
          }
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int e = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_17_at = acc[r_4][c][k_2];
              const float t_18 = (tl::gone(alpha[i]) ? tl::absent<float>() : tl::ordinary((O_1_1[(i) * 65 + e] * alpha[i])));
              const float O_3_at = tl::add(t_18, t_17_at);
              O_1_1[(i) * 65 + e] = O_3_at;
            }
          }
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            m_3[i] = m_1[i];
          }
        }
      }
      SYNC();
    }
    // store(O, b, h, i, e, value=t_19)   /tmp/wt/B/examples/causal.tile:2
    each_thread {
      ROLLED for (int n = thread; n < 4096; n += THREADS) {
        const int i = n / 64;
        const int e = n % 64;
        if (i < i_n) {
          const float t_19 = tl::div(O_1_1[(i) * 65 + e], l_3[i]);
          tl::store(a.O + (b * a.O_s0 + h * a.O_s1 + (i_0 + i) * a.O_s2 + (i64)e * a.O_s3), t_19);
        }
      }
    }
    SYNC();
  }
  tl::redone(a.redo);
}
