#include "emulator/emulated_driver.hpp"

#include <unistd.h>

#include <atomic>
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

HostKernel spin() {
  return {spin_kernel,
          {sizeof(CUdeviceptr), sizeof(CUdeviceptr)},
          [](const KernelArguments& arguments) {
            return std::vector<KernelView>{{arguments.get<CUdeviceptr>(0), 2 * word_bytes, true, word_bytes},
                                           {arguments.get<CUdeviceptr>(1), word_bytes, false, word_bytes}};
          },
          [](const KernelCall& call) {
            auto* flags = reinterpret_cast<std::atomic<unsigned>*>(call.windows[0]);
            flags[0] = 1;
            return flags[1] == 0 ? KernelProgress::again : KernelProgress::done;
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
