// The gradient of a linear layer's weight, by tiles: out = gradient^T x, a sum over tokens.
//
// Both matrices have tokens as rows, where tiles want them side by side: the gradient is transposed, x put in pairs of tokens. With
// torch, moving numbers takes several times as long as multiplying them.

#include <omp.h>

#include <algorithm>

#include "pairs.h"

namespace {

#if HPD_TILES

constexpr int64_t CACHED_BYTES = 640 << 10;  // of the transposed gradient, that stay in a core's second cache
constexpr int64_t MOST_ROWS = 256, COLUMNS = 4 * 2 * TILE;

struct WeightGradient {
  const bf16 *gradient, *x;  // [tokens, rows], [tokens, columns]; multiples of 16 and of 32
  bf16* out;                 // [rows, columns]
  bf16* across;              // [rows, depth], room for the transposed gradient; depth: tokens rounded up to 32
  uint32_t* pairs;           // [columns / 16, depth / 2, 16]
  int64_t tokens, rows, columns;
  int64_t depth() const { return ceil_div(tokens, 2 * TILE) * 2 * TILE; }
};

// 16 columns in pairs of tokens, 0 behind the last token.
void pairs_of_tokens(const bf16* from, int64_t tokens, int64_t size, int64_t depth, uint32_t* to) {
  as_depth(from, tokens, size, to);
  const int64_t done = ceil_div(tokens, 2) * TILE;
  std::fill(to + done, to + depth / 2 * TILE, 0u);
}

// Some rows of the product in some columns, whole blocks of them.
void multiply(const WeightGradient& w, int64_t row, int64_t rows, int64_t column, int64_t columns) {
  alignas(64) float sums[2 * MOST_ROWS * TILE];
  const int64_t depth = w.depth(), plane = rows * TILE;
  for (int64_t c = column; c < column + columns; c += 2 * TILE) {
    multiply_tiles(w.across + row * depth, depth, 2 * TILE, rows, w.pairs + c * depth / 2, TILE * depth / 2, depth / 2, 2, sums, plane,
                   false);
    __asm__ volatile("" ::: "memory");
    for (int64_t r = 0; r < rows; r++) {
      bf16* to = w.out + (row + r) * w.columns + c;
      put_vector(to, load<floats>(sums + r * TILE));
      put_vector(to + TILE, load<floats>(sums + plane + r * TILE));
    }
  }
}

// scratch: [threads, 16 * depth / 2]
void weight_gradient(const WeightGradient& w, uint32_t* scratch, int64_t threads) {
  const int64_t depth = w.depth();
  const int64_t most = std::clamp<int64_t>(CACHED_BYTES / int64_t(sizeof(bf16)) / depth / (2 * TILE) * 2 * TILE, 2 * TILE, MOST_ROWS);
  const int64_t row_parts = ceil_div(w.rows, most), column_parts = ceil_div(w.columns, COLUMNS);
#pragma omp parallel num_threads(threads)
  {
    Tiles tiles(true);
    uint32_t* own = scratch + omp_get_thread_num() * TILE * depth / 2;
#pragma omp for schedule(dynamic, 2) nowait
    for (int64_t row = 0; row < w.rows; row += TILE) {
      pairs_of_tokens(w.gradient + row, w.tokens, w.rows, depth, own);
      as_rows(own, depth, w.across + row * depth, depth);
    }
#pragma omp for schedule(dynamic, 2)
    for (int64_t column = 0; column < w.columns; column += TILE)
      pairs_of_tokens(w.x + column, w.tokens, w.columns, depth, w.pairs + column * depth / 2);
#pragma omp for schedule(dynamic)
    for (int64_t part = 0; part < row_parts * column_parts; part++) {
      const int64_t row = part / column_parts * most, column = part % column_parts * COLUMNS;
      multiply(w, row, std::min(most, w.rows - row), column, std::min(COLUMNS, w.columns - column));
    }
  }
}

#else

// Nobody asks: `hpd_has_tiles` says no.
struct WeightGradient {
  const bf16 *gradient, *x;
  bf16 *out, *across;
  uint32_t* pairs;
  int64_t tokens, rows, columns;
};
void weight_gradient(const WeightGradient&, uint32_t*, int64_t) {}

#endif

}  // namespace

// out [rows, columns] = gradient [tokens, rows] transposed times x [tokens, columns]; rows are a multiple of 16, columns of 32. With
// `depth` tokens rounded up to 32, `memory` has room for depth * (rows + columns + 16 * threads) bf16.
extern "C" void hpd_weight_gradient(const bf16* gradient, const bf16* x, bf16* out, bf16* memory, int64_t tokens, int64_t rows,
                                    int64_t columns, int64_t threads) {
  const int64_t depth = ceil_div(tokens, 32) * 32;
  auto* pairs = reinterpret_cast<uint32_t*>(memory + rows * depth);
  weight_gradient({gradient, x, out, memory, pairs, tokens, rows, columns}, pairs + columns * depth / 2, threads);
}
