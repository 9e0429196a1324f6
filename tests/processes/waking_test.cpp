// Memory that sleeps in one process, and that another one takes meanwhile.
#include <cstring>

#include "range_on_machine.hpp"

namespace cuvmm {
namespace {

using namespace tests;

constexpr std::size_t chunk = 6_MiB;
constexpr std::size_t chunks = 8;

struct Stage {
  std::atomic<bool> asleep = false;
  std::atomic<bool> taken = false;
  std::atomic<bool> refused = false;
  std::atomic<bool> given_back = false;
};

MappedRange range_of(const Driver& driver, std::size_t count) {
  auto range = MappedRange::create(driver, {.capacity = 64_MiB, .chunks = ChunkPolicy::fixed(chunk)});
  range.append(count * chunk);
  return range;
}

// Answers which step went wrong, or 0.
int sleep_and_wake(Stage& stage, SleepingContent kind) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  auto memory = SleepableMemory::create(driver, {.staging_bytes = 1_MiB, .copy_threads = 2});
  auto range = memory.add("group", range_of(driver, chunks), {.content = kind});
  std::vector<std::byte> content(chunks * chunk);
  for (std::size_t i = 0; i < content.size(); ++i) content[i] = static_cast<std::byte>(i / 4096 + i);
  copy_bytes_to_device(range.range(), 0, content);
  memory.sleep("group");
  stage.asleep = true;
  wait_until([&] { return stage.taken.load(); });
  const std::vector<std::string> tags{"group"};
  const auto refused = memory.try_wake(tags);
  if (refused || refused.failure().kind != ErrorKind::out_of_device_memory) return 1;
  if (memory.state("group") != GroupState::asleep || memory.holdings().awake_bytes != 0) return 2;
  stage.refused = true;
  wait_until([&] { return stage.given_back.load(); });
  if (memory.wake("group").bytes_restored != content.size()) return 3;
  std::vector<std::byte> seen(content.size());
  copy_bytes_from_device(seen, range.range(), 0);
  return std::memcmp(seen.data(), content.data(), seen.size()) == 0 ? 0 : 4;
}

// Leaves room for four chunks. What a waking that failed halfway held, it would not get.
int take_meanwhile(Stage& stage) {
  const Driver driver = Driver::emulated();
  const CurrentContext context(driver.device(DeviceOrdinal(0)));
  wait_until([&] { return stage.asleep.load(); });
  {
    const auto taken = range_of(driver, chunks / 2);
    stage.taken = true;
    wait_until([&] { return stage.refused.load(); });
    const auto rest = range_of(driver, chunks / 2);
  }
  stage.given_back = true;
  return 0;
}

TEST(WakingBesideOthers, C06_WhoFindsTheMemoryTakenHoldsNothingAndWakesLaterWithItsContent) {
  for (const SleepingContent kind : {SleepingContent::pinned, SleepingContent::pageable}) {
    const Machine machine("memory=580MiB");
    Actor observer(machine);
    observer.init();
    const std::uint64_t all = observer.free_bytes();
    ASSERT_GE(all, chunks * chunk);
    ASSERT_LT(all, chunks * chunk + chunk) << "the fifth chunk of the one finds nothing beside four of the other";
    SharedState<Stage> stage;
    ChildProcess sleeper([&] {
      use_machine(machine.settings());
      return sleep_and_wake(*stage.operator->(), kind);
    });
    ChildProcess other([&] {
      use_machine(machine.settings());
      return take_meanwhile(*stage.operator->());
    });
    EXPECT_EQ(other.wait(), 0);
    EXPECT_EQ(sleeper.wait(), 0) << to_string(kind);
    EXPECT_TRUE(becomes_true([&] { return observer.free_bytes() == all; }));
  }
}

}  // namespace
}  // namespace cuvmm
