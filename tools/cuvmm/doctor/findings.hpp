// What a doctor found, and how it is shown: as a page for people, as JSON for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuvmm/capabilities.hpp"

namespace cuvmm::doctor {

struct DeviceFindings {
  std::string name;
  std::uint64_t memory_bytes = 0;
  std::string pci_bus_id;  // empty if the driver does not tell
  Capabilities capabilities;
};

struct Findings {
  std::string driver;  // what it calls itself
  int cuda_version = 0;
  bool emulated = false;
  std::string remark;  // why it is not the driver that one may expect; empty if it is
  bool probed = false;
  std::vector<DeviceFindings> devices;
  std::vector<ImexChannel> imex_channels;
  std::vector<MulticastSwitch> multicast_switches;
};

// Whether somebody should act: a device has no virtual memory management, or a trial failed or could not be made to its
// end.
[[nodiscard]] bool needs_action(const Findings& findings) noexcept;

// The page, ending with a line that says what to make of it.
[[nodiscard]] std::string as_page(const Findings& findings);

// One object, indented, with one line end at its end. docs/doctor.md tells the fields.
[[nodiscard]] std::string as_json(const Findings& findings);

}  // namespace cuvmm::doctor
