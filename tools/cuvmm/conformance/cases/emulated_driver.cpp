#include "emulator/emulated_driver.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "conformance/cases/drivers.hpp"
#include "conformance/cases/kernels.hpp"

namespace cuvmm::conformance {

namespace {

using emulator::HostKernel;
using emulator::KernelArguments;
using emulator::KernelCall;
using emulator::KernelProgress;
using emulator::KernelView;

constexpr std::size_t word_bytes = sizeof(unsigned);
constexpr std::size_t spin_flags_bytes = 4 * word_bytes;
constexpr std::uint64_t spin_nanoseconds = 5'000'000'000;  // as in the device's

HostKernel store() {
  return {store_kernel,
          {sizeof(CUdeviceptr), word_bytes},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<CUdeviceptr>(0), word_bytes, true, word_bytes}};
          },
          [](const KernelCall& call) {
            const auto value = call.arguments.get<unsigned>(1);
            std::memcpy(call.windows[0], &value, word_bytes);
            return KernelProgress::done;
          }};
}

HostKernel load() {
  return {load_kernel,
          {sizeof(CUdeviceptr), sizeof(CUdeviceptr)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<CUdeviceptr>(0), word_bytes, false, word_bytes},
                                           {arguments.get<CUdeviceptr>(1), word_bytes, true, word_bytes}};
          },
          [](const KernelCall& call) {
            std::memcpy(call.windows[1], call.windows[0], word_bytes);
            return KernelProgress::done;
          }};
}

// Nanoseconds.
std::uint64_t now() {
  return static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds{1});
}

// As the device's does, it ends by itself after five seconds, whatever the program does meanwhile. When it began, it
// keeps behind the flags, as it is called again and again.
HostKernel spin() {
  return {spin_kernel,
          {sizeof(CUdeviceptr), sizeof(CUdeviceptr)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{
                {arguments.get<CUdeviceptr>(0), spin_flags_bytes, true, sizeof(std::uint64_t)},
                {arguments.get<CUdeviceptr>(1), word_bytes, false, word_bytes}};
          },
          [](const KernelCall& call) {
            auto* flags = reinterpret_cast<std::atomic<unsigned>*>(call.windows[0]);
            auto* began = reinterpret_cast<std::atomic<std::uint64_t>*>(call.windows[0] + 2 * word_bytes);
            if (call.tries == 0) *began = now();
            flags[0] = 1;
            const bool over = now() - *began > spin_nanoseconds;
            return flags[1] == 0 && !over ? KernelProgress::again : KernelProgress::done;
          }};
}

DriverFactory made_from(emulator::Configuration configuration) {
  for (const HostKernel& each : {store(), load(), spin()}) configuration.kernels.push_back(each);
  configuration.on_warning = [](const std::string&) {};
  return [configuration] { return emulator::make_emulated_driver(configuration); };
}

}  // namespace

DriverFactory emulated_driver(int devices, const std::string& profile, const std::string& machine) {
  emulator::Configuration configuration = emulator::Configuration::from_environment(devices);
  if (configuration.machine.empty()) configuration.machine = machine;
  if (!profile.empty()) {
    const auto found = emulator::find_profile(profile);
    if (!found) throw std::invalid_argument("there is no profile " + profile);
    configuration.profile = *found;
  }
  return made_from(configuration);
}

DriverFactory emulated_driver(const std::string& machine) {
  emulator::Configuration configuration;
  configuration.machine = machine;
  configuration.mode = emulator::Mode::faithful;
  configuration.devices = 2;
  return made_from(configuration);
}

std::string machine_for(const Needs& needs) {
  return needs.processes ? "conformance-" + std::to_string(::getpid()) : std::string{};
}

}  // namespace cuvmm::conformance
