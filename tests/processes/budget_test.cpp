// Memory that several processes share out among themselves, each by ranges of the library.
#include "range_on_machine.hpp"

namespace cuvmm {
namespace {

using namespace tests;

constexpr std::size_t wanted = 40_MiB;
constexpr int rounds = 25;

// Asks for more than half of what there is, in many chunks, again and again. A request that is served in part only has
// to leave nothing. Counts those that were served.
int take_and_give_back(std::atomic<int>& served) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  auto range = MappedRange::create(driver, {.capacity = 64_MiB, .chunks = ChunkPolicy::fixed(2_MiB)});
  for (int round = 0; round < rounds; ++round) {
    const auto taken = range.try_append(wanted);
    if (taken) {
      ++served;
      range.truncate(0);
    } else if (taken.failure().kind != ErrorKind::out_of_device_memory) {
      return 1;
    }
    if (range.size() != 0 || !range.chunks().empty()) return 2;
  }
  return 0;
}

// That memory is free says nothing about the next moment: what is asked for is taken as a whole, or given back.
TEST(SharedBudget, C43_WhoGetsPartOfWhatItAskedForGivesAllBack) {
  const Machine machine("memory=590MiB");
  Actor observer(machine);
  observer.init();
  const std::uint64_t all = observer.free_bytes();
  ASSERT_GE(all, wanted);
  ASSERT_LT(all, 2 * wanted);
  SharedState<std::atomic<int>> served;
  std::vector<ChildProcess> processes;
  processes.reserve(4);
  for (int index = 0; index < 4; ++index)
    processes.emplace_back([&] {
      use_machine(machine.settings());
      return take_and_give_back(*served.operator->());
    });
  for (ChildProcess& each : processes) EXPECT_EQ(each.wait(), 0);
  EXPECT_TRUE(becomes_true([&] { return observer.free_bytes() == all; }));
  // Nobody is in the way any more.
  served->store(0);
  ChildProcess alone([&] {
    use_machine(machine.settings());
    return take_and_give_back(*served.operator->());
  });
  EXPECT_EQ(alone.wait(), 0);
  EXPECT_EQ(served->load(), rounds);
}

}  // namespace
}  // namespace cuvmm
