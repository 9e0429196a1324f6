// cuvmm_mpi_tour: stop 4.16.4.4 of the tour by ranks that MPI has started, as in
//   mpirun -n 4 cuvmm_mpi_tour FILE
// A program of its own, so that nothing else of cuvmm needs MPI.
#include <fmt/core.h>
#include <mpi.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "command/driver_choice.hpp"
#include "command/words.hpp"
#include "cuvmm/team/mpi_bootstrap.hpp"
#include "emulator/broker/machine_directory.hpp"
#include "tour/content_checksum.hpp"
#include "tour/emulated_machine.hpp"
#include "tour/rank_work.hpp"
#include "tour/stop.hpp"
#include "tour/team_memory.hpp"

namespace {

using namespace cuvmm;

constexpr int failed = 1;
constexpr int misuse = 2;
constexpr std::size_t bytes_of_rank = std::size_t{4} << 20;  // behind the multicast object

struct Options {
  std::string file;
  command::DriverChoice driver = command::DriverChoice::automatic;
  int nodes = 1;  // of the emulated machine
};

team::Deadline in_time() {
  return team::Deadline::in(std::chrono::minutes(1));
}

// What rank 0 says, on all ranks.
std::string told_by_first(team::Bootstrap& bootstrap, const std::string& mine) {
  const auto said = bootstrap.allgather("a machine for all ranks", std::as_bytes(std::span(mine)), in_time());
  return {reinterpret_cast<const char*>(said.front().data()), said.front().size()};
}

// How many ranks before this one share its host's memory, and so its GPUs.
int rank_on_host() {
  MPI_Comm host = MPI_COMM_NULL;
  int rank = 0;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_rank(host, &rank);
  MPI_Comm_free(&host);
  return rank;
}

// Where a rank works: on a GPU of its host, or on a device of an emulated machine that all ranks share.
struct Place {
  Driver driver;
  DeviceOrdinal device;
};

bool is_emulated(command::DriverChoice choice) {
  if (choice != command::DriverChoice::automatic) return choice == command::DriverChoice::emulated;
  return command::open_driver(choice, 1).driver.is_emulated();
}

Place place_of(const Options& options, team::Bootstrap& bootstrap) {
  if (!is_emulated(options.driver)) {
    const int device = rank_on_host();
    return {command::open_driver(command::DriverChoice::cuda, device + 1).driver, DeviceOrdinal(device)};
  }
  command::DriverPlace place;
  place.driver = command::DriverChoice::emulated;
  place.devices = std::max(1, (bootstrap.size() + options.nodes - 1) / options.nodes);
  place.nodes = options.nodes;
  place.machine = told_by_first(bootstrap, emulator::broker::fresh_machine());
  return {command::open_driver_at(place, bootstrap.rank() / place.devices, tour::emulated_machine()),
          DeviceOrdinal(bootstrap.rank() % place.devices)};
}

// What is wrong with what came out; empty if nothing is.
std::string flaw_in(const tour::RankSums& sums, const tour::InputFile& input) {
  tour::ContentChecksum file;
  tour::read_pieces(input, bytes_of_rank, [&](std::uint64_t, std::span<const std::byte> piece) { file.add(piece); });
  std::string flaw;
  for (const auto& [seen, what] : {std::pair{sums.summed, "the sum of all shares"},
                                   {sums.stored, "that sum, stored to all,"},
                                   {sums.added, "the sum that all ranks added in memory"}})
    if (seen != file.value()) flaw += fmt::format(" {} has the checksum {:016x},", what, seen);
  return flaw.empty() ? "" : fmt::format("{} and the file {:016x}", flaw, file.value());
}

// Whether it is so on all ranks.
bool on_all_ranks(bool here) {
  int mine = here ? 1 : 0, all = 0;
  MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
  return all != 0;
}

int run(const Options& options) {
  const tour::InputFile input(options.file);
  std::unique_ptr<team::Bootstrap> bootstrap = team::MpiBootstrap::world(in_time());
  const int rank = bootstrap->rank(), ranks = bootstrap->size();
  const Place place = place_of(options, *bootstrap);
  tour::Gpu gpu(place.driver, place.device);
  gpu.require_kernels();
  const std::string why = tour::why_no_multicast(gpu.device());
  if (!on_all_ranks(why.empty())) {
    if (!why.empty()) std::fputs(fmt::format("rank {}: unavailable: {}\n", rank, why).c_str(), stdout);
    return 0;
  }
  const tour::RankSums sums = tour::reduce_as_rank(std::move(bootstrap), gpu, input, bytes_of_rank);
  const std::string flaw = flaw_in(sums, input);
  if (!flaw.empty()) std::fputs(fmt::format("rank {}:{}\n", rank, flaw).c_str(), stderr);
  if (!on_all_ranks(flaw.empty())) return failed;
  if (rank == 0)
    std::fputs(fmt::format("{}: {} reduced and broadcast through a multicast address by {} ranks of MPI{}; every rank "
                           "has them.\n",
                           place.driver.description(), command::bytes_in_words(input.size()), ranks,
                           options.nodes > 1 ? fmt::format(" on {} nodes", options.nodes) : "")
                   .c_str(),
               stdout);
  return 0;
}

int run_or_tell(const Options& options) {
  try {
    return run(options);
  } catch (const std::exception& error) {
    std::fputs(fmt::format("cuvmm_mpi_tour: {}\n", error.what()).c_str(), stderr);
    return failed;
  }
}

}  // namespace

int main(int count, char** words) {
  CLI::App application("Reduces and broadcasts a file's bytes through a multicast address, by ranks of MPI.");
  Options options;
  application.add_option("FILE", options.file, "The file whose bytes are moved")->required();
  command::add_driver_option(application, options.driver);
  application.add_option("--nodes", options.nodes, "On how many nodes of an emulated machine the ranks are")
      ->option_text("N [1]")
      ->check(CLI::Range(1, 64).description(""));
  MPI_Init(&count, &words);
  int status = 0;
  try {
    application.parse(count, words);
    status = run_or_tell(options);
  } catch (const CLI::ParseError& error) {
    status = application.exit(error) == 0 ? 0 : misuse;
  }
  if (status == failed) MPI_Abort(MPI_COMM_WORLD, status);  // others may wait for this rank
  MPI_Finalize();
  return status;
}
