// Growing, moving, shrinking and copying; see device_vector_faults_test.cpp for what fails halfway.
#include "cuvmm/device_vector.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "../../sanitizers.hpp"
#include "shapes/shape_test.hpp"
#include "shapes/small_buffer.hpp"

namespace cuvmm {
namespace {

using test::Alive;
using test::small;
using test::take_addresses_behind;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

std::vector<std::byte> content_of(const DeviceBuffer& buffer) {
  std::vector<std::byte> content(buffer.size());
  buffer.read(0, content);
  return content;
}

class DeviceVectorTest : public test::ShapeTest {
 protected:
  DeviceVectorTest() : ShapeTest(2) {}

  DeviceBuffer buffer(const MappedRangeOptions& options = small()) {
    return DeviceBuffer::create(machine_.driver(), options);
  }
  template <class T>
  DeviceVector<T> vector(const MappedRangeOptions& options = small()) {
    return DeviceVector<T>::create(machine_.driver(), options);
  }
};

TEST_F(DeviceVectorTest, IsAVectorOfElements) {
  auto numbers = vector<int>();
  EXPECT_TRUE(numbers.empty());
  EXPECT_EQ(numbers.capacity(), 0u);
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 5);
  numbers.append(expected);
  numbers.append(expected);
  expected.insert(expected.end(), expected.begin(), expected.begin() + 1000);
  EXPECT_EQ(numbers.size(), 2000u);
  EXPECT_EQ(numbers.to_host(), expected);
  numbers.write(1999, std::vector<int>{-1});
  expected[1999] = -1;
  EXPECT_EQ(numbers.to_host(), expected);
  std::vector<int> two(2);
  numbers.read(1998, two);
  EXPECT_EQ(two, (std::vector<int>{1003, -1}));
  numbers.resize(10);
  expected.resize(10);
  EXPECT_EQ(numbers.to_host(), expected);
  EXPECT_EQ(numbers.capacity(), 2_MiB / sizeof(int)) << "a shorter content gives nothing back";
  numbers.clear();
  EXPECT_TRUE(numbers.empty());
}

TEST_F(DeviceVectorTest, C52_GrowsInPlaceByTheShortestSequenceOfCalls) {
  auto bytes = buffer(small(1_GiB, ChunkPolicy::geometric()));
  const DeviceAddress address = bytes.address();
  machine_.calls();
  bytes.reserve(1);
  EXPECT_EQ(machine_.calls(), "cuMemCreate 1, cuMemMap 1, cuMemSetAccess 1");
  bytes.reserve(2_MiB);
  bytes.resize(2_MiB);
  bytes.resize(5);
  EXPECT_EQ(machine_.calls(), "") << "there is memory for that";
  for (std::size_t size = 4_MiB; size <= 512_MiB; size += 2_MiB) bytes.resize(size);
  EXPECT_EQ(machine_.calls(), "cuMemCreate 8, cuMemMap 8, cuMemSetAccess 8") << "doubled each time";
  EXPECT_EQ(bytes.address(), address);
  EXPECT_EQ(bytes.generation(), 0u);
}

TEST_F(DeviceVectorTest, ThePolicySaysHowMuchMoreThereIs) {
  const auto capacity = [&](const ChunkPolicy& policy) {
    auto bytes = buffer(small(1_GiB, policy));
    bytes.reserve(100_MiB);
    bytes.reserve(103_MiB);
    return bytes.capacity();
  };
  EXPECT_EQ(capacity(ChunkPolicy::exact()), 104_MiB);
  EXPECT_EQ(capacity(ChunkPolicy::bounded(0.02)), 106_MiB);
  EXPECT_EQ(capacity(ChunkPolicy::fixed(16_MiB)), 112_MiB);
  EXPECT_EQ(capacity(ChunkPolicy::geometric()), 200_MiB);
}

TEST_F(DeviceVectorTest, C40_MovesByMappingTheSameMemoryAgainAndNeverCopies) {
  auto bytes = buffer();
  const auto content = test::pattern(8_MiB, 1);
  bytes.append(content);
  const DeviceAddress before = bytes.address();
  const auto taken = take_addresses_behind(bytes);
  const std::size_t handles = machine_.alive().handles;
  machine_.calls();
  bytes.resize(9_MiB);
  EXPECT_EQ(machine_.calls(),
            "cuDeviceGetCount 1, cuMemGetAllocationGranularity 1, cuMemCreate 1, cuMemAddressReserve 3, "
            "cuMemAddressFree 2, cuMemMap 5, cuMemSetAccess 2")
      << "two tries to go on where it is, then one reservation elsewhere";
  EXPECT_NE(bytes.address(), before);
  EXPECT_GE(bytes.address_capacity(), 16_MiB);
  EXPECT_EQ(machine_.alive().handles, handles + 1) << "the memory is the same";
  EXPECT_EQ(read_at(bytes.address(), 8_MiB), content);
  // The former pointer shows the same memory until it is released.
  EXPECT_EQ(bytes.former_addresses(), std::vector{before});
  EXPECT_EQ(read_at(before, 8_MiB), content);
  bytes.write(5, test::pattern(3, 2));
  EXPECT_EQ(read_at(before + 5, 3), test::pattern(3, 2));
  machine_.calls();
  bytes.release_former();
  EXPECT_EQ(machine_.calls(), "cuMemAddressFree 1, cuMemUnmap 1") << "once, and no memory with it";
  EXPECT_TRUE(bytes.former_addresses().empty());
  bytes.release_former();
  EXPECT_EQ(machine_.calls(), "");
  const abi::CUresult gone = machine_.emulated().cuMemsetD8(before.value, 0, 1);
  EXPECT_NE(gone, abi::CUDA_SUCCESS) << "and the former pointer is none";
  bytes.close();
  EXPECT_EQ(machine_.alive(), (Alive{0, 0, 1})) << "the addresses that were taken";
}

TEST_F(DeviceVectorTest, C40_AnOldBufferFreesNothingTwice) {
  {
    auto bytes = buffer();
    bytes.resize(8_MiB);
    for (int move = 0; move < 3; ++move) {
      const auto taken = take_addresses_behind(bytes);
      bytes.resize(bytes.address_capacity() + 1);
    }
    EXPECT_EQ(bytes.former_addresses().size(), 3u);
    auto other = std::move(bytes);
    bytes = buffer();
    bytes.resize(1);
    other = std::move(bytes);
    EXPECT_EQ(other.size(), 1u);
  }
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(DeviceVectorTest, GoesOnWhereItIsIfTheAddressesBehindAreFree) {
  auto bytes = buffer();
  const DeviceAddress address = bytes.address();
  bytes.resize(20_MiB);
  EXPECT_EQ(bytes.address(), address);
  EXPECT_TRUE(bytes.former_addresses().empty());
  // Chunks of several reservations lie behind one when it moves.
  const auto content = test::pattern(20_MiB, 3);
  bytes.write(0, content);
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(bytes.address_capacity() + 1);
  EXPECT_NE(bytes.address(), address);
  EXPECT_EQ(read_at(bytes.address(), 20_MiB), content);
}

TEST_F(DeviceVectorTest, C31_MovesToWhatASmallMachineHasAndTellsWhereNothingIsLeft) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.address_bytes = 64_MiB;
  test::RangeMachine machine(configuration);
  const CurrentContext context(machine.driver().device(DeviceOrdinal(0)));
  auto all = DeviceBuffer::create(machine.driver());
  EXPECT_LE(all.address_capacity(), 64_MiB) << "half of what the device has, and so on";
  all.close();
  auto bytes = DeviceBuffer::create(machine.driver(), small(16_MiB));
  bytes.resize(16_MiB);
  const auto content = test::pattern(16_MiB, 4);
  bytes.write(0, content);
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(30_MiB);  // 46 MiB of addresses are left, where twice as many as it had do fit
  EXPECT_EQ(bytes.address_capacity(), 32_MiB);
  EXPECT_EQ(bytes.former_addresses().size(), 1u);
  const auto refused = bytes.try_resize(60_MiB);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.failure().kind, ErrorKind::out_of_address_space);
  ASSERT_TRUE(refused.failure().largest_hole_bytes);
  EXPECT_EQ(bytes.size(), 30_MiB);
  bytes.release_former();
  bytes.resize(16_MiB);
  EXPECT_EQ(content_of(bytes), content);
}

TEST_F(DeviceVectorTest, ReservesLessThanTwiceAsManyWhereThereAreNoMore) {
  emulator::Configuration configuration = test::strict_machine();
  configuration.address_bytes = 64_MiB;
  test::RangeMachine machine(configuration);
  auto bytes = DeviceBuffer::create(machine.driver(), small(24_MiB));
  bytes.resize(24_MiB);
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(26_MiB);
  EXPECT_GE(bytes.address_capacity(), 26_MiB);
  EXPECT_LE(bytes.address_capacity(), 38_MiB) << "there were 38 left";
}

TEST_F(DeviceVectorTest, HasTerabytesOfAddresses) {
  constexpr std::size_t many =
      test::thread_sanitizer ? 128_GiB : 16_TiB;  // which leaves fewer addresses (docs/emulator.md)
  auto bytes = vector<double>(small(many));
  EXPECT_EQ(bytes.address_capacity(), many / sizeof(double));
  const double* const before = bytes.data();
  bytes.append(std::vector<double>{1.5});
  EXPECT_EQ(bytes.data(), before);
  EXPECT_EQ(bytes.to_host(), std::vector<double>{1.5});
}

TEST_F(DeviceVectorTest, C24_RightsMoveWithIt) {
  MappedRangeOptions options = small();
  options.grants = {{device0, AccessRights::read_write}, {device1, AccessRights::read}};
  auto bytes = buffer(options);
  bytes.resize(8_MiB);
  const DeviceAddress before = bytes.address();
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(12_MiB);
  ASSERT_NE(bytes.address(), before);
  for (const std::size_t offset : {0_MiB, 6_MiB, 8_MiB, 10_MiB})
    EXPECT_EQ(machine_.rights(bytes.address() + offset, device1), AccessRights::read) << offset;
  bytes.grant(device1);
  EXPECT_EQ(machine_.rights(bytes.address(), device1), AccessRights::read_write);
  EXPECT_EQ(machine_.rights(before, device1), AccessRights::read) << "former addresses keep theirs";
  bytes.revoke(device1);
  EXPECT_EQ(machine_.rights(bytes.address(), device1), AccessRights::none);
  EXPECT_TRUE(bytes.former_addresses().empty()) << "through which it could still read";
  bytes.revoke(device0);
  const auto again = take_addresses_behind(bytes);
  bytes.resize(bytes.address_capacity() + 1);
  EXPECT_EQ(machine_.rights(bytes.address(), device0), AccessRights::none) << "no rights are none after a move, too";
}

TEST_F(DeviceVectorTest, MemoryOfTheHostIsTheProcessorsToo) {
  MappedRangeOptions options = small();
  options.memory.location = Location::host_numa(0);
  options.grants = {{Location::host(), AccessRights::read_write}, {device0, AccessRights::read_write}};
  auto numbers = vector<int>(options);
  numbers.append(std::vector<int>{1, 2, 3});
  numbers.data()[1] = 20;
  EXPECT_EQ(numbers.to_host(), (std::vector<int>{1, 20, 3}));
  const auto taken = take_addresses_behind(numbers.buffer());
  numbers.resize(4_MiB);
  numbers.data()[2] = 30;
  numbers.resize(3);
  EXPECT_EQ(numbers.to_host(), (std::vector<int>{1, 20, 30}));
  EXPECT_EQ(numbers.buffer().former_addresses().front().as_pointer<int>()[2], 30);
}

TEST_F(DeviceVectorTest, AppendsWhatTheDeviceHasAndItself) {
  auto numbers = vector<int>();
  numbers.append(std::vector<int>{1, 2, 3});
  auto others = vector<int>();
  others.append(std::vector<int>{7, 8, 9});
  numbers.append_from_device(others.data() + 1, 2);
  numbers.append_from_device(numbers.data() + 2, 3);
  EXPECT_EQ(numbers.to_host(), (std::vector<int>{1, 2, 3, 8, 9, 3, 8, 9}));
  numbers.append_from_device(nullptr, 0);
  EXPECT_EQ(numbers.size(), 8u);
  // It finds itself where it has moved to, since the other one lies right behind.
  EXPECT_EQ(others.address(), numbers.address() + small().capacity);
  numbers.resize(2_MiB);
  numbers.append_from_device(numbers.data(), 8);
  std::vector<int> last(8);
  numbers.read(2_MiB, last);
  EXPECT_EQ(last, (std::vector<int>{1, 2, 3, 8, 9, 3, 8, 9}));
  EXPECT_EQ(numbers.buffer().former_addresses().size(), 1u);
}

TEST_F(DeviceVectorTest, BytesBeyondTheContentAreRefused) {
  auto numbers = vector<int>();
  numbers.resize(10);
  std::vector<int> three(3);
  EXPECT_THROW(numbers.read(8, three), InvalidUse);
  EXPECT_THROW(numbers.write(8, three), InvalidUse);
  EXPECT_THROW(numbers.write(11, {}), InvalidUse);
  numbers.write(7, three);
  numbers.read(7, three);
  numbers.write(10, {});
  EXPECT_THROW(numbers.reserve(SIZE_MAX / 4), InvalidUse);
  EXPECT_THROW(numbers.resize(1024_TiB), OutOfAddressSpace) << "a size that could be";
  EXPECT_THROW(numbers.append_from_device(numbers.data(), SIZE_MAX / 8), Error);
  EXPECT_EQ(numbers.size(), 10u);
}

TEST_F(DeviceVectorTest, C48_TheGenerationTellsOfMovesAndOfWhatWasGivenBack) {
  auto bytes = buffer();
  bytes.resize(8_MiB);
  EXPECT_EQ(bytes.generation(), 0u) << "growing in place leaves every page";
  bytes.resize(1);
  EXPECT_EQ(bytes.generation(), 0u);
  bytes.shrink_to_fit();
  const auto after_shrinking = bytes.generation();
  EXPECT_GT(after_shrinking, 0u);
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(9_MiB);
  EXPECT_GT(bytes.generation(), after_shrinking);
}

TEST_F(DeviceVectorTest, ShrinkingGivesBackWholeChunksAndFormerAddresses) {
  auto bytes = buffer();
  bytes.resize(8_MiB);
  const auto content = test::pattern(3_MiB, 5);
  bytes.write(0, content);
  const auto taken = take_addresses_behind(bytes);
  bytes.resize(16_MiB);
  EXPECT_EQ(bytes.capacity(), 16_MiB);
  bytes.resize(3_MiB);
  bytes.shrink_to_fit();
  EXPECT_EQ(bytes.capacity(), 4_MiB);
  EXPECT_EQ(machine_.alive().handles, 2u) << "the memory is back, although it lay at two addresses";
  EXPECT_EQ(content_of(bytes), content);
  machine_.calls();
  bytes.resize(6_MiB);
  EXPECT_EQ(machine_.calls(), "cuMemCreate 1, cuMemMap 1, cuMemSetAccess 1");
  EXPECT_EQ(read_at(bytes.address(), 3_MiB), content);
  bytes.clear();
  bytes.shrink_to_fit();
  EXPECT_EQ(bytes.capacity(), 0u);
  EXPECT_EQ(machine_.alive().handles, 0u);
}

}  // namespace
}  // namespace cuvmm
