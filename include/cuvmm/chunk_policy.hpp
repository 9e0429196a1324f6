// How large the allocations are that a range grows by.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace cuvmm {

// What a policy is asked: a range of `mapped_bytes` needs `needed_bytes` more, may take at most `most_bytes`, and sizes
// are multiples of `granularity`.
struct ChunkRequest {
  std::size_t mapped_bytes = 0;
  std::size_t needed_bytes = 0;
  std::size_t most_bytes = 0;
  std::size_t granularity = 1;
};

// The driver's costs are per mapping, hardly per byte, and what was created as one is released as one: few large chunks
// are fast, small chunks can be given back in small pieces. A policy chooses between the two:
//
// - geometric, for ranges that grow bit by bit: few chunks, of which at most as much is unused as was mapped before, or
//   most_bytes, if that is less;
// - bounded, where less may be unused;
// - fixed, where memory is given back in pieces;
// - exact, where sizes are known beforehand and appends are few.
//
// An immutable value.
class ChunkPolicy {
 public:
  // One chunk of what is needed: no slack but the granularity's.
  [[nodiscard]] static ChunkPolicy exact() noexcept { return {Kind::exact, 0, 0}; }

  // Chunks of `chunk_bytes` each (rounded up to the granularity), for callers who give memory back in pieces of that
  // size. Throws InvalidUse for 0.
  [[nodiscard]] static ChunkPolicy fixed(std::size_t chunk_bytes);

  // One chunk of what is needed and so much more that at most the share `slack` of what is then mapped is unused, the
  // granularity apart: 0.02 for two per cent. Throws InvalidUse unless 0 <= slack < 1.
  [[nodiscard]] static ChunkPolicy bounded(double slack);

  // One chunk as large as what is mapped already, so that the number of chunks grows with the logarithm of the size; at
  // most `most_bytes` large unless more is needed. Throws InvalidUse for 0.
  [[nodiscard]] static ChunkPolicy geometric(std::size_t most_bytes = std::size_t{256} << 20);

  // For the library's own parts, and for tests. The sizes of the chunks to add, in order: each a multiple of the
  // granularity, together no less than what is needed and no more than allowed. What is needed is positive and is
  // allowed, both rounded to the granularity.
  [[nodiscard]] std::vector<std::size_t> plan(const ChunkRequest& request) const;

  [[nodiscard]] std::string to_string() const;  // "geometric, at most 256 MiB"

  friend bool operator==(const ChunkPolicy&, const ChunkPolicy&) noexcept = default;

 private:
  enum class Kind : unsigned char { exact, fixed, bounded, geometric };
  ChunkPolicy(Kind kind, std::size_t bytes, double slack) noexcept : kind_(kind), bytes_(bytes), slack_(slack) {}

  Kind kind_;
  std::size_t bytes_;
  double slack_;
};

}  // namespace cuvmm
