// Matrices in the order in which tiles read the right-hand side of a product: pairs of neighbouring terms of a sum.

#pragma once

#include "tiles.h"

namespace {

#if HPD_TILES

// 16 words of `from`, `stride` words apart.
inline words picked(const void* from, int64_t stride) {
  return (words)_mm512_i32gather_epi32((__m512i)(NUMBERED * int32_t(stride)), from, 4);
}

// Two bf16 of each lane: `first` before `second` in memory.
inline words pairs_of(const bf16* first, const bf16* second) {
  return __builtin_convertvector(load<halves>(first), words) | __builtin_convertvector(load<halves>(second), words) << 16;
}

// To be multiplied by from the left: 16 columns of x [rows, size] -> [rows / 2, 16] pairs of rows.
inline void as_depth(const bf16* x, int64_t rows, int64_t size, uint32_t* to) {
  int64_t row = 0;
  for (; row + 1 < rows; row += 2, to += TILE) store(to, pairs_of(x + row * size, x + (row + 1) * size));
  if (row < rows) store(to, __builtin_convertvector(load<halves>(x + row * size), words));  // and 0 behind it
}

// Such pairs [rows / 2, 16] -> the 16 columns as rows, `stride` numbers apart. rows: a multiple of 32.
inline void as_rows(const uint32_t* pairs, int64_t rows, bf16* to, int64_t stride) {
  for (int64_t column = 0; column < TILE; column++)
    for (int64_t row = 0; row < rows; row += 2 * TILE)
      store(to + column * stride + row, picked(pairs + row / 2 * TILE + column, TILE));
}

#endif

}  // namespace
