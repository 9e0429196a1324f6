// Copies past the caches, which are copies all the same.
#include "sleep/streaming_copy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace cuvmm::sleep {
namespace {

constexpr std::byte untouched{0xA5};

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> content(bytes);
  for (std::size_t index = 0; index < bytes; ++index) content[index] = static_cast<std::byte>(index * 7 + index / 251);
  return content;
}

TEST(CopyPastCaches, CopiesAllAndNoFurtherAtEveryAlignment) {
  const auto source = pattern(70'000);
  std::vector<std::byte> destination(source.size() + 256);
  for (const std::size_t bytes : {0, 1, 63, 64, 1023, 1024, 1025, 4096, 4159, 65'537})
    for (const std::size_t to : {0, 1, 15, 16, 63, 64})
      for (const std::size_t from : {0, 1, 8, 63}) {
        std::fill(destination.begin(), destination.end(), untouched);
        copy_past_caches(destination.data() + to, source.data() + from, bytes);
        const auto begin = destination.begin() + static_cast<std::ptrdiff_t>(to);
        const auto end = begin + static_cast<std::ptrdiff_t>(bytes);
        const auto is_untouched = [](std::byte each) { return each == untouched; };
        ASSERT_TRUE(std::all_of(destination.begin(), begin, is_untouched)) << bytes << " to " << to;
        ASSERT_TRUE(std::equal(begin, end, source.begin() + static_cast<std::ptrdiff_t>(from)))
            << bytes << " to " << to << " from " << from;
        ASSERT_TRUE(std::all_of(end, destination.end(), is_untouched)) << bytes << " to " << to;
      }
}

TEST(CopyPastCaches, AnotherThreadThatIsToldSeesTheBytes) {
  const auto source = pattern(1 << 20);
  for (int round = 0; round < 20; ++round) {
    std::vector<std::byte> destination(source.size(), untouched);
    std::atomic<bool> done = false;
    bool equal = false;
    std::jthread reader([&] {
      done.wait(false, std::memory_order_acquire);
      equal = destination == source;
    });
    copy_past_caches(destination.data(), source.data(), source.size());
    done.store(true, std::memory_order_release);
    done.notify_one();
    reader.join();
    ASSERT_TRUE(equal);
  }
}

}  // namespace
}  // namespace cuvmm::sleep
