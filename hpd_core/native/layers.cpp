// All decoder layers of a model in one call, where all of their products are by tiles: the functions of this folder, as
// hpd_core/layers/forward.py calls them one by one, with the same numbers bit for bit. It saves Python between them, which in a step of
// few tokens takes half as long as reading all weights, and way from cache to cache.

#include <algorithm>
#include <cstring>
#include <ctime>

#include "kernels.h"

namespace {

// As layers/native.py has them, field by field.

// Of a product, packed: `blocks` blocks of columns; bias: [columns] or null.
struct Linear {
  const uint32_t* weight;
  int64_t blocks, columns;
  const bf16* bias;
};
struct Norm {
  const bf16* weight;  // or null: there is none
  double eps;
};
struct Layer {
  Norm before_attention, before_mlp, of_queries, of_keys;
  Linear q, k, v, o, gate_up, down;  // gate_up: columns of the gate
  int64_t window;
  double scale;
};
// A cohort's attention: what of it is the same in all layers, and per layer where keys and values are, [layers]; of its prefixes,
// [layers, 2, prefixes].
struct Cohort {
  const Problem* problem;
  int64_t first_token;
  void* const *keys, *const *values;
  const void* const* prefixes;
  int64_t num_prefixes;
};
struct Step {
  int64_t num_layers, num_cohorts, num_tokens, num_logit_rows;
  int64_t size, num_heads, num_kv_heads, head_size;  // of the residual stream, [T, size], and attention
  const Layer* layers;
  const Cohort* cohorts;
  Norm last;
  bf16* x;               // the residual stream; it is written to
  const bf16 *cos, *sin; // [T, head_size]
  const int64_t* logit_rows;
  bf16* out;             // [logit rows, size], behind the last norm
  bf16 *normed, *delta;  // [T, size], to write to, like
  bf16 *q, *k, *v, *attended;  // [T, heads, head_size]
  double* seconds;       // [3], with one thread: what linear layers, attention and the rest take is added here; or null
  int64_t cuts_rows;     // whether many rows are
  int64_t num_threads;
};

// Per thread, measured with 2 MiB of second cache a core (`git show ab4fea70:docs/log/2026-11-25-amx-kernels.md`); a product takes whole blocks.
constexpr int64_t FEW_ROWS = 128, MANY_ROWS = 512, ROWS_OF_BLOCK = 32;

enum Kind { LINEAR, ATTENTION, REST };

// Processor time of the calling thread, by kind of work.
struct Clock {
  double* seconds;
  double since = now();
  double now() const {
    timespec time{};
    if (seconds) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  }
  void charge(Kind kind) {
    if (!seconds) return;
    const double then = since;
    since = now();
    seconds[kind] += since - then;
  }
};

class Forward {
 public:
  explicit Forward(const Step& step) : s(step), clock{step.num_threads == 1 ? step.seconds : nullptr} {}

  // Returns whether there was memory.
  bool run() {
    const Layer* behind = nullptr;
    for (const Layer* layer = s.layers; layer < s.layers + s.num_layers; behind = layer++)
      if (!between(behind, layer, s.num_tokens) || !attend(*layer, layer - s.layers)) return false;
    // Nobody attends to what comes behind the last layer's attention: keys and values are stored.
    if (!s.num_logit_rows) return true;
    pick(s.attended, s.num_heads * s.head_size, s.q);
    pick(s.x, s.size, s.out);
    x = s.out, attended = s.q;
    return between(behind, nullptr, s.num_logit_rows);
  }

 private:
  const Step& s;
  Clock clock;
  bf16 *x = s.x, *attended = s.attended;

  // What stands between the attention of two layers, or before the first, or behind the last: of each row for itself. Where there
  // are many, a thread has its own, some at a time, which stay in its caches from one attention to the next. Few are multiplied
  // by all threads, each with its own columns: then the weights are what has to come from far away.
  bool between(const Layer* behind, const Layer* before, int64_t rows) {
    if (!s.cuts_rows || rows < FEW_ROWS * s.num_threads) return between(behind, before, 0, rows, s.num_threads);
    const int64_t at_once = MANY_ROWS * s.num_threads;
    const int64_t parts = std::max<int64_t>(1, (rows + at_once / 2) / at_once) * s.num_threads;
    const int64_t height = ceil_div(ceil_div(rows, parts), ROWS_OF_BLOCK) * ROWS_OF_BLOCK;
    bool is_short = false;
#pragma omp parallel for num_threads(s.num_threads) schedule(dynamic)
    for (int64_t first = 0; first < rows; first += height)
      if (!between(behind, before, first, std::min(rows, first + height), 1)) {
#pragma omp atomic write
        is_short = true;
      }
    return !is_short;
  }

  // Of the rows `first` to `stop`.
  bool between(const Layer* behind, const Layer* before, int64_t first, int64_t stop, int64_t threads) {
    const int64_t rows = stop - first, q_size = s.num_heads * s.head_size, k_size = s.num_kv_heads * s.head_size;
    bf16 *here = x + first * s.size, *normed = s.normed + first * s.size, *delta = nullptr;
    const auto add_norm = [&](const Norm& norm, bf16* out) {
      hpd_add_norm_bfloat16(here, delta, norm.weight, here, out, rows, s.size, norm.eps, 0, threads);
      clock.charge(REST);
    };
    const auto project = [&](const Linear& linear, const bf16* x, int64_t depth, bf16* out) {
      hpd_linear(x, rows, depth, linear.weight, linear.blocks, linear.bias, out, linear.columns, threads);
      clock.charge(LINEAR);
    };
    // Norm, where there is one, and rotary embedding of all heads.
    const auto turn = [&](const Norm& of_heads, bf16* heads, int64_t count) {
      if (of_heads.weight)
        hpd_add_norm_bfloat16(heads, nullptr, of_heads.weight, heads, heads, rows * count, s.head_size, of_heads.eps, 0,
                              threads);
      hpd_rotate_bfloat16(heads, s.cos + first * s.head_size, s.sin + first * s.head_size, heads, rows, count, s.head_size, 0,
                          threads);
      clock.charge(REST);
    };
    if (behind) {
      delta = s.delta + first * s.size;
      project(behind->o, attended + first * q_size, q_size, delta);
      add_norm(behind->before_mlp, normed);
      const Linear &up = behind->gate_up, &down = behind->down;
      if (hpd_gated_mlp(normed, rows, s.size, up.weight, up.blocks, up.columns, down.weight, down.blocks, delta, down.columns,
                        threads))
        return false;
      clock.charge(LINEAR);
    }
    if (!before) {
      add_norm(s.last, s.out + first * s.size);
      return true;
    }
    bf16 *q = s.q + first * q_size, *k = s.k + first * k_size;
    add_norm(before->before_attention, normed);
    project(before->q, normed, s.size, q);
    project(before->k, normed, s.size, k);
    project(before->v, normed, s.size, s.v + first * k_size);
    turn(before->of_queries, q, s.num_heads);
    turn(before->of_keys, k, s.num_kv_heads);
    return true;
  }

  bool attend(const Layer& layer, int64_t number) {
    const int64_t q_token = s.num_heads * s.head_size, k_token = s.num_kv_heads * s.head_size;
    for (const Cohort* cohort = s.cohorts; cohort < s.cohorts + s.num_cohorts; cohort++) {
      Problem p = *cohort->problem;
      p.num_kv_heads = s.num_kv_heads, p.group = s.num_heads / s.num_kv_heads;
      p.key_size = p.value_size = s.head_size;
      p.window = layer.window, p.scale = layer.scale, p.softcap = 0, p.sinks = nullptr;
      p.q = s.q + cohort->first_token * q_token, p.out = s.attended + cohort->first_token * q_token;
      p.k = s.k + cohort->first_token * k_token, p.v = s.v + cohort->first_token * k_token;
      p.q_token = q_token, p.k_token = p.v_token = k_token;
      p.q_head = p.k_head = p.v_head = s.head_size;
      p.keys = cohort->keys[number], p.values = cohort->values[number];
      p.prefix_keys = cohort->prefixes + 2 * number * cohort->num_prefixes;
      p.prefix_values = p.prefix_keys + cohort->num_prefixes;
      p.num_threads = s.num_threads;
      if (hpd_attend_bfloat16(&p)) return false;
    }
    clock.charge(ATTENTION);
    return true;
  }

  // The rows whose logits are wanted.
  void pick(const bf16* from, int64_t size, bf16* to) {
    for (int64_t i = 0; i < s.num_logit_rows; i++)
      std::memcpy(static_cast<void*>(to + i * size), from + s.logit_rows[i] * size, sizeof(bf16) * size);
    clock.charge(REST);
  }
};

}  // namespace

// 0, or 1 where memory is missing.
extern "C" int hpd_layers(const Step* step) { return Forward(*step).run() ? 0 : 1; }
