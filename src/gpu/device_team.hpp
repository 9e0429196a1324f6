// A team whose ranks are devices of this process: memory that all of them reach, and the launches of collectives.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/context.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/gpu/all_gather.cuh"
#include "cuvmm/gpu/all_reduce.cuh"
#include "cuvmm/gpu/broadcast.cuh"
#include "cuvmm/gpu/flagged_all_reduce.cuh"
#include "cuvmm/gpu/rank_barrier.cuh"
#include "cuvmm/gpu/staged_all_reduce.cuh"
#include "cuvmm/mapped_range.hpp"
#include "driver/abi.hpp"
#include "gpu/collective_image.hpp"

namespace cuvmm::gpu {

struct DeviceTeamOptions {
  std::uint32_t blocks = 132;             // of one call at most
  std::uint32_t lines_per_block = 2048;   // for small content (flagged_capacity())
  std::size_t staging_bytes = 64U << 20;  // for what one rank writes to another at once (staged_capacity()); 16 n
  std::chrono::nanoseconds time_limit = std::chrono::seconds(5);  // of a wait for another rank
};

// Makes everything at once: a MappedRange on each device, granted to all of them, for what ranks meet by; a stream and
// a module for each. Destruction waits for the streams. For one thread.
class DeviceTeam {
 public:
  // Rank r is devices[r]. Throws what MappedRange throws where a device cannot reach another's memory, and InvalidUse
  // for no device, or for more than max_ranks.
  DeviceTeam(const Driver& driver, std::span<const DeviceOrdinal> devices, const DeviceTeamOptions& options = {});
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;
  DeviceTeam(DeviceTeam&&) = delete;
  DeviceTeam& operator=(DeviceTeam&&) = delete;

  [[nodiscard]] std::uint32_t ranks() const noexcept;
  [[nodiscard]] const DeviceTeamOptions& options() const noexcept;
  [[nodiscard]] const Device& device(std::uint32_t rank) const;
  [[nodiscard]] abi::CUstream stream(std::uint32_t rank) const;
  // What a rank's arguments begin with.
  [[nodiscard]] Team team(std::uint32_t rank) const;

  // Memory of `bytes` bytes for each rank, on its device, that all ranks reach.
  [[nodiscard]] std::vector<MappedRange> allocate(std::size_t bytes) const;

  // Gives a call of one rank to its stream. `Arguments` is what the kernel takes; they are copied.
  template <class Arguments>
  void launch(std::uint32_t rank, std::string_view kernel, const Arguments& arguments, unsigned blocks,
              unsigned threads) const {
    Arguments copy = arguments;
    launch_bytes(rank, kernel, &copy, blocks, threads);
  }

  void synchronize() const;  // waits for all streams

  // Ranks that some block of that rank gave up waiting for, bit r for rank r; 0 as long as all is well. Waits for the
  // rank's stream.
  [[nodiscard]] std::uint32_t missing(std::uint32_t rank) const;

 private:
  struct Member;

  void launch_bytes(std::uint32_t rank, std::string_view kernel, void* arguments, unsigned blocks,
                    unsigned threads) const;

  Driver driver_;
  DeviceTeamOptions options_;
  std::vector<std::unique_ptr<Member>> members_;
};

// Makes a device's context current for as long as the object lives.
class OnRank {
 public:
  OnRank(const DeviceTeam& team, std::uint32_t rank) : context_(team.device(rank)) {}

 private:
  CurrentContext context_;
};

}  // namespace cuvmm::gpu
