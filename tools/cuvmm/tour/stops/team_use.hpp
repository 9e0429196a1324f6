// A team of devices of this process at work on a multicast address: what 4.16.4.4 shows of each.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tour/stops/multicast.hpp"

namespace cuvmm::tour {

class TeamUse {
 public:
  // Every device of the team has `half` bytes behind the object, and as much beside it for results.
  TeamUse(Visit& visit, const TeamDevices& devices, std::size_t ranks, std::size_t half);
  TeamUse(const TeamUse&) = delete;
  TeamUse& operator=(const TeamUse&) = delete;
  TeamUse(TeamUse&&) = delete;
  TeamUse& operator=(TeamUse&&) = delete;
  ~TeamUse();

  // multimem.st of each rank reaches all.
  void broadcast();
  // A barrier of multimem.red and the memory's own address: nobody leaves before all have come.
  void barrier();
  // multimem.ld_reduce of 16-bit numbers, held against sums in double precision.
  void numbers();
  // A kernel that stores through the one address and loads through the other.
  void fence();
  // Who is not of the team gets no rights. False if all devices are of it, so that nothing could be tried.
  bool grants();

  // How many bytes of the input go at once.
  [[nodiscard]] std::size_t most_bytes() const noexcept { return content_bytes_; }
  // Each rank has a share of the piece, and only their sum is the input: summed by multimem.ld_reduce on every rank;
  // the sum stored to all by multimem.st; and summed once more, in memory, by multimem.red of every rank.
  void reduce(std::uint64_t offset, std::span<const std::byte> piece);
  // Makes sure that the input came out of each of these.
  void require_input();

 private:
  struct Rank {
    TeamDevice* device;
    MappedRange result;
    std::uint64_t summed = 0;
    std::uint64_t stored = 0;
    std::uint64_t added = 0;
  };

  [[nodiscard]] abi::CUdeviceptr own(std::size_t rank) const { return memory_.part(rank, 0).address().value; }
  // Where the rank's bytes for its kernels lie in the memory of the host.
  [[nodiscard]] std::size_t slot(std::size_t rank) const noexcept { return rank * content_bytes_; }
  void start_meeting(std::size_t rank, std::uint32_t epoch);
  void put(std::size_t rank, std::span<const std::byte> bytes);
  void finish_all() const;
  void require_success(abi::CUresult result);
  [[nodiscard]] std::string of(std::size_t rank) const;

  Visit& visit_;
  const TeamDevices& devices_;
  std::string name_;
  std::size_t content_bytes_;  // the counters of the barrier lie behind them
  TeamMemory memory_;
  MulticastObject object_;
  std::vector<Rank> ranks_;
  ReachableHostMemory shares_;
  ReachableHostMemory left_;  // what each rank's counter was when it left the barrier
  std::uint32_t epoch_ = 0;
};

}  // namespace cuvmm::tour
