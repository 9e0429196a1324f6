// A range that other processes may attach to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cuvmm/mapped_range.hpp"
#include "cuvmm/sharing/deadline.hpp"
#include "cuvmm/sharing/withdrawal.hpp"

namespace cuvmm::sharing {

// One process that has the range attached, or is about to.
struct Attached {
  int process = 0;  // 0 where it is of a PID namespace that this process cannot see
  unsigned user = 0;
  AccessRights rights = AccessRights::none;  // that it has asked for and was offered
  bool mapped = false;                       // it has said so; until then it may have handles
  std::uint32_t chunks = 0;                  // that it has mapped
};

// The publication of a range: as long as it lives others may attach to it, and the range is pinned, so that nothing of
// it is unmapped or replaced. Its chunks were exported when it was published; to attach costs the publisher no driver
// call. What is done to the range in spite of the pin (SleepOptions::despite_pins, its destruction) withdraws it.
//
// The destructor withdraws and waits for nobody: those who are attached keep their mappings, which keep the memory.
//
// Thread-safe but for update(), which reads the range as its owner does. A moved-from one may be assigned to or
// destroyed, and asked for what it is, which is empty and 0; all else is refused (InvalidUse).
class PublishedRange {
 public:
  PublishedRange(PublishedRange&& other) noexcept;
  PublishedRange& operator=(PublishedRange&& other) noexcept;
  PublishedRange(const PublishedRange&) = delete;
  PublishedRange& operator=(const PublishedRange&) = delete;
  ~PublishedRange();

  [[nodiscard]] const std::string& name() const noexcept;
  // Counts the publications of that name by this publisher, from 1.
  [[nodiscard]] std::uint64_t generation() const noexcept;
  [[nodiscard]] std::size_t size() const;    // bytes of content that are offered
  [[nodiscard]] std::size_t chunks() const;  // that are offered
  [[nodiscard]] std::vector<Attached> attached() const;

  // Offers what the range has become since, and announces it (AttachedRange::follow): chunks that were appended or fill
  // what was a hole, and where the content ends, which may be earlier within the last chunk. `range` is the one that
  // was published. Throws InvalidUse for another one, or where only a part was published (publish it again for what
  // changed there), or once it is withdrawn, and as ShareableHandle::export_from; then nothing has changed.
  void update(const MappedRange& range) { try_update(range).value(); }
  Result<void> try_update(const MappedRange& range);

  // Lets nobody attach any more, announces why, and waits until nobody is attached. Then the range is pinned no longer,
  // may be changed, and published again. Throws TimedOut, which names the processes that are still attached; the range
  // then stays withdrawn and pinned, and this may be called again.
  void withdraw(const Deadline& deadline, Withdrawal why = Withdrawal::ended) { try_withdraw(deadline, why).value(); }
  Result<void> try_withdraw(const Deadline& deadline, Withdrawal why = Withdrawal::ended);

 private:
  friend class RangePublisher;
  class Impl;
  explicit PublishedRange(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace cuvmm::sharing
