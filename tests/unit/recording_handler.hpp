// Keeps what clean-up reports, for as long as a test lasts.
#pragma once

#include <vector>

#include "cuvmm/error.hpp"

namespace cuvmm::test {

class RecordingHandler {
 public:
  RecordingHandler() : previous_(set_cleanup_failure_handler([this](const Failure& f) { failures.push_back(f); })) {}
  ~RecordingHandler() { set_cleanup_failure_handler(previous_); }
  RecordingHandler(const RecordingHandler&) = delete;
  RecordingHandler& operator=(const RecordingHandler&) = delete;

  std::vector<Failure> failures;

 private:
  CleanupFailureHandler previous_;
};

}  // namespace cuvmm::test
