#include "cuvmm/team/collectives.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "../../no_switches.hpp"
#include "driver/call.hpp"
#include "team_machine.hpp"

namespace cuvmm::team {
namespace {

using namespace test;
using driver::call;
using driver::EntryPoint;

CollectivesOptions small_room() {
  return {.blocks = 4, .lines_per_block = 64, .staging_bytes = 4096, .time_limit = std::chrono::seconds(120)};
}

template <class T>
void put(const SymmetricMemory& memory, std::size_t offset, const std::vector<T>& content) {
  copy_to_device(memory.range(), memory.offset_in_range(memory.team()->rank(), offset), content);
}
template <class T>
std::vector<T> get(const SymmetricMemory& memory, std::size_t offset, std::size_t count) {
  std::vector<T> content(count);
  copy_from_device(content, memory.range(), memory.offset_in_range(memory.team()->rank(), offset));
  return content;
}

class OwnStream {
 public:
  explicit OwnStream(const Device& device) : api_(device.driver().interface()) {
    call<EntryPoint::cuStreamCreate>(api_, &stream_, abi::CU_STREAM_NON_BLOCKING);
  }
  ~OwnStream() { static_cast<void>(driver::try_call<EntryPoint::cuStreamDestroy>(api_, stream_)); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  OwnStream(OwnStream&&) = delete;
  OwnStream& operator=(OwnStream&&) = delete;
  [[nodiscard]] abi::CUstream get() const { return stream_; }

 private:
  driver::Interface& api_;
  abi::CUstream stream_ = nullptr;
};

// All of them, each in the place of what the last one made; rank r has the numbers r + 1, r + 1, ...
void use_all(const std::shared_ptr<Team>& team) {
  const auto ranks = static_cast<std::uint32_t>(team->size());
  const auto rank = static_cast<std::uint32_t>(team->rank());
  const OwnStream stream(team->device());
  auto memory = SymmetricMemory::create(team, 64_KiB, {}, soon());
  auto collectives = Collectives::create(team, small_room(), soon());
  constexpr std::size_t count = 1000;
  const std::uint32_t sum = ranks * (ranks + 1) / 2;
  put(memory, 0, std::vector<std::uint32_t>(count, rank + 1));
  put(memory, 8192, std::vector<gpu::bfloat16>(count, gpu::bfloat16::from(static_cast<float>(rank + 1))));
  team->vote("written", {}, soon());

  collectives.all_reduce<std::uint32_t>(stream.get(), {memory, 0}, {memory, 4096}, count);
  for (const gpu::AllReduceWay way : {gpu::AllReduceWay::flagged, gpu::AllReduceWay::two_shot})
    collectives.all_reduce<gpu::bfloat16>(stream.get(), {memory, 8192}, {memory, 8192}, 100, AllReducePlan{way, 2, 64});
  collectives.barrier(stream.get());
  collectives.broadcast(stream.get(), team->size() - 1, {memory, 1}, {memory, 16384}, 333);
  collectives.all_gather(stream.get(), {memory, 4}, {memory, 20480}, 5);
  EXPECT_EQ(collectives.missing(), 0U);
  EXPECT_EQ(get<std::uint32_t>(memory, 4096, count), std::vector<std::uint32_t>(count, sum));
  const auto twice = get<gpu::bfloat16>(memory, 8192, 101);
  EXPECT_EQ(twice[0].to_float(), static_cast<float>(sum * ranks));
  EXPECT_EQ(twice[100].to_float(), static_cast<float>(rank + 1));
  auto numbers = get<std::uint8_t>(memory, 16384, 334);
  EXPECT_EQ(numbers[3], ranks);
  EXPECT_EQ(numbers[333], 0);
  for (std::uint32_t each = 0; each < ranks; ++each)
    EXPECT_EQ(get<std::uint8_t>(memory, 20480 + 5 * each, 1)[0], each + 1);
  collectives.close(soon());
  memory.close(soon());
}

TEST(Collectives, OfAllRanksOverSymmetricMemory) {
  for (const int ranks : {1, 2, 3, 8}) {
    TeamMachine machine(ranks);
    machine.run(use_all);
    EXPECT_TRUE(machine.nothing_live());
  }
}

TEST(Collectives, RefuseArgumentsBeforeTheDriverIsAsked) {
  TeamMachine machine(2);
  machine.run([&](const std::shared_ptr<Team>& team) {
    const int rank = team->rank();
    auto other_options = small_room();
    other_options.blocks += static_cast<std::uint32_t>(rank);
    expect_failure(Collectives::try_create(team, other_options, soon()), ErrorKind::invalid_use, {"options", "rank 1"});
    other_options.blocks = 0;
    expect_failure(Collectives::try_create(team, other_options, soon()), ErrorKind::invalid_use, {"blocks = 0"});
    auto memory = SymmetricMemory::create(team, 4096, {}, soon());
    auto collectives = Collectives::create(team, small_room(), soon());
    const auto launches = [&] { return machine.calls(rank)[EntryPoint::cuLaunchKernel]; };
    const auto before = launches();
    const SymmetricBytes all{memory, 0}, half{memory, 2048};
    using Way = gpu::AllReduceWay;
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, all, all, 1025), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, half, half, 513), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, all, all, SIZE_MAX), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, {memory, 2}, all, 8), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, all, all, 8, AllReducePlan{Way::one_shot, 1, 32}), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, all, all, 8, AllReducePlan{Way::two_shot, 5, 32}), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, all, all, 8, AllReducePlan{Way::multimem_two_shot, 1, 32}),
                 InvalidUse);
    EXPECT_THROW(collectives.broadcast(nullptr, 2, all, all, 8), InvalidUse);
    EXPECT_THROW(collectives.broadcast(nullptr, -1, all, all, 8), InvalidUse);
    EXPECT_THROW(collectives.all_gather(nullptr, all, half, 1025), InvalidUse);
    EXPECT_THROW(collectives.barrier(nullptr, true), InvalidUse);
    EXPECT_EQ(launches(), before);
    collectives.all_reduce<float>(nullptr, half, half, 512);
    collectives.all_reduce<float>(nullptr, all, half, 8, AllReducePlan{Way::one_shot, 1, 32});
    collectives.broadcast(nullptr, 1, all, all, 8);
    collectives.all_gather(nullptr, all, half, 1024);
    EXPECT_EQ(launches(), before + 4);
    EXPECT_EQ(collectives.missing(), 0U);
    collectives.close(soon());
    expect_failure(collectives.try_close(soon()), ErrorKind::invalid_use, {"owns nothing"});
    EXPECT_THROW(collectives.barrier(nullptr), InvalidUse);
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(Collectives, RefuseOptionsWithWhichSizesRunOverOrWaitsDoNotEnd) {
  expect_failure(Collectives::try_create(nullptr, {}, soon()), ErrorKind::invalid_use, {"team"});
  TeamMachine machine(2);
  machine.run([&](const std::shared_ptr<Team>& team) {
    const auto refused = [&](auto change, const std::string& word) {
      auto options = small_room();
      change(options);
      expect_failure(Collectives::try_create(team, options, soon()), ErrorKind::invalid_use, {word});
    };
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{15}, std::size_t{24}, SIZE_MAX, SIZE_MAX / 2 - 14})
      refused([&](auto& options) { options.staging_bytes = bytes; }, "staging_bytes");
    for (const std::uint32_t count : {0U, 65'536U, 1U << 28})
      refused([&](auto& options) { options.blocks = count; }, "blocks");
    for (const std::uint32_t count : {0U, 1U << 31})
      refused([&](auto& options) { options.lines_per_block = count; }, "lines");
    for (const int limit : {0, -1})
      refused([&](auto& options) { options.time_limit = std::chrono::nanoseconds(limit); }, "time_limit");
    auto options = small_room();
    options.staging_bytes = 16;
    Collectives::create(team, options, soon()).close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

TEST(Collectives, RefuseMemoryOfAnotherTeam) {
  TeamMachine machine(2);
  machine.run([&](const std::shared_ptr<Team>& team) {
    auto own = SymmetricMemory::create(team, 4096, {}, soon());
    auto collectives = Collectives::create(team, small_room(), soon());
    auto alone = SocketBootstrap::within_process(1);
    const auto other = Team::assemble(std::move(alone.front()), team->device(), soon());
    auto foreign = SymmetricMemory::create(other, 4096, {}, soon());
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, {foreign}, {own}, 8), InvalidUse);
    EXPECT_THROW(collectives.all_reduce<float>(nullptr, {own}, {foreign}, 8), InvalidUse);
    EXPECT_THROW(collectives.broadcast(nullptr, 0, {foreign}, {own}, 8), InvalidUse);
    EXPECT_THROW(collectives.all_gather(nullptr, {own}, {foreign}, 8), InvalidUse);
    collectives.all_reduce<float>(nullptr, {own}, {own}, 8);
    EXPECT_EQ(collectives.missing(), 0U);
    foreign.close(soon());
    collectives.close(soon());
    own.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

// The kernels stay loaded although nobody else holds the device's primary context.
TEST(Collectives, NeedNoContextOfTheCallers) {
  TeamMachine machine(2);
  run_team(2, [&](std::unique_ptr<SocketBootstrap> bootstrap) {
    const int rank = bootstrap->rank();
    const auto team = Team::assemble(std::move(bootstrap), machine.device(rank), soon());
    auto memory = SymmetricMemory::create(team, 4096, {}, soon());
    auto collectives = Collectives::create(team, small_room(), soon());
    collectives.all_reduce<float>(nullptr, {memory}, {memory}, 8);
    EXPECT_EQ(collectives.missing(), 0U);
    collectives.close(soon());
    memory.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

// The call ends, and says who was missing; destruction waits for no rank.
TEST(Collectives, NameARankThatDoesNotCome) {
  TeamMachine machine(3);
  machine.run([](const std::shared_ptr<Team>& team) {
    auto options = small_room();
    options.time_limit = std::chrono::milliseconds(2);
    auto collectives = Collectives::create(team, options, soon());
    if (team->rank() == 1) collectives.barrier(nullptr);
    EXPECT_EQ(collectives.missing(), team->rank() == 1 ? 0b101U : 0U);
    team->vote("seen", {}, soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

// All of them by multimem, where the memory of both lies behind multicast addresses.
void use_all_by_multicast(const std::shared_ptr<Team>& team) {
  const auto ranks = static_cast<std::uint32_t>(team->size());
  const auto rank = static_cast<std::uint32_t>(team->rank());
  auto options = small_room();
  options.multicast = Multicast::required;
  auto memory = SymmetricMemory::create(team, 2_MiB, {.multicast = Multicast::required}, soon());
  auto collectives = Collectives::create(team, options, soon());
  EXPECT_TRUE(collectives.can_meet_by_multicast());
  put(memory, 0, std::vector<float>(64, static_cast<float>(rank + 1)));
  team->vote("written", {}, soon());
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  collectives.all_reduce<float>(nullptr, {memory, 0}, {memory, 1024}, 64,
                                AllReducePlan{gpu::AllReduceWay::multimem_one_shot, 2, 32});
  collectives.all_reduce<float>(nullptr, {memory, 1024}, {memory, 1024}, 64,
                                AllReducePlan{gpu::AllReduceWay::multimem_two_shot, 2, 32});
  collectives.broadcast(nullptr, team->size() - 1, {memory, 0}, {memory, 2048}, 100, true);
  collectives.all_gather(nullptr, {memory, 0}, {memory, 4096}, 4, true);
  collectives.barrier(nullptr, true);
  EXPECT_EQ(collectives.missing(), 0U);
  EXPECT_EQ(get<float>(memory, 1024, 64), std::vector<float>(64, sum * static_cast<float>(ranks)));
  EXPECT_EQ(get<float>(memory, 2048, 25), std::vector<float>(25, static_cast<float>(ranks)));
  for (std::uint32_t each = 0; each < ranks; ++each)
    EXPECT_EQ(get<float>(memory, 4096 + 4 * each, 1)[0], static_cast<float>(each + 1));
  collectives.close(soon());
  memory.close(soon());
}

TEST(Collectives, GoByMulticastWhereAllMemoryHasIt) {
  const NoSwitches none{};
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  for (const int ranks : {1, 2, 4}) {
    TeamMachine machine(ranks, cuvmm::test::machine("h200-multicast", ranks));
    machine.run(use_all_by_multicast);
    EXPECT_TRUE(machine.nothing_live());
  }
}

TEST(Collectives, RefuseMulticastWhereEitherMemoryHasNone) {
  const NoSwitches none{};
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  TeamMachine machine(2, cuvmm::test::machine("h200-multicast", 2));
  machine.run([&](const std::shared_ptr<Team>& team) {
    auto with = SymmetricMemory::create(team, 2_MiB, {.multicast = Multicast::required}, soon());
    auto without = SymmetricMemory::create(team, 2_MiB, {}, soon());
    auto options = small_room();
    auto plain = Collectives::create(team, options, soon());
    options.multicast = Multicast::if_possible;
    auto able = Collectives::create(team, options, soon());
    EXPECT_FALSE(plain.can_meet_by_multicast());
    const auto launches = [&] { return machine.calls(team->rank())[EntryPoint::cuLaunchKernel]; };
    const auto before = launches();
    const AllReducePlan plan{gpu::AllReduceWay::multimem_two_shot, 1, 32};
    EXPECT_THROW(plain.all_reduce<float>(nullptr, {with}, {with}, 8, plan), InvalidUse);
    EXPECT_THROW(able.all_reduce<float>(nullptr, {without}, {with}, 8, plan), InvalidUse);
    EXPECT_THROW(able.all_reduce<float>(nullptr, {with}, {without}, 8, plan), InvalidUse);
    EXPECT_THROW(able.broadcast(nullptr, 0, {with}, {without}, 8, true), InvalidUse);
    EXPECT_THROW(able.all_gather(nullptr, {with}, {without}, 8, true), InvalidUse);
    EXPECT_THROW(plain.barrier(nullptr, true), InvalidUse);
    EXPECT_EQ(launches(), before);
    able.all_reduce<float>(nullptr, {with}, {with}, 8, plan);
    EXPECT_EQ(able.missing(), 0U);
    able.close(soon());
    plain.close(soon());
    without.close(soon());
    with.close(soon());
  });
  EXPECT_TRUE(machine.nothing_live());
}

}  // namespace
}  // namespace cuvmm::team
