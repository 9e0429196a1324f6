#include "cuvmm/pool/torch_api.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "cuvmm/context.hpp"
#include "pool/process_driver.hpp"
#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

// The functions open a driver once, for all, and keep one pool a device.
class PoolForTorch : public testing::Test {
 protected:
  PoolForTorch() {
    ::setenv("CUVMM_DRIVER", "emulated", 1);
    ::setenv("CUVMM_EMULATOR", "devices=2", 1);
    driver_.emplace(pool::process_driver());
    context_.emplace(driver_->device(DeviceOrdinal{0}));
    stream_ = new_stream();
  }
  void TearDown() override { EXPECT_TRUE(handler_.take().empty()); }

  CUstream new_stream() {
    CUstream stream = nullptr;
    call<EntryPoint::cuStreamCreate>(driver_->interface(), &stream, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
    return stream;
  }
  std::string only_failure() {
    const auto failures = handler_.take();
    return failures.size() == 1 ? failures.front().message() : std::to_string(failures.size()) + " failures";
  }
  static cuvmm_pool_numbers numbers() {
    cuvmm_pool_numbers now{};
    EXPECT_EQ(cuvmm_pool_statistics(cuvmm_pool_torch_pool(0), &now), 0) << cuvmm_pool_last_error();
    return now;
  }

  SafeRecordingHandler handler_;
  std::optional<Driver> driver_;
  std::optional<CurrentContext> context_;
  CUstream stream_ = nullptr;
};

TEST_F(PoolForTorch, ServesInTheOrderOfStreams) {
  void* const address = cuvmm_pool_torch_malloc(40 << 20, 0, stream_);
  ASSERT_NE(address, nullptr) << cuvmm_pool_last_error();
  cuvmm_pool_torch_free(address, 40 << 20, 0, stream_);
  EXPECT_EQ(cuvmm_pool_torch_malloc(40 << 20, 0, stream_), address);
  cuvmm_pool_torch_free(address, 40 << 20, 0, stream_);
  EXPECT_EQ(cuvmm_pool_torch_malloc(0, 0, stream_), nullptr) << "an empty tensor is no failure";
  cuvmm_pool_torch_free(nullptr, 0, 0, stream_);
}

TEST_F(PoolForTorch, TellsWhatGoesWrong) {
  EXPECT_EQ(cuvmm_pool_torch_malloc(-1, 0, stream_), nullptr);
  EXPECT_NE(only_failure().find("bytes = -1"), std::string::npos);
  EXPECT_NE(std::string(cuvmm_pool_last_error()).find("bytes = -1"), std::string::npos);
  for (const int device : {-1, 5, 1000}) {
    EXPECT_EQ(cuvmm_pool_torch_malloc(1, device, stream_), nullptr);
    EXPECT_EQ(cuvmm_pool_torch_pool(device), nullptr);
    EXPECT_EQ(handler_.take().size(), 2u);
  }
  EXPECT_EQ(cuvmm_pool_torch_segment_malloc(ptrdiff_t{1} << 50, 0, stream_), nullptr);
  EXPECT_EQ(handler_.take().front().kind, ErrorKind::out_of_device_memory);
  void* const address = cuvmm_pool_torch_malloc(1, 0, stream_);
  cuvmm_pool_torch_segment_free(address, 1, 0, stream_);
  EXPECT_NE(only_failure().find("No allocation of these"), std::string::npos);
  cuvmm_pool_torch_free(address, 1, 0, stream_);
  cuvmm_pool_torch_free(address, 1, 0, stream_);
  EXPECT_NE(only_failure().find("freed before"), std::string::npos);
}

TEST_F(PoolForTorch, ARecordedStreamHoldsBackWhatWasFreed) {
  const CUstream other = new_stream();
  void* const address = cuvmm_pool_torch_malloc(4 << 20, 0, stream_);
  cuvmm_pool_torch_record_stream(address, other);
  const auto before = numbers().pending_bytes;
  cuvmm_pool_torch_free(address, 4 << 20, 0, stream_);
  EXPECT_EQ(numbers().pending_bytes, before + (4U << 20));
  cuvmm_pool_torch_record_stream(this, other);
  EXPECT_NE(only_failure().find("No pool has given"), std::string::npos);
  cuvmm_pool_torch_record_stream(nullptr, other);
}

TEST_F(PoolForTorch, EmptyingTheCacheGivesAllThatIsFreeBack) {
  cuvmm_pool_torch_free(cuvmm_pool_torch_malloc(40 << 20, 0, stream_), 40 << 20, 0, stream_);
  EXPECT_GE(numbers().reserved_bytes, 40_MiB);
  call<EntryPoint::cuStreamSynchronize>(driver_->interface(), stream_);
  cuvmm_pool_torch_empty_cache();
  EXPECT_EQ(numbers().reserved_bytes, 0u);
}

TEST_F(PoolForTorch, ACapturedStreamIsServedWithSegmentsAlone) {
  call<EntryPoint::cuStreamBeginCapture>(driver_->interface(), stream_, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EXPECT_EQ(cuvmm_pool_torch_malloc(1 << 20, 0, stream_), nullptr);
  EXPECT_NE(only_failure().find("is being captured"), std::string::npos);
  void* const segment = cuvmm_pool_torch_segment_malloc(1 << 20, 0, stream_);
  EXPECT_NE(segment, nullptr) << cuvmm_pool_last_error();
  CUgraph graph = nullptr;
  call<EntryPoint::cuStreamEndCapture>(driver_->interface(), stream_, &graph);
  EXPECT_NE(graph, nullptr) << "the capture is not disturbed";
  call<EntryPoint::cuGraphDestroy>(driver_->interface(), graph);
  cuvmm_pool_torch_segment_free(segment, 1 << 20, 0, stream_);
  void* const address = cuvmm_pool_torch_malloc(1 << 20, 0, stream_);
  EXPECT_NE(address, nullptr);
  cuvmm_pool_torch_free(address, 1 << 20, 0, stream_);
}

TEST_F(PoolForTorch, ThePoolOfADeviceIsConfiguredBeforeItIsAskedFor) {
  const int there = 1;
  const int here = 0;
  cuvmm_pool_options options{};
  cuvmm_pool_default_options(&options);
  options.devices = &there;
  options.device_count = 1;
  options.grants = &here;
  options.grant_count = 1;
  options.budget = 4_MiB;
  ASSERT_EQ(cuvmm_pool_torch_configure(&options), 0) << cuvmm_pool_last_error();
  EXPECT_EQ(cuvmm_pool_torch_configure(&options), CUVMM_INVALID_USE) << "there is one";
  EXPECT_EQ(cuvmm_pool_torch_malloc(5 << 20, 1, stream_), nullptr);
  EXPECT_EQ(handler_.take().front().kind, ErrorKind::out_of_device_memory);
  void* const address = cuvmm_pool_torch_malloc(1 << 20, 1, stream_);
  // The stream is of device 0, which reaches the memory.
  call<EntryPoint::cuMemsetD32Async>(driver_->interface(), reinterpret_cast<CUdeviceptr>(address), 1U, std::size_t{8},
                                     stream_);
  call<EntryPoint::cuStreamSynchronize>(driver_->interface(), stream_);
  cuvmm_pool_torch_free(address, 1 << 20, 1, stream_);
  EXPECT_EQ(cuvmm_pool_torch_configure(nullptr), CUVMM_INVALID_USE);
}

TEST_F(PoolForTorch, TheProcesssPoolIsNotDestroyed) {
  cuvmm_pool_destroy(cuvmm_pool_torch_pool(0));
  void* const address = cuvmm_pool_torch_malloc(1, 0, stream_);
  EXPECT_NE(address, nullptr);
  cuvmm_pool_torch_free(address, 1, 0, stream_);
}

// What the child answers with its exit code; the driver of the parent is none of its own.
TEST_F(PoolForTorch, AForkedChildIsRefusedInWords) {
  cuvmm_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_pool_create(0, 0, &pool), 0);
  void* const address = cuvmm_pool_torch_malloc(1 << 20, 0, stream_);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto in_words = [] {
      return std::string(cuvmm_pool_last_error()).find("in a forked child") != std::string::npos;
    };
    int wrong = 0;
    if (cuvmm_pool_torch_malloc(1 << 20, 0, stream_) != nullptr || !in_words()) wrong |= 1;
    cuvmm_pool_torch_free(address, 1 << 20, 0, stream_);
    if (handler_.take().size() != 2) wrong |= 2;
    void* none = nullptr;
    if (cuvmm_pool_allocate(pool, 1, stream_, &none) != CUVMM_INVALID_USE || !in_words()) wrong |= 4;
    if (cuvmm_pool_create(0, 0, &pool) != CUVMM_INVALID_USE || !in_words()) wrong |= 8;
    cuvmm_pool_destroy(pool);
    ::_exit(wrong);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  cuvmm_pool_torch_free(address, 1 << 20, 0, stream_);
  cuvmm_pool_destroy(pool);
}

}  // namespace
}  // namespace cuvmm
