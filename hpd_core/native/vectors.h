// Vectors of numbers, fp32 and bf16, for the kernels of this folder.
//
// Compiled where it runs (native/library.py), for the machine it runs on, by GCC: vectors of any size and shuffles of them are
// its extensions. A vector is what one register holds: a longer one would be computed in parts, and its parts kept in memory.

#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#ifdef __AVX2__
#include <immintrin.h>
#endif

namespace {

#if defined(__AVX512F__)
constexpr int LANES = 16, REGISTERS = 32;
#elif defined(__AVX2__)
constexpr int LANES = 8, REGISTERS = 16;
#elif defined(__aarch64__)
constexpr int LANES = 4, REGISTERS = 32;
#else
constexpr int LANES = 4, REGISTERS = 16;
#endif

typedef float floats __attribute__((vector_size(4 * LANES)));
typedef int32_t ints __attribute__((vector_size(4 * LANES)));
typedef uint32_t words __attribute__((vector_size(4 * LANES)));
typedef uint16_t halves __attribute__((vector_size(2 * LANES)));

using Lanes = std::make_integer_sequence<int32_t, LANES>;

template <int32_t... LANE>
constexpr ints numbered(std::integer_sequence<int32_t, LANE...>) {
  return ints{LANE...};
}
constexpr ints NUMBERED = numbered(Lanes{});  // 0, 1, 2, ...

template <typename V, typename T>
inline V load(const T* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <typename V, typename T>
inline void store(T* to, V v) {
  std::memcpy(to, &v, sizeof v);
}

// sum + a * b, rounded once. Left to the compiler, it is so in some instantiations of a template and not in others, and a
// row's numbers would depend on what it is computed with.
inline floats add_product(floats sum, floats a, floats b) {
#if defined(__AVX512F__)
  return (floats)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#elif defined(__AVX2__) && defined(__FMA__)
  return (floats)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)sum);
#else
  return sum + a * b;
#endif
}

inline floats spread(float x) { return floats{} + x; }
inline words spread(uint32_t x) { return words{} + x; }
inline ints spread(int32_t x) { return ints{} + x; }

// A type of its own, so that overloads tell it from a number.
struct bf16 {
  uint16_t bits;
};

inline floats higher(floats a, floats b) { return a > b ? a : b; }

// To the nearest bf16, ties to even: its bits are the upper half of each word.
inline words rounded(floats x) {
  const words word = (words)x;
  return word + 0x7fff + ((word >> 16) & 1);
}

inline void put_vector(float* to, floats x) { store(to, x); }
inline void put_vector(bf16* to, floats x) {
#ifdef __AVX512BF16__
  const __m256bh low = _mm512_cvtneps_pbh((__m512)x);
  std::memcpy(to, &low, sizeof low);
#else
  store(to, __builtin_convertvector(rounded(x) >> 16, halves));
#endif
}

inline floats get_vector(const float* from) { return load<floats>(from); }
inline floats get_vector(const bf16* from) { return (floats)(__builtin_convertvector(load<halves>(from), words) << 16); }

// The same of `count` numbers where there are fewer; the lanes behind them are 0.
template <typename T>
inline floats get(const T* from, int64_t count) {
  if (count >= LANES) return get_vector(from);
  T some[LANES] = {};
  std::memcpy(some, from, sizeof(T) * count);
  return get_vector(some);
}

template <typename T>
inline void put(T* to, floats x, int64_t count) {
  if (count >= LANES) return put_vector(to, x);
  T some[LANES];
  put_vector(some, x);
  std::memcpy(to, some, sizeof(T) * count);
}

// e^x for x <= 0; below -87 it is 0, nearly. Cephes' polynomial: as precise as fp32.
inline floats exponential(floats x) {
  const floats least = spread(-87.0f);
  x = x < least ? least : x;
  const floats magic = spread(12582912.0f);  // 1.5 * 2^23: what is added to it is rounded to a whole number
  const floats n = (x * 1.44269504088896341f + magic) - magic;
  const floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  floats p = spread(1.9875691500e-4f);
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const ints power = (__builtin_convertvector(n, ints) + 127) << 23;
  return p * (floats)power;
}

// x / (1 + e^-x)
inline floats silu(floats x) {
  // e^-|x|, which never overflows; far below 0, where `exponential` ends, nothing must be left of a large x.
  const floats power = x < -87.0f ? floats{} : exponential(x < 0 ? x : -x);
  return x * (x < 0 ? power : floats{} + 1.0f) / (1.0f + power);
}

// x times the normal distribution's share below x, by the usual approximation: 1/2 (1 + tanh(z)) = 1 / (1 + e^-2z).
inline floats gelu(floats x) {
  const floats twice = 1.5957691216f * (x + 0.044715f * x * x * x);
  const floats power = twice < -87.0f ? floats{} : exponential(twice < 0 ? twice : -twice);
  return x * (twice < 0 ? power : floats{} + 1.0f) / (1.0f + power);
}

// 2^x for x below 1; 0 below -126. A polynomial of least relative error (1e-7, with fp32's rounding 2e-7) that is 1 at 0.
// (Of e^x it would be less precise far below 0 than `exponential`: there the product with log2(e) would be rounded.)
inline floats power_of_two(floats x) {
#ifdef __AVX512DQ__
  const floats r = (floats)_mm512_reduce_ps((__m512)x, 0);  // less the nearest whole number
#else
  // What is added to it is rounded to a whole number, in the last bits.
  const floats magic = spread(12582912.0f);  // 1.5 * 2^23
  const floats shifted = x + magic, r = x - (shifted - magic);
#endif
  floats p = spread(1.3264727197e-3f);
  p = p * r + 9.6715126397e-3f;
  p = p * r + 5.5507337433e-2f;
  p = p * r + 2.4022242085e-1f;
  p = p * r + 6.9314697760e-1f;
  p = p * r + 1.0f;
#ifdef __AVX512DQ__
  return (floats)_mm512_scalef_ps((__m512)p, (__m512)(x - r));
#else
  return x < -126.0f ? floats{} : (floats)((words)p + ((words)shifted << 23));
#endif
}

// The same as precise as what is rounded to bf16 behind it: to 1e-4.
inline floats rough_power_of_two(floats x) {
#ifdef __AVX512DQ__
  const floats r = (floats)_mm512_reduce_ps((__m512)x, 1);  // less the whole number below
  floats p = spread(7.7067197434e-2f);
  p = p * r + 2.2764482191e-1f;
  p = p * r + 6.9511682453e-1f;
  p = p * r + 1.0f;
  return (floats)_mm512_scalef_ps((__m512)p, (__m512)x);
#else
  return power_of_two(x);
#endif
}

// Of all numbers of a vector; lanes that are LANES / 2, ..., 2, 1 apart meet.
template <int APART = LANES / 2>
inline float sum_of(floats x) {
  x += __builtin_shuffle(x, NUMBERED ^ APART);
  if constexpr (APART > 1) return sum_of<APART / 2>(x);
  return x[0];
}
template <int APART = LANES / 2>
inline float highest_of(floats x) {
  const floats other = __builtin_shuffle(x, NUMBERED ^ APART);
  x = other > x ? other : x;
  if constexpr (APART > 1) return highest_of<APART / 2>(x);
  return x[0];
}
template <int APART = LANES / 2>
inline bool any_of(ints x) {
  x |= __builtin_shuffle(x, NUMBERED ^ APART);
  if constexpr (APART > 1) return any_of<APART / 2>(x);
  return x[0];
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace
