// What lies behind one multicast object: memory of each device of a team, and the object's own addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "cuvmm/mapped_range.hpp"
#include "cuvmm/multicast_object.hpp"
#include "tour/team_device.hpp"

namespace cuvmm::tour {

// How large memory is that suits a multicast object of `bytes` bytes of the driver's, and the object.
[[nodiscard]] std::size_t multicast_unit(const Device& device, std::size_t bytes);

// Memory of one allocation at addresses of its own, for its device alone.
[[nodiscard]] MappedRange memory_of(const TeamDevice& device, std::size_t bytes, HandleTypes types = {});

// An object's addresses, open to the devices of the team.
class MulticastAddresses {
 public:
  MulticastAddresses(MulticastObject& object, std::span<TeamDevice* const> team);

  [[nodiscard]] abi::CUdeviceptr at(std::size_t offset) const noexcept { return mapping_.address().value + offset; }
  [[nodiscard]] DeviceAddress address() const noexcept { return mapping_.address(); }

 private:
  MulticastMapping mapping_;
};

// Each device of a team has as many parts behind the object as the others, each memory of its own and of `part_bytes`
// bytes. The parts lie one behind the other in the object, and anywhere in the devices' own addresses.
class TeamMemory {
 public:
  struct Options {
    std::size_t ranks = 2;
    std::size_t parts = 1;
    std::size_t part_bytes = 0;
    HandleTypes handle_types{};
  };
  TeamMemory(const TeamDevices& devices, const Options& options);
  TeamMemory(const TeamMemory&) = delete;
  TeamMemory& operator=(const TeamMemory&) = delete;
  TeamMemory(TeamMemory&&) = delete;
  TeamMemory& operator=(TeamMemory&&) = delete;
  ~TeamMemory();  // waits for the devices: unmapping does not

  [[nodiscard]] std::size_t ranks() const noexcept { return team_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return options_.parts * options_.part_bytes; }
  [[nodiscard]] TeamDevice& device(std::size_t rank) const { return *team_.at(rank); }
  [[nodiscard]] std::span<TeamDevice* const> team() const noexcept { return team_; }
  [[nodiscard]] const MappedRange& part(std::size_t rank, std::size_t index) const {
    return parts_.at(rank * options_.parts + index);
  }

  // Puts the rank's parts behind the object.
  void bind(MulticastObject& object, std::size_t rank);
  // Maps the object, once all of them are behind it.
  void map(MulticastObject& object) { addresses_.emplace(object, team_); }
  void unmap() { addresses_.reset(); }
  [[nodiscard]] const MulticastAddresses& addresses() const { return addresses_.value(); }

  // Lets the rank store the bytes to all ranks' memory, from that offset in the object on, by multimem.st. What lay
  // there before is overwritten on every rank by the rank's number first. What is behind a last word that is not full
  // is undefined.
  void broadcast(std::size_t root, std::size_t offset, std::span<const std::byte> bytes);
  // What a kernel of the rank sees of those bytes in its own memory.
  [[nodiscard]] std::uint64_t checksum(std::size_t rank, std::size_t offset, std::size_t bytes,
                                       std::uint64_t first_word) const;

  // Memory of the host that kernels of all ranks read and write, as large as the object.
  [[nodiscard]] const ReachableHostMemory& host() const noexcept { return host_; }

 private:
  // act(address, bytes, bytes before them): the pieces of what is `bytes` bytes from the offset on, in the rank's own
  // memory.
  template <class Act>
  void for_each_part(std::size_t rank, std::size_t offset, std::size_t bytes, Act act) const;

  Options options_;
  std::vector<TeamDevice*> team_;
  std::vector<MappedRange> parts_;
  ReachableHostMemory host_;
  std::optional<MulticastAddresses> addresses_;
};

// The bytes in whole packs of 16, as words.
[[nodiscard]] constexpr std::uint64_t words_of(std::size_t bytes) noexcept {
  constexpr std::size_t pack = 16;
  return (bytes + pack - 1) / pack * 2;
}

}  // namespace cuvmm::tour
