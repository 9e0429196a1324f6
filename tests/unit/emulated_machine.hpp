// An emulated machine whose insides a test may look into.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>

#include "cuvmm/driver.hpp"
#include "emulator/api/emulated_driver.hpp"
#include "emulator/configuration.hpp"

namespace cuvmm::test {

// Strict: a call that breaks a rule is refused. Warnings go nowhere.
inline emulator::Configuration machine(std::string_view profile = "h200-580", int devices = 1) {
  emulator::Configuration configuration;
  configuration.profile = emulator::find_profile(profile).value();
  configuration.mode = emulator::Mode::strict;
  configuration.devices = devices;
  configuration.on_warning = [](const std::string&) {};
  return configuration;
}

class EmulatedMachine {
 public:
  explicit EmulatedMachine(const emulator::Configuration& configuration = machine())
      : interface_(std::make_shared<emulator::api::EmulatedDriver>(configuration)) {
    EXPECT_EQ(interface_->cuInit(0), abi::CUDA_SUCCESS);
  }

  [[nodiscard]] std::shared_ptr<driver::Interface> interface() const { return interface_; }
  [[nodiscard]] Driver driver() const { return Driver::wrap(interface_); }

  // Whether no handle, reservation, mapping, allocation or exported descriptor is left.
  [[nodiscard]] bool nothing_live() const {
    return interface_->machine().live_objects() == emulator::api::Machine::LiveObjects{};
  }
  [[nodiscard]] std::size_t free_memory(int device = 0) const {
    std::size_t free = 0;
    interface_->machine().memory_info(device, &free, nullptr);
    return free;
  }

 private:
  std::shared_ptr<emulator::api::EmulatedDriver> interface_;
};

}  // namespace cuvmm::test
