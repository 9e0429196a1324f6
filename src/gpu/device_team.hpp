// A team whose ranks are devices of this process: memory that all of them reach, and the launches of collectives.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuvmm/context.hpp"
#include "cuvmm/driver.hpp"
#include "cuvmm/mapped_range.hpp"
#include "driver/abi.hpp"
#include "gpu/collective_launcher.hpp"
#include "gpu/meeting_memory.hpp"
#include "gpu/multicast_range.hpp"

namespace cuvmm::gpu {

using DeviceTeamOptions = CollectiveOptions;

// Memory of each rank, on its device, that all ranks reach.
struct TeamMemory {
  std::vector<MappedRange> ranges;          // rank r's
  std::optional<MulticastRange> multicast;  // the same bytes of all at once

  // Where rank r's begins, and all ranks' at once: null without multicast.
  [[nodiscard]] DeviceAddress address(std::uint32_t rank) const { return ranges.at(rank).address(); }
  [[nodiscard]] DeviceAddress multicast_address() const noexcept {
    return multicast ? multicast->address() : DeviceAddress{};
  }
};

// Makes everything at once: a MappedRange on each device, granted to all of them, for what ranks meet by; a stream and
// the kernels for each. Works alike on GPUs and on the emulated driver. Destruction waits for the streams. For one
// thread.
//
// Multicast is used where it is asked for, the devices have it and nothing turns it off (docs/environment.md); else the
// team is made without, and why_no_multicast() says why.
class DeviceTeam {
 public:
  // Rank r is devices[r]. Throws what MappedRange throws where a device cannot reach another's memory, and InvalidUse
  // for no device, or for more than max_ranks.
  DeviceTeam(const Driver& driver, std::span<const DeviceOrdinal> devices, const DeviceTeamOptions& options = {});
  ~DeviceTeam();
  DeviceTeam(const DeviceTeam&) = delete;
  DeviceTeam& operator=(const DeviceTeam&) = delete;
  DeviceTeam(DeviceTeam&&) = delete;
  DeviceTeam& operator=(DeviceTeam&&) = delete;

  [[nodiscard]] std::uint32_t ranks() const noexcept;
  [[nodiscard]] const DeviceTeamOptions& options() const noexcept;
  [[nodiscard]] const Device& device(std::uint32_t rank) const;
  [[nodiscard]] abi::CUstream stream(std::uint32_t rank) const;
  // What a rank's arguments begin with.
  [[nodiscard]] Team team(std::uint32_t rank) const;

  // Whether the ranks can meet by multicast; and if not, why.
  [[nodiscard]] bool has_multicast() const noexcept { return multicast_.has_value(); }
  [[nodiscard]] const std::string& why_no_multicast() const noexcept { return why_no_multicast_; }

  // Memory of `bytes` bytes for each rank, on its device, that all ranks reach.
  [[nodiscard]] std::vector<MappedRange> allocate(std::size_t bytes) const;
  // The same with a multicast address, if the team has multicast. Then it throws OutOfMulticastSlots where there is no
  // room for one more, and what else MulticastObject throws.
  [[nodiscard]] TeamMemory allocate_for_all(std::size_t bytes) const;

  // Gives a call of one rank to its stream. What the arguments say wrong is refused before the driver is asked
  // (InvalidUse; collective_checks.hpp), and so is multicast where the team has none.
  template <class T>
  void all_reduce(AllReduceWay way, const AllReduce<T>& call, const CollectiveShape& shape) const {
    launcher(call.team.rank).all_reduce(stream(call.team.rank), way, call, shape);
  }
  void broadcast(const Broadcast& call, const CollectiveShape& shape, bool multicast = false) const {
    launcher(call.team.rank).broadcast(stream(call.team.rank), call, shape, multicast);
  }
  void all_gather(const AllGather& call, const CollectiveShape& shape, bool multicast = false) const {
    launcher(call.team.rank).all_gather(stream(call.team.rank), call, shape, multicast);
  }
  void barrier(std::uint32_t rank, const CollectiveShape& shape, bool multicast = false) const {
    launcher(rank).barrier(stream(rank), team(rank), shape, multicast);
  }
  // A kernel by its name. `Arguments` is what it takes, and begins with a Team: that and the shape are checked.
  template <class Arguments>
  void launch(std::uint32_t rank, std::string_view kernel, const Arguments& arguments, unsigned blocks,
              unsigned threads) const {
    launcher(rank).launch(stream(rank), kernel, arguments, {blocks, threads});
  }

  void synchronize() const;  // waits for all streams

  // Ranks that some block of that rank gave up waiting for, bit r for rank r; 0 as long as all is well. Waits for the
  // rank's stream.
  [[nodiscard]] std::uint32_t missing(std::uint32_t rank) const;

 private:
  struct Member;

  [[nodiscard]] CollectiveLauncher& launcher(std::uint32_t rank) const;
  [[nodiscard]] std::vector<Device> devices() const;
  void add_multicast(std::size_t bytes);

  Driver driver_;
  DeviceTeamOptions options_;
  std::vector<std::unique_ptr<Member>> members_;
  std::optional<MulticastRange> multicast_;  // of what the ranks meet by
  std::string why_no_multicast_;
};

// Makes a device's context current for as long as the object lives.
class OnRank {
 public:
  OnRank(const DeviceTeam& team, std::uint32_t rank) : context_(team.device(rank)) {}

 private:
  CurrentContext context_;
};

}  // namespace cuvmm::gpu
