#include "emulator/kernels/module_image.hpp"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace cuvmm::emulator {
namespace {

// A fatbin begins with this header; the sizes are in bytes.
struct FatbinHeader {
  std::uint32_t magic;
  std::uint16_t version;
  std::uint16_t header_bytes;
  std::uint64_t content_bytes;
};
constexpr std::uint32_t fatbin_magic = 0xBA55ED50;

// What nvcc puts around a fatbin in a program's data segment.
struct FatbinWrapper {
  std::uint32_t magic;
  std::uint32_t version;
  const void* fatbin;
};
constexpr std::uint32_t wrapper_magic = 0x466243B1;

bool is_text(const void* image) {
  std::uint32_t magic = 0;
  if (::strnlen(static_cast<const char*>(image), sizeof magic) < sizeof magic) return true;
  std::memcpy(&magic, image, sizeof magic);
  return magic != fatbin_magic && magic != wrapper_magic;
}

// PTX text without what stands in comments and strings.
std::string code_of(std::string_view text) {
  std::string code;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = 0;
    if (text.substr(at, 2) == "//") {
      end = text.find('\n', at);
    } else if (text.substr(at, 2) == "/*") {
      end = text.find("*/", at + 2);
      if (end != std::string_view::npos) end += 2;
    } else if (text[at] == '"') {
      end = text.find('"', at + 1);
      if (end != std::string_view::npos) ++end;
    } else {
      code += text[at++];
      continue;
    }
    at = end == std::string_view::npos ? text.size() : end;
  }
  return code;
}

bool brackets_match(std::string_view code) {
  constexpr std::string_view opening = "([{";
  constexpr std::string_view closing = ")]}";
  std::string open;
  for (const char c : code) {
    if (const std::size_t kind = opening.find(c); kind != std::string_view::npos) open += closing[kind];
    if (closing.find(c) == std::string_view::npos) continue;
    if (open.empty() || open.back() != c) return false;
    open.pop_back();
  }
  return open.empty();
}

// The number behind `prefix`, with the digit behind its point: 70 for "7.0", and for "70" where `tenths` says that
// tenths are meant.
unsigned number_behind(std::string_view code, std::string_view prefix, bool tenths) {
  std::size_t at = code.find(prefix);
  if (at == std::string_view::npos) return 0;
  at += prefix.size();
  while (at < code.size() && std::isspace(static_cast<unsigned char>(code[at])) != 0) ++at;
  unsigned number = 0;
  const auto take_digit = [&] {
    if (at >= code.size() || std::isdigit(static_cast<unsigned char>(code[at])) == 0) return false;
    number = std::min(number * 10 + static_cast<unsigned>(code[at++] - '0'), 100'000U);
    return true;
  };
  while (take_digit()) {
  }
  if (tenths) return number;
  const bool point = at < code.size() && code[at] == '.';
  if (point) ++at;
  if (!point || !take_digit()) number *= 10;
  return number;
}

bool is_name_character(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
}

std::vector<std::string> entries_in(std::string_view text) {
  constexpr std::string_view directive = ".entry";
  std::vector<std::string> names;
  for (std::size_t at = text.find(directive); at != std::string_view::npos; at = text.find(directive, at)) {
    at += directive.size();
    std::size_t begin = at;
    while (begin < text.size() && std::isspace(static_cast<unsigned char>(text[begin])) != 0) ++begin;
    std::size_t end = begin;
    while (end < text.size() && is_name_character(text[end])) ++end;
    if (begin > at && end > begin) names.emplace_back(text.substr(begin, end - begin));
  }
  return names;
}

}  // namespace

abi::CUresult check_ptx(const void* image, const PtxLimits& limits) {
  if (!is_text(image)) return abi::CUDA_SUCCESS;
  const std::string code = code_of(static_cast<const char*>(image));
  if (number_behind(code, ".version", false) > limits.version) return abi::CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
  const std::string_view behind_target = std::string_view(code).substr(std::min(code.find(".target"), code.size()));
  const bool target_known = number_behind(behind_target, "sm_", true) <= limits.target;
  return target_known && brackets_match(code) ? abi::CUDA_SUCCESS : abi::CUDA_ERROR_INVALID_PTX;
}

std::optional<std::vector<std::string>> kernel_names_in(const void* image) {
  std::uint32_t magic = 0;
  // A text may be shorter than a number: read no further than its end.
  const std::size_t readable = ::strnlen(static_cast<const char*>(image), sizeof magic);
  if (readable == sizeof magic) std::memcpy(&magic, image, sizeof magic);
  if (magic == wrapper_magic) {
    FatbinWrapper wrapper{};
    std::memcpy(&wrapper, image, sizeof wrapper);
    return kernel_names_in(wrapper.fatbin);
  }
  if (magic == fatbin_magic) {
    FatbinHeader header{};
    std::memcpy(&header, image, sizeof header);
    const std::string_view content(static_cast<const char*>(image), header.header_bytes + header.content_bytes);
    return entries_in(content);
  }
  const std::string_view text(static_cast<const char*>(image));
  if (text.find(".version") == std::string_view::npos) return std::nullopt;
  return entries_in(text);
}

}  // namespace cuvmm::emulator
