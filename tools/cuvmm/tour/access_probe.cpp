#include "tour/access_probe.hpp"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>

#include "driver/call.hpp"
#include "tour/child_process.hpp"
#include "tour/choose_driver.hpp"
#include "tour/gpu.hpp"

namespace cuvmm::tour {
namespace {

using driver::call;
using driver::EntryPoint;
using namespace abi;

constexpr auto command_name = "access-probe";

abi::CUresult touch(driver::Interface& driver, Gpu& owner, Gpu& toucher, const AccessProbe& probe) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, owner.device()};
  std::size_t size = 0;
  call<EntryPoint::cuMemGetAllocationGranularity>(driver, &size, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  CUmemGenericAllocationHandle memory = 0;
  call<EntryPoint::cuMemCreate>(driver, &memory, size, &properties, 0ULL);
  CUdeviceptr range = 0;
  call<EntryPoint::cuMemAddressReserve>(driver, &range, size, std::size_t{0}, CUdeviceptr{0}, 0ULL);
  call<EntryPoint::cuMemMap>(driver, range, size, std::size_t{0}, memory, 0ULL);
  for (const int flags : probe.grants) {
    const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, toucher.device()},
                                 static_cast<CUmemAccess_flags>(flags)};
    call<EntryPoint::cuMemSetAccess>(driver, range, size, &access, std::size_t{1});
  }
  return probe.touch == Touch::store ? toucher.try_fill(range, size, 0) : toucher.try_checksum(range, size, 0).result;
}

std::string answer_to(const AccessProbe& probe) {
  const std::shared_ptr<driver::Interface> driver = open_driver(probe.driver, probe.devices).driver;
  Gpu owner(driver, 0);
  Gpu toucher(driver, probe.toucher);
  return fmt::format("{}\n", static_cast<int>(touch(*driver, owner, toucher, probe)));
}

}  // namespace

bool is_fault(abi::CUresult result) noexcept {
  return result == CUDA_ERROR_ILLEGAL_ADDRESS || result == CUDA_ERROR_LAUNCH_FAILED;
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
  const std::string answer = output_of_self(arguments, std::chrono::minutes(1));
  try {
    return static_cast<abi::CUresult>(std::stoi(answer));
  } catch (const std::logic_error&) {
    throw std::runtime_error("a child process could not try the access: " + answer);
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
  std::string answer;
  try {
    answer = answer_to(probe);
  } catch (const std::exception& error) {
    answer = error.what();
  }
  std::fwrite(answer.data(), 1, answer.size(), stdout);
  std::fflush(stdout);
  // The context may be broken, so that nothing could be given back in order: the process's end does that.
  ::_exit(EXIT_SUCCESS);
}

}  // namespace cuvmm::tour
