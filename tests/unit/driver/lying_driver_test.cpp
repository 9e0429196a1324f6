#include "driver/lying_driver.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuvmm/cuvmm.hpp"
#include "emulator/configuration.hpp"
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
  fake->on_cuMemcpyAsync = [=](CUdeviceptr destination, CUdeviceptr source, size_t bytes, CUstream) {
    return copy(destination, source, bytes);
  };
  fake->on_cuMemcpyDtoDAsync = fake->on_cuMemcpyAsync;
  fake->on_cuMemcpyPeerAsync = [=](CUdeviceptr destination, CUcontext, CUdeviceptr source, CUcontext, size_t bytes,
                                   CUstream) { return copy(destination, source, bytes); };
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
  EXPECT_EQ(copy, original) << "in a stream";
  driver.cuMemcpyDtoD(address_of(&copy), address_of(&original), copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpy(address_of(&copy), address_of(&original), copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyPeer(address_of(&copy), nullptr, address_of(&original), nullptr, copy.size());
  EXPECT_EQ(differing_bytes(copy, original), 1);
}

TEST(LyingDriver, FlipsOneByteOfEachCopyInAStream) {
  const auto fake = copying_driver();
  LyingDriver driver(fake, Lies{.flip_streamed_byte = true});
  Bytes copy{};
  driver.cuMemcpyDtoH(copy.data(), address_of(&original), copy.size());
  EXPECT_EQ(copy, original) << "without a stream";
  driver.cuMemcpyDtoHAsync(copy.data(), address_of(&original), copy.size(), nullptr);
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyDtoDAsync(address_of(&copy), address_of(&original), copy.size(), nullptr);
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyAsync(address_of(&copy), address_of(&original), copy.size(), nullptr);
  EXPECT_EQ(differing_bytes(copy, original), 1);
  driver.cuMemcpyPeerAsync(address_of(&copy), nullptr, address_of(&original), nullptr, copy.size(), nullptr);
  EXPECT_EQ(differing_bytes(copy, original), 1);
  EXPECT_EQ(fake->count(EntryPoint::cuStreamSynchronize), 4u) << "each is waited for";
  copy = original;
  driver.cuMemcpyDtoHAsync(copy.data(), address_of(&original), 0, nullptr);
  EXPECT_EQ(copy, original) << "an empty one";
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
  LyingDriver driver(fake, Lies{.flip_streamed_byte = true});
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

TEST_F(LyingDriverGrants, LeavesTheHostsGrantsAloneWhereItIgnoresTheSecond) {
  LyingDriver driver(fake_, Lies{.ignore_second_grant = true});
  const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const std::array all{host, grant(0, CU_MEM_ACCESS_FLAGS_PROT_READ), grant(1, CU_MEM_ACCESS_FLAGS_PROT_READ)};
  driver.cuMemSetAccess(0x1000, 0x1000, all.data(), all.size());
  ASSERT_EQ(passed_on_.size(), 2u);
  EXPECT_EQ(passed_on_[0].location.type, CU_MEM_LOCATION_TYPE_HOST);
  EXPECT_EQ(passed_on_[1].location.id, 0);
  driver.cuMemSetAccess(0x1000, 0x1000, all.data(), all.size());
  ASSERT_EQ(passed_on_.size(), 1u);
  EXPECT_EQ(passed_on_[0].location.type, CU_MEM_LOCATION_TYPE_HOST);
}

TEST_F(LyingDriverGrants, TakesTheRightsOutOfTheHostsGrantsAlone) {
  LyingDriver driver(fake_, Lies{.ignore_host_grant = true});
  const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  const std::array both{host, grant(0, CU_MEM_ACCESS_FLAGS_PROT_READ)};
  driver.cuMemSetAccess(0x1000, 0x1000, both.data(), both.size());
  ASSERT_EQ(passed_on_.size(), 2u);
  EXPECT_EQ(passed_on_[0].flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(passed_on_[1].flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
}

TEST_F(LyingDriverGrants, RefusesTheHostsGrantsThatItIgnoresWhereTheDriverDoes) {
  LyingDriver driver(fake_, Lies{.ignore_host_grant = true});
  const CUmemAccessDesc host{{CU_MEM_LOCATION_TYPE_HOST, 0}, CU_MEM_ACCESS_FLAGS_PROT_READ};
  fake_->on_cuMemSetAccess = [](CUdeviceptr, size_t, const CUmemAccessDesc* descriptors, size_t) {
    return descriptors->flags == CU_MEM_ACCESS_FLAGS_PROT_NONE ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
  };
  EXPECT_EQ(driver.cuMemSetAccess(0x1000, 0x1000, &host, 1), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 1u);
  const auto device = grant(0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EXPECT_EQ(driver.cuMemSetAccess(0x1000, 0x1000, &device, 1), CUDA_SUCCESS);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemSetAccess), 2u) << "the host is not in that list";
}

TEST_F(LyingDriverGrants, TellsMemoryWithOneAddressFromMemoryWithSeveral) {
  LyingDriver one(fake_, Lies{.ignore_read_only = true});
  LyingDriver several(fake_, Lies{.ignore_read_only_alias = true});
  const auto read = grant(0, CU_MEM_ACCESS_FLAGS_PROT_READ);
  const auto passed_on_by = [&](LyingDriver& driver, CUdeviceptr pointer) {
    driver.cuMemSetAccess(pointer, 0x1000, &read, 1);
    return passed_on_.at(0).flags;
  };
  for (LyingDriver* driver : {&one, &several}) driver->cuMemMap(0x1000, 0x1000, 0, 7, 0);
  EXPECT_EQ(passed_on_by(one, 0x1000), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(passed_on_by(several, 0x1000), CU_MEM_ACCESS_FLAGS_PROT_READ);
  for (LyingDriver* driver : {&one, &several}) driver->cuMemMap(0x3000, 0x1000, 0, 7, 0);
  EXPECT_EQ(passed_on_by(one, 0x3000), CU_MEM_ACCESS_FLAGS_PROT_READ);
  EXPECT_EQ(passed_on_by(several, 0x3000), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(access(several, 0x3000, 0), 1u);
  for (LyingDriver* driver : {&one, &several}) driver->cuMemUnmap(0x1000, 0x1000);
  EXPECT_EQ(passed_on_by(one, 0x3000), CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(passed_on_by(several, 0x3000), CU_MEM_ACCESS_FLAGS_PROT_READ);
}

// Keeps which handle lies where, and answers as a driver would as far as these lies ask.
class LyingDriverMappings : public testing::Test {
 protected:
  static constexpr CUdeviceptr base = 0x10000;
  static constexpr size_t chunk = 0x1000;
  static constexpr CUmemGenericAllocationHandle a = 1, b = 2, created = 99;

  void SetUp() override {
    fake_->on_cuMemAddressReserve = [](CUdeviceptr* pointer, size_t, size_t, CUdeviceptr hint, unsigned long long) {
      *pointer = hint;
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemMap = [this](CUdeviceptr pointer, size_t, size_t, CUmemGenericAllocationHandle handle,
                                unsigned long long) {
      mapped_[pointer] = handle;
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemUnmap = [this](CUdeviceptr pointer, size_t size) {
      mapped_.erase(mapped_.lower_bound(pointer), mapped_.lower_bound(pointer + size));
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemRetainAllocationHandle = [this](CUmemGenericAllocationHandle* handle, void* pointer) {
      const auto found = mapped_.find(address_of(pointer) / chunk * chunk);
      if (found == mapped_.end()) return CUDA_ERROR_INVALID_VALUE;
      *handle = found->second;
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                               unsigned long long) {
      *handle = created;
      return CUDA_SUCCESS;
    };
  }

  void reserve(LyingDriver& driver, CUdeviceptr at = base) {
    CUdeviceptr pointer = 0;
    driver.cuMemAddressReserve(&pointer, 4 * chunk, 0, at, 0);
  }
  void map(LyingDriver& driver, int index, CUmemGenericAllocationHandle handle) {
    EXPECT_EQ(driver.cuMemMap(at(index), chunk, 0, handle, 0), CUDA_SUCCESS);
  }
  static CUdeviceptr at(int index) { return base + static_cast<CUdeviceptr>(index) * chunk; }

  std::map<CUdeviceptr, CUmemGenericAllocationHandle> mapped_;
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
};

TEST_F(LyingDriverMappings, RepeatsTheChunkBeforeWithinOneReservation) {
  LyingDriver driver(fake_, Lies{.repeat_chunk = true});
  reserve(driver);
  map(driver, 0, a);
  map(driver, 1, b);
  EXPECT_EQ(mapped_[at(1)], a);
  map(driver, 3, b);
  EXPECT_EQ(mapped_[at(3)], b) << "nothing lies before it";
  reserve(driver, at(4));
  map(driver, 4, a);
  EXPECT_EQ(mapped_[at(4)], a) << "what lies before it is of another reservation";
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "the reference that was taken for it";
}

TEST_F(LyingDriverMappings, KeepsWhatWasReplacedAsLongAsItsHandleLives) {
  LyingDriver driver(fake_, Lies{.keep_replaced_memory = true});
  reserve(driver);
  map(driver, 0, a);
  driver.cuMemUnmap(at(0), chunk);
  map(driver, 0, b);
  EXPECT_EQ(mapped_[at(0)], a);
  driver.cuMemUnmap(at(0), chunk);
  driver.cuMemRelease(a);
  map(driver, 0, b);
  EXPECT_EQ(mapped_[at(0)], b) << "a handle that was released must not be used";

  driver.cuMemRelease(b);
  driver.cuMemUnmap(at(0), chunk);
  map(driver, 0, a);
  EXPECT_EQ(mapped_[at(0)], a) << "nor one that was released while it was mapped";
  driver.cuMemUnmap(at(0), chunk);
  driver.cuMemAddressFree(base, 4 * chunk);
  map(driver, 0, b);
  EXPECT_EQ(mapped_[at(0)], b) << "the addresses are new ones";
}

TEST_F(LyingDriverMappings, KeepsMemoryThatSleepsUntilItsAddressesAreFreed) {
  LyingDriver driver(fake_, Lies{.keep_sleeping_memory = true});
  reserve(driver);
  map(driver, 0, a);
  driver.cuMemRelease(a);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "it is mapped";
  map(driver, 1, b);
  driver.cuMemUnmap(at(0), 2 * chunk);
  EXPECT_EQ(driver.cuMemRelease(b), CUDA_SUCCESS);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u);
  driver.cuMemAddressFree(base, 4 * chunk);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 2u);
  driver.cuMemAddressFree(base, 4 * chunk);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 2u) << "once";
}

TEST_F(LyingDriverMappings, KeepsReleasedMemoryThatDoesNotSleep) {
  LyingDriver driver(fake_, Lies{.keep_released_memory = true});
  reserve(driver);
  map(driver, 0, a);
  map(driver, 1, b);
  driver.cuMemRelease(a);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 0u) << "it is mapped";
  driver.cuMemUnmap(at(0), 2 * chunk);
  driver.cuMemRelease(b);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "its addresses are still reserved";
}

TEST_F(LyingDriverMappings, ShowsNewMemoryInPlaceOfAnAlias) {
  LyingDriver driver(fake_, Lies{.separate_aliases = true});
  reserve(driver);
  reserve(driver, at(4));
  map(driver, 0, a);
  EXPECT_EQ(mapped_[at(0)], a);
  map(driver, 2, a);
  EXPECT_EQ(mapped_[at(2)], a) << "in the same reservation";
  map(driver, 5, a);
  EXPECT_EQ(mapped_[at(5)], created);
  driver.cuMemUnmap(at(0), 6 * chunk);
  map(driver, 6, a);
  EXPECT_EQ(mapped_[at(6)], a) << "it lies nowhere else";
}

TEST_F(LyingDriverMappings, ShowsNewMemoryWhereItMovesToALargerReservation) {
  LyingDriver driver(fake_, Lies{.separate_moved_memory = true});
  reserve(driver);
  reserve(driver, at(4));
  CUdeviceptr pointer = 0;
  driver.cuMemAddressReserve(&pointer, 5 * chunk, 0, at(8), 0);
  map(driver, 0, a);
  map(driver, 1, a);
  map(driver, 4, a);
  EXPECT_EQ(mapped_[at(1)], a) << "in the same reservation";
  EXPECT_EQ(mapped_[at(4)], a) << "in one of the same size";
  map(driver, 9, a);
  EXPECT_EQ(mapped_[at(9)], created);
  map(driver, 10, b);
  map(driver, 5, b);
  EXPECT_EQ(mapped_[at(5)], b) << "in a smaller one";
}

TEST_F(LyingDriverMappings, ShowsNewMemoryInPlaceOfTheSecondHalfOfARing) {
  LyingDriver driver(fake_, Lies{.separate_ring = true});
  reserve(driver);
  reserve(driver, at(4));
  map(driver, 0, a);
  map(driver, 5, a);
  EXPECT_EQ(mapped_[at(5)], a) << "in another reservation";
  map(driver, 1, a);
  EXPECT_EQ(mapped_[at(1)], created);
}

TEST_F(LyingDriverMappings, RepeatsNoChunkThatIsAnAlias) {
  LyingDriver driver(fake_, Lies{.repeat_chunk = true});
  reserve(driver);
  reserve(driver, at(4));
  map(driver, 0, a);
  map(driver, 4, a);
  map(driver, 1, b);
  EXPECT_EQ(mapped_[at(1)], b);
}

TEST(LyingDriver, GathersWhatLiesInSeveralPlaces) {
  emulator::Configuration configuration;
  configuration.devices = 2;
  const auto shown = [&](const Lies& lies) {
    const auto made =
        Driver::wrap(std::make_shared<LyingDriver>(Driver::emulated(configuration).shared_interface(), lies));
    auto range = MappedRange::create(made, {.capacity = std::size_t{8} << 20});
    std::vector<int> places;
    for (const int device : {0, 1, 1}) {
      const std::size_t at = range.append(std::size_t{2} << 20, Location::device(DeviceOrdinal(device)));
      places.push_back(PhysicalMemory::retain(made, range.address() + at).properties().location.id);
    }
    return places;
  };
  EXPECT_EQ(shown({}), (std::vector<int>{0, 1, 1}));
  EXPECT_EQ(shown({.gather_places = true}), (std::vector<int>{0, 0, 0}));
}

TEST_F(LyingDriverMappings, MapsAsAskedWithoutLies) {
  LyingDriver driver(fake_, {});
  reserve(driver);
  map(driver, 0, a);
  map(driver, 1, b);
  map(driver, 2, a);
  driver.cuMemUnmap(at(1), chunk);
  map(driver, 1, a);
  EXPECT_EQ(mapped_, (std::map<CUdeviceptr, CUmemGenericAllocationHandle>{{at(0), a}, {at(1), a}, {at(2), a}}));
}

TEST(LyingDriver, ReportsEventsDoneThatAreNot) {
  const auto fake = std::make_shared<FakeDriver>();
  LyingDriver driver(fake, Lies{.report_events_done = true});
  fake->answer(EntryPoint::cuEventQuery, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(driver.cuEventQuery(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(LyingDriver(fake, {}).cuEventQuery(nullptr), CUDA_ERROR_NOT_READY);
  fake->answer(EntryPoint::cuEventQuery, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(driver.cuEventQuery(nullptr), CUDA_ERROR_ILLEGAL_ADDRESS);
}

TEST(LyingDriver, ClaimsCompression) {
  const auto fake = std::make_shared<FakeDriver>();
  CUmemAllocationProp properties{};
  LyingDriver(fake, {}).cuMemGetAllocationPropertiesFromHandle(&properties, 1);
  EXPECT_EQ(properties.allocFlags.compressionType, CU_MEM_ALLOCATION_COMP_NONE);
  LyingDriver(fake, Lies{.claim_compression = true}).cuMemGetAllocationPropertiesFromHandle(&properties, 1);
  EXPECT_EQ(properties.allocFlags.compressionType, CU_MEM_ALLOCATION_COMP_GENERIC);
}

// Answers exports with descriptors and imports with handles that count up.
class LyingDriverSharing : public testing::Test {
 protected:
  void SetUp() override {
    fake_->on_cuMemCreate = [this](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp* properties,
                                   unsigned long long) {
      *handle = ++last_;
      created_with_ = properties->requestedHandleTypes;
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemExportToShareableHandle = [this](void* shareable, CUmemGenericAllocationHandle handle,
                                                    CUmemAllocationHandleType type, unsigned long long) {
      exported_ = handle;
      if (type == CU_MEM_HANDLE_TYPE_FABRIC) static_cast<CUmemFabricHandle*>(shareable)->data[0] = 0;
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemImportFromShareableHandle = [this](CUmemGenericAllocationHandle* handle, void* from,
                                                      CUmemAllocationHandleType) {
      *handle = ++last_;
      imported_from_ = file_of(static_cast<int>(reinterpret_cast<std::intptr_t>(from)));
      return CUDA_SUCCESS;
    };
  }

  CUmemGenericAllocationHandle create(LyingDriver& driver, int types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) {
    CUmemAllocationProp properties{};
    properties.requestedHandleTypes = static_cast<CUmemAllocationHandleType>(types);
    CUmemGenericAllocationHandle handle = 0;
    EXPECT_EQ(driver.cuMemCreate(&handle, 4096, &properties, 0), CUDA_SUCCESS);
    return handle;
  }
  CUmemGenericAllocationHandle exported_by(LyingDriver& driver, CUmemGenericAllocationHandle handle) {
    int descriptor = -1;
    driver.cuMemExportToShareableHandle(&descriptor, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    return exported_;
  }
  CUmemGenericAllocationHandle import(LyingDriver& driver, int descriptor) {
    CUmemGenericAllocationHandle handle = 0;
    driver.cuMemImportFromShareableHandle(&handle, reinterpret_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                          CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    return handle;
  }
  static ino_t file_of(int descriptor) {
    struct stat facts {};
    return ::fstat(descriptor, &facts) == 0 ? facts.st_ino : 0;
  }

  CUmemGenericAllocationHandle last_ = 0;
  CUmemGenericAllocationHandle exported_ = 0;
  CUmemAllocationHandleType created_with_{};
  ino_t imported_from_ = 0;
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
};

TEST_F(LyingDriverSharing, ExportsNewMemoryTheSecondTime) {
  LyingDriver driver(fake_, Lies{.renew_second_export = true});
  const auto handle = create(driver);
  EXPECT_EQ(exported_by(driver, handle), handle);
  EXPECT_NE(exported_by(driver, handle), handle);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "of the new memory";
  const auto other = create(driver);
  EXPECT_EQ(exported_by(driver, other), other) << "the first time";
  LyingDriver honest(fake_, {});
  const auto third = create(honest);
  EXPECT_EQ(exported_by(honest, third), third);
  EXPECT_EQ(exported_by(honest, third), third);
}

TEST_F(LyingDriverSharing, RepeatsAnImportWhileTheFirstIsHeld) {
  const UniqueDescriptor one(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const UniqueDescriptor other(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  LyingDriver driver(fake_, Lies{.repeat_import = true});
  const auto first = import(driver, one.get());
  EXPECT_EQ(imported_from_, file_of(one.get()));
  import(driver, other.get());
  EXPECT_EQ(imported_from_, file_of(one.get()));
  LyingDriver honest(fake_, {});
  import(honest, one.get());
  import(honest, other.get());
  EXPECT_EQ(imported_from_, file_of(other.get()));
  LyingDriver afterwards(fake_, Lies{.repeat_import = true});
  afterwards.cuMemRelease(import(afterwards, one.get()));
  import(afterwards, other.get());
  EXPECT_EQ(imported_from_, file_of(other.get())) << "the first is released";
  driver.cuMemRelease(first);
}

TEST_F(LyingDriverSharing, KeepsImportedMemoryWhereNothingWasExported) {
  const UniqueDescriptor one(::open("/dev/null", O_RDWR | O_CLOEXEC));
  LyingDriver driver(fake_, Lies{.keep_imported_memory = true});
  const auto handle = import(driver, one.get());
  EXPECT_EQ(driver.cuMemRelease(handle), CUDA_SUCCESS);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 0u);
  const auto created = create(driver);
  driver.cuMemRelease(created);
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 1u) << "memory of its own";
  exported_by(driver, create(driver));
  driver.cuMemRelease(import(driver, one.get()));
  EXPECT_EQ(fake_->count(EntryPoint::cuMemRelease), 2u) << "this process exports";
}

TEST_F(LyingDriverSharing, CreatesMemoryWithHandlesOfWindowsWithoutThem) {
  LyingDriver driver(fake_, Lies{.accept_windows_handles = true});
  create(driver, CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EXPECT_EQ(created_with_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  LyingDriver honest(fake_, {});
  create(honest, CU_MEM_HANDLE_TYPE_WIN32_KMT);
  EXPECT_EQ(created_with_, CU_MEM_HANDLE_TYPE_WIN32_KMT);
}

TEST_F(LyingDriverSharing, FlipsABitOfFabricHandlesOfHostMemory) {
  LyingDriver driver(fake_, Lies{.flip_host_fabric_handle = true});
  auto place = CU_MEM_LOCATION_TYPE_HOST_NUMA;
  fake_->on_cuMemGetAllocationPropertiesFromHandle = [&](CUmemAllocationProp* properties,
                                                         CUmemGenericAllocationHandle) {
    properties->location.type = place;
    return CUDA_SUCCESS;
  };
  CUmemFabricHandle handle{};
  driver.cuMemExportToShareableHandle(&handle, 1, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  EXPECT_EQ(handle.data[0], 1);
  place = CU_MEM_LOCATION_TYPE_DEVICE;
  driver.cuMemExportToShareableHandle(&handle, 1, CU_MEM_HANDLE_TYPE_FABRIC, 0);
  EXPECT_EQ(handle.data[0], 0);
}

TEST(ParseLies, ReadsNames) {
  EXPECT_EQ(parse_lies(""), Lies{});
  EXPECT_EQ(parse_lies("flip_copied_byte:3,ignore_second_grant"),
            (Lies{.flip_copied_byte = true, .only_copy = 3, .ignore_second_grant = true}));
  EXPECT_EQ(parse_lies("ignore_read_only,keep_released_memory,flip_copied_byte"),
            (Lies{.flip_copied_byte = true, .ignore_read_only = true, .keep_released_memory = true}));
  EXPECT_EQ(
      parse_lies("ignore_read_only_alias,ignore_host_grant,repeat_chunk,keep_replaced_memory,separate_aliases,"
                 "report_events_done,claim_compression,renew_second_export,repeat_import,keep_imported_memory,"
                 "accept_windows_handles,flip_host_fabric_handle,separate_moved_memory,separate_ring,gather_places,"
                 "flip_streamed_byte,keep_sleeping_memory"),
      (Lies{.flip_streamed_byte = true,
            .ignore_read_only_alias = true,
            .keep_sleeping_memory = true,
            .ignore_host_grant = true,
            .repeat_chunk = true,
            .keep_replaced_memory = true,
            .separate_aliases = true,
            .separate_moved_memory = true,
            .separate_ring = true,
            .gather_places = true,
            .report_events_done = true,
            .claim_compression = true,
            .renew_second_export = true,
            .repeat_import = true,
            .keep_imported_memory = true,
            .accept_windows_handles = true,
            .flip_host_fabric_handle = true}));
}

TEST(ParseLies, RefusesOtherNames) {
  for (const char* text : {"flip", "flip_copied_byte:", "flip_copied_byte:0", "flip_copied_byte:x", ",",
                           "ignore_read_only,", "keep_released_memory:2", "only_copy", "repeat_chunk:1"})
    EXPECT_THROW(static_cast<void>(parse_lies(text)), InvalidUse) << text;
}

// Lets binds say what they were told.
class LyingDriverMulticast : public testing::Test {
 protected:
  struct Bound {
    CUmemGenericAllocationHandle memory;
    size_t memory_offset;
  };

  void SetUp() override {
    fake_->on_cuMulticastCreate = [](CUmemGenericAllocationHandle* handle, const CUmulticastObjectProp* properties) {
      *handle = 7;
      return properties->size % unit == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    fake_->on_cuMulticastAddDevice = [this](CUmemGenericAllocationHandle, CUdevice device) {
      return joined_.insert(device).second ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    };
    fake_->on_cuMulticastBindMem = [this](CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle memory,
                                          size_t memory_offset, size_t, unsigned long long) {
      bound_.push_back({memory, memory_offset});
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemGetAllocationPropertiesFromHandle = [](CUmemAllocationProp* properties,
                                                          CUmemGenericAllocationHandle handle) {
      properties->location.type = CU_MEM_LOCATION_TYPE_DEVICE;
      properties->location.id = static_cast<int>(handle);
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemCreate = [](CUmemGenericAllocationHandle* handle, size_t, const CUmemAllocationProp*,
                               unsigned long long) {
      *handle = substitute;
      return CUDA_SUCCESS;
    };
    fake_->on_cuMemRelease = [this](CUmemGenericAllocationHandle handle) {
      released_.push_back(handle);
      return CUDA_SUCCESS;
    };
  }

  static CUresult create(LyingDriver& driver, size_t size) {
    CUmemGenericAllocationHandle handle = 0;
    CUmulticastObjectProp properties{};
    properties.numDevices = 2;
    properties.size = size;
    return driver.cuMulticastCreate(&handle, &properties);
  }

  static constexpr size_t unit = size_t{2} << 20;
  static constexpr CUmemGenericAllocationHandle substitute = 99;
  std::set<CUdevice> joined_;
  std::vector<Bound> bound_;
  std::vector<CUmemGenericAllocationHandle> released_;
  std::shared_ptr<FakeDriver> fake_ = std::make_shared<FakeDriver>();
};

TEST_F(LyingDriverMulticast, TakesAnySizeForAnObject) {
  LyingDriver honest(fake_, {}), lying(fake_, Lies{.round_multicast_sizes = true});
  EXPECT_EQ(create(honest, unit + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(lying, unit + 1), CUDA_SUCCESS);
}

TEST_F(LyingDriverMulticast, TakesADeviceTwice) {
  LyingDriver honest(fake_, {});
  EXPECT_EQ(honest.cuMulticastAddDevice(7, 0), CUDA_SUCCESS);
  EXPECT_EQ(honest.cuMulticastAddDevice(7, 0), CUDA_ERROR_INVALID_VALUE);
  joined_.clear();
  LyingDriver lying(fake_, Lies{.accept_device_twice = true});
  EXPECT_EQ(lying.cuMulticastAddDevice(7, 0), CUDA_SUCCESS);
  EXPECT_EQ(lying.cuMulticastAddDevice(7, 0), CUDA_SUCCESS);
  EXPECT_EQ(lying.cuMulticastAddDevice(8, 0), CUDA_ERROR_INVALID_VALUE) << "by another handle";
  lying.cuMemRelease(7);
  EXPECT_EQ(lying.cuMulticastAddDevice(7, 0), CUDA_ERROR_INVALID_VALUE) << "another object";
}

TEST_F(LyingDriverMulticast, BindsMemoryFromItsBeginning) {
  LyingDriver honest(fake_, {}), lying(fake_, Lies{.misplace_bind = true});
  honest.cuMulticastBindMem(7, 0, 1, unit, unit, 0);
  EXPECT_EQ(bound_.back().memory_offset, unit);
  lying.cuMulticastBindMem(7, 0, 1, unit, unit, 0);
  EXPECT_EQ(bound_.back().memory_offset, 0u);
}

TEST_F(LyingDriverMulticast, BindsOtherMemoryInPlaceOfTheSecondThatIsBoundToAllOfAnObject) {
  LyingDriver driver(fake_, Lies{.lose_replica = true});
  ASSERT_EQ(create(driver, 2 * unit), CUDA_SUCCESS);
  for (const CUmemGenericAllocationHandle memory : {1, 2, 3}) {
    driver.cuMulticastBindMem(7, 0, memory, 0, unit, 0);
    EXPECT_EQ(bound_.back().memory, memory) << "a part";
  }
  for (const CUmemGenericAllocationHandle memory : {1, 2, 3}) {
    driver.cuMulticastBindMem(7, 0, memory, 0, 2 * unit, 0);
    EXPECT_EQ(bound_.back().memory, memory == 2 ? substitute : memory);
  }
  driver.cuMulticastUnbind(7, 1, 0, 2 * unit);
  EXPECT_TRUE(released_.empty());
  driver.cuMulticastUnbind(7, 2, 0, 2 * unit);
  EXPECT_EQ(released_, std::vector{substitute}) << "with what it stood for";
}

TEST_F(LyingDriverMulticast, StartsNoBarrier) {
  std::vector<std::string> launched;
  std::map<CUfunction, std::string> names;
  fake_->on_cuModuleGetFunction = [&](CUfunction* function, CUmodule, const char* name) {
    *function = reinterpret_cast<CUfunction>(names.size() + 1);
    names[*function] = name;
    return CUDA_SUCCESS;
  };
  fake_->on_cuLaunchKernel = [&](CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, CUstream, void**, void**) {
    launched.push_back(names[function]);
    return CUDA_SUCCESS;
  };
  const auto launch = [&](const Lies& lies) {
    LyingDriver driver(fake_, lies);
    for (const char* const name : {"cuvmm_multimem_meet", "cuvmm_rank_barrier", "cuvmm_copy"}) {
      CUfunction function = nullptr;
      driver.cuModuleGetFunction(&function, nullptr, name);
      EXPECT_EQ(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr), CUDA_SUCCESS);
    }
    return std::exchange(launched, {});
  };
  EXPECT_EQ(launch({}).size(), 3u);
  EXPECT_EQ(launch({.skip_barriers = true}), std::vector<std::string>{"cuvmm_copy"});
}

}  // namespace
}  // namespace cuvmm::driver
