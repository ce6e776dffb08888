// What the library's files call of each other, and what Python passes to them.

#pragma once

#include "vectors.h"

// Attention of one cohort in one layer. attention/native.py has the same fields in the same order. Strides count numbers, not bytes.
struct Problem {
  int64_t num_prompts, num_kv_heads, group, key_size, value_size, window;
  double scale, softcap;                                   // softcap 0: none
  const void *q, *k, *v;                                   // the stretch of the packed row: [t, H or H_kv, D]
  int64_t q_token, q_head, k_token, k_head, v_token, v_head;
  void* out;                                               // [t, H, D_v], contiguous
  void *keys, *values;                                     // the cache: [P, H_kv, C, D]; [P, H_kv, C / u, D_v, u], contiguous
  int64_t capacity;                                        // C; u is what `hpd_columns_of_block` says
  const int64_t *counts, *used;                            // [P]: tokens of this step; columns in use
  const int64_t *q_scopes, *q_sights;                      // [P, R]: of each prompt's tokens; the position up to which it sees
  int64_t q_row;                                           // R
  const int32_t *k_scopes, *k_lasts, *k_positions;         // [P, k_row], with LANES more behind a prompt's last column
  int64_t k_row;                                           // where a column holds nothing, it is later than every token
  const int64_t* kv_columns;                               // [t]: where the new keys and values go, of their prompts
  const int64_t* prefix_of;                                // [P], -1 for none
  const void* const* prefix_keys;                          // per prefix as the cache, of one prompt
  const void* const* prefix_values;                        // 0 behind its last column
  const int64_t *prefix_lengths, *prefix_capacities;
  const float* sinks;                                      // [H] or null
  int64_t num_threads;
};

extern "C" {
// 0, or 1 where memory is missing: then what is written is not whole.
int hpd_attend_bfloat16(const Problem* p);
// sum = x + delta, where there is one; out = the RMS norm of it times offset + weight; rows of `size`. `sum` and `out` may be `x`.
void hpd_add_norm_bfloat16(const bf16* x, const bf16* delta, const bf16* weight, bf16* sum, bf16* out, int64_t rows, int64_t size,
                           double eps, double offset, int64_t threads);
// Rotary embedding of x [tokens, heads, size] by cos and sin [tokens, size], or its inverse. `out` may be `x`.
void hpd_rotate_bfloat16(const bf16* x, const bf16* cos, const bf16* sin, bf16* out, int64_t tokens, int64_t heads, int64_t size,
                         int64_t inverse, int64_t threads);
// x: [rows, depth]; weight: of `blocks` blocks of columns; bias: [columns] or null; out: [rows, columns].
void hpd_linear(const bf16* x, int64_t rows, int64_t depth, const uint32_t* weight, int64_t blocks, const bf16* bias, bf16* out,
                int64_t columns, int64_t threads);
// 0, or 1 where memory is missing.
int hpd_gated_mlp(const bf16* x, int64_t rows, int64_t depth, const uint32_t* gate_up, int64_t gate_up_blocks,
                  int64_t hidden_size, const uint32_t* down, int64_t down_blocks, bf16* out, int64_t columns, int64_t threads);
}
