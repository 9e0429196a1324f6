#include "conformance/cases/answer.hpp"

#include "driver/result_names.hpp"

namespace cuvmm::conformance {

std::string result_name(abi::CUresult result) {
  std::string_view name = driver::result_name(result);
  if (name.empty()) return "(code " + std::to_string(static_cast<int>(result)) + ")";
  if (result == abi::CUDA_SUCCESS) return "OK";
  constexpr std::string_view prefix = "CUDA_ERROR_";
  if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  return std::string{name};
}

std::string joined(std::string_view separator, std::initializer_list<Answer> pieces) {
  std::string text;
  for (const Answer& piece : pieces) {
    if (&piece != pieces.begin()) text += separator;
    text += piece.text();
  }
  return text;
}

std::string commas(std::initializer_list<Answer> pieces) {
  return joined(",", pieces);
}

std::string spaces(std::initializer_list<Answer> pieces) {
  return joined(" ", pieces);
}

std::string slashes(std::initializer_list<Answer> pieces) {
  return joined("/", pieces);
}

}  // namespace cuvmm::conformance
