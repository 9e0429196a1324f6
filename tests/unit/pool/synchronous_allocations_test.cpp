#include "cuvmm/pool/synchronous_allocations.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

class SynchronousAllocationsTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(handler_.take().empty()); }

  SafeRecordingHandler handler_;
  PoolMachine machine_{pool_machine(1_GiB, 2)};
  CUstream stream_ = machine_.stream();
  Pool pool_ = Pool::create(machine_.driver(), {.devices = {DeviceOrdinal{0}, DeviceOrdinal{1}}});
};

TEST_F(SynchronousAllocationsTest, FreeingWaitsForTheWorkOfEveryStream) {
  auto memory = SynchronousAllocations::create(pool_);
  const DeviceAddress used = memory.allocate(4_MiB);
  std::uint32_t* const held = machine_.hold(stream_);
  machine_.fill(used, 4_MiB, 1, stream_);
  std::atomic<bool> freed = false;
  std::thread freeing([&] {
    memory.free(used);
    freed = true;
    pool_.trim();  // unmapped under the work, where it was not waited for: the strict machine would refuse that
  });
  for (int i = 0; i < 50 && !freed; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_FALSE(freed);
  EXPECT_EQ(pool_.statistics().live_allocations, 1u);
  machine_.let_go(held, stream_);
  freeing.join();
  EXPECT_EQ(pool_.statistics().reserved_bytes, 0u) << "what was freed is everybody's at once";
}

TEST_F(SynchronousAllocationsTest, ServesTheNamedDevice) {
  auto there = SynchronousAllocations::create(pool_, DeviceOrdinal{1});
  const DeviceAddress address = there.allocate(1);
  EXPECT_EQ(pool_.describe(address)->device, DeviceOrdinal{1});
  EXPECT_EQ(there.device(), DeviceOrdinal{1});
  there.free(address);
  EXPECT_THROW((void)SynchronousAllocations::create(pool_, DeviceOrdinal{2}), InvalidUse);
}

TEST_F(SynchronousAllocationsTest, RefusesWhatItDidNotGiveOut) {
  auto memory = SynchronousAllocations::create(pool_);
  const DeviceAddress own = memory.allocate(1024);
  const DeviceAddress of_a_stream = pool_.allocate(1024, stream_);
  EXPECT_THROW(memory.free(of_a_stream), InvalidUse);
  EXPECT_THROW(memory.free(own + 512), InvalidUse);
  memory.free(own);
  EXPECT_THROW(memory.free(own), InvalidUse);
  EXPECT_THROW((void)memory.allocate(0), InvalidUse);
  pool_.free(of_a_stream, stream_);
  SynchronousAllocations moved = std::move(memory);
  EXPECT_THROW((void)memory.allocate(1), InvalidUse);  // NOLINT(bugprone-use-after-move): what is tested
  moved.free(moved.allocate(1));
}

TEST_F(SynchronousAllocationsTest, RefusalsNameTheCallThatTheProgramMade) {
  const auto refused = [](auto&& step) {
    try {
      step();
    } catch (const InvalidUse& error) {
      return error.failure().call;
    }
    return std::string();
  };
  Pool pool = Pool::create(machine_.driver());
  {
    auto memory = SynchronousAllocations::create(pool);
    EXPECT_EQ(refused([&] { (void)memory.allocate(0); }), "SynchronousAllocations::allocate");
    memory.free(memory.allocate(1));
  }
  const Pool moved = std::move(pool);
  // NOLINTBEGIN(bugprone-use-after-move): what is tested
  EXPECT_EQ(refused([&] { (void)SynchronousAllocations::create(pool); }), "SynchronousAllocations::create");
  EXPECT_EQ(refused([&] { (void)SynchronousAllocations::create(pool, DeviceOrdinal{0}); }),
            "SynchronousAllocations::create");
  // NOLINTEND(bugprone-use-after-move)
}

TEST_F(SynchronousAllocationsTest, WhatCannotBeWaitedForLivesOn) {
  auto memory = SynchronousAllocations::create(pool_);
  const DeviceAddress address = memory.allocate(1024);
  machine_.faults().inject({.entry_point = EntryPoint::cuCtxSynchronize});
  EXPECT_THROW(memory.free(address), Error);
  EXPECT_TRUE(pool_.describe(address));
  memory.free(address);
}

TEST_F(SynchronousAllocationsTest, AForkedChildIsRefused) {
  auto memory = SynchronousAllocations::create(pool_);
  const DeviceAddress address = memory.allocate(1024);
  const pid_t child = ::fork();
  if (child == 0) {
    int refused = 0;
    try {
      (void)memory.allocate(1);
    } catch (const InvalidUse& error) {
      if (error.failure().call == "SynchronousAllocations::allocate") ++refused;
    }
    try {
      memory.free(address);
    } catch (const InvalidUse& error) {
      if (error.failure().rule_ids == "NOT-AFTER-FORK") ++refused;
    }
    { const SynchronousAllocations gone = std::move(memory); }
    ::_exit(refused + (handler_.take().empty() ? 0 : 10));
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 2);
  memory.free(address);
}

TEST_F(SynchronousAllocationsTest, WhatIsLiveAtTheEndIsTold) {
  DeviceAddress address;
  {
    auto memory = SynchronousAllocations::create(pool_);
    address = memory.allocate(1024);
  }
  const auto failures = handler_.take();
  ASSERT_EQ(failures.size(), 1u);
  EXPECT_NE(failures.front().rule.find("live"), std::string::npos);
  pool_.free(address, pool_.describe(address)->stream);
}

}  // namespace
}  // namespace cuvmm
