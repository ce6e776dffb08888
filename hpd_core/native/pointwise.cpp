// What a decoder layer does number by number between its matrix products, and the choice of tokens behind the last one.
//
// A row is in the core's cache until it is done, where torch goes over all of them for every operation. Sums and products are
// in fp32 and rounded once.

#include <cmath>
#include <limits>

#include "kernels.h"
#include "vectors.h"

namespace {

// Fewer numbers than this are not worth waking up other threads.
constexpr int64_t MANY = 16384;

// sum = x + delta, where there is one (sum may be x); out = sum / sqrt(mean(sum^2) + eps) * (offset + weight); rows of `size`.
// Without delta, `sum` is x and not written.
template <typename T>
void add_norm(const T* x, const T* delta, const T* weight, T* sum, T* out, int64_t rows, int64_t size, double eps, double offset,
              int64_t threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > MANY) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const T* here = (delta ? sum : x) + row * size;
    floats squares{};
    for (int64_t i = 0; i < size; i += LANES) {
      const int64_t at = row * size + i;
      if (delta) put(sum + at, get(x + at, size - i) + get(delta + at, size - i), size - i);
      const floats number = get(here + i, size - i);
      squares += number * number;
    }
    const float scale = 1.0f / std::sqrt(sum_of(squares) / float(size) + float(eps));
    for (int64_t i = 0; i < size; i += LANES)
      put(out + row * size + i, get(here + i, size - i) * scale * (get(weight + i, size - i) + float(offset)), size - i);
  }
}

// Rotary embedding: of each token's heads, the number i of the first half and the one of the second are a pair.
//   x, out: [tokens, heads, size], may be the same; cos, sin: [tokens, size]. `inverse`: its transpose, for a backward.
template <typename T>
void rotate(const T* x, const T* cos, const T* sin, T* out, int64_t tokens, int64_t heads, int64_t size, int64_t inverse,
            int64_t threads) {
  const int64_t half = size / 2;
#pragma omp parallel for num_threads(threads) if (tokens * heads * size > MANY) schedule(static)
  for (int64_t token = 0; token < tokens; token++)
    for (int64_t i = 0; i < half; i += LANES) {
      const int64_t count = half - i;
      const T *c = cos + token * size + i, *s = sin + token * size + i;
      const floats first_cos = get(c, count), first_sin = inverse ? -get(s + half, count) : get(s, count);
      const floats second_cos = get(c + half, count), second_sin = inverse ? -get(s, count) : get(s + half, count);
      for (int64_t head = 0; head < heads; head++) {
        const int64_t at = (token * heads + head) * size + i;
        const floats a = get(x + at, count), b = get(x + at + half, count);
        put(out + at, a * first_cos - b * first_sin, count);
        put(out + at + half, b * second_cos + a * second_sin, count);
      }
    }
}

// out = silu(gate) * up, or gelu(gate) * up by its approximation with tanh; out may be the gate.
template <typename T>
void gated(const T* gate, const T* up, T* out, int64_t count, int64_t is_gelu, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (count > MANY) schedule(static)
  for (int64_t i = 0; i < count; i += LANES) {
    const floats x = get(gate + i, count - i);
    put(out + i, (is_gelu ? gelu(x) : silu(x)) * get(up + i, count - i), count - i);
  }
}

// Of each row of logits the likeliest token (the first of equals), its logit, and log(sum(e^logit)).
template <typename T>
void choose(const T* logits, int64_t rows, int64_t size, int64_t* tokens, float* scores, float* normalizers, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > MANY) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const T* here = logits + row * size;
    const floats nothing = spread(-std::numeric_limits<float>::infinity());
    const auto take = [&](int64_t i) {
      const floats x = get(here + i, size - i);
      return size - i < LANES ? (NUMBERED < int32_t(size - i) ? x : nothing) : x;
    };
    floats most = nothing;
    ints place = NUMBERED;
    for (int64_t i = 0; i < size; i += LANES) {
      const floats x = take(i);
      const ints is_more = x > most;
      most = is_more ? x : most;
      place = is_more ? NUMBERED + int32_t(i) : place;
    }
    float highest = most[0];
    int32_t likeliest = place[0];
    for (int lane = 1; lane < LANES; lane++)
      if (most[lane] > highest || (most[lane] == highest && place[lane] < likeliest)) {
        highest = most[lane];
        likeliest = place[lane];
      }
    floats sum{};
    for (int64_t i = 0; i < size; i += LANES) sum += exponential(take(i) - highest);
    tokens[row] = likeliest;
    scores[row] = highest;
    normalizers[row] = highest + std::log(sum_of(sum));
  }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                                    \
  extern "C" void hpd_add_norm_##NAME(const T* x, const T* delta, const T* weight, T* sum, T* out, int64_t rows, int64_t size,\
                                      double eps, double offset, int64_t threads) {                                        \
    add_norm(x, delta, weight, sum, out, rows, size, eps, offset, threads);                                                \
  }                                                                                                                        \
  extern "C" void hpd_rotate_##NAME(const T* x, const T* cos, const T* sin, T* out, int64_t tokens, int64_t heads, int64_t size,\
                                    int64_t inverse, int64_t threads) {                                                    \
    rotate(x, cos, sin, out, tokens, heads, size, inverse, threads);                                                       \
  }                                                                                                                        \
  extern "C" void hpd_gated_##NAME(const T* gate, const T* up, T* out, int64_t count, int64_t is_gelu, int64_t threads) {  \
    gated(gate, up, out, count, is_gelu, threads);                                                                         \
  }                                                                                                                        \
  extern "C" void hpd_choose_##NAME(const T* logits, int64_t rows, int64_t size, int64_t* tokens, float* scores,           \
                                    float* normalizers, int64_t threads) {                                                 \
    choose(logits, rows, size, tokens, scores, normalizers, threads);                                                      \
  }
EXPORT(float32, float)
EXPORT(bfloat16, bf16)
