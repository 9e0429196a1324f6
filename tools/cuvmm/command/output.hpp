// Standard output, of which nothing may be lost in silence.
#pragma once

#include <stdexcept>
#include <string>

namespace cuvmm::command {

// Standard output took not all of what was written. The text is one sentence for people.
class OutputLost : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Writes the text to standard output and flushes it. Throws OutputLost.
void write_out(const std::string& text);

}  // namespace cuvmm::command
