// What a conformance case answers: a short text, mostly the name of a driver result.
#pragma once

#include <concepts>
#include <initializer_list>
#include <string>
#include <string_view>

#include "driver/abi.hpp"

namespace cuvmm::conformance {

// The name of a result without its CUDA_ERROR_; "OK" for success.
[[nodiscard]] std::string result_name(abi::CUresult result);

// A piece of an answer, or a whole one. It is made from whatever a case has in hand, so that cases stay short.
class Answer {
 public:
  // NOLINTBEGIN(google-explicit-constructor): whatever a case returns becomes its answer
  Answer(abi::CUresult result) : text_(result_name(result)) {}
  Answer(std::string text) : text_(std::move(text)) {}
  Answer(std::string_view text) : text_(text) {}
  Answer(const char* text) : text_(text) {}
  Answer(std::integral auto number) : text_(std::to_string(number)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

// Pieces put together. A braced list is evaluated from left to right, and so are the driver calls written in it.
[[nodiscard]] std::string joined(std::string_view separator, std::initializer_list<Answer> pieces);
[[nodiscard]] std::string commas(std::initializer_list<Answer> pieces);
[[nodiscard]] std::string spaces(std::initializer_list<Answer> pieces);
[[nodiscard]] std::string slashes(std::initializer_list<Answer> pieces);

}  // namespace cuvmm::conformance
