#include "tour/cleanup_watch.hpp"

#include <cstdio>
#include <mutex>
#include <utility>

namespace cuvmm::tour {

struct CleanupWatch::Collected {
  std::mutex mutex;
  std::string text;
};

CleanupWatch::CleanupWatch()
    : collected_(std::make_shared<Collected>()),
      former_(set_cleanup_failure_handler([collected = collected_](const Failure& failure) {
        const std::string message = failure.message();
        const std::lock_guard lock(collected->mutex);
        collected->text += (collected->text.empty() ? "" : " ") + message;
      })) {}

CleanupWatch::~CleanupWatch() {
  set_cleanup_failure_handler(std::move(former_));
  const std::string left = take();
  if (!left.empty()) std::fputs(("cuvmm tour: a clean-up failed: " + left + "\n").c_str(), stderr);
}

std::string CleanupWatch::take() {
  const std::lock_guard lock(collected_->mutex);
  return std::exchange(collected_->text, {});
}

}  // namespace cuvmm::tour
