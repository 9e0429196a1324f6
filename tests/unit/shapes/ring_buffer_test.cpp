// Windows, positions, copies and what fails.
#include "cuvmm/ring_buffer.hpp"

#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <thread>

#include "driver/call.hpp"
#include "shapes/shape_test.hpp"

namespace cuvmm {
namespace {

using test::Alive;
using test::EntryPoint;

const Location device0 = Location::device(DeviceOrdinal(0));
const Location device1 = Location::device(DeviceOrdinal(1));

constexpr std::size_t page = std::size_t{2} << 20;

class RingBufferTest : public test::ShapeTest {
 protected:
  RingBufferTest() : ShapeTest(2) {}

  RingBuffer ring(std::size_t bytes = page) { return RingBuffer::create(machine_.driver(), {.bytes = bytes}); }
  // So that the next window runs past the end.
  static void advance_to(RingBuffer& ring, std::size_t position) {
    ring.commit(position);
    ring.release(position);
  }
};

TEST_F(RingBufferTest, C52_IsMadeByTheShortestSequenceOfCalls) {
  machine_.calls();
  {
    const auto one = ring(3_MiB);
    EXPECT_EQ(one.size(), 4_MiB) << "whole granules";
    EXPECT_EQ(machine_.calls(),
              "cuMemGetAllocationGranularity 2, cuMemCreate 1, cuMemAddressReserve 1, cuMemMap 2, cuMemSetAccess 1");
    EXPECT_EQ(machine_.alive(), (Alive{1, 2, 1})) << "one memory, twice in a row";
  }
  EXPECT_EQ(machine_.calls(), "cuMemRelease 1, cuMemAddressFree 1, cuMemUnmap 1");
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(RingBufferTest, AWindowPastTheEndIsContiguousAndIsTheBeginning) {
  auto one = ring();
  advance_to(one, page - 1000);
  const auto content = test::pattern(page, 1);
  const auto window = one.write_window(page);
  ASSERT_TRUE(window);
  EXPECT_EQ(*window, one.address() + (page - 1000));
  copy_bytes_to_device(machine_.driver(), *window, content);
  one.commit(page);
  EXPECT_EQ(read_at(one.address() + (page - 1000), 1000), std::vector(content.begin(), content.begin() + 1000));
  EXPECT_EQ(read_at(one.address(), page - 1000), std::vector(content.begin() + 1000, content.end()));
  const auto oldest = one.read_window(page);
  ASSERT_TRUE(oldest);
  EXPECT_EQ(read_at(*oldest, page), content);
}

TEST_F(RingBufferTest, WindowsAreGivenForWhatThereIsAndNoMore) {
  auto one = ring();
  EXPECT_EQ(one.writable(), page);
  EXPECT_FALSE(one.read_window(1));
  EXPECT_TRUE(one.read_window(0));
  EXPECT_FALSE(one.write_window(page + 1));
  ASSERT_TRUE(one.write_window(page));
  EXPECT_THROW(one.commit(page + 1), InvalidUse);
  EXPECT_THROW(one.release(1), InvalidUse);
  one.commit(page - 5);
  EXPECT_FALSE(one.write_window(6));
  EXPECT_TRUE(one.write_window(5));
  EXPECT_THROW(one.commit(6), InvalidUse);
  one.commit(5);
  EXPECT_EQ(one.writable(), 0u);
  EXPECT_FALSE(one.write_window(1));
  EXPECT_FALSE(one.read_window(page + 1));
  EXPECT_TRUE(one.read_window(page));
  one.release(1);
  EXPECT_TRUE(one.write_window(1));
  EXPECT_THROW(one.release(page), InvalidUse);
  EXPECT_EQ(one.write_position(), page);
  EXPECT_EQ(one.read_position(), 1u);
}

TEST_F(RingBufferTest, CopiesTakeWhatFits) {
  auto one = ring();
  const auto content = test::pattern(page + 500, 2);
  EXPECT_EQ(one.write(content), page);
  EXPECT_EQ(one.write(content), 0u) << "it is full";
  std::vector<std::byte> received(page + 500);
  EXPECT_EQ(one.read(std::span(received).first(700)), 700u);
  EXPECT_EQ(one.write(std::span(content).subspan(page)), 500u) << "over the end";
  EXPECT_EQ(one.read(std::span(received).subspan(700)), page - 200);
  EXPECT_EQ(received, content);
  EXPECT_EQ(one.read(received), 0u);
}

TEST_F(RingBufferTest, StreamOrderedCopiesAreToldOfThemselves) {
  auto one = ring();
  abi::CUstream stream = nullptr;
  driver::call<EntryPoint::cuStreamCreate>(machine_.driver().interface(), &stream, 1U);
  advance_to(one, page - 10);
  const auto content = test::pattern(100, 3);
  std::vector<std::byte> received(100);
  EXPECT_EQ(one.write(content, stream), 100u);
  EXPECT_EQ(one.read(received, stream), 100u);
  EXPECT_EQ(one.read(received, stream), 0u);
  machine_.calls();
  one.close();
  EXPECT_NE(machine_.calls().find("cuEventRecord 1"), std::string::npos) << "it waited for the stream";
  EXPECT_EQ(received, content);
  driver::call<EntryPoint::cuStreamDestroy>(machine_.driver().interface(), stream);
}

TEST_F(RingBufferTest, BothAddressesHaveTheRights) {
  auto one = ring();
  one.grant(device1, AccessRights::read);
  for (const std::size_t offset : {std::size_t{0}, page})
    EXPECT_EQ(machine_.rights(one.address() + offset, device1), AccessRights::read) << offset;
  one.revoke(device1);
  for (const std::size_t offset : {std::size_t{0}, page})
    EXPECT_EQ(machine_.rights(one.address() + offset, device1), AccessRights::none) << offset;
}

TEST_F(RingBufferTest, TheHostProducesAndConsumesInMemoryOfItsOwn) {
  RingBufferOptions options;
  options.bytes = page;
  options.memory.location = Location::host_numa(0);
  options.grants = {{Location::host(), AccessRights::read_write}, {device0, AccessRights::read_write}};
  auto one = RingBuffer::create(machine_.driver(), options);
  const std::size_t around = page / sizeof(int);
  advance_to(one, page - 2 * sizeof(int));
  int* const written = one.write_window(4 * sizeof(int))->as_pointer<int>();
  for (int i = 0; i < 4; ++i) written[i] = 10 + i;
  one.commit(4 * sizeof(int));
  const int* const beginning = one.address().as_pointer<int>();
  EXPECT_EQ(beginning[0], 12);
  EXPECT_EQ(beginning[around + 1], 13) << "the second mapping of the same";
  std::vector<int> received(4);
  EXPECT_EQ(one.read(std::as_writable_bytes(std::span(received))), 4 * sizeof(int)) << "which a device copies";
  EXPECT_EQ(received, (std::vector<int>{10, 11, 12, 13}));
}

TEST_F(RingBufferTest, OneThreadProducesWhileAnotherConsumes) {
  RingBufferOptions options;
  options.bytes = page;
  options.memory.location = Location::host_numa(0);
  auto one = RingBuffer::create(machine_.driver(), options);
  constexpr std::uint64_t count = 400'000;  // some six times around
  std::uint64_t wrong = 0;
  std::thread consumer([&] {
    for (std::uint64_t next = 0; next < count;) {
      const std::size_t numbers = std::min<std::size_t>(one.readable() / sizeof next, 3000);
      if (numbers == 0) {
        std::this_thread::yield();
        continue;
      }
      const auto* const window = one.read_window(numbers * sizeof next)->as_pointer<const std::uint64_t>();
      for (std::size_t i = 0; i < numbers; ++i) wrong += window[i] == next++ ? 0 : 1;
      one.release(numbers * sizeof next);
    }
  });
  for (std::uint64_t next = 0; next < count;) {
    const std::size_t numbers = std::min<std::size_t>({one.writable() / sizeof next, 7000, count - next});
    if (numbers == 0) {
      std::this_thread::yield();
      continue;
    }
    auto* const window = one.write_window(numbers * sizeof next)->as_pointer<std::uint64_t>();
    for (std::size_t i = 0; i < numbers; ++i) window[i] = next++;
    one.commit(numbers * sizeof next);
  }
  consumer.join();
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(one.read_position(), count * sizeof(std::uint64_t));
}

TEST_F(RingBufferTest, IsAsAQueueOfBytes) {
  auto one = ring();
  std::deque<std::byte> model;
  std::mt19937 random(7);  // NOLINT(cert-msc32-c,cert-msc51-cpp): the same walk each time
  for (unsigned step = 0; step < 400; ++step) {
    const std::size_t bytes = random() % (page / 2);
    if (random() % 2 == 0) {
      const auto content = test::pattern(bytes, step);
      const std::size_t written = one.write(content);
      ASSERT_EQ(written, std::min(bytes, page - model.size()));
      model.insert(model.end(), content.begin(), content.begin() + static_cast<std::ptrdiff_t>(written));
    } else {
      std::vector<std::byte> content(bytes);
      content.resize(one.read(content));
      ASSERT_EQ(content.size(), std::min(bytes, model.size()));
      const auto end = model.begin() + static_cast<std::ptrdiff_t>(content.size());
      ASSERT_TRUE(std::equal(content.begin(), content.end(), model.begin(), end)) << step;
      model.erase(model.begin(), end);
    }
  }
}

TEST_F(RingBufferTest, WhatCannotBeIsRefusedAndTheLikeIsNot) {
  for (const std::size_t bytes : {std::size_t{0}, SIZE_MAX}) {
    const auto refused = RingBuffer::try_create(machine_.driver(), {.bytes = bytes});
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.failure().kind, ErrorKind::invalid_use);
    EXPECT_EQ(refused.failure().call, "RingBuffer::create") << "before anything is asked of others";
  }
  EXPECT_EQ(ring(1).size(), page);
  RingBufferOptions options;
  options.bytes = 1;
  options.alignment = 3;
  EXPECT_THROW(static_cast<void>(RingBuffer::create(machine_.driver(), options)), InvalidUse);
  options.alignment = 16_MiB;
  EXPECT_TRUE(is_aligned(RingBuffer::create(machine_.driver(), options).address().value, 16_MiB));
  EXPECT_EQ(machine_.alive(), Alive{});
}

TEST_F(RingBufferTest, C34_NothingIsLeftOfARingThatCouldNotBeMade) {
  for (const auto& [entry, calls] : {std::pair{EntryPoint::cuMemGetAllocationGranularity, 2},
                                     {EntryPoint::cuMemAddressReserve, 1},
                                     {EntryPoint::cuMemCreate, 1},
                                     {EntryPoint::cuMemMap, 2},
                                     {EntryPoint::cuMemSetAccess, 1}}) {
    for (int call = 1; call <= calls; ++call) {
      machine_.fail(entry, static_cast<std::uint64_t>(call), abi::CUDA_ERROR_UNKNOWN);
      const auto made = RingBuffer::try_create(machine_.driver(), {.bytes = page});
      machine_.faults().clear();
      ASSERT_FALSE(made) << driver::name(entry) << " " << call;
      EXPECT_EQ(made.failure().call, driver::name(entry));
      EXPECT_EQ(machine_.alive(), Alive{}) << driver::name(entry) << " " << call;
    }
  }
  EXPECT_TRUE(RingBuffer::try_create(machine_.driver(), {.bytes = page})) << "a retry works";
}

TEST_F(RingBufferTest, ACopyThatFailsMovesNoPosition) {
  auto one = ring();
  const auto content = test::pattern(100, 4);
  std::vector<std::byte> received(100);
  machine_.fail(EntryPoint::cuMemcpyHtoD, 1, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(one.write(content), Error);
  EXPECT_EQ(one.write_position(), 0u);
  EXPECT_EQ(one.write(content), 100u);
  machine_.fail(EntryPoint::cuMemcpyDtoH, 1, abi::CUDA_ERROR_UNKNOWN);
  EXPECT_THROW(one.read(received), Error);
  EXPECT_EQ(one.read_position(), 0u);
  EXPECT_EQ(one.read(received), 100u);
  EXPECT_EQ(received, content);
}

}  // namespace
}  // namespace cuvmm
