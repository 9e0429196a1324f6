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

// Sees to it that standard input, output and error are something, so that no file that is opened later takes the place
// of one that was closed: a report would be written into it. What was closed stays unusable. To be called first of all.
void keep_standard_descriptors();

// Writes the text to standard output and flushes it. Throws OutputLost.
void write_out(const std::string& text);

}  // namespace cuvmm::command
