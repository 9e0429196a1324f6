// A team of emulated devices, and memory of it that tests fill and look at.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../no_switches.hpp"
#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "driver/counting_driver.hpp"
#include "emulated_machine.hpp"
#include "gpu/device_team.hpp"

namespace cuvmm::gpu::test {

using cuvmm::test::EnvironmentVariable;

using team::test::NoSwitches;

// Little room, for little content.
inline DeviceTeamOptions small_options() {
  return {.blocks = 4,
          .lines_per_block = 128,
          .staging_bytes = 16 << 10,
          .time_limit = std::chrono::seconds(120),
          .multicast = true};
}

// Strict, so that a missing alias fence ends a launch.
inline emulator::Configuration multicast_machine(std::uint32_t devices) {
  return cuvmm::test::machine("h200-multicast", static_cast<int>(devices));
}

class EmulatedTeam {
 public:
  explicit EmulatedTeam(const emulator::Configuration& configuration,
                        const DeviceTeamOptions& options = small_options())
      : machine(configuration),
        counts(std::make_shared<driver::CountingDriver>(machine.interface())),
        driver(Driver::wrap(counts)) {
    std::vector<DeviceOrdinal> devices;
    devices.reserve(static_cast<std::size_t>(configuration.devices));
    for (int ordinal = 0; ordinal < configuration.devices; ++ordinal) devices.emplace_back(ordinal);
    team.emplace(driver, devices, options);
  }
  explicit EmulatedTeam(std::uint32_t devices) : EmulatedTeam(multicast_machine(devices)) {}

  [[nodiscard]] std::uint32_t ranks() const { return team->ranks(); }

  template <class T>
  void write(std::uint32_t rank, const TeamMemory& memory, std::size_t offset, const std::vector<T>& content) const {
    const OnRank here(*team, rank);
    copy_to_device(memory.ranges[rank], offset, content);
  }
  template <class T>
  [[nodiscard]] std::vector<T> read(std::uint32_t rank, const TeamMemory& memory, std::size_t offset,
                                    std::size_t count) const {
    const OnRank here(*team, rank);
    std::vector<T> content(count);
    copy_from_device(content, memory.ranges[rank], offset);
    return content;
  }

  // What an all-reduce of all ranks' memory from `input` to `output` takes.
  template <class T>
  [[nodiscard]] AllReduce<T> all_reduce(std::uint32_t rank, const TeamMemory& inputs, std::size_t input,
                                        const TeamMemory& outputs, std::size_t output, std::size_t count) const {
    AllReduce<T> call{};
    call.team = team->team(rank);
    call.count = count;
    for (std::uint32_t of = 0; of < ranks(); ++of) {
      call.inputs[of] = (inputs.address(of) + input).template as_pointer<const T>();
      call.outputs[of] = (outputs.address(of) + output).template as_pointer<T>();
    }
    if (team->has_multicast()) {
      call.multicast_input = (inputs.multicast_address() + input).template as_pointer<const T>();
      call.multicast_output = (outputs.multicast_address() + output).template as_pointer<T>();
    }
    return call;
  }
  // On all ranks.
  template <class T>
  void sum(AllReduceWay way, const TeamMemory& inputs, std::size_t input, const TeamMemory& outputs, std::size_t output,
           std::size_t count, const CollectiveShape& shape) const {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank)
      team->all_reduce(way, all_reduce<T>(rank, inputs, input, outputs, output, count), shape);
  }

  cuvmm::test::EmulatedMachine machine;
  std::shared_ptr<driver::CountingDriver> counts;
  Driver driver;
  std::optional<DeviceTeam> team;
};

inline constexpr AllReduceWay all_ways[] = {
    AllReduceWay::flagged,  AllReduceWay::staged_one_shot,   AllReduceWay::staged_two_shot,  AllReduceWay::one_shot,
    AllReduceWay::two_shot, AllReduceWay::multimem_one_shot, AllReduceWay::multimem_two_shot};

constexpr bool may_be_in_place(AllReduceWay way) {
  return way != AllReduceWay::one_shot && way != AllReduceWay::multimem_one_shot;
}

template <class T>
bool are_same(const std::vector<T>& one, const std::vector<T>& other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size() * sizeof(T)) == 0;
}

}  // namespace cuvmm::gpu::test
