#include "gpu/meeting_memory.hpp"

#include <fmt/format.h>

#include <string>

#include "refusal.hpp"

namespace cuvmm::gpu {
namespace {

// With these no size runs over.
constexpr std::uint32_t most_blocks = 65'535;
constexpr std::uint32_t most_lines = std::uint32_t{1} << 20;
constexpr std::size_t most_staging_bytes = std::size_t{1} << 40;

}  // namespace

std::optional<Failure> refusal_of(std::string_view call, const CollectiveOptions& options, std::size_t ranks) {
  if (ranks == 0 || ranks > max_ranks)
    return invalid_use(call, fmt::format("ranks = {}", ranks),
                       fmt::format("Collectives are of 1 to {} ranks", max_ranks), "Make the team smaller");
  if (options.blocks == 0 || options.blocks > most_blocks)
    return invalid_use(call, fmt::format("blocks = {}", options.blocks),
                       fmt::format("A call has 1 to {} blocks", most_blocks),
                       "Give as many as a device runs at once, which are few");
  if (options.lines_per_block == 0 || options.lines_per_block > most_lines)
    return invalid_use(call, fmt::format("lines_per_block = {}", options.lines_per_block),
                       fmt::format("A block has 1 to {} lines", most_lines), "Give some thousands");
  if (options.staging_bytes == 0 || options.staging_bytes % sizeof(Pack) != 0 ||
      options.staging_bytes > most_staging_bytes)
    return invalid_use(
        call, fmt::format("staging_bytes = {}", options.staging_bytes),
        fmt::format("Staging buffers have a multiple of {} bytes, and {} at most", sizeof(Pack), most_staging_bytes),
        "Give as much as one rank is to write to another at once, some MiB");
  if (options.time_limit.count() <= 0)
    return invalid_use(call, fmt::format("time_limit = {} ns", options.time_limit.count()),
                       "A kernel waits for other ranks for a while, and no longer",
                       "Give how long ranks may be apart, seconds rather than microseconds");
  return std::nullopt;
}

}  // namespace cuvmm::gpu
