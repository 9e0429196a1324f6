// What a command cannot work with.
#pragma once

#include <stdexcept>

namespace cuvmm::command {

// Options, the environment or a file cannot be used, or changed meanwhile. The text is one sentence for people: what is
// wrong and the way out.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cuvmm::command
