// What a server of a language model allocates for requests.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "traces/allocation_trace.hpp"
#include "traces/request_trace.hpp"

namespace cuvmm::traces {

// The model, and how it is served.
struct Serving {
  std::uint64_t layers = 32;
  std::uint64_t key_value_heads = 8;
  std::uint64_t head_dimension = 128;
  std::uint64_t element_bytes = 2;
  double tokens_per_second = 20;     // that each sequence generates
  std::size_t most_sequences = 64;   // at a time
  std::uint64_t growth_tokens = 64;  // that there is room for in what a sequence takes whenever it has none left

  // Keys and values of all layers.
  [[nodiscard]] std::uint64_t token_bytes() const noexcept {
    return 2 * layers * key_value_heads * head_dimension * element_bytes;
  }
};

// One allocation for each prompt, when its request has come and there are fewer sequences than may be; then one of
// growth_tokens whenever the sequence has no room for its next token; all freed with its last one. Prompts are taken to
// be read in no time. Throws Broken where that is nothing at all, or too much for one allocation.
[[nodiscard]] AllocationTrace served_allocations(const std::vector<Request>& requests, const Serving& serving);

}  // namespace cuvmm::traces
