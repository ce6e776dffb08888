// Attention of one layer for the prompts of one cohort, on a CPU: what `hpd_core.attention` says it does.
//
// A task is a prompt and a KV head: its query rows are the prompt's tokens of this step, times the query heads that share
// the KV head. Scores stay in the core's own cache from the products to the softmax to the values; who sees whom is decided
// from positions and scopes on the way, so that there is no mask of rows by columns, nor a gathered cache.
//
// Keys and values are put in the order in which they are multiplied ("packed"), once for all query rows that see them; a
// prefix once for all prompts. In bf16 an instruction takes two numbers of a sum at a time, so a vector's lane of 32 bits
// holds a pair: of neighbouring dimensions for keys, of neighbouring columns for values. In fp32 it holds one.
//
// Where the machine has no bf16 instructions, pairs are widened; where it multiplies tiles (AMX), they are multiplied so.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "scratch.h"
#include "tiles.h"
#include "vectors.h"

namespace {

constexpr int64_t PUBLIC = -1;
// So many sums stay in registers, beside a vector of each column and a number of a row.
constexpr int MAX_ROWS = 6;
constexpr int MAX_VECTORS = REGISTERS == 32 ? 4 : 2;

// A lane's part of a sum: one number of fp32, a pair of bf16.
template <typename T>
constexpr int PER_LANE = sizeof(uint32_t) / sizeof(T);

// Query rows that are done together, and what lanes and vectors of packed columns are filled up to: for tiles, whole ones.
template <typename T>
constexpr bool IN_TILES = HPD_TILES && std::is_same_v<T, bf16>;
template <typename T>
constexpr int BLOCK_ROWS = IN_TILES<T> ? TILE : MAX_ROWS;
template <typename T>
constexpr int LANES_UNIT = IN_TILES<T> ? TILE : 1;
template <typename T>
constexpr int VECTORS_UNIT = IN_TILES<T> ? TILE * PER_LANE<T> / LANES : 1;

template <typename T>
int64_t vectors_of(int64_t columns) {
  return ceil_div(columns, LANES * VECTORS_UNIT<T>) * VECTORS_UNIT<T>;
}

inline floats add_products(floats sum, words a, words b, const float*) { return sum + (floats)a * (floats)b; }
inline floats add_products(floats sum, words a, words b, const bf16*) {
#ifdef __AVX512BF16__
  return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  const words high = spread(uint32_t(0xffff0000));
  sum += (floats)(a << 16) * (floats)(b << 16);
  return sum + (floats)(a & high) * (floats)(b & high);
#endif
}

// Sums of `rows` query rows over `depth` lanes, for `vectors` vectors of columns.
//   a: rows of `depth` lanes, `a_stride` numbers apart.
//   b: vector v's lanes of step d at b + v * b_stride + d * b_step, LANES words each.
template <typename T, int ROWS, int VECTORS>
inline void multiply(const T* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t b_step, int64_t depth,
                     float* out, int64_t out_stride) {
  floats sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) sums[r][v] = floats{};
  for (int64_t d = 0; d < depth; d++) {
    words columns[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) columns[v] = load<words>(b + v * b_stride + d * b_step);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      uint32_t word;
      std::memcpy(&word, a + r * a_stride + d * PER_LANE<T>, sizeof word);
      const words number = spread(word);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; v++) sums[r][v] = add_products(sums[r][v], number, columns[v], (const T*)nullptr);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) store(out + r * out_stride + v * LANES, sums[r][v]);
}

template <typename T, int ROWS>
inline void multiply(const T* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t b_step, int64_t depth,
                     int64_t vectors, float* out, int64_t out_stride) {
  int64_t v = 0;
  for (; v + MAX_VECTORS <= vectors; v += MAX_VECTORS)
    multiply<T, ROWS, MAX_VECTORS>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
  switch (vectors - v) {
    case 3: return multiply<T, ROWS, 3>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
    case 2: return multiply<T, ROWS, 2>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
    case 1: return multiply<T, ROWS, 1>(a, a_stride, b + v * b_stride, b_stride, b_step, depth, out + v * LANES, out_stride);
  }
}

template <typename T>
void multiply(int rows, const T* a, int64_t a_stride, const uint32_t* b, int64_t b_stride, int64_t b_step, int64_t depth,
              int64_t vectors, float* out, int64_t out_stride) {
  if constexpr (IN_TILES<T>)
    if (has_tiles()) return multiply_tiles(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride);
  for (; rows > 0; rows -= MAX_ROWS, a += MAX_ROWS * a_stride, out += MAX_ROWS * out_stride) {
    switch (std::min(rows, MAX_ROWS)) {
      case 6: multiply<T, 6>(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride); break;
      case 5: multiply<T, 5>(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride); break;
      case 4: multiply<T, 4>(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride); break;
      case 3: multiply<T, 3>(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride); break;
      case 2: multiply<T, 2>(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride); break;
      case 1: multiply<T, 1>(a, a_stride, b, b_stride, b_step, depth, vectors, out, out_stride); break;
    }
  }
}

thread_local Scratch task_scratch;
thread_local Scratch call_scratch;

}  // namespace

// What Python passes (native/attention.py has the same fields in the same order). Strides count numbers, not bytes.
struct Problem {
  int64_t num_prompts, num_kv_heads, group, key_size, value_size, num_tokens, num_prefixes, window;
  double scale, softcap;                                   // softcap 0: none
  const void *q, *k, *v;                                   // the stretch of the packed row: [t, H or H_kv, D]
  int64_t q_token, q_head, k_token, k_head, v_token, v_head;
  void* out;                                               // [t, H, D_v], contiguous
  void *keys, *values;                                     // the cache: [P, H_kv, capacity, D], contiguous
  int64_t capacity;
  const int64_t *counts, *used;                            // [P]: tokens of this step; columns in use
  const int64_t *q_scopes, *q_positions;                   // [P, R]: of each prompt's tokens
  int64_t q_row;                                           // R
  const int64_t *k_scopes, *k_positions;                   // [P, C], rows `k_row` apart
  int64_t k_row;
  const int64_t *kv_prompts, *kv_columns;                  // [t]: where the new keys and values go
  const int64_t* prefix_of;                                // [P], -1 for none
  const void* const* prefix_keys;                          // per prefix [H_kv, L, D], contiguous
  const void* const* prefix_values;
  const int64_t* prefix_lengths;
  const float* sinks;                                      // [H] or null
  int64_t num_threads;
};

namespace {

// Lanes of one column's key, and vectors of one column's value.
template <typename T>
struct Sizes {
  int64_t key_lanes, value_vectors;
  explicit Sizes(const Problem& p)
      : key_lanes(ceil_div(p.key_size, PER_LANE<T> * LANES_UNIT<T>) * LANES_UNIT<T>),
        value_vectors(ceil_div(p.value_size, LANES)) {}
  int64_t key_words(int64_t columns) const { return vectors_of<T>(columns) * LANES * key_lanes; }
  // Whole vectors of columns, or tiles of them, for weights come in those.
  int64_t value_steps(int64_t columns) const { return vectors_of<T>(columns) * LANES / PER_LANE<T>; }
  int64_t value_words(int64_t columns) const { return value_steps(columns) * value_vectors * LANES; }
  int64_t words(int64_t columns) const { return key_words(columns) + value_words(columns); }
};

// Of two rows that are APART: the first keeps the lanes whose number has no such bit, the second those whose has, and what they
// lose they take from each other.
template <int APART, int32_t... LANE>
inline void exchange(words& a, words& b, std::integer_sequence<int32_t, LANE...>) {
  const words from = a;
  a = __builtin_shuffle(from, b, words{uint32_t(LANE & APART ? LANE + LANES - APART : LANE)...});
  b = __builtin_shuffle(from, b, words{uint32_t(LANE & APART ? LANE + LANES : LANE + APART)...});
}

// A square of LANES by LANES words, in registers by halves: rows that are LANES / 2, ..., 2, 1 apart exchange lanes.
template <int APART>
inline void transpose(words* square) {
#pragma GCC unroll 16
  for (int row = 0; row < LANES; row++)
    if (!(row & APART)) exchange<APART>(square[row], square[row + APART], Lanes{});
  if constexpr (APART > 1) transpose<APART / 2>(square);
}

// [columns, D] -> per vector of columns and lane of dimensions, LANES words. What fills up lanes and vectors is 0: nobody sees
// those columns, but nothing is to be computed of what happens to be in memory.
template <typename T>
void pack_keys(const T* from, int64_t columns, int64_t size, const Sizes<T>& sizes, uint32_t* to) {
  const int64_t lanes = ceil_div(size, PER_LANE<T>), vector = LANES * sizes.key_lanes;
  uint32_t* const stop = to + sizes.key_words(columns);
  for (int64_t first = 0; first < columns; first += LANES, to += vector) {
    const int64_t here = std::min<int64_t>(LANES, columns - first);
    int64_t lane = 0;
    if (here == LANES) {
      for (; (lane + LANES) * PER_LANE<T> <= size; lane += LANES) {
        words square[LANES];
        for (int c = 0; c < LANES; c++) square[c] = load<words>(from + (first + c) * size + lane * PER_LANE<T>);
        transpose<LANES / 2>(square);
        for (int l = 0; l < LANES; l++) store(to + (lane + l) * LANES, square[l]);
      }
    }
    std::memset(to + lane * LANES, 0, sizeof(uint32_t) * LANES * (sizes.key_lanes - lane));
    for (; lane < lanes; lane++)
      for (int64_t c = 0; c < here; c++) {
        uint32_t word;
        std::memcpy(&word, from + (first + c) * size + lane * PER_LANE<T>, sizeof word);
        to[lane * LANES + c] = word;
      }
  }
  std::memset(to, 0, sizeof(uint32_t) * (stop - to));
}

// [columns, D_v] -> per lane of columns and vector of dimensions, LANES words. What fills up vectors is 0.
inline void pack_values(const float* from, int64_t columns, int64_t size, const Sizes<float>& sizes, uint32_t* to) {
  std::memset(to, 0, sizeof(uint32_t) * sizes.value_words(columns));
  for (int64_t c = 0; c < columns; c++)
    std::memcpy(to + c * sizes.value_vectors * LANES, from + c * size, sizeof(float) * size);
}
inline void pack_values(const bf16* from, int64_t columns, int64_t size, const Sizes<bf16>& sizes, uint32_t* to) {
  const int64_t row = sizes.value_vectors * LANES, used = ceil_div(columns, 2);
  for (int64_t c = 0; c < used; c++) {
    const bf16 *even = from + 2 * c * size, *odd = 2 * c + 1 < columns ? even + size : nullptr;
    uint32_t* pairs = to + c * row;
    for (int64_t d = 0; d < size; d++) pairs[d] = even[d].bits | (odd ? uint32_t(odd[d].bits) << 16 : 0);
    for (int64_t d = size; d < row; d++) pairs[d] = 0;
  }
  std::memset(to + used * row, 0, sizeof(uint32_t) * (sizes.value_steps(columns) - used) * row);
}

// Keys and values that query rows attend to, packed: those of a prefix, or a prompt's own.
struct Columns {
  const uint32_t *keys, *values;
  int64_t count;
};

template <typename T>
class Task {
 public:
  Task(const Problem& p, const Sizes<T>& sizes) : p(p), sizes(sizes) {}

  // Query rows of one KV head and of a prompt's tokens `first` to `stop`. The prompt's first token is `begin`; all three are
  // counted from the first token of the stretch. Returns false where memory is missing.
  bool run(int64_t prompt, int64_t head, int64_t begin, int64_t first, int64_t stop, const Columns& prefix) {
    const int64_t own = p.used[prompt], own_vectors = vectors_of<T>(own);
    const int64_t all = (vectors_of<T>(prefix.count) + own_vectors) * LANES;
    const int64_t bytes = 4 * (sizes.words(own) + 3 * own_vectors * LANES +
                               ROWS * (sizes.key_lanes + 2 * all + 2 * sizes.value_vectors * LANES));
    char* scratch = task_scratch.take(bytes);
    if (!scratch) return false;
    auto cut = [&scratch](int64_t count) {
      char* part = scratch;
      scratch += 4 * count;
      return part;
    };
    auto* keys = reinterpret_cast<uint32_t*>(cut(sizes.key_words(own)));
    auto* values = reinterpret_cast<uint32_t*>(cut(sizes.value_words(own)));
    scopes = reinterpret_cast<int32_t*>(cut(own_vectors * LANES));
    positions = reinterpret_cast<int32_t*>(cut(own_vectors * LANES));
    seen = reinterpret_cast<int32_t*>(cut(own_vectors * LANES));
    queries = reinterpret_cast<T*>(cut(ROWS * sizes.key_lanes));
    scores = reinterpret_cast<float*>(cut(ROWS * all));
    weights = reinterpret_cast<T*>(cut(ROWS * all));
    sums = reinterpret_cast<float*>(cut(2 * ROWS * sizes.value_vectors * LANES));
    std::memset(queries, 0, 4 * ROWS * sizes.key_lanes);  // lanes that fill up a tile stay 0
    stride = all;

    to_row = prompt * p.q_row - begin;
    const int64_t block = prompt * p.num_kv_heads + head;
    const T* cached_keys = static_cast<const T*>(p.keys) + block * p.capacity * p.key_size;
    const T* cached_values = static_cast<const T*>(p.values) + block * p.capacity * p.value_size;
    pack_keys(cached_keys, own, p.key_size, sizes, keys);
    pack_values(cached_values, own, p.value_size, sizes, values);
    for (int64_t c = 0; c < own_vectors * LANES; c++) {
      // A column that holds nothing is later than every token.
      const int64_t position = c < own ? p.k_positions[prompt * p.k_row + c] : std::numeric_limits<int32_t>::max();
      positions[c] = int32_t(std::min<int64_t>(position, std::numeric_limits<int32_t>::max()));
      scopes[c] = c < own ? int32_t(p.k_scopes[prompt * p.k_row + c]) : 0;
    }
    const Columns own_columns{keys, values, own};
    for (int64_t row = first * p.group; row < stop * p.group; row += ROWS)
      attend(int(std::min<int64_t>(ROWS, stop * p.group - row)), row, head, prefix, own_columns);
    return true;
  }

 private:
  static constexpr int ROWS = BLOCK_ROWS<T>;
  const Problem& p;
  const Sizes<T>& sizes;
  int32_t *scopes, *positions;
  int32_t* seen;  // own columns that the token at hand sees
  float *scores, *sums;
  T *queries, *weights;
  int64_t stride;  // of scores and weights, from row to row
  int64_t to_row;  // added to a token's place in the stretch: its place in q_scopes and q_positions

  // Which of a vector of own columns a token sees.
  ints sees(int64_t token, int64_t vector) const {
    const ints position = load<ints>(positions + vector * LANES), scope = load<ints>(scopes + vector * LANES);
    const ints here = spread(int32_t(p.q_positions[to_row + token]));
    const ints nearby = (position <= here) & (here - position < int32_t(p.window));
    return nearby & ((scope == int32_t(PUBLIC)) | (scope == int32_t(p.q_scopes[to_row + token])));
  }

  void attend(int rows, int64_t row, int64_t head, const Columns& prefix, const Columns& own) {
    const int64_t prefix_vectors = vectors_of<T>(prefix.count), prefix_width = prefix_vectors * LANES;
    const int64_t heads = p.num_kv_heads * p.group, query_row = sizes.key_lanes * PER_LANE<T>;
    int64_t tokens[ROWS], query_heads[ROWS];
    for (int r = 0; r < rows; r++) {
      tokens[r] = (row + r) / p.group;
      query_heads[r] = head * p.group + (row + r) % p.group;
      std::memcpy(queries + r * query_row, static_cast<const T*>(p.q) + tokens[r] * p.q_token + query_heads[r] * p.q_head,
                  sizeof(T) * p.key_size);
    }
    // Behind the last vector of columns that any of these tokens sees, nothing is computed.
    int64_t vectors = vectors_of<T>(own.count);
    const auto anybody_sees = [&](int64_t vector) {
      ints any{};
      for (int r = 0; r < rows; r++)
        if (r == 0 || tokens[r] != tokens[r - 1]) any |= sees(tokens[r], vector);
      return any_of(any);
    };
    while (vectors > 0 && !anybody_sees(vectors - 1)) vectors--;
    vectors = ceil_div(vectors, VECTORS_UNIT<T>) * VECTORS_UNIT<T>;

    const int64_t key_vector = LANES * sizes.key_lanes;
    multiply(rows, queries, query_row, prefix.keys, key_vector, LANES, sizes.key_lanes, prefix_vectors, scores, stride);
    multiply(rows, queries, query_row, own.keys, key_vector, LANES, sizes.key_lanes, vectors, scores + prefix_width, stride);
    float norm[ROWS];
    for (int r = 0; r < rows; r++) {
      if (r == 0 || tokens[r] != tokens[r - 1])
        for (int64_t v = 0; v < vectors; v++) store(seen + v * LANES, sees(tokens[r], v));
      norm[r] = softmax(tokens[r], query_heads[r], prefix.count, vectors, scores + r * stride, weights + r * stride);
    }
    const int64_t value_row = sizes.value_vectors * LANES;
    multiply(rows, weights, stride, prefix.values, LANES, value_row, prefix_width / PER_LANE<T>, sizes.value_vectors, sums,
             value_row);
    multiply(rows, weights + prefix_width, stride, own.values, LANES, value_row, vectors * LANES / PER_LANE<T>,
             sizes.value_vectors, sums + ROWS * value_row, value_row);
    for (int r = 0; r < rows; r++) {
      T* out = static_cast<T*>(p.out) + (tokens[r] * heads + query_heads[r]) * p.value_size;
      const float *a = sums + r * value_row, *b = a + ROWS * value_row;
      for (int64_t d = 0; d < p.value_size; d += LANES)
        put(out + d, (load<floats>(a + d) + load<floats>(b + d)) * norm[r], p.value_size - d);
    }
  }

  // Scores of one row -> weights, not normalized; returns 1 / their sum. Unseen columns weigh 0.
  float softmax(int64_t token, int64_t query_head, int64_t prefix_columns, int64_t vectors, float* row, T* to) const {
    const floats unseen = spread(-std::numeric_limits<float>::infinity());
    const int64_t prefix_vectors = vectors_of<T>(prefix_columns), all = prefix_vectors + vectors;
    const bool is_capped = p.softcap != 0;
    if (is_capped)
      for (int64_t column = 0; column < all * LANES; column++)
        row[column] = std::tanh(row[column] * float(p.scale / p.softcap)) * float(p.softcap);
    floats most = unseen;
    const auto look_at = [&](float* here, ints is_seen) {
      const floats x = is_seen ? load<floats>(here) : unseen;
      store(here, x);
      most = x > most ? x : most;
    };
    // A prefix's columns are at the positions 0, 1, ...: a query is behind all of them, maybe too far. Between a first vector that
    // is partly or wholly too far and a last one that is not full, all are seen.
    const int64_t position = p.q_positions[to_row + token], too_far = std::max<int64_t>(0, position - p.window + 1);
    const int64_t full = prefix_columns / LANES, first = std::min(ceil_div(too_far, LANES), full);
    const auto look_at_part = [&](int64_t v) {
      const ints column = NUMBERED + int32_t(v * LANES);
      look_at(row + v * LANES, (column < int32_t(prefix_columns)) & (column >= int32_t(too_far)));
    };
    for (int64_t v = 0; v < first; v++) look_at_part(v);
    for (int64_t v = first; v < full; v++) {
      const floats x = load<floats>(row + v * LANES);
      most = x > most ? x : most;
    }
    for (int64_t v = full; v < prefix_vectors; v++) look_at_part(v);
    for (int64_t v = 0; v < vectors; v++) look_at(row + (prefix_vectors + v) * LANES, load<ints>(seen + v * LANES));
    // e^(scale * x - highest), as a power of two.
    const float scale = is_capped ? 1.0f : float(p.scale), log2e = 1.44269504088896341f;
    const float sink = p.sinks ? p.sinks[query_head] : -std::numeric_limits<float>::infinity();
    const float highest = std::max(highest_of(most) * scale, sink) * log2e;
    floats sum{};
    for (int64_t v = 0; v < all; v++) {
      const floats weight = power_of_two(load<floats>(row + v * LANES) * (scale * log2e) - highest);
      sum += weight;
      put_vector(to + v * LANES, weight);
    }
    return 1.0f / (sum_of(sum) + std::exp2(sink * log2e - highest));
  }
};

// Returns whether there was memory for it.
template <typename T>
bool attend_all(const Problem& p) {
  const Sizes<T> sizes(p);
  // Packed prefixes of all heads, one after the other.
  int64_t total = 0;
  for (int64_t i = 0; i < p.num_prefixes; i++)
    total += p.num_kv_heads * sizes.words(p.prefix_lengths[i]);
  char* taken = call_scratch.take(4 * total + 8 * (p.num_prefixes + 1 + p.num_prompts + 1));
  if (!taken) return false;
  auto* packed = reinterpret_cast<uint32_t*>(taken);
  auto* offsets = reinterpret_cast<int64_t*>(taken + 4 * total);
  auto* starts = offsets + p.num_prefixes + 1;
  offsets[0] = starts[0] = 0;
  for (int64_t i = 0; i < p.num_prefixes; i++)
    offsets[i + 1] = offsets[i] + p.num_kv_heads * sizes.words(p.prefix_lengths[i]);
  for (int64_t i = 0; i < p.num_prompts; i++) starts[i + 1] = starts[i] + p.counts[i];

  // Few prompts of many tokens are cut, so that no thread waits long for another; keys are packed again for each part.
  const int64_t pairs = p.num_prompts * p.num_kv_heads;
  int64_t busy = 0;  // prompts that are not finished
  for (int64_t i = 0; i < p.num_prompts; i++) busy += p.counts[i] > 0;
  const int64_t parts = std::max<int64_t>(1, ceil_div(4 * p.num_threads, std::max<int64_t>(1, busy) * p.num_kv_heads));

  bool is_short = false;
#pragma omp parallel num_threads(p.num_threads)
  {
    const Tiles tiles(IN_TILES<T>);
// What is stored here and packed below is read behind the barrier at the end of the second loop.
#pragma omp for schedule(static) nowait
    for (int64_t i = 0; i < p.num_tokens; i++)
      for (int64_t h = 0; h < p.num_kv_heads; h++) {
        const int64_t column = (p.kv_prompts[i] * p.num_kv_heads + h) * p.capacity + p.kv_columns[i];
        std::memcpy(static_cast<T*>(p.keys) + column * p.key_size,
                    static_cast<const T*>(p.k) + i * p.k_token + h * p.k_head, sizeof(T) * p.key_size);
        std::memcpy(static_cast<T*>(p.values) + column * p.value_size,
                    static_cast<const T*>(p.v) + i * p.v_token + h * p.v_head, sizeof(T) * p.value_size);
      }
#pragma omp for schedule(static)
    for (int64_t job = 0; job < p.num_prefixes * p.num_kv_heads; job++) {
      const int64_t i = job / p.num_kv_heads, h = job % p.num_kv_heads, length = p.prefix_lengths[i];
      uint32_t* to = packed + offsets[i] + h * sizes.words(length);
      pack_keys(static_cast<const T*>(p.prefix_keys[i]) + h * length * p.key_size, length, p.key_size, sizes, to);
      pack_values(static_cast<const T*>(p.prefix_values[i]) + h * length * p.value_size, length, p.value_size, sizes,
                  to + sizes.key_words(length));
    }
#pragma omp for schedule(dynamic)
    for (int64_t job = 0; job < pairs * parts; job++) {
      const int64_t prompt = job / parts / p.num_kv_heads, head = job / parts % p.num_kv_heads, part = job % parts;
      // Not smaller than a block, which is computed whole.
      const int64_t step = std::max(ceil_div(p.counts[prompt], parts), ceil_div(BLOCK_ROWS<T>, p.group));
      const int64_t first = starts[prompt] + part * step;
      const int64_t stop = std::min(first + step, starts[prompt + 1]);
      if (first >= stop) continue;
      Columns prefix{nullptr, nullptr, 0};
      if (const int64_t i = p.prefix_of[prompt]; i >= 0) {
        const int64_t length = p.prefix_lengths[i];
        const uint32_t* keys = packed + offsets[i] + head * sizes.words(length);
        prefix = {keys, keys + sizes.key_words(length), length};
      }
      if (!Task<T>(p, sizes).run(prompt, head, starts[prompt], first, stop, prefix)) {
#pragma omp atomic write
        is_short = true;
      }
    }
  }
  return !is_short;
}

}  // namespace

// 0, or 1 where memory is missing: then what is written is not whole.
extern "C" int hpd_attend_float32(const Problem* p) { return attend_all<float>(*p) ? 0 : 1; }
extern "C" int hpd_attend_bfloat16(const Problem* p) { return attend_all<bf16>(*p) ? 0 : 1; }
