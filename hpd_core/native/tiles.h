// Matrix products of bf16 by AMX, where the processor has it: tiles of 16 rows of 64 bytes, multiplied as wholes.
//
// A tile of the right-hand side holds pairs of neighbouring terms of a sum, as vectors of bf16 do (attention.cpp): what is made
// for those is in order for tiles.

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

// Sums of one or two tiles of rows over `depth` lanes (whole tiles of them), for one or two vectors of TILE words; added to what
// is there, if they are to be. Arguments as `multiply` of attention.cpp has them.
template <int ROWS, int VECTORS>
inline void multiply_tiles(const bf16* a, int64_t a_row, int64_t a_step, const uint32_t* b, int64_t b_plane, int64_t depth,
                           float* out, int64_t out_plane, bool adds) {
  // GCC does not know that tiles are loaded from memory: what was written is to be there.
  __asm__ volatile("" ::: "memory");
  float *const lower = out + TILE * TILE, *const right = out + out_plane, *const lower_right = lower + out_plane;
  if (adds) {
    _tile_loadd(0, out, 4 * TILE);
    if constexpr (VECTORS > 1) _tile_loadd(1, right, 4 * TILE);
    if constexpr (ROWS > 1) _tile_loadd(2, lower, 4 * TILE);
    if constexpr (ROWS > 1 && VECTORS > 1) _tile_loadd(3, lower_right, 4 * TILE);
  } else {
    _tile_zero(0);
    if constexpr (VECTORS > 1) _tile_zero(1);
    if constexpr (ROWS > 1) _tile_zero(2);
    if constexpr (ROWS > 1 && VECTORS > 1) _tile_zero(3);
  }
  for (int64_t d = 0; d < depth; d += TILE, a += a_step) {
    _tile_loadd(4, a, 2 * a_row);
    _tile_loadd(6, b + d * TILE, 4 * TILE);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (VECTORS > 1) {
      _tile_loadd(7, b + b_plane + d * TILE, 4 * TILE);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (ROWS > 1) {
      _tile_loadd(5, a + TILE * a_row, 2 * a_row);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (ROWS > 1 && VECTORS > 1) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 4 * TILE);
  if constexpr (VECTORS > 1) _tile_stored(1, right, 4 * TILE);
  if constexpr (ROWS > 1) _tile_stored(2, lower, 4 * TILE);
  if constexpr (ROWS > 1 && VECTORS > 1) _tile_stored(3, lower_right, 4 * TILE);
}

inline void multiply_tiles(const bf16* a, int64_t a_row, int64_t a_step, int64_t rows, const uint32_t* b, int64_t b_plane,
                           int64_t depth, int vectors, float* out, int64_t out_plane, bool adds) {
  const auto two = vectors > 1 ? multiply_tiles<2, 2> : multiply_tiles<2, 1>;
  const auto one = vectors > 1 ? multiply_tiles<1, 2> : multiply_tiles<1, 1>;
  int64_t r = 0;
  for (; r + 2 * TILE <= rows; r += 2 * TILE) two(a + r * a_row, a_row, a_step, b, b_plane, depth, out + r * TILE, out_plane, adds);
  if (r < rows) one(a + r * a_row, a_row, a_step, b, b_plane, depth, out + r * TILE, out_plane, adds);
}

#else

inline bool has_tiles() { return false; }
struct Tiles {
  explicit Tiles(bool) {}
};

#endif

}  // namespace
