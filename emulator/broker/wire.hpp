// Values as bytes, field by field: little-endian numbers, counted lists.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace cuvmm::emulator::broker {

// A structure says what it is made of by `static void fields(auto& self, auto&& field)`, which calls `field` with each
// member in order: one list for both directions. An enumeration that is sent has a function `valid(Enumeration)`.

class Writer {
 public:
  template <class Value>
  void operator()(const Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      (*this)(static_cast<std::underlying_type_t<Value>>(value));
    } else if constexpr (std::is_integral_v<Value>) {
      const auto number = static_cast<std::uint64_t>(value);
      for (std::size_t byte = 0; byte < sizeof(Value); ++byte)
        bytes_.push_back(static_cast<std::byte>(number >> (8 * byte)));
    } else {
      Value::fields(value, *this);
    }
  }
  void operator()(const std::string& text) {
    (*this)(static_cast<std::uint32_t>(text.size()));
    for (const char character : text) (*this)(static_cast<std::uint8_t>(character));
  }
  template <class Value>
  void operator()(const std::vector<Value>& values) {
    (*this)(static_cast<std::uint32_t>(values.size()));
    for (const Value& value : values) (*this)(value);
  }

  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads what may be anything: never beyond the end, and no list is made longer than the bytes that are left.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class Value>
  void operator()(Value& value) {
    if constexpr (std::is_enum_v<Value>) {
      std::underlying_type_t<Value> number{};
      (*this)(number);
      value = static_cast<Value>(number);
      if (!valid(value)) fail();
    } else if constexpr (std::is_same_v<Value, bool>) {
      std::uint8_t number = 0;
      (*this)(number);
      value = number == 1;
      if (number > 1) fail();
    } else if constexpr (std::is_integral_v<Value>) {
      value = static_cast<Value>(number(sizeof(Value)));
    } else {
      Value::fields(value, *this);
    }
  }
  void operator()(std::string& text) {
    text.resize(count(1));
    for (char& character : text) character = static_cast<char>(number(1));
  }
  template <class Value>
  void operator()(std::vector<Value>& values) {
    static_assert(std::is_integral_v<Value>);
    values.resize(count(sizeof(Value)));
    for (Value& value : values) (*this)(value);
  }

  // Whether everything was there, well-formed, and nothing is left.
  [[nodiscard]] bool complete() const { return !failed_ && bytes_.empty(); }

 private:
  void fail() {
    failed_ = true;
    bytes_ = {};
  }
  std::uint64_t number(std::size_t size) {
    if (bytes_.size() < size) fail();
    if (failed_) return 0;
    std::uint64_t number = 0;
    for (std::size_t byte = 0; byte < size; ++byte)
      number |= std::to_integer<std::uint64_t>(bytes_[byte]) << (8 * byte);
    bytes_ = bytes_.subspan(size);
    return number;
  }
  std::size_t count(std::size_t size_of_each) {
    const std::uint64_t announced = number(4);
    if (announced > bytes_.size() / size_of_each) fail();
    return failed_ ? 0 : static_cast<std::size_t>(announced);
  }

  std::span<const std::byte> bytes_;
  bool failed_ = false;
};

}  // namespace cuvmm::emulator::broker
