// Values as bytes, one field after another: little-endian numbers, counted texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace cuvmm::sharing {

class Writer {
 public:
  template <class Number>
  Writer& number(Number value) {
    static_assert(std::is_unsigned_v<Number>);
    for (std::size_t byte = 0; byte < sizeof(Number); ++byte)
      bytes_.push_back(static_cast<std::byte>(static_cast<std::uint64_t>(value) >> (8 * byte)));
    return *this;
  }
  Writer& raw(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  Writer& text(std::string_view text) {
    number(static_cast<std::uint32_t>(text.size()));
    return raw(std::as_bytes(std::span(text)));
  }

  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what may be anything: never beyond the end, and makes nothing longer than the bytes that are left. After a
// failure it answers zeros and empty texts.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) noexcept : bytes_(bytes) {}

  template <class Number>
  [[nodiscard]] Number number() {
    static_assert(std::is_unsigned_v<Number>);
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const std::byte byte : raw(sizeof(Number))) {
      value |= std::to_integer<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return static_cast<Number>(value);
  }
  // That many bytes, or none.
  [[nodiscard]] std::span<const std::byte> raw(std::size_t count) {
    if (failed_ || count > bytes_.size()) {
      failed_ = true;
      return {};
    }
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  [[nodiscard]] std::string text(std::size_t most) {
    const auto size = number<std::uint32_t>();
    if (size > most) failed_ = true;
    const auto bytes = raw(size);
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }

  [[nodiscard]] std::size_t left() const noexcept { return failed_ ? 0 : bytes_.size(); }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  // Whether everything was there, and nothing is left.
  [[nodiscard]] bool complete() const noexcept { return !failed_ && bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace cuvmm::sharing
