// Memory that a kernel needs while it runs.

#pragma once

#include <cstdint>
#include <cstdlib>

#include "vectors.h"

namespace {

// Memory of one thread or one call, kept for the next; grows only. Null where there is none.
struct Scratch {
  char* memory = nullptr;
  int64_t size = 0;
  char* take(int64_t bytes) {
    if (bytes > size) {
      std::free(memory);
      size = ceil_div(bytes + bytes / 4, 4096) * 4096;
      memory = static_cast<char*>(std::aligned_alloc(64, size));
      if (!memory) size = 0;
    }
    return memory;
  }
  ~Scratch() { std::free(memory); }
};

}  // namespace
