// cuGetErrorName and cuGetErrorString, which need no initialisation.
#include <cstring>

#include "conformance/cases/case_groups.hpp"

namespace cuvmm::conformance {

namespace {

// "2=CUDA_ERROR_OUT_OF_MEMORY ..." for every code from `first` on that has a name.
std::string names(Environment& cuda, int first, int count) {
  std::string answer;
  for (int code = first; code < first + count; ++code) {
    const char* name = nullptr;
    if (cuda->cuGetErrorName(static_cast<CUresult>(code), &name) != CUDA_SUCCESS || name == nullptr) continue;
    if (!answer.empty()) answer += ' ';
    answer += std::to_string(code) + "=" + name;
  }
  return answer.empty() ? "none" : answer;
}

// The codes from `first` on that have a text; the text itself is each driver's own affair.
std::string described_codes(Environment& cuda, int first, int count) {
  std::string answer;
  for (int code = first; code < first + count; ++code) {
    const char* text = nullptr;
    if (cuda->cuGetErrorString(static_cast<CUresult>(code), &text) != CUDA_SUCCESS || text == nullptr) continue;
    if (!answer.empty()) answer += ' ';
    answer += std::to_string(code);
    if (*text == '\0') answer += "(empty)";
  }
  return answer.empty() ? "none" : answer;
}

}  // namespace

void add_error_name_cases(Table& table) {
  for (int first = 0; first < 1000; first += 100) {
    const std::string range = std::to_string(first) + "_to_" + std::to_string(first + 99);
    table.add(
        "error_names.names_" + range, [first](Environment& cuda) { return names(cuda, first, 100); }, needs_loaded);
    table.add(
        "error_names.described_" + range, [first](Environment& cuda) { return described_codes(cuda, first, 100); },
        needs_loaded);
  }
  for (const int code : {-1, 12345})
    table.add(
        "error_names.unknown_" + std::to_string(code),
        [code](Environment& cuda) {
          const char* name = "untouched";
          const char* text = "untouched";
          const CUresult named = cuda->cuGetErrorName(static_cast<CUresult>(code), &name);
          const CUresult described = cuda->cuGetErrorString(static_cast<CUresult>(code), &text);
          return spaces({slashes({named, name == nullptr ? "null" : name}),
                         slashes({described, text == nullptr ? "null" : text})});
        },
        needs_loaded);
  table.add(
      "error_names.null_out",
      [](Environment& cuda) {
        return commas({cuda->cuGetErrorName(CUDA_SUCCESS, nullptr), cuda->cuGetErrorString(CUDA_SUCCESS, nullptr)});
      },
      needs_loaded);
}

}  // namespace cuvmm::conformance
