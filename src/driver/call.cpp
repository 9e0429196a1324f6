#include "driver/call.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "driver/advice.hpp"
#include "driver/emulation.hpp"
#include "driver/result_names.hpp"

namespace cuvmm::driver {

namespace {

// Whether this process could not open one file more right now.
bool out_of_descriptors() noexcept {
  const int descriptor = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::close(descriptor);
    return false;
  }
  return errno == EMFILE || errno == ENFILE;
}

// The driver has no code of its own for a lack of descriptors, so it is looked for where one was needed and the code
// is one that could hide it.
bool may_hide_lack_of_descriptors(EntryPoint entry, CUresult result) noexcept {
  if (result == CUDA_ERROR_OPERATING_SYSTEM) return true;
  if (info(entry).group != EntryPointGroup::sharing) return false;
  return result == CUDA_ERROR_OUT_OF_MEMORY || result == CUDA_ERROR_UNKNOWN;
}

std::string name_of(Interface& driver, CUresult result) {
  if (const std::string_view known = result_name(result); !known.empty()) return std::string(known);
  const char* name = nullptr;
  if (driver.cuGetErrorName(result, &name) == CUDA_SUCCESS && name != nullptr) return name;
  return {};
}

// "MAP-WHOLE-ALLOCATION: ...": how long the id is; 0 if the text does not begin with one.
std::size_t end_of_rule_id(std::string_view text) noexcept {
  const std::size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ-");
  return end != std::string_view::npos && end > 0 && text.substr(end).starts_with(": ") ? end : 0;
}

}  // namespace

Failure describe_failure(Interface& driver, EntryPoint entry, CUresult result, std::string arguments,
                         const CallFacts& facts) {
  // First of all: the driver explains the thread's last call, and descriptors may be closed any moment.
  std::string explanation = driver.explanation();
  const bool lacks_descriptors = may_hide_lack_of_descriptors(entry, result) && out_of_descriptors();

  Failure failure;
  failure.kind = kind_of(entry, result, facts.concerns_host_memory);
  failure.call = name(entry);
  failure.arguments = std::move(arguments);
  failure.code = result;
  failure.code_name = name_of(driver, result);
  if (lacks_descriptors) {
    failure.kind = ErrorKind::out_of_descriptors;
    failure.rule = "The driver needed a file descriptor, and this process has none left";
    failure.way_out = "Close descriptors that are no longer needed, or raise the limit (ulimit -n)";
  } else if (!explanation.empty()) {
    // The way out stands on a line of its own, where there is one.
    const std::size_t end = explanation.find('\n');
    const std::size_t id_end = end_of_rule_id(explanation);
    failure.rule_ids = explanation.substr(0, id_end);
    failure.rule = id_end == 0 ? explanation.substr(0, end) : explanation.substr(id_end + 2, end - id_end - 2);
    if (end != std::string::npos) failure.way_out = explanation.substr(end + 1);
    if (const auto ours = way_out_for_rule(failure.rule_ids, is_emulation(driver)); !ours.empty())
      failure.way_out = ours;
  } else {
    const Advice advice = advice_for(entry, result);
    failure.rule_ids = advice.rule_ids;
    failure.rule = advice.rule;
    failure.way_out = advice.way_out;
    if (is_emulation(driver))
      if (const auto ours = way_out_where_emulated(failure.rule_ids); !ours.empty()) failure.way_out = ours;
  }
  if (failure.kind == ErrorKind::out_of_device_memory || failure.kind == ErrorKind::out_of_host_memory ||
      failure.kind == ErrorKind::out_of_address_space)
    failure.asked_bytes = facts.asked_bytes;
  if (failure.kind == ErrorKind::not_supported || failure.kind == ErrorKind::not_permitted)
    failure.feature = name(entry);
  return failure;
}

}  // namespace cuvmm::driver
