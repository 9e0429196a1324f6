#include "sleep/entry.hpp"

#include <fmt/format.h>

#include <list>
#include <mutex>

#include "range/mapped_range_impl.hpp"
#include "report_exception.hpp"

namespace cuvmm::sleep {

namespace {

// What copies may still use, for ever, where leak checkers see that it is on purpose.
struct LeftRanges {
  std::mutex mutex;
  std::list<std::pair<MappedRange, std::shared_ptr<Backup>>> ranges;
};

LeftRanges& left_ranges() {
  static LeftRanges& all = *new LeftRanges;
  return all;
}

}  // namespace

std::string Entry::description() const {
  const std::string called = name.empty() ? std::string("range") : fmt::format("range '{}'", name);
  return fmt::format("{} of group '{}' at {:#x}", called, tag, address.value);
}

bool Entry::is_changing() const noexcept {
  return range.impl_ != nullptr && range.impl_->changing_;
}

void Entry::leave_copy_to(CUstream_st* stream) noexcept {
  copies_left = true;
  try {
    range.used_on(stream);
  } catch (...) {
    copies_lost = true;
    report_current_exception("StreamUses::used_on");
  }
}

Result<void> Entry::wait_for_left_copies(std::string_view call, std::chrono::steady_clock::time_point deadline) {
  if (!copies_left) return {};
  Failure failure;
  failure.call = call;
  failure.arguments = description();
  failure.rule = "The driver did not tell the end of an earlier copy of its content, which may still be at work";
  failure.way_out = "Leave the range as it is: what the copy uses stays";
  if (copies_lost) return failure;
  if (auto waited = range.uses().so_far().wait_until(deadline); !waited) {
    failure.kind = waited.failure().kind;
    failure.reason = waited.failure().message();
    failure.way_out = "Try again when the copy is done";
    return failure;
  }
  copies_left = false;
  return {};
}

void give_back_what_is_not_mapped(const Entries& asleep) noexcept {
  const auto is_mapped = [&](const SleepingMemory& memory) {
    for (const auto& entry : asleep)
      for (const Place& each : entry->places)
        if (each.mapped && each.memory.get() == &memory) return true;
    return false;
  };
  for (const auto& entry : asleep)
    for (const Place& each : entry->places)
      if (each.memory->memory && !each.memory->intact && !is_mapped(*each.memory)) each.memory->memory = {};
}

Entry::~Entry() {
  if (!copies_left || is_gone()) return;
  try {
    const auto deadline = std::chrono::steady_clock::now() + range.impl_->options_.device_wait;
    const auto waited = wait_for_left_copies("SleepableRange::~SleepableRange", deadline);
    if (waited) return;
    report_cleanup_failure(waited.failure());
    LeftRanges& all = left_ranges();
    const std::lock_guard lock(all.mutex);
    all.ranges.emplace_back(std::move(range), std::move(backup));
  } catch (...) {
    report_current_exception("SleepableRange::~SleepableRange");
  }
}

}  // namespace cuvmm::sleep
