#include "cuvmm/pool/pmr_resource.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "pool_machine.hpp"

namespace cuvmm {
namespace {

using namespace test;

class HostMemoryResourceTest : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(handler_.take().empty());
    EXPECT_TRUE(machine_.nothing_live());
  }
  static std::size_t remainder(const void* pointer, std::size_t alignment) {
    return reinterpret_cast<std::uintptr_t>(pointer) % alignment;
  }

  SafeRecordingHandler handler_;
  PoolMachine machine_;
};

TEST_F(HostMemoryResourceTest, HostAndDeviceSeeTheSameBytes) {
  HostMemoryResource resource(machine_.driver());
  std::pmr::vector<unsigned> values(100'000, 7U, &resource);
  const CUstream stream = machine_.stream();
  const DeviceAddress address{reinterpret_cast<std::uintptr_t>(values.data())};
  unsigned seen = 0;
  machine_.read(address + std::size_t{4} * 99'999, &seen, stream);
  machine_.fill(address, 4096, 8, stream);
  machine_.finish(stream);
  EXPECT_EQ(seen, 7u);
  EXPECT_EQ(values[1023], 8u);
  EXPECT_EQ(values[1024], 7u);
  for (unsigned i = 0; i < 1'000'000; ++i) values.push_back(i);
  EXPECT_EQ(values.back(), 999'999u);
  EXPECT_EQ(values[1023], 8u);
}

TEST_F(HostMemoryResourceTest, SmallOnesShareMemoryAndLargeOnesGiveTheirsBack) {
  HostMemoryResource resource(machine_.driver(), {.large_from = 4_MiB});
  std::vector<void*> all;
  all.reserve(1000);
  for (int i = 0; i < 1000; ++i) all.push_back(resource.allocate(1000, 8));
  EXPECT_EQ(resource.reserved_bytes(), 2_MiB);
  EXPECT_EQ(resource.live_bytes(), 1000 * 1_KiB);
  void* const large = resource.allocate(5_MiB, 8);
  EXPECT_EQ(resource.reserved_bytes(), 8_MiB);
  EXPECT_EQ(resource.live_bytes(), 1000 * 1_KiB + 6_MiB);
  resource.deallocate(large, 5_MiB, 8);
  EXPECT_EQ(resource.reserved_bytes(), 2_MiB);
  for (void* each : all) resource.deallocate(each, 1000, 8);
  EXPECT_EQ(resource.live_bytes(), 0u);
  EXPECT_EQ(resource.allocate(1000, 8), all.front()) << "used again from its beginning";
  resource.deallocate(all.front(), 1000, 8);
}

TEST_F(HostMemoryResourceTest, KeepsEveryAlignment) {
  HostMemoryResource resource(machine_.driver());
  std::vector<std::pair<void*, std::size_t>> all;
  for (std::size_t alignment = 1; alignment <= 16_MiB; alignment *= 2) {
    void* const pointer = resource.allocate(1, alignment);
    EXPECT_EQ(remainder(pointer, alignment), 0u) << alignment;
    *static_cast<char*>(pointer) = 1;
    all.emplace_back(pointer, alignment);
  }
  void* const empty = resource.allocate(0, 1);
  EXPECT_NE(empty, nullptr);
  resource.deallocate(empty, 0, 1);
  for (const auto& [pointer, alignment] : all) resource.deallocate(pointer, 1, alignment);
  EXPECT_EQ(resource.live_bytes(), 0u);
}

TEST_F(HostMemoryResourceTest, LackOfMemoryIsBadAllocWithWords) {
  const auto source = PhysicalSource::create(machine_.driver(), {.budgets = {{Location::host(), 8_MiB}}});
  HostMemoryResource resource(machine_.driver(), {.large_from = 4_MiB, .source = source});
  for (const std::size_t bytes : {3_MiB, 16_MiB}) {
    void* const first = resource.allocate(3_MiB, 8);
    try {
      std::vector<void*> all;
      for (;;) all.push_back(resource.allocate(bytes, 8));
    } catch (const std::bad_alloc& error) {
      EXPECT_NE(std::string(error.what()).find("budget"), std::string::npos) << error.what();
    }
    resource.deallocate(first, 3_MiB, 8);
  }
  EXPECT_THROW((void)resource.allocate(std::size_t{1} << 60, 8), std::bad_alloc);
  for (const auto& [bytes, alignment] :
       {std::pair{SIZE_MAX, std::size_t{8}}, {std::size_t{1}, std::size_t{1} << 50}, {std::size_t{1} << 50, 4_MiB}}) {
    try {
      static_cast<void>(resource.allocate(bytes, alignment));
      ADD_FAILURE() << bytes << " bytes at a multiple of " << alignment;
    } catch (const std::bad_alloc& error) {
      EXPECT_NE(std::string(error.what()).find("HostMemoryResource::allocate"), std::string::npos) << error.what();
    }
  }
  for (const std::size_t uneven : {6_MiB, 10_MiB}) EXPECT_THROW((void)resource.allocate(1, uneven), InvalidUse);
}

TEST_F(HostMemoryResourceTest, IsEqualToItselfAlone) {
  HostMemoryResource one(machine_.driver());
  const HostMemoryResource other(machine_.driver());
  EXPECT_TRUE(one.is_equal(one));
  EXPECT_FALSE(one.is_equal(other));
  EXPECT_FALSE(one.is_equal(*std::pmr::new_delete_resource()));
  std::pmr::vector<int> from({1, 2, 3}, &one);
  const std::pmr::vector<int> moved(std::move(from), std::pmr::new_delete_resource());
  EXPECT_EQ(moved.size(), 3u) << "elements were moved, not memory";
}

TEST_F(HostMemoryResourceTest, TrimmingGivesBackWhatLiesBehindTheLastByteInUse) {
  HostMemoryResource resource(machine_.driver());
  void* const first = resource.allocate(1_MiB, 8);
  void* const last = resource.allocate(30_MiB, 8);
  const std::size_t before = resource.reserved_bytes();
  EXPECT_EQ(resource.trim(), 0u);
  std::memset(first, 5, 1_MiB);
  resource.deallocate(last, 30_MiB, 8);
  EXPECT_EQ(resource.trim(), before - 2_MiB);
  EXPECT_EQ(resource.reserved_bytes(), 2_MiB);
  EXPECT_EQ(static_cast<char*>(first)[1_MiB - 1], 5);
  void* const again = resource.allocate(30_MiB, 8);
  EXPECT_EQ(again, last);
  std::memset(again, 6, 30_MiB);
  EXPECT_EQ(static_cast<char*>(first)[1_MiB - 1], 5);
  resource.deallocate(again, 30_MiB, 8);
  resource.deallocate(first, 1_MiB, 8);
  resource.trim();
  EXPECT_EQ(resource.reserved_bytes(), 0u);
}

TEST_F(HostMemoryResourceTest, TellsOfWhatIsDeallocatedWrongly) {
  HostMemoryResource resource(machine_.driver());
  void* const pointer = resource.allocate(1000, 8);
  int elsewhere = 0;
  resource.deallocate(&elsewhere, 4, 4);
  EXPECT_EQ(handler_.take().size(), 1u);
  resource.deallocate(static_cast<char*>(pointer) + 1, 1000, 8);
  EXPECT_EQ(handler_.take().size(), 1u);
  resource.deallocate(pointer, 1000, 8);
  resource.deallocate(pointer, 1000, 8);
  EXPECT_EQ(handler_.take().size(), 1u) << "twice";
}

TEST_F(HostMemoryResourceTest, KeepsWhatIsDeallocatedInPartOrTogetherWithItsNeighbour) {
  HostMemoryResource resource(machine_.driver(), {.large_from = 4_MiB});
  void* const pointer = resource.allocate(1000, 8);
  void* const neighbour = resource.allocate(1000, 8);
  resource.deallocate(static_cast<char*>(pointer) + 64, 936, 8);
  EXPECT_EQ(handler_.take().size(), 1u) << "within it";
  resource.deallocate(pointer, 2000, 8);
  EXPECT_EQ(handler_.take().size(), 1u) << "and the neighbour";
  resource.deallocate(pointer, 100, 8);
  EXPECT_EQ(handler_.take().size(), 1u) << "its beginning alone";
  EXPECT_EQ(resource.live_bytes(), 2_KiB);
  resource.deallocate(pointer, 1000, 8);
  resource.deallocate(neighbour, 1000, 8);
  void* const large = resource.allocate(5_MiB, 8);
  resource.deallocate(large, 4_MiB, 8);
  EXPECT_EQ(handler_.take().size(), 1u) << "a large one's beginning";
  resource.deallocate(large, 5_MiB, 8);
  EXPECT_EQ(resource.live_bytes(), 0u);
}

TEST_F(HostMemoryResourceTest, RefusesMemoryOfADevice) {
  EXPECT_THROW(HostMemoryResource(machine_.driver(), {.location = Location::device(DeviceOrdinal{0})}), InvalidUse);
  EXPECT_THROW((void)HostMemoryResource(machine_.driver(), {.location = Location::host_numa(99)}).allocate(1), Error);
  HostMemoryResource node(machine_.driver(), {.location = Location::host_numa(0)});
  void* const there = node.allocate(1);
  *static_cast<char*>(there) = 1;
  node.deallocate(there, 1);
}

TEST_F(HostMemoryResourceTest, ManyThreadsGetMemoryOfTheirOwn) {
  HostMemoryResource resource(machine_.driver(), {.large_from = 1_MiB});
  std::vector<std::thread> threads;
  for (unsigned seed = 0; seed < 4; ++seed)
    threads.emplace_back([&resource, seed] {
      std::mt19937 random(seed);
      struct Piece {
        unsigned* words = nullptr;
        std::size_t count = 0;
        unsigned value = 0;
      };
      std::vector<Piece> pieces;
      for (unsigned round = 0; round < 400; ++round) {
        if (pieces.size() < 16 || random() % 2 == 0) {
          const std::size_t count = std::size_t{1} << (random() % 19);
          Piece made{static_cast<unsigned*>(resource.allocate(count * 4, 64)), count, static_cast<unsigned>(random())};
          made.words[0] = made.words[count - 1] = made.value;
          pieces.push_back(made);
        } else {
          std::swap(pieces[random() % pieces.size()], pieces.back());
          const Piece gone = pieces.back();
          pieces.pop_back();
          EXPECT_EQ(gone.words[0], gone.value);
          EXPECT_EQ(gone.words[gone.count - 1], gone.value);
          resource.deallocate(gone.words, gone.count * 4, 64);
        }
      }
      for (const Piece& each : pieces) resource.deallocate(each.words, each.count * 4, 64);
    });
  for (std::thread& each : threads) each.join();
  EXPECT_EQ(resource.live_bytes(), 0u);
}

}  // namespace
}  // namespace cuvmm
