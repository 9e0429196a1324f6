// Each driver call in the life of a retirement fails once: nothing is lost, released twice or too early.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "retirement.hpp"

namespace cuvmm {
namespace {

using namespace test;

// What a caller does who does not give up.
template <class Step>
auto insist(Step&& step) {
  for (int tries = 0;; ++tries) {
    try {
      return step();
    } catch (const Error&) {
      if (tries == 3) throw;
    }
  }
}

class Life {
 public:
  explicit Life(std::uint64_t failing_call, CUresult result, driver::FaultTiming timing) {
    stream_ = machine_.stream();
    word_ = machine_.word();
    call<EntryPoint::cuEventCreate>(machine_.api(), &event_, 0U);
    created_.emplace(machine_);
    in_created_ = created_->stream();
    driver::Fault fault;
    fault.call = failing_call;
    fault.result = result;
    fault.timing = timing;
    fault_ = fault;
  }

  // Whether the fault happened.
  bool run() {
    machine_.wait(stream_, word_);
    call<EntryPoint::cuEventRecord>(machine_.api(), event_, stream_);
    const std::uint64_t before = machine_.faults().injected();
    machine_.faults().inject(fault_);
    {
      const auto queue = RetireQueue::create(machine_.driver(), {.max_pending = 3, .full_wait = 0s, .drain_wait = 60s});
      use_and_retire(*queue);
      queue->poll();
      EXPECT_EQ(released_, 0);
      RetirementMachine::open(word_);
      insist([&] { queue->drain_for(60s).value(); });
      EXPECT_EQ(released_, 3);
      EXPECT_EQ(queue->pending(), 0u);
    }
    const bool happened = machine_.faults().injected() > before;
    machine_.faults().clear();
    return happened;
  }

 private:
  void use_and_retire(RetireQueue& queue) {
    StreamUses uses(machine_.driver());
    insist([&] { uses.used_on(stream_); });
    insist([&] { uses.used_on(in_created_); });
    insist([&] { uses.used_until(event_); });
    retire(queue, uses);
    StreamUses one(machine_.driver());
    insist([&] { one.used_on(stream_); });
    retire(queue, one);
    insist([&] { uses.no_longer_used_on(stream_); });
    insist([&] { uses.no_longer_used_on(in_created_); });
    retire(queue, uses);
  }

  void retire(RetireQueue& queue, StreamUses& uses) {
    auto owner = [this, counted = std::make_unique<int>(1)] {
      EXPECT_EQ(std::atomic_ref(*word_).load(), 1u) << "released under work";
      released_ += *counted;
    };
    PendingWork work = uses.so_far();
    insist([&] { queue.retire_call(std::move(owner), std::move(work)); });
  }  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks): the queue owns it

  RetirementMachine machine_;
  CUstream stream_ = nullptr;
  CUstream in_created_ = nullptr;
  CUevent event_ = nullptr;
  std::uint32_t* word_ = nullptr;
  std::optional<CreatedContext> created_;
  driver::Fault fault_;
  int released_ = 0;
};

class RetireQueueFaults : public testing::TestWithParam<CUresult> {};
INSTANTIATE_TEST_SUITE_P(Codes, RetireQueueFaults,
                         testing::Values(CUDA_ERROR_UNKNOWN, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED,
                                         CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_CONTEXT));

TEST_P(RetireQueueFaults, LoseAndDoubleNothingAtAnyCall) {
  SafeRecordingHandler handler;  // a clean-up that fails is told, and no more
  for (const auto timing : {driver::FaultTiming::instead, driver::FaultTiming::after}) {
    std::uint64_t number = 1;
    for (; number < 500; ++number) {
      SCOPED_TRACE("call " + std::to_string(number));
      bool happened = false;
      EXPECT_NO_THROW(happened = Life(number, GetParam(), timing).run());
      if (!happened || HasFailure()) break;
    }
    EXPECT_GT(number, 30u);
    EXPECT_LT(number, 500u) << "there must be an end to the calls";
  }
}

}  // namespace
}  // namespace cuvmm
