// Functions with stacks of their own.
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "emulator/execution/fiber.hpp"
#include "execution_support.hpp"

namespace cuvmm::emulator::execution {
namespace {

using Names = std::vector<std::string>;

TEST(Fibers, TakeTurnsWithWhoResumesThem) {
  Names said;
  Fiber fiber([&](Fiber& self) {
    for (const char* const each : {"b", "d"}) {
      said.emplace_back(each);
      self.give_way();
    }
  });
  said.emplace_back("a");
  EXPECT_FALSE(fiber.resume());
  said.emplace_back("c");
  EXPECT_FALSE(fiber.resume());
  EXPECT_TRUE(fiber.resume());
  EXPECT_EQ(said, (Names{"a", "b", "c", "d"}));
}

TEST(Fibers, ThrowWhatLeavesTheirBody) {
  Fiber fiber([](Fiber& self) {
    self.give_way();
    try {
      throw std::runtime_error("inside");
    } catch (const std::runtime_error&) {
    }
    throw std::logic_error("outside");
  });
  EXPECT_FALSE(fiber.resume());
  EXPECT_THROW(fiber.resume(), std::logic_error);
}

TEST(Fibers, AreUnwoundWhereTheyStand) {
  const auto held = std::make_shared<int>(0);
  {
    Fiber begun([held](Fiber& self) {
      const auto on_its_stack = held;  // NOLINT(performance-unnecessary-copy-initialization): to be given back
      while (true) self.give_way();
    });
    const Fiber never_begun([held](Fiber&) { FAIL() << "nobody resumed it"; });
    Fiber ended([held](Fiber&) {});
    EXPECT_FALSE(begun.resume());
    EXPECT_TRUE(ended.resume());
    EXPECT_GT(held.use_count(), 4);
  }
  EXPECT_EQ(held.use_count(), 1);
}

// Also one that does not let the unwinding pass at once.
TEST(Fibers, CannotGiveWayOnceTheyAreUnwound) {
  int caught = 0;
  {
    Fiber stubborn([&](Fiber& self) {
      for (int count = 0; count < 3; ++count) {
        try {
          self.give_way();
        } catch (...) {
          ++caught;
        }
      }
    });
    EXPECT_FALSE(stubborn.resume());
  }
  EXPECT_EQ(caught, 3);
}

TEST(Fibers, GoOnInAnyThread) {
  int sum = 0;
  Fiber fiber([&](Fiber& self) {
    std::array<int, 1000> local{};
    for (int count = 0; count < 100; ++count) {
      local[static_cast<std::size_t>(count)] = count;
      sum += local[static_cast<std::size_t>(count)];
      self.give_way();
    }
  });
  for (int count = 0; count < 50; ++count) std::thread([&] { EXPECT_FALSE(fiber.resume()); }).join();
  for (int count = 0; count < 50; ++count) EXPECT_FALSE(fiber.resume());
  EXPECT_TRUE(fiber.resume());
  EXPECT_EQ(sum, 4950);
}

}  // namespace
}  // namespace cuvmm::emulator::execution
