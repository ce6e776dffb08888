// Linear layers of bf16 by AMX tiles, for weights that were packed for them (native/linear.py), and the choice of tokens from the
// sums of the last one.
//
// A block is 32 rows times 32 columns: four tiles of sums, for which two tiles of rows and two of the weight are loaded. What
// limits a core is how fast these come. A block's columns stay in the nearest cache while all rows pass by (which are read by
// loads that say that they need not be kept), and what is done with a block's sums is done between the products of the next one.
//
// A row's sums are added up in one order, whatever rows are beside it: it comes out bit for bit alike in any company.

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels.h"
#include "scratch.h"
#include "tiles.h"
#include "vectors.h"

namespace {

// x [rows, depth] times a packed weight of `blocks` blocks of columns: of each block two tiles wide, and depth / 32 deep.
struct Product {
  const bf16* x;
  int64_t rows, depth;
  const uint32_t* weight;
  int64_t blocks;
};

// Where a product goes, [rows, columns], and what is added to it: a bias, or null.
struct Result {
  const bf16* bias;
  bf16* out;
  int64_t columns;
};

#if HPD_TILES

thread_local Scratch hidden_scratch;
thread_local Scratch seen_scratch;

constexpr int BLOCK = 2 * TILE;      // rows, and columns, of a block
constexpr int DEPTH = 2 * TILE;      // terms of a sum in a tile
constexpr int64_t TILE_WORDS = TILE * TILE;
// Of the columns that tokens are chosen from.
constexpr int64_t STRETCHES = 16;
// Lower than any bf16 that is finite.
constexpr float LOWEST = -std::numeric_limits<float>::max(), INFINITE = std::numeric_limits<float>::infinity();
constexpr int64_t CACHED_BYTES = 640 << 10;  // of x, that stay in a core's second cache while the weight passes by

// A block's sums, which wait for what is to be done with them.
struct Sums {
  alignas(64) float numbers[BLOCK * BLOCK];
  int64_t row = 0, block = 0;
  int rows = 0;
};

// The tiles 0 to 3: sums of a block. The block before is finished meanwhile: `finish(sums of a row, row, block)`.
template <bool HAS_LOWER, typename Finish>
inline void multiply_block(const bf16* upper, const bf16* lower, int64_t stride, const uint32_t* left, const uint32_t* right,
                           int64_t steps, const Sums& before, const Finish& finish) {
  const int64_t rows = before.rows, rows_per_step = ceil_div(rows, steps);
  _tile_zero(0);
  _tile_zero(1);
  if constexpr (HAS_LOWER) {
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t s = 0, done = 0; s < steps; s++) {
    _tile_loadd(6, left + s * TILE_WORDS, 4 * TILE);
    _tile_stream_loadd(4, upper + s * DEPTH, stride);
    _tile_loadd(7, right + s * TILE_WORDS, 4 * TILE);
    if constexpr (HAS_LOWER) _tile_stream_loadd(5, lower + s * DEPTH, stride);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (HAS_LOWER) {
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
    for (const int64_t stop = std::min(rows, done + rows_per_step); done < stop; done++)
      finish(before.numbers + done * BLOCK, before.row + done, before.block);
  }
}

// Rows `first` to `stop`, in the columns of the blocks `first_block` to `stop_block`.
template <typename Finish>
void multiply(const Product& p, int64_t first, int64_t stop, int64_t first_block, int64_t stop_block, const Finish& finish) {
  Tiles tiles(true);
  Sums all_sums[2];
  int current = 0;
  const int64_t steps = p.depth / DEPTH, stride = sizeof(bf16) * p.depth;
  // Of the same size, so that the last is not a small one.
  const int64_t parts = std::max<int64_t>(1, ceil_div((stop - first) * stride, CACHED_BYTES));
  const int64_t rows_at_once = ceil_div(ceil_div(stop - first, parts), BLOCK) * BLOCK;
  for (int64_t from = first; from < stop; from += rows_at_once) {
    const int64_t to = std::min(stop, from + rows_at_once);
    for (int64_t block = first_block; block < stop_block; block++) {
      const uint32_t *left = p.weight + block * steps * 2 * TILE_WORDS, *right = left + steps * TILE_WORDS;
      for (int64_t row = from; row < to; row += BLOCK) {
        const int rows = int(std::min<int64_t>(BLOCK, to - row));
        const bool has_lower = rows > TILE;
        if (rows < BLOCK) tiles.reshape(std::min(rows, TILE), has_lower ? rows - TILE : TILE);
        const bf16* upper = p.x + row * p.depth;
        const Sums& before = all_sums[1 - current];
        if (has_lower)
          multiply_block<true>(upper, upper + TILE * p.depth, stride, left, right, steps, before, finish);
        else
          multiply_block<false>(upper, upper, stride, left, right, steps, before, finish);
        Sums& sums = all_sums[current];
        sums.row = row, sums.block = block, sums.rows = rows;
        _tile_stored(0, sums.numbers, 4 * BLOCK);
        _tile_stored(1, sums.numbers + TILE, 4 * BLOCK);
        if (has_lower) {
          _tile_stored(2, sums.numbers + TILE * BLOCK, 4 * BLOCK);
          _tile_stored(3, sums.numbers + TILE * BLOCK + TILE, 4 * BLOCK);
        }
        // GCC does not know that tiles are stored to memory.
        __asm__ volatile("" ::: "memory");
        if (rows < BLOCK) tiles.reshape(TILE, TILE);
        current = 1 - current;
      }
    }
  }
  const Sums& last = all_sums[1 - current];
  for (int row = 0; row < last.rows; row++) finish(last.numbers + row * BLOCK, last.row + row, last.block);
}

// Rows `first` to `stop` and blocks of columns `first_block` to `stop_block`.
struct Area {
  int64_t first, stop, first_block, stop_block;
};

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

  Area area(int64_t number, int64_t rows) const {
    const int64_t r = number / column_parts, c = number % column_parts;
    return {row_blocks * r / row_parts * BLOCK, std::min(row_blocks * (r + 1) / row_parts * BLOCK, rows), blocks * c / column_parts,
            blocks * (c + 1) / column_parts};
  }
};

// Within a parallel region: each thread its part.
template <typename Finish>
void multiply_all(const Product& p, const Cut& cut, const Finish& finish) {
#pragma omp for schedule(static)
  for (int64_t number = 0; number < cut.row_parts * cut.column_parts; number++) {
    const Area area = cut.area(number, p.rows);
    multiply(p, area.first, area.stop, area.first_block, area.stop_block, finish);
  }
}

// A row's sums of a block, of whose columns there are `count`, plus bias, where there is one.
inline std::pair<floats, floats> plus_bias(const float* sums, const bf16* bias, int64_t column, int64_t count) {
  floats left = load<floats>(sums), right = load<floats>(sums + TILE);
  if (bias) {
    left += get(bias + column, count);
    if (count > TILE) right += get(bias + column + TILE, count - TILE);
  }
  return {left, right};
}

// That is the product.
struct AddBias : Result {
  void operator()(const float* sums, int64_t row, int64_t block) const {
    const int64_t column = block * BLOCK, count = columns - column;
    const auto [left, right] = plus_bias(sums, bias, column, count);
    bf16* to = out + row * columns + column;
    if (count >= BLOCK) return store(to, (words)_mm512_cvtne2ps_pbh((__m512)right, (__m512)left));
    put(to, left, count);
    if (count > TILE) put(to + TILE, right, count - TILE);
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
void linear(const Product& p, const Result& result, int64_t threads) {
  const Cut cut(p.rows, p.blocks, threads);
#pragma omp parallel num_threads(threads)
  multiply_all(p, cut, AddBias{result});
}

// out = (silu(x gate^T) * (x up^T)) down^T; of a block of `gate_up` the left half are columns of the gate, the right half those of
// `up`. Returns whether there was memory for what is between the products.
bool gated_mlp(const Product& gate_up, int64_t hidden_size, const uint32_t* down, int64_t blocks, const Result& result,
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
    multiply_all(second, second_cut, AddBias{result});
  }
  return true;
}

// Of a row's sums what has been seen so far, each lane of its own columns: the highest (the first of equals), where it was, and the
// sum of e^(sum - highest).
struct alignas(64) Seen {
  float highest[TILE];
  int32_t column[TILE];
  float sum[TILE];
};

// Sums plus bias, rounded as `AddBias` does it, and forgotten but for what is `Seen` of them.
struct Choose {
  const bf16* bias;
  int64_t columns;
  Seen* seen;  // [rows]
  void operator()(const float* sums, int64_t row, int64_t block) const {
    const int64_t column = block * BLOCK, count = columns - column;
    auto [left, right] = plus_bias(sums, bias, column, count);
    const words pairs = (words)_mm512_cvtne2ps_pbh((__m512)right, (__m512)left);
    left = widened(_mm512_castsi512_si256((__m512i)pairs)), right = widened(_mm512_extracti64x4_epi64((__m512i)pairs, 1));
    if (count < BLOCK) {
      const floats nothing = spread(-INFINITE);
      left = NUMBERED < int32_t(count) ? left : nothing;
      right = NUMBERED + TILE < int32_t(count) ? right : nothing;
    }
    Seen& here = seen[row];
    floats highest = load<floats>(here.highest), sum = load<floats>(here.sum);
    const ints is_right = (right > left) | (left != left);
    const floats best = is_right ? right : left;
    const __mmask16 is_more = _mm512_cmp_ps_mask((__m512)best, (__m512)highest, _CMP_GT_OQ);
    if (is_more) {
      const ints place = NUMBERED + int32_t(column) + (is_right & TILE);
      _mm512_mask_storeu_epi32(here.column, is_more, (__m512i)place);
      const floats before = highest;
      highest = (floats)_mm512_mask_mov_ps((__m512)highest, is_more, (__m512)best);
      sum *= exponential(before - highest);
      store(here.highest, highest);
    }
    store(here.sum, sum + exponential(left - highest) + exponential(right - highest));
  }
  static floats widened(__m256i halves) { return (floats)_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16); }
};

// Of each row of x weight^T + bias the likeliest column (the first of equals), what is there, and log(sum(e^column)).
//
// Columns are seen in stretches that are always the same, whoever is beside a row, and however many threads there are: the
// order in which numbers are added up decides the last bits of their sum.
bool choose(const Product& p, const bf16* bias, int64_t columns, int64_t* tokens, float* scores, float* normalizers,
            int64_t threads) {
  if (!p.rows) return true;
  const int64_t stretches = std::min(p.blocks, STRETCHES);
  const Cut cut(p.rows, stretches, threads);
  auto* seen = reinterpret_cast<Seen*>(seen_scratch.take(sizeof(Seen) * p.rows * stretches));
  if (!seen) return false;
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t number = 0; number < cut.row_parts * cut.column_parts; number++) {
      const Area area = cut.area(number, p.rows);
      for (int64_t stretch = area.first_block; stretch < area.stop_block; stretch++) {
        const Choose look{bias, columns, seen + stretch * p.rows};
        for (int64_t row = area.first; row < area.stop; row++) {
          store(look.seen[row].highest, spread(LOWEST));
          store(look.seen[row].column, ints{});
          store(look.seen[row].sum, floats{});
        }
        multiply(p, area.first, area.stop, p.blocks * stretch / stretches, p.blocks * (stretch + 1) / stretches, look);
      }
    }
#pragma omp for schedule(static)
    for (int64_t row = 0; row < p.rows; row++) {
      const Seen* of_row = seen + row;
      floats highest = spread(LOWEST), sum{};
      ints column{};
      for (int64_t stretch = 0; stretch < stretches; stretch++) {
        const floats there = load<floats>(of_row[stretch * p.rows].highest);
        const ints is_more = there > highest;
        highest = is_more ? there : highest;
        column = is_more ? load<ints>(of_row[stretch * p.rows].column) : column;
      }
      const float most = highest_of(highest);
      for (int64_t stretch = 0; stretch < stretches; stretch++) {
        const Seen& one = of_row[stretch * p.rows];
        sum += load<floats>(one.sum) * exponential(load<floats>(one.highest) - most);
      }
      int32_t likeliest = INT32_MAX;
      for (int lane = 0; lane < TILE; lane++)
        if (highest[lane] == most) likeliest = std::min(likeliest, column[lane]);
      tokens[row] = likeliest;
      scores[row] = most == LOWEST ? -INFINITE : most;  // as it is where nothing is finite
      normalizers[row] = scores[row] + std::log(sum_of(sum));
    }
  }
  return true;
}

#else

// Nobody asks: `hpd_has_tiles` says no.
bool choose(const Product&, const bf16*, int64_t, int64_t*, float*, float*, int64_t) { return false; }
void linear(const Product&, const Result&, int64_t) {}
bool gated_mlp(const Product&, int64_t, const uint32_t*, int64_t, const Result&, int64_t) { return false; }

#endif

}  // namespace

extern "C" int hpd_has_tiles() { return has_tiles(); }
extern "C" void hpd_linear(const bf16* x, int64_t rows, int64_t depth, const uint32_t* weight, int64_t blocks, const bf16* bias,
                           bf16* out, int64_t columns, int64_t threads) {
  linear({x, rows, depth, weight, blocks}, {bias, out, columns}, threads);
}
extern "C" int hpd_gated_mlp(const bf16* x, int64_t rows, int64_t depth, const uint32_t* gate_up, int64_t gate_up_blocks,
                             int64_t hidden_size, const uint32_t* down, int64_t down_blocks, bf16* out, int64_t columns,
                             int64_t threads) {
  return gated_mlp({x, rows, depth, gate_up, gate_up_blocks}, hidden_size, down, down_blocks, {nullptr, out, columns}, threads) ? 0
                                                                                                                              : 1;
}
// Of each row of x weight^T + bias the likeliest column, what is there, and log(sum(e^column)). Returns 0, or 1 where memory is missing.
extern "C" int hpd_choose_by_tiles(const bf16* x, int64_t rows, int64_t depth, const uint32_t* weight, int64_t blocks, const bf16* bias,
                                   int64_t columns, int64_t* tokens, float* scores, float* normalizers, int64_t threads) {
  return choose({x, rows, depth, weight, blocks}, bias, columns, tokens, scores, normalizers, threads) ? 0 : 1;
}
