#include "cuvmm/pool/c_api.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cuvmm/context.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/pool/c_tags.h"
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
    ::setenv("CUVMM_EMULATOR", "devices=2", 1);
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

TEST_F(PoolInC, TakesOptionsAndTellsAll) {
  cuvmm_pool_options options{};
  cuvmm_pool_default_options(&options);
  EXPECT_EQ(options.large_from, 32_MiB);
  EXPECT_EQ(options.reuse_wait_microseconds, 1000);
  EXPECT_EQ(options.pressure_wait_milliseconds, 10000);
  const int here = 0;
  cuvmm_pool* pool = nullptr;
  options.devices = &here;
  EXPECT_EQ(cuvmm_pool_create_with(&options, &pool), CUVMM_INVALID_USE) << "how many are they?";
  options.device_count = 1;
  options.budget = 128_MiB;
  options.large_from = 64_MiB;
  ASSERT_EQ(cuvmm_pool_create_with(&options, &pool), 0) << cuvmm_pool_last_error();
  void* address = nullptr;
  EXPECT_EQ(cuvmm_pool_allocate_at(pool, 1000, stream_, 1, &address), CUVMM_INVALID_USE);
  ASSERT_EQ(cuvmm_pool_allocate_at(pool, 1000, stream_, 0, &address), 0);
  cuvmm_pool_allocation found{};
  EXPECT_EQ(cuvmm_pool_describe(pool, static_cast<char*>(address) + 7, &found), 0);
  EXPECT_EQ(found.address, address);
  EXPECT_EQ(found.bytes, 1000u);
  EXPECT_EQ(found.rounded_bytes, 1024u);
  EXPECT_EQ(found.offset, 7u);
  EXPECT_EQ(found.stream, stream_);
  EXPECT_EQ(cuvmm_pool_describe(pool, nullptr, &found), 0);
  EXPECT_EQ(found.bytes, 0u);
  cuvmm_pool_numbers numbers{};
  EXPECT_EQ(cuvmm_pool_statistics_at(pool, 0, &numbers), 0);
  EXPECT_EQ(numbers.allocations, 1u);
  EXPECT_EQ(numbers.driver_calls, 3u) << "create, map, set access";
  EXPECT_EQ(cuvmm_pool_statistics_at(pool, 5, &numbers), CUVMM_INVALID_USE);
  EXPECT_EQ(cuvmm_pool_free(pool, address, stream_), 0);
  cuvmm_pool_destroy(pool);
  options.large_from = 1;
  EXPECT_EQ(cuvmm_pool_create_with(&options, &pool), CUVMM_INVALID_USE);
  options.devices = nullptr;
  EXPECT_EQ(cuvmm_pool_create_with(&options, &pool), CUVMM_INVALID_USE);
  EXPECT_EQ(cuvmm_pool_create_with(nullptr, &pool), CUVMM_INVALID_USE);
}

TEST_F(PoolInC, WritesAsMuchTextAsThereIsRoomFor) {
  cuvmm_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_pool_create(0, 0, &pool), 0);
  size_t needed = 0;
  EXPECT_EQ(cuvmm_pool_statistics_text(pool, nullptr, 0, &needed), 0);
  std::string text(needed, 'x');
  EXPECT_EQ(cuvmm_pool_statistics_text(pool, text.data(), needed, nullptr), 0);
  EXPECT_EQ(text.find('\0'), needed - 1);
  std::string beginning(8, 'x');
  EXPECT_EQ(cuvmm_pool_statistics_text(pool, beginning.data(), 4, nullptr), 0);
  EXPECT_EQ(beginning, text.substr(0, 3) + std::string("\0xxxx", 5));
  EXPECT_EQ(cuvmm_pool_statistics_text(pool, nullptr, 4, nullptr), CUVMM_INVALID_USE);
  cuvmm_pool_destroy(pool);
}

TEST_F(PoolInC, APrivatePoolSharesTheBudget) {
  cuvmm_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_pool_create(0, 4_MiB, &pool), 0);
  cuvmm_pool* own = nullptr;
  ASSERT_EQ(cuvmm_pool_make_private(pool, &own), 0);
  void* address = nullptr;
  ASSERT_EQ(cuvmm_pool_allocate(own, 4_MiB, stream_, &address), 0);
  void* none = nullptr;
  EXPECT_EQ(cuvmm_pool_allocate(pool, 4_MiB, stream_, &none), CUVMM_OUT_OF_DEVICE_MEMORY);
  EXPECT_EQ(cuvmm_pool_free(own, address, stream_), 0);
  size_t given = 0;
  call<EntryPoint::cuStreamSynchronize>(driver_->interface(), stream_);
  cuvmm_pool_destroy(own);
  ASSERT_EQ(cuvmm_pool_allocate(pool, 4_MiB, stream_, &address), 0) << cuvmm_pool_last_error();
  EXPECT_EQ(cuvmm_pool_free(pool, address, stream_), 0);
  call<EntryPoint::cuStreamSynchronize>(driver_->interface(), stream_);
  EXPECT_EQ(cuvmm_pool_trim_some(pool, 0, 1, &given), 0);
  EXPECT_EQ(given, 2_MiB) << "a chunk at a time";
  cuvmm_pool_destroy(pool);
}

TEST_F(PoolInC, ErrorsHaveNames) {
  EXPECT_STREQ(cuvmm_error_name(CUVMM_SUCCESS), "success");
  EXPECT_STREQ(cuvmm_error_name(CUVMM_OUT_OF_DEVICE_MEMORY), "out of device memory");
  EXPECT_STREQ(cuvmm_error_name(CUVMM_DRIVER_UNAVAILABLE), "driver unavailable");
  EXPECT_STREQ(cuvmm_error_name(15), "no error of cuvmm");
  EXPECT_STREQ(cuvmm_error_name(-1), "no error of cuvmm");
}

TEST_F(PoolInC, TagsSleepAndWakeWithinTheirBudgets) {
  cuvmm_pool* pool = nullptr;
  ASSERT_EQ(cuvmm_pool_create(0, 0, &pool), 0);
  cuvmm_tagged* tagged = nullptr;
  ASSERT_EQ(cuvmm_tagged_create(pool, &tagged), 0) << cuvmm_pool_last_error();
  ASSERT_EQ(cuvmm_tagged_set_budget(tagged, "weights", 6_MiB), 0);
  void* address = nullptr;
  ASSERT_EQ(cuvmm_tagged_allocate(tagged, "weights", 5_MiB, stream_, CUVMM_CONTENT_PINNED, &address), 0);
  void* none = nullptr;
  EXPECT_EQ(cuvmm_tagged_allocate(tagged, "weights", 1, stream_, CUVMM_CONTENT_PINNED, &none),
            CUVMM_OUT_OF_DEVICE_MEMORY);
  EXPECT_EQ(cuvmm_tagged_allocate(tagged, "cache", 1, stream_, 4, &none), CUVMM_INVALID_USE);
  EXPECT_EQ(cuvmm_tagged_allocate(tagged, nullptr, 1, stream_, 0, &none), CUVMM_INVALID_USE);
  EXPECT_EQ(cuvmm_tagged_used_on(tagged, address, stream_), 0);
  size_t given = 0;
  EXPECT_EQ(cuvmm_tagged_sleep(tagged, "weights", &given), 0) << cuvmm_pool_last_error();
  EXPECT_EQ(given, 6_MiB);
  int state = -1;
  EXPECT_EQ(cuvmm_tagged_state(tagged, "weights", &state), 0);
  EXPECT_EQ(state, CUVMM_ASLEEP);
  cuvmm_tag_numbers numbers{};
  EXPECT_EQ(cuvmm_tagged_statistics(tagged, "weights", &numbers), 0);
  EXPECT_EQ(numbers.asleep_bytes, 6_MiB);
  EXPECT_EQ(numbers.peak_live_bytes, 5_MiB);
  EXPECT_EQ(numbers.budget, 6_MiB);
  EXPECT_EQ(cuvmm_tagged_wake(tagged, "weights"), 0);
  EXPECT_EQ(cuvmm_tagged_wake(tagged, "none"), CUVMM_INVALID_USE);
  EXPECT_EQ(cuvmm_tagged_free(tagged, address), 0);
  EXPECT_EQ(cuvmm_tagged_free(tagged, address), CUVMM_INVALID_USE);
  cuvmm_pool_destroy(pool);
  cuvmm_tagged_destroy(tagged);
  cuvmm_tagged_destroy(nullptr);
  EXPECT_TRUE(handler_.take().empty());
}

}  // namespace
}  // namespace cuvmm
