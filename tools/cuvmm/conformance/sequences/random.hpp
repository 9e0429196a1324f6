// Random numbers that are the same everywhere: those of the standard library's distributions are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

namespace cuvmm::conformance {

// SplitMix64. A seed fixes all that follows.
class Random {
 public:
  explicit Random(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    state_ += 0x9E37'79B9'7F4A'7C15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58'476D'1CE4'E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D0'49BB'1331'11EB;
    return mixed ^ (mixed >> 31);
  }
  // From 0 to limit - 1; the limit is small beside 2^64, so that all are as likely.
  std::int64_t below(std::int64_t limit) noexcept {
    return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(limit));
  }
  bool percent(int chance) noexcept { return below(100) < chance; }

  template <class T>
  T one_of(std::initializer_list<T> choices) noexcept {
    return choices.begin()[below(static_cast<std::int64_t>(choices.size()))];
  }
  template <class List>
  const auto& element(const List& list) noexcept {
    return list[static_cast<std::size_t>(below(static_cast<std::int64_t>(list.size())))];
  }

 private:
  std::uint64_t state_;
};

}  // namespace cuvmm::conformance
