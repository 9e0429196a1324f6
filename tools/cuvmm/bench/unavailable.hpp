// Reports that this machine or this build cannot make.
#pragma once

#include <stdexcept>

namespace cuvmm::bench {

// The text says why, and the way out.
class Unavailable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cuvmm::bench
