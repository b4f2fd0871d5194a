// paged for sm_80, made by tilec, emitter simt; not ampere: grid 0: its tiles have 4 rows; the schedule has 64
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
  i32* page;
  i64 page_n0;
  i64 page_s0;
  i64 page_n1;
  i64 page_s1;
  i32* len;
  i64 len_n0;
  i64 len_s0;
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
  i64 NP;
  i64 P;
  i64 HK;
  i64 MP;
  i64 j_extent;
  i64 b_extent;
  i64 h_extent;
  i64 i_extent;
  i64 d_extent;
  i64 e_extent;
  i64 tasks_0;
  i64 tiles_0_b;
  i64 tiles_0_h;
  i64 tiles_0_i;
  unsigned char* spill;
  u32* redo;
};

GLOBAL BOUNDS(256) paged_0(const Args a) {
  typedef float real;
  constexpr int THREADS = 256;
  SHARED(memory, 54784);
  f16* const q = (f16*)(memory + 16640);  // [i:64, d:64]
  float* const m_3 = (float*)(memory + 26112);  // [i:64]
  float* const l_3 = (float*)(memory + 25856);  // [i:64]
  float* const O_1_1 = (float*)(memory + 0);  // [i:64, e:64]
  i32* const page_2 = (i32*)(memory + 26880);  // [j:64]
  i64* const t_56 = (i64*)(memory + 26368);  // [j:64]
  f16* const k_1 = (f16*)(memory + 44288);  // [j:64, d:64]
  float* const t_58 = (float*)(memory + 27648);  // [j:64, i:64]
  float* const t_59 = (float*)(memory + 44288);  // [i:64]
  float* const t_59_part = (float*)(memory + 44544);  // []
  float* const m_4 = (float*)(memory + 27136);  // [i:64]
  float* const alpha_1 = (float*)(memory + 27392);  // [i:64]
  f16* const t_62 = (f16*)(memory + 44288);  // [j:64, i:64]
  float* const t_63 = (float*)(memory + 53504);  // [i:64]
  float* const t_63_part = (float*)(memory + 53760);  // []
  f16* const v_1 = (f16*)(memory + 27648);  // [j:64, e:64]
  i32* const page_1 = (i32*)(memory + 26880);  // [j:64]
  i64* const t_1 = (i64*)(memory + 26368);  // [j:64]
  f16* const k = (f16*)(memory + 44288);  // [j:64, d:64]
  float* const t_15 = (float*)(memory + 27648);  // [j:64, i:64]
  float* const t_4 = (float*)(memory + 44288);  // [i:64]
  float* const t_4_part = (float*)(memory + 44544);  // []
  float* const m_1 = (float*)(memory + 27136);  // [i:64]
  float* const alpha = (float*)(memory + 27392);  // [i:64]
  f16* const t_17 = (f16*)(memory + 44288);  // [j:64, i:64]
  float* const t_19 = (float*)(memory + 53504);  // [i:64]
  float* const t_19_part = (float*)(memory + 53760);  // []
  f16* const v = (f16*)(memory + 27648);  // [j:64, e:64]
  if (!tl::wanted(a.redo)) return;
  for (i64 task = tl::block_index(); task < a.tasks_0; task += tl::block_count()) {
    const i64 i_0 = (tl::mod(task, a.tiles_0_i)) * 64;
    const int i_n = (int)tl::least(64, a.i_extent - i_0);
    const i64 h = tl::mod(tl::floordiv(task, a.tiles_0_i), a.tiles_0_h);
    const i64 b = tl::floordiv(tl::floordiv(task, a.tiles_0_i), a.tiles_0_h);
    const i64 t_2 = tl::floordiv(a.H, a.HK);
    // len_1: i32 = load(len, b)   examples/paged.tile:5
    const i64 len_1 = tl::widen(a.len[b * a.len_s0]);
    // t_8: i64 = sub(len_1, M)   examples/paged.tile:5
    const i64 t_8 = (len_1 - a.M);
    // t_3: i64 = floordiv(h, t_2)   examples/paged.tile:4
    const i64 t_3 = tl::floordiv(h, t_2);
    // t_6: i64 = mul(MP, P)
    const i64 t_6 = (a.MP * a.P);
    // i_first: i64 = first(i)
    // i_last: i64 = last(i)
    // t_38: i64 = sub(len_1, 1)
    const i64 t_38 = (len_1 - i64(1));
    // t_39: i64 = add(len_1, i_first)
    const i64 t_39 = (len_1 + i_0);
    // t_40: i64 = sub(t_39, M)
    const i64 t_40 = (t_39 - a.M);
    // t_41: i64 = add(len_1, i_last)
    const i64 t_41 = (len_1 + (i_0 + (i_n - 1)));
    // t_42: i64 = sub(t_41, M)
    const i64 t_42 = (t_41 - a.M);
    // t_43: i64 = min(t_38, t_42)
    const i64 t_43 = tl::min(t_38, t_42);
    // t_44: i64 = min(t_38, t_40)
    const i64 t_44 = tl::min(t_38, t_40);
    // t_45: i64 = add(t_43, 1)
    const i64 t_45 = (t_43 + i64(1));
    // t_46: i64 = min(t_6, t_45)
    const i64 t_46 = tl::min(t_6, t_45);
    // t_47: i64 = add(t_44, 1)
    const i64 t_47 = (t_44 + i64(1));
    // t_48: i64 = min(t_6, t_47)
    const i64 t_48 = tl::min(t_6, t_47);
    // t_49: i64 = floordiv(t_48, 64)
    const i64 t_49 = tl::floordiv(t_48, i64(64));
    // t_50: i64 = mul(t_49, 64)
    const i64 t_50 = (t_49 * i64(64));
    // t_51: i64 = max(0, t_50)
    const i64 t_51 = tl::max(i64(0), t_50);
    // q: f16[i:64, d] @sram = load(Q, b, h, i, d)   examples/paged.tile:4
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
    // m_2: f32[i:64] @reg, l_2: f32[i:64] @reg, O_2: f32[i:64, e] @reg = for(-inf, 0.0, 0.0, axis=j, tile=64, stop=t_51, ragged=false) as (m_3, l_3, O_1_1) {…}   examples/paged.tile:6
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
    const i64 j_end = tl::least(t_51, a.j_extent);
    for (i64 j_at = i64(0); j_at < j_end; j_at += 64) {
      const i64 j_0 = j_at;
      // page_2: i32[j:64] @sram = load(page, b, t_55)   examples/paged.tile:4
      // t_56: i64[j:64] @reg = mod(j, P)   examples/paged.tile:4
      each_thread {
        UNROLL_4 for (int n = thread; n < 64; n += THREADS) {
          const int j = n;
          const i64 t_55 = tl::floordiv((j_0 + j), a.P);
          const i64 page_2_at = tl::inside(t_55, a.page_n1) ? tl::widen(a.page[b * a.page_s0 + t_55 * a.page_s1]) : i64(0);
          const i64 t_56_at = tl::mod((j_0 + j), a.P);
          tl::store(&page_2[j], page_2_at);
          t_56[j] = t_56_at;
        }
      }
      SYNC();
      // k_1: f16[j:64, d] @sram = load(K, page_2, t_56, t_3, d)   examples/paged.tile:4
      if (tl::in_pieces(a.K, 2, a.K_s3, a.K_s0, a.K_s1, a.K_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (true) {
              const int d = n % 8 * 8;
              *(tl::Piece*)&k_1[(j) * 72 + d] = tl::inside(tl::widen(page_2[j]), a.K_n0) && tl::inside(t_56[j], a.K_n1) && tl::inside(t_3, a.K_n2) ? *(const tl::Piece*)(a.K + (tl::widen(page_2[j]) * a.K_s0 + t_56[j] * a.K_s1 + t_3 * a.K_s2 + (i64)d * a.K_s3)) : tl::Piece{};
            }
          }
        }
      }
      else {
        each_thread {
          UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
            const int j = n / 64;
            const int d = n % 64;
            const float k_1_at = tl::inside(tl::widen(page_2[j]), a.K_n0) && tl::inside(t_56[j], a.K_n1) && tl::inside(t_3, a.K_n2) ? (float)tl::widen(a.K[tl::widen(page_2[j]) * a.K_s0 + t_56[j] * a.K_s1 + t_3 * a.K_s2 + (i64)d * a.K_s3]) : float(0);
            tl::store(&k_1[(j) * 72 + d], k_1_at);
          }
        }
      }
      SYNC();
      // t_57: f32[j:64, i:64] @reg = contract(q, k_1, over=d)   examples/paged.tile:4
      // t_58: f32[j:64, i:64] @reg = mul(t_57, 0.18033688011112042)   examples/paged.tile:4
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
              float t_57_at = acc[r_4][c][k_2];
              const float t_58_at = (t_57_at * 0.18033688011112042f);
              t_58[(j) * 65 + i] = t_58_at;
            }
          }
        }
      }
      SYNC();
      // t_59: f32[i:64] @reg = maxnum(t_58, over=j)   examples/paged.tile:5
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_59_sum = -tl::infinity(float(0));
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              t_59_sum = tl::maxnum(t_59_sum, t_58[(j) * 65 + i]);
            }
          }
          t_59_part[n * 4 + part] = t_59_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_59_sum = -tl::infinity(float(0));
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_59_sum = tl::maxnum(t_59_sum, t_59_part[n * 4 + k_2]);
            t_59[i] = t_59_sum;
          }
        }
      }
      SYNC();
      // m_4: f32[i:64] @reg = max(m_3, t_59)   examples/paged.tile:5
      // alpha_1: f32[i:64] @reg = exp2(t_65)   examples/paged.tile:5
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float m_4_at = tl::max(m_3[i], t_59[i]);
            const float t_64 = tl::min(m_3[i], 3.4028234663852886e+38f);
            const float r_3 = tl::max(t_64, (-3.4028234663852886e+38f));
            const float t_60 = tl::min(m_4_at, 3.4028234663852886e+38f);
            const float r_2 = tl::max(t_60, (-3.4028234663852886e+38f));
            const float t_65 = (r_3 - r_2);
            const float alpha_1_at = (t_65 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_65));
            m_4[i] = m_4_at;
            alpha_1[i] = alpha_1_at;
          }
        }
      }
      SYNC();
      // t_62: f32[j:64, i:64] @reg = exp2(t_61)   examples/paged.tile:5
      // t_63: f32[i:64] @reg = sum(t_62, over=j)   examples/paged.tile:5
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_63_sum = float(0);
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              const float t_60 = tl::min(m_4[i], 3.4028234663852886e+38f);
              const float r_2 = tl::max(t_60, (-3.4028234663852886e+38f));
              const float t_61 = (t_58[(j) * 65 + i] - r_2);
              const float t_62_at = (t_61 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_61));
              t_63_sum = t_63_sum + t_62_at;
              tl::store_marked(&t_62[(j) * 72 + i], t_62_at);
            }
          }
          t_63_part[n * 4 + part] = t_63_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_63_sum = float(0);
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_63_sum = t_63_sum + t_63_part[n * 4 + k_2];
            t_63[i] = t_63_sum;
          }
        }
      }
      SYNC();
      // l_4: f32[i:64] @reg = add(t_66, t_63)   examples/paged.tile:5
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float t_66 = (tl::gone(alpha_1[i]) ? tl::absent<float>() : tl::ordinary((l_3[i] * alpha_1[i])));
            const float l_4_at = tl::add(t_66, t_63[i]);
            l_3[i] = l_4_at;
          }
        }
      }
      SYNC();
      // v_1: f16[j:64, e] @sram = load(V, page_2, t_56, t_3, e)   examples/paged.tile:6
      if (tl::in_pieces(a.V, 2, a.V_s3, a.V_s0, a.V_s1, a.V_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (true) {
              const int e = n % 8 * 8;
              *(tl::Piece*)&v_1[(j) * 72 + e] = tl::inside(tl::widen(page_2[j]), a.V_n0) && tl::inside(t_56[j], a.V_n1) && tl::inside(t_3, a.V_n2) ? *(const tl::Piece*)(a.V + (tl::widen(page_2[j]) * a.V_s0 + t_56[j] * a.V_s1 + t_3 * a.V_s2 + (i64)e * a.V_s3)) : tl::Piece{};
            }
          }
        }
      }
      else {
        each_thread {
          UNROLL_4 for (int n = thread; n < 4096; n += THREADS) {
            const int j = n / 64;
            const int e = n % 64;
            const float v_1_at = tl::inside(tl::widen(page_2[j]), a.V_n0) && tl::inside(t_56[j], a.V_n1) && tl::inside(t_3, a.V_n2) ? (float)tl::widen(a.V[tl::widen(page_2[j]) * a.V_s0 + t_56[j] * a.V_s1 + t_3 * a.V_s2 + (i64)e * a.V_s3]) : float(0);
            tl::store(&v_1[(j) * 72 + e], v_1_at);
          }
        }
      }
      SYNC();
      // t_67: f32[i:64, e] @reg = contract(t_62, v_1, over=j)   examples/paged.tile:6
      // O_4: f32[i:64, e] @reg = add(t_68, t_67)   examples/paged.tile:6
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, true, true>(acc, &t_62[(0) * 72 + row], 72, &v_1[(0) * 72 + column], 72, 64, lane);
          bool bad = false;
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) bad |= tl::is_nan(acc[r_4][c][k_2]) && row + tl::row_of(lane, r_4, k_2) < i_n;
          if (bad) {
            UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) acc[r_4][c][k_2] = 0;
            tl::products_exact<true, false, f16, 1, 4, true, true>(acc, &t_62[(0) * 72 + row], 72, &v_1[(0) * 72 + column], 72, 64, lane);
          }
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int e = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_67_at = acc[r_4][c][k_2];
              const float t_68 = (tl::gone(alpha_1[i]) ? tl::absent<float>() : tl::ordinary((O_1_1[(i) * 65 + e] * alpha_1[i])));
              const float O_4_at = tl::add(t_68, t_67_at);
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
    // m: f32[i:64] @reg, l: f32[i:64] @reg, O_1: f32[i:64, e] @reg = for(m_2, l_2, O_2, axis=j, tile=64, start=t_51, stop=t_46) as (m_0, l_0, O_1_0) {…}   examples/paged.tile:6
    const i64 j_end_1 = tl::least(t_46, a.j_extent);
    for (i64 j_at = t_51; j_at < j_end_1; j_at += 64) {
      const i64 j_0 = j_at;
      const int j_n = (int)tl::least(64, a.j_extent - j_0);
      // page_1: i32[j:64] @sram = load(page, b, t)   examples/paged.tile:4
      // t_1: i64[j:64] @reg = mod(j, P)   examples/paged.tile:4
      each_thread {
        UNROLL_4 for (int n = thread; n < 64; n += THREADS) {
          const int j = n;
          if (j < j_n) {
            const i64 t = tl::floordiv((j_0 + j), a.P);
            const i64 page_1_at = tl::inside(t, a.page_n1) ? tl::widen(a.page[b * a.page_s0 + t * a.page_s1]) : i64(0);
            const i64 t_1_at = tl::mod((j_0 + j), a.P);
            tl::store(&page_1[j], page_1_at);
            t_1[j] = t_1_at;
          }
        }
      }
      SYNC();
      // k: f16[j:64, d] @sram = load(K, page_1, t_1, t_3, d)   examples/paged.tile:4
      if (tl::in_pieces(a.K, 2, a.K_s3, a.K_s0, a.K_s1, a.K_s2)) {
        each_thread {
          UNROLL_4 for (int n = thread; n < 512; n += THREADS) {
            const int j = (n / 8) / 1 % 64;
            if (j < j_n) {
              const int d = n % 8 * 8;
              *(tl::Piece*)&k[(j) * 72 + d] = tl::inside(tl::widen(page_1[j]), a.K_n0) && tl::inside(t_1[j], a.K_n1) && tl::inside(t_3, a.K_n2) ? *(const tl::Piece*)(a.K + (tl::widen(page_1[j]) * a.K_s0 + t_1[j] * a.K_s1 + t_3 * a.K_s2 + (i64)d * a.K_s3)) : tl::Piece{};
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
              const float k_at = tl::inside(tl::widen(page_1[j]), a.K_n0) && tl::inside(t_1[j], a.K_n1) && tl::inside(t_3, a.K_n2) ? (float)tl::widen(a.K[tl::widen(page_1[j]) * a.K_s0 + t_1[j] * a.K_s1 + t_3 * a.K_s2 + (i64)d * a.K_s3]) : float(0);
              tl::store(&k[(j) * 72 + d], k_at);
            }
          }
        }
      }
      SYNC();
      // t_5: f32[j:64, i:64] @reg = contract(q, k, over=d)   examples/paged.tile:4
      // t_15: f32[j:64, i:64] @reg = select(t_11, t_14, -inf)   examples/paged.tile:4
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
              float t_5_at = acc[r_4][c][k_2];
              const bool t_7 = ((j_0 + j) < len_1);
              const i64 t_9 = (t_8 + (i_0 + i));
              const bool t_10 = ((j_0 + j) <= t_9);
              const bool t_11 = (t_7 && t_10);
              const float t_14 = (t_5_at * 0.18033688011112042f);
              const float t_15_at = (t_11 ? t_14 : (-tl::infinity(float(0))));
              t_15[(j) * 65 + i] = t_15_at;
            }
          }
        }
      }
      SYNC();
      // t_4: f32[i:64] @reg = maxnum(t_15, over=j)   examples/paged.tile:5
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_4_sum = -tl::infinity(float(0));
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              if (j < j_n) {
                t_4_sum = tl::maxnum(t_4_sum, t_15[(j) * 65 + i]);
              }
            }
          }
          t_4_part[n * 4 + part] = t_4_sum;
        }
      }
      SYNC();
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            float t_4_sum = -tl::infinity(float(0));
            UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) t_4_sum = tl::maxnum(t_4_sum, t_4_part[n * 4 + k_2]);
            t_4[i] = t_4_sum;
          }
        }
      }
      SYNC();
      // m_1: f32[i:64] @reg = max(m_0, t_4)   examples/paged.tile:5
      // alpha: f32[i:64] @reg = exp2(t_21)   examples/paged.tile:5
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float m_1_at = tl::max(m_3[i], t_4[i]);
            const float t_20 = tl::min(m_3[i], 3.4028234663852886e+38f);
            const float r_1 = tl::max(t_20, (-3.4028234663852886e+38f));
            const float t_18 = tl::min(m_1_at, 3.4028234663852886e+38f);
            const float r = tl::max(t_18, (-3.4028234663852886e+38f));
            const float t_21 = (r_1 - r);
            const float alpha_at = (t_21 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_21));
            m_1[i] = m_1_at;
            alpha[i] = alpha_at;
          }
        }
      }
      SYNC();
      // t_17: f32[j:64, i:64] @reg = exp2(t_16)   examples/paged.tile:5
      // t_19: f32[i:64] @reg = sum(t_17, over=j)   examples/paged.tile:5
      if (j_n < 64) {
        each_thread {
          for (int n = thread; n < 4608; n += THREADS) t_17[n].bits = 0;
        }
        SYNC();
      }
      each_thread {
        const int part = thread % 4;
        ROLLED for (int n = thread / 4; n < 64; n += THREADS / 4) {
          float t_19_sum = float(0);
          const int i = n;
          if (i < i_n) {
            UNROLL_4 for (int k_2 = part; k_2 < 64; k_2 += 4) {
              const int j = k_2;
              if (j < j_n) {
                const float t_18 = tl::min(m_1[i], 3.4028234663852886e+38f);
                const float r = tl::max(t_18, (-3.4028234663852886e+38f));
                const float t_16 = (t_15[(j) * 65 + i] - r);
                const float t_17_at = (t_16 == -tl::infinity(float(0)) ? tl::absent<float>() : tl::exp2(t_16));
                t_19_sum = t_19_sum + t_17_at;
                tl::store_marked(&t_17[(j) * 72 + i], t_17_at);
              }
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
      // l_1: f32[i:64] @reg = add(t_22, t_19)   examples/paged.tile:5
      each_thread {
        ROLLED for (int n = thread; n < 64; n += THREADS) {
          const int i = n;
          if (i < i_n) {
            const float t_22 = (tl::gone(alpha[i]) ? tl::absent<float>() : tl::ordinary((l_3[i] * alpha[i])));
            const float l_1_at = tl::add(t_22, t_19[i]);
            l_3[i] = l_1_at;
          }
        }
      }
      SYNC();
      // v: f16[j:64, e] @sram = load(V, page_1, t_1, t_3, e)   examples/paged.tile:6
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
              *(tl::Piece*)&v[(j) * 72 + e] = tl::inside(tl::widen(page_1[j]), a.V_n0) && tl::inside(t_1[j], a.V_n1) && tl::inside(t_3, a.V_n2) ? *(const tl::Piece*)(a.V + (tl::widen(page_1[j]) * a.V_s0 + t_1[j] * a.V_s1 + t_3 * a.V_s2 + (i64)e * a.V_s3)) : tl::Piece{};
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
              const float v_at = tl::inside(tl::widen(page_1[j]), a.V_n0) && tl::inside(t_1[j], a.V_n1) && tl::inside(t_3, a.V_n2) ? (float)tl::widen(a.V[tl::widen(page_1[j]) * a.V_s0 + t_1[j] * a.V_s1 + t_3 * a.V_s2 + (i64)e * a.V_s3]) : float(0);
              tl::store(&v[(j) * 72 + e], v_at);
            }
          }
        }
      }
      SYNC();
      // t_23: f32[i:64, e] @reg = contract(t_17, v, over=j)   examples/paged.tile:6
      // O_3: f32[i:64, e] @reg = add(t_24, t_23)   examples/paged.tile:6
      each_thread {
        ROLLED for (int n = thread / 32; n < 8; n += THREADS / 32) {
          const int lane = thread % 32;
          const int row = n / 2 % 4 * 16;
          const int column = n % 2 * 32;
          float acc[1][4][4] = {};
          tl::products<f16, 1, 4, true, true>(acc, &t_17[(0) * 72 + row], 72, &v[(0) * 72 + column], 72, (j_n + 15) / 16 * 16, lane);
          bool bad = false;
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) bad |= tl::is_nan(acc[r_4][c][k_2]) && row + tl::row_of(lane, r_4, k_2) < i_n;
          if (bad) {
            UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) acc[r_4][c][k_2] = 0;
            tl::products_exact<true, false, f16, 1, 4, true, true>(acc, &t_17[(0) * 72 + row], 72, &v[(0) * 72 + column], 72, (j_n + 15) / 16 * 16, lane);
          }
          UNROLL for (int r_4 = 0; r_4 < 1; ++r_4) UNROLL for (int c = 0; c < 4; ++c) UNROLL for (int k_2 = 0; k_2 < 4; ++k_2) {
            const int i = row + tl::row_of(lane, r_4, k_2);
            const int e = column + tl::column_of(lane, c, k_2);
            if (i < i_n) {
              float t_23_at = acc[r_4][c][k_2];
              const float t_24 = (tl::gone(alpha[i]) ? tl::absent<float>() : tl::ordinary((O_1_1[(i) * 65 + e] * alpha[i])));
              const float O_3_at = tl::add(t_24, t_23_at);
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
    // store(O, b, h, i, e, value=t_25)   examples/paged.tile:2
    each_thread {
      ROLLED for (int n = thread; n < 4096; n += THREADS) {
        const int i = n / 64;
        const int e = n % 64;
        if (i < i_n) {
          const float t_25 = tl::div(O_1_1[(i) * 65 + e], l_3[i]);
          tl::store(a.O + (b * a.O_s0 + h * a.O_s1 + (i_0 + i) * a.O_s2 + (i64)e * a.O_s3), t_25);
        }
      }
    }
    SYNC();
  }
  tl::redone(a.redo);
}
