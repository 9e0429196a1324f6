// An emulated machine whose calls are counted and can be made to fail, and what is alive on it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "driver/counting_driver.hpp"
#include "driver/fault_injecting_driver.hpp"
#include "emulator/api/emulated_driver.hpp"

namespace cuvmm::test {

using driver::EntryPoint;

inline emulator::Configuration strict_machine(int devices = 1) {
  emulator::Configuration configuration;
  configuration.mode = emulator::Mode::strict;
  configuration.devices = devices;
  return configuration;
}

// What a driver has alive.
struct Alive {
  std::size_t handles = 0;
  std::size_t mappings = 0;
  std::size_t reservations = 0;

  friend bool operator==(const Alive&, const Alive&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Alive& alive) {
    return out << alive.handles << " handles, " << alive.mappings << " mappings, " << alive.reservations
               << " reservations";
  }
};

// The library's calls pass the counter, then the faults, then reach the emulated driver.
class RangeMachine {
 public:
  explicit RangeMachine(const emulator::Configuration& configuration = strict_machine())
      : emulated_(std::make_shared<emulator::api::EmulatedDriver>(configuration)),
        faults_(std::make_shared<driver::FaultInjectingDriver>(emulated_)),
        counting_(std::make_shared<driver::CountingDriver>(faults_)),
        driver_(Driver::wrap(counting_)) {
    EXPECT_EQ(emulated_->cuInit(0), abi::CUDA_SUCCESS);
  }

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] driver::FaultInjectingDriver& faults() noexcept { return *faults_; }
  [[nodiscard]] emulator::api::EmulatedDriver& emulated() noexcept { return *emulated_; }

  [[nodiscard]] Alive alive() {
    return emulated_->machine().with_memory([](auto& memory) {
      return Alive{memory.live_handles(), memory.live_mappings(), memory.live_reservations()};
    });
  }

  // The calls since this was last asked: "cuMemCreate 1, cuMemMap 1".
  std::string calls() {
    const driver::CallCounts counts = counting_->snapshot();
    counting_->reset();
    std::string text;
    for (std::size_t i = 0; i < driver::entry_point_count; ++i) {
      const auto entry = static_cast<EntryPoint>(i);
      if (counts[entry] == 0) continue;
      text += (text.empty() ? "" : ", ") + std::string(driver::name(entry)) + " " + std::to_string(counts[entry]);
    }
    return text;
  }

  // What the driver says of the rights to an address; below the counter and the faults.
  [[nodiscard]] AccessRights rights(DeviceAddress address, const Location& location) {
    const abi::CUmemLocation converted{static_cast<abi::CUmemLocationType>(location.kind), location.id};
    unsigned long long flags = 0;
    EXPECT_EQ(emulated_->cuMemGetAccess(&flags, &converted, address.value), abi::CUDA_SUCCESS);
    return static_cast<AccessRights>(flags);
  }

  // Makes the n-th call of an entry point fail from now on.
  void fail(EntryPoint entry, std::uint64_t call = 1, abi::CUresult result = abi::CUDA_ERROR_OUT_OF_MEMORY,
            bool lasting = false) {
    faults_->inject({entry, call, result, driver::FaultTiming::instead, lasting});
  }

 private:
  std::shared_ptr<emulator::api::EmulatedDriver> emulated_;
  std::shared_ptr<driver::FaultInjectingDriver> faults_;
  std::shared_ptr<driver::CountingDriver> counting_;
  Driver driver_;
};

inline std::vector<std::byte> pattern(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> content(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    seed = seed * 1664525u + 1013904223u;
    content[i] = static_cast<std::byte>(seed >> 24);
  }
  return content;
}

}  // namespace cuvmm::test
