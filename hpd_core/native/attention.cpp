// Attention of one layer for the prompts of one cohort, on a CPU: what `hpd_core.attention.plan` says it does.
//
// A task is a prompt and a KV head: its query rows are the prompt's tokens of this step, times the query heads that share
// the KV head. Each query row has a lane of the vectors: a vector of scores is one column's for LANES queries, so that maxima
// and sums run from vector to vector, never across one. Scores stay in the core's own cache from the products to the softmax to
// the values; who sees whom is decided from positions and scopes on the way, so that there is no mask of rows by columns.
//
// Both products have the cache on their left, where it lies: keys as rows of columns, values in blocks of some columns as rows
// of dimensions (hpd_core/attention/kv_cache.py keeps them so). What is on the right is made for each block of queries: the queries, then
// their weights. In bf16 an instruction takes two numbers of a sum at a time, so a lane of 32 bits holds a pair of neighbours of a sum;
// in fp32 one.
//
// Where the machine has no bf16 instructions, pairs are widened; where it multiplies tiles (AMX), they are multiplied so.

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels.h"
#include "scratch.h"
#include "tiles.h"
#include "vectors.h"

namespace {

constexpr int32_t PUBLIC = -1;
constexpr float LOG2E = 1.44269504088896341f;
// Lower than any score, but a number: what is lower by it is 0.
constexpr float LOWEST = -1e30f;
// Columns that are done together: their scores stay in the first cache.
constexpr int64_t CHUNK = 128, SCORE_PLANE = CHUNK * LANES;
constexpr float INFINITE = std::numeric_limits<float>::infinity();
// Of the left-hand side; so many rows' sums, times vectors of queries, stay in registers.
constexpr int MAX_ROWS = REGISTERS == 32 ? 8 : 4;
// Vectors of queries that are done together, as `multiply` has them.
constexpr int MAX_VECTORS = 2;

// A lane's part of a sum: one number of fp32, a pair of bf16.
template <typename T>
constexpr int PER_LANE = sizeof(uint32_t) / sizeof(T);

template <typename T>
constexpr bool MAY_BE_TILES = HPD_TILES && std::is_same_v<T, bf16>;

template <typename T>
bool are_in_tiles(int64_t key_size, int64_t value_size) {
  return MAY_BE_TILES<T> && has_tiles() && key_size % (2 * TILE) == 0 && value_size % TILE == 0;
}

// Columns of a block of values, of which a prompt has whole ones: those of a row of a tile, or of one lane.
template <typename T>
int columns_of_block(int64_t key_size, int64_t value_size) {
  return are_in_tiles<T>(key_size, value_size) ? 2 * TILE : PER_LANE<T>;
}

inline floats add_products(floats sum, words a, words b, const float*) { return add_product(sum, (floats)a, (floats)b); }
inline floats add_products(floats sum, words a, words b, const bf16*) {
#ifdef __AVX512BF16__
  return (floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
  const words high = spread(uint32_t(0xffff0000));
  sum = add_product(sum, (floats)(a << 16), (floats)(b << 16));
  return add_product(sum, (floats)(a & high), (floats)(b & high));
#endif
}

// What stands on one side of a product, or is written by one. On the left `row` numbers are between two rows, and `step` between
// two lanes of a row; in tiles, between the lanes of one tile and those of the next. Elsewhere `plane` words are between two
// vectors of queries.
template <typename T>
struct Left {
  const T* rows;
  int64_t row, step;
};
struct Right {
  const uint32_t* vectors;  // of LANES words; one behind the other
  int64_t plane;
};
struct Out {
  float* sums;  // rows of LANES, one behind the other
  int64_t plane;
};

// Sums of `ROWS` rows over `depth` lanes for `VECTORS` vectors of queries; added to what is there, if they are to be.
template <typename T, int ROWS, int VECTORS>
inline void multiply(const T* rows, Left<T> a, Right b, int64_t depth, float* out, int64_t out_plane, bool adds) {
  floats sums[ROWS][VECTORS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) sums[r][v] = adds ? load<floats>(out + v * out_plane + r * LANES) : floats{};
  for (int64_t d = 0; d < depth; d++) {
    words queries[VECTORS];
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) queries[v] = load<words>(b.vectors + v * b.plane + d * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; r++) {
      uint32_t word;
      std::memcpy(&word, rows + r * a.row + d * a.step, sizeof word);
      const words number = spread(word);
#pragma GCC unroll 8
      for (int v = 0; v < VECTORS; v++) sums[r][v] = add_products(sums[r][v], number, queries[v], (const T*)nullptr);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; r++)
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; v++) store(out + v * out_plane + r * LANES, sums[r][v]);
}

template <typename T, int VECTORS>
void multiply(Left<T> a, int64_t rows, Right b, int64_t depth, Out out, bool adds) {
  int64_t r = 0;
  const auto some = [&](auto count) {
    for (; r + count() <= rows; r += count())
      multiply<T, count(), VECTORS>(a.rows + r * a.row, a, b, depth, out.sums + r * LANES, out.plane, adds);
  };
  some(std::integral_constant<int, MAX_ROWS>());
  some(std::integral_constant<int, 4>());
  some(std::integral_constant<int, 1>());
}

// The same, by tiles where there may be: then rows and depth are whole ones.
template <typename T>
void multiply(Left<T> a, int64_t rows, Right b, int64_t depth, int vectors, Out out, bool adds, bool in_tiles) {
  if constexpr (MAY_BE_TILES<T>)
    if (in_tiles)
      return multiply_tiles(a.rows, a.row, a.step, rows, b.vectors, b.plane, depth, vectors, out.sums, out.plane, adds);
  const auto by_vectors = vectors > 1 ? multiply<T, 2> : multiply<T, 1>;
  by_vectors(a, rows, b, depth, out, adds);
}

thread_local Scratch task_scratch;
thread_local Scratch call_scratch;

// Of two rows that are APART: the first keeps the lanes whose number has no such bit, the second those whose has, and what they
// lose they take from each other.
template <int APART, int32_t... LANE>
inline void exchange(words& a, words& b, std::integer_sequence<int32_t, LANE...>) {
  const words from = a;
  a = __builtin_shuffle(from, b, words{uint32_t(LANE & APART ? LANE + LANES - APART : LANE)...});
  b = __builtin_shuffle(from, b, words{uint32_t(LANE & APART ? LANE + LANES : LANE + APART)...});
}

// A square of LANES by LANES words, in registers by halves: rows that are LANES / 2, ..., 2, 1 apart exchange lanes.
template <int APART = LANES / 2>
inline void transpose(words* square) {
#pragma GCC unroll 16
  for (int row = 0; row < LANES; row++)
    if (!(row & APART)) exchange<APART>(square[row], square[row + APART], Lanes{});
  if constexpr (APART > 1) transpose<APART / 2>(square);
}

// Numbers of neighbouring rows, as lanes of a product's right-hand side.
inline words joined(const floats* rows, const float*) { return (words)rows[0]; }
inline words joined(const floats* rows, const bf16*) {
#ifdef __AVX512BF16__
  const __m512i both = (__m512i)_mm512_cvtne2ps_pbh((__m512)rows[1], (__m512)rows[0]);
  // The lower half has the first row's numbers: 0, 16, 1, 17, ...
  const words order = (words)NUMBERED | (words)(NUMBERED + 16) << 16;
  return (words)_mm512_permutexvar_epi16((__m512i)order, both);
#else
  return rounded(rows[0]) >> 16 | (rounded(rows[1]) & 0xffff0000);
#endif
}

// 2^x, for a sum of numbers of this type.
inline floats weight_of(floats x, const float*) { return power_of_two(x); }
inline floats weight_of(floats x, const bf16*) { return rough_power_of_two(x); }

// Memory that will be read soon, some lines at a time.
struct Ahead {
  const char* from;
  int64_t at_once;
  void fetch() {
    for (int64_t i = 0; i < at_once; i++, from += 64) __builtin_prefetch(from);
  }
};

// Columns that query rows attend to: those of a prefix, or a prompt's own.
template <typename T>
struct Columns {
  const T *keys, *values;
  int64_t count;
};

template <typename T>
class Task {
 public:
  explicit Task(const Problem& p)
      : p(p),
        unit(columns_of_block<T>(p.key_size, p.value_size)),
        in_tiles(are_in_tiles<T>(p.key_size, p.value_size)) {}

  // Query rows of one KV head and of a prompt's tokens `first` to `stop`. The prompt's first token is `begin`; all three are
  // counted from the first token of the stretch. Returns false where memory is missing.
  bool run(int64_t prompt, int64_t head, int64_t begin, int64_t first, int64_t stop, const Columns<T>& prefix) {
    const int64_t used = p.used[prompt], block = prompt * p.num_kv_heads + head;
    const Columns<T> own{static_cast<const T*>(p.keys) + block * p.capacity * p.key_size,
                         static_cast<const T*>(p.values) + block * p.capacity * p.value_size, used};
    k_scopes = p.k_scopes + prompt * p.k_row;
    k_lasts = p.k_lasts + prompt * p.k_row;
    k_positions = p.k_positions + prompt * p.k_row;
    q_scopes = p.q_scopes + prompt * p.q_row - begin;
    q_sights = p.q_sights + prompt * p.q_row - begin;
    constexpr int64_t dimensions = LANES * PER_LANE<T>;  // that `put_out` takes together
    query_plane = p.key_size / PER_LANE<T> * LANES;
    sum_plane = ceil_div(p.value_size, dimensions) * dimensions * LANES;
    char* scratch = task_scratch.take(4 * MAX_VECTORS * (query_plane + SCORE_PLANE + sum_plane));
    if (!scratch) return false;
    queries = reinterpret_cast<uint32_t*>(scratch);
    scores = reinterpret_cast<float*>(scratch) + MAX_VECTORS * query_plane;
    sums = scores + MAX_VECTORS * SCORE_PLANE;
    constexpr int64_t rows = MAX_VECTORS * LANES;
    is_new = true;
    for (int64_t row = first * p.group; row < stop * p.group; row += rows, is_new = false)
      attend(int(std::min(rows, stop * p.group - row)), row, head, prefix, own);
    return true;
  }

 private:
  const Problem& p;
  const int64_t unit;
  const bool in_tiles;
  const int32_t *k_scopes, *k_lasts, *k_positions;  // of the prompt's columns
  const int64_t *q_scopes, *q_sights;               // of the tokens of the stretch
  uint32_t* queries;                      // MAX_VECTORS planes of a lane's parts, LANES each
  float *scores, *sums;                   // planes of columns, of dimensions; LANES each
  int64_t query_plane, sum_plane;
  bool is_new;  // nobody of this task has read the columns yet

  // The query rows in the lanes of one vector.
  struct Lane {
    int count;
    int64_t tokens[LANES], heads[LANES];
    ints positions, scopes;
    floats highest, sum;  // of the chunks so far: scores as powers of two, and weights
  };

  int64_t up_to_unit(int64_t columns) const { return ceil_div(columns, unit) * unit; }

  Lane lanes_from(int64_t row, int count, int64_t head) const {
    Lane lane;
    lane.count = count;
    // Lanes that are left over see no own column. (Before -1, the distance to what nobody sees would be no number.)
    lane.positions = spread(int32_t(-1)), lane.scopes = spread(int32_t(-2));
    int64_t token = row / p.group, of_group = row % p.group;
    int32_t positions[LANES], scopes[LANES];
    std::memcpy(positions, &lane.positions, sizeof positions);
    std::memcpy(scopes, &lane.scopes, sizeof scopes);
    for (int l = 0; l < count; l++) {
      lane.tokens[l] = token;
      lane.heads[l] = head * p.group + of_group;
      positions[l] = int32_t(q_sights[token]);
      scopes[l] = int32_t(q_scopes[token]);
      if (++of_group == p.group) of_group = 0, token++;
    }
    lane.positions = load<ints>(positions);
    lane.scopes = load<ints>(scopes);
    return lane;
  }

  void attend(int rows, int64_t row, int64_t head, const Columns<T>& prefix, const Columns<T>& own) {
    const int vectors = int(ceil_div(rows, LANES));
    Lane lanes[MAX_VECTORS];
    for (int v = 0; v < vectors; v++) {
      lanes[v] = lanes_from(row + v * LANES, std::min(rows - v * LANES, LANES), head);
      put_queries(lanes[v], queries + v * query_plane);
    }
    const int64_t first = row / p.group, stop = (row + rows - 1) / p.group + 1;
    int64_t latest = 0, earliest = std::numeric_limits<int32_t>::max();
    for (int64_t token = first; token < stop; token++) {
      latest = std::max(latest, q_sights[token]);
      earliest = std::min(earliest, q_sights[token]);
    }
    // Behind the last column that any of these tokens sees, nothing is computed; before the first that one of them does not
    // see, nobody looks.
    const int64_t seen = up_to_unit(last_seen(own.count, first, stop, latest));
    const int64_t known = known_to_all(seen, earliest, latest), before = up_to_unit(prefix.count);
    for (int v = 0; v < vectors; v++) {
      lanes[v].highest = spread(LOWEST);
      lanes[v].sum = floats{};
      if (p.sinks) begin_with_sinks(lanes[v]);
    }
    bool is_first = true;
    const auto take_in = [&](const Columns<T>& columns, int64_t count, auto look) {
      for (int64_t c = 0; c < count; c += CHUNK, is_first = false) {
        const Columns<T> chunk{columns.keys + c * p.key_size, columns.values + c * p.value_size, std::min(CHUNK, count - c)};
        add_chunk(lanes, vectors, chunk, is_first, [&](const Lane& lane, float* rows) { return look(lane, rows, c); });
      }
    };
    take_in(prefix, before, [&](auto& lane, float* rows, int64_t c) { return look_at_prefix(lane, rows, c, prefix.count); });
    take_in(own, seen, [&](auto& lane, float* rows, int64_t c) { return look_at_own(lane, rows, c, known, seen); });
    for (int v = 0; v < vectors; v++) put_out(lanes[v], sums + v * sum_plane, 1.0f / lanes[v].sum);
  }

  // Scores of a chunk's columns, their weights, and the sums of its values, added to those of the chunks before. `look`
  // hides the scores of what a query does not see, and gives the highest of the others.
  template <typename Look>
  void add_chunk(Lane* lanes, int vectors, const Columns<T>& chunk, bool is_first, Look look) {
    const Left<T> keys{chunk.keys, p.key_size, in_tiles ? 2 * TILE : PER_LANE<T>};
    multiply<T>(keys, chunk.count, {queries, query_plane}, p.key_size / PER_LANE<T>, vectors, {scores, SCORE_PLANE}, false, in_tiles);
    const int64_t lines = ceil_div(sizeof(T) * chunk.count * p.value_size, 64);
    Ahead ahead{reinterpret_cast<const char*>(chunk.values), ceil_div(lines * PER_LANE<T>, vectors * chunk.count)};
    for (int v = 0; v < vectors; v++) {
      float* const rows = scores + v * SCORE_PLANE;
      if (p.softcap != 0)
        for (int64_t i = 0; i < chunk.count * LANES; i++)
          rows[i] = std::tanh(rows[i] * float(p.scale / p.softcap)) * float(p.softcap);
      const float unit = LOG2E * (p.softcap != 0 ? 1.0f : float(p.scale));
      const floats most = higher(look(lanes[v], rows) * unit, lanes[v].highest);
      if (any_of(most > lanes[v].highest)) {
        const floats factor = power_of_two(lanes[v].highest - most);
        lanes[v].highest = most;
        lanes[v].sum *= factor;
        float* const sum = sums + v * sum_plane;
        for (int64_t i = 0; i < sum_plane && !is_first; i += LANES) store(sum + i, load<floats>(sum + i) * factor);
      }
      if (is_new)
        weigh(lanes[v], rows, chunk.count, unit, [&ahead] { ahead.fetch(); });
      else
        weigh(lanes[v], rows, chunk.count, unit, [] {});
    }
    const Left<T> values{chunk.values, unit, unit * p.value_size};
    const Right weights{reinterpret_cast<const uint32_t*>(scores), SCORE_PLANE};
    multiply<T>(values, p.value_size, weights, chunk.count / PER_LANE<T>, vectors, {sums, sum_plane}, !is_first, in_tiles);
  }

  void begin_with_sinks(Lane& lane) const {
    for (int l = 0; l < lane.count; l++) lane.highest[l] = std::max(LOWEST, p.sinks[lane.heads[l]] * LOG2E);
    lane.sum = spread(1.0f);
  }

  // Per lane of dimensions LANES words, one of each query. Queries that there are not are 0.
  void put_queries(const Lane& lane, uint32_t* to) const {
    const T* rows[LANES];
    for (int l = 0; l < lane.count; l++)
      rows[l] = static_cast<const T*>(p.q) + lane.tokens[l] * p.q_token + lane.heads[l] * p.q_head;
    const int64_t lanes = p.key_size / PER_LANE<T>;
    for (int64_t first = 0; first < lanes; first += LANES) {
      const int64_t here = std::min<int64_t>(LANES, lanes - first);
      words square[LANES] = {};
      for (int l = 0; l < lane.count; l++) {
        if (here == LANES)
          square[l] = load<words>(rows[l] + first * PER_LANE<T>);
        else
          std::memcpy(&square[l], rows[l] + first * PER_LANE<T>, 4 * here);
      }
      transpose(square);
      for (int64_t l = 0; l < here; l++) store(to + (first + l) * LANES, square[l]);
    }
  }

  // How many of the first `columns` own columns must be looked at: up to the last that one of the tokens sees.
  int64_t last_seen(int64_t columns, int64_t first, int64_t stop, int64_t latest) const {
    const auto is_seen = [&](int64_t column) {
      const ints position = load<ints>(k_positions + column), scope = load<ints>(k_scopes + column);
      const ints last = load<ints>(k_lasts + column);
      if (!any_of(position <= int32_t(latest))) return false;
      ints any{};
      for (int64_t token = first; token < stop; token++)
        any |= sees(position, scope, last, spread(int32_t(q_sights[token])), spread(int32_t(q_scopes[token])));
      return any_of(any);
    };
    int64_t column = ceil_div(columns, LANES) * LANES;
    while (column > 0 && !is_seen(column - LANES)) column -= LANES;
    return std::min(column, columns);
  }

  // How many of the first own columns all tokens between two positions see.
  int64_t known_to_all(int64_t columns, int64_t earliest, int64_t latest) const {
    int64_t column = 0;
    for (; column + LANES <= columns; column += LANES) {
      const ints position = load<ints>(k_positions + column), scope = load<ints>(k_scopes + column);
      const ints is_seen = (scope == PUBLIC) & (position <= int32_t(earliest)) & is_near(position, spread(int32_t(latest)));
      if (any_of(~is_seen)) break;
    }
    return column;
  }

  // Whether earlier positions are in the window of later ones; with a negative window, in their chunk of so many.
  ints is_near(ints earlier, ints later) const {
    if (p.window < 0) return earlier >= later - later % spread(int32_t(-p.window));
    return later - earlier < int32_t(p.window);
  }

  // Of columns and queries, one of which may be a vector and the other the same in all lanes.
  ints sees(ints k_position, ints k_scope, ints k_last, ints q_position, ints q_scope) const {
    const ints nearby = (k_position <= q_position) & is_near(k_position, q_position);
    return nearby & (k_scope <= q_scope) & (q_scope <= k_last);
  }

  // The highest of so many rows of scores.
  floats highest_of_rows(const float* rows, int64_t count) const {
    constexpr int CHAINS = 4;  // so that a maximum need not wait for the one before
    floats most[CHAINS];
    for (floats& x : most) x = spread(-INFINITE);
    int64_t c = 0;
    for (; c + CHAINS <= count; c += CHAINS)
#pragma GCC unroll 4
      for (int i = 0; i < CHAINS; i++) most[i] = higher(load<floats>(rows + (c + i) * LANES), most[i]);
    for (; c < count; c++) most[0] = higher(load<floats>(rows + c * LANES), most[0]);
    return higher(higher(most[0], most[1]), higher(most[2], most[3]));
  }

  static floats hide(float* row, ints is_seen) {
    const floats x = is_seen ? load<floats>(row) : spread(-INFINITE);
    store(row, x);
    return x;
  }

  // Of a prefix's columns from `first` on, `prefix` of which there are. They are at the positions 0, 1, ...: a query is behind
  // all of them, maybe too far.
  floats look_at_prefix(const Lane& lane, float* rows, int64_t first, int64_t prefix) const {
    const int64_t stop = std::min(CHUNK, up_to_unit(prefix) - first), count = std::min(stop, prefix - first);
    for (int64_t c = count; c < stop; c++) hide(rows + c * LANES, ints{});
    if (p.window == std::numeric_limits<int32_t>::max()) return highest_of_rows(rows, count);
    floats most = spread(-INFINITE);
    for (int64_t c = 0; c < count; c++)
      most = higher(hide(rows + c * LANES, is_near(spread(int32_t(first + c)), lane.positions)), most);
    return most;
  }

  // Of own columns from `first` on; everybody sees those before `known`, nobody those from `seen` on.
  floats look_at_own(const Lane& lane, float* rows, int64_t first, int64_t known, int64_t seen) const {
    const int64_t stop = std::min(CHUNK, seen - first);
    int64_t c = std::clamp<int64_t>(known - first, 0, stop);
    floats most = highest_of_rows(rows, c);
    for (; c < stop; c++) {
      const ints is_seen = sees(spread(k_positions[first + c]), spread(k_scopes[first + c]), spread(k_lasts[first + c]),
                                lane.positions, lane.scopes);
      most = higher(hide(rows + c * LANES, is_seen), most);
    }
    return most;
  }

  // Scores -> weights, not normalized, as the right-hand side of a product, in the same place.
  template <typename Meanwhile>
  void weigh(Lane& lane, float* rows, int64_t count, float unit, Meanwhile meanwhile) const {
    auto* weights = reinterpret_cast<uint32_t*>(rows);  // behind those, what is still to be read
    floats sum[2] = {};
    const floats highest = lane.highest;
    for (int64_t c = 0; c < count; c += PER_LANE<T>) {
      floats weight[PER_LANE<T>];
#pragma GCC unroll 2
      for (int i = 0; i < PER_LANE<T>; i++) {
        weight[i] = weight_of(load<floats>(rows + (c + i) * LANES) * unit - highest, (const T*)nullptr);
        sum[i] += weight[i];
      }
      store(weights + c / PER_LANE<T> * LANES, joined(weight, (const T*)nullptr));
      meanwhile();
    }
    lane.sum += sum[0] + sum[1];
  }

  // Rows of dimensions, LANES queries each -> the queries' rows of `out`.
  void put_out(const Lane& lane, const float* rows, floats norm) const {
    T* to[LANES];
    for (int l = 0; l < lane.count; l++)
      to[l] = static_cast<T*>(p.out) + (lane.tokens[l] * p.num_kv_heads * p.group + lane.heads[l]) * p.value_size;
    constexpr int64_t step = LANES * PER_LANE<T>;
    for (int64_t first = 0; first < p.value_size; first += step) {
      words square[LANES];
      for (int i = 0; i < LANES; i++) {
        floats values[PER_LANE<T>];
        for (int j = 0; j < PER_LANE<T>; j++) values[j] = load<floats>(rows + (first + i * PER_LANE<T> + j) * LANES) * norm;
        square[i] = joined(values, (const T*)nullptr);
      }
      transpose(square);
      const int64_t here = std::min(step, p.value_size - first);
      for (int l = 0; l < lane.count; l++) {
        if (here == step)
          store(to[l] + first, square[l]);
        else
          std::memcpy(to[l] + first, &square[l], sizeof(T) * here);
      }
    }
  }
};

// The new keys and values of a prompt's tokens `first` to `stop`, of one head, into the cache. Values fill up their last block
// with 0: what is behind them weighs 0, but 0 times what happens to be in memory may be no number.
template <typename T>
void store_tokens(const Problem& p, int64_t prompt, int64_t head, int64_t first, int64_t stop) {
  const int64_t unit = columns_of_block<T>(p.key_size, p.value_size), block = (prompt * p.num_kv_heads + head) * p.capacity;
  const T* k = static_cast<const T*>(p.k) + head * p.k_head;
  const T* v = static_cast<const T*>(p.v) + head * p.v_head;
  T* const keys = static_cast<T*>(p.keys) + block * p.key_size;
  T* const values = static_cast<T*>(p.values) + block * p.value_size;
  for (int64_t i = first, count; i < stop; i += count) {
    // As many as are neighbours in a block of values, too.
    const int64_t column = p.kv_columns[i], of_block = column % unit;
    for (count = 1; i + count < stop && of_block + count < unit; count++)
      if (p.kv_columns[i + count] != column + count) break;
    for (int64_t j = 0; j < count; j++)
      std::memcpy(keys + (column + j) * p.key_size, k + (i + j) * p.k_token, sizeof(T) * p.key_size);
    T* to = values + (column - of_block) * p.value_size + of_block;
    for (int64_t d = 0; d < p.value_size; d++)
      for (int64_t j = 0; j < count; j++) to[d * unit + j] = v[(i + j) * p.v_token + d];
  }
  const int64_t used = p.used[prompt], of_block = used % unit;
  if (of_block == 0) return;
  for (int64_t d = 0; d < p.value_size; d++)
    std::memset(values + (used - of_block) * p.value_size + d * unit + of_block, 0, sizeof(T) * (unit - of_block));
}

// Returns whether there was memory for it.
template <typename T>
bool attend_all(const Problem& p) {
  char* taken = call_scratch.take(8 * (p.num_prompts + 1));
  if (!taken) return false;
  auto* starts = reinterpret_cast<int64_t*>(taken);
  starts[0] = 0;
  for (int64_t i = 0; i < p.num_prompts; i++) starts[i + 1] = starts[i] + p.counts[i];

  // Few prompts of many tokens are cut, so that no thread waits long for another.
  const int64_t pairs = p.num_prompts * p.num_kv_heads;
  int64_t busy = 0;  // prompts that are not finished
  for (int64_t i = 0; i < p.num_prompts; i++) busy += p.counts[i] > 0;
  const int64_t parts = std::max<int64_t>(1, ceil_div(4 * p.num_threads, std::max<int64_t>(1, busy) * p.num_kv_heads));

  bool is_short = false;
#pragma omp parallel num_threads(p.num_threads)
  {
    const Tiles tiles(MAY_BE_TILES<T>);
    // Where one thread has all of a prompt's rows, it stores first what it reads then.
    if (parts > 1) {
#pragma omp for schedule(static)
      for (int64_t pair = 0; pair < pairs; pair++) {
        const int64_t prompt = pair / p.num_kv_heads;
        store_tokens<T>(p, prompt, pair % p.num_kv_heads, starts[prompt], starts[prompt + 1]);
      }
    }
#pragma omp for schedule(dynamic)
    for (int64_t job = 0; job < pairs * parts; job++) {
      const int64_t prompt = job / parts / p.num_kv_heads, head = job / parts % p.num_kv_heads, part = job % parts;
      // Not smaller than a vector, which is computed whole.
      const int64_t step = std::max(ceil_div(p.counts[prompt], parts), ceil_div(LANES, p.group));
      const int64_t first = starts[prompt] + part * step;
      const int64_t stop = std::min(first + step, starts[prompt + 1]);
      if (first >= stop) continue;
      if (parts == 1) store_tokens<T>(p, prompt, head, first, stop);
      Columns<T> prefix{nullptr, nullptr, 0};
      if (const int64_t i = p.prefix_of[prompt]; i >= 0) {
        const int64_t capacity = p.prefix_capacities[i];
        prefix = {static_cast<const T*>(p.prefix_keys[i]) + head * capacity * p.key_size,
                  static_cast<const T*>(p.prefix_values[i]) + head * capacity * p.value_size, p.prefix_lengths[i]};
      }
      if (!Task<T>(p).run(prompt, head, starts[prompt], first, stop, prefix)) {
#pragma omp atomic write
        is_short = true;
      }
    }
  }
  return !is_short;
}

}  // namespace

extern "C" int hpd_attend_float32(const Problem* p) { return attend_all<float>(*p) ? 0 : 1; }
extern "C" int hpd_attend_bfloat16(const Problem* p) { return attend_all<bf16>(*p) ? 0 : 1; }
// u of `Problem`, of heads of these sizes.
extern "C" int hpd_columns_of_block_float32(int64_t key_size, int64_t value_size) {
  return columns_of_block<float>(key_size, value_size);
}
extern "C" int hpd_columns_of_block_bfloat16(int64_t key_size, int64_t value_size) {
  return columns_of_block<bf16>(key_size, value_size);
}
