// naive for sm_80, made by tilec, emitter simt
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

GLOBAL BOUNDS(256) naive_0(const Args a) {
  typedef float real;
  constexpr int THREADS = 256;
  SHARED(memory, 54016);
  f16* const q = (f16*)(memory + 16640);  // [i:64, d:64]
  float* const m_3 = (float*)(memory + 26112);  // [i:64]
  float* const l_3 = (float*)(memory + 25856);  // [i:64]
  float* const O_1_1 = (float*)(memory + 0);  // [i:64, e:64]
  f16* const k_1 = (f16*)(memory + 43520);  // [j:64, d:64]
  float* const S_1 = (float*)(memory + 26880);  // [i:64, j:64]
  float* const t_15 = (float*)(memory + 43520);  // [i:64]
  float* const t_15_part = (float*)(memory + 43776);  // []
  float* const m_4 = (float*)(memory + 26368);  // [i:64]
  float* const alpha_1 = (float*)(memory + 26624);  // [i:64]
  f16* const t_18 = (f16*)(memory + 43520);  // [i:64, j:64]
  float* const t_19 = (float*)(memory + 52736);  // [i:64]
  float* const t_19_part = (float*)(memory + 52992);  // []
  f16* const v_1 = (f16*)(memory + 26880);  // [j:64, e:64]
  f16* const k = (f16*)(memory + 43520);  // [j:64, d:64]
  float* const S = (float*)(memory + 26880);  // [i:64, j:64]
  float* const t = (float*)(memory + 43520);  // [i:64]
  float* const t_part = (float*)(memory + 43776);  // []
  float* const m_1 = (float*)(memory + 26368);  // [i:64]
  float* const alpha = (float*)(memory + 26624);  // [i:64]
  f16* const t_5 = (f16*)(memory + 43520);  // [i:64, j:64]
  float* const t_8 = (float*)(memory + 52736);  // [i:64]
  float* const t_8_part = (float*)(memory + 52992);  // []
  f16* const v = (f16*)(memory + 26880);  // [j:64, e:64]
  if (!tl::wanted(a.redo)) return;
  for (i64 task = tl::block_index(); task < a.tasks_0; task += tl::block_count()) {
    const i64 i_0 = (tl::mod(task, a.tiles_0_i)) * 64;
    const int i_n = (int)tl::least(64, a.i_extent - i_0);
    const i64 h = tl::mod(tl::floordiv(task, a.tiles_0_i), a.tiles_0_h);
    const i64 b = tl::floordiv(tl::floordiv(task, a.tiles_0_i), a.tiles_0_h);
    // t_2: i64 = floordiv(N, 64)
    const i64 t_2 = tl::floordiv(a.N, i64(64));
    // t_6: i64 = mul(t_2, 64)
    const i64 t_6 = (t_2 * i64(64));
    // q: f16[i:64, d] @sram = load(Q, b, h, i, d)   /tmp/wt/B/examples/naive.tile:3
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
    // m_2: f32[i:64] @reg, l_2: f32[i:64] @reg, O_2: f32[i:64, e] @reg = for(-inf, 0.0, 0.0, axis=j, tile=64, stop=t_6, ragged=false) as (m_3, l_3, O_1_1) {…}   /tmp/wt/B/examples/naive.tile:5
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
    const i64 j_end = tl::least(t_6, a.j_extent);
    for (i64 j_at = i64(0); j_at < j_end; j_at += 64) {
      const i64 j_0 = j_at;
      // k_1: f16[j:64, d] @sram = load(K, b, h, j, d)   /tmp/wt/B/examples/naive.tile:3
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
      // t_7: f32[i:64, j:64] @reg = contract(q, k_1, over=d)   /tmp/wt/B/examples/naive.tile:3
      // S_1: f32[i:64, j:64] @reg = mul(t_7, 0.18033688011112042)   /tmp/wt/B/examples/naive.tile:3
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
              float t_7_at = acc[r_4][c][k_2];
              const float S_1_at = (t_7_at * 0.18033688011112042f);
              S_1[(i) * 65 + j] = S_1_at;
            }
          }
        }
      }
      SYNC();
      // t_15: f32[i:64] @reg = maxnum(S_1, over=j)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_15_sum = -tl::infinity(float(0));
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              t_15_sum = tl::maxnum(t_15_sum, S_1[(i) * 65 + j]);
            }
          }
          t_15_part[n * 4 + part] = t_15_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_15_sum = -tl::infinity(float(0));
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_15_sum = tl::maxnum(t_15_sum, t_15_part[n * 4 + k_2]);
            t_15[i] = t_15_sum;
          }
        }
      }
      SYNC();
      // m_4: f32[i:64] @reg = max(m_3, t_15)   /tmp/wt/B/examples/naive.tile:4
      // alpha_1: f32[i:64] @reg = exp2(t_21)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float m_4_at = tl::max(m_3[i], t_15[i]);
            const float t_20 = tl::min(m_3[i], 3.4028234663852886e+38f);
            const float r_3 = tl::max(t_20, (-3.4028234663852886e+38f));
            const float t_16 = tl::min(m_4_at, 3.4028234663852886e+38f);
            const float r_2 = tl::max(t_16, (-3.4028234663852886e+38f));
            const float t_21 = (r_3 - r_2);
            const float alpha_1_at = (t_21 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_21));
            m_4[i] = m_4_at;
            alpha_1[i] = alpha_1_at;
          }
        }
      }
      SYNC();
      // t_18: f32[i:64, j:64] @reg = exp2(t_17)   /tmp/wt/B/examples/naive.tile:4
      // t_19: f32[i:64] @reg = sum(t_18, over=j)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_19_sum = float(0);
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              const float t_16 = tl::min(m_4[i], 3.4028234663852886e+38f);
              const float r_2 = tl::max(t_16, (-3.4028234663852886e+38f));
              const float t_17 = (S_1[(i) * 65 + j] - r_2);
              const float t_18_at = (t_17 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_17));
              t_19_sum = t_19_sum + t_18_at;
              tl::store_marked(&t_18[(i) * 72 + j], t_18_at);
            }
          }
          t_19_part[n * 4 + part] = t_19_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_19_sum = float(0);
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_19_sum = t_19_sum + t_19_part[n * 4 + k_2];
            t_19[i] = t_19_sum;
          }
        }
      }
      SYNC();
      // l_4: f32[i:64] @reg = add(t_22, t_19)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float t_22 = (tl::gone(alpha_1[i]) ? tl::absent<float>() : tl::ordinary((l_3[i] * alpha_1[i])));
            const float l_4_at = tl::add(t_22, t_19[i]);
            l_3[i] = l_4_at;
          }
        }
      }
      SYNC();
      // v_1: f16[j:64, e] @sram = load(V, b, h, j, e)   /tmp/wt/B/examples/naive.tile:5
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
      // t_23: f32[i:64, e] @reg = contract(t_18, v_1, over=j)   /tmp/wt/B/examples/naive.tile:5
      // O_4: f32[i:64, e] @reg = add(t_24, t_23)   /tmp/wt/B/examples/naive.tile:5
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, false, true>(acc, &t_18[(row) * 72 + 0], 72, &v_1[(0) * 72 + column], 72, 64, lane);
          bool bad = false;
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) bad |= tl::is_nan(acc[r_4][c][k_2]) && row + tl::row_of(lane, r_4, k_2) < i_n;
          if (bad) {
            UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) acc[r_4][c][k_2] = 0;
            tl::products_exact<true, false, f16, 1, 4, false, true>(acc, &t_18[(row) * 72 + 0], 72, &v_1[(0) * 72 + column], 72, 64, lane);
          }
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int e = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_23_at = acc[r_4][c][k_2];
              const float t_24 = (tl::gone(alpha_1[i]) ? tl::absent<float>() : tl::ordinary((O_1_1[(i) * 65 + e] * alpha_1[i])));
              const float O_4_at = tl::add(t_24, t_23_at);
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
    // m: f32[i:64] @reg, l: f32[i:64] @reg, O_1: f32[i:64, e] @reg = for(m_2, l_2, O_2, axis=j, tile=64, start=t_6) as (m_0, l_0, O_1_0) {…}   /tmp/wt/B/examples/naive.tile:5
    const i64 j_end_1 = a.j_extent;
    for (i64 j_at = t_6; j_at < j_end_1; j_at += 64) {
      const i64 j_0 = j_at;
      const int j_n = (int)tl::least(64, a.j_extent - j_0);
      // k: f16[j:64, d] @sram = load(K, b, h, j, d)   /tmp/wt/B/examples/naive.tile:3
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
      // t_1: f32[i:64, j:64] @reg = contract(q, k, over=d)   /tmp/wt/B/examples/naive.tile:3
      // S: f32[i:64, j:64] @reg = mul(t_1, 0.18033688011112042)   /tmp/wt/B/examples/naive.tile:3
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
              const float S_at = (t_1_at * 0.18033688011112042f);
              S[(i) * 65 + j] = S_at;
            }
          }
        }
      }
      SYNC();
      // t: f32[i:64] @reg = maxnum(S, over=j)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_sum = -tl::infinity(float(0));
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              if (j < j_n) {
                t_sum = tl::maxnum(t_sum, S[(i) * 65 + j]);
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
      // m_1: f32[i:64] @reg = max(m_0, t)   /tmp/wt/B/examples/naive.tile:4
      // alpha: f32[i:64] @reg = exp2(t_10)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float m_1_at = tl::max(m_3[i], t[i]);
            const float t_9 = tl::min(m_3[i], 3.4028234663852886e+38f);
            const float r_1 = tl::max(t_9, (-3.4028234663852886e+38f));
            const float t_4 = tl::min(m_1_at, 3.4028234663852886e+38f);
            const float r = tl::max(t_4, (-3.4028234663852886e+38f));
            const float t_10 = (r_1 - r);
            const float alpha_at = (t_10 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_10));
            m_1[i] = m_1_at;
            alpha[i] = alpha_at;
          }
        }
      }
      SYNC();
      // t_5: f32[i:64, j:64] @reg = exp2(t_3)   /tmp/wt/B/examples/naive.tile:4
      // t_8: f32[i:64] @reg = sum(t_5, over=j)   /tmp/wt/B/examples/naive.tile:4
      if (j_n < 64) {
        each_thread {
          for (int n = thread; n < 4608; n += THREADS) t_5[n].bits = 0;
        }
        SYNC();
      }
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_8_sum = float(0);
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              if (j < j_n) {
                const float t_4 = tl::min(m_1[i], 3.4028234663852886e+38f);
                const float r = tl::max(t_4, (-3.4028234663852886e+38f));
                const float t_3 = (S[(i) * 65 + j] - r);
                const float t_5_at = (t_3 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_3));
                t_8_sum = t_8_sum + t_5_at;
                tl::store_marked(&t_5[(i) * 72 + j], t_5_at);
              }
            }
          }
          t_8_part[n * 4 + part] = t_8_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_8_sum = float(0);
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_8_sum = t_8_sum + t_8_part[n * 4 + k_2];
            t_8[i] = t_8_sum;
          }
        }
      }
      SYNC();
      // l_1: f32[i:64] @reg = add(t_11, t_8)   /tmp/wt/B/examples/naive.tile:4
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float t_11 = (tl::gone(alpha[i]) ? tl::absent<float>() : tl::ordinary((l_3[i] * alpha[i])));
            const float l_1_at = tl::add(t_11, t_8[i]);
            l_3[i] = l_1_at;
          }
        }
      }
      SYNC();
      // v: f16[j:64, e] @sram = load(V, b, h, j, e)   /tmp/wt/B/examples/naive.tile:5
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
      // t_12: f32[i:64, e] @reg = contract(t_5, v, over=j)   /tmp/wt/B/examples/naive.tile:5
      // O_3: f32[i:64, e] @reg = add(t_13, t_12)   /tmp/wt/B/examples/naive.tile:5
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, false, true>(acc, &t_5[(row) * 72 + 0], 72, &v[(0) * 72 + column], 72, (j_n + 15) / 16 * 16, lane);
          bool bad = false;
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) bad |= tl::is_nan(acc[r_4][c][k_2]) && row + tl::row_of(lane, r_4, k_2) < i_n;
          if (bad) {
            UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) acc[r_4][c][k_2] = 0;
            tl::products_exact<true, false, f16, 1, 4, false, true>(acc, &t_5[(row) * 72 + 0], 72, &v[(0) * 72 + column], 72, (j_n + 15) / 16 * 16, lane);
          }
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int e = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_12_at = acc[r_4][c][k_2];
              const float t_13 = (tl::gone(alpha[i]) ? tl::absent<float>() : tl::ordinary((O_1_1[(i) * 65 + e] * alpha[i])));
              const float O_3_at = tl::add(t_13, t_12_at);
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
    // store(O, b, h, i, e, value=t_14)   /tmp/wt/B/examples/naive.tile:2
    each_thread {
      ROLLED for (int n = thread; n < 4096; n += THREADS) {
        const int i = n / 64;
        const int e = n % 64;
        if (i < i_n) {
          const float t_14 = tl::div(O_1_1[(i) * 65 + e], l_3[i]);
          tl::store(a.O + (b * a.O_s0 + h * a.O_s1 + (i_0 + i) * a.O_s2 + (i64)e * a.O_s3), t_14);
        }
      }
    }
    SYNC();
  }
  tl::redone(a.redo);
}
