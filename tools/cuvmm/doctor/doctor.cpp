#include "doctor/doctor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdio>

#include "command/driver_choice.hpp"
#include "command/input_error.hpp"
#include "command/output.hpp"
#include "cuvmm/device.hpp"
#include "cuvmm/error.hpp"
#include "driver/emulation.hpp"

namespace cuvmm::doctor {
namespace {

// What the function answers; what there is instead if the driver fails at it. A detail that cannot be told must not
// keep the rest of the report back.
template <class Function, class Value>
Value otherwise(Function function, Value instead) {
  try {
    return function();
  } catch (const Error&) {
    return instead;
  }
}

DeviceFindings examine(const Device& device, bool probe) {
  DeviceFindings found;
  found.name = otherwise([&] { return device.name(); }, std::string("a device that does not tell its name"));
  found.memory_bytes = otherwise([&] { return device.total_memory(); }, std::size_t{0});
  found.pci_bus_id = otherwise([&] { return device.pci_bus_id(); }, std::string());
  found.capabilities = Capabilities::of(device, {.trials = probe});
  return found;
}

}  // namespace

Findings examine(const Driver& driver, bool probe, int devices) {
  Findings findings;
  findings.driver = driver.description();
  findings.cuda_version = driver.version();
  findings.emulated = driver::is_emulation(driver.interface());
  findings.probed = probe;
  for (const Device& device : driver.devices())
    if (devices == 0 || device.ordinal().value < devices) findings.devices.push_back(examine(device, probe));
  findings.imex_channels = imex_channels();
  findings.multicast_switches = multicast_switches();
  return findings;
}

int run_doctor(const Options& options) {
  constexpr int action = 1;
  constexpr int misuse = 2;
  try {
    const command::OpenedDriver opened = command::open_driver(options.driver, std::max(options.devices, 1));
    Findings findings = examine(opened.driver, options.probe, options.devices);
    findings.remark = opened.remark;
    command::write_out(options.json ? as_json(findings) : as_page(findings));
    return needs_action(findings) ? action : 0;
  } catch (const command::InputError& error) {
    std::fputs(fmt::format("cuvmm doctor: {}\n", error.what()).c_str(), stderr);
  } catch (const command::OutputLost& error) {
    std::fputs(fmt::format("cuvmm doctor: {}\n", error.what()).c_str(), stderr);
  } catch (const Error& error) {
    std::fputs(fmt::format("cuvmm doctor: {}\n", error.what()).c_str(), stderr);
  }
  return misuse;
}

}  // namespace cuvmm::doctor
