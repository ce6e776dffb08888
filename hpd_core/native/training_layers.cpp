// What a decoder layer does number by number while it trains, forward and backward; and the gradient of a cross entropy.
//
// As pointwise.cpp, but nothing is changed in place: the backward needs what went in, and computes the rest anew, which is
// cheaper than to keep it.

#include <omp.h>

#include <cmath>

#include "vectors.h"

namespace {

// Fewer numbers than this are not worth waking up other threads.
constexpr int64_t MANY = 16384;

inline float scale_of(floats squares, int64_t size, double eps) { return 1.0f / std::sqrt(sum_of(squares) / float(size) + float(eps)); }

// sum = x + delta, where there is one; out = sum / sqrt(mean(sum^2) + eps) * weight; rows of `size` numbers.
template <typename T>
void norm(const T* x, const T* delta, const T* weight, T* sum, T* out, int64_t rows, int64_t size, double eps, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > MANY) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const T* here = x + row * size;
    floats squares{};
    for (int64_t i = 0; i < size; i += LANES) {
      if (delta) put(sum + row * size + i, get(here + i, size - i) + get(delta + row * size + i, size - i), size - i);
      const floats number = get((delta ? sum + row * size : here) + i, size - i);
      squares += number * number;
    }
    if (delta) here = sum + row * size;
    const float scale = scale_of(squares, size, eps);
    for (int64_t i = 0; i < size; i += LANES)
      put(out + row * size + i, get(here + i, size - i) * scale * get(weight + i, size - i), size - i);
  }
}

// The gradient of `norm`'s sum (that of x, and that of delta), of what came in for the sum itself (null: nothing) and for `out`.
//   weight_parts: [threads, size], zeros, or null: what each thread's rows add to the gradient of the weight.
template <typename T>
void norm_backward(const T* sum, const T* weight, const T* sum_gradient, const T* out_gradient, T* gradient, float* weight_parts,
                   int64_t rows, int64_t size, double eps, int64_t threads) {
#pragma omp parallel num_threads(threads) if (rows * size > MANY)
  {
    float* part = weight_parts ? weight_parts + omp_get_thread_num() * size : nullptr;
#pragma omp for schedule(static)
    for (int64_t row = 0; row < rows; row++) {
      const T *x = sum + row * size, *g = out_gradient + row * size;
      floats squares{}, products{};
      for (int64_t i = 0; i < size; i += LANES) {
        const floats number = get(x + i, size - i);
        squares += number * number;
        products += number * get(g + i, size - i) * get(weight + i, size - i);
      }
      const float scale = scale_of(squares, size, eps), shrink = sum_of(products) / float(size) * scale * scale;
      for (int64_t i = 0; i < size; i += LANES) {
        const floats number = get(x + i, size - i), incoming = get(g + i, size - i);
        floats found = (incoming * get(weight + i, size - i) - number * shrink) * scale;
        if (sum_gradient) found += get(sum_gradient + row * size + i, size - i);
        put(gradient + row * size + i, found, size - i);
        if (part) put(part + i, get(part + i, size - i) + incoming * number * scale, size - i);
      }
    }
  }
}

// Rotary embedding: of each token's heads, the number i of the first half and the one of the second are a pair.
//   x, out: [tokens, heads, size]; cos, sin: [tokens, size]. `inverse`: its transpose, which the backward needs.
template <typename T>
void turn(const T* x, const T* cos, const T* sin, T* out, int64_t tokens, int64_t heads, int64_t size, int64_t inverse,
          int64_t threads) {
  const int64_t half = size / 2;
#pragma omp parallel for num_threads(threads) if (tokens * heads * size > MANY) schedule(static)
  for (int64_t token = 0; token < tokens; token++)
    for (int64_t i = 0; i < half; i += LANES) {
      const int64_t count = half - i;
      const T *c = cos + token * size + i, *s = sin + token * size + i;
      const floats first_cos = get(c, count), second_cos = get(c + half, count);
      // first = a * first_cos - b * first_sin; second = b * second_cos + a * second_sin
      const floats a_sin = inverse ? get(s + half, count) : -get(s, count), b_sin = inverse ? -get(s, count) : get(s + half, count);
      for (int64_t head = 0; head < heads; head++) {
        const int64_t at = (token * heads + head) * size + i;
        const floats a = get(x + at, count), b = get(x + at + half, count);
        put(out + at, a * first_cos + b * a_sin, count);
        put(out + at + half, b * second_cos + a * b_sin, count);
      }
    }
}

// out = silu(gate) * up
template <typename T>
void gated(const T* gate, const T* up, T* out, int64_t count, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (count > MANY) schedule(static)
  for (int64_t i = 0; i < count; i += LANES) put(out + i, silu(get(gate + i, count - i)) * get(up + i, count - i), count - i);
}

template <typename T>
void gated_backward(const T* gate, const T* up, const T* out_gradient, T* gate_gradient, T* up_gradient, int64_t count,
                    int64_t threads) {
#pragma omp parallel for num_threads(threads) if (count > MANY) schedule(static)
  for (int64_t i = 0; i < count; i += LANES) {
    const floats x = get(gate + i, count - i), incoming = get(out_gradient + i, count - i);
    const floats power = x < -87.0f ? floats{} : exponential(x < 0 ? x : -x);  // e^-|x|
    const floats sigmoid = (x < 0 ? power : floats{} + 1.0f) / (1.0f + power);
    put(up_gradient + i, incoming * x * sigmoid, count - i);
    put(gate_gradient + i, incoming * get(up + i, count - i) * sigmoid * (1.0f + x * (1.0f - sigmoid)), count - i);
  }
}

// Of the sum of the rows' cross entropies, times `factor`: softmax - smoothing / size - (1 - smoothing) at the target.
//   targets: below 0, a row is not in the sum.
template <typename T>
void cross_entropy_backward(const T* logits, const float* normalizers, const int64_t* targets, T* gradient, int64_t rows, int64_t size,
                            double smoothing, double factor, int64_t threads) {
#pragma omp parallel for num_threads(threads) if (rows * size > MANY) schedule(static)
  for (int64_t row = 0; row < rows; row++) {
    const T* here = logits + row * size;
    T* to = gradient + row * size;
    const float scale = targets[row] < 0 ? 0.0f : float(factor), share = float(smoothing / double(size)) * scale;
    for (int64_t i = 0; i < size; i += LANES)
      put(to + i, exponential(get(here + i, size - i) - normalizers[row]) * scale - share, size - i);
    if (targets[row] < 0) continue;
    const int64_t target = targets[row];
    const floats there = exponential(get(here + target, 1) - normalizers[row]) * scale - share - float(1 - smoothing) * scale;
    put(to + target, there, 1);
  }
}

}  // namespace

#define EXPORT(NAME, T)                                                                                                      \
  extern "C" void hpd_trained_norm_##NAME(const T* x, const T* delta, const T* weight, T* sum, T* out, int64_t rows,        \
                                          int64_t size, double eps, int64_t threads) {                                       \
    norm(x, delta, weight, sum, out, rows, size, eps, threads);                                                              \
  }                                                                                                                          \
  extern "C" void hpd_trained_norm_backward_##NAME(const T* sum, const T* weight, const T* sum_gradient,                     \
                                                   const T* out_gradient, T* gradient, float* weight_parts, int64_t rows,    \
                                                   int64_t size, double eps, int64_t threads) {                              \
    norm_backward(sum, weight, sum_gradient, out_gradient, gradient, weight_parts, rows, size, eps, threads);                \
  }                                                                                                                          \
  extern "C" void hpd_turn_##NAME(const T* x, const T* cos, const T* sin, T* out, int64_t tokens, int64_t heads,             \
                                  int64_t size, int64_t inverse, int64_t threads) {                                          \
    turn(x, cos, sin, out, tokens, heads, size, inverse, threads);                                                           \
  }                                                                                                                          \
  extern "C" void hpd_gated_##NAME(const T* gate, const T* up, T* out, int64_t count, int64_t threads) {                     \
    gated(gate, up, out, count, threads);                                                                                    \
  }                                                                                                                          \
  extern "C" void hpd_gated_backward_##NAME(const T* gate, const T* up, const T* out_gradient, T* gate_gradient,             \
                                            T* up_gradient, int64_t count, int64_t threads) {                                \
    gated_backward(gate, up, out_gradient, gate_gradient, up_gradient, count, threads);                                      \
  }                                                                                                                          \
  extern "C" void hpd_cross_entropy_backward_##NAME(const T* logits, const float* normalizers, const int64_t* targets,       \
                                                    T* gradient, int64_t rows, int64_t size, double smoothing,               \
                                                    double factor, int64_t threads) {                                        \
    cross_entropy_backward(logits, normalizers, targets, gradient, rows, size, smoothing, factor, threads);                  \
  }
EXPORT(float32, float)
EXPORT(bfloat16, bf16)
