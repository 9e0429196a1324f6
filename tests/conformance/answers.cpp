#include "conformance/answers.hpp"

#include <fstream>
#include <stdexcept>

namespace cuvmm::conformance {

namespace {

[[noreturn]] void refuse(const std::string& path, const char* what, const std::string& line) {
  std::string message = path;
  message.append(": ").append(what).append(": ").append(line);
  throw std::runtime_error(message);
}

}  // namespace

std::map<std::string, std::string> read_answers(const std::string& path) {
  std::ifstream file{path};
  if (!file) throw std::runtime_error("cannot read " + path);
  std::map<std::string, std::string> answers;
  for (std::string line; std::getline(file, line);) {
    const std::size_t tab = line.find('\t');
    if (tab == std::string::npos) refuse(path, "no tab in", line);
    if (!answers.emplace(line.substr(0, tab), line.substr(tab + 1)).second) refuse(path, "twice", line);
  }
  return answers;
}

}  // namespace cuvmm::conformance
