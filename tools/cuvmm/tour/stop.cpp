#include "tour/stop.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "driver/result_names.hpp"

namespace cuvmm::tour {

std::span<const Stop> all_stops() {
  static const std::array stops{query_stop(), life_cycle_stop(), access_stop()};
  return stops;
}

void for_each_piece(Visit& visit, std::uint64_t most_bytes,
                    const std::function<void(std::uint64_t offset, std::span<std::byte> piece)>& move) {
  const std::uint64_t size = visit.input.size();
  std::vector<std::byte> buffer(std::min(size, most_bytes));
  for (std::uint64_t offset = 0; offset < size; offset += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - offset));
    visit.input.read(offset, piece);
    move(offset, piece);
    visit.bytes += piece.size();
    visit.progress.advance(piece.size());
  }
}

std::uint64_t window_bytes(std::uint64_t input_bytes, std::uint64_t granularity, std::uint64_t free_bytes) {
  constexpr std::uint64_t most = std::uint64_t{64} << 20;
  const std::uint64_t wanted = std::min({input_bytes, most, free_bytes / 4});
  const std::uint64_t whole = (wanted + granularity - 1) / granularity * granularity;
  return std::max(whole, 2 * granularity);
}

void require_checksum(Visit& visit, std::uint64_t seen, const std::string& what) {
  visit.checks.require(seen == visit.checksum, fmt::format("{}, with the checksum {:016x}", what, visit.checksum),
                       fmt::format("it is {:016x}", seen));
}

void require_refused(Checks& checks, abi::CUresult result, std::initializer_list<abi::CUresult> codes,
                     const std::string& violation) {
  const std::string answer(driver::result_name(result));
  if (std::find(codes.begin(), codes.end(), result) != codes.end()) {
    checks.require(true, fmt::format("{} is refused with {}", violation, answer));
    return;
  }
  std::string expected;
  for (const abi::CUresult code : codes) {
    expected += fmt::format("{}{}", expected.empty() ? "" : " or ", driver::result_name(code));
  }
  checks.require(false, fmt::format("{} is refused with {}", violation, expected),
                 result == abi::CUDA_SUCCESS ? "the driver accepted it" : "the driver answered " + answer);
}

void require_accepted(Checks& checks, abi::CUresult result, const std::string& tried) {
  checks.require(result == abi::CUDA_SUCCESS, tried + " is accepted",
                 fmt::format("the driver answered {}", driver::result_name(result)));
}

}  // namespace cuvmm::tour
