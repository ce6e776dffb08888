// Matrix products of bf16 by AMX, where the processor has it: tiles of 16 rows of 64 bytes, multiplied as wholes.
//
// A tile of the right-hand side holds pairs of neighbouring terms of a sum, as vectors of bf16 do (attention.cpp): what is
// packed for those is in order for tiles.

#pragma once

#include "vectors.h"

#if defined(__AMX_TILE__) && defined(__AMX_BF16__) && defined(__AVX512BF16__) && defined(__linux__)
#define HPD_TILES 1
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#define HPD_TILES 0
#endif

namespace {

// Rows of a tile, and 32-bit lanes of one of its rows.
constexpr int TILE = 16;

#if HPD_TILES

// Linux gives a process the registers when it asks. Asked once: all products of a process are to round alike.
inline bool has_tiles() {
  constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
  static const bool given = syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
  return given;
}

static_assert(LANES == TILE);

// For as long as it lives, this thread's tiles are whole ones, if they are wanted. (oneDNN shapes them as it needs them, in each
// of its calls.)
class Tiles {
 public:
  explicit Tiles(bool are_wanted) : are_here(are_wanted && has_tiles()) {
    if (are_here) reshape(TILE, TILE);
  }
  ~Tiles() {
    if (are_here) _tile_release();
  }
  Tiles(const Tiles&) = delete;

  // For rows that do not fill a block of two tiles: the tiles 0, 1 and 4 have `upper` rows from now on, 2, 3 and 5 `lower`.
  void reshape(int upper, int lower) {
    alignas(64) struct {
      uint8_t palette = 1, start_row = 0, reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shape;
    static_assert(sizeof shape == 64);
    for (int tile = 0; tile < 8; tile++) shape.row_bytes[tile] = 4 * TILE, shape.rows[tile] = TILE;
    for (int tile : {0, 1, 4}) shape.rows[tile] = uint8_t(upper);
    for (int tile : {2, 3, 5}) shape.rows[tile] = uint8_t(lower);
    __asm__ volatile("" : : "r"(&shape) : "memory");  // GCC 12 does not know that all of it is read
    _tile_loadconfig(&shape);
  }

 private:
  const bool are_here;
};

// Sums of TILE rows over `depth` lanes (whole tiles of them), for `VECTORS` vectors of columns. Arguments as `multiply` of
// attention.cpp has them; rows that there are not are computed from what is in memory.
template <int VECTORS>
inline void multiply_tiles(const bf16* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t b_step, int64_t depth,
                           float* out, int64_t out_stride) {
  // GCC does not know that tiles are loaded from memory: what was written is to be there.
  __asm__ volatile("" ::: "memory");
  _tile_zero(0);
  if constexpr (VECTORS > 1) _tile_zero(1);
  if constexpr (VECTORS > 2) _tile_zero(2);
  if constexpr (VECTORS > 3) _tile_zero(3);
  for (int64_t d = 0; d < depth; d += TILE) {
    const uint32_t* from = b + d * b_step;
    _tile_loadd(4, a + 2 * d, 2 * a_stride);
    _tile_loadd(5, from, 4 * b_step);
    _tile_dpbf16ps(0, 4, 5);
    if constexpr (VECTORS > 1) {
      _tile_loadd(6, from + b_stride, 4 * b_step);
      _tile_dpbf16ps(1, 4, 6);
    }
    if constexpr (VECTORS > 2) {
      _tile_loadd(5, from + 2 * b_stride, 4 * b_step);
      _tile_dpbf16ps(2, 4, 5);
    }
    if constexpr (VECTORS > 3) {
      _tile_loadd(6, from + 3 * b_stride, 4 * b_step);
      _tile_dpbf16ps(3, 4, 6);
    }
  }
  _tile_stored(0, out, 4 * out_stride);
  if constexpr (VECTORS > 1) _tile_stored(1, out + LANES, 4 * out_stride);
  if constexpr (VECTORS > 2) _tile_stored(2, out + 2 * LANES, 4 * out_stride);
  if constexpr (VECTORS > 3) _tile_stored(3, out + 3 * LANES, 4 * out_stride);
}

inline void multiply_tiles(const bf16* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t b_step, int64_t depth,
                           int64_t vectors, float* out, int64_t out_stride) {
  int64_t v = 0;
  for (; v + 4 <= vectors; v += 4)
    multiply_tiles<4>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
  switch (vectors - v) {
    case 3: return multiply_tiles<3>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
    case 2: return multiply_tiles<2>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
    case 1: return multiply_tiles<1>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
  }
}

#else

inline bool has_tiles() { return false; }
struct Tiles {
  explicit Tiles(bool) {}
};

#endif

}  // namespace
