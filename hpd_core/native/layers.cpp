// All decoder layers of a model in one call, where all of their products are by tiles: the functions of this folder in the order in
// which hpd_core/forward.py calls them one by one, with the same numbers. What it saves is Python between them: in a step of
// few tokens that takes as long as reading a third of the weights.

#include <cstring>
#include <ctime>

#include "kernels.h"

namespace {

// As native/layers.py has them, field by field.

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
  double* seconds;       // [3]: what linear layers, attention and the rest took is added here; or null
  int64_t num_threads;
};

enum Part { LINEAR, ATTENTION, REST };

// Processor time of the calling thread, by part.
struct Clock {
  double* seconds;
  double since = now();
  double now() const {
    timespec time{};
    if (seconds) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  }
  void charge(Part part) {
    if (!seconds) return;
    const double then = since;
    since = now();
    seconds[part] += since - then;
  }
};

class Forward {
 public:
  explicit Forward(const Step& step) : s(step), clock{step.seconds} {}

  // Returns whether there was memory.
  bool run() {
    const bf16* delta = nullptr;  // what the layer before adds to the residual stream
    for (int64_t i = 0; i < s.num_layers; i++) {
      const Layer& layer = s.layers[i];
      norm(layer.before_attention, x, delta, s.normed, rows, s.size);
      project(layer.q, s.normed, s.size, s.q);
      project(layer.k, s.normed, s.size, s.k);
      project(layer.v, s.normed, s.size, s.v);
      turn(layer.of_queries, s.q, s.num_heads);
      turn(layer.of_keys, s.k, s.num_kv_heads);
      if (!attend(layer, i)) return false;
      const bf16* attended = s.attended;
      if (i + 1 == s.num_layers) {
        // Nobody attends to what comes behind: keys and values are stored.
        rows = s.num_logit_rows;
        if (!rows) return true;
        pick(s.attended, s.num_heads * s.head_size, s.q);
        pick(x, s.size, s.out);
        attended = s.q, x = s.out;
      }
      project(layer.o, attended, s.num_heads * s.head_size, s.delta);
      norm(layer.before_mlp, x, s.delta, s.normed, rows, s.size);
      if (!mlp(layer)) return false;
      delta = s.delta;
    }
    norm(s.last, x, delta, s.out, rows, s.size);
    return true;
  }

 private:
  const Step& s;
  Clock clock;
  bf16* x = s.x;
  int64_t rows = s.num_tokens;

  void norm(const Norm& norm, bf16* x, const bf16* delta, bf16* out, int64_t rows, int64_t size) {
    hpd_add_norm_bfloat16(x, delta, norm.weight, out, rows, size, norm.eps, s.num_threads);
    clock.charge(REST);
  }

  void project(const Linear& linear, const bf16* x, int64_t depth, bf16* out) {
    hpd_linear(x, rows, depth, linear.weight, linear.blocks, linear.bias, out, linear.columns, s.num_threads);
    clock.charge(LINEAR);
  }

  bool mlp(const Layer& layer) {
    const Linear &up = layer.gate_up, &down = layer.down;
    const int missing = hpd_gated_mlp(s.normed, rows, s.size, up.weight, up.blocks, up.columns, down.weight, down.blocks, s.delta,
                                      down.columns, s.num_threads);
    clock.charge(LINEAR);
    return !missing;
  }

  // Norm, where there is one, and rotary embedding of all heads.
  void turn(const Norm& of_heads, bf16* heads, int64_t count) {
    if (of_heads.weight) norm(of_heads, heads, nullptr, heads, rows * count, s.head_size);
    hpd_rotate_bfloat16(heads, s.cos, s.sin, rows, count, s.head_size, s.num_threads);
    clock.charge(REST);
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
