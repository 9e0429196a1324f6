#include "tour/multicast_probe.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <map>
#include <stdexcept>
#include <string>

#include "command/child_process.hpp"
#include "tour/emulated_machine.hpp"
#include "tour/team_memory.hpp"

namespace cuvmm::tour {
namespace {

constexpr auto multicast_probe_command = "multicast-probe";

const std::map<std::string, MulticastProbe::Touch>& touches_by_name() {
  using Touch = MulticastProbe::Touch;
  static const std::map<std::string, Touch> touches{{"load", Touch::load},
                                                    {"store", Touch::store},
                                                    {"copy", Touch::copy},
                                                    {"memset", Touch::memset},
                                                    {"multimem", Touch::multimem_store},
                                                    {"multimem-to-memory", Touch::multimem_store_to_memory}};
  return touches;
}

std::string name_of(MulticastProbe::Touch touch) {
  for (const auto& [name, value] : touches_by_name())
    if (value == touch) return name;
  throw std::logic_error("there is no such touch");
}

// A team of two in this process, and what it takes to touch its addresses.
class ProbedTeam {
 public:
  ProbedTeam(const Driver& driver, DeviceOrdinal second)
      : first_gpu_(driver, DeviceOrdinal(0)),
        second_gpu_(driver, second),
        first_(first_gpu_),
        second_(second_gpu_),
        unit_(multicast_unit(first_.device(), first_.device().granularity())),
        object_(MulticastObject::create(driver, {.devices = 2, .bytes = unit_})),
        memory_(memory_of(first_, unit_)),
        second_memory_(memory_of(second_, unit_)),
        source_(memory_of(first_, unit_)) {
    for (const TeamDevice* each : team_) object_.add_device(each->device());
    object_.bind(0, memory_.memory_at(0), 0, unit_);
    object_.bind(0, second_memory_.memory_at(0), 0, unit_);
    addresses_.emplace(object_, team_);
    first_gpu_.make_current();
  }

  [[nodiscard]] abi::CUresult touch(MulticastProbe::Touch touch) {
    using Touch = MulticastProbe::Touch;
    constexpr std::size_t bytes = 64;
    const abi::CUdeviceptr multicast = addresses_->at(0);
    const unsigned char byte = 1;
    driver::Interface& driver = first_.device().driver().interface();
    const auto once_done = [&](abi::CUresult result) {
      return result == abi::CUDA_SUCCESS ? driver.cuCtxSynchronize() : result;
    };
    switch (touch) {
      case Touch::load:
        return first_gpu_.try_checksum(multicast, bytes, 0).result;
      case Touch::store:
        return first_gpu_.try_fill(multicast, bytes, 0);
      case Touch::copy:
        return once_done(driver.cuMemcpyHtoD(multicast, &byte, 1));
      case Touch::memset:
        return once_done(driver.cuMemsetD8(multicast, byte, bytes));
      case Touch::multimem_store:
        return stored_by_multimem(multicast, bytes);
      case Touch::multimem_store_to_memory:
        return stored_by_multimem(memory_.address().value, bytes);
    }
    return abi::CUDA_ERROR_INVALID_VALUE;
  }

 private:
  [[nodiscard]] abi::CUresult stored_by_multimem(abi::CUdeviceptr address, std::size_t bytes) {
    first_.start(MultimemStore{address, source_.address().value, words_of(bytes)}, words_of(bytes));
    return first_.device().driver().interface().cuCtxSynchronize();
  }

  Gpu first_gpu_;
  Gpu second_gpu_;
  TeamDevice first_;
  TeamDevice second_;
  std::size_t unit_;
  MulticastObject object_;
  MappedRange memory_;
  MappedRange second_memory_;
  MappedRange source_;
  std::vector<TeamDevice*> team_{&first_, &second_};
  std::optional<MulticastAddresses> addresses_;
};

}  // namespace

abi::CUresult run_in_child(const MulticastProbe& probe) {
  const std::string answered = command::output_of_self(
      {multicast_probe_command, "--driver", probe.driver == command::DriverChoice::cuda ? "cuda" : "emulated",
       "--devices", std::to_string(probe.devices), "--second", std::to_string(probe.second), "--touch",
       name_of(probe.touch)},
      std::chrono::minutes(1));
  try {
    return static_cast<abi::CUresult>(std::stoi(answered));
  } catch (const std::logic_error&) {
    throw std::runtime_error("a child process could not try the access: " + answered);
  }
}

CLI::App* add_probe_command(CLI::App& application, MulticastProbe& probe) {
  CLI::App* command =
      application.add_subcommand(multicast_probe_command, "One access that may end the process; for the tour");
  command->group("");  // not shown: no use to people
  command::add_driver_option(*command, probe.driver);
  command->add_option("--devices", probe.devices);
  command->add_option("--second", probe.second);
  command->add_option("--touch", probe.touch)->transform(CLI::CheckedTransformer(touches_by_name()));
  return command;
}

void run_probe(const MulticastProbe& probe) {
  try {
    ProbedTeam team(command::open_driver_apart(probe.driver, probe.devices, emulated_machine()),
                    DeviceOrdinal(probe.second));
    answer_and_end(std::to_string(static_cast<int>(team.touch(probe.touch))));
  } catch (const std::exception& error) {
    answer_and_end(error.what());
  }
  std::abort();  // one of them has ended the process
}

}  // namespace cuvmm::tour
