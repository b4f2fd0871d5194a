// A Hopper multiprocessor on one CPU thread: runs a generated kernel's text with every thread of a block as a fiber.
// Bulk copies arrive late and at random, wgmma groups are done at once or as late as they may be, and threads take turns at
// random: a missing wait or an early release gives wrong numbers or a deadlock, which is reported.
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <vector>

typedef uint32_t u32;
typedef uint64_t u64;
typedef int64_t i64;
typedef uint16_t u16;
#define DEVICE inline
#define __global__
#define __shared__
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n)
#define NEG_INF (-INFINITY)
#define POS_INF INFINITY
#define QUIET_NAN NAN
#define FULL 0xffffffffu
#define MOST 0x7fffffff
#define IN_ORDER
#define TANH_3 (-0.33185161f)
#define TANH_5 0.11544492f
#define MOST_WIDE 0x7fffffffffffffffLL
#define BEYOND (1 << 30)
#define FAR (1 << 29)
#ifndef HELD_ROWS
#define HELD_ROWS 2
#endif
#define ROWS for (int r = 0; r < HELD_ROWS; r++)
#define EACH for (int x = 0; x < 2 * HELD_ROWS; x++)

struct Index { int x; };
struct uint2 { u32 x, y; };
struct uint4 { u32 x, y, z, w; };
template<class T> struct Piece { T of[8]; };
inline int __float_as_int(float x) { int y; memcpy(&y, &x, 4); return y; }
inline float __int_as_float(int x) { float y; memcpy(&y, &x, 4); return y; }
struct Description { char* base; int rank; i64 size[5], step[5]; int box[5]; };   // steps in bytes; dimension 0 is dense
struct TensorMap { Description* description; char rest[120]; };

// ---- fibers

struct Fiber { ucontext_t context; char* stack; bool over = false; int thread; const char* at = "start"; };
struct Rendezvous { int arrived = 0; u64 round = 0; std::vector<u64> put, got; };
struct Barrier { int count = 0, pending = 0; i64 bytes = 0; u32 phase = 0; };
struct Named { int arrived = 0; u64 round = 0; };
struct Copy { u32 to; const Description* map; u32 full; int at[5]; u64 due; };
struct Product { std::function<void()> run; };
struct Group { std::vector<Product> open; std::deque<std::vector<Product>> under_way; };

inline unsigned char arena[1 << 18] __attribute__((aligned(1024)));
inline std::vector<Fiber> fibers;
inline ucontext_t scheduler;
inline Fiber* self;
inline Index threadIdx, blockIdx, gridDim;
inline std::map<u32, Barrier> barriers;
inline std::map<u32, Named> named;
inline std::vector<Rendezvous> warps, groups_meet;
inline std::vector<Group> groups;
inline std::vector<Copy> copies;
struct Told { u32 full; u64 due; std::vector<std::function<void()>> pieces; };
inline std::vector<Told> told;   // barriers that wait for the pieces of a thread
inline std::map<u32, std::vector<std::function<void()>>> arrived;   // pieces that are there, but wgmma does not see them yet
inline std::vector<std::set<u32>> waited;   // the barriers that a thread has waited for since its last fence
inline std::vector<std::vector<std::function<void()>>> leaving, unfenced, arriving;
inline std::vector<std::deque<std::vector<std::function<void()>>>> asked;
inline Rendezvous block_meet;
inline u64 random_state = 1, idle, now;
#define memory arena_memory
inline unsigned char* arena_memory = arena;

inline u32 draw(u32 n) {
  random_state ^= random_state << 13; random_state ^= random_state >> 7; random_state ^= random_state << 17;
  return (u32)((random_state >> 20) % n);
}
__attribute__((noinline)) inline void pause_at(const char* what) {
  self->at = what;
  swapcontext(&self->context, &scheduler);
  threadIdx.x = self->thread;
}
template<class F> inline void until(const char* what, F ready) { while (!ready()) pause_at(what); idle = 0; }

// all threads of a set give a value and see everyone's
inline std::vector<u64> meet(Rendezvous& m, int size, int place, u64 value, const char* what) {
  if ((int)m.put.size() != size) m.put.resize(size);
  const u64 round = m.round;
  m.put[place] = value;
  if (++m.arrived == size) { m.got = m.put; m.arrived = 0; m.round++; }
  else until(what, [&] { return m.round != round; });
  return m.got;
}
inline Rendezvous& my_warp() { return warps[threadIdx.x / 32]; }
inline int my_group() { return threadIdx.x / 128; }
template<class T> inline T as(u64 v) { T x; memcpy(&x, &v, sizeof x); return x; }
template<class T> inline u64 bits(T x) { u64 v = 0; memcpy(&v, &x, sizeof x); return v; }
template<class T> inline T __shfl_sync(u32, T x, int from) { return as<T>(meet(my_warp(), 32, threadIdx.x % 32, bits(x), "shfl")[from]); }
template<class T> inline T __shfl_xor_sync(u32, T x, int mask) {
  const int lane = threadIdx.x % 32;
  return as<T>(meet(my_warp(), 32, lane, bits(x), "shfl_xor")[lane ^ mask]);
}
inline int __reduce_min_sync(u32, int x) {
  for (u64 v : meet(my_warp(), 32, threadIdx.x % 32, bits(x), "least")) x = std::min(x, as<int>(v));
  return x;
}
inline int __reduce_max_sync(u32, int x) {
  for (u64 v : meet(my_warp(), 32, threadIdx.x % 32, bits(x), "greatest")) x = std::max(x, as<int>(v));
  return x;
}
inline bool __all_sync(u32, bool x) {
  bool all = true;
  for (u64 v : meet(my_warp(), 32, threadIdx.x % 32, x, "all")) all = all && v;
  return all;
}
inline u32 __ballot_sync(u32, bool x) {
  u32 out = 0, lane = 0;
  for (u64 v : meet(my_warp(), 32, threadIdx.x % 32, x, "ballot")) out |= (u32)(v & 1) << lane++;
  return out;
}
inline int __ffs(u32 x) { return __builtin_ffs((int)x); }
inline int __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
inline void __syncthreads() { meet(block_meet, (int)fibers.size(), threadIdx.x, 0, "syncthreads"); }
inline u32 atomicAdd(u32* p, u32 n) { const u32 old = *p; *p += n; return old; }

// ---- barriers

inline u32 shared_address(const void*) { return 0; }
inline void barrier_init(u32 b, u32 count) { barriers[b] = Barrier{(int)count, (int)count, 0, 0}; }
inline void in_turn() {}
inline void fetch_map(const void*) {}
inline void barriers_ready() {}
inline void settle_barrier(Barrier& b) { if (b.pending == 0 && b.bytes == 0) { b.phase++; b.pending = b.count; } }
inline void fail(const char* why) { printf("emulator: %s (thread %d)\n", why, threadIdx.x); fflush(stdout); abort(); }
inline Barrier& at(u32 b) { if (!barriers.count(b)) fail("no barrier there"); return barriers[b]; }
// Words in shared memory. Who has read one may still be about to until it arrives at a barrier itself: the arrival of one thread
// says nothing of the others, also where its warp has met before.
inline std::map<u32, std::set<int>> readers;   // the threads that read a word
inline const char* race = nullptr;
inline void is_read(u32 a) { readers[a].insert(threadIdx.x); }
inline void has_read() { for (auto& r : readers) r.second.erase(threadIdx.x); }
inline void __syncwarp() { meet(my_warp(), 32, threadIdx.x % 32, 0, "syncwarp"); }
template<class T> inline void shared_put(u32 a, T x) {
  if (!readers[a].empty()) race = "a word is written that a thread may still be reading";
  memcpy(arena + a, &x, sizeof x);
}
inline int shared_get(u32 a) { int x; is_read(a); memcpy(&x, arena + a, 4); return x; }
inline int shared_told(u32 a, int lane) { return __shfl_sync(FULL, lane ? 0 : shared_get(a), 0); }
template<class T> inline void shared_two(u32 a, T (&x)[2]) {
  is_read(a); is_read(a + sizeof(T));
  memcpy(x, arena + a, sizeof x);
}
inline void read_again(u32&) {}
inline void read_again(int&) {}
template<int N> inline void read_again(u32 (&)[N]) {}
inline void push_carry(u32& word, u32 a, u32 b) { word = 2 * word + (u32)((u64)a + b >> 32); }
inline u64 product_of(u32 a, u32 b) { return (u64)a * b; }
inline void two_of(const float* p, bool there, float& x, float& y) {
  if ((u64)p % 8) fail("a pair is not aligned");
  if (there) x = p[0], y = p[1];
}
template<class T> inline void two_of(const T* p, bool there, u32& x) {
  if ((u64)p % (2 * sizeof(T))) fail("a pair is not aligned");
  if (there) x = p[0] | (u32)p[1] << 8 * sizeof(T);
}
template<class T, class X> inline void one_of(const T* p, bool there, X& x) { if (there) x = *p; }
inline void arrive(u32 b) { has_read(); Barrier& x = at(b); if (x.pending-- <= 0) fail("too many arrivals"); settle_barrier(x); }
inline void expect(u32 b, u32 bytes) { has_read(); Barrier& x = at(b); x.bytes += bytes; if (x.pending-- <= 0) fail("too many arrivals"); settle_barrier(x); }
inline void wait(u32 b, u32 parity) {
  Barrier& x = at(b);
  until("wait", [&] { return (x.phase & 1) != (parity & 1); });
  waited[threadIdx.x].insert(b);
}
inline void named_arrive(u32 id, u32 threads) { Named& n = named[id]; if (++n.arrived == (int)threads) { n.arrived = 0; n.round++; } }
inline void named_sync(u32 id, u32 threads) {
  Named& n = named[id];
  const u64 round = n.round;
  named_arrive(id, threads);
  until("named_sync", [&] { return n.round != round; });
}
template<int N> inline void add_other(float (&d)[N], u32 own, u32 other, u32 id) {
  const u32 lane = threadIdx.x % 128 * sizeof d;
  named_sync(id, 256);
  memcpy(arena + own + lane, d, sizeof d);
  named_sync(id, 256);
  float x[N];
  memcpy(x, arena + other + lane, sizeof x);
  for (int k = 0; k < N; k++) d[k] += x[k];
}
template<int N> inline void fewer_registers() {}
template<int N> inline void more_registers() {}

template<int STAGES> struct Cursor {
  u32 stage = 0, parity;
  Cursor(u32 first) : parity(first) {}
  void step() { if (++stage == STAGES) { stage = 0; parity ^= 1; } }
};

// ---- bulk copies between tensors and tiles of 128-byte rows, swizzled

inline u32 swizzled(u32 a) { return a ^ (((a >> 7) & 7) << 4); }
template<class F> inline void each_box(const Description& m, const int* at, F f) {
  int n[5] = {0, 0, 0, 0, 0};
  u32 place = 0;
  for (;;) {
    bool inside = true;
    i64 from = 0;
    for (int k = 0; k < m.rank; k++) {
      const i64 p = at[k] + n[k];
      inside = inside && p >= 0 && p < m.size[k];
      from += p * (k ? m.step[k] : 2);
    }
    f(place, inside, from);
    place += 2;
    int k = 0;
    while (k < m.rank && ++n[k] == m.box[k]) n[k++] = 0;
    if (k == m.rank) return;
  }
}
inline void deliver(const Copy& c) {
  u32 bytes = 0;
  each_box(*c.map, c.at, [&](u32 place, bool inside, i64 from) {
    u16 x = 0;
    if (inside) memcpy(&x, c.map->base + from, 2);
    memcpy(arena + swizzled(c.to + place), &x, 2);
    bytes += 2;
  });
  Barrier& b = at(c.full);
  b.bytes -= bytes;
  settle_barrier(b);
}
template<class... C> inline void copy_in(u32 to, const TensorMap* map, u32 full, C... c) {
  if ((int)sizeof...(c) != map->description->rank) fail("a copy has another rank than its map");
  Copy copy{to, map->description, full, {c...}, 0};
  copy.due = now + (draw(4) ? draw(100) : draw(4000));   // most arrive soon
  copies.push_back(copy);
}
template<class... C> inline void copy_out(const TensorMap* map, u32 from, C... c) {
  const Copy copy{from, map->description, 0, {c...}, 0};
  leaving[threadIdx.x].push_back([copy] {
    each_box(*copy.map, copy.at, [&](u32 place, bool inside, i64 to) {
      if (inside) memcpy(copy.map->base + to, arena + swizzled(copy.to + place), 2);
    });
  });
}
inline void copy_commit() {}
inline void copy_read_out() { for (auto& f : leaving[threadIdx.x]) f(); leaving[threadIdx.x].clear(); }
inline void copy_finish() { copy_read_out(); }
// what a thread stores is seen by wgmma after its fence only
inline void shared_piece(u32 a, u32 x0, u32 x1, u32 x2, u32 x3) {
  unfenced[threadIdx.x].push_back([=] { const u32 x[4] = {x0, x1, x2, x3}; memcpy(arena + a, x, 16); });
}
inline void clear_shared(u32 a, int bytes) { if (threadIdx.x == 0) memset(arena + a, 0, bytes); }
inline void shared_word(u32 a, u32 x) { unfenced[threadIdx.x].push_back([=] { memcpy(arena + a, &x, 4); }); }
inline uint2 load_two(const void* p) { uint2 v{0, 0}; if (p) memcpy(&v, p, 8); return v; }
inline uint4 load_four(const void* p, int k) { uint4 v{0, 0, 0, 0}; if (p) memcpy(&v, (const char*)p + 16 * k, 16); return v; }
// what is copied arrives when it is waited for, or when its barrier says so
constexpr u64 NO_ROW = 1, NO_COLUMN = 2;
inline void copy_piece(u32 to, u64 from) {
  arriving[threadIdx.x].push_back([=] { if (from & 15) memset(arena + to, 0, 16); else memcpy(arena + to, (const void*)from, 16); });
}
// what a thread copies for itself is there when it waits for it, not before
template<int BYTES> inline void copy_ahead(u32 to, u64 from) {
  if ((from & ~(u64)3) % (BYTES == 8 ? 8 : 16)) fail("a piece is not aligned");
  arriving[threadIdx.x].push_back([=] { if (from & 3) memset(arena + to, 0, BYTES); else memcpy(arena + to, (const void*)from, BYTES); });
}
inline void pieces_asked() { asked[threadIdx.x].push_back(std::move(arriving[threadIdx.x])); arriving[threadIdx.x].clear(); }
template<int N> inline void pieces_here() {
  auto& groups = asked[threadIdx.x];
  for (; groups.size() > N; groups.pop_front()) for (auto& f : groups.front()) f();
}
template<class T> inline auto staged_piece(u32 a) { Piece<T> x; memcpy(&x, arena + a, sizeof x); return x; }
inline void pieces_copied() {
  for (auto& f : arriving[threadIdx.x]) unfenced[threadIdx.x].push_back(f);
  arriving[threadIdx.x].clear();
}
inline void copies_arrive(u32 b) {
  told.push_back({b, now + (draw(4) ? draw(100) : draw(4000)), std::move(arriving[threadIdx.x])});
  arriving[threadIdx.x].clear();
}
inline void deliver(Told& t) {
  for (auto& f : t.pieces) arrived[t.full].push_back(f);
  Barrier& b = at(t.full);
  b.pending--;
  settle_barrier(b);
}
// the pieces whose barriers this thread has waited for are seen by wgmma after its fence
inline void copied_for_products() {
  for (u32 b : waited[threadIdx.x]) { for (auto& f : arrived[b]) f(); arrived[b].clear(); }
  waited[threadIdx.x].clear();
}
inline void written_for_copies() { for (auto& f : unfenced[threadIdx.x]) f(); unfenced[threadIdx.x].clear(); }
inline void store_matrices(u32 a, u32 x0, u32 x1, u32 x2, u32 x3) {
  const int lane = threadIdx.x % 32;
  const auto to = meet(my_warp(), 32, lane, a, "stmatrix");
  const u32 x[4] = {x0, x1, x2, x3};
  for (int m = 0; m < 4; m++) {
    const auto all = meet(my_warp(), 32, lane, x[m], "stmatrix");
    for (int r = 0; r < 8; r++) if (lane == 4 * r + lane % 4) { const u32 v = (u32)all[lane]; memcpy(arena + to[8 * m + r] + 4 * (lane % 4), &v, 4); }
  }
}

// ---- wgmma

template<class T> inline float value_of(u16 x);
struct f16 {}; struct bf16 {};
inline float bf16_value(u16 x) { const u32 v = (u32)x << 16; float y; memcpy(&y, &v, 4); return y; }
inline float f16_value(u16 x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
inline float f8e5m2_value(unsigned char x) { return f16_value((u16)(x << 8)); }
inline float f8e4m3_value(unsigned char x) {
  const int e = x >> 3 & 15, m = x & 7;
  const float a = (x & 127) == 127 ? NAN : e ? ldexpf(8 + m, e - 10) : ldexpf(m, -9);
  return x & 128 ? -a : a;
}
template<> inline float value_of<f16>(u16 x) { return f16_value(x); }
template<> inline float value_of<bf16>(u16 x) { return bf16_value(x); }
inline u16 to_bf16(float x) {
  u32 v; memcpy(&v, &x, 4);
  if (x != x) return 0x7fff;
  return (u16)((v + 0x7fff + ((v >> 16) & 1)) >> 16);
}
inline u16 to_f16(float x) { const _Float16 h = (_Float16)x; u16 v; memcpy(&v, &h, 2); return v; }
inline u32 pack_bf16(float lo, float hi) { return to_bf16(lo) | (u32)to_bf16(hi) << 16; }
inline u32 pack_f16(float lo, float hi) { return to_f16(lo) | (u32)to_f16(hi) << 16; }
inline u32 first_bits(int n) { return n >= 32 ? 0xffffffffu : (1u << n) - 1; }
inline u32 watch(u32 x, u32 y) {
  const auto half = [](u32 a, u32 b) { return to_bf16(bf16_value((u16)b) * 0.f + bf16_value((u16)a)); };
  return half(x & 0xffff, y & 0xffff) | (u32)half(x >> 16, y >> 16) << 16;
}
inline u32 watch_f16(u32 x, u32 y) {
  const auto half = [](u32 a, u32 b) { return to_f16(f16_value((u16)b) * 0.f + f16_value((u16)a)); };
  return half(x & 0xffff, y & 0xffff) | (u32)half(x >> 16, y >> 16) << 16;
}
inline u32 watch(u32 x, u32 a, u32 b, u32 c, u32 d) { return watch(watch(watch(watch(x, a), b), c), d); }
inline u32 watch_f16(u32 x, u32 a, u32 b, u32 c, u32 d) { return watch_f16(watch_f16(watch_f16(watch_f16(x, a), b), c), d); }
inline u64 rows_descriptor(u32 a) { return a; }
inline u64 columns_descriptor(u32 a, u32 slab) { return (u64)slab << 32 | a; }
inline void group_fence() {}
inline void group_commit() {
  meet(groups_meet[my_group()], 128, threadIdx.x % 128, 0, "commit");
  if (threadIdx.x % 128 == 0) {   // products may be done at once, or not before they must
    Group& g = groups[my_group()];
    const bool early = g.under_way.empty() && draw(2);
    if (early) for (auto& p : g.open) p.run();
    g.under_way.push_back(early ? std::vector<Product>() : g.open);
    g.open.clear();
  }
  meet(groups_meet[my_group()], 128, threadIdx.x % 128, 0, "commit");
}
template<int PENDING> inline void group_wait() {
  meet(groups_meet[my_group()], 128, threadIdx.x % 128, 0, "group_wait");
  if (threadIdx.x % 128 == 0) {
    Group& g = groups[my_group()];
    for (int n = (int)draw(100); n > 0; n--) { idle = 0; pause_at("group_wait"); }
    while ((int)g.under_way.size() > PENDING) { for (auto& p : g.under_way.front()) p.run(); g.under_way.pop_front(); }
  }
  meet(groups_meet[my_group()], 128, threadIdx.x % 128, 0, "group_wait");
}
template<class T, int N> inline void pin(T (&d)[N]) { asm volatile("" : : "r"(d) : "memory"); }

// the whole group's fragment as a matrix of 64 rows
template<class P> inline void each_element(int columns, P put) {
  for (int t = 0; t < 128; t++) for (int e = 0; e < columns / 2; e++)
    put(t, e, 16 * (t / 32) + (t % 32) / 4 + 8 * ((e >> 1) & 1), 8 * (e / 4) + 2 * (t % 4) + (e & 1));
}
template<class T> inline float shared_value(u32 a) { u16 x; memcpy(&x, arena + swizzled(a), 2); return value_of<T>(x); }

template<class T, int STEPS, int SLAB_A, int SLAB_B, bool ADD, int N> inline void rows_by_rows(float (&d)[N], u64 a, u64 b) {
  const auto all = meet(groups_meet[my_group()], 128, threadIdx.x % 128, (u64)&d[0], "rows_by_rows");
  if (threadIdx.x % 128 == 0) groups[my_group()].open.push_back(Product{[all, a, b] {
    std::vector<float> x(64 * STEPS * 16), y(2 * N * STEPS * 16);
    // adding stage offsets happened in units of 16 bytes
    const u32 pa = (u32)a, pb = (u32)(b & 0xffffffffu);
    for (int k = 0; k < STEPS * 16; k++) {
      for (int r = 0; r < 64; r++) x[r * STEPS * 16 + k] = shared_value<T>(pa + (k / 64) * SLAB_A + r * 128 + (k % 64) * 2);
      for (int r = 0; r < 2 * N; r++) y[r * STEPS * 16 + k] = shared_value<T>(pb + (k / 64) * SLAB_B + r * 128 + (k % 64) * 2);
    }
    each_element(2 * N, [&](int t, int e, int row, int column) {
      float* out = (float*)all[t];
      float s = ADD ? out[e] : 0.f;
      const float *p = &x[row * STEPS * 16], *q = &y[column * STEPS * 16];
      for (int k = 0; k < STEPS * 16; k++) s += p[k] * q[k];
      out[e] = s;
    });
  }});
}
template<class T, int STEPS, int N, int M> inline void weights_by_columns(float (&d)[N], u32 (&p)[M], u64 v, int add) {
  const auto all = meet(groups_meet[my_group()], 128, threadIdx.x % 128, (u64)&d[0], "weights_by_columns");
  const auto weights = meet(groups_meet[my_group()], 128, threadIdx.x % 128, (u64)&p[0], "weights_by_columns");
  if (threadIdx.x % 128 == 0) groups[my_group()].open.push_back(Product{[all, weights, v, add] {
    const u32 slab = (u32)(v >> 32), base = (u32)v;
    std::vector<float> x(64 * STEPS * 16), y(STEPS * 16 * 2 * N);
    each_element(STEPS * 16, [&](int t, int e, int row, int column) {
      const u32 word = ((u32*)weights[t])[e / 2];
      x[row * STEPS * 16 + column] = value_of<T>((u16)(e & 1 ? word >> 16 : word));
    });
    for (int k = 0; k < STEPS * 16; k++) for (int n = 0; n < 2 * N; n++)
      y[k * 2 * N + n] = shared_value<T>(base + (n / 64) * slab + k * 128 + (n % 64) * 2);
    std::vector<float> o(64 * 2 * N);
    each_element(2 * N, [&](int t, int e, int row, int column) { o[row * 2 * N + column] = add ? ((float*)all[t])[e] : 0.f; });
    for (int r = 0; r < 64; r++) for (int k = 0; k < STEPS * 16; k++) {
      const float w = x[r * STEPS * 16 + k];
      for (int n = 0; n < 2 * N; n++) o[r * 2 * N + n] += w * y[k * 2 * N + n];
    }
    each_element(2 * N, [&](int t, int e, int row, int column) { ((float*)all[t])[e] = o[row * 2 * N + column]; });
  }});
}
template<class T, int S, int SA, int SB, int A, int PA, int B, int PB, int N> inline void rows_by_rows(float (&d)[N], u64 a, u64 b) {
  for (int x = A - 1; x >= 0; x--)
    for (int y = (B < 3 - x ? B : 3 - x) - 1; y >= 0; y--) rows_by_rows<T, S, SA, SB, true>(d, a + x * PA, b + y * PB);
}
template<class T, int S, int N, int M> inline void weights_by_columns(float (&d)[N], u32 (&p)[M], u64 v, int parts, int bytes) {
  for (int y = parts - 1; y >= 0; y--) weights_by_columns<T, S>(d, p, v + y * bytes, 1);
}
#define STAGE_UNIT 1
template<int S, int SA, int SB, int A, int PA, int B, int PB, int N> inline void rows_by_rows_bf16(float (&d)[N], u64 a, u64 b) { rows_by_rows<bf16, S, SA, SB, A, PA, B, PB>(d, a, b); }
template<int S, int A, int B, bool ADD, int N> inline void rows_by_rows_bf16(float (&d)[N], u64 a, u64 b) { rows_by_rows<bf16, S, A, B, ADD>(d, a, b); }
template<int S, int A, int B, bool ADD, int N> inline void long_rows_by_rows_bf16(float (&d)[N], u64 a, u64 b) { rows_by_rows<bf16, S, A, B, ADD>(d, a, b); }
template<class T, int S, int SA, int SB, bool ADD, int N> inline void half_rows_by_rows(float (&d)[N], u64 a, u64 b, int half) {
  for (int k = half * S; k < (half + 1) * S; k += 2) {
    const u64 x = a + k / 4 * SA + k % 4 * 32, y = b + k / 4 * SB + k % 4 * 32;
    if (k == half * S && !ADD) rows_by_rows<T, 2, SA, SB, false>(d, x, y); else rows_by_rows<T, 2, SA, SB, true>(d, x, y);
  }
}
template<int S, int A, int B, bool ADD, int N> inline void half_rows_by_rows_bf16(float (&d)[N], u64 a, u64 b, int half) { half_rows_by_rows<bf16, S, A, B, ADD>(d, a, b, half); }
template<int S, int A, int B, bool ADD, int N> inline void half_rows_by_rows_f16(float (&d)[N], u64 a, u64 b, int half) { half_rows_by_rows<f16, S, A, B, ADD>(d, a, b, half); }
template<int S, int SA, int SB, int A, int PA, int B, int PB, int N> inline void rows_by_rows_f16(float (&d)[N], u64 a, u64 b) { rows_by_rows<f16, S, SA, SB, A, PA, B, PB>(d, a, b); }
template<int S, int A, int B, bool ADD, int N> inline void rows_by_rows_f16(float (&d)[N], u64 a, u64 b) { rows_by_rows<f16, S, A, B, ADD>(d, a, b); }
template<int S, int A, int B, bool ADD, int N> inline void long_rows_by_rows_f16(float (&d)[N], u64 a, u64 b) { rows_by_rows<f16, S, A, B, ADD>(d, a, b); }
template<int S, int N, int M> inline void weights_by_columns_bf16(float (&d)[N], u32 (&p)[M], u64 v, int parts, int bytes) { weights_by_columns<bf16, S>(d, p, v, parts, bytes); }
template<int S, int N, int M> inline void weights_by_columns_bf16(float (&d)[N], u32 (&p)[M], u64 v, int add) { weights_by_columns<bf16, S>(d, p, v, add); }
template<int S, int N, int M> inline void weights_by_columns_f16(float (&d)[N], u32 (&p)[M], u64 v, int parts, int bytes) { weights_by_columns<f16, S>(d, p, v, parts, bytes); }
template<int S, int N, int M> inline void weights_by_columns_f16(float (&d)[N], u32 (&p)[M], u64 v, int add) { weights_by_columns<f16, S>(d, p, v, add); }

// ---- numbers

inline float exp2_(float x) { return std::exp2(x); }
inline float log2_(float x) { return std::log2(x); }
inline float reciprocal(float x) { return 1.f / x; }
inline float __frcp_rn(float x) { return 1.f / x; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return 1.f / std::sqrt(x); }
inline float max_nan(float x, float y) { return x != x || y != y ? NAN : x > y ? x : y; }
inline float min_nan(float x, float y) { return x != x || y != y ? NAN : x < y ? x : y; }
inline u32 minus_bf16(u32 x, u32 y) {
  return pack_bf16(bf16_value((u16)x) - bf16_value((u16)y), bf16_value((u16)(x >> 16)) - bf16_value((u16)(y >> 16)));
}
inline u32 minus_f16(u32 x, u32 y) {
  return pack_f16(f16_value((u16)x) - f16_value((u16)y), f16_value((u16)(x >> 16)) - f16_value((u16)(y >> 16)));
}
inline u32 bytes_apart(u32 four, int k) { return (four >> 16 * k & 0xff) | (four >> 16 * k & 0xff00) << 8; }
inline uint2 make_uint2(u32 x, u32 y) { return uint2{x, y}; }
template<int N> inline void store_if(bool here, void* p, const u32 (&x)[N]) { if (here) memcpy(p, x, 4 * N); }
inline void store_pair(float* p, float x, float y) { p[0] = x; p[1] = y; }

// ---- running a block

inline std::function<void()> kernel_body;
inline void fiber_main() { threadIdx.x = self->thread; kernel_body(); self->over = true; swapcontext(&self->context, &scheduler); }
inline int run_blocks(int blocks, int threads, u64 seed, std::function<void()> body) {
  kernel_body = body;
  random_state = seed * 0x9E3779B97F4A7C15ull + 1;
  gridDim.x = blocks;
  const size_t size = 256 << 10;
  std::vector<char> stacks((size_t)threads * size);
  for (int b = 0; b < blocks; b++) {
    blockIdx.x = b;
    fibers.assign(threads, Fiber());
    warps.assign(threads / 32, Rendezvous());
    groups_meet.assign(threads / 128, Rendezvous());
    groups.assign(threads / 128, Group());
    leaving.assign(threads, {});
    unfenced.assign(threads, {});
    arriving.assign(threads, {});
    waited.assign(threads, {});
    asked.assign(threads, {});
    told.clear(); arrived.clear();
    block_meet = Rendezvous();
    barriers.clear(); named.clear(); copies.clear(); readers.clear();
    race = nullptr;
    memset(arena, 0xff, sizeof arena);
    for (int t = 0; t < threads; t++) {
      Fiber& f = fibers[t];
      f.thread = t;
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = &stacks[(size_t)t * size];
      f.context.uc_stack.ss_size = size;
      f.context.uc_link = &scheduler;
      makecontext(&f.context, fiber_main, 0);
    }
    int alive = threads;
    idle = 0;
    while (alive) {
      // warps in random order, threads of a warp in turn
      const int w = (int)draw(threads / 32);
      for (int t = 32 * w; t < 32 * w + 32; t++) {
        Fiber& f = fibers[t];
        if (f.over) continue;
        self = &f;
        swapcontext(&scheduler, &f.context);
        if (f.over) alive--;
      }
      now++;
      for (size_t k = 0; k < copies.size(); k++) {
        if (copies[k].due > now) continue;
        const Copy c = copies[k];
        copies.erase(copies.begin() + k--);
        deliver(c);
        idle = 0;
      }
      for (size_t k = 0; k < told.size(); k++) {
        if (told[k].due > now) continue;
        Told t = std::move(told[k]);
        told.erase(told.begin() + k--);
        deliver(t);
        idle = 0;
      }
      if (race) { printf("emulator: block %d: %s\n", b, race); fflush(stdout); return 2; }
      if (++idle > 200000) {
        printf("emulator: block %d hangs;", b);
        for (int t = 0; t < threads; t += 32) printf(" warp %d: %s", t / 32, fibers[t].over ? "over" : fibers[t].at);
        printf("\n"); fflush(stdout);
        return 1;
      }
    }
  }
  return 0;
}
