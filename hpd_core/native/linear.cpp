// Linear layers of bf16 by AMX tiles, for weights that were packed for them (native/linear.py).
//
// A block is 32 rows times 32 columns: four tiles of sums, for which two tiles of rows and two of the weight are loaded. What
// limits a core is how fast these come. A block's columns stay in the nearest cache while all rows pass by (which are read by
// loads that say that they need not be kept); the next block's columns are fetched from far away meanwhile; and what is done with
// a block's sums is done between the products of the next one.
//
// A row's sums are added up in one order, whatever rows are beside it: it comes out bit for bit alike in any company.

#include <algorithm>

#include "scratch.h"
#include "tiles.h"
#include "vectors.h"

namespace {

#if HPD_TILES

thread_local Scratch hidden_scratch;

constexpr int BLOCK = 2 * TILE;      // rows, and columns, of a block
constexpr int DEPTH = 2 * TILE;      // terms of a sum in a tile
constexpr int64_t TILE_WORDS = TILE * TILE;
constexpr int64_t CACHED_ROWS = 256;  // of x, that are kept in a core's second cache while the weight passes by

// x [rows, depth] times a packed weight of `blocks` blocks of columns: of each block two tiles wide, and depth / DEPTH deep.
struct Product {
  const bf16* x;
  int64_t rows, depth;
  const uint32_t* weight;
  int64_t blocks;
};

// A block's sums, and how far they are done with. `finish(sums of a row, row, block)`.
template <typename Finish>
class Sums {
 public:
  explicit Sums(const Finish& finish) : finish(finish) {}
  float* begin(int64_t first_row, int64_t of_block, int count) {
    row = first_row, block = of_block, rows = count, done = 0;
    return numbers;
  }
  void finish_some(int count) {
    for (const int stop = std::min(rows, done + count); done < stop; done++) finish(numbers + done * BLOCK, row + done, block);
  }

 private:
  alignas(64) float numbers[BLOCK * BLOCK];
  const Finish& finish;
  int64_t row, block;
  int rows = 0, done = 0;
};

// The tiles 0 to 3: sums of a block. The columns at `next` are fetched, and the sums of the block before finished, meanwhile.
template <bool HAS_LOWER, typename Finish>
inline void multiply_block(const bf16* upper, const bf16* lower, int64_t stride, const uint32_t* left, const uint32_t* right,
                           int64_t steps, const uint32_t* next, int lines_per_step, Sums<Finish>& before, int rows_per_step) {
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (HAS_LOWER) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0; s < steps; s++) {
    _tile_loadd(6, left + s * TILE_WORDS, 4 * TILE);
    _tile_stream_loadd(4, upper + s * DEPTH, stride);
    _tile_loadd(7, right + s * TILE_WORDS, 4 * TILE);
    if constexpr (HAS_LOWER) _tile_stream_loadd(5, lower + s * DEPTH, stride);
    for (int line = 0; line < lines_per_step; line++) _mm_prefetch(next + line * TILE, _MM_HINT_T1);
    next += lines_per_step * TILE;
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (HAS_LOWER) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    before.finish_some(rows_per_step);
  }
}

// Rows `first` to `stop`, in the columns of the blocks `first_block` to `stop_block`.
template <typename Finish>
void multiply(const Product& p, int64_t first, int64_t stop, int64_t first_block, int64_t stop_block, const Finish& finish) {
  Tiles tiles(true);
  Sums<Finish> all_sums[2] = {Sums<Finish>(finish), Sums<Finish>(finish)};
  int current = 0;
  const int64_t steps = p.depth / DEPTH, stride = sizeof(bf16) * p.depth;
  const int rows_per_step = int(ceil_div(BLOCK, steps));
  // Of the same size, so that the last is not a small one.
  const int64_t parts = ceil_div(stop - first, CACHED_ROWS);
  const int64_t rows_at_once = ceil_div(ceil_div(stop - first, std::max<int64_t>(parts, 1)), BLOCK) * BLOCK;
  for (int64_t from = first; from < stop; from += rows_at_once) {
    const int64_t to = std::min(stop, from + rows_at_once);
    // A step reads 32 lines of the weight, and each row block reads them again: so many of the next ones in a step.
    const int lines_per_step = int(std::min<int64_t>(16, ceil_div(BLOCK, ceil_div(to - from, BLOCK))));
    for (int64_t block = first_block; block < stop_block; block++) {
      const uint32_t *left = p.weight + block * steps * 2 * TILE_WORDS, *right = left + steps * TILE_WORDS;
      const uint32_t* next = right + steps * TILE_WORDS;
      for (int64_t row = from; row < to; row += BLOCK) {
        const int rows = int(std::min<int64_t>(BLOCK, to - row));
        const bool has_lower = rows > TILE;
        if (rows < BLOCK) tiles.reshape(std::min(rows, TILE), has_lower ? rows - TILE : TILE);
        const bf16 *upper = p.x + row * p.depth, *lower = has_lower ? upper + TILE * p.depth : upper;
        Sums<Finish>& before = all_sums[1 - current];
        if (has_lower)
          multiply_block<true>(upper, lower, stride, left, right, steps, next, lines_per_step, before, rows_per_step);
        else
          multiply_block<false>(upper, lower, stride, left, right, steps, next, lines_per_step, before, rows_per_step);
        next += steps * lines_per_step * TILE;
        float* sums = all_sums[current].begin(row, block, rows);
        _tile_stored(0, sums, 4 * BLOCK);
        _tile_stored(1, sums + TILE, 4 * BLOCK);
        if (has_lower) {
          _tile_stored(2, sums + TILE * BLOCK, 4 * BLOCK);
          _tile_stored(3, sums + TILE * BLOCK + TILE, 4 * BLOCK);
        }
        // GCC does not know that tiles are stored to memory.
        __asm__ volatile("" ::: "memory");
        if (rows < BLOCK) tiles.reshape(TILE, TILE);
        current = 1 - current;
      }
    }
  }
  all_sums[1 - current].finish_some(BLOCK);
}

// What each thread multiplies, of so many rows and blocks of columns.
struct Cut {
  int64_t row_blocks, blocks, row_parts = 1, column_parts = 1;

  // As many threads have something to do, and the slowest of them is done soon: it multiplies its part, and has to get the rows and
  // columns of it from far away, which takes about twice as long as one product of them.
  Cut(int64_t rows, int64_t blocks, int64_t threads) : row_blocks(ceil_div(rows, BLOCK)), blocks(blocks) {
    int64_t least = INT64_MAX;
    for (int64_t parts = 1; parts <= std::min(threads, row_blocks); parts++) {
      const int64_t beside = std::min(threads / parts, blocks);
      const int64_t height = ceil_div(row_blocks, parts), width = ceil_div(blocks, beside);
      const int64_t cost = height * width + 2 * height + 2 * width;
      if (cost < least) least = cost, row_parts = parts, column_parts = beside;
    }
  }
};

// Within a parallel region: each thread its part.
template <typename Finish>
void multiply_all(const Product& p, const Cut& cut, const Finish& finish) {
#pragma omp for schedule(static)
  for (int64_t part = 0; part < cut.row_parts * cut.column_parts; part++) {
    const int64_t r = part / cut.column_parts, c = part % cut.column_parts;
    const int64_t first = cut.row_blocks * r / cut.row_parts * BLOCK, stop = cut.row_blocks * (r + 1) / cut.row_parts * BLOCK;
    multiply(p, first, std::min(stop, p.rows), p.blocks * c / cut.column_parts, p.blocks * (c + 1) / cut.column_parts, finish);
  }
}

// Of `out`, [rows, columns]: sums plus bias, where there is one.
struct AddBias {
  const bf16* bias;
  bf16* out;
  int64_t columns;
  void operator()(const float* sums, int64_t row, int64_t block) const {
    for (int64_t column = block * BLOCK; column < std::min((block + 1) * BLOCK, columns); column += LANES, sums += LANES) {
      const int64_t count = columns - column;
      const floats sum = load<floats>(sums);
      put(out + row * columns + column, bias ? sum + get(bias + column, count) : sum, count);
    }
  }
};

// Of `out`, [rows, columns]: silu(left half of the sums) * right half.
struct Gate {
  bf16* out;
  int64_t columns;
  void operator()(const float* sums, int64_t row, int64_t block) const {
    const int64_t column = block * TILE;
    put(out + row * columns + column, silu(load<floats>(sums)) * load<floats>(sums + TILE), columns - column);
  }
};

// out = x weight^T + bias
void linear(const Product& p, const AddBias& result, int64_t threads) {
  const Cut cut(p.rows, p.blocks, threads);
#pragma omp parallel num_threads(threads)
  multiply_all(p, cut, result);
}

// out = (silu(x gate^T) * (x up^T)) down^T; of a block of `gate_up` the left half are columns of the gate, the right half those of
// `up`. Returns whether there was memory for what is between the products.
bool gated_mlp(const Product& gate_up, int64_t hidden_size, const uint32_t* down, int64_t blocks, const AddBias& result,
               int64_t threads) {
  auto* hidden = reinterpret_cast<bf16*>(hidden_scratch.take(sizeof(bf16) * gate_up.rows * hidden_size));
  if (!hidden) return false;
  const Gate gate{hidden, hidden_size};
  const Product second{hidden, gate_up.rows, hidden_size, down, blocks};
  const Cut cut(gate_up.rows, gate_up.blocks, threads);
  Cut second_cut(second.rows, second.blocks, threads);
  // A thread has its own rows in its cache.
  if (cut.row_parts > 1) second_cut.row_parts = cut.row_parts, second_cut.column_parts = std::min(cut.column_parts, blocks);
#pragma omp parallel num_threads(threads)
  {
    multiply_all(gate_up, cut, gate);
    multiply_all(second, second_cut, result);
  }
  return true;
}

#else

// Nobody asks: `hpd_has_tiles` says no.
struct Product {
  const bf16* x;
  int64_t rows, depth;
  const uint32_t* weight;
  int64_t blocks;
};
struct AddBias {
  const bf16* bias;
  bf16* out;
  int64_t columns;
};
void linear(const Product&, const AddBias&, int64_t) {}
bool gated_mlp(const Product&, int64_t, const uint32_t*, int64_t, const AddBias&, int64_t) { return false; }

#endif

}  // namespace

extern "C" int hpd_has_tiles() { return has_tiles(); }
// x: [rows, depth]; weight: of `blocks` blocks of columns; bias: [columns] or null; out: [rows, columns].
extern "C" void hpd_linear(const bf16* x, int64_t rows, int64_t depth, const uint32_t* weight, int64_t blocks, const bf16* bias,
                           bf16* out, int64_t columns, int64_t threads) {
  linear({x, rows, depth, weight, blocks}, {bias, out, columns}, threads);
}
// Returns 0, or 1 where memory is missing.
extern "C" int hpd_gated_mlp(const bf16* x, int64_t rows, int64_t depth, const uint32_t* gate_up, int64_t gate_up_blocks,
                             int64_t hidden_size, const uint32_t* down, int64_t down_blocks, bf16* out, int64_t columns,
                             int64_t threads) {
  return gated_mlp({x, rows, depth, gate_up, gate_up_blocks}, hidden_size, down, down_blocks, {nullptr, out, columns}, threads) ? 0
                                                                                                                              : 1;
}
