// The backward of what a decoder layer does number by number (pointwise.cpp), and the gradient of a cross entropy.
//
// It needs what went into the forward, and computes the rest anew, which is cheaper than to keep it.

#include <omp.h>

#include <cmath>

#include "vectors.h"

namespace {

// Fewer numbers than this are not worth waking up other threads.
constexpr int64_t MANY = 16384;

inline float scale_of(floats squares, int64_t size, double eps) { return 1.0f / std::sqrt(sum_of(squares) / float(size) + float(eps)); }

// The gradient of `add_norm`'s sum (that of x, and that of delta), of what came in for the sum itself (null: nothing) and for `out`.
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

// Of silu(gate) * up.
template <typename T>
void swiglu_backward(const T* gate, const T* up, const T* out_gradient, T* gate_gradient, T* up_gradient, int64_t count,
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
  extern "C" void hpd_norm_backward_##NAME(const T* sum, const T* weight, const T* sum_gradient,                     \
                                                   const T* out_gradient, T* gradient, float* weight_parts, int64_t rows,    \
                                                   int64_t size, double eps, int64_t threads) {                              \
    norm_backward(sum, weight, sum_gradient, out_gradient, gradient, weight_parts, rows, size, eps, threads);                \
  }                                                                                                                          \
  extern "C" void hpd_swiglu_backward_##NAME(const T* gate, const T* up, const T* out_gradient, T* gate_gradient,             \
                                            T* up_gradient, int64_t count, int64_t threads) {                                \
    swiglu_backward(gate, up, out_gradient, gate_gradient, up_gradient, count, threads);                                      \
  }                                                                                                                          \
  extern "C" void hpd_cross_entropy_backward_##NAME(const T* logits, const float* normalizers, const int64_t* targets,       \
                                                    T* gradient, int64_t rows, int64_t size, double smoothing,               \
                                                    double factor, int64_t threads) {                                        \
    cross_entropy_backward(logits, normalizers, targets, gradient, rows, size, smoothing, factor, threads);                  \
  }
EXPORT(float32, float)
EXPORT(bfloat16, bf16)
