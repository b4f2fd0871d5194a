// A multiprocessor with mma.sync on one CPU thread. Asynchronous copies arrive at once or as late as they may, at random.
#include "../hopper/emulate.h"

template<class T> inline T again(T x) { return x; }
#define THREAD threadIdx.x
inline int lane_number() { return threadIdx.x % 32; }

struct Late { u32 to; const void* from; int bytes; };
inline std::map<int, std::deque<std::vector<Late>>> late_copies;   // by thread, by group; the last group is open
inline int late_block = -1;
inline std::deque<std::vector<Late>>& my_late() {
  if (late_block != blockIdx.x) { late_copies.clear(); late_block = blockIdx.x; }
  auto& mine = late_copies[threadIdx.x];
  if (mine.empty()) mine.emplace_back();
  return mine;
}
inline void arrive_late(const Late& p) {
  if (p.to % 16 || (p.bytes && (u64)p.from % 16)) fail("a copy of 16 bytes is not aligned");
  memset(arena + p.to, 0, 16);
  if (p.bytes) memcpy(arena + p.to, p.from, p.bytes);
}
inline void copy_16(u32 to, const void* from, int bytes = 16) {
  const Late p{to, from, bytes};
  auto& mine = my_late();
  if (draw(2)) arrive_late(p); else mine.back().push_back(p);
}
inline void copies_commit() { my_late().emplace_back(); }
template<int PENDING> inline void copies_wait() {
  auto& mine = my_late();
  while ((int)mine.size() - 1 > PENDING) { for (auto& p : mine.front()) arrive_late(p); mine.pop_front(); }
}
inline void word_now(u32 a, u32 x) { memcpy(arena + a, &x, 4); }
inline void piece_now(u32 a, u32 x0, u32 x1, u32 x2, u32 x3) { const u32 x[4] = {x0, x1, x2, x3}; memcpy(arena + a, x, 16); }
#define shared_word word_now     // no bulk copy reads these
#define shared_piece piece_now
inline void pieces_now() { pieces_copied(); written_for_copies(); }
#define pieces_copied pieces_now
inline uint4 get_shared(u32 a) { uint4 x; memcpy(&x, arena + a, 16); return x; }

inline u16 shared_element(u32 a) { u16 x; memcpy(&x, arena + a, 2); return x; }
inline void matrices(u32 (&x)[4], u32 a) {
  const int lane = threadIdx.x % 32;
  const auto rows = meet(my_warp(), 32, lane, a, "matrices");
  for (int m = 0; m < 4; m++) memcpy(&x[m], arena + rows[8 * m + lane / 4] + 4 * (lane % 4), 4);
}
inline void matrices_columns(u32 (&x)[4], u32 a) {
  const int lane = threadIdx.x % 32;
  const auto rows = meet(my_warp(), 32, lane, a, "matrices_columns");
  for (int m = 0; m < 4; m++) {
    const int row = 8 * m + 2 * (lane % 4), at = 2 * (lane / 4);
    x[m] = shared_element((u32)rows[row] + at) | (u32)shared_element((u32)rows[row + 1] + at) << 16;
  }
}
struct Operands { u32 a[4], b[2]; };
template<class T> inline void product(T, float* d, const u32* a, u32 b0, u32 b1) {
  const Operands mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const auto all = meet(my_warp(), 32, lane, (u64)&mine, "product");
  const auto half = [](u32 x, int k) { return value_of<T>((u16)(k ? x >> 16 : x)); };
  for (int e = 0; e < 4; e++) {
    const int row = g + 8 * (e / 2), column = 2 * t + e % 2;
    for (int k = 0; k < 16; k++) {
      const auto& left = *(const Operands*)all[4 * (row % 8) + (k % 8) / 2];
      const auto& right = *(const Operands*)all[4 * column + (k % 8) / 2];
      d[e] += half(left.a[row / 8 + 2 * (k / 8)], k % 2) * half(right.b[k / 8], k % 2);
    }
  }
  meet(my_warp(), 32, lane, 0, "product");   // all have read
}
template<class T> inline void product_only(T t, float* d, const u32* a, u32 b0, u32 b1) {
  for (int e = 0; e < 4; e++) d[e] = 0.f;
  product(t, d, a, b0, b1);
}
