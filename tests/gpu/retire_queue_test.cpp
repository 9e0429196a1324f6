// Memory retired under running work of a GPU. Unmapped too early, its kernels would end in an illegal address, which
// every later call of the process would answer.
#include "cuvmm/retire_queue.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "on_gpu.hpp"

namespace cuvmm {
namespace {

using namespace abi;
using namespace std::chrono_literals;
using driver::call;
using driver::EntryPoint;

class RetireQueueOnGpu : public test::OnGpu {
 protected:
  void TearDown() override {
    EXPECT_TRUE(queue_->drain_for(60s));
    EXPECT_EQ(api().cuCtxSynchronize(), CUDA_SUCCESS);
  }

  // Memory of zeros.
  Mapping mapped() {
    const std::size_t bytes = device_.granularity();
    const auto range = AddressReservation::create(driver_, bytes);
    auto mapping = Mapping::create(range, 0, PhysicalMemory::create(driver_, {.location = device_.location()}, bytes));
    grant(mapping, device_.location(), AccessRights::read_write);
    call<EntryPoint::cuMemsetD8>(api(), mapping.address().value, static_cast<unsigned char>(0), bytes);
    call<EntryPoint::cuCtxSynchronize>(api());
    return mapping;
  }

  // Ends the kernel that spins on that flag.
  void release(CUdeviceptr flag, CUstream stream) { call<EntryPoint::cuMemsetD32Async>(api(), flag, 1U, 1U, stream); }

  std::shared_ptr<RetireQueue> queue_ = RetireQueue::create(driver_);
};

TEST_F(RetireQueueOnGpu, C01_TwoHundredSpinningKernelsLoseNoMemoryToAnotherThread) {
  const CUstream spinning = stream(), other = stream();
  for (int round = 0; round < 200; ++round) {
    Mapping mapping = mapped();
    const CUdeviceptr flag = mapping.address().value;
    StreamUses uses(driver_);
    uses.used_on(spinning);
    uses.used_on(other);
    spin(mapping.address(), spinning);
    std::thread([&] {  // in which no context is current
      queue_->retire(std::move(mapping), uses.so_far());
      EXPECT_EQ(queue_->poll(), 0u);
    })
        .join();
    ASSERT_EQ(queue_->pending(), 1u) << "the kernel waits for its flag";
    release(flag, other);
    call<EntryPoint::cuStreamSynchronize>(api(), other);
    std::thread([&] { EXPECT_TRUE(queue_->drain_for(60s)); }).join();
    ASSERT_EQ(api().cuStreamSynchronize(spinning), CUDA_SUCCESS);
  }
}

TEST_F(RetireQueueOnGpu, C02_TwoHundredReleasesFromHostFunctions) {
  struct Round {
    Round(RetireQueue& queue_, const Driver& driver, Mapping mapping_)
        : queue(queue_), uses(driver), mapping(std::move(mapping_)) {}

    RetireQueue& queue;
    StreamUses uses;
    std::optional<Mapping> mapping;
  };
  const CUstream working = stream();
  std::vector<std::unique_ptr<Round>> rounds;
  for (int number = 0; number < 200; ++number) {
    rounds.push_back(std::make_unique<Round>(*queue_, driver_, mapped()));
    Round& round = *rounds.back();
    round.uses.used_on(working);
    call<EntryPoint::cuMemsetD8Async>(api(), round.mapping->address().value, static_cast<unsigned char>(1),
                                      round.mapping->size(), working);
    call<EntryPoint::cuLaunchHostFunc>(
        api(), working,
        [](void* data) {
          auto& self = *static_cast<Round*>(data);
          self.queue.retire(*std::exchange(self.mapping, std::nullopt), self.uses.so_far());
        },
        &round);
    queue_->poll();
  }
  call<EntryPoint::cuStreamSynchronize>(api(), working);
  EXPECT_TRUE(queue_->drain_for(60s));
}

TEST_F(RetireQueueOnGpu, ACaptureStaysValidWhileMemoryIsRetiredAndReleased) {
  const CUstream working = stream(), captured = stream();
  for (const auto mode :
       {CU_STREAM_CAPTURE_MODE_GLOBAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_RELAXED}) {
    Mapping outside = mapped(), inside = mapped();
    StreamUses uses_outside(driver_), uses_inside(driver_);
    call<EntryPoint::cuMemsetD8Async>(api(), outside.address().value, static_cast<unsigned char>(1), outside.size(),
                                      working);
    call<EntryPoint::cuStreamBeginCapture>(api(), captured, mode);
    uses_outside.used_on(working);
    const std::optional<CaptureId> capture = uses_inside.used_on(captured);
    ASSERT_TRUE(capture);
    call<EntryPoint::cuMemsetD8Async>(api(), inside.address().value, static_cast<unsigned char>(1), inside.size(),
                                      captured);
    queue_->retire(std::move(outside), uses_outside.so_far());
    EXPECT_TRUE(queue_->drain_for(60s));
    CUgraph graph = nullptr;
    ASSERT_EQ(api().cuStreamEndCapture(captured, &graph), CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    call<EntryPoint::cuGraphInstantiateWithFlags>(api(), &exec, graph, 0ULL);
    queue_->retire(std::move(inside), uses_inside.so_far());
    call<EntryPoint::cuGraphLaunch>(api(), exec, captured);
    EXPECT_EQ(queue_->poll(), 0u);
    ASSERT_EQ(api().cuStreamSynchronize(captured), CUDA_SUCCESS);
    call<EntryPoint::cuGraphExecDestroy>(api(), exec);
    call<EntryPoint::cuGraphDestroy>(api(), graph);
    queue_->graph_gone(*capture);
    EXPECT_TRUE(queue_->drain_for(60s));
  }
}

TEST_F(RetireQueueOnGpu, TheLegacyStreamIsLeftAloneWhileABlockingStreamIsCaptured) {
  const CUstream blocking = stream(0);
  StreamUses uses(driver_);
  uses.used_on(nullptr);
  call<EntryPoint::cuStreamBeginCapture>(api(), blocking, CU_STREAM_CAPTURE_MODE_GLOBAL);
  PendingWork work = uses.so_far();
  EXPECT_FALSE(work.is_done());
  CUgraph graph = nullptr;
  EXPECT_EQ(api().cuStreamEndCapture(blocking, &graph), CUDA_SUCCESS);
  EXPECT_TRUE(work.wait_for(60s));
}

TEST_F(RetireQueueOnGpu, AnEventStandsForWhatItStoodForThenAndOneOfACaptureForTheCapture) {
  const CUstream working = stream(), other = stream();
  CUevent event = nullptr;
  call<EntryPoint::cuEventCreate>(api(), &event, 0U);
  Mapping mapping = mapped();
  const CUdeviceptr flag = mapping.address().value;
  spin(mapping.address(), working);
  call<EntryPoint::cuEventRecord>(api(), event, working);
  StreamUses uses(driver_);
  EXPECT_EQ(uses.used_until(event), std::nullopt);
  PendingWork work = uses.so_far();
  EXPECT_FALSE(work.is_done());
  release(flag, other);
  EXPECT_TRUE(work.wait_for(60s));

  call<EntryPoint::cuStreamBeginCapture>(api(), working, CU_STREAM_CAPTURE_MODE_GLOBAL);
  call<EntryPoint::cuEventRecord>(api(), event, working);
  StreamUses captured(driver_);
  EXPECT_TRUE(captured.used_until(event));
  CUgraph graph = nullptr;
  EXPECT_EQ(api().cuStreamEndCapture(working, &graph), CUDA_SUCCESS);
}

TEST_F(RetireQueueOnGpu, ACreatedContextMayBeDestroyedAfterADrainOrUnderWork) {
  for (const bool drained : {true, false}) {
    CUcontext created = nullptr;
    call<EntryPoint::cuCtxCreate>(api(), &created, 0U, device_.handle());
    const CUstream working = stream();
    StreamUses uses(driver_);
    uses.used_on(working);
    {
      Mapping mapping = mapped();
      call<EntryPoint::cuMemsetD8Async>(api(), mapping.address().value, static_cast<unsigned char>(1), mapping.size(),
                                        working);
      queue_->retire(std::move(mapping), uses.so_far());
    }
    if (drained) {
      uses.no_longer_used_on(working);
      EXPECT_TRUE(queue_->drain_for(60s));
    }
    call<EntryPoint::cuCtxDestroy>(api(), created);
    EXPECT_TRUE(uses.so_far().is_done());
    EXPECT_TRUE(queue_->drain_for(60s));
  }
}

}  // namespace
}  // namespace cuvmm
