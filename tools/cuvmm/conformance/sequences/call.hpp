// One call of a sequence, in terms that mean the same on every machine: slots instead of handles, places instead of
// addresses.
#pragma once

#include <array>
#include <cstdint>
#include <string>

namespace cuvmm::conformance {

struct Operation;

struct Call {
  static constexpr std::size_t most_arguments = 8;

  const Operation* operation = nullptr;
  std::array<std::int64_t, most_arguments> arguments{};  // those that the operation has; the rest is zero

  [[nodiscard]] std::int64_t operator[](std::size_t index) const { return arguments[index]; }
};

// "cuMemMap(space=0, at=0x200000, size=0x400000, offset=0x0, handle=0x3, flags=0x0)".
[[nodiscard]] std::string text(const Call& call);

// A checksum of calls in their order, by which it is noticed that a seed gives other calls than it did.
class CallChecksum {
 public:
  void add(const Call& call);
  [[nodiscard]] std::uint32_t value() const noexcept { return value_; }

 private:
  std::uint32_t value_ = 2166136261U;  // FNV-1a
};

}  // namespace cuvmm::conformance
