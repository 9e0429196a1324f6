#include "driver/result_names.hpp"

#include <array>

namespace cuvmm::driver {

namespace {

struct NamedResult {
  abi::CUresult result;
  std::string_view name;
};

constexpr auto named_results = std::to_array<NamedResult>({
#define CUVMM_RESULT(name, value) {abi::CUDA_##name, "CUDA_" #name},
#include "driver/abi_results.def"
});

}  // namespace

std::string_view result_name(abi::CUresult result) noexcept {
  for (const NamedResult& named : named_results)
    if (named.result == result) return named.name;
  return {};
}

std::optional<abi::CUresult> find_result(std::string_view name) noexcept {
  constexpr std::string_view error_prefix = "CUDA_ERROR_";
  constexpr std::string_view prefix = "CUDA_";
  for (const NamedResult& named : named_results) {
    if (named.name == name || named.name.substr(prefix.size()) == name) return named.result;
    if (named.name.starts_with(error_prefix) && named.name.substr(error_prefix.size()) == name) return named.result;
  }
  return std::nullopt;
}

}  // namespace cuvmm::driver
