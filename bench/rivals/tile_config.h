// Included before every file of llama.cpp when it is compiled (make rivals). The header of GCC 12 says of _tile_loadconfig
// that it reads 8 of its 64 bytes. The others are left unwritten then, and llama.cpp crashes on a processor with AMX at its
// first matrix product of quantized weights.
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>
static inline void load_whole_tile_config(const void *config) {
    __asm__ volatile("ldtilecfg %0" ::"m"(*(const char(*)[64])config));
}
#define _tile_loadconfig load_whole_tile_config
#endif
