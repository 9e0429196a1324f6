#include "command/words.hpp"

namespace cuvmm::command {

std::string quoted(const std::string& text) {
  std::string shown = "'";
  for (const char character : text) {
    const auto code = static_cast<unsigned char>(character);
    shown += code < 0x20 || code == 0x7F ? '?' : character;
  }
  return shown + "'";
}

std::string with_separators(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

std::string bytes_in_words(std::uint64_t bytes) {
  return with_separators(bytes) + (bytes == 1 ? " byte" : " bytes");
}

}  // namespace cuvmm::command
