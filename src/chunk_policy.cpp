#include "cuvmm/chunk_policy.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "cuvmm/units.hpp"
#include "refusal.hpp"

namespace cuvmm {

ChunkPolicy ChunkPolicy::fixed(std::size_t chunk_bytes) {
  if (chunk_bytes == 0)
    raise(invalid_use("ChunkPolicy::fixed", "chunk_bytes = 0", "A chunk is no less than the granularity",
                      "Give the size of a chunk, or use ChunkPolicy::exact()"));
  return {Kind::fixed, chunk_bytes, 0};
}

ChunkPolicy ChunkPolicy::bounded(double slack) {
  if (!(slack >= 0 && slack < 1))
    raise(invalid_use("ChunkPolicy::bounded", fmt::format("slack = {}", slack),
                      "The slack is a share of what is mapped: no less than 0 and less than 1",
                      "0.02 stands for two per cent"));
  return {Kind::bounded, 0, slack};
}

ChunkPolicy ChunkPolicy::geometric(std::size_t most_bytes) {
  if (most_bytes == 0)
    raise(invalid_use("ChunkPolicy::geometric", "most_bytes = 0", "A chunk is no less than the granularity",
                      "Give the size of the largest chunk, 256 MiB for one"));
  return {Kind::geometric, most_bytes, 0};
}

std::vector<std::size_t> ChunkPolicy::plan(const ChunkRequest& request) const {
  const std::size_t unit = request.granularity;
  const std::size_t needed = align_up(request.needed_bytes, unit);
  const std::size_t most = std::max(needed, request.most_bytes / unit * unit);
  std::size_t wanted = needed;
  switch (kind_) {
    case Kind::exact:
      break;
    case Kind::fixed: {
      const std::size_t chunk = bytes_ >= most ? most : align_up(bytes_, unit);
      std::vector<std::size_t> sizes(needed / chunk, chunk);
      if (const std::size_t rest = needed % chunk; rest != 0)
        sizes.push_back(std::min(chunk, most - sizes.size() * chunk));
      return sizes;
    }
    case Kind::bounded: {
      // unused <= slack * (mapped + needed + unused)
      const double unused =
          slack_ / (1 - slack_) * (static_cast<double>(request.mapped_bytes) + static_cast<double>(needed));
      if (unused >= static_cast<double>(most - needed)) {
        wanted = most;
      } else {
        wanted += static_cast<std::size_t>(unused) / unit * unit;
      }
      break;
    }
    case Kind::geometric:
      wanted = std::max(needed, std::min(request.mapped_bytes, bytes_) / unit * unit);
      break;
  }
  return {std::min(wanted, most)};
}

std::string ChunkPolicy::to_string() const {
  switch (kind_) {
    case Kind::fixed:
      return "fixed, " + format_bytes(bytes_);
    case Kind::bounded:
      return fmt::format("bounded, at most {:g} % unused", slack_ * 100);
    case Kind::geometric:
      return "geometric, at most " + format_bytes(bytes_);
    case Kind::exact:
      break;
  }
  return "exact";
}

}  // namespace cuvmm
