// Ranks of one node that read each other's device memory. Each is started with RANK and WORLD_SIZE in its environment,
// as by torchrun, and with the name of the job:
//
//   RANK=0 WORLD_SIZE=2 symmetric_memory job & RANK=1 WORLD_SIZE=2 symmetric_memory job; wait
//
// Without a GPU: CUVMM_DRIVER=emulated CUVMM_EMULATOR=machine=NAME,devices=2 for all ranks.
#include <cuvmm/cuvmm.hpp>
#include <cuvmm/team/teams.hpp>
#include <iostream>
#include <string>

namespace team = cuvmm::team;
using namespace std::chrono_literals;

int main(int count, char** arguments) try {
  if (count != 2) {
    std::cerr << "usage: RANK=R WORLD_SIZE=N symmetric_memory NAME_OF_THE_JOB\n";
    return 2;
  }
  const auto driver = cuvmm::Driver::open();
  const auto member = team::SocketTeam::from_environment(arguments[1]);
  const auto device = driver.device(cuvmm::DeviceOrdinal{member.rank % driver.device_count()});
  const cuvmm::CurrentContext context(device);

  // All ranks meet, or each says which one has not come.
  auto ranks = team::Team::assemble(team::SocketBootstrap::join(member, team::Deadline::in(60s)), device,
                                    team::Deadline::in(60s));
  auto memory = team::SymmetricMemory::create(ranks, 1000, {.capacity = 1 << 20}, team::Deadline::in(60s));

  // An offset is the same on all ranks; each stores into its own part, and reads all others'.
  const std::size_t offset = memory.grow(1000, team::Deadline::in(60s));
  const std::string mine = "bytes of rank " + std::to_string(ranks->rank()) + '\n';
  cuvmm::copy_to_device(memory.range(), memory.offset_in_range(ranks->rank(), offset), mine);
  ranks->vote("all have stored", {}, team::Deadline::in(60s));
  for (int rank = 0; rank < ranks->size(); ++rank) {
    std::string theirs(mine.size(), ' ');
    cuvmm::copy_from_device(theirs, memory.range(), memory.offset_in_range(rank, offset));
    if (ranks->rank() == 0) std::cout << theirs;
  }
  memory.close(team::Deadline::in(60s));
} catch (const cuvmm::Error& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
