#include "gpu/device_team.hpp"

#include <algorithm>
#include <utility>

#include "clean_up.hpp"
#include "cuvmm/copy.hpp"
#include "driver/call.hpp"
#include "refusal.hpp"

namespace cuvmm::gpu {

using driver::call;
using driver::EntryPoint;

namespace {

MappedRange shared_range(const Device& owner, std::span<const DeviceOrdinal> devices, std::size_t bytes) {
  std::vector<AccessGrant> grants;
  for (const DeviceOrdinal each : devices) grants.push_back({Location::device(each)});
  auto range = MappedRange::create(owner.driver(), {.capacity = bytes,
                                                    .memory = {.location = owner.location()},
                                                    .grants = std::move(grants),
                                                    .chunks = ChunkPolicy::exact()});
  range.append(bytes);
  return range;
}

}  // namespace

struct DeviceTeam::Member {
  Member(const Device& its_device, std::span<const DeviceOrdinal> devices, std::size_t bytes, std::size_t zero_bytes)
      : device(its_device), context(device), memory(shared_range(device, devices, bytes)), launcher(device) {
    driver::Interface& api = device.driver().interface();
    call<EntryPoint::cuStreamCreate>(api, &stream, abi::CU_STREAM_NON_BLOCKING);
    call<EntryPoint::cuMemsetD8>(api, memory.address().value, static_cast<unsigned char>(0), zero_bytes);
    context.synchronize();  // a memset may return before it is done
  }
  ~Member() {
    driver::Interface& api = device.driver().interface();
    const CurrentContext own(device);
    if (stream == nullptr) return;
    clean_up<EntryPoint::cuStreamSynchronize>(api, stream);
    clean_up<EntryPoint::cuStreamDestroy>(api, stream);
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  Member(Member&&) = delete;
  Member& operator=(Member&&) = delete;

  Device device;
  CurrentContext context;
  MappedRange memory;
  CollectiveLauncher launcher;
  abi::CUstream stream = nullptr;
};

DeviceTeam::DeviceTeam(const Driver& driver, std::span<const DeviceOrdinal> devices, const DeviceTeamOptions& options)
    : driver_(driver), options_(options) {
  if (const auto refusal = refusal_of("DeviceTeam", options, devices.size())) raise(*refusal);
  const MeetingMemory meeting(options, static_cast<std::uint32_t>(devices.size()));
  std::size_t multicast_bytes = 0;
  if (options.multicast) {
    const auto fit = MulticastRange::try_fit(driver.device(devices.front()), devices.size(), meeting.multicast_bytes());
    fit ? void(multicast_bytes = *fit) : void(why_no_multicast_ = fit.failure().message());
  } else {
    why_no_multicast_ = "The team was made without: DeviceTeamOptions::multicast is false";
  }
  const std::size_t bytes = std::max(meeting.bytes(), multicast_bytes);
  for (const DeviceOrdinal each : devices)
    members_.push_back(std::make_unique<Member>(driver.device(each), devices, bytes, meeting.zero_bytes()));
  if (multicast_bytes != 0) add_multicast(multicast_bytes);
}

// As all ranks are of this process, they agree by themselves.
void DeviceTeam::add_multicast(std::size_t bytes) {
  std::vector<const MappedRange*> ranges;
  for (const auto& member : members_) ranges.push_back(&member->memory);
  auto made = MulticastRange::try_create(devices(), ranges, bytes);
  if (made)
    multicast_ = std::move(made).value();
  else
    why_no_multicast_ = made.failure().message();
}

DeviceTeam::~DeviceTeam() {
  // Contexts are left in the reverse order in which they were entered; no rank's memory goes while another may use it.
  for (const auto& member : members_) {
    const CurrentContext own(member->device);
    clean_up<EntryPoint::cuStreamSynchronize>(driver_.interface(), member->stream);
  }
  multicast_.reset();
  while (!members_.empty()) members_.pop_back();
}

std::uint32_t DeviceTeam::ranks() const noexcept {
  return static_cast<std::uint32_t>(members_.size());
}
const DeviceTeamOptions& DeviceTeam::options() const noexcept {
  return options_;
}
const Device& DeviceTeam::device(std::uint32_t rank) const {
  return members_.at(rank)->device;
}
abi::CUstream DeviceTeam::stream(std::uint32_t rank) const {
  return members_.at(rank)->stream;
}

CollectiveLauncher& DeviceTeam::launcher(std::uint32_t rank) const {
  return members_.at(rank)->launcher;
}
std::vector<Device> DeviceTeam::devices() const {
  std::vector<Device> all;
  for (const auto& member : members_) all.push_back(member->device);
  return all;
}

Team DeviceTeam::team(std::uint32_t rank) const {
  std::vector<DeviceAddress> addresses;
  for (const auto& member : members_) addresses.push_back(member->memory.address());
  return MeetingMemory(options_, ranks()).team(rank, addresses, multicast_ ? multicast_->address() : DeviceAddress{});
}

std::vector<MappedRange> DeviceTeam::allocate(std::size_t bytes) const {
  std::vector<DeviceOrdinal> ordinals;
  for (const auto& member : members_) ordinals.push_back(member->device.ordinal());
  std::vector<MappedRange> ranges;
  for (const auto& member : members_) {
    const CurrentContext own(member->device);
    ranges.push_back(shared_range(member->device, ordinals, bytes));
  }
  return ranges;
}

TeamMemory DeviceTeam::allocate_for_all(std::size_t bytes) const {
  if (!has_multicast()) return {allocate(bytes), std::nullopt};
  const std::vector<Device> all = devices();
  const std::size_t fit = MulticastRange::try_fit(all.front(), all.size(), bytes).value();
  TeamMemory memory{allocate(fit), std::nullopt};
  std::vector<const MappedRange*> ranges;
  for (const MappedRange& each : memory.ranges) ranges.push_back(&each);
  memory.multicast = MulticastRange::try_create(all, ranges, fit).value();
  return memory;
}

void DeviceTeam::synchronize() const {
  for (const auto& member : members_) {
    const CurrentContext own(member->device);
    call<EntryPoint::cuStreamSynchronize>(driver_.interface(), member->stream);
  }
}

std::uint32_t DeviceTeam::missing(std::uint32_t rank) const {
  Member& member = *members_.at(rank);
  const CurrentContext own(member.device);
  call<EntryPoint::cuStreamSynchronize>(driver_.interface(), member.stream);
  std::vector<BlockState> states(options_.blocks);
  copy_from_device(states, member.memory, MeetingMemory(options_, ranks()).states());
  std::uint32_t all = 0;
  for (const BlockState& each : states) all |= each.missing;
  return all;
}

}  // namespace cuvmm::gpu
