// Programs that use the CUDA driver and know of nothing else: they are run under `cuvmm emulate`, one case a process.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstring>

#include "driver/abi.hpp"

// In a case: says what does not hold, and ends the case with 1.
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      return 1;                                                            \
    }                                                                      \
  } while (false)

namespace cuvmm::tests {

using namespace cuvmm::abi;

struct Case {
  const char* name;
  int (*run)();
};

// Runs the case that the command line names, and returns its exit status.
template <std::size_t count>
int run_case(const Case (&cases)[count], int words, char** word) {
  for (const Case& one : cases)
    if (words == 2 && std::strcmp(word[1], one.name) == 0) return one.run();
  std::fprintf(stderr, "no such case\n");
  return 100;
}

inline constexpr std::size_t chunk = std::size_t{2} << 20;

}  // namespace cuvmm::tests
