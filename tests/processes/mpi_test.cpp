// What MPI ranks do together. Every rank runs all tests: mpirun -n 4.
#include <gtest/gtest.h>
#include <mpi.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include "../no_switches.hpp"
#include "cuvmm/cuvmm.hpp"
#include "cuvmm/team/mpi_bootstrap.hpp"
#include "cuvmm/team/teams.hpp"

namespace cuvmm::team {
namespace {

using namespace std::chrono_literals;

Deadline soon() {
  return Deadline::in(120s);
}

Bytes bytes_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string text_in(const Bytes& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <class T>
void expect_failure(const Result<T>& result, ErrorKind kind, const std::string& word) {
  ASSERT_FALSE(result);
  EXPECT_EQ(result.failure().kind, kind) << result.failure().message();
  EXPECT_NE(result.failure().message().find(word), std::string::npos) << result.failure().message();
}

TEST(MpiBootstrap, GathersWhatEachRankHasGiven) {
  const auto bootstrap = MpiBootstrap::world(soon());
  ASSERT_EQ(bootstrap->size(), 4);
  for (int round = 0; round < 50; ++round) {
    const auto mine = bytes_of(std::string(static_cast<std::size_t>(bootstrap->rank() * round * 100), 'm'));
    const auto all = bootstrap->allgather("round", mine, soon());
    for (std::size_t rank = 0; rank < 4; ++rank)
      EXPECT_EQ(all[rank].size(), rank * static_cast<std::size_t>(round) * 100);
    bootstrap->barrier("round", soon());
  }
}

TEST(MpiBootstrap, OneRefusalIsTheVerdictOfAll) {
  const auto bootstrap = MpiBootstrap::world(soon());
  Failure broken;
  broken.call = "cuMemCreate";
  broken.rule = "something broke";
  const auto mine = bootstrap->rank() == 3 ? Result<void>(broken) : Result<void>();
  expect_failure(try_vote(*bootstrap, "create", mine, soon()), ErrorKind::driver_failure, "rank 3 (process");
  vote(*bootstrap, "create again", {}, soon());
}

TEST(MpiBootstrap, ALateRankIsNamedAndANewTeamCanBeFormed) {
  const auto bootstrap = MpiBootstrap::world(soon());
  bootstrap->barrier("begin", soon());
  if (bootstrap->rank() == 2) {
    std::this_thread::sleep_for(1500ms);
    expect_failure(try_vote(*bootstrap, "late", {}, Deadline::in(500ms)), ErrorKind::timed_out, "before the deadline");
  } else {
    expect_failure(try_vote(*bootstrap, "late", {}, Deadline::in(700ms)), ErrorKind::timed_out, "rank 2");
  }
  expect_failure(bootstrap->try_barrier("after", soon()), ErrorKind::timed_out, "deadline");
  MpiBootstrap::world(soon())->barrier("again", soon());
}

TEST(MpiBootstrap, RanksOutOfStepAreRefused) {
  const auto bootstrap = MpiBootstrap::world(soon());
  const auto result = bootstrap->try_barrier(bootstrap->rank() == 1 ? "left" : "right", soon());
  expect_failure(result, ErrorKind::invalid_use, "another step than");
}

TEST(MpiBootstrap, IsMadeOfAnyCommunicator) {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
  {
    const auto bootstrap = MpiBootstrap::of(MPI_Comm_c2f(half), soon());
    EXPECT_EQ(bootstrap->size(), 2);
    EXPECT_EQ(bootstrap->rank(), rank / 2);
    bootstrap->barrier("half", soon());
  }
  MPI_Comm_free(&half);
}

// Two ranks on each of two nodes of an emulated machine, which is in a directory that rank 0 makes.
void share_memory(const std::string& profile, Multicast multicast) {
  auto bootstrap = MpiBootstrap::world(soon());
  const int rank = bootstrap->rank();
  std::string pattern = "/tmp/cuvmm-mpi-" + std::string(6, 'X');
  const std::string made = rank == 0 ? std::string(::mkdtemp(pattern.data())) : std::string();
  const std::string folder = text_in(bootstrap->allgather("folder", bytes_of(made), soon())[0]);
  ::setenv("CUVMM_EMULATOR",
           ("mode=strict," + profile + ",memory=2GiB,nodes=2,devices=2,machine=" + folder +
            "/machine,node=" + std::to_string(rank / 2))
               .c_str(),
           1);
  {
    const Driver driver = Driver::emulated();
    const Device device = driver.device(DeviceOrdinal(rank % 2));
    const CurrentContext context(device);
    const auto team = Team::assemble(std::move(bootstrap), device, soon());
    auto memory = SymmetricMemory::create(team, 1_MiB, {.capacity = 8_MiB, .multicast = multicast}, soon());
    EXPECT_EQ(memory.grow(4_MiB, soon()), 1_MiB);
    EXPECT_EQ(memory.multicast_size(), multicast == Multicast::never ? 0 : 5_MiB);
    copy_to_device(memory.range(), memory.offset_in_range(rank, 5_MiB - 20), "rank " + std::to_string(rank));
    team->vote("stored", {}, soon());
    for (int other = 0; other < 4; ++other) {
      std::string text(6, ' ');
      copy_from_device(text, memory.range(), memory.offset_in_range(other, 5_MiB - 20));
      EXPECT_EQ(text, "rank " + std::to_string(other));
    }
    memory.close(soon());
  }
  MPI_Barrier(MPI_COMM_WORLD);
  while (rank == 0 && std::filesystem::exists(folder + "/machine")) std::this_thread::sleep_for(10ms);
  if (rank == 0) std::filesystem::remove_all(folder);
}

TEST(TeamOfMpi, SharesMemoryWithinAndBetweenNodes) {
  share_memory("profile=gb200", Multicast::never);
}

TEST(TeamOfMpi, HasAMulticastAddressForAllNodes) {
  if (!CUVMM_RESOLVE_MULTICAST) GTEST_SKIP() << "this build leaves multicast out";
  const test::NoSwitches no_switches{};
  share_memory("profile=h200-multicast,imex-channels=1", Multicast::required);
}

}  // namespace
}  // namespace cuvmm::team

int main(int count, char** arguments) {
  testing::InitGoogleTest(&count, arguments);
  try {
    static_cast<void>(cuvmm::team::MpiBootstrap::world(cuvmm::team::Deadline::in(std::chrono::seconds(1))));
    std::fprintf(stderr, "a bootstrap was made before MPI was initialised\n");
    return 1;
  } catch (const cuvmm::InvalidUse&) {
  }
  MPI_Init(&count, &arguments);
  const int result = RUN_ALL_TESTS();
  MPI_Finalize();
  return result;
}
