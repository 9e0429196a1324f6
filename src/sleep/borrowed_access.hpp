// Rights that copying needs for a moment.
#pragma once

#include <optional>
#include <utility>

#include "cuvmm/mapped_range.hpp"

namespace cuvmm::sleep {

// Who copies the bytes of memory that lies there: its own device, if it has the rights, or else a device that has them;
// of memory of the host, the CPU before a device that has them not.
[[nodiscard]] Location copier_of(const MappedRange& range, const Location& memory, AccessRights needed);

// Gives the location at least these rights, and takes them back at the end of its life: what fails then goes to the
// clean-up failure handler.
class BorrowedAccess {
 public:
  [[nodiscard]] static Result<BorrowedAccess> borrow(MappedRange& range, const Location& location, AccessRights rights);

  BorrowedAccess(BorrowedAccess&& other) noexcept
      : range_(std::exchange(other.range_, nullptr)), before_(other.before_), waits_(other.waits_) {}
  BorrowedAccess& operator=(BorrowedAccess&&) = delete;
  BorrowedAccess(const BorrowedAccess&) = delete;
  BorrowedAccess& operator=(const BorrowedAccess&) = delete;
  ~BorrowedAccess();

  // Copies may go on that rely on it, of which the range was told.
  void wait_before_it_ends() noexcept { waits_ = true; }

 private:
  BorrowedAccess(MappedRange* range, const AccessGrant& before) noexcept : range_(range), before_(before) {}

  MappedRange* range_;  // null: nothing was borrowed
  AccessGrant before_;
  bool waits_ = false;
};

}  // namespace cuvmm::sleep
