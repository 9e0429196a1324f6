// Values of ranges of numbers.
#include "emulator/api/interval_map.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace cuvmm::emulator::api {
namespace {

std::vector<int> content(const IntervalMap<int>& map, std::uint64_t numbers) {
  std::vector<int> values(numbers, -1);
  map.for_each_in(0, numbers, [&](std::uint64_t begin, std::uint64_t end, int value) {
    for (std::uint64_t at = begin; at < end; ++at) values[at] = value;
    return true;
  });
  return values;
}

TEST(IntervalMap, IsWhatAListOfNumbersWouldBe) {
  std::mt19937 random(7);
  constexpr std::uint64_t numbers = 40;
  for (int round = 0; round < 500; ++round) {
    IntervalMap<int> map;
    std::vector<int> expected(numbers, -1);
    for (int step = 0; step < 20; ++step) {
      const std::uint64_t begin = random() % numbers, end = begin + random() % (numbers - begin + 1);
      const int value = static_cast<int>(random() % 3);
      if (random() % 5 == 0) {
        map.clear(begin, end);
        std::fill(expected.begin() + static_cast<long>(begin), expected.begin() + static_cast<long>(end), -1);
      } else {
        map.set(begin, end, value);
        std::fill(expected.begin() + static_cast<long>(begin), expected.begin() + static_cast<long>(end), value);
      }
      if (random() % 20 == 0) {
        map.clear_if([](int each) { return each == 1; });
        std::replace(expected.begin(), expected.end(), 1, -1);
      }
      ASSERT_EQ(content(map, numbers), expected) << "round " << round << " step " << step;
    }
  }
}

TEST(IntervalMap, KeepsNeighboursOfOneValueAsOne) {
  IntervalMap<int> map;
  for (std::uint64_t at = 0; at < 1000; at += 2) map.set(at, at + 2, 5);
  EXPECT_EQ(map.intervals(), 1U);
  for (std::uint64_t at = 2000; at > 1000; at -= 2) map.set(at - 2, at, 5);
  EXPECT_EQ(map.intervals(), 1U);
  map.set(500, 502, 6);
  EXPECT_EQ(map.intervals(), 3U);
  map.set(500, 502, 5);
  EXPECT_EQ(map.intervals(), 1U);
}

TEST(IntervalMap, TellsOfWhatLiesInARangeUntilItIsTold) {
  IntervalMap<int> map;
  map.set(10, 20, 1);
  map.set(30, 40, 2);
  std::vector<std::uint64_t> seen;
  const auto look = [&](std::uint64_t begin, std::uint64_t end, int) {
    seen.insert(seen.end(), {begin, end});
    return seen.size() < 4;
  };
  map.for_each_in(15, 35, look);
  EXPECT_EQ(seen, (std::vector<std::uint64_t>{15, 20, 30, 35}));
  seen.clear();
  map.for_each_in(20, 30, look);
  EXPECT_TRUE(seen.empty());
}

}  // namespace
}  // namespace cuvmm::emulator::api
