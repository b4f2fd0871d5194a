// Tiles of 16-bit elements in shared memory: slabs of 64 columns, rows of 128 bytes. The pieces of 16 bytes of a row lie at
// their number XOR the row's last three bits, so that eight rows of a piece lie in different banks. `corner`: this thread's row
// for `matrices` in 16 rows and columns, row lane % 16 and piece lane / 16. `turned`: the same with the two middle matrices in
// each other's place: registers of a right operand must follow each other. Tiles begin at multiples of 1024 bytes.
// A thread holds HELD rows of a fragment: two of each 16.

#define COLUMNS_16(k, rows) (((k) >> 2) * (rows) * 128)   // the slab of the k-th 16 columns; within it they lie at
#define WITHIN(k) (((k) & 3) << 5)                        // this, XOR
#define ROWS_16(k) ((k) * 2048)

// d += a · bᵀ for the k-th 16 columns (d = …, where FRESH); a slab of b has SLAB rows
template<class T, int SLAB, int HELD, bool FRESH, int N> DEVICE void row_step(float (&d)[N], const u32 (&a)[HELD / 2][4], u32 b, u32 turned, int k) {
#pragma unroll
  for (int n = 0; n < N / (4 * HELD); n++) {
    u32 x[4];
    matrices(x, b + (turned ^ WITHIN(k)) + COLUMNS_16(k, SLAB) + ROWS_16(n));
#pragma unroll
    for (int m = 0; m < HELD / 2; m++) {
      float *left = &d[4 * HELD * n + 4 * m], *right = left + 2 * HELD;
      if (FRESH) product_only(T(), left, a[m], x[0], x[1]); else product(T(), left, a[m], x[0], x[1]);
      if (FRESH) product_only(T(), right, a[m], x[2], x[3]); else product(T(), right, a[m], x[2], x[3]);
    }
  }
}
template<int HELD> DEVICE void rows_of(u32 (&x)[HELD / 2][4], u32 a, u32 corner, int rows, int k) {
#pragma unroll
  for (int m = 0; m < HELD / 2; m++) matrices(x[m], a + (corner ^ WITHIN(k)) + COLUMNS_16(k, rows) + ROWS_16(m));
}
// d = a · bᵀ (or d += …, where ADD) over STEPS times 16 columns; ROLLED: as a loop, which takes few registers and little code
template<class T, int STEPS, int SLAB_A, int SLAB_B, int HELD, bool ADD, bool ROLLED, int N> DEVICE void rows_by_rows(float (&d)[N], u32 a, u32 corner, u32 b, u32 turned) {
  corner = again(corner), turned = again(turned);
  if (ROLLED && !ADD) clear(d);
#pragma unroll (ROLLED ? 1 : STEPS)
  for (int k = 0; k < STEPS; k++) {
    u32 x[HELD / 2][4];
    rows_of<HELD>(x, a, corner, SLAB_A, k);
    if (!ROLLED && k == 0 && !ADD) row_step<T, SLAB_B, HELD, true>(d, x, b, turned, k);
    else row_step<T, SLAB_B, HELD, false>(d, x, b, turned, k);
  }
}
// the same where the fragments of a are in registers
template<class T, int SLAB_B, int HELD, bool ADD, int STEPS, int N> DEVICE void held_by_rows(float (&d)[N], const u32 (&a)[STEPS][HELD / 2][4], u32 b, u32 turned) {
  turned = again(turned);
#pragma unroll
  for (int k = 0; k < STEPS; k++) {
    if (k == 0 && !ADD) row_step<T, SLAB_B, HELD, true>(d, a[k], b, turned, k);
    else row_step<T, SLAB_B, HELD, false>(d, a[k], b, turned, k);
  }
}
// d += p · v for the k-th 16 rows of v
template<class T, int SLAB, int HELD, int N, int M> DEVICE void weights_step(float (&d)[N], const u32 (&p)[M], u32 v, u32 corner, int k) {
#pragma unroll
  for (int n = 0; n < N / (4 * HELD); n++) {
    u32 x[4];
    matrices_columns(x, v + (corner ^ WITHIN(n)) + COLUMNS_16(n, SLAB) + ROWS_16(k));
#pragma unroll
    for (int m = 0; m < HELD / 2; m++) {
      const u32* left = &p[2 * HELD * k + 2 * m];
      const u32 a[4] = {left[0], left[1], left[HELD], left[HELD + 1]};
      product(T(), &d[4 * HELD * n + 4 * m], a, x[0], x[1]);
      product(T(), &d[4 * HELD * n + 2 * HELD + 4 * m], a, x[2], x[3]);
    }
  }
}
// d += p · v, for the SLAB rows of v
template<class T, int SLAB, int HELD, int N, int M> DEVICE void weights_by_columns(float (&d)[N], const u32 (&p)[M], u32 v, u32 corner) {
  corner = again(corner);
#pragma unroll
  for (int k = 0; k < SLAB / 16; k++) weights_step<T, SLAB, HELD>(d, p, v, corner, k);
}

// ---- operands in parts, which add up to them: products of parts, the small ones first; those that do not count are left out

// PART_A, PART_B: the bytes of a part; A, B: how many there are
template<class T, int STEPS, int SLAB_A, int SLAB_B, int HELD, int A, int PART_A, int B, int PART_B, int PARTS, int N>
DEVICE void parts_by_rows(float (&d)[N], u32 a, u32 corner, u32 b, u32 turned) {
#pragma unroll 1
  for (int x = A - 1; x >= 0; x--) {
#pragma unroll 1
    for (int y = least<int>(B, PARTS - x) - 1; y >= 0; y--)
      rows_by_rows<T, STEPS, SLAB_A, SLAB_B, HELD, true, true>(d, a + x * PART_A, corner, b + y * PART_B, turned);
  }
}
template<class T, int SLAB, int HELD, int N, int M> DEVICE void weights_by_parts(float (&d)[N], const u32 (&p)[M], u32 v, u32 corner, int parts, int bytes) {
#pragma unroll 1
  for (int y = parts - 1; y >= 0; y--) weights_by_columns<T, SLAB, HELD>(d, p, v + y * bytes, corner);
}

// ---- tiles from global memory: 8 threads per row and slab. `from`: this thread's piece of its first row; `step`: from a row to
// the next, in elements; `left`: the rows that the tensor has from there on. What lies beyond is 0, up to a multiple of 16 columns.

// `to`: this thread's piece of its first row; `row`: how many rows further
template<int SLAB> DEVICE u32 place_of(u32 to, int slab, int row) { return (to + (slab * SLAB + row) * 128) ^ ((row & 7) << 4); }
template<int WIDTH> DEVICE bool piece_is_there(int piece) { return WIDTH % 64 == 0 || piece < (WIDTH + 15) / 16 * 2; }
template<int WIDTH> DEVICE int bytes_there(int piece) { return least<int>(16, greatest<int>(0, 2 * WIDTH - 16 * piece)); }
template<int SLAB, int WIDTH, int THREADS> DEVICE void copy_rows(u32 to, const u16* from, int step) {
  constexpr int full = WIDTH / 8;
  const int piece = threadIdx.x & 7, first = threadIdx.x >> 3;
  step = again(step);
#pragma unroll
  for (int row = 0; row < SLAB; row += THREADS / 8) {
#pragma unroll
    for (int slab = 0; slab * 64 < WIDTH; slab++) {
      if ((SLAB % (THREADS / 8) == 0 || row + first < SLAB) && (full >= 8 * (slab + 1) || piece_is_there<WIDTH>(8 * slab + piece))) {
        const u16* source = from + (i64)row * step + slab * 64;
        const u32 place = place_of<SLAB>(to, slab, row);
        if (WIDTH % 16 == 0 || full >= 8 * (slab + 1)) copy_16(place, source); else copy_16(place, source, bytes_there<WIDTH>(8 * slab + piece));
      }
    }
  }
}
// the last rows of a tensor, and zeros
template<int SLAB, int WIDTH, int THREADS> DEVICE void copy_some_rows(u32 to, const u16* from, int step, int left) {
  const int piece = threadIdx.x & 7, first = threadIdx.x >> 3;
#pragma unroll 1
  for (int row = 0; row + first < SLAB; row += THREADS / 8) {
#pragma unroll
    for (int slab = 0; slab * 64 < WIDTH; slab++) {
      if (piece_is_there<WIDTH>(8 * slab + piece)) {
        const int bytes = row < left ? bytes_there<WIDTH>(8 * slab + piece) : 0;
        copy_16(place_of<SLAB>(to, slab, row), from + (i64)row * step + slab * 64, bytes);
      }
    }
  }
}
template<class... U> DEVICE u32 watch(u32 x, u32 a, u32 b, u32 c, u32 d, U... more) { return watch(watch(x, a, b, c, d), more...); }
