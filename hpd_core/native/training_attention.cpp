// Attention while a model trains, by tiles: forward, and backward from what the forward has kept of it.
//
// A problem is an example's tokens in one head of keys: its query rows (a token's heads that share keys stand one behind the other)
// against a prefix that examples share and their own tokens. Both are stretches of the packed row, so that nothing is padded, and
// nothing that nobody sees is multiplied. A thread does a problem from end to end: all of it stays in its second cache. What
// examples add to the gradient of their prefix is kept apart and added up behind them, in the same order for any number of threads.

#include <algorithm>
#include <cmath>
#include <limits>

#include "pairs.h"
#include "scratch.h"

// native/training_attention.py (Python: training/native_attention.py) has the same fields in the same order.
struct TrainedAttention {
  int64_t num_problems, num_kv_heads, group, key_size, value_size;  // sizes: multiples of 32
  int64_t prefix;                                                   // tokens that are shared
  double scale;
  const int64_t *starts, *counts, *shared;  // [problems]: own tokens, and how many of the prefix are before them
  const uint8_t* const* seen;               // [problems]: [count, seen_rows[problem]], 0 where a row does not see a column
  const int64_t* seen_rows;                 // the problem's columns rounded up to 32, or more
  const void *q, *k, *v;                    // [T, H, D], [T, H_kv, D], [T, H_kv, D_v]
  void* out;                                // [T, H, D_v]
  float* normalizers;                       // [T, H]: log2(sum(2^score)) of each row
  const void* out_gradient;                 // as `out`; the rest as what it is a gradient of
  void *q_gradient, *k_gradient, *v_gradient;
  float *k_parts, *v_parts;  // [problems, prefix, H_kv, D or D_v]
  int64_t threads;
};

namespace {

#if HPD_TILES

using T = TrainedAttention;

constexpr int64_t BLOCK = 2 * TILE;  // rows and columns that are multiplied together
constexpr int64_t FORWARD_ROWS = 2 * BLOCK, BACKWARD_ROWS = 8 * BLOCK;
constexpr float LOG2_E = 1.44269504088896341f;

thread_local Scratch training_scratch;

inline int64_t whole(int64_t count) { return ceil_div(count, BLOCK) * BLOCK; }

// Pieces of a scratch, each at a cache line.
class Pieces {
 public:
  explicit Pieces(char* memory) : memory_(memory) {}
  template <typename N>
  N* take(int64_t count) {
    N* piece = reinterpret_cast<N*>(memory_ + taken_);
    taken_ += ceil_div(count * int64_t(sizeof(N)), 64) * 64;
    return piece;
  }
  int64_t taken() const { return taken_; }

 private:
  char* memory_;
  int64_t taken_ = 0;
};

// One problem's numbers, and which rows of the packed row they are.
struct Task {
  const T& p;
  int64_t number, head;
  int64_t tokens = p.counts[number], start = p.starts[number], shared = p.shared[number];
  int64_t rows = tokens * p.group, all_rows = whole(rows);
  int64_t columns = shared + tokens, all_columns = whole(columns);
  int64_t num_heads = p.num_kv_heads * p.group;

  int64_t column_token(int64_t column) const { return column < shared ? column : start + column - shared; }
  // Of [T, H]: where a query row is.
  int64_t row_place(int64_t row) const { return (start + row / p.group) * num_heads + head * p.group + row % p.group; }
  const uint8_t* seen(int64_t token) const { return p.seen[number] + token * p.seen_rows[number]; }
};

// Keys or values of a head, [all_columns, size], 0 behind the last.
void gather_columns(const Task& t, const bf16* from, int64_t size, bf16* to) {
  for (int64_t column = 0; column < t.columns; column++)
    std::memcpy(to + column * size, from + (t.column_token(column) * t.p.num_kv_heads + t.head) * size, size * sizeof(bf16));
  std::memset(to + t.columns * size, 0, (t.all_columns - t.columns) * size * sizeof(bf16));
}

// Query rows, [all_rows, size], 0 behind the last.
void gather_rows(const Task& t, const bf16* from, int64_t size, bf16* to) {
  for (int64_t token = 0; token < t.tokens; token++)
    std::memcpy(to + token * t.p.group * size, from + t.row_place(token * t.p.group) * size, t.p.group * size * sizeof(bf16));
  std::memset(to + t.rows * size, 0, (t.all_rows - t.rows) * size * sizeof(bf16));
}

// As the right-hand side of a product with x^T: x [rows, size] -> [rows / 16, size / 2, 16] pairs of neighbours.
void as_columns(const bf16* x, int64_t rows, int64_t size, uint32_t* to) {
  const auto* pairs = reinterpret_cast<const uint32_t*>(x);
  for (int64_t row = 0; row < rows; row += TILE)
    for (int64_t pair = 0; pair < size / 2; pair++, to += TILE) store(to, picked(pairs + row * size / 2 + pair, size / 2));
}

// As the right-hand side of a product with x: x [rows, size] -> [size / 16, rows / 2, 16] pairs of rows.
void as_depth_of_all(const bf16* x, int64_t rows, int64_t size, uint32_t* to) {
  for (int64_t at = 0; at < size; at += TILE) as_depth(x + at, rows, size, to + at * rows / 2);
}

// x [rows, size] -> x^T [size, rows]; `pairs`: room for 16 columns.
void transpose(const bf16* x, int64_t rows, int64_t size, uint32_t* pairs, bf16* to) {
  for (int64_t at = 0; at < size; at += TILE) {
    as_depth(x + at, rows, size, pairs);
    as_rows(pairs, rows, to + at * rows, rows);
  }
}

// A stretch of rows, whole blocks of them.
struct Range {
  int64_t first, stop;
  bool is_empty() const { return first >= stop; }
};

// Which of the rows `first` to `stop` see any of the columns of a block. Relative to `first`.
Range who_sees(const Task& t, int64_t first, int64_t stop, int64_t column) {
  int64_t lowest = -1, highest = -1;
  const int64_t last = std::min(stop, t.rows);
  for (int64_t token = first / t.p.group; token * t.p.group < last; token++) {
    const __m256i seen = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(t.seen(token) + column));
    if (_mm256_testz_si256(seen, seen)) continue;
    if (lowest < 0) lowest = token;
    highest = token;
  }
  if (lowest < 0) return {0, 0};
  const int64_t from = std::max(lowest * t.p.group - first, int64_t(0)) / BLOCK * BLOCK;
  return {from, std::min(whole((highest + 1) * t.p.group - first), stop - first)};
}

inline __mmask16 seen_of(const uint8_t* seen) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(seen));
  return _mm_test_epi8_mask(bytes, bytes);
}

inline floats only(__mmask16 mask, floats x) { return (floats)_mm512_maskz_mov_ps(mask, (__m512)x); }

// The softmax of one row, not yet divided by its sum. scores: [columns / 16] planes. Returns the sum and log2 of it all.
std::pair<float, float> softmax(const float* scores, int64_t plane, const uint8_t* seen, int64_t columns, float scale, bf16* out) {
  floats most = spread(-std::numeric_limits<float>::max());
  for (int64_t c = 0; c < columns; c += TILE)
    most = (floats)_mm512_mask_max_ps((__m512)most, seen_of(seen + c), (__m512)most, (__m512)load<floats>(scores + c / TILE * plane));
  const float highest = highest_of(most) * scale;
  floats sum{};
  for (int64_t c = 0; c < columns; c += TILE) {
    floats weight{};
    if (const __mmask16 mask = seen_of(seen + c))
      weight = only(mask, rough_power_of_two(load<floats>(scores + c / TILE * plane) * scale - highest));
    sum += weight;
    put_vector(out + c, weight);
  }
  const float total = sum_of(sum);
  return {total, highest + std::log2(total)};
}

void forward(const Task& t, Pieces pieces) {
  const int64_t key_size = t.p.key_size, value_size = t.p.value_size, columns = t.all_columns;
  auto* gathered = pieces.take<bf16>(columns * std::max(key_size, value_size));
  auto* q = pieces.take<bf16>(t.all_rows * key_size);
  auto* keys = pieces.take<uint32_t>(columns * key_size / 2);
  auto* values = pieces.take<uint32_t>(columns * value_size / 2);
  auto* scores = pieces.take<float>(FORWARD_ROWS * columns);
  auto* weights = pieces.take<bf16>(FORWARD_ROWS * columns);
  auto* sums = pieces.take<float>(FORWARD_ROWS * value_size);
  gather_columns(t, static_cast<const bf16*>(t.p.k), key_size, gathered);
  as_columns(gathered, columns, key_size, keys);
  gather_columns(t, static_cast<const bf16*>(t.p.v), value_size, gathered);
  as_depth_of_all(gathered, columns, value_size, values);
  gather_rows(t, static_cast<const bf16*>(t.p.q), key_size, q);
  const float scale = float(t.p.scale) * LOG2_E;
  constexpr int64_t PLANE = FORWARD_ROWS * TILE;
  for (int64_t first = 0; first < t.all_rows; first += FORWARD_ROWS) {
    const int64_t stop = std::min(first + FORWARD_ROWS, t.all_rows);
    for (int64_t c = 0; c < columns; c += BLOCK) {
      const Range range = who_sees(t, first, stop, c);
      if (range.is_empty()) continue;
      multiply_tiles(q + (first + range.first) * key_size, key_size, BLOCK, range.stop - range.first, keys + c * key_size / 2,
                     TILE * key_size / 2, key_size / 2, 2, scores + c / TILE * PLANE + range.first * TILE, PLANE, false);
    }
    __asm__ volatile("" ::: "memory");
    float inverse[FORWARD_ROWS];
    const int64_t last = std::min(stop, t.rows);
    for (int64_t row = first; row < last; row++) {
      const auto [sum, normalizer] = softmax(scores + (row - first) * TILE, PLANE, t.seen(row / t.p.group), columns, scale,
                                             weights + (row - first) * columns);
      inverse[row - first] = sum > 0 ? 1.0f / sum : 0.0f;
      t.p.normalizers[t.row_place(row)] = normalizer;
    }
    for (int64_t d = 0; d < value_size; d += BLOCK)
      multiply_tiles(weights, columns, BLOCK, stop - first, values + d * columns / 2, TILE * columns / 2, columns / 2, 2,
                     sums + d / TILE * PLANE, PLANE, false);
    __asm__ volatile("" ::: "memory");
    for (int64_t row = first; row < last; row++) {
      bf16* out = static_cast<bf16*>(t.p.out) + t.row_place(row) * value_size;
      for (int64_t d = 0; d < value_size; d += TILE)
        put_vector(out + d, load<floats>(sums + d / TILE * PLANE + (row - first) * TILE) * inverse[row - first]);
    }
  }
}

// What the backward has of a problem.
struct Backward {
  const Task& t;
  bf16 *gathered, *q, *out_gradient, *q_across, *out_across;
  uint32_t *keys, *values, *keys_in_depth, *pairs;
  float *normalizers, *deltas;  // [all_rows]; delta: the sum of out * its gradient
  float *scores, *gradients;    // [2, BACKWARD_ROWS, 16]
  uint32_t *weight_pairs, *score_pairs;
  bf16* score_gradients;  // [BACKWARD_ROWS, columns]
  float *q_sums, *k_sums, *v_sums;  // [D / 16, BACKWARD_ROWS, 16]; [columns / 16, D or D_v, 16]

  Backward(const Task& task, Pieces& pieces) : t(task) {
    const int64_t key_size = t.p.key_size, value_size = t.p.value_size, columns = t.all_columns, rows = t.all_rows;
    const int64_t larger = std::max(key_size, value_size);
    gathered = pieces.take<bf16>(std::max(columns, rows) * larger);
    q = pieces.take<bf16>(rows * key_size);
    out_gradient = pieces.take<bf16>(rows * value_size);
    q_across = pieces.take<bf16>(rows * key_size);
    out_across = pieces.take<bf16>(rows * value_size);
    keys = pieces.take<uint32_t>(columns * key_size / 2);
    values = pieces.take<uint32_t>(columns * value_size / 2);
    keys_in_depth = pieces.take<uint32_t>(columns * key_size / 2);
    pairs = pieces.take<uint32_t>(rows * TILE / 2);
    normalizers = pieces.take<float>(rows);
    deltas = pieces.take<float>(rows);
    scores = pieces.take<float>(2 * BACKWARD_ROWS * TILE);
    gradients = pieces.take<float>(2 * BACKWARD_ROWS * TILE);
    weight_pairs = pieces.take<uint32_t>(BACKWARD_ROWS * TILE);
    score_pairs = pieces.take<uint32_t>(BACKWARD_ROWS * TILE);
    score_gradients = pieces.take<bf16>(BACKWARD_ROWS * columns);
    q_sums = pieces.take<float>(BACKWARD_ROWS * key_size);
    k_sums = pieces.take<float>(columns * key_size);
    v_sums = pieces.take<float>(columns * value_size);
  }

  void prepare() const {
    const int64_t key_size = t.p.key_size, value_size = t.p.value_size, columns = t.all_columns, rows = t.all_rows;
    gather_columns(t, static_cast<const bf16*>(t.p.k), key_size, gathered);
    as_columns(gathered, columns, key_size, keys);
    as_depth_of_all(gathered, columns, key_size, keys_in_depth);
    gather_columns(t, static_cast<const bf16*>(t.p.v), value_size, gathered);
    as_columns(gathered, columns, value_size, values);
    gather_rows(t, static_cast<const bf16*>(t.p.q), key_size, q);
    transpose(q, rows, key_size, pairs, q_across);
    gather_rows(t, static_cast<const bf16*>(t.p.out_gradient), value_size, out_gradient);
    transpose(out_gradient, rows, value_size, pairs, out_across);
    for (int64_t row = 0; row < t.rows; row++) {
      const bf16 *out = static_cast<const bf16*>(t.p.out) + t.row_place(row) * value_size, *gradient = out_gradient + row * value_size;
      floats sum{};
      for (int64_t d = 0; d < value_size; d += TILE) sum += get_vector(out + d) * get_vector(gradient + d);
      deltas[row] = sum_of(sum);
      normalizers[row] = t.p.normalizers[t.row_place(row)];
    }
    std::memset(k_sums, 0, columns * key_size * sizeof(float));
    std::memset(v_sums, 0, columns * value_size * sizeof(float));
  }

  // Two rows' weights and gradients of scores (to be multiplied by the scale), in a block of columns.
  void differentiate(int64_t first, int64_t row, int64_t column, float scale) const {
    const int64_t at = row - first;
    for (int64_t plane = 0; plane < 2; plane++) {
      floats weight[2], gradient[2];
      for (int64_t i = 0; i < 2; i++) {
        const int64_t place = (plane * BACKWARD_ROWS + at + i) * TILE;
        const __mmask16 mask = row + i < t.rows ? seen_of(t.seen((row + i) / t.p.group) + column + plane * TILE) : 0;
        weight[i] = gradient[i] = floats{};
        if (mask) {
          weight[i] = only(mask, rough_power_of_two(load<floats>(scores + place) * scale - normalizers[row + i]));
          gradient[i] = weight[i] * (load<floats>(gradients + place) - deltas[row + i]);
        }
        put_vector(score_gradients + (at + i) * t.all_columns + column + plane * TILE, gradient[i]);
      }
      const int64_t pair = (plane * BACKWARD_ROWS + at) / 2 * TILE;
      store(weight_pairs + pair, (rounded(weight[0]) >> 16) | (rounded(weight[1]) & 0xffff0000u));
      store(score_pairs + pair, (rounded(gradient[0]) >> 16) | (rounded(gradient[1]) & 0xffff0000u));
    }
  }

  // What the rows of a range add to the gradients of a block of columns.
  void add_columns(int64_t first, Range range, int64_t column) const {
    const int64_t key_size = t.p.key_size, value_size = t.p.value_size;
    const int64_t depth = (range.stop - range.first) / 2, plane = BACKWARD_ROWS / 2 * TILE, from = range.first / 2 * TILE;
    multiply_tiles(out_across + first + range.first, t.all_rows, BLOCK, value_size, weight_pairs + from, plane, depth, 2,
                   v_sums + column * value_size, TILE * value_size, true);
    multiply_tiles(q_across + first + range.first, t.all_rows, BLOCK, key_size, score_pairs + from, plane, depth, 2,
                   k_sums + column * key_size, TILE * key_size, true);
  }

  void rows(int64_t first, int64_t stop) const {
    const int64_t key_size = t.p.key_size, value_size = t.p.value_size, columns = t.all_columns;
    const float scale = float(t.p.scale) * LOG2_E;
    constexpr int64_t PLANE = BACKWARD_ROWS * TILE;
    std::memset(score_gradients, 0, (stop - first) * columns * sizeof(bf16));
    for (int64_t c = 0; c < columns; c += BLOCK) {
      const Range range = who_sees(t, first, stop, c);
      if (range.is_empty()) continue;
      const int64_t from = first + range.first, count = range.stop - range.first, place = range.first * TILE;
      multiply_tiles(q + from * key_size, key_size, BLOCK, count, keys + c * key_size / 2, TILE * key_size / 2, key_size / 2, 2,
                     scores + place, PLANE, false);
      multiply_tiles(out_gradient + from * value_size, value_size, BLOCK, count, values + c * value_size / 2, TILE * value_size / 2,
                     value_size / 2, 2, gradients + place, PLANE, false);
      __asm__ volatile("" ::: "memory");
      for (int64_t row = from; row < from + count; row += 2) differentiate(first, row, c, scale);
      add_columns(first, range, c);
    }
    for (int64_t d = 0; d < key_size; d += BLOCK)
      multiply_tiles(score_gradients, columns, BLOCK, stop - first, keys_in_depth + d * columns / 2, TILE * columns / 2, columns / 2,
                     2, q_sums + d / TILE * PLANE, PLANE, false);
    __asm__ volatile("" ::: "memory");
    for (int64_t row = first; row < std::min(stop, t.rows); row++) {
      bf16* to = static_cast<bf16*>(t.p.q_gradient) + t.row_place(row) * key_size;
      for (int64_t d = 0; d < key_size; d += TILE)
        put_vector(to + d, load<floats>(q_sums + d / TILE * PLANE + (row - first) * TILE) * float(t.p.scale));
    }
  }

  // sums: [columns / 16, size, 16]. Those of the prefix go to the problem's part.
  void write_columns(const float* sums, int64_t size, float scale, float* parts, bf16* gradient) const {
    for (int64_t column = 0; column < t.columns; column++) {
      const int64_t token = t.column_token(column);
      const float* from = sums + column / TILE * size * TILE + column % TILE;
      const int64_t heads = t.p.num_kv_heads;
      float* part = parts + ((t.number * t.p.prefix + token) * heads + t.head) * size;
      bf16* to = gradient + (token * heads + t.head) * size;
      for (int64_t d = 0; d < size; d += TILE) {
        const floats sum = (floats)picked(from + d * TILE, TILE) * scale;
        if (token < t.p.prefix)
          store(part + d, sum);
        else
          put_vector(to + d, sum);
      }
    }
  }

  void run() const {
    prepare();
    for (int64_t first = 0; first < t.all_rows; first += BACKWARD_ROWS) rows(first, std::min(first + BACKWARD_ROWS, t.all_rows));
    write_columns(k_sums, t.p.key_size, float(t.p.scale), t.p.k_parts, static_cast<bf16*>(t.p.k_gradient));
    write_columns(v_sums, t.p.value_size, 1.0f, t.p.v_parts, static_cast<bf16*>(t.p.v_gradient));
  }
};

// The gradient of the prefix: the sum over its problems' parts, [problems, count].
void add_parts(const float* parts, int64_t problems, int64_t count, bf16* out, int64_t threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; i += LANES) {
    floats sum{};
    for (int64_t problem = 0; problem < problems; problem++) sum += get(parts + problem * count + i, count - i);
    put(out + i, sum, count - i);
  }
}

// Each problem by a thread that is free; `run(task, memory)`. Returns whether there was memory.
template <typename Size, typename Run>
bool all_tasks(const T& p, const Size& size, const Run& run) {
  bool is_short = false;
#pragma omp parallel num_threads(p.threads) reduction(|| : is_short)
  {
    Tiles tiles(true);
#pragma omp for schedule(dynamic)
    for (int64_t i = 0; i < p.num_problems * p.num_kv_heads; i++) {
      const Task task{p, i / p.num_kv_heads, i % p.num_kv_heads};
      char* memory = training_scratch.take(size(task));
      if (memory)
        run(task, memory);
      else
        is_short = true;
    }
  }
  return !is_short;
}

int64_t forward_bytes(const Task& t) {
  const int64_t key_size = t.p.key_size, value_size = t.p.value_size, columns = t.all_columns;
  return 2 * (columns * std::max(key_size, value_size) + t.all_rows * key_size + columns * (key_size + value_size)) +
         6 * FORWARD_ROWS * columns + 4 * FORWARD_ROWS * value_size + 64 * 8;
}

bool attend_forward(const T& p) {
  return all_tasks(p, forward_bytes, [](const Task& task, char* memory) { forward(task, Pieces(memory)); });
}

bool attend_backward(const T& p) {
  const auto size = [](const Task& task) {
    Pieces none(nullptr);
    Backward(task, none);
    return none.taken();
  };
  const bool is_done = all_tasks(p, size, [](const Task& task, char* memory) {
    Pieces pieces(memory);
    Backward(task, pieces).run();
  });
  const int64_t heads = p.prefix * p.num_kv_heads;
  add_parts(p.k_parts, p.num_problems, heads * p.key_size, static_cast<bf16*>(p.k_gradient), p.threads);
  add_parts(p.v_parts, p.num_problems, heads * p.value_size, static_cast<bf16*>(p.v_gradient), p.threads);
  return is_done;
}

#else

// Nobody asks: `hpd_has_tiles` says no.
bool attend_forward(const TrainedAttention&) { return false; }
bool attend_backward(const TrainedAttention&) { return false; }

#endif

}  // namespace

// 0, or 1 where memory is missing: then what is written is not whole.
extern "C" int hpd_trained_attention(const TrainedAttention* p) { return attend_forward(*p) ? 0 : 1; }
extern "C" int hpd_trained_attention_backward(const TrainedAttention* p) { return attend_backward(*p) ? 0 : 1; }
