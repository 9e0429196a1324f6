#include "driver/lying_driver.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "cuvmm/error.hpp"
#include "fake_driver.hpp"

namespace cuvmm::driver {
namespace {

using test::FakeDriver;

CUdeviceptr address_of(const void* bytes) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(bytes));
}
void* pointer_to(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

using Bytes = std::array<unsigned char, 8>;
constexpr Bytes original{1, 2, 3, 4, 5, 6, 7, 8};

int differing_bytes(const Bytes& a, const Bytes& b) {
  int count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += a[i] != b[i];
  return count;
}

// A driver whose device memory is host memory.
std::shared_ptr<FakeDriver> copying_driver() {
  auto fake = std::make_shared<FakeDriver>();
  const auto copy = [](CUdeviceptr destination, CUdeviceptr source, size_t bytes) {
    std::memcpy(pointer_to(destination), pointer_to(source), bytes);
    return CUDA_SUCCESS;
  };
  fake->on_cuMemcpy = copy;
  fake->on_cuMemcpyDtoD = copy;
  fake->on_cuMemcpyDtoH = [=](void* destination, CUdeviceptr source, size_t bytes) {
    return copy(address_of(destination), source, bytes);
  };
  fake->on_cuMemcpyDtoHAsync = [=](void* destination, CUdeviceptr source, size_t bytes, CUstream) {
    return copy(address_of(destination), source, bytes);
  };
  fake->on_cuMemcpyPeer = [=](CUdeviceptr destination, CUcontext, CUdeviceptr source, CUcontext, size_t bytes) {
    return copy(destination, source, bytes);
  };
  return fake;
}

TEST(LyingDriver, TellsTheTruthWithoutLies) {
  const auto fake = copying_driver();
  LyingDriver driver(fake, {});
  Bytes copy{};
  EXPECT_EQ(driver.cuMemcpyDtoH(copy.data(), address_of(&original), copy.size()), CUDA_SUCCESS);
  EXPECT_EQ(copy, original);
  driver.cuMemRelease(1);
  EXPECT_EQ(fake->count(EntryPoint::cuMemRelease), 1u);
}

TEST(LyingDriver, FlipsOneByteOfEachCopyOutOfDeviceMemory) {
  LyingDriver driver(copying_driver(), Lies{.flip_copied_byte = true});
  Bytes copy{};
  driver.cuMemcpyDtoH(copy.data(), address_of(&original), copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyDtoHAsync(copy.data(), address_of(&original), copy.size(), nullptr);
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyDtoD(address_of(&copy), address_of(&original), copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpy(address_of(&copy), address_of(&original), copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyPeer(address_of(&copy), nullptr, address_of(&original), nullptr, copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
}

TEST(LyingDriver, MayFlipTheNthCopyAlone) {
  LyingDriver driver(copying_driver(), Lies{.flip_copied_byte = true, .only_copy = 2});
  Bytes copy{};
  for (const int expected : {0, 1, 0}) {
    driver.cuMemcpyDtoH(copy.data(), address_of(&original), copy.size());
    EXPECT_EQ(differing_bytes(copy, original), expected);
  }
}

TEST(LyingDriver, LeavesFailedAndEmptyCopiesAlone) {
  const auto fake = copying_driver();
  LyingDriver driver(fake, Lies{.flip_copied_byte = true});
  Bytes copy = original;
  EXPECT_EQ(driver.cuMemcpyDtoH(copy.data(), address_of(&original), 0), CUDA_SUCCESS);
  fake->answer(EntryPoint::cuMemcpyDtoH, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(driver.cuMemcpyDtoH(copy.data(), address_of(&original), copy.size()), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(copy, original);
}

TEST(LyingDriver, DoesNotDisturbACapture) {
  const auto fake = copying_driver();
  fake->on_cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    return CUDA_SUCCESS;
  };
  LyingDriver driver(fake, Lies{.flip_copied_byte = true});
  Bytes copy{};
  driver.cuMemcpyDtoHAsync(copy.data(), address_of(&original), copy.size(), nullptr);
  EXPECT_EQ(copy, original);
  EXPECT_EQ(fake->count(EntryPoint::cuStreamSynchronize), 0u);
}

TEST(LyingDriver, KeepsReleasedMemory) {
  const auto fake = std::make_shared<FakeDriver>();
  LyingDriver driver(fake, Lies{.keep_released_memory = true});
  EXPECT_EQ(driver.cuMemRelease(1), CUDA_SUCCESS);
  EXPECT_EQ(fake->count(EntryPoint::cuMemRelease), 0u);
}

// Keeps what the last grant for an address said, as a driver would.
class LyingDriverGrants : public testing::Test {
 protected:
  void SetUp() override {
    fake_->on_cuMemSetAccess = [this](CUdeviceptr, size_t, const CUmemAccessDesc* descriptors, size_t count) {
      passed_on_.assign(descriptors, descriptors + count);
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemGetAccess = [this](unsigned long long* flags, const CUmemLocation*, CUdeviceptr) {
      *flags = static_cast<unsigned long long>(passed_on_.at(0).flags);
      return CUDA_SUCCESS;
    };
  }

  static CUmemAccessDesc grant(int device, CUmemAccess_flags flags) {
    return {{CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  }
  static unsigned long long access(Interface& driver, CUdeviceptr pointer, int device) {
    const CUmemLocation location{CU_MEM_LOCATION_TYPE_DEVICE, device};
    unsigned long long flags = 99;
    EXPECT_EQ(driver.cuMemGetAccess(&flags, &location, pointer), CUDA_SUCCESS);
    return flags;
  }

  std::vector<CUmemAccessDesc> passed_on_;
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
};

TEST_F(LyingDriverGrants, IgnoresReadOnlyAndHidesIt) {
  LyingDriver driver(fake_, Lies{.ignore_read_only = true});
  const auto read = grant(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(driver.cuMemSetAccess(0x1000, 0x1000, &read, 1), CUDA_SUCCESS);
  EXPECT_EQ(passed_on_.at(0).flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(access(driver, 0x1800, 0), 1u);
  EXPECT_EQ(access(driver, 0x1800, 1), 3u) << "another device's rights";
  EXPECT_EQ(access(driver, 0x2000, 0), 3u) << "another address";

  const auto both = grant(0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  driver.cuMemSetAccess(0x1000, 0x1000, &both, 1);
  EXPECT_EQ(access(driver, 0x1800, 0), 3u);

  driver.cuMemSetAccess(0x1000, 0x1000, &read, 1);
  driver.cuMemUnmap(0x1000, 0x1000);
  EXPECT_EQ(access(driver, 0x1800, 0), 3u) << "an unmapped range is forgotten";
}

TEST_F(LyingDriverGrants, IgnoresTheSecondGrantOfAnAddressUntilItIsUnmapped) {
  LyingDriver driver(fake_, Lies{.ignore_second_grant = true});
  const auto read = grant(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  const auto none = grant(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(driver.cuMemSetAccess(0x1000, 0x1000, &read, 1), CUDA_SUCCESS);
  EXPECT_EQ(driver.cuMemSetAccess(0x1000, 0x1000, &none, 1), CUDA_SUCCESS);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 1u);
  EXPECT_EQ(driver.cuMemSetAccess(0x2000, 0x1000, &none, 1), CUDA_SUCCESS);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 2u) << "another address";
  driver.cuMemUnmap(0x1000, 0x1000);
  driver.cuMemSetAccess(0x1000, 0x1000, &none, 1);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 3u);
}

TEST_F(LyingDriverGrants, IgnoresTheSecondDescriptorOfAList) {
  LyingDriver driver(fake_, Lies{.ignore_second_grant = true});
  const std::array two{grant(0, CU_MEM_ACCESS_FLAGS_PROT_READ), grant(1, CU_MEM_ACCESS_FLAGS_PROT_READ)};
  EXPECT_EQ(driver.cuMemSetAccess(0x1000, 0x1000, two.data(), two.size()), CUDA_SUCCESS);
  ASSERT_EQ(passed_on_.size(), 1u);
  EXPECT_EQ(passed_on_[0].location.id, 0);
}

TEST(ParseLies, ReadsNames) {
  EXPECT_EQ(parse_lies(""), Lies{});
  EXPECT_EQ(parse_lies("flip_copied_byte:3,ignore_second_grant"),
            (Lies{.flip_copied_byte = true, .only_copy = 3, .ignore_second_grant = true}));
  EXPECT_EQ(parse_lies("ignore_read_only,keep_released_memory,flip_copied_byte"),
            (Lies{.flip_copied_byte = true, .ignore_read_only = true, .keep_released_memory = true}));
}

TEST(ParseLies, RefusesOtherNames) {
  for (const char* text : {"flip", "flip_copied_byte:", "flip_copied_byte:0", "flip_copied_byte:x", ",",
                           "ignore_read_only,", "keep_released_memory:2"})
    EXPECT_THROW(static_cast<void>(parse_lies(text)), InvalidUse) << text;
}

}  // namespace
}  // namespace cuvmm::driver
