#include "emulator/emulated_driver.hpp"

#include <cstring>

#include "conformance/drivers.hpp"
#include "conformance/kernels.hpp"

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
            auto* flags = reinterpret_cast<volatile unsigned*>(call.windows[0]);
            flags[0] = 1;
            return flags[1] == 0 ? KernelProgress::again : KernelProgress::done;
          }};
}

}  // namespace

DriverFactory emulated_driver() {
  return [] {
    emulator::Configuration configuration;
    configuration.mode = emulator::Mode::faithful;
    configuration.devices = 2;
    configuration.kernels = {store(), load(), spin()};
    configuration.on_warning = [](const std::string&) {};  // the cases break rules on purpose
    return emulator::make_emulated_driver(configuration);
  };
}

}  // namespace cuvmm::conformance
