#include "tour/access_probe.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#include "cuvmm/access_grant.hpp"
#include "tour/child_process.hpp"
#include "tour/choose_driver.hpp"
#include "tour/gpu.hpp"

namespace cuvmm::tour {
namespace {

constexpr auto command_name = "access-probe";

// Writes the answer and ends the process, leaving everything as it is: after a fault the context is broken, and nothing
// could be given back in order.
[[noreturn]] void answer(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  ::_exit(EXIT_SUCCESS);
}

void try_probe(const AccessProbe& probe) {
  const Driver driver = open_driver(probe.driver, probe.devices).driver;
  Gpu toucher(driver, DeviceOrdinal(probe.toucher));
  const MemoryProperties properties{driver.device(DeviceOrdinal(0)).location()};
  const std::size_t size = PhysicalMemory::granularity(driver, properties);
  const auto memory = PhysicalMemory::create(driver, properties, size);
  const auto range = AddressReservation::create(driver, size);
  const auto mapping = Mapping::create(range, 0, memory);
  for (const int rights : probe.grants) grant(mapping, toucher.location(), static_cast<AccessRights>(rights));
  const abi::CUdeviceptr address = mapping.address().value;
  const abi::CUresult touched =
      probe.touch == Touch::store ? toucher.try_fill(address, size, 0) : toucher.try_checksum(address, size, 0).result;
  answer(std::to_string(static_cast<int>(touched)));
}

}  // namespace

bool is_fault(abi::CUresult result) noexcept {
  return result == abi::CUDA_ERROR_ILLEGAL_ADDRESS || result == abi::CUDA_ERROR_LAUNCH_FAILED;
}

abi::CUresult run_in_child(const AccessProbe& probe) {
  std::vector<std::string> arguments{command_name,
                                     "--driver",
                                     probe.driver == DriverChoice::cuda ? "cuda" : "emulated",
                                     "--devices",
                                     std::to_string(probe.devices),
                                     "--toucher",
                                     std::to_string(probe.toucher),
                                     "--touch",
                                     probe.touch == Touch::store ? "store" : "load"};
  for (const int flags : probe.grants) {
    arguments.emplace_back("--grant");
    arguments.push_back(std::to_string(flags));
  }
  const std::string answered = output_of_self(arguments, std::chrono::minutes(1));
  try {
    return static_cast<abi::CUresult>(std::stoi(answered));
  } catch (const std::logic_error&) {
    throw std::runtime_error("a child process could not try the access: " + answered);
  }
}

void add_probe_command(CLI::App& application, AccessProbe& probe) {
  CLI::App* command = application.add_subcommand(command_name, "One access that may end the process; for the tour");
  command->group("");  // not shown: no use to people
  add_driver_option(*command, probe.driver);
  command->add_option("--devices", probe.devices);
  command->add_option("--toucher", probe.toucher);
  command->add_option("--grant", probe.grants)->allow_extra_args(false);
  static const std::map<std::string, Touch> touches{{"load", Touch::load}, {"store", Touch::store}};
  command->add_option("--touch", probe.touch)->transform(CLI::CheckedTransformer(touches));
}

void run_probe(const AccessProbe& probe) {
  try {
    try_probe(probe);
  } catch (const std::exception& error) {
    answer(error.what());
  }
  std::abort();  // try_probe answers or throws
}

}  // namespace cuvmm::tour
