// Draws the calls of a sequence.
#pragma once

#include <optional>

#include "conformance/sequences/operation.hpp"

namespace cuvmm::conformance {

// The calls of one sequence, which follow from the seed, the number of devices, and the codes that were answered.
class Generator {
 public:
  // Raised whenever the same seed and codes give other calls than before: recordings tell with which they were made.
  static constexpr int version = 3;
  static constexpr int mean_length = 60;
  static constexpr int most_length = 400;

  Generator(std::uint64_t seed, int devices);

  // The next call; nothing after the last. Each is to be followed by answered().
  [[nodiscard]] std::optional<Call> next();
  // Whether all work must be done before the call that was drawn last is made.
  [[nodiscard]] bool must_settle() const { return must_settle_; }
  // A driver may answer what no sound one does: it accepts a mapping that is larger than its memory. Then nobody can
  // tell what follows, and the call was the last.
  void answered(CUresult code);

  [[nodiscard]] const World& world() const { return world_; }
  [[nodiscard]] const CallChecksum& checksum() const { return checksum_; }

 private:
  [[nodiscard]] const Operation& draw_operation();
  [[nodiscard]] bool needs_settling(const Call& call) const;
  void follow(CUresult code);
  void follow_work(const Call& call, CUresult code);

  Random random_;
  World world_;
  int left_ = 0;
  Call last_;
  bool must_settle_ = false;
  CallChecksum checksum_;
};

}  // namespace cuvmm::conformance
