#include "traces/served_allocations.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cuvmm::traces {

namespace {

using std::chrono::microseconds;

class Server {
 public:
  Server(const std::vector<Request>& requests, const Serving& serving)
      : serving_(serving),
        token_time_(std::max<std::int64_t>(1, static_cast<std::int64_t>(1e6 / serving.tokens_per_second))),
        next_(requests.begin()),
        end_(requests.end()) {}

  AllocationTrace serve() && {
    while (next_ != end_ || !running_.empty()) {
      if (running_.empty()) now_ = std::max(now_, next_->arrival);
      for (; next_ != end_ && next_->arrival <= now_ && running_.size() < serving_.most_sequences; ++next_)
        start(*next_);
      generate();
      now_ += token_time_;
    }
    return std::move(recorder_).finish(
        fmt::format("keys and values of requests, {} bytes a token", serving_.token_bytes()));
  }

 private:
  struct Sequence {
    const Request* request;
    std::uint64_t room;  // for so many tokens
    std::uint64_t generated;
    std::vector<std::uint64_t> allocations;
  };

  void start(const Request& request) {
    running_.push_back({&request, 0, 0, {}});
    if (request.input_tokens != 0) grow(running_.back(), request.input_tokens);
  }
  void grow(Sequence& sequence, std::uint64_t tokens) {
    recorder_.allocate(allocated_, tokens * serving_.token_bytes(), 0, now_);
    sequence.allocations.push_back(allocated_++);
    sequence.room += tokens;
  }
  // One token for each sequence.
  void generate() {
    for (Sequence& each : running_) {
      if (++each.generated > each.request->output_tokens) continue;
      if (each.request->input_tokens + each.generated > each.room) grow(each, serving_.growth_tokens);
    }
    std::erase_if(running_, [&](const Sequence& each) {
      if (each.generated <= each.request->output_tokens) return false;
      for (const std::uint64_t allocation : each.allocations) recorder_.free(allocation, now_);
      return true;
    });
  }

  const Serving& serving_;
  microseconds token_time_;
  std::vector<Request>::const_iterator next_, end_;
  microseconds now_{};
  std::vector<Sequence> running_;
  std::uint64_t allocated_ = 0;
  AllocationRecorder recorder_;
};

}  // namespace

AllocationTrace served_allocations(const std::vector<Request>& requests, const Serving& serving) {
  return Server(requests, serving).serve();
}

}  // namespace cuvmm::traces
