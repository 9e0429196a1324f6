#include <gtest/gtest.h>

#include <memory>

#include "pool_machine.hpp"
// Behind what declares the driver itself, since later versions of CCCL bring the macros of cuda.h along.
#define LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE  // NOLINT(cppcoreguidelines-macro-usage): CCCL 3.0 asks for it
#include "cuvmm/pool/cccl_resource.hpp"

namespace cuvmm {
namespace {

using namespace test;

// CCCL gave its concepts other names after 3.0.
#if CCCL_VERSION < 3001000
static_assert(cuda::mr::resource<PoolResource>);
static_assert(cuda::mr::async_resource<PoolResource>);
static_assert(cuda::mr::resource_with<PoolResource, cuda::mr::device_accessible>);
static_assert(cuda::mr::async_resource_with<PoolResource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::resource_with<PoolResource, cuda::mr::host_accessible>);
#else
static_assert(cuda::mr::synchronous_resource<PoolResource>);
static_assert(cuda::mr::resource<PoolResource>);
static_assert(cuda::mr::resource_with<PoolResource, cuda::mr::device_accessible>);
static_assert(!cuda::mr::synchronous_resource_with<PoolResource, cuda::mr::host_accessible>);
#endif

class PoolResourceTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_TRUE(handler_.take().empty()); }
  std::size_t live() const { return pool_->statistics().live_bytes; }

  SafeRecordingHandler handler_;
  PoolMachine machine_;
  CUstream stream_ = machine_.stream();
  std::shared_ptr<Pool> pool_ = std::make_shared<Pool>(Pool::create(machine_.driver()));
  PoolResource resource_{pool_};
};

TEST_F(PoolResourceTest, GivesThePoolsMemoryInTheOrderOfAStream) {
  void* const first = resource_.allocate_async(5_MiB, 256, stream_);
  EXPECT_EQ(live(), 5_MiB);
  EXPECT_EQ(pool_->describe(DeviceAddress{reinterpret_cast<std::uintptr_t>(first)})->stream, stream_);
  resource_.deallocate_async(first, 5_MiB, 256, stream_);
  EXPECT_EQ(resource_.allocate(cuda::stream_ref(stream_), 5_MiB), first) << "at once, in the stream's order";
  EXPECT_EQ(pool_->statistics().warm, 1u);
  resource_.deallocate(cuda::stream_ref(stream_), first, 5_MiB);
  EXPECT_EQ(live(), 0u);
}

TEST_F(PoolResourceTest, MemoryMayBeFreedOnAnotherStream) {
  const CUstream other = machine_.stream();
  void* const memory = resource_.allocate_async(4_MiB, stream_);
  std::uint32_t* const held = machine_.hold(other);
  machine_.fill(DeviceAddress{reinterpret_cast<std::uintptr_t>(memory)}, 4_MiB, 1, other);
  resource_.deallocate_async(memory, 4_MiB, other);
  EXPECT_EQ(live(), 0u);
  EXPECT_EQ(pool_->trim(), 0u) << "the other stream's work uses it";
  machine_.let_go(held, other);
  void* const again = resource_.allocate_async(4_MiB, stream_);
  EXPECT_EQ(again, memory);
  resource_.deallocate_async(again, 4_MiB, stream_);
}

TEST_F(PoolResourceTest, SynchronousMemoryIsFreedBehindAllWork) {
  void* const memory = resource_.allocate(1_MiB);
  machine_.fill(DeviceAddress{reinterpret_cast<std::uintptr_t>(memory)}, 1_MiB, 1, stream_);
  resource_.deallocate(memory, 1_MiB);
  EXPECT_EQ(pool_->trim(), 2_MiB) << "nobody's work uses it any more";
  EXPECT_THROW(resource_.deallocate_sync(memory, 1_MiB), InvalidUse);
}

TEST_F(PoolResourceTest, SynchronousMemoryIsNotFreedInTheOrderOfAStream) {
  void* const memory = resource_.allocate_sync(1_MiB);
  EXPECT_THROW(resource_.deallocate_async(memory, 1_MiB, stream_), InvalidUse);
  PoolResource copy = resource_;
  EXPECT_THROW(copy.deallocate_async(memory, 1_MiB, 256, stream_), InvalidUse);
  EXPECT_EQ(live(), 1_MiB);
  copy.deallocate_sync(memory, 1_MiB);
  EXPECT_EQ(live(), 0u);
}

TEST_F(PoolResourceTest, NeedsAPool) {
  EXPECT_THROW(PoolResource(std::shared_ptr<Pool>{}), InvalidUse);
  EXPECT_THROW(PoolResource(nullptr, DeviceOrdinal{0}), InvalidUse);
  EXPECT_TRUE(PoolResource(pool_) == resource_);
}

TEST_F(PoolResourceTest, KeepsToItsAlignment) {
  EXPECT_THROW((void)resource_.allocate_async(1, 1024, stream_), InvalidUse);
  EXPECT_THROW((void)resource_.allocate_sync(1, 1024), InvalidUse);
  void* const memory = resource_.allocate_async(1, 512, stream_);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 512, 0u);
  resource_.deallocate_async(memory, 1, 512, stream_);
  EXPECT_EQ(resource_.allocate_sync(0), nullptr);
  resource_.deallocate_sync(nullptr, 0);
  resource_.deallocate_async(resource_.allocate_async(0, stream_), 0, stream_);
}

TEST_F(PoolResourceTest, CopiesAreTheSameResource) {
  PoolResource copy = resource_;
  const PoolResource another(pool_);
  const PoolResource foreign(std::make_shared<Pool>(Pool::create(machine_.driver())));
  EXPECT_TRUE(copy == resource_);
  EXPECT_TRUE(another == resource_);
  EXPECT_FALSE(foreign == resource_);
  copy.deallocate_sync(resource_.allocate_sync(1), 1);
}

TEST_F(PoolResourceTest, ServesBehindAReference) {
#if CCCL_VERSION < 3001000
  cuda::mr::async_resource_ref<cuda::mr::device_accessible> ordered(resource_);
  void* const memory = ordered.allocate_async(1_MiB, 256, stream_);
  EXPECT_EQ(live(), 1_MiB);
  ordered.deallocate_async(memory, 1_MiB, 256, stream_);
  cuda::mr::resource_ref<cuda::mr::device_accessible> synchronous(resource_);
  synchronous.deallocate(synchronous.allocate(1_MiB, 256), 1_MiB, 256);
#else
  cuda::mr::resource_ref<cuda::mr::device_accessible> ordered(resource_);
  void* const memory = ordered.allocate(cuda::stream_ref(stream_), 1_MiB, 256);
  EXPECT_EQ(live(), 1_MiB);
  ordered.deallocate(cuda::stream_ref(stream_), memory, 1_MiB, 256);
  ordered.deallocate_sync(ordered.allocate_sync(1_MiB, 256), 1_MiB, 256);
#endif
  EXPECT_EQ(live(), 0u);
}

}  // namespace
}  // namespace cuvmm
