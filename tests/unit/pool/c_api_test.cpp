#include "cuvmm/pool/c_api.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuvmm/context.hpp"
#include "cuvmm/driver.hpp"
#include "pool/process_driver.hpp"
#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

// The functions open a driver once, for all.
class PoolInC : public testing::Test {
 protected:
  PoolInC() {
    ::setenv("CUVMM_DRIVER", "emulated", 1);
    driver_.emplace(pool::process_driver());
    context_.emplace(driver_->device(DeviceOrdinal{0}));
    call<EntryPoint::cuStreamCreate>(driver_->interface(), &stream_, static_cast<unsigned>(CU_STREAM_NON_BLOCKING));
  }

  SafeRecordingHandler handler_;
  std::optional<Driver> driver_;
  std::optional<CurrentContext> context_;
  CUstream stream_ = nullptr;
};

TEST_F(PoolInC, ServesAndTells) {
  cuvmm_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_pool_create(0, 64_MiB, &pool), 0) << cuvmm_pool_last_error();
  void* address = nullptr;
  ASSERT_EQ(cuvmm_pool_allocate(pool, 5_MiB, stream_, &address), 0) << cuvmm_pool_last_error();
  cuvmm_pool_numbers numbers{};
  EXPECT_EQ(cuvmm_pool_statistics(pool, &numbers), 0);
  EXPECT_EQ(numbers.live_bytes, 5_MiB);
  EXPECT_EQ(numbers.live_allocations, 1u);
  EXPECT_EQ(numbers.reserved_bytes, 6_MiB);
  EXPECT_EQ(cuvmm_pool_used_on(pool, address, stream_), 0);
  EXPECT_EQ(cuvmm_pool_free(pool, address, stream_), 0);
  EXPECT_EQ(cuvmm_pool_free(pool, address, stream_), 1 + static_cast<int>(ErrorKind::invalid_use));
  EXPECT_NE(std::string(cuvmm_pool_last_error()).find("freed before"), std::string::npos) << cuvmm_pool_last_error();
  EXPECT_EQ(cuvmm_pool_allocate(pool, 65_MiB, stream_, &address),
            1 + static_cast<int>(ErrorKind::out_of_device_memory));
  size_t given = 0;
  call<EntryPoint::cuStreamSynchronize>(driver_->interface(), stream_);
  EXPECT_EQ(cuvmm_pool_trim(pool, 0, &given), 0);
  EXPECT_EQ(cuvmm_pool_statistics(pool, &numbers), 0);
  EXPECT_EQ(numbers.reserved_bytes, 0u);
  EXPECT_EQ(cuvmm_pool_forget(pool, stream_), 0);
  cuvmm_pool_destroy(pool);
  cuvmm_pool_destroy(nullptr);
  EXPECT_TRUE(handler_.take().empty());
}

TEST_F(PoolInC, RefusesWhatIsMissing) {
  const int refused = 1 + static_cast<int>(ErrorKind::invalid_use);
  EXPECT_EQ(cuvmm_pool_create(0, 0, nullptr), refused);
  EXPECT_EQ(cuvmm_pool_allocate(nullptr, 1, stream_, nullptr), refused);
  EXPECT_EQ(cuvmm_pool_free(nullptr, nullptr, stream_), refused);
  EXPECT_EQ(cuvmm_pool_statistics(nullptr, nullptr), refused);
  EXPECT_NE(std::string(cuvmm_pool_last_error()).find("null"), std::string::npos);
  cuvmm_pool* pool = nullptr;
  EXPECT_NE(cuvmm_pool_create(99, 0, &pool), 0);
  EXPECT_EQ(pool, nullptr);
}

TEST_F(PoolInC, ServesTheFormThatPyTorchTakes) {
  void* const address = cuvmm_pool_torch_malloc(40 << 20, 0, stream_);
  ASSERT_NE(address, nullptr) << cuvmm_pool_last_error();
  cuvmm_pool_torch_free(address, 40 << 20, 0, stream_);
  EXPECT_EQ(cuvmm_pool_torch_malloc(40 << 20, 0, stream_), address);
  cuvmm_pool_torch_free(address, 40 << 20, 0, stream_);
  EXPECT_EQ(cuvmm_pool_torch_malloc(-1, 0, stream_), nullptr);
  cuvmm_pool_torch_free(nullptr, 0, 0, stream_);
  EXPECT_TRUE(handler_.take().empty());
  cuvmm_pool_torch_free(address, 40 << 20, 0, stream_);
  EXPECT_EQ(handler_.take().size(), 1u) << "freed before";
}

}  // namespace
}  // namespace cuvmm
