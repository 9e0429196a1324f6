// The driver that a program works with.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuvmm/units.hpp"

namespace cuvmm {

class Device;

namespace driver {
class Interface;
}
namespace emulator {
struct Configuration;
}

// A shared handle to a driver: the CUDA driver of the machine, or the emulated one. Copies are the same driver; each
// owner of the library keeps one. Moving copies, so that there is none that has no driver. Thread-safe, as drivers are.
class Driver {
 public:
  Driver(const Driver&) noexcept = default;
  Driver& operator=(const Driver&) noexcept = default;
  Driver(Driver&& other) noexcept : Driver(std::as_const(other)) {}
  Driver& operator=(Driver&& other) noexcept { return *this = std::as_const(other); }
  ~Driver() = default;

  // The CUDA driver, or the emulated one if CUVMM_DRIVER=emulated is in the environment; CUVMM_DRIVER=cuda is the same
  // as not setting it. Throws DriverUnavailable, telling what is missing and how to choose the emulator, and InvalidUse
  // for any other value of CUVMM_DRIVER.
  [[nodiscard]] static Driver open();

  // The CUDA driver: loads libcuda.so.1 and initialises it. One for the process, however often it is opened. Throws
  // DriverUnavailable.
  [[nodiscard]] static Driver cuda();

  // A new emulated machine: the one that the environment configures (CUVMM_EMULATOR_CONFIG, CUVMM_EMULATOR; an H200
  // where it says nothing), or the one that is given (emulator/configuration.hpp). Each call makes a machine of its
  // own, with no memory in use. Throws InvalidUse for a configuration that no machine can have, and DriverUnavailable
  // or OutOfDescriptors where the operating system refuses what a machine that processes share needs.
  [[nodiscard]] static Driver emulated();
  [[nodiscard]] static Driver emulated(const emulator::Configuration& configuration);

  // Any driver that has been initialised, for decorators and tests.
  [[nodiscard]] static Driver wrap(std::shared_ptr<driver::Interface> interface) noexcept;

  // The CUDA version it offers, as 1000 * major + 10 * minor (cuDriverGetVersion).
  [[nodiscard]] int version() const;

  // For people: which driver it is, with its version.
  [[nodiscard]] std::string description() const;

  [[nodiscard]] bool is_emulated() const noexcept;

  // How many devices it shows to this process (cuDeviceGetCount).
  [[nodiscard]] int device_count() const;

  // One of them; throws InvalidUse if there is none of that ordinal.
  [[nodiscard]] Device device(DeviceOrdinal ordinal) const;

  // All of them, in the order of their ordinals.
  [[nodiscard]] std::vector<Device> devices() const;

  // The driver beneath (src/driver/interface.hpp), for the library's own parts.
  [[nodiscard]] driver::Interface& interface() const noexcept { return *interface_; }
  [[nodiscard]] const std::shared_ptr<driver::Interface>& shared_interface() const noexcept { return interface_; }

  // Whether both are the same driver.
  friend bool operator==(const Driver&, const Driver&) noexcept = default;

 private:
  explicit Driver(std::shared_ptr<driver::Interface> interface) noexcept : interface_(std::move(interface)) {}

  std::shared_ptr<driver::Interface> interface_;
};

}  // namespace cuvmm
