// What is wrong with a trace.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>

namespace cuvmm::traces {

// A trace that cannot be used. The text is a sentence for people, with the trace's name and the line's number.
class TraceError : public std::runtime_error {
 public:
  TraceError(const std::string& name, std::size_t line, const std::string& what);
  [[nodiscard]] std::size_t line() const noexcept { return line_; }  // from 1; 0: the trace as a whole

 private:
  std::size_t line_;
};

// What is wrong with a part of a trace; whoever reads the parts knows its name and the line's number. Without a full
// stop at the end.
class Broken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cuvmm::traces
