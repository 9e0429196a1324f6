// A value, or the failure that there is instead of one: what the try_ forms return.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>
#include <variant>

#include "cuvmm/error.hpp"

namespace cuvmm {

// Either a T or a Failure. Asking for the value where there is none throws the exception that belongs to the failure.
// A moved-from Result keeps its side. Thread-safety: as an ordinary value.
template <class T>
class [[nodiscard]] Result {
  static_assert(std::is_object_v<T> && !std::is_same_v<T, Failure>);

 public:
  using value_type = T;

  // Implicit, so that a function returns either as it is. NOLINTBEGIN(google-explicit-constructor)
  Result(T value) noexcept(std::is_nothrow_move_constructible_v<T>)
      : content_(std::in_place_index<0>, std::move(value)) {}
  Result(Failure failure) noexcept : content_(std::in_place_index<1>, std::move(failure)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return content_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }

  // The value; throws (see cuvmm::raise) if there is a failure instead.
  [[nodiscard]] T& value() & {
    require_value();
    return *std::get_if<0>(&content_);
  }
  [[nodiscard]] const T& value() const& {
    require_value();
    return *std::get_if<0>(&content_);
  }
  [[nodiscard]] T value() && {
    require_value();
    return std::move(*std::get_if<0>(&content_));
  }

  template <class U>
  [[nodiscard]] T value_or(U&& otherwise) const& {
    return has_value() ? *std::get_if<0>(&content_) : static_cast<T>(std::forward<U>(otherwise));
  }

  // The value, unchecked: only after has_value().
  [[nodiscard]] T& operator*() & noexcept { return *std::get_if<0>(&content_); }
  [[nodiscard]] const T& operator*() const& noexcept { return *std::get_if<0>(&content_); }
  [[nodiscard]] T* operator->() noexcept { return std::get_if<0>(&content_); }
  [[nodiscard]] const T* operator->() const noexcept { return std::get_if<0>(&content_); }

  // The failure, unchecked: only if !has_value().
  [[nodiscard]] const Failure& failure() const noexcept { return *std::get_if<1>(&content_); }

 private:
  void require_value() const {
    if (!has_value()) raise(failure());
  }

  std::variant<T, Failure> content_;
};

// Success, or a failure. Success costs a null pointer, so that checking a driver call is all but free.
template <>
class [[nodiscard]] Result<void> {
 public:
  using value_type = void;

  Result() noexcept = default;
  // NOLINTNEXTLINE(google-explicit-constructor)
  Result(Failure failure) : failure_(std::make_shared<const Failure>(std::move(failure))) {}

  [[nodiscard]] bool has_value() const noexcept { return failure_ == nullptr; }
  explicit operator bool() const noexcept { return has_value(); }

  // Nothing; throws (see cuvmm::raise) if there is a failure.
  void value() const {
    if (failure_) raise(*failure_);
  }

  // The failure, unchecked: only if !has_value().
  [[nodiscard]] const Failure& failure() const noexcept { return *failure_; }

 private:
  std::shared_ptr<const Failure> failure_;
};

}  // namespace cuvmm
