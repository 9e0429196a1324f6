#include "conformance/comparison.hpp"

#include <algorithm>
#include <array>

#include "conformance/cases/process_pool.hpp"

namespace cuvmm::conformance {
namespace {

constexpr std::string_view crash = "(signal 11)";

// The CPU itself dies of touching these addresses, with the emulated driver as with the real one.
constexpr std::array faults_of_the_cpu{
    std::string_view{"host.cpu_deref_without_access"}, std::string_view{"host.cpu_deref_device_memory"},
    std::string_view{"host.cpu_store_to_read_only"},   std::string_view{"host.cpu_deref_after_revoke"},
    std::string_view{"host.cpu_deref_after_unmap"},    std::string_view{"copy.host_inaccessible_source"}};

constexpr std::array deviations{
    Deviation{"props.released", "INVALID_VALUE", "the driver reads freed memory here, and was lucky"},
    Deviation{"sticky.unmap_under_kernel", "NOT_READY OK ILLEGAL_ADDRESS ILLEGAL_ADDRESS",
              "the device still had the page's translation; the emulated one always notices"},
    Deviation{"sticky.revoke_under_kernel", "OK ILLEGAL_ADDRESS",
              "the device still had the page's translation; the emulated one always notices"},
    Deviation{"memory_info.allocated_1048577", "2048",
              "the driver had room left in a block; the emulated heap takes a new one"}};

bool is_refused_crash(const std::string& id, std::string_view recorded, const std::string& answer) {
  return recorded == crash && answer != crash &&
         std::find(faults_of_the_cpu.begin(), faults_of_the_cpu.end(), id) == faults_of_the_cpu.end() &&
         answer.find("INVALID_VALUE") != std::string::npos;
}

}  // namespace

const Deviation* find_deviation(std::string_view id) {
  const auto* const found =
      std::find_if(deviations.begin(), deviations.end(), [&](const Deviation& each) { return each.id == id; });
  return found == deviations.end() ? nullptr : found;
}

Comparison compare(const std::string& id, const std::optional<std::string>& recorded, const std::string& answer,
                   bool emulated) {
  Comparison comparison{id, Verdict::different, recorded.value_or(""), answer, ""};
  if (answer == timed_out_answer) {
    comparison.verdict = Verdict::timed_out;  // also where a recorded one was: it tells nothing of the driver
  } else if (!recorded) {
    comparison.verdict = Verdict::not_recorded;
  } else if (*recorded == answer) {
    comparison.verdict = Verdict::equal;
  } else if (emulated && is_refused_crash(id, *recorded, answer)) {
    comparison.verdict = Verdict::crash_refused;
  } else if (const Deviation* const known = find_deviation(id);
             emulated && known != nullptr && known->answer == answer) {
    comparison.verdict = Verdict::on_purpose;
    comparison.reason = known->reason;
  }
  return comparison;
}

std::optional<std::string> why_unavailable(const Case& each, const Abilities& driver) {
  if (each.needs.devices > driver.devices) return "needs " + std::to_string(each.needs.devices) + " devices";
  if (each.needs.driver_library && driver.emulated)
    return "needs the driver as a library: take --driver cuda under cuvmm emulate";
  if (each.needs.concurrency && driver.stepped)
    return "needs work that goes on while the case asks: take the setting scheduler=threaded";
  return std::nullopt;
}

}  // namespace cuvmm::conformance
