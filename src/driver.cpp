#include "cuvmm/driver.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include "cuvmm/device.hpp"
#include "driver/call.hpp"
#include "driver/decorated.hpp"
#include "driver/emulation.hpp"
#include "driver/loaded_driver.hpp"
#include "emulator/configuration.hpp"
#include "emulator/emulated_driver.hpp"
#include "refusal.hpp"

namespace cuvmm {

using driver::call;
using driver::EntryPoint;

Driver Driver::open() {
  const char* const text = std::getenv("CUVMM_DRIVER");
  const std::string_view choice = text == nullptr ? "" : text;
  if (choice.empty() || choice == "cuda") return cuda();
  if (choice == "emulated") return emulated();
  raise(invalid_use("Driver::open", fmt::format("CUVMM_DRIVER = \"{}\"", choice),
                    "The environment variable CUVMM_DRIVER names no driver",
                    "Set it to cuda or to emulated, or remove it, which means cuda"));
}

Driver Driver::cuda() {
  // One for the process: that a failed attempt is tried again is what initialisation of a static does.
  static const Driver opened(driver::decorated_from_environment(driver::load_driver()));
  return opened;
}

namespace {

// What `make` answers; an emulated machine that cannot be is a misuse of Driver::emulated, one that the operating
// system refuses is unavailable.
template <class Make>
auto configured(Make make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {
    raise(invalid_use("Driver::emulated", "configuration", error.what(),
                      "Correct the setting; docs/emulator.md lists what each may be"));
  } catch (const std::system_error& error) {
    Failure failure = invalid_use("Driver::emulated", "configuration", error.what(),
                                  "Give the process what the system refuses, or leave the setting machine empty");
    if (error.code().value() == EPROTO)
      failure.way_out = "The broker ends with the last program of its machine; the next one starts a broker of its own";
    const bool descriptors = error.code().value() == EMFILE || error.code().value() == ENFILE;
    failure.kind = descriptors ? ErrorKind::out_of_descriptors : ErrorKind::driver_unavailable;
    raise(failure);
  }
}

}  // namespace

Driver Driver::emulated() {
  return emulated(configured([] { return emulator::Configuration::from_environment(); }));
}

Driver Driver::emulated(const emulator::Configuration& configuration) {
  auto made = configured([&] { return emulator::make_emulated_driver(configuration); });
  Driver opened(driver::decorated_from_environment(std::move(made)));
  call<EntryPoint::cuInit>(opened.interface(), 0U);
  return opened;
}

Driver Driver::wrap(std::shared_ptr<driver::Interface> interface) noexcept {
  return Driver(std::move(interface));
}

int Driver::version() const {
  int version = 0;
  call<EntryPoint::cuDriverGetVersion>(*interface_, &version);
  return version;
}

std::string Driver::description() const {
  return interface_->description();
}

bool Driver::is_emulated() const noexcept {
  return interface_->emulated();
}

int Driver::device_count() const {
  int count = 0;
  call<EntryPoint::cuDeviceGetCount>(*interface_, &count);
  if (count < 0) raise(nonsense("cuDeviceGetCount", fmt::format("a count of {}", count)));
  return count;
}

Device Driver::device(DeviceOrdinal ordinal) const {
  const int count = device_count();
  if (ordinal.value < 0 || ordinal.value >= count)
    raise(invalid_use(
        "Driver::device", fmt::format("ordinal = {}", ordinal.value),
        fmt::format("The driver shows {} device{} to this process, numbered from 0", count, count == 1 ? "" : "s"),
        driver::is_emulation(*interface_)
            ? "Use a smaller ordinal, or give the emulated machine more: CUVMM_EMULATOR=devices=N"
            : "Use a smaller ordinal, or check CUDA_VISIBLE_DEVICES",
        "DEVICE-EXISTS"));
  int handle = 0;
  call<EntryPoint::cuDeviceGet>(*interface_, &handle, ordinal.value);
  return Device(*this, ordinal, handle);
}

std::vector<Device> Driver::devices() const {
  std::vector<Device> all;
  const int count = device_count();
  all.reserve(static_cast<std::size_t>(count));
  for (int ordinal = 0; ordinal < count; ++ordinal) all.push_back(device(DeviceOrdinal{ordinal}));
  return all;
}

}  // namespace cuvmm
