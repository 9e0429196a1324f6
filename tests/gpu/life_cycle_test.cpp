// The owners on the CUDA driver of this machine.
#include <gtest/gtest.h>

#include <cuvmm/cuvmm.hpp>
#include <numeric>
#include <vector>

namespace cuvmm {
namespace {

class LifeCycleOnGpu : public testing::Test {
 protected:
  Driver driver_ = Driver::cuda();
  Device device_ = driver_.device(DeviceOrdinal{0});
  CurrentContext context_{device_};
  MemoryProperties properties_{.location = device_.location()};
  std::size_t granule_ = device_.granularity();
};

std::vector<unsigned char> content(std::size_t bytes) {
  std::vector<unsigned char> made(bytes);
  unsigned value = 1;
  for (unsigned char& byte : made) byte = static_cast<unsigned char>((value = value * 1664525U + 1013904223U) >> 24);
  return made;
}

TEST_F(LifeCycleOnGpu, BytesComeBackThroughSeveralChunksBehindOneAddress) {
  const auto addresses = AddressReservation::create(driver_, 4 * granule_);
  std::vector<Mapping> chunks;
  for (std::size_t index = 0; index < 4; ++index) {
    const auto memory = PhysicalMemory::create(driver_, properties_, granule_);
    chunks.push_back(Mapping::create(addresses, index * granule_, memory));
    grant(chunks.back(), device_.location(), AccessRights::read_write);
  }
  const auto sent = content(4 * granule_);
  std::vector<unsigned char> received(sent.size());
  copy_bytes_to_device(driver_, addresses.address(), std::as_bytes(std::span(sent)));
  copy_bytes_from_device(driver_, std::as_writable_bytes(std::span(received)), addresses.address());
  EXPECT_EQ(received, sent);
}

TEST_F(LifeCycleOnGpu, AFreshMappingHasNoAccessUntilGranted) {
  const auto addresses = AddressReservation::create(driver_, granule_);
  const auto mapping = Mapping::create(addresses, 0, PhysicalMemory::create(driver_, properties_, granule_));
  const std::vector<unsigned char> sent = content(64);
  EXPECT_EQ(access(mapping, device_.location()), AccessRights::none);
  EXPECT_THROW(copy_to_device(mapping, 0, sent), InvalidUse);
  grant(mapping, device_.location(), AccessRights::read_write);
  EXPECT_NO_THROW(copy_to_device(mapping, 0, sent));
  grant(mapping, device_.location(), AccessRights::read);
  EXPECT_THROW(copy_to_device(mapping, 0, sent), InvalidUse);
}

TEST_F(LifeCycleOnGpu, AnUnalignedSizeIsRefusedAndItsMultipleAccepted) {
  EXPECT_THROW((void)PhysicalMemory::create(driver_, properties_, granule_ + 1), InvalidUse);
  const std::size_t rounded = PhysicalMemory::rounded_up(driver_, properties_, granule_ + 1);
  EXPECT_EQ(PhysicalMemory::create(driver_, properties_, rounded).size(), 2 * granule_);
}

}  // namespace
}  // namespace cuvmm
