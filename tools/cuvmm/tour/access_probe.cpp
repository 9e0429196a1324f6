#include "tour/access_probe.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#include "command/child_process.hpp"
#include "command/driver_choice.hpp"
#include "cuvmm/access_grant.hpp"
#include "tour/emulated_machine.hpp"
#include "tour/gpu.hpp"

namespace cuvmm::tour {
namespace {

constexpr auto command_name = "access-probe";

const std::string& answer_fault_text() {
  static const std::string text = std::to_string(static_cast<int>(abi::CUDA_ERROR_ILLEGAL_ADDRESS));
  return text;
}

// A signal handler may do little: the answer is written without a buffer.
void answer_fault(int /*signal*/) {
  const std::string& text = answer_fault_text();
  const bool written = ::write(STDOUT_FILENO, text.data(), text.size()) > 0;
  ::_exit(written ? EXIT_SUCCESS : EXIT_FAILURE);
}

// What kernels answer that touch all of it.
abi::CUresult touch_by_kernel(Gpu& toucher, const Mapping& mapping, Touch touch) {
  const abi::CUdeviceptr address = mapping.address().value;
  return touch == Touch::store ? toucher.try_fill(address, mapping.size(), 0)
                               : toucher.try_checksum(address, mapping.size(), 0).result;
}

void answer_fault_of_cpu() {
  static_cast<void>(answer_fault_text());  // made before it is needed
  for (const int signal : {SIGSEGV, SIGBUS}) std::signal(signal, answer_fault);
}

// Returns if the CPU may do it.
abi::CUresult touch_by_cpu(const Mapping& mapping, Touch touch) {
  answer_fault_of_cpu();
  auto* const word = mapping.address().as_pointer<volatile unsigned>();
  if (touch == Touch::store) {
    *word = 1;
  } else {
    static_cast<void>(*word);
  }
  return abi::CUDA_SUCCESS;
}

Mapping map_anew(const PhysicalMemory& memory) {
  return Mapping::create(AddressReservation::create(memory.driver(), memory.size()), 0, memory);
}

void try_probe(const AccessProbe& probe) {
  const Driver driver = command::open_driver_apart(probe.driver, probe.devices, emulated_machine());
  const bool by_cpu = probe.toucher == cpu;
  Gpu gpu(driver, DeviceOrdinal(by_cpu ? 0 : probe.toucher));
  const Location place = by_cpu ? Location::host() : driver.device(DeviceOrdinal(0)).location();
  const Location toucher = by_cpu ? Location::host() : gpu.location();
  const MemoryProperties properties{place};
  const auto memory = PhysicalMemory::create(driver, properties, PhysicalMemory::granularity(driver, properties));
  std::vector<Mapping> others;
  if (probe.alias) {
    others.push_back(map_anew(memory));
    grant(others.back(), toucher, AccessRights::read_write);
  }
  const Mapping mapping = map_anew(memory);
  for (const int rights : probe.grants) grant(mapping, toucher, static_cast<AccessRights>(rights));
  const abi::CUresult touched =
      by_cpu ? touch_by_cpu(mapping, probe.touch) : touch_by_kernel(gpu, mapping, probe.touch);
  answer_and_end(std::to_string(static_cast<int>(touched)));
}

}  // namespace

bool is_fault(abi::CUresult result) noexcept {
  return result == abi::CUDA_ERROR_ILLEGAL_ADDRESS || result == abi::CUDA_ERROR_LAUNCH_FAILED;
}

void answer_and_end(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  ::_exit(EXIT_SUCCESS);
}

abi::CUresult run_in_child(const AccessProbe& probe) {
  std::vector<std::string> arguments{command_name,
                                     "--driver",
                                     probe.driver == command::DriverChoice::cuda ? "cuda" : "emulated",
                                     "--devices",
                                     std::to_string(probe.devices),
                                     "--toucher=" + std::to_string(probe.toucher),
                                     "--touch",
                                     probe.touch == Touch::store ? "store" : "load"};
  for (const int flags : probe.grants) {
    arguments.emplace_back("--grant");
    arguments.push_back(std::to_string(flags));
  }
  if (probe.alias) arguments.emplace_back("--alias");
  const std::string answered = command::output_of_self(arguments, std::chrono::minutes(1));
  try {
    return static_cast<abi::CUresult>(std::stoi(answered));
  } catch (const std::logic_error&) {
    throw std::runtime_error("a child process could not try the access: " + answered);
  }
}

CLI::App* add_probe_command(CLI::App& application, AccessProbe& probe) {
  CLI::App* command = application.add_subcommand(command_name, "One access that may end the process; for the tour");
  command->group("");  // not shown: no use to people
  command::add_driver_option(*command, probe.driver);
  command->add_option("--devices", probe.devices);
  command->add_option("--toucher", probe.toucher);
  command->add_option("--grant", probe.grants)->allow_extra_args(false);
  static const std::map<std::string, Touch> touches{{"load", Touch::load}, {"store", Touch::store}};
  command->add_option("--touch", probe.touch)->transform(CLI::CheckedTransformer(touches));
  command->add_flag("--alias", probe.alias);
  return command;
}

void run_probe(const AccessProbe& probe) {
  try {
    try_probe(probe);
  } catch (const std::exception& error) {
    answer_and_end(error.what());
  }
  std::abort();  // try_probe answers or throws
}

}  // namespace cuvmm::tour
