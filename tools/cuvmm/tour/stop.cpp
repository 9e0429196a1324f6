#include "tour/stop.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "driver/call.hpp"
#include "driver/convert.hpp"
#include "driver/result_names.hpp"
#include "gpu/checksum.hpp"

namespace cuvmm::tour {

std::span<const Stop> all_stops() {
  static const std::array stops{query_stop(),
                                life_cycle_stop(),
                                export_stop(),
                                import_stop(),
                                mapping_stop(),
                                access_stop(),
                                release_stop(),
                                multicast_object_stop(),
                                multicast_device_stop(),
                                multicast_binding_stop(),
                                multicast_use_stop(),
                                host_memory_stop(),
                                compression_stop(),
                                alias_stop(),
                                handle_types_stop(),
                                vector_stop(),
                                ring_stop(),
                                stitched_stop(),
                                sleep_stop()};
  return stops;
}

Gpu& require_first_gpu(const Visit& visit) {
  Gpu& first = *visit.gpus.front();
  first.require_virtual_memory();
  first.require_kernels();
  first.make_current();
  first.require_room(first.device().granularity());
  return first;
}

void require_other_processes(const Visit& visit, const Gpu& gpu, int count) {
  if (!visit.place.alone.empty()) throw Unavailable(visit.place.alone);
  gpu.require_room(gpu.device().granularity(), count);
}

std::vector<std::byte> sample_of_input(const InputFile& input, std::size_t bytes) {
  std::vector<std::byte> sample(bytes);
  const std::size_t there = std::min<std::uint64_t>(bytes, input.size());
  input.read(0, std::span(sample).first(there));
  for (std::size_t at = there; at < bytes; ++at) sample[at] = static_cast<std::byte>(gpu::mix64(at));
  return sample;
}

void read_pieces(const InputFile& input, std::uint64_t most_bytes,
                 const std::function<void(std::uint64_t offset, std::span<std::byte> piece)>& read) {
  const std::uint64_t size = input.size();
  std::vector<std::byte> buffer(std::min(size, most_bytes));
  for (std::uint64_t offset = 0; offset < size; offset += buffer.size()) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - offset));
    input.read(offset, piece);
    read(offset, piece);
  }
}

void for_each_piece(Visit& visit, std::uint64_t most_bytes,
                    const std::function<void(std::uint64_t offset, std::span<std::byte> piece)>& move) {
  read_pieces(visit.input, most_bytes, [&](std::uint64_t offset, std::span<std::byte> piece) {
    move(offset, piece);
    visit.bytes += piece.size();
    visit.progress.advance(piece.size());
  });
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

void require_rights(Visit& visit, DeviceAddress address, const Location& location, AccessRights expected,
                    const std::string& whose) {
  unsigned long long flags = 0;
  const abi::CUmemLocation place = driver::to_abi(location);
  driver::call<driver::EntryPoint::cuMemGetAccess>(visit.driver.interface(), &flags, &place, address.value);
  const auto rights = static_cast<AccessRights>(flags);
  visit.checks.require(rights == expected, fmt::format("{}: the driver says {}", whose, to_string(expected)),
                       fmt::format("it says {}", to_string(rights)));
}

void require_comes_back(Visit& visit, const Gpu& gpu, std::uint64_t free_before, std::uint64_t bytes,
                        const std::string& what) {
  std::uint64_t free = gpu.free_memory();
  for (int attempt = 0; attempt < 20 && free < free_before + bytes; ++attempt) {
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    free = gpu.free_memory();
  }
  visit.checks.require(
      free >= free_before + bytes, what,
      fmt::format("{} bytes were free before and {} after, of {} given back", free_before, free, bytes));
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
