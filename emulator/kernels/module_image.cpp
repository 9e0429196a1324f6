#include "emulator/kernels/module_image.hpp"

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

std::optional<std::vector<std::string>> kernel_names_in(const void* image) {
  std::uint32_t magic = 0;
  // A text may be shorter than a number: read no further than its end.
  const std::size_t readable = ::strnlen(static_cast<const char*>(image), sizeof magic);
  if (readable == sizeof magic) std::memcpy(&magic, image, sizeof magic);
  if (magic == wrapper_magic) {
    FatbinWrapper wrapper;
    std::memcpy(&wrapper, image, sizeof wrapper);
    return kernel_names_in(wrapper.fatbin);
  }
  if (magic == fatbin_magic) {
    FatbinHeader header;
    std::memcpy(&header, image, sizeof header);
    const std::string_view content(static_cast<const char*>(image), header.header_bytes + header.content_bytes);
    return entries_in(content);
  }
  const std::string_view text(static_cast<const char*>(image));
  if (text.find(".version") == std::string_view::npos) return std::nullopt;
  return entries_in(text);
}

}  // namespace cuvmm::emulator
