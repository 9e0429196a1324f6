// Multicast objects that several processes share, each a rank with a device of its own.
#include <memory>
#include <vector>

#include "machine.hpp"

namespace cuvmm::tests {
namespace {

std::string words(std::initializer_list<std::uint64_t> numbers) {
  std::string text;
  for (const std::uint64_t each : numbers) text += " " + std::to_string(each);
  return text;
}

const std::string strict_mode = "mode=strict,";  // with which a machine's settings begin

// A process, its device, and what it has of the team's object.
struct Rank {
  Actor process;
  int device;
  std::uint64_t object = 0;
  std::uint64_t memory = 0;
  std::uint64_t own = 0;        // where its memory is
  std::uint64_t multicast = 0;  // where the object is

  Rank(const Machine& machine, int device_of_rank, const std::string& more = {}, bool strict = true)
      : process(machine,
                (strict ? "" : "mode=faithful,") + machine.settings().substr(strict ? 0 : strict_mode.size()) + more),
        device(device_of_rank) {
    process.init();
    (void)process.done("use" + words({number()}));
  }

  [[nodiscard]] std::uint64_t number() const { return static_cast<std::uint64_t>(device); }
  void create(std::uint64_t devices, int handle_types) {
    object = process.done("mc-create" + words({devices, chunk, static_cast<std::uint64_t>(handle_types)})).number();
  }
  void import_from(Rank& root) { object = process.import(root.process.export_descriptor(root.object)); }
  void add() { (void)process.done("mc-add" + words({object, number()})); }
  void allocate(int handle_types = descriptors) {
    memory = process.done("create" + words({chunk, static_cast<std::uint64_t>(handle_types), 1, number()})).number();
  }
  [[nodiscard]] std::string bind_words() const { return "mc-bind" + words({object, memory, 0, chunk}); }
  void bind() { (void)process.done(bind_words()); }
  void map() {
    own = process.done("map" + words({memory, chunk, number()})).number();
    multicast = process.done("map" + words({object, chunk, number()})).number();
  }
  void store(std::uint64_t value) { (void)process.done("mc-store" + words({multicast, value})); }
  [[nodiscard]] std::uint64_t sum() { return process.done("mc-sum" + words({multicast})).number(); }
  void unbind() { (void)process.done("mc-unbind" + words({object, number(), 0, chunk})); }
};

std::string with_devices(int count) {
  return "profile=h200-multicast,memory=2GiB,devices=" + std::to_string(count);
}

std::vector<std::unique_ptr<Rank>> ranks_on(const Machine& machine, int count, const std::string& more = {}) {
  std::vector<std::unique_ptr<Rank>> ranks;
  for (int device = 0; device < count; ++device) ranks.push_back(std::make_unique<Rank>(machine, device, more));
  ranks[0]->create(static_cast<std::uint64_t>(count), descriptors);
  for (int device = 1; device < count; ++device) ranks[static_cast<std::size_t>(device)]->import_from(*ranks[0]);
  return ranks;
}

TEST(MulticastProcesses, OneStoreReachesTheMemoryOfEveryRank) {
  for (const int count : {2, 4}) {
    const Machine machine(with_devices(count));
    auto ranks = ranks_on(machine, count);
    for (auto& rank : ranks) rank->add();
    for (auto& rank : ranks) {
      rank->allocate();
      rank->bind();
    }
    for (auto& rank : ranks) rank->map();
    for (auto& rank : ranks) {
      rank->store(rank->number() + 40);
      for (auto& reader : ranks) EXPECT_EQ(reader->process.read(reader->own), rank->device + 40);
    }
    for (auto& rank : ranks) rank->process.write(rank->own, rank->device + 1, 1);
    const auto expected = static_cast<std::uint64_t>(count * (count + 1) / 2);
    for (auto& rank : ranks) EXPECT_EQ(rank->sum() & 0xff, expected);
  }
}

TEST(MulticastProcesses, ABindWaitsUntilTheLastRankHasJoined) {
  const Machine machine(with_devices(2));
  auto ranks = ranks_on(machine, 2);
  ranks[0]->add();
  ranks[0]->allocate();
  ranks[0]->process.tell(ranks[0]->bind_words());
  // The broker serves others meanwhile.
  (void)ranks[1]->process.free_bytes();
  ranks[1]->allocate();
  ranks[1]->add();
  EXPECT_EQ(ranks[0]->process.answer().code, CUDA_SUCCESS);
  ranks[1]->bind();
}

// With the last one who could add its device goes the hope for it: nobody waits for the limit. (But with the thread
// sanitizer, whose own thread is one that might add it.)
TEST(MulticastProcesses, AWaitEndsWhenNobodyIsLeftWhoCouldJoin) {
  for (const bool killed : {true, false}) {
    const Machine machine(with_devices(2));
    auto ranks = ranks_on(machine, 2, ",multicast-wait=15000");
    ranks[0]->add();
    ranks[0]->allocate();
    ranks[0]->process.tell(ranks[0]->bind_words());
    if (killed)
      ranks[1]->process.kill();
    else
      ranks[1]->process.release(ranks[1]->object);
    EXPECT_EQ(ranks[0]->process.answer().code, CUDA_ERROR_TIMEOUT);
    const std::string why = ranks[0]->process.ask("explain").text;
    EXPECT_NE(why.find("MULTICAST-TEAM-COMPLETE"), std::string::npos) << why;
  }
}

TEST(MulticastProcesses, AWaitEndsWithItsLimit) {
  const Machine machine(with_devices(2));
  Rank root(machine, 0, ",multicast-wait=50"), other(machine, 1);
  root.create(2, descriptors);
  other.import_from(root);
  root.add();
  root.allocate();
  EXPECT_EQ(root.process.ask(root.bind_words()).code, CUDA_ERROR_TIMEOUT);
  const std::string why = root.process.ask("explain").text;
  EXPECT_NE(why.find("1 of the 2 devices were not added"), std::string::npos) << why;
  EXPECT_NE(why.find("50 ms of multicast-wait"), std::string::npos) << why;
  other.add();
  root.bind();
}

// An exported descriptor may be on its way to somebody who adds its device.
TEST(MulticastProcesses, AnOpenDescriptorIsAHope) {
  const Machine machine(with_devices(2));
  Rank root(machine, 0, ",multicast-wait=50");
  root.create(2, descriptors);
  root.add();
  root.allocate();
  {
    const FileDescriptor exported = root.process.export_descriptor(root.object);
    EXPECT_EQ(root.process.ask(root.bind_words()).code, CUDA_ERROR_TIMEOUT);
    EXPECT_NE(root.process.ask("explain").text.find("50 ms of multicast-wait"), std::string::npos);
  }
  EXPECT_EQ(root.process.ask(root.bind_words()).code, CUDA_ERROR_TIMEOUT);
}

TEST(MulticastProcesses, WhatADeadRankBoundStaysForTheOthers) {
  const Machine machine(with_devices(2));
  auto ranks = ranks_on(machine, 2);
  const std::uint64_t all = ranks[1]->process.free_bytes();
  for (auto& rank : ranks) rank->add();
  for (auto& rank : ranks) {
    rank->allocate();
    rank->bind();
    rank->map();
  }
  ranks[1]->store(5);
  ranks[1]->process.kill();
  EXPECT_EQ(ranks[0]->sum(), 10U);
  Actor looker(machine);
  looker.init();
  (void)looker.done("use 1");
  EXPECT_EQ(looker.free_bytes(), all - chunk);
  ranks[0]->process.kill();
  EXPECT_TRUE(becomes_true([&] { return looker.free_bytes() == all; })) << "the object has gone, and all with it";
}

TEST(MulticastProcesses, TeardownGivesEverythingBack) {
  const Machine machine(with_devices(2));
  auto ranks = ranks_on(machine, 2);
  const std::uint64_t all = ranks[0]->process.free_bytes();
  for (int round = 0; round < 20; ++round) {
    if (round > 0) {
      ranks[0]->create(2, descriptors);
      ranks[1]->import_from(*ranks[0]);
    }
    for (auto& rank : ranks) rank->add();
    for (auto& rank : ranks) {
      rank->allocate();
      rank->bind();
    }
    for (auto& rank : ranks) rank->unbind();
    for (auto& rank : ranks) {
      rank->process.release(rank->object);
      rank->process.release(rank->memory);
    }
    ASSERT_EQ(ranks[0]->process.free_bytes(), all);
  }
}

TEST(MulticastProcesses, MemoryIsUnboundBeforeItGoes) {
  const Machine machine(with_devices(1));
  Rank rank(machine, 0);
  rank.create(1, descriptors);
  rank.add();
  rank.allocate();
  rank.bind();
  EXPECT_EQ(rank.process.ask("release " + std::to_string(rank.memory)).code, CUDA_ERROR_INVALID_VALUE);
  rank.unbind();
  rank.process.release(rank.memory);
}

TEST(MulticastProcesses, SlotsAreTheMachines) {
  const Machine machine(with_devices(1) + ",multicast-slots=1");
  Rank one(machine, 0), other(machine, 0);
  for (Rank* const rank : {&one, &other}) {
    rank->create(1, descriptors);
    rank->add();
    rank->allocate();
  }
  one.bind();
  EXPECT_EQ(other.process.ask(other.bind_words()).code, CUDA_ERROR_OUT_OF_MEMORY);
  one.process.kill();
  EXPECT_TRUE(becomes_true([&] { return other.process.ask(other.bind_words()).code == CUDA_SUCCESS; }));
}

TEST(MulticastProcesses, FailuresAreARanksOwn) {
  const Machine machine(with_devices(2));
  Rank root(machine, 0),
      other(machine, 1, ",multicast-bind-fails=1:not-ready:2,multicast-bind-fails=1:illegal-state:1");
  root.create(2, descriptors);
  other.import_from(root);
  for (Rank* const rank : {&root, &other}) {
    rank->add();
    rank->allocate();
  }
  root.bind();
  EXPECT_EQ(other.process.ask(other.bind_words()).code, CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_EQ(other.process.ask(other.bind_words()).code, CUDA_ERROR_SYSTEM_NOT_READY);
  EXPECT_EQ(other.process.ask(other.bind_words()).code, CUDA_ERROR_ILLEGAL_STATE);
  other.bind();
}

TEST(MulticastProcesses, TeamsReachAcrossNodes) {
  const Machine machine("profile=h200-multicast,memory=2GiB,nodes=2,imex-channels=1");
  Rank here(machine, 0), there(machine, 0, ",node=1");
  here.create(2, fabric);
  EXPECT_EQ(there.process.ask("import", -1).code, CUDA_ERROR_UNKNOWN);
  there.object = there.process.done("import-fabric " + here.process.export_fabric(here.object)).number();
  for (Rank* const rank : {&here, &there}) {
    rank->add();
    rank->allocate(fabric);
  }
  for (Rank* const rank : {&here, &there}) {
    rank->bind();
    rank->map();
  }
  here.store(77);
  EXPECT_EQ(there.process.read(there.own), 77);
  EXPECT_EQ(here.process.read(here.own), 77);
  EXPECT_EQ(there.sum(), 154U);
}

// Without fabric handles a team cannot have more devices than a node: nobody waits for the rest.
TEST(MulticastProcesses, ATeamBeyondTheReachOfItsHandlesIsRefusedAtOnce) {
  const Machine machine("profile=h200-multicast,memory=2GiB,nodes=2,imex-channels=1");
  Rank here(machine, 0), there(machine, 0);
  here.create(2, descriptors);
  there.import_from(here);
  here.add();
  here.allocate();
  EXPECT_EQ(here.process.ask(here.bind_words()).code, CUDA_ERROR_TIMEOUT);
  EXPECT_NE(here.process.ask("explain").text.find("only 1 are in the object's reach"), std::string::npos);
}

TEST(MulticastProcesses, AFabricHandleKeepsNothing) {
  const Machine machine("profile=h200-multicast,memory=2GiB,nodes=2,imex-channels=1");
  Rank root(machine, 0), strict(machine, 0, ",node=1"), faithful(machine, 0, ",node=1", false);
  root.create(1, fabric);
  root.add();
  const std::string handle = root.process.export_fabric(root.object);
  root.process.release(root.object);
  EXPECT_EQ(strict.process.ask("import-fabric " + handle).code, CUDA_ERROR_INVALID_VALUE);
  faithful.object = faithful.process.done("import-fabric " + handle).number();
  EXPECT_NE(faithful.process.errors().find("MULTICAST-KEEP-UNTIL-IMPORTED"), std::string::npos);
  faithful.add();  // the new object is empty
  strict.object = strict.process.done("import-fabric " + handle).number();
  EXPECT_EQ(strict.process.ask("mc-add" + words({strict.object, 0})).code, CUDA_ERROR_INVALID_VALUE)
      << "and the same for all who import the handle from now on";
}

}  // namespace
}  // namespace cuvmm::tests
