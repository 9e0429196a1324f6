#include "conformance/answers.hpp"

#include <stdexcept>

#include "conformance/recordings.hpp"

namespace cuvmm::conformance {

namespace {

[[noreturn]] void refuse(const std::string& source, const char* what, std::string_view line) {
  std::string message = source;
  message.append(": ").append(what).append(": ").append(line);
  throw std::runtime_error(message);
}

}  // namespace

Answers parse_answers(std::string_view text, const std::string& source) {
  Answers answers;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t tab = line.find('\t');
    if (tab == std::string_view::npos) refuse(source, "no tab in", line);
    if (!answers.emplace(line.substr(0, tab), line.substr(tab + 1)).second) refuse(source, "twice", line);
  }
  return answers;
}

std::optional<Answers> recorded_answers(std::string_view profile) {
  const Recordings* const recordings = find_recordings(profile);
  if (recordings == nullptr) return std::nullopt;
  return parse_answers(recordings->answers, "the recorded answers of " + std::string{profile});
}

}  // namespace cuvmm::conformance
