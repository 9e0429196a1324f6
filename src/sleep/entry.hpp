// A range of a group.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "cuvmm/sleepable_memory.hpp"
#include "sleep/sleeping_memory.hpp"

namespace cuvmm::sleep {

enum class State : unsigned char { awake, changing, asleep };

struct Entry {
  Entry(std::string its_tag, std::string its_name, MappedRange&& its_range, const SleepPolicy& its_policy)
      : tag(std::move(its_tag)),
        name(std::move(its_name)),
        policy(its_policy),
        address(its_range.address()),
        range(std::move(its_range)) {}
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
  Entry(Entry&&) = delete;
  Entry& operator=(Entry&&) = delete;
  ~Entry();  // what copies may still use is left as it is

  // "range 'layers' of group 'weights' at 0x7f0000000000".
  [[nodiscard]] std::string description() const;

  // Makes the content as long as it was: mapping a chunk makes all of it content.
  Result<void> restore_size() { return range.size() == size ? Result<void>() : range.try_truncate(size); }
  // Unmaps whole chunks, now. Whoever puts ranges to sleep has asked for pins before.
  Result<void> unmap(std::string_view call, std::size_t offset, std::size_t bytes) {
    return range.unmap_despite_pins(call, offset, bytes);
  }
  // The same of what was mapped by whoever wakes it: that only copies have used, and observers.
  Result<void> unmap_unused(std::string_view call, std::size_t offset, std::size_t bytes) {
    return copies_left ? unmap(call, offset, bytes) : range.unmap_unused(call, offset, bytes);
  }
  // By a call that has not returned.
  [[nodiscard]] bool is_changing() const noexcept;

  // Copies of that stream may still use pages and backup, since the driver did not tell their end. By any thread.
  void leave_copy_to(CUstream_st* stream) noexcept;
  // Until such copies are done.
  Result<void> wait_for_left_copies(std::string_view call, std::chrono::steady_clock::time_point deadline);

  // Closed or moved away by its user.
  [[nodiscard]] bool is_gone() const noexcept { return range.impl_ == nullptr; }

  const std::string tag;
  const std::string name;
  const SleepPolicy policy;
  const DeviceAddress address;

  std::shared_ptr<Backup> backup{};  // of its content; kept while it is awake if the policy says so; outlives the range
  MappedRange range;
  std::atomic<State> state = State::awake;
  std::atomic<bool> copies_left = false;  // of which the range was told
  std::atomic<bool> copies_lost = false;  // of which it could not be told: they may go on for ever
  // Of who has made it `changing`, or of any thread that keeps others from it:
  std::vector<Place> places{};  // while it sleeps, by offset
  std::size_t size = 0;         // bytes of content when it fell asleep
};

using Entries = std::vector<std::shared_ptr<Entry>>;

// Gives the memory back that attempts to wake took for these ranges, but for what could not be unmapped.
void give_back_what_is_not_mapped(const Entries& asleep) noexcept;

// Makes ranges `changing` as long as it lives. Those that were not settled otherwise are as before then, and those that
// are awake have no backup, unless it is to be kept, or copies may still use it.
class Change {
 public:
  Change(Entries entries, State before) : entries_(std::move(entries)), before_(before) {
    for (const auto& each : entries_) each->state = State::changing;
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;
  Change(Change&&) = delete;
  Change& operator=(Change&&) = delete;
  ~Change() {
    for (const auto& each : entries_) {
      if (each->state == State::changing) each->state = before_;
      if (each->state == State::awake && !each->policy.keep_backup && !each->copies_left) each->backup.reset();
    }
  }

  [[nodiscard]] const Entries& entries() const noexcept { return entries_; }

 private:
  Entries entries_;
  State before_;
};

}  // namespace cuvmm::sleep
